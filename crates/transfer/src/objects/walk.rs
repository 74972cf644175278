//! What a source consists of, found by handles: links are links and never followed.

use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Access, AtFlags, OFlags, SeekFrom};

use super::filter::Filters;
use super::folders::{self, Attributes, FileKind, Folders};
use super::manifest::{self, Entry, Kind, MAX_ENTRIES, MAX_PATH};
use super::place::{reason, show};
use super::{CHUNK, Failure, LARGE, Watch, names};
use crate::error::{Class, Error};

/// What was found, in no order yet.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// Each entry and the number of the source it was found in.
    pub(crate) entries: Vec<(Entry, u16)>,
    /// What could not be read.
    pub(crate) failures: Vec<Failure>,
    /// What was left out and why.
    pub(crate) warnings: Vec<String>,
    /// Is told of each name.
    pub(crate) watch: Watch,
}

impl Walk {
    /// Takes the file `name` in `parent`. `large_from` is the size from which on it is looked
    /// through for holes.
    pub(crate) fn file(
        &mut self,
        source: u16,
        parent: impl AsFd,
        path: &[u8],
        attributes: &Attributes,
        large_from: u64,
    ) {
        let name = manifest::split(path).1;
        match file_kind(parent, name, attributes, large_from) {
            Ok(kind) => self.entries.push((entry(path, kind, attributes), source)),
            Err(error) => self.fail(path, reason(&error)),
        }
    }

    /// Takes the link `path`, found in `parent`.
    pub(crate) fn link(
        &mut self,
        source: u16,
        parent: impl AsFd,
        path: &[u8],
        attributes: &Attributes,
    ) {
        match rustix::fs::readlinkat(parent, manifest::split(path).1, Vec::new()) {
            Ok(target) => {
                let kind = Kind::Link { target: target.into_bytes().into() };
                self.entries.push((entry(path, kind, attributes), source));
            }
            Err(error) => self.fail(path, reason(&error.into())),
        }
    }

    /// Takes the folder itself, as `path`.
    pub(crate) fn folder(&mut self, source: u16, path: &[u8], attributes: &Attributes) {
        self.entries.push((entry(path, Kind::Folder, attributes), source));
    }

    /// Takes what is in the folder `base` as what is in `top` (empty for the top of the copy).
    ///
    /// # Errors
    /// Class `Usage`, for more entries than a manifest may have; `Unfinished`, where nobody waits
    /// for it any more.
    pub(crate) fn tree(
        &mut self,
        source: u16,
        base: OwnedFd,
        top: &[u8],
        filters: &Filters,
    ) -> Result<Folders, Error> {
        let mut folders = Folders::new(base);
        let mut left = vec![Vec::new()];
        while let Some(inner) = left.pop() {
            let below = |name: &[u8], within: &[u8]| match within {
                b"" => name.to_vec(),
                within => [within, b"/", name].concat(),
            };
            let path = if inner.is_empty() { top.to_vec() } else { below(&inner, top) };
            let found = folders.at(&inner).and_then(|folder| {
                let names = folders::names_in(folder)?;
                Ok((folder, names))
            });
            let (folder, names) = match found {
                Ok(found) => found,
                Err(error) => {
                    self.fail(&path, reason(&error));
                    continue;
                }
            };
            for name in names {
                let ended =
                    |error: std::io::Error| Error::new(Class::Unfinished, error.to_string());
                self.watch.go_on().map_err(ended)?;
                let path = below(&name, &path);
                if self.found(source, folder, &path, filters) {
                    left.push(below(&name, &inner));
                }
            }
            if self.entries.len() as u64 > MAX_ENTRIES {
                let what = "more than ten million files and folders in one copy";
                return Err(Error::new(Class::Usage, what).advise("copy its folders one by one"));
            }
        }
        Ok(folders)
    }

    /// Takes what is at `path`, found in `parent`; true for a folder, to be looked into.
    fn found(&mut self, source: u16, parent: impl AsFd, path: &[u8], filters: &Filters) -> bool {
        let name = manifest::split(path).1;
        if names::is_reserved(name) {
            self.warnings.push(format!("{}: left by an unfinished copy, not taken", show(path)));
            return false;
        }
        let attributes = match folders::look(&parent, name) {
            Ok(attributes) => attributes,
            Err(error) => {
                self.fail(path, reason(&error));
                return false;
            }
        };
        let is_folder = attributes.kind == FileKind::Folder;
        if !filters.takes(path, is_folder) {
            return false;
        }
        if path.len() > MAX_PATH {
            self.fail(path, "its path is longer than 4096 bytes".to_owned());
            return false;
        }
        match attributes.kind {
            FileKind::File => self.file(source, parent, path, &attributes, LARGE),
            FileKind::Link => self.link(source, parent, path, &attributes),
            FileKind::Folder => self.folder(source, path, &attributes),
            FileKind::Other => {
                self.warnings.push(format!("{}: a device, socket or pipe, not taken", show(path)))
            }
        }
        is_folder
    }

    fn fail(&mut self, path: &[u8], reason: String) {
        self.failures.push(Failure { entry: None, path: path.to_vec(), reason });
    }
}

fn entry(path: &[u8], kind: Kind, attributes: &Attributes) -> Entry {
    let path = path.into();
    Entry { path, kind, mode: attributes.mode, modified: attributes.modified }
}

/// Sees that a file can be read, and where its holes are.
fn file_kind(
    parent: impl AsFd,
    name: &[u8],
    attributes: &Attributes,
    large_from: u64,
) -> std::io::Result<Kind> {
    let size = attributes.size;
    let sparse = attributes.allocated < size;
    let mut holes = Vec::new();
    if size >= large_from {
        let file = folders::open(parent, name, OFlags::RDONLY)?;
        if sparse {
            holes = holes_of(&file, size);
        }
    } else if !is_ours(attributes) {
        // A link put here meanwhile is only looked at; the read itself follows none.
        rustix::fs::accessat(parent, name, Access::READ_OK, AtFlags::EACCESS)?;
    }
    Ok(Kind::File { size, sparse, holes: holes.into() })
}

/// Whether a file's owner may read it and is who we are: nobody need be asked then.
fn is_ours(attributes: &Attributes) -> bool {
    attributes.mode & 0o400 != 0 && attributes.owner == rustix::process::geteuid().as_raw()
}

/// The chunks without any content. Where the file system cannot tell, there are none.
fn holes_of(file: &File, size: u64) -> Vec<Range<u64>> {
    let mut holes = Vec::new();
    let mut end_of_content = 0;
    while end_of_content < size {
        let next = match rustix::fs::seek(file, SeekFrom::Data(end_of_content)) {
            Ok(at) => at.min(size),
            Err(rustix::io::Errno::NXIO) => size,
            Err(_) => break,
        };
        let first = end_of_content.div_ceil(CHUNK);
        let end = if next == size { size.div_ceil(CHUNK) } else { next / CHUNK };
        if first < end {
            holes.push(first..end);
        }
        match rustix::fs::seek(file, SeekFrom::Hole(next)) {
            Ok(at) if at > end_of_content && next < size => end_of_content = at,
            _ => break,
        }
    }
    holes
}
