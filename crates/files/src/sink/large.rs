//! A large file in progress: its partial file, its journal (the list of the chunks that are on
//! disk), and its root (the hash of the whole file).

mod read_back;
mod restart;

use std::io;
use std::ops::Range;

use super::attributes::Keep;
use super::bits::Bits;
use super::destination::Ground;
use super::left::Left;
use super::partial::{self, Writing};
use crate::digest::{self, Digest, RootBuilder};
use crate::journal::{Header, Journal};
use crate::manifest::FileTime;
use crate::store::{self, Access, File, Folder, OpenFile};
use crate::{CHUNK, Entry, Watch, names};

/// A copy may hash this many bytes of holes, plus one byte for each byte of content received.
const HASHED_HOLES: u64 = 4 << 30;

/// Counts the bytes of hashed holes, and limits them: a few bytes on the wire can announce holes
/// that would keep a core busy for hours.
#[derive(Debug, Default)]
pub(super) struct HoleBudget(u64);

impl HoleBudget {
    /// Takes `bytes` if they are within the limit, which grows with the `come` bytes of received
    /// content.
    fn take(&mut self, bytes: u64, come: u64) -> bool {
        let is_within = self.0.saturating_add(bytes) <= HASHED_HOLES.saturating_add(come);
        if is_within {
            self.0 += bytes;
        }
        is_within
    }
}

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
    /// Chunks that match their records in the journal of another version of the source, or in a
    /// journal that `distrust` rules out. [`Large::take_found`] need not write them again.
    stored: Bits,
    /// Chunks of the partial file that the source also has, according to the sender's answer.
    found: Vec<(u64, Digest)>,
    /// The offset of the journal's next record; zero while the journal has no header.
    journal_end: u64,
    /// Whether the folder's entry for the partial file is on disk.
    is_named: bool,
    /// Whether a sync failed. If so, the file's chunks must no longer be journalled or synced.
    has_lost: bool,
    pub(super) used: u64,
}

#[derive(Debug)]
pub(super) struct Named {
    /// The file's root, if the file's holes were hashed.
    pub(super) root: Option<Digest>,
    pub(super) is_name_synced: bool,
}

#[derive(Debug)]
pub(super) struct Remains {
    pub(super) large: Large,
    /// Values of chunks for the sender to compare.
    pub(super) compare: Vec<(u64, Digest)>,
    /// Bytes that the partial file takes on disk.
    pub(super) allocated: u64,
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

    /// Resumes the data of an earlier run, if any. A chunk in the journal counts as verified
    /// if its content matches its record. If `left` shows that the file is unchanged since an
    /// earlier attempt of this process, the chunk counts without a read. With `distrust`, no chunk
    /// counts before the comparison with the source.
    pub(super) fn resume(
        number: u32,
        ground: &mut Ground,
        distrust: bool,
        left: &Left,
        watch: &Watch,
    ) -> io::Result<Option<Remains>> {
        let manifest = ground.manifest.clone();
        let mut large = Large::new(number, &manifest.entries()[number as usize]);
        let (folder, name) = ground.at(number)?;
        let Some(file) = partial::open(folder, &names::partial(&name), false)? else {
            return Ok(None);
        };
        let found = file.attributes()?;
        let untouched = left.take(&found);
        // Sync the cached data of a killed run now, to shorten this run's first sync. A success
        // proves nothing: data without a journal record are written again anyway.
        let _ = file.sync_data();
        (large.identity, large.writing.fresh) = (found.identity, false);
        let size = large.header.size;
        // The source may have shrunk since the journal was written.
        let journal = read_journal(ground, number, size.max(found.size))?;
        let is_its = |journal: &Journal| journal.header == large.header;
        let valid = !distrust && journal.as_ref().is_some_and(is_its);
        let is_locked = file.lock()?;
        if !is_locked && !valid {
            // Without a lock, another copy may write to the file. The caller creates a new file.
            return Ok(None);
        }
        // Remove an invalid journal first: an old journal must never describe new content.
        large.settle_journal(ground, journal.as_ref().filter(|_| valid))?;
        let (folder, name) = ground.at(number)?;
        folder.remove(&names::restarted(&name))?;
        file.set_len(size)?;
        large.clear_holes(&*file, watch)?;
        let mut known = Bits::new(large.chunks());
        let mut compare = Vec::new();
        for (chunk, value) in journal.iter().flat_map(|journal| &journal.values) {
            watch.go_on()?;
            if large.is_hole(*chunk) {
            } else if valid {
                // The chunk may have changed since; a different chunk is sent again.
                let is_there = || read_value(&*file, size, *chunk).is_ok_and(|v| v == *value);
                if (untouched || is_there()) && large.have.insert(*chunk) {
                    large.missing -= 1;
                    large.root.give(*chunk, *value);
                }
            } else if same_place(journal.as_ref().map_or(0, |j| j.header.size), size, *chunk)
                && known.insert(*chunk)
            {
                // Ask the source about the current content, not about the journal's record.
                let there = if untouched { Ok(*value) } else { read_value(&*file, size, *chunk) };
                if there.as_ref().is_ok_and(|there| there == value) {
                    large.stored.insert(*chunk);
                }
                compare.extend(there.map(|value| (*chunk, value)));
            }
        }
        large.read_unrecorded(&*file, &known, &mut compare, watch)?;
        compare.sort_unstable_by_key(|(chunk, _)| *chunk);
        large.file = Some(file);
        if !is_locked {
            // Without a lock, another copy may still write to the old file.
            let (large, _) = large.restart(ground, watch)?;
            return Ok(Some(Remains { large, compare: Vec::new(), allocated: found.allocated }));
        }
        Ok(Some(Remains { large, compare, allocated: found.allocated }))
    }

    /// Adds to `compare` the values of chunks that have content, are not verified, and are not in
    /// `known`.
    fn read_unrecorded(
        &self,
        file: &dyn File,
        known: &Bits,
        compare: &mut Vec<(u64, Digest)>,
        watch: &Watch,
    ) -> io::Result<()> {
        let size = self.header.size;
        for chunk in partial::chunks_with_content(file, size).into_iter().flatten() {
            if !self.have.has(chunk) && !known.has(chunk) && !self.is_hole(chunk) {
                watch.go_on()?;
                // An unreadable chunk is sent again, and writing it may repair the sector.
                compare.extend(read_value(file, size, chunk).map(|value| (chunk, value)));
            }
        }
        Ok(())
    }

    fn chunks(&self) -> u64 {
        self.header.size.div_ceil(CHUNK)
    }

    fn is_hole(&self, chunk: u64) -> bool {
        let after = self.holes.partition_point(|hole| hole.end <= chunk);
        self.holes.get(after).is_some_and(|hole| hole.contains(&chunk))
    }

    /// Makes the holes read as zeros, whatever an earlier run has written there.
    fn clear_holes(&self, file: &dyn File, watch: &Watch) -> io::Result<()> {
        for hole in &self.holes {
            watch.go_on()?;
            let end = (hole.end * CHUNK).min(self.header.size);
            if file.punch(hole.start * CHUNK..end).is_ok() {
                continue;
            }
            for chunk in hole.clone() {
                watch.go_on()?;
                partial::clear(file, chunk * CHUNK..((chunk + 1) * CHUNK).min(end))?;
            }
        }
        Ok(())
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

    /// Records which chunks of the partial file the source also has, before [`Large::take_found`]
    /// takes them one by one. So a failed sync in between loses none of them.
    pub(super) fn expect_found(&mut self, found: &[(u64, Digest)]) {
        self.found = found.to_vec();
    }

    /// Takes a chunk of an earlier run that the source also has. Returns `false` if the chunk needs
    /// to be written again, but has changed since the comparison or cannot be read.
    ///
    /// Without a journal record the chunk may be in the page cache only, and marked clean, because
    /// a sync of the earlier run may have failed. Writing the chunk again makes its pages dirty, so
    /// the next sync covers them.
    pub(super) fn take_found(
        &mut self,
        ground: &mut Ground,
        chunk: u64,
        value: Digest,
    ) -> io::Result<bool> {
        if self.have.has(chunk) {
            return Ok(true);
        }
        if !self.stored.has(chunk) {
            let (size, how) = (self.header.size, self.writing);
            let file = self.file(ground)?;
            let Some(content) = read_verified(file, size, chunk, &value) else {
                return Ok(false);
            };
            partial::write(file, how, chunk * CHUNK, &content)?;
        }
        self.take(chunk, value);
        Ok(true)
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

    pub(super) fn sync(&mut self, ground: &mut Ground) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let synced = self.file(ground)?.sync_data();
        self.judge_sync(synced)?;
        if !self.is_named {
            // If the name is not on disk, a power failure loses the whole file, so nothing is added
            // to the journal before the folder is synced. After a failed sync, a second one would
            // prove nothing.
            if ground.has_lost_names || ground.at(self.number)?.0.sync().is_err() {
                ground.has_lost_names = true;
                return Ok(());
            }
            self.is_named = true;
        }
        let mut records = Vec::new();
        if self.journal_end == 0 {
            records.extend(self.header.encode());
        }
        for (chunk, value) in &self.pending {
            records.extend(self.header.encode_record(*chunk, value));
        }
        // Overwrites a record that an earlier error has torn.
        open_journal(ground, self.number)?.write_all_at(&records, self.journal_end)?;
        self.journal_end += records.len() as u64;
        self.pending.clear();
        Ok(())
    }

    /// Handles the result of a sync. A failed sync marks the unwritten pages as clean, so a second
    /// sync would succeed and prove nothing.
    fn judge_sync(&mut self, synced: io::Result<()>) -> io::Result<()> {
        if synced.is_err() {
            self.lose_pending();
        }
        synced
    }

    pub(super) fn lose_pending(&mut self) {
        self.pending.clear();
        self.has_lost = true;
    }

    pub(super) fn has_lost(&self) -> bool {
        self.has_lost
    }

    pub(super) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    pub(super) fn close(&mut self, ground: &mut Ground) -> io::Result<()> {
        self.sync(ground)?;
        if let Some(file) = self.file.take() {
            self.closed = Some(file.attributes()?.modified);
        }
        Ok(())
    }

    /// Records the partial file in `left`, if all its verified chunks are in the journal.
    pub(super) fn leave(&self, left: &Left) {
        let open = self.file.as_ref().and_then(|file| file.attributes().ok());
        let modified = open.map(|found| found.modified).or(self.closed);
        if let Some(modified) = modified.filter(|_| self.pending.is_empty() && !self.has_lost) {
            left.leave(self.identity, modified);
        }
    }

    /// Removes the journal, so that a later run has to compare the partial file.
    pub(super) fn distrust(self, ground: &mut Ground) -> io::Result<()> {
        let (folder, name) = ground.at(self.number)?;
        remove_journal(folder, &name)
    }

    pub(super) fn remove(self, ground: &mut Ground) -> io::Result<()> {
        let (folder, name) = ground.at(self.number)?;
        folder.remove(&names::partial(&name))?;
        folder.remove(&names::journal(&name))
    }

    /// Hashes the holes for the root of a complete file, after `come` bytes of content have
    /// arrived. If the holes exceed the limit of `budget`, or the copy was cancelled, the file has
    /// no root.
    pub(super) fn hash_holes(&mut self, budget: &mut HoleBudget, come: u64, watch: &Watch) {
        let chunks: u64 = self.holes.iter().map(|hole| hole.end - hole.start).sum();
        if chunks == 0 || !budget.take(chunks * CHUNK, come) {
            return;
        }
        let size = self.header.size;
        let zeros = vec![0; CHUNK as usize];
        for chunk in self.holes.clone().into_iter().flatten() {
            if watch.go_on().is_err() {
                return;
            }
            let len = (size - chunk * CHUNK).min(CHUNK) as usize;
            if self.have.insert(chunk) {
                self.root.give(chunk, digest::file_value(size, chunk, &zeros[..len]));
            }
        }
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
        let locked = self.file.as_deref().filter(|_| partial::is_lockable(mode));
        partial::rename(folder, &names::partial(&name), &name, locked, is_it)?;
        // If this sync fails, the sync of the file systems at the end decides.
        let is_name_synced = folder.sync().is_ok();
        // If the removal fails, the next copy of a large file to this name removes the journal.
        let _ = folder.remove(&names::journal(&name));
        ground.has_lost_names |= !is_name_synced;
        self.pending.clear();
        Ok(Named { root, is_name_synced })
    }

    fn settle_journal(&mut self, ground: &mut Ground, sound: Option<&Journal>) -> io::Result<()> {
        match sound {
            Some(journal) => {
                self.journal_end = journal.sound;
                open_journal(ground, self.number)?.set_len(journal.sound)
            }
            None => {
                let (folder, name) = ground.at(self.number)?;
                folder.remove(&names::journal(&name))?;
                // Sync even if the journal does not exist. An earlier run may have failed to sync
                // the removal, and the journal could reappear after a power failure.
                folder.sync()
            }
        }
    }
}

/// Removes an earlier run's partial file and journal, unless another copy uses them.
pub(super) fn remove_remains(number: u32, ground: &mut Ground) -> io::Result<()> {
    let (folder, name) = ground.at(number)?;
    match partial::open(folder, &names::partial(&name), false) {
        Ok(Some(_locked)) => {
            folder.remove(&names::partial(&name))?;
            folder.remove(&names::restarted(&name))?;
            folder.remove(&names::journal(&name))
        }
        Ok(None) => folder.remove(&names::journal(&name)),
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Ok(()),
        Err(error) => Err(error),
    }
}

/// Removes the journal of the file `name`, and syncs the removal: after a power failure the journal
/// must not describe another partial file.
pub(super) fn remove_journal(folder: &dyn Folder, name: &[u8]) -> io::Result<()> {
    let journal = names::journal(name);
    if folder.look_if_there(&journal)?.is_some() {
        folder.remove(&journal)?;
        folder.sync()?;
    }
    Ok(())
}

/// Returns whether a chunk has comparable values in files of `old` and of `new` bytes.
fn same_place(old: u64, new: u64, chunk: u64) -> bool {
    let len = |size: u64| size.saturating_sub(chunk.saturating_mul(CHUNK)).min(CHUNK);
    len(old) == len(new) && len(new) > 0 && (old <= CHUNK) == (new <= CHUNK)
}

/// Returns the value of a chunk of `file`, as if the file had `size` bytes.
pub(super) fn read_value(file: &dyn File, size: u64, chunk: u64) -> io::Result<Digest> {
    read_chunk(file, size, chunk).map(|(_, value)| value)
}

fn read_chunk(file: &dyn File, size: u64, chunk: u64) -> io::Result<(Vec<u8>, Digest)> {
    let mut content = vec![0; (size - chunk * CHUNK).min(CHUNK) as usize];
    file.read_exact_at(&mut content, chunk * CHUNK)?;
    let value = digest::file_value(size, chunk, &content);
    Ok((content, value))
}

/// Reads a chunk of `file`, as if the file had `size` bytes. Returns the content if its value is
/// `value`.
fn read_verified(file: &dyn File, size: u64, chunk: u64, value: &Digest) -> Option<Vec<u8>> {
    let (content, found) = read_chunk(file, size, chunk).ok()?;
    (found == *value).then_some(content)
}

fn open_journal(ground: &mut Ground, number: u32) -> io::Result<OpenFile> {
    let (folder, name) = ground.at(number)?;
    let name = names::journal(&name);
    match folder.open(&name, Access::Write) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => folder.create(&name, 0o600),
        opened => opened,
    }
}

/// Reads the journal of a partial file of at most `size` bytes.
fn read_journal(ground: &mut Ground, number: u32, size: u64) -> io::Result<Option<Journal>> {
    let (folder, name) = ground.at(number)?;
    let Ok(file) = folder.open(&names::journal(&name), Access::Read) else {
        // The journal counts as missing; `settle_journal` removes whatever is in its place.
        return Ok(None);
    };
    if !partial::is_own(&file.attributes()?) {
        return Ok(None);
    }
    let bytes = file.read_start(Header::longest(size));
    Ok(bytes.ok().and_then(|bytes| Journal::decode(&bytes)))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::single_range_in_vec_init, reason = "the lists have one range")]

    use super::*;

    #[test]
    fn values_are_comparable_if_the_chunk_has_the_same_length_and_kind_of_hash() {
        // A file of at most one chunk is hashed as a whole, a longer one as a tree.
        for (old, new, chunk, same) in [
            (CHUNK, CHUNK, 0, true),
            (CHUNK - 1, CHUNK - 1, 0, true),
            (CHUNK - 1, CHUNK, 0, false),
            (CHUNK, CHUNK + 1, 0, false),
            (CHUNK + 1, CHUNK, 0, false),
            (CHUNK + 1, CHUNK + 1, 0, true),
            (CHUNK + 1, CHUNK + 1, 1, true),
            (CHUNK + 1, CHUNK + 2, 1, false),
            (CHUNK + 1, 2 * CHUNK, 0, true),
            (2 * CHUNK, 3 * CHUNK, 1, true),
            (2 * CHUNK, 3 * CHUNK, 2, false),
            (2 * CHUNK, 2 * CHUNK, 2, false),
            (0, 0, 0, false),
            (2 * CHUNK, 2 * CHUNK, u64::MAX, false),
        ] {
            assert_eq!(same_place(old, new, chunk), same, "{old} {new} {chunk}");
        }
    }

    #[test]
    fn holes_are_hashed_up_to_a_limit_that_grows_with_the_content() {
        let mut budget = HoleBudget::default();
        assert!(budget.take(HASHED_HOLES - 1, 0) && budget.take(1, 0));
        assert!(!budget.take(1, 0) && !budget.take(u64::MAX, u64::MAX - HASHED_HOLES - 1));
        assert!(budget.take(1000, 1000) && !budget.take(1, 1000));
        assert_eq!(HASHED_HOLES, 4_294_967_296);
    }

    fn large() -> Large {
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
    fn hashed_holes_complete_the_root_of_a_file() {
        let size = large().header.size;
        let zeros = vec![0; size as usize];
        let value = |chunk: u64| {
            let start = (chunk * CHUNK) as usize;
            digest::file_value(size, chunk, &zeros[start..zeros.len().min(start + CHUNK as usize)])
        };
        let root = |budget: u64, watch: &Watch| {
            let mut large = large();
            [0, 3, 4, 5].into_iter().for_each(|chunk| large.take(chunk, value(chunk)));
            large.hash_holes(&mut HoleBudget(HASHED_HOLES - budget), 0, watch);
            large.root.root()
        };
        let whole = Some(*blake3::hash(&zeros).as_bytes());
        assert_eq!(root(2 * CHUNK, &Watch::default()), whole);
        assert_eq!(root(2 * CHUNK - 1, &Watch::default()), None);
        let ended = Watch::default();
        ended.end();
        assert_eq!(root(2 * CHUNK, &ended), None);
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

    fn ground() -> (crate::store::memory::Disk, Ground) {
        let disk = crate::store::memory::Disk::new(1);
        let root = crate::store::buffers::Store(disk.root());
        let place = crate::Place::Stored { root, path: "x".into() };
        let manifest = crate::Manifest::of_file(b"x", 2 * CHUNK, FileTime::default(), 0).unwrap();
        let ground = Ground::open(&place, &std::sync::Arc::new(manifest), true).unwrap();
        (disk, ground)
    }

    #[test]
    fn a_folder_in_place_of_a_partial_file_or_journal_is_an_error() {
        let (disk, mut ground) = ground();
        for name in [names::partial(b"x"), names::journal(b"x")] {
            disk.root().make_folder(&name, 0o700).unwrap();
        }
        let errors = [remove_remains(0, &mut ground), open_journal(&mut ground, 0).map(drop)];
        assert_eq!(errors.map(|it| it.unwrap_err().kind()), [io::ErrorKind::IsADirectory; 2]);
    }

    #[test]
    fn a_new_partial_file_has_no_old_journal_even_after_a_power_failure() {
        let (disk, mut ground) = ground();
        disk.root().create(&names::journal(b"x"), 0o600).unwrap();
        disk.root().sync().unwrap();
        Large::create(0, &mut ground).unwrap();
        assert!(!disk.tree(true).contains_key(&names::journal(b"x")));
    }

    #[test]
    fn only_the_space_of_a_file_without_holes_is_reserved() {
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

    #[test]
    fn only_a_file_whose_chunks_are_all_on_disk_is_left_for_the_next_attempt() {
        let (_disk, mut ground) = ground();
        let mut large = Large::create(0, &mut ground).unwrap();
        let found = large.file(&mut ground).unwrap().attributes().unwrap();
        for (waits, has_lost, is_left) in
            [(false, false, true), (true, false, false), (false, true, false)]
        {
            large.pending = if waits { vec![(0, [0; 32])] } else { Vec::new() };
            large.has_lost = has_lost;
            let left = Left::default();
            large.leave(&left);
            assert_eq!(left.take(&found), is_left, "{waits} {has_lost}");
        }
    }

    #[test]
    fn the_journal_of_a_longer_version_is_read_to_its_end() {
        let (_disk, mut ground) = ground();
        let mut large = Large::create(0, &mut ground).unwrap();
        // The journal of a version with 20 chunks lists this version's first chunk last.
        let header = Header { size: 20 * CHUNK, ..large.header };
        let content = vec![1; CHUNK as usize];
        let value = digest::file_value(large.header.size, 0, &content);
        let records = (0..20).rev().flat_map(|chunk| header.encode_record(chunk, &value));
        let journal: Vec<u8> = header.encode().into_iter().chain(records).collect();
        open_journal(&mut ground, 0).unwrap().write_all_at(&journal, 0).unwrap();
        let file = large.file.take().unwrap();
        file.set_len(header.size).unwrap();
        file.write_all_at(&content, 0).unwrap();
        drop(file);
        let (left, watch) = (Left::default(), Watch::default());
        let resumed = Large::resume(0, &mut ground, false, &left, &watch).unwrap().unwrap();
        assert!(resumed.large.stored.has(0));
    }

    #[test]
    fn nothing_is_journalled_before_the_name_of_the_partial_file_is_on_disk() {
        use crate::store::memory::Faults;
        let (disk, mut ground) = ground();
        let mut large = Large::create(0, &mut ground).unwrap();
        let content = vec![1; CHUNK as usize];
        let value = digest::file_value(2 * CHUNK, 0, &content);
        large.write(&mut ground, 0, &content, value).unwrap();
        // After the failed sync, a sync that succeeds proves nothing.
        for faults in [Faults { folder_sync: 10_000, ..Faults::default() }, Faults::default()] {
            disk.set_faults(faults);
            large.sync(&mut ground).unwrap();
            assert_eq!((large.has_pending(), disk.struck().0.folder_sync), (true, 1));
        }
    }

    #[test]
    fn a_hole_reads_as_zeros_whatever_was_there_before() {
        let large = large();
        // Files of the first folder have no holes.
        let root = crate::store::memory::Disk::new(1).root();
        let folders: [&dyn Folder; 2] = [&crate::MemoryFolder::new(6 * CHUNK), &*root];
        for file in folders.map(|folder| folder.create(b"x", 0o600).unwrap()) {
            file.write_all_at(&vec![7; large.header.size as usize], 0).unwrap();
            large.clear_holes(&*file, &Watch::default()).unwrap();
            for chunk in 0..6 {
                let (content, value) = read_chunk(&*file, large.header.size, chunk).unwrap();
                let byte = if large.is_hole(chunk) { 0 } else { 7 };
                assert!(content.iter().all(|found| *found == byte), "{chunk}");
                assert_eq!(content.len() as u64, if chunk == 5 { 7 } else { CHUNK });
                assert!(read_verified(&*file, large.header.size, chunk, &value).is_some());
                assert!(read_verified(&*file, large.header.size, chunk, &[0; 32]).is_none());
            }
        }
    }
}
