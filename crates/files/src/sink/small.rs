//! Small files in progress. Each has its own partial file. One call syncs many partial files, and
//! then each gets its final name. A file that spans several chunks arrives in pieces: a piece is
//! the part of the file in one chunk.

use std::collections::BTreeMap;
use std::io;

use super::attributes::{Keep, PARTIAL_FILE};
use super::bits::Bits;
use super::destination::Ground;
use super::{partial, workers};
use crate::manifest::FileTime;
use crate::store::{self, Access, Attributes, File, OpenFile};
use crate::{Entry, Extent, names};

/// Up to this many files are synced one by one. A sync of the file system would also write other
/// programs' data.
const ONE_BY_ONE: usize = 8;

/// Maximum number of files that stay open between two of their pieces.
const KEPT: usize = 32;

/// With this many files in the queue, the sink syncs at once, not only after its usual interval.
const MOST_QUEUED: usize = 100_000;

/// An incomplete file that spans several chunks.
#[derive(Debug)]
struct Begun {
    /// Bytes that are not yet written.
    missing: u64,
    /// The modification time, in seconds, that was set when the file was closed between two pieces.
    closed: Option<i64>,
    /// The offsets of the written pieces in the file.
    pieces: Vec<u64>,
    identity: (u64, u64),
    file: Option<OpenFile>,
    mode: u32,
}

#[derive(Debug)]
struct Whole {
    entry: u32,
    stamp: Stamp,
    /// Kept open if files are synced one by one: the file's final mode may forbid another open, and
    /// a new descriptor may not report an earlier write error.
    file: Option<OpenFile>,
}

/// Identifies a partial file. The inode alone proves nothing, because the system reuses it. The
/// modification time distinguishes an incomplete file from a complete one, which already has its
/// final time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    identity: (u64, u64),
    size: u64,
    modified: FileTime,
}

impl Stamp {
    fn of(found: &Attributes) -> Stamp {
        Stamp { identity: found.identity, size: found.size, modified: found.modified }
    }
}

#[derive(Debug, Default)]
pub(super) struct Small {
    begun: BTreeMap<u32, Begun>,
    /// Complete files that wait for their sync and their final names.
    queue: Vec<Whole>,
    /// Entries in folders that this copy has created. No other file has their names.
    new: Bits,
}

pub(super) struct Complete<'a> {
    pub(super) entry: u32,
    pub(super) content: &'a [u8],
}

pub(super) enum Settled {
    Named,
    Unsynced(io::Error),
    Failed(io::Error),
}

impl Small {
    pub(super) fn new(entries: usize) -> Small {
        Small { new: Bits::new(entries as u64), ..Small::default() }
    }

    pub(super) fn set_new(&mut self, entry: u32) {
        self.new.insert(entry.into());
    }

    /// Writes complete files, several in parallel, and queues them; returns the failures. The files
    /// must not have been begun in pieces.
    pub(super) fn write_complete(
        &mut self,
        ground: &mut Ground,
        keep: Keep,
        files: &[Complete<'_>],
    ) -> Vec<(u32, io::Error)> {
        let new = &self.new;
        let one_by_one = self.queue.len() + files.len() <= ONE_BY_ONE;
        let made = workers::each(ground, files, |ground, Complete { entry: number, content }| {
            let manifest = ground.manifest.clone();
            let entry = &manifest.entries()[*number as usize];
            let mut begun = begin(ground, *number, keep, new)?;
            let file = begun.file.take().expect("the file was opened above");
            begun.put(&*file, entry, 0, content)?;
            keep.apply(&*file, entry, begun.mode)?;
            let stamp = Stamp::of(&file.attributes()?);
            Ok(Whole { entry: *number, stamp, file: one_by_one.then_some(file) })
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
            None => {
                let is_it = |found: &Attributes| {
                    found.identity == begun.identity && begun.closed == Some(found.modified.seconds)
                };
                reopen(ground, extent.entry, Access::Write, is_it)?
            }
        };
        // A chunk may arrive again, because another file in the chunk needs it.
        if !begun.pieces.contains(&extent.file_offset) {
            begun.put(&*file, entry, extent.file_offset, content)?;
        }
        if begun.missing == 0 {
            keep.apply(&*file, entry, begun.mode)?;
            return self.enqueue(extent.entry, file, begun.closed.is_none());
        }
        let open = self.begun.values().filter(|begun| begun.file.is_some()).count();
        if open < store::kept(KEPT) {
            begun.file = Some(file);
        } else {
            begun.closed = Some(mark(&*file)?);
        }
        self.begun.insert(extent.entry, begun);
        Ok(())
    }

    pub(super) fn write_empty(
        &mut self,
        ground: &mut Ground,
        keep: Keep,
        number: u32,
    ) -> io::Result<()> {
        let begun = begin(ground, number, keep, &self.new)?;
        let manifest = ground.manifest.clone();
        if let Some(file) = begun.file {
            keep.apply(&*file, &manifest.entries()[number as usize], begun.mode)?;
            self.enqueue(number, file, true)?;
        }
        Ok(())
    }

    /// Queues a complete file. `may_sync` is false if the file was closed between two writes: a
    /// sync of `file` then proves nothing about the earlier writes.
    fn enqueue(&mut self, entry: u32, file: OpenFile, may_sync: bool) -> io::Result<()> {
        let stamp = Stamp::of(&file.attributes()?);
        let keep = may_sync && self.queue.len() < ONE_BY_ONE;
        self.queue.push(Whole { entry, stamp, file: keep.then_some(file) });
        Ok(())
    }

    pub(super) fn is_full(&self) -> bool {
        self.queue.len() >= MOST_QUEUED
    }

    /// Returns whether to sync the file system instead of each file. One sync is cheaper for many
    /// files; also, a descriptor that was opened after an error may not report the error.
    pub(super) fn wants_one_sync(&self) -> bool {
        self.queue.len() > ONE_BY_ONE || self.queue.iter().any(|whole| whole.file.is_none())
    }

    /// Renames the waiting files and returns the results. With `synced`, the destination's file
    /// system was synced after their writes. A file that was not covered by this sync is synced
    /// before its rename.
    pub(super) fn settle(&mut self, ground: &mut Ground, synced: bool) -> Vec<(u32, Settled)> {
        let queue = std::mem::take(&mut self.queue);
        if queue.is_empty() {
            return Vec::new();
        }
        let device = ground.base().attributes().map(|base| base.identity.0).ok();
        workers::each(ground, &queue, |ground, whole| {
            let alone = !synced || Some(whole.stamp.identity.0) != device;
            let unsynced = if alone { sync_one(ground, whole).err() } else { None };
            let settled = match unsynced {
                Some(error) => Settled::Unsynced(error),
                None => match name(ground, whole) {
                    Ok(()) => Settled::Named,
                    Err(error) => Settled::Failed(error),
                },
            };
            (whole.entry, settled)
        })
    }

    /// Returns all files in progress; a failed sync of the file system makes their state unknown.
    pub(super) fn on_their_way(&self) -> Vec<u32> {
        let queued = self.queue.iter().map(|whole| whole.entry);
        queued.chain(self.begun.keys().copied()).collect()
    }

    pub(super) fn forget(&mut self, ground: &mut Ground, number: u32) {
        let begun = self.begun.remove(&number).map(|begun| begun.identity);
        let queued = self.queue.iter().position(|whole| whole.entry == number);
        let queued = queued.map(|at| self.queue.swap_remove(at).stamp.identity);
        let Some(identity) = begun.or(queued) else { return };
        // If the removal fails, the next run replaces the file.
        if let Ok((folder, name)) = ground.at(number) {
            let _ = partial::remove_free(folder, &names::small(&name), Some(identity));
        }
    }

    pub(super) fn forget_begun(&mut self, ground: &mut Ground) {
        let begun: Vec<u32> = self.begun.keys().copied().collect();
        begun.into_iter().for_each(|number| self.forget(ground, number));
    }
}

impl Begun {
    fn put(&mut self, file: &dyn File, entry: &Entry, at: u64, content: &[u8]) -> io::Result<()> {
        let size = entry.size().unwrap_or(0);
        let sparse = matches!(entry.kind, crate::Kind::File { sparse: true, .. });
        let how = super::partial::Writing { sparse, fresh: true };
        if sparse && self.missing == size {
            file.set_len(size)?;
        }
        super::partial::write(file, how, at, content)?;
        self.missing = self.missing.saturating_sub(content.len() as u64);
        self.pieces.push(at);
        Ok(())
    }
}

/// Creates a partial file. First removes an existing partial file: a killed copy has left it, or
/// another copy is writing it. The other copy then fails; but if the other copy is renaming the
/// file at this moment, this call fails instead. An entry in `new` replaces no file, so it inherits
/// no mode.
fn begin(ground: &mut Ground, number: u32, keep: Keep, new: &Bits) -> io::Result<Begun> {
    let manifest = ground.manifest.clone();
    let entry = &manifest.entries()[number as usize];
    let (folder, name) = ground.at(number)?;
    let replaced = (!new.has(number.into())).then_some(&name[..]);
    let mode = keep.final_mode(folder, replaced, entry)?;
    let partial = names::small(&name);
    let file = match folder.create(&partial, PARTIAL_FILE) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            partial::remove_free(folder, &partial, None)?;
            folder.create(&partial, PARTIAL_FILE)?
        }
        made => made?,
    };
    let identity = file.attributes()?.identity;
    let missing = entry.size().unwrap_or(0);
    Ok(Begun { missing, closed: None, pieces: Vec::new(), identity, file: Some(file), mode })
}

fn reopen(
    ground: &mut Ground,
    number: u32,
    access: Access,
    is_it: impl Fn(&Attributes) -> bool,
) -> io::Result<OpenFile> {
    let (folder, name) = ground.at(number)?;
    let file = match folder.open(&names::small(&name), access) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(store::busy()),
        file => file?,
    };
    match is_it(&file.attributes()?) {
        true => Ok(file),
        false => Err(store::busy()),
    }
}

fn name(ground: &mut Ground, whole: &Whole) -> io::Result<()> {
    let (folder, name) = ground.at(whole.entry)?;
    let partial = names::small(&name);
    let opened = match whole.file {
        Some(_) => None,
        None => folder.open(&partial, Access::Read).ok(),
    };
    let file = whole.file.as_ref().or(opened.as_ref());
    let is_it = |found: &Attributes| Stamp::of(found) == whole.stamp;
    partial::rename(folder, &partial, &name, file.map(|file| &**file), is_it)
}

/// Gives a file that is closed between two pieces a random time, which identifies it.
fn mark(file: &dyn File) -> io::Result<i64> {
    let seconds = i64::from(names::random() as u32);
    // A file system that refuses to set times keeps the time of the last write.
    let _ = file.set_modified(FileTime { seconds, nanos: 0 });
    Ok(file.attributes()?.modified.seconds)
}

/// Syncs a file that may be read-only or even unreadable by now.
fn sync_one(ground: &mut Ground, whole: &Whole) -> io::Result<()> {
    if let Some(file) = &whole.file {
        return file.sync_all();
    }
    let is_it = |found: &Attributes| Stamp::of(found) == whole.stamp;
    match reopen(ground, whole.entry, Access::Read, is_it) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            ground.at(whole.entry)?.0.sync_file_system()
        }
        file => file?.sync_all(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(entry: u32, file: Option<OpenFile>) -> Whole {
        let stamp = Stamp { identity: (1, 2), size: 3, modified: FileTime::default() };
        Whole { entry, stamp, file }
    }

    fn begun(disk: &crate::store::memory::Disk, mode: u32) -> (Ground, Whole) {
        let root = crate::store::buffers::Store(disk.root());
        let place = crate::Place::Stored { root, path: "x".into() };
        let manifest = crate::Manifest::of_file(b"x", 3, FileTime::default(), 0).unwrap();
        let ground = Ground::open(&place, &std::sync::Arc::new(manifest), true).unwrap();
        let file = disk.root().create(&names::small(b"x"), mode).unwrap();
        let stamp = Stamp::of(&file.attributes().unwrap());
        (ground, Whole { entry: 0, stamp, file: None })
    }

    #[test]
    fn a_closed_file_is_synced_unless_another_copy_has_replaced_or_removed_it() {
        use crate::store::memory::{Disk, Faults};
        let disk = Disk::new(1);
        disk.obey_modes();
        let (mut ground, mut whole) = begun(&disk, 0o600);
        sync_one(&mut ground, &whole).unwrap();
        whole.stamp.size += 1;
        assert!(partial::is_busy(&sync_one(&mut ground, &whole).unwrap_err()));
        disk.root().remove(&names::small(b"x")).unwrap();
        assert!(partial::is_busy(&sync_one(&mut ground, &whole).unwrap_err()));
        let (mut ground, whole) = begun(&disk, 0o000);
        sync_one(&mut ground, &whole).unwrap();
        disk.set_faults(Faults { sync: 10_000, ..Faults::default() });
        assert!(!partial::is_busy(&sync_one(&mut ground, &whole).unwrap_err()));
    }

    const KEEP: Keep = Keep { permissions: false, set_id: false, modified: None };

    fn pairs(disk: &crate::store::memory::Disk, count: u32) -> Ground {
        let listed = (0..count).map(|number| crate::Listed {
            path: format!("{number:02}").into_bytes().into(),
            kind: crate::Kind::file(2),
            mode: 0o604,
            modified: FileTime::default(),
        });
        let root = crate::store::buffers::Store(disk.root());
        let place = crate::Place::Stored { root, path: "".into() };
        let manifest = crate::Manifest::new(crate::Shape::Contents, listed.collect()).unwrap();
        Ground::open(&place, &std::sync::Arc::new(manifest), false).unwrap()
    }

    fn write_first(small: &mut Small, ground: &mut Ground, entry: u32) {
        let extent = Extent { entry, file_offset: 0, chunk_offset: 0, len: 1 };
        small.write(ground, KEEP, &extent, b"a").unwrap();
    }

    #[test]
    fn of_34_files_in_pieces_the_first_32_stay_open() {
        let mut ground = pairs(&crate::store::memory::Disk::new(1), 34);
        let mut small = Small::new(34);
        (0..34).for_each(|entry| write_first(&mut small, &mut ground, entry));
        let open = small.begun.iter().filter(|(_, begun)| begun.file.is_some());
        let open: Vec<u32> = open.map(|(entry, _)| *entry).collect();
        // Fewer files stay open if this process may open fewer than 512.
        assert_eq!(open, (0..store::kept(32) as u32).collect::<Vec<_>>());
        let closed = small.begun.values().filter(|begun| begun.closed.is_some());
        assert_eq!(closed.count(), 34 - open.len());
    }

    #[test]
    fn a_closed_file_that_was_written_by_another_copy_gets_no_further_piece() {
        let disk = crate::store::memory::Disk::new(1);
        let mut ground = pairs(&disk, 34);
        let mut small = Small::new(34);
        (0..34).for_each(|entry| write_first(&mut small, &mut ground, entry));
        let partial = disk.root().open(&names::small(b"33"), Access::Write).unwrap();
        partial.write_all_at(b"x", 0).unwrap();
        let extent = Extent { entry: 33, file_offset: 1, chunk_offset: 0, len: 1 };
        let error = small.write(&mut ground, KEEP, &extent, b"b").unwrap_err();
        assert!(partial::is_busy(&error));
    }

    #[test]
    fn a_file_grows_only_to_the_end_of_the_written_piece() {
        let disk = crate::store::memory::Disk::new(1);
        let (mut ground, mut small) = (pairs(&disk, 1), Small::new(1));
        write_first(&mut small, &mut ground, 0);
        assert_eq!(disk.cached(disk.tree(false)[&names::small(b"00")[..]]), b"a");
    }

    #[test]
    fn a_file_with_holes_has_its_length_from_its_first_piece_on() {
        let file = crate::store::memory::Disk::new(1).root().create(b"x", 0o600).unwrap();
        let kind = crate::Kind::File { size: 2, sparse: true, holes: Box::default() };
        let entry = Entry::new(kind, 0o600, FileTime::default());
        let (pieces, identity) = (Vec::new(), (0, 0));
        let mut begun = Begun { missing: 2, closed: None, pieces, identity, file: None, mode: 0 };
        begun.put(&*file, &entry, 0, &[0]).unwrap();
        assert_eq!(file.attributes().unwrap().size, 2);
    }

    #[test]
    fn a_file_inherits_the_mode_of_a_file_of_its_name_unless_its_folder_is_new() {
        let disk = crate::store::memory::Disk::new(1);
        disk.root().create(b"00", 0o640).unwrap();
        let mut ground = pairs(&disk, 1);
        let new = 0o604 & !ground.base().withheld();
        for (is_new, mode) in [(false, 0o640), (true, new)] {
            let mut small = Small::new(1);
            if is_new {
                small.set_new(0);
            }
            write_first(&mut small, &mut ground, 0);
            assert_eq!(small.begun[&0].mode, mode, "{is_new}");
        }
    }

    #[test]
    fn a_hundred_thousand_waiting_files_are_synced_early() {
        let mut small = Small::new(1);
        small.queue.extend((1..MOST_QUEUED as u32).map(|entry| whole(entry, None)));
        assert!(!small.is_full());
        small.queue.push(whole(0, None));
        assert!(small.is_full());
        assert_eq!(small.on_their_way().len(), MOST_QUEUED);
    }

    #[test]
    fn of_the_first_eight_waiting_files_those_that_were_never_closed_stay_open() {
        let folder = crate::MemoryFolder::new(10);
        folder.put("x".as_ref(), Vec::new());
        let open = || crate::store::Folder::open(&folder, b"x", Access::Read).unwrap();
        let mut small = Small::new(10);
        small.enqueue(0, open(), false).unwrap();
        (1..10).for_each(|entry| small.enqueue(entry, open(), true).unwrap());
        let kept = small.queue.iter().filter(|whole| whole.file.is_some());
        assert_eq!(kept.map(|whole| whole.entry).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn up_to_eight_open_files_are_synced_one_by_one() {
        let folder = crate::MemoryFolder::new(10);
        folder.put("x".as_ref(), Vec::new());
        let open = || Some(crate::store::Folder::open(&folder, b"x", Access::Read).unwrap());
        let mut small = Small::new(9);
        assert!(!small.wants_one_sync());
        for entry in 0..8 {
            small.queue.push(whole(entry, open()));
            assert!(!small.wants_one_sync(), "{entry}");
        }
        small.queue.push(whole(8, open()));
        assert!(small.wants_one_sync());
        small.queue = vec![whole(0, None)];
        assert!(small.wants_one_sync(), "a closed file");
    }
}
