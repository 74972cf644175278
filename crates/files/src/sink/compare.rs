//! Processes the sender's answers: which chunks of the existing data equal those of the source.

use std::io;
use std::ops::Range;
use std::time::Instant;

use super::plan::Basis;
use super::{Comparing, Sink, State};
use crate::CHUNK;
use crate::digest::{self, Digest};
use crate::error::{Error, FileErrorKind};

impl Sink {
    /// Processes the sender's answer to one [`Compare`](super::Compare) of the plan. Returns the
    /// chunks of the virtual object (all files of the copy, one after the other) that need not be
    /// sent. If such a chunk must be sent after all, [`Sink::take_changed`] returns it.
    ///
    /// # Errors
    /// The answer was not requested or has the wrong length (`Request`). The disk is full, or the
    /// copy has only one file and the file fails (`File`). An answer about an entry that is already
    /// done, skipped or failed is no error.
    pub fn compare_result(
        &mut self,
        entry: u32,
        matches: &[bool],
    ) -> Result<Vec<Range<u64>>, Error> {
        let settled = self.states.get(entry as usize).is_some_and(|s| *s != State::Due);
        let Some(asked) = self.comparing.remove(&entry) else {
            return match settled {
                true => Ok(self.take_needless()),
                false => Err(Error::new(FileErrorKind::Request, "an unrequested answer")),
            };
        };
        if matches.len() != asked.values.len() {
            return Err(Error::new(FileErrorKind::Request, "an answer of the wrong length"));
        }
        if asked.under_final_name.is_none() {
            self.take_from_partial(entry, &asked, matches)?;
        } else if let Err(error) = self.take_from_final(entry, &asked, matches) {
            // The sender skips the equal chunks, so request those that were not taken.
            let first = self.object.chunks_of(entry).start;
            let right = asked.values.iter().zip(matches).filter(|(_, right)| **right);
            let left = right.map(|((chunk, _), _)| first + chunk).filter(|c| self.needed.has(*c));
            let left: Vec<u64> = left.collect();
            self.large_failure(entry, &error)?;
            self.changed.extend(left.into_iter().filter(|c| self.needed.has(*c)));
        }
        Ok(self.take_needless())
    }

    fn take_from_partial(
        &mut self,
        entry: u32,
        asked: &Comparing,
        matches: &[bool],
    ) -> Result<(), Error> {
        let right = asked.values.iter().zip(matches).filter(|(_, right)| **right);
        let right: Vec<_> = right.map(|(value, _)| *value).collect();
        if let Err(error) = self.take_found(entry, &right) {
            self.large_failure(entry, &error)?;
        }
        let Some(large) = self.larges.get(&entry) else { return Ok(()) };
        let is_whole = large.is_whole();
        let (there, gone): (Vec<u64>, Vec<u64>) =
            right.iter().map(|(chunk, _)| *chunk).partition(|chunk| large.has(*chunk));
        for chunk in there {
            self.settle_chunk_of(entry, chunk);
        }
        let first = self.object.chunks_of(entry).start;
        self.changed.extend(gone.into_iter().map(|chunk| first + chunk));
        match if is_whole { self.complete_large(entry) } else { Ok(()) } {
            Ok(()) => self.tick(Instant::now()),
            Err(error) => self.large_failure(entry, &error),
        }
    }

    fn take_found(&mut self, entry: u32, right: &[(u64, Digest)]) -> io::Result<()> {
        let Some(large) = self.larges.get_mut(&entry) else { return Ok(()) };
        large.expect_found(right);
        let mut unsynced = 0;
        for (chunk, value) in right {
            self.watch.step();
            if large.take_found(&mut self.ground, *chunk, *value)? {
                unsynced += CHUNK;
            }
            if unsynced >= self.most_unsynced {
                large.sync(&mut self.ground)?;
                unsynced = 0;
            }
        }
        self.unsynced += unsynced;
        large.expect_found(&[]);
        Ok(())
    }

    fn take_from_final(
        &mut self,
        entry: u32,
        asked: &Comparing,
        matches: &[bool],
    ) -> io::Result<()> {
        let manifest = self.ground.manifest.clone();
        let it = &manifest.entries()[entry as usize];
        let size = it.size().unwrap_or(0);
        let basis = Basis::open(&mut self.ground, entry)?;
        let all = asked.values.len() as u64 == size.div_ceil(CHUNK) && matches.iter().all(|m| *m);
        let is_same = match &asked.under_final_name {
            Some(hashed) => basis.is_still(hashed)?,
            None => false,
        };
        let is_equal = all && basis.is_of(size) && is_same;
        if self.options.dry_run {
            if !is_equal {
                return self.check_folder_allows(entry);
            }
            self.settle(entry, State::Skipped);
            self.settle_chunks(entry);
            return Ok(());
        }
        if is_equal {
            return self.leave_final(entry, &basis);
        }
        if !self.object.is_large(entry) {
            return Ok(());
        }
        let mut content = vec![0; CHUNK as usize];
        for ((chunk, value), _) in asked.values.iter().zip(matches).filter(|(_, right)| **right) {
            self.watch.go_on()?;
            let start = chunk * CHUNK;
            let content = &mut content[..(size - start).min(CHUNK) as usize];
            // The file may have changed or shrunk since it was hashed.
            let read = basis.read(start, content);
            if read.is_ok() && digest::file_value(size, *chunk, content) == *value {
                self.try_write_large(entry, *chunk, content, *value)?;
                self.settle_chunk_of(entry, *chunk);
            } else {
                self.changed.push(self.object.chunks_of(entry).start + chunk);
            }
        }
        Ok(())
    }

    /// Keeps a file whose content equals the source's, and repairs its attributes.
    fn leave_final(&mut self, entry: u32, basis: &Basis) -> io::Result<()> {
        let manifest = self.ground.manifest.clone();
        self.keep.repair(basis.file(), &manifest.entries()[entry as usize])?;
        if let Some(large) = self.larges.remove(&entry) {
            large.remove(&mut self.ground)?;
        }
        self.small.forget(&mut self.ground, entry);
        self.settle(entry, State::Skipped);
        self.settle_chunks(entry);
        Ok(())
    }

    /// Keeps the file under its final name if it equals the verified `content`, which arrived
    /// before the sender's answer. Returns whether the file was kept.
    pub(super) fn leave_equal(&mut self, entry: u32, content: &[u8]) -> io::Result<bool> {
        if self.comparing.get(&entry).is_none_or(|asked| asked.under_final_name.is_none()) {
            return Ok(false);
        }
        // A file that cannot be read counts as different and is replaced.
        let Ok(basis) = Basis::open(&mut self.ground, entry) else { return Ok(false) };
        let mut there = vec![0; content.len()];
        let is_read = basis.is_of(content.len() as u64) && basis.read(0, &mut there).is_ok();
        if !is_read || there != content || !basis.is_unchanged()? {
            return Ok(false);
        }
        self.comparing.remove(&entry);
        self.leave_final(entry, &basis)?;
        Ok(true)
    }

    /// Records that a chunk of a large file need not arrive; `chunk` is its number in that file.
    fn settle_chunk_of(&mut self, entry: u32, chunk: u64) {
        let chunk = self.object.chunks_of(entry).start + chunk;
        self.set_needless(chunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Journal;
    use crate::store::buffers::Store;
    use crate::store::memory::Disk;
    use crate::{Place, SinkOptions, Source, SourceOptions, Watch, names};

    #[test]
    fn found_chunks_are_journalled_at_the_limit_of_unsynced_bytes() {
        let (from, to) = (Disk::new(1), Disk::new(2));
        let content = vec![7; 5 * CHUNK as usize];
        from.root().create(b"x", 0o600).unwrap().write_all_at(&content, 0).unwrap();
        let partial = to.root().create(&names::partial(b"x"), 0o600).unwrap();
        partial.write_all_at(&content[..4 * CHUNK as usize], 0).unwrap();
        drop(partial);
        let place = |disk: &Disk| Place::Stored { root: Store(disk.root()), path: "x".into() };
        let mut source = Source::open(&[place(&from)], &SourceOptions::default()).unwrap();
        let (options, watch) = (SinkOptions::default(), Watch::default());
        let opened = Sink::open(&place(&to), source.manifest(), 0, &options, &watch);
        let (mut sink, plan) = opened.unwrap();
        sink.sync_every(3 * CHUNK);
        let same = source.compare(0, &plan.compare[0].values);
        assert_eq!(same, [true; 4]);
        sink.compare_result(0, &same).unwrap();
        let journal = to.cached(to.tree(false)[&names::journal(b"x")[..]]);
        let journal = Journal::decode(&journal).unwrap();
        assert_eq!((journal.values.len(), sink.unsynced), (3, CHUNK));
    }

    #[test]
    fn found_chunks_count_with_the_unsynced_bytes_of_other_files() {
        let (from, to) = (Disk::new(1), Disk::new(2));
        let content = vec![7; crate::LARGE as usize];
        for name in [b"x", b"y"] {
            from.root().create(name, 0o600).unwrap().write_all_at(&content, 0).unwrap();
        }
        let partial = to.root().create(&names::partial(b"x"), 0o600).unwrap();
        partial.write_all_at(&content[..2 * CHUNK as usize], 0).unwrap();
        drop(partial);
        let place = |disk: &Disk| Place::Stored { root: Store(disk.root()), path: "".into() };
        let options = SourceOptions { recursive: true, ..SourceOptions::default() };
        let mut source = Source::open(&[place(&from)], &options).unwrap();
        let (options, watch) = (SinkOptions::default(), Watch::default());
        let opened = Sink::open(&place(&to), source.manifest(), 0, &options, &watch);
        let (mut sink, plan) = opened.unwrap();
        sink.sync_every(3 * CHUNK);
        let first = sink.object.chunks_of(1).start;
        for chunk in [first, first + 1] {
            let mut buffer = vec![0; CHUNK as usize];
            let read = source.read_chunk(chunk, &mut buffer).unwrap();
            sink.write_chunk(chunk, &buffer[..read.len], &read.value).unwrap();
        }
        assert!(!to.tree(false).contains_key(&names::journal(b"y")));
        let same = source.compare(0, &plan.compare[0].values);
        assert_eq!(same, [true; 2]);
        sink.compare_result(0, &same).unwrap();
        assert!(to.tree(false).contains_key(&names::journal(b"y")));
    }
}
