//! Small files on their way: each in a partial file of its own, many of them brought onto the
//! disk by one sync, then renamed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;

use rustix::fs::OFlags;

use super::attributes::Keep;
use super::bits::Bits;
use super::destination::Ground;
use super::hands;
use crate::objects::{Entry, Extent, folders, names};

/// Up to this many files are synced one by one: that spares others' writes on the same disk.
const ONE_BY_ONE: usize = 8;

/// How many files that lie in several chunks are kept open.
const KEPT: usize = 32;

/// Files that wait longer than a sync takes are synced early beyond this count.
const MOST_QUEUED: usize = 100_000;

/// A file that lies in several chunks and has not got all of them.
#[derive(Debug)]
struct Begun {
    missing: u64,
    identity: (u64, u64),
    file: Option<File>,
    /// The permissions of the file that it replaces, where it keeps them.
    own: Option<u32>,
}

/// A file that is whole and waits for the disk.
#[derive(Debug)]
struct Whole {
    entry: u32,
    identity: (u64, u64),
}

/// All small files of a tree that are on their way.
#[derive(Debug, Default)]
pub(super) struct Small {
    begun: BTreeMap<u32, Begun>,
    queue: Vec<Whole>,
    /// Entries in folders that this copy has made: nothing is there under their names.
    new: Bits,
}

/// A file all of whose content is at hand.
pub(super) struct Complete<'a> {
    pub(super) entry: u32,
    pub(super) content: &'a [u8],
}

/// What became of a file.
pub(super) type Verdict = (u32, io::Result<()>);

impl Small {
    /// None of a manifest's entries, of which there are so many.
    pub(super) fn new(entries: usize) -> Small {
        Small { new: Bits::new(entries as u64), ..Small::default() }
    }

    /// Nothing is there under the name of an entry.
    pub(super) fn set_new(&mut self, entry: u32) {
        self.new.insert(entry.into());
    }

    /// Makes files of all of their content, several at once, and queues them; tells which went
    /// wrong. None of them may have been begun.
    pub(super) fn write_complete(
        &mut self,
        ground: &mut Ground,
        keep: Keep,
        files: &[Complete<'_>],
    ) -> Vec<(u32, io::Error)> {
        let new = &self.new;
        let made = hands::each(ground, files, |ground, Complete { entry: number, content }| {
            let manifest = ground.manifest.clone();
            let entry = &manifest.entries()[*number as usize];
            let mut begun = begin(ground, *number, keep, new)?;
            let file = begun.file.take().expect("it was made open");
            begun.put(&file, entry, 0, content)?;
            keep.apply(&file, entry, begun.own)?;
            Ok(Whole { entry: *number, identity: begun.identity })
        });
        let mut failed = Vec::new();
        for (file, made) in files.iter().zip(made) {
            match made {
                Ok(whole) => self.queue.push(whole),
                Err(error) => failed.push((file.entry, error)),
            }
        }
        failed
    }

    /// Writes a piece of a file; queues the file if that was the last.
    pub(super) fn write(
        &mut self,
        ground: &mut Ground,
        keep: Keep,
        extent: &Extent,
        content: &[u8],
    ) -> io::Result<()> {
        let manifest = ground.manifest.clone();
        let entry = &manifest.entries()[extent.entry as usize];
        let mut begun = match self.begun.remove(&extent.entry) {
            Some(begun) => begun,
            None => begin(ground, extent.entry, keep, &self.new)?,
        };
        let file = match begun.file.take() {
            Some(file) => file,
            None => reopen(ground, extent.entry, begun.identity)?,
        };
        begun.put(&file, entry, extent.file_offset, content)?;
        if begun.missing == 0 {
            keep.apply(&file, entry, begun.own)?;
            self.queue.push(Whole { entry: extent.entry, identity: begun.identity });
            return Ok(());
        }
        let open = self.begun.values().filter(|begun| begun.file.is_some()).count();
        begun.file = (open < KEPT).then_some(file);
        self.begun.insert(extent.entry, begun);
        Ok(())
    }

    /// Makes a file without content and queues it.
    pub(super) fn write_empty(
        &mut self,
        ground: &mut Ground,
        keep: Keep,
        number: u32,
    ) -> io::Result<()> {
        let begun = begin(ground, number, keep, &self.new)?;
        let manifest = ground.manifest.clone();
        if let Some(file) = begun.file {
            keep.apply(&file, &manifest.entries()[number as usize], begun.own)?;
        }
        self.queue.push(Whole { entry: number, identity: begun.identity });
        Ok(())
    }

    /// Whether so many wait that they should not wait longer.
    pub(super) fn is_full(&self) -> bool {
        self.queue.len() >= MOST_QUEUED
    }

    /// Brings what waits onto the disk and gives it its names; tells what became of each.
    pub(super) fn sync(&mut self, ground: &mut Ground) -> Vec<Verdict> {
        let queue = std::mem::take(&mut self.queue);
        if queue.is_empty() {
            return Vec::new();
        }
        let device = folders::look_at(ground.base()).map(|base| base.identity.0).ok();
        let together = queue.len() > ONE_BY_ONE && sync_all(ground).is_ok();
        hands::each(ground, &queue, |ground, whole| {
            let alone = !together || Some(whole.identity.0) != device;
            (whole.entry, settle(ground, whole, alone))
        })
    }

    /// Removes what is there of a file that is not to be.
    pub(super) fn forget(&mut self, ground: &mut Ground, number: u32) {
        let begun = self.begun.remove(&number).map(|begun| begun.identity);
        let queued = self.queue.iter().position(|whole| whole.entry == number);
        let queued = queued.map(|at| self.queue.swap_remove(at).identity);
        let Some(identity) = begun.or(queued) else { return };
        // What cannot be removed is written over by the next run.
        if let Ok((folder, name)) = ground.at(number) {
            let partial = names::partial(&name);
            if folders::look(folder, &partial).is_ok_and(|found| found.identity == identity) {
                let _ = folders::remove_if_there(folder, &partial);
            }
        }
    }

    /// Removes what is there of all files that are not whole: nothing of them can be kept.
    pub(super) fn forget_begun(&mut self, ground: &mut Ground) {
        while let Some((number, _)) = self.begun.first_key_value() {
            let number = *number;
            self.forget(ground, number);
        }
    }
}

impl Begun {
    /// Puts a piece of the content in.
    fn put(&mut self, file: &File, entry: &Entry, at: u64, content: &[u8]) -> io::Result<()> {
        let size = entry.size().unwrap_or(0);
        let sparse = matches!(entry.kind, crate::objects::Kind::File { sparse: true, .. });
        let how = super::partial::Writing { sparse, fresh: true };
        if sparse && self.missing == size {
            file.set_len(size)?;
        }
        super::partial::write(file, how, at, content)?;
        self.missing -= content.len() as u64;
        Ok(())
    }
}

/// Makes a partial file anew: one that is there may be another copy's, and is left to it. Under
/// the names of entries in `new` there is nothing.
fn begin(ground: &mut Ground, number: u32, keep: Keep, new: &Bits) -> io::Result<Begun> {
    let manifest = ground.manifest.clone();
    let entry = &manifest.entries()[number as usize];
    let (folder, name) = ground.at(number)?;
    let own = if new.has(number.into()) { None } else { keep.own_mode(folder, &name)? };
    let mode = keep.mode_at_first(entry, own);
    let partial = names::partial(&name);
    let file = match folders::create(folder, &partial, mode) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            folders::remove_if_there(folder, &partial)?;
            folders::create(folder, &partial, mode)?
        }
        made => made?,
    };
    let identity = folders::look_at(&file)?.identity;
    Ok(Begun { missing: entry.size().unwrap_or(0), identity, file: Some(file), own })
}

fn taken_over() -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, "another copy is writing it at this moment")
}

fn reopen(ground: &mut Ground, number: u32, identity: (u64, u64)) -> io::Result<File> {
    let (folder, name) = ground.at(number)?;
    let file = match folders::open(folder, &names::partial(&name), OFlags::WRONLY) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(taken_over()),
        file => file?,
    };
    match folders::look_at(&file)?.identity == identity {
        true => Ok(file),
        false => Err(taken_over()),
    }
}

/// Gives a file its final name, after a sync of its own if it needs one.
fn settle(ground: &mut Ground, whole: &Whole, alone: bool) -> io::Result<()> {
    if alone {
        reopen(ground, whole.entry, whole.identity)?.sync_all()?;
    }
    let (folder, name) = ground.at(whole.entry)?;
    let partial = names::partial(&name);
    let found = folders::look_if_there(folder, &partial)?;
    if found.map(|found| found.identity) != Some(whole.identity) {
        return Err(taken_over());
    }
    rustix::fs::renameat(folder, partial, folder, &name)?;
    Ok(())
}

/// Brings all that was written to the destination's file system onto the disk.
#[cfg(target_os = "linux")]
pub(super) fn sync_all(ground: &Ground) -> io::Result<()> {
    Ok(rustix::fs::syncfs(ground.base())?)
}

/// Brings all that was written onto the disk.
#[cfg(not(target_os = "linux"))]
pub(super) fn sync_all(_ground: &Ground) -> io::Result<()> {
    rustix::fs::sync();
    Ok(())
}
