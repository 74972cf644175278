//! Resumes the partial file of an earlier run: decides which of its chunks count, and which the
//! source compares.

use std::io;

use super::Large;
use super::journal::read_journal;
use super::read_back::{read_value, read_verified};
use crate::digest::Digest;
use crate::journal::Journal;
use crate::sink::bits::Bits;
use crate::sink::destination::Ground;
use crate::sink::left::Left;
use crate::sink::partial;
use crate::store::File;
use crate::{CHUNK, Watch, names};

#[derive(Debug)]
pub(in crate::sink) struct Remains {
    pub(in crate::sink) large: Large,
    /// Values of chunks for the sender to compare.
    pub(in crate::sink) compare: Vec<(u64, Digest)>,
    /// Bytes that the partial file takes on disk.
    pub(in crate::sink) allocated: u64,
}

impl Large {
    /// Resumes the data of an earlier run, if any. A chunk in the journal counts as verified
    /// if its content matches its record. If `left` shows that the file is unchanged since an
    /// earlier attempt of this process, the chunk counts without a read. With `distrust`, or with a
    /// journal of another version of the source, no chunk counts before the comparison with the
    /// source.
    pub(in crate::sink) fn resume(
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
        // Sync the cached data of a killed run now, to shorten this run's first sync. The result
        // does not matter: data without a journal record are written again anyway.
        let _ = file.sync_data();
        (large.identity, large.writing.fresh) = (found.identity, false);
        let size = large.header.size;
        // The source may have shrunk since the journal was written, so the journal may be longer
        // than a journal for the present size.
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
                // The chunk may differ from its record; a different chunk is sent again.
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

    /// Records which chunks of the partial file the source also has, before [`Large::take_found`]
    /// takes them one by one. So a failed sync in between loses none of them.
    pub(in crate::sink) fn expect_found(&mut self, found: &[(u64, Digest)]) {
        self.found = found.to_vec();
    }

    /// Takes a chunk of an earlier run that the source also has. Returns `false` if the chunk needs
    /// to be written again, but has changed since the comparison or cannot be read.
    ///
    /// Without a journal record the chunk may be in the page cache only, and marked clean, because
    /// a sync of the earlier run may have failed. Writing the chunk again makes its pages dirty, so
    /// the next sync covers them.
    pub(in crate::sink) fn take_found(
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

    /// Records the partial file in `left`, if all its verified chunks are in the journal.
    pub(in crate::sink) fn leave(&self, left: &Left) {
        let open = self.file.as_ref().and_then(|file| file.attributes().ok());
        let modified = open.map(|found| found.modified).or(self.closed);
        if let Some(modified) = modified.filter(|_| self.pending.is_empty() && !self.has_lost) {
            left.leave(self.identity, modified);
        }
    }
}

/// Removes an earlier run's partial file and journal, unless another copy uses them.
pub(in crate::sink) fn remove_remains(number: u32, ground: &mut Ground) -> io::Result<()> {
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

/// Returns whether a chunk has comparable values in files of `old` and of `new` bytes.
fn same_place(old: u64, new: u64, chunk: u64) -> bool {
    let len = |size: u64| size.saturating_sub(chunk.saturating_mul(CHUNK)).min(CHUNK);
    len(old) == len(new) && len(new) > 0 && (old <= CHUNK) == (new <= CHUNK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest;
    use crate::journal::Header;
    use crate::sink::large::journal::open_journal;
    use crate::sink::large::tests::ground;

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
    fn a_partial_file_is_remembered_only_if_all_its_verified_chunks_are_in_the_journal() {
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
}
