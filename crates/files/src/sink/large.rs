//! A large file in progress: its partial file, its journal (the list of the chunks that are on
//! disk), and its root (the hash of the whole file).

mod holes;
mod journal;
mod read_back;
mod restart;
mod resume;

use std::io;
use std::ops::Range;

use super::attributes::Keep;
use super::bits::Bits;
use super::destination::Ground;
use super::partial::{self, Writing};
use crate::digest::{Digest, RootBuilder};
use crate::journal::Header;
use crate::manifest::FileTime;
use crate::store::{self, File, OpenFile};
use crate::{CHUNK, Entry, names};

pub(super) use self::holes::HoleBudget;
pub(super) use self::journal::remove_journal;
pub(super) use self::read_back::read_value;
pub(super) use self::resume::remove_remains;

#[derive(Debug)]
pub(super) struct Large {
    number: u32,
    header: Header,
    holes: Box<[Range<u64>]>,
    writing: Writing,
    file: Option<OpenFile>,
    identity: (u64, u64),
    /// The modification time of the partial file when it was closed.
    closed: Option<FileTime>,
    root: RootBuilder,
    /// The verified chunks.
    have: Bits,
    missing: u64,
    /// Chunks verified since the last write to the journal.
    pending: Vec<(u64, Digest)>,
    /// Chunks that match their records in a journal that proves nothing: the journal of another
    /// version of the source, or any journal if [`Large::resume`] was called with `distrust`.
    /// [`Large::take_found`] need not write these chunks again.
    stored: Bits,
    /// Chunks of the partial file that the source also has, according to the sender's answer.
    found: Vec<(u64, Digest)>,
    /// The offset of the journal's next record; zero while the journal has no header.
    journal_end: u64,
    /// Whether the folder's entry for the partial file is on disk.
    is_named: bool,
    /// Whether a sync failed. If so, the file's chunks must no longer be journalled or synced.
    has_lost: bool,
    /// The number of the last write to this file, counted over all large files of the sink.
    pub(super) used: u64,
}

#[derive(Debug)]
pub(super) struct Named {
    /// The file's root, if the file's holes were hashed.
    pub(super) root: Option<Digest>,
    pub(super) is_name_synced: bool,
}

impl Large {
    fn new(number: u32, entry: &Entry) -> Large {
        let size = entry.size().unwrap_or(0);
        let chunks = size.div_ceil(CHUNK);
        let holes: Box<[Range<u64>]> = entry.holes().into();
        let in_holes: u64 = holes.iter().map(|hole| hole.end - hole.start).sum();
        let sparse = matches!(entry.kind, crate::Kind::File { sparse: true, .. });
        Large {
            number,
            header: Header { size, modified: entry.modified, version: entry.version },
            holes,
            writing: Writing { sparse, fresh: true },
            file: None,
            identity: (0, 0),
            closed: None,
            root: RootBuilder::new(size),
            have: Bits::new(chunks),
            missing: chunks - in_holes,
            pending: Vec::new(),
            stored: Bits::new(chunks),
            found: Vec::new(),
            journal_end: 0,
            is_named: false,
            has_lost: false,
            used: 0,
        }
    }

    pub(super) fn create(number: u32, ground: &mut Ground) -> io::Result<Large> {
        let manifest = ground.manifest.clone();
        let entry = &manifest.entries()[number as usize];
        let mut large = Large::new(number, entry);
        let (folder, name) = ground.at(number)?;
        let file = partial::open(folder, &names::partial(&name), true)?;
        let file = file.ok_or_else(store::not_found)?;
        remove_journal(folder, &name)?;
        file.set_len(0)?;
        large.begin(file)?;
        Ok(large)
    }

    fn begin(&mut self, file: OpenFile) -> io::Result<()> {
        self.identity = file.attributes()?.identity;
        file.set_len(self.header.size)?;
        if !self.writing.sparse {
            file.reserve(self.header.size)?;
        }
        self.file = Some(file);
        Ok(())
    }

    fn chunks(&self) -> u64 {
        self.header.size.div_ceil(CHUNK)
    }

    pub(super) fn verified(&self) -> Vec<Range<u64>> {
        self.have.runs(true)
    }

    pub(super) fn has(&self, chunk: u64) -> bool {
        self.have.has(chunk)
    }

    pub(super) fn is_whole(&self) -> bool {
        self.missing == 0
    }

    /// Returns the number of verified bytes. Holes count only after [`Large::hash_holes`].
    pub(super) fn bytes(&self) -> u64 {
        let last = self.chunks().saturating_sub(1);
        let runs = self.have.runs(true).into_iter();
        let bytes: u64 = runs.map(|run| (run.end - run.start) * CHUNK).sum();
        let short = self.chunks() * CHUNK - self.header.size;
        if self.have.has(last) { bytes - short } else { bytes }
    }

    pub(super) fn write(
        &mut self,
        ground: &mut Ground,
        chunk: u64,
        content: &[u8],
        value: Digest,
    ) -> io::Result<()> {
        if self.have.has(chunk) {
            return Ok(());
        }
        let how = self.writing;
        partial::write(self.file(ground)?, how, chunk * CHUNK, content)?;
        self.take(chunk, value);
        Ok(())
    }

    fn take(&mut self, chunk: u64, value: Digest) {
        if self.have.insert(chunk) {
            self.missing = self.missing.saturating_sub(1);
            self.root.give(chunk, value);
            self.pending.push((chunk, value));
        }
    }

    /// Returns the partial file; opens and locks it again if it was closed.
    fn file(&mut self, ground: &mut Ground) -> io::Result<&dyn File> {
        if self.file.is_none() {
            let (folder, name) = ground.at(self.number)?;
            let file = partial::open(folder, &names::partial(&name), false)?;
            let file = file.ok_or_else(store::not_found)?;
            let found = file.attributes()?;
            // The file was unlocked meanwhile, so another copy may have written to it.
            if found.identity != self.identity || self.closed != Some(found.modified) {
                let what = "another copy has changed the partial file";
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, what));
            }
            self.file = Some(file);
        }
        Ok(&**self.file.as_ref().expect("it was opened above"))
    }

    pub(super) fn is_open(&self) -> bool {
        self.file.is_some()
    }

    pub(super) fn close(&mut self, ground: &mut Ground) -> io::Result<()> {
        self.sync(ground)?;
        if let Some(file) = self.file.take() {
            self.closed = Some(file.attributes()?.modified);
        }
        Ok(())
    }

    pub(super) fn remove(self, ground: &mut Ground) -> io::Result<()> {
        let (folder, name) = ground.at(self.number)?;
        folder.remove(&names::partial(&name))?;
        folder.remove(&names::journal(&name))
    }

    pub(super) fn complete(&mut self, ground: &mut Ground, keep: Keep) -> io::Result<Named> {
        if !self.is_whole() {
            return Err(io::Error::other("chunks are missing"));
        }
        let root = self.root.root();
        let manifest = ground.manifest.clone();
        let entry = &manifest.entries()[self.number as usize];
        let (folder, name) = ground.at(self.number)?;
        let mode = keep.final_mode(folder, Some(&name[..]), entry)?;
        let file = self.file(ground)?;
        keep.apply(file, entry, mode)?;
        let synced = file.sync_all();
        self.judge_sync(synced)?;
        let identity = self.identity;
        let (folder, name) = ground.at(self.number)?;
        let is_it = |found: &store::Attributes| found.identity == identity;
        partial::rename(folder, &names::partial(&name), &name, self.file.as_deref(), is_it)?;
        // If this sync fails, the copy syncs the file systems at its end, and fails if that sync
        // fails too.
        let synced = folder.sync();
        // If the removal fails, the next copy of a large file to this name removes the journal.
        let _ = folder.remove(&names::journal(&name));
        self.pending.clear();
        if let Err(error) = &synced {
            ground.lose_names(error);
        }
        Ok(Named { root, is_name_synced: synced.is_ok() })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::single_range_in_vec_init, reason = "the lists have one range")]

    use super::*;
    use crate::{Watch, digest};

    pub(super) fn large() -> Large {
        let kind = crate::Kind::File { size: 5 * CHUNK + 7, sparse: true, holes: Box::new([1..3]) };
        Large::new(0, &Entry::new(kind, 0o600, FileTime::default()))
    }

    #[test]
    fn a_file_is_whole_when_all_chunks_outside_of_its_holes_are_there() {
        let mut large = large();
        assert_eq!((large.chunks(), large.missing, large.bytes()), (6, 4, 0));
        let holes: Vec<u64> = (0..7).filter(|chunk| large.is_hole(*chunk)).collect();
        assert_eq!(holes, [1, 2]);
        large.take(0, [0; 32]);
        large.take(0, [0; 32]);
        assert_eq!((large.missing, large.bytes(), large.pending.len()), (3, CHUNK, 1));
        large.take(5, [5; 32]);
        assert_eq!((large.bytes(), large.verified()), (CHUNK + 7, vec![0..1, 5..6]));
        assert!(large.has(5) && !large.has(4) && !large.is_whole());
        (3..5).for_each(|chunk| large.take(chunk, [0; 32]));
        assert!(large.is_whole() && large.has_pending() && !large.has_lost());
        large.lose_pending();
        assert!(!large.has_pending() && large.has_lost());
    }

    #[test]
    fn a_closed_file_opens_again_only_if_it_is_unchanged() {
        let top = tempfile::tempdir().unwrap();
        let place = crate::Place::Ambient(top.path().join("x"));
        let manifest = crate::Manifest::of_file(b"x", 2 * CHUNK, FileTime::default(), 0).unwrap();
        let mut ground = Ground::open(&place, &std::sync::Arc::new(manifest), true).unwrap();
        let mut large = Large::create(0, &mut ground).unwrap();
        assert!(large.is_open());
        large.close(&mut ground).unwrap();
        assert!(!large.is_open());
        large.file(&mut ground).unwrap();
        assert!(large.is_open());
        large.close(&mut ground).unwrap();
        let partial = top.path().join(".x.lh-part");
        let partial = std::fs::File::options().write(true).open(partial).unwrap();
        partial.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        let error = large.file(&mut ground).unwrap_err();
        assert!(partial::is_busy(&error) && !large.is_open());
    }

    #[test]
    fn the_least_recently_used_of_65_open_files_is_closed() {
        let top = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let place = crate::Place::Ambient(top.path().to_owned());
        let kind = crate::Kind::File { size: 2 * CHUNK, sparse: true, holes: Box::default() };
        let file = |number: u32| crate::Listed {
            path: format!("{number:02}").into_bytes().into(),
            kind: kind.clone(),
            mode: 0o600,
            modified: FileTime::default(),
        };
        let listed = (0..65).map(file).collect();
        let manifest = crate::Manifest::new(crate::Shape::Contents, listed).unwrap().into();
        let (options, watch) = (crate::SinkOptions::default(), Watch::default());
        let (mut sink, _) = crate::Sink::open(&place, &manifest, 0, &options, &watch).unwrap();
        for number in 0..65 {
            let large = Large::create(number, &mut sink.ground).unwrap();
            sink.larges.insert(number, large);
        }
        let content = vec![1; CHUNK as usize];
        sink.try_write_large(0, 0, &content, digest::file_value(2 * CHUNK, 0, &content)).unwrap();
        let closed = |sink: &crate::Sink| {
            let closed = sink.larges.iter().filter(|(_, large)| !large.is_open());
            closed.map(|(number, _)| *number).collect::<Vec<_>>()
        };
        assert!(closed(&sink).is_empty());
        sink.close_the_oldest().unwrap();
        assert_eq!(closed(&sink), [1]);
        sink.close_the_oldest().unwrap();
        assert_eq!(closed(&sink), [1], "64 may be open");
    }

    pub(super) fn ground() -> (crate::store::memory::Disk, Ground) {
        let disk = crate::store::memory::Disk::new(1);
        let root = crate::store::buffers::Store(disk.root());
        let place = crate::Place::Stored { root, path: "x".into() };
        let manifest = crate::Manifest::of_file(b"x", 2 * CHUNK, FileTime::default(), 0).unwrap();
        let ground = Ground::open(&place, &std::sync::Arc::new(manifest), true).unwrap();
        (disk, ground)
    }

    #[test]
    fn space_is_reserved_only_for_a_file_that_is_not_sparse() {
        let (disk, _) = ground();
        for sparse in [true, false] {
            let file = disk.root().create(format!("{sparse}").as_bytes(), 0o600).unwrap();
            disk.set_faults(crate::store::memory::Faults { room: 10_000, ..Default::default() });
            let mut large = large();
            large.writing.sparse = sparse;
            assert_eq!(large.begin(file).is_ok(), sparse);
            disk.set_faults(Default::default());
        }
    }
}
