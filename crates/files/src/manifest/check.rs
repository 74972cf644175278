//! The checks of a manifest, entry by entry in the order of a walk.
//!
//! The work for an entry does not grow with its depth.

use std::cmp::Ordering;
use std::ops::Range;

use super::{Entry, Kind, MAX_ENTRIES, MAX_OBJECT, MAX_PATH, Shape, large_from, walk_order};
use crate::{CHUNK, names};

pub(crate) const TWICE: &str = "appears twice";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) parent: Option<u32>,
    /// Where the name begins in the path.
    pub(super) name_at: usize,
}

pub(super) struct Check {
    shape: Shape,
    /// The path of the last entry.
    path: Vec<u8>,
    /// The folders that hold the last entry, and the last entry itself if it is a folder: outermost
    /// first, each with the end of its path in `path`.
    open: Vec<(u32, usize)>,
    count: u64,
    tops: u64,
    bytes: u64,
    last_is_file: bool,
}

impl Check {
    pub(super) fn new(shape: Shape) -> Check {
        Check {
            shape,
            path: Vec::new(),
            open: Vec::new(),
            count: 0,
            tops: 0,
            bytes: 0,
            last_is_file: false,
        }
    }

    pub(super) fn path(&self) -> &[u8] {
        &self.path
    }

    /// Returns the length of the path of the folder `parent`, as a prefix of the last path. Closes
    /// all folders below `parent`.
    pub(super) fn end_of(&mut self, parent: Option<u32>) -> usize {
        while self.open.last().is_some_and(|(number, _)| Some(*number) != parent) {
            self.open.pop();
        }
        self.open.last().map_or(0, |(_, end)| *end)
    }

    /// Moves to the next path: the first `shared` bytes of the last path, then `rest`.
    pub(super) fn next(&mut self, shared: usize, rest: &[u8]) -> Result<Placed, &'static str> {
        let order = walk_order(&self.path[shared..], rest);
        let common = self.path[shared..].iter().zip(rest).take_while(|(a, b)| a == b).count();
        let common = shared + common;
        self.path.truncate(shared);
        self.path.extend_from_slice(rest);
        if self.count >= MAX_ENTRIES {
            return Err("more than ten million entries");
        }
        if self.path.len() > MAX_PATH {
            return Err("path longer than 4096 bytes");
        }
        let path = &self.path;
        let holds = |end: usize| end <= common && path.get(end) == Some(&b'/');
        while self.open.last().is_some_and(|(_, end)| !holds(*end)) {
            self.open.pop();
        }
        let parent = self.open.last().map(|(number, _)| *number);
        let name_at = self.open.last().map_or(0, |(_, end)| end + 1);
        let mut components = path[name_at..].split(|b| *b == b'/');
        components.by_ref().try_for_each(check_name)?;
        match order {
            Ordering::Equal => return Err(TWICE),
            Ordering::Greater => return Err("out of order"),
            _ => {}
        }
        if path[name_at..].contains(&b'/') {
            return Err("its folder is not in the manifest");
        }
        Ok(Placed { parent, name_at })
    }

    /// Checks and counts `entry`, at the path of the last call of [`Check::next`]; `placed` is the
    /// result of that call.
    pub(super) fn take(&mut self, entry: &Entry, placed: Placed) -> Result<(), &'static str> {
        if entry.mode > 0o7777 || entry.modified.nanos >= 1_000_000_000 {
            return Err("mode or time out of range");
        }
        match &entry.kind {
            Kind::Folder => self.open.push((self.count as u32, self.path.len())),
            Kind::Link { target } => {
                if target.is_empty() || target.len() > MAX_PATH || target.contains(&0) {
                    return Err("link target empty, too long, or with a zero byte");
                }
            }
            Kind::File { size, holes, .. } => {
                check_holes(self.shape, *size, holes)?;
                // Each file may need up to a chunk of padding before it and another one after it.
                let room = size.checked_add(2 * CHUNK);
                let bytes = room.and_then(|room| self.bytes.checked_add(room));
                self.bytes = bytes
                    .filter(|bytes| *bytes <= MAX_OBJECT)
                    .ok_or("the files have more than a pebibyte in all")?;
            }
        }
        self.last_is_file = entry.size().is_some();
        self.tops += u64::from(placed.parent.is_none());
        self.count += 1;
        Ok(())
    }

    pub(super) fn end(&self) -> Result<(), &'static str> {
        match self.shape {
            Shape::File if self.count == 1 && self.last_is_file => Ok(()),
            Shape::File => Err("should be one file"),
            Shape::Named if self.tops == 0 => Err("should have one top entry and has none"),
            Shape::Named if self.tops > 1 => Err("should have one top entry and has several"),
            _ => Ok(()),
        }
    }
}

fn check_name(name: &[u8]) -> Result<(), &'static str> {
    match name {
        b"" => Err("empty name or absolute path"),
        b"." | b".." => Err("the name . or .., which leads elsewhere"),
        name if name.len() > names::NAME_MAX => Err("name longer than 255 bytes"),
        name if name.contains(&0) => Err("name with a zero byte"),
        name if names::is_reserved(name) => Err("name reserved for unfinished copies"),
        _ => Ok(()),
    }
}

fn check_holes(shape: Shape, size: u64, holes: &[Range<u64>]) -> Result<(), &'static str> {
    if !holes.is_empty() && size < large_from(shape) {
        return Err("holes in a small file");
    }
    let mut end = None;
    for hole in holes {
        if hole.start >= hole.end || end.is_some_and(|end| hole.start <= end) {
            return Err("holes out of order");
        }
        end = Some(hole.end);
    }
    match end {
        Some(end) if end > size.div_ceil(CHUNK) => Err("a hole beyond the end of the file"),
        _ => Ok(()),
    }
}
