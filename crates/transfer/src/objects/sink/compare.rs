//! What the sender says of what is there: which of its chunks are the source's.

use std::io;
use std::ops::Range;

use super::plan::Basis;
use super::{Comparing, Sink, State};
use crate::error::{Class, Error};
use crate::objects::CHUNK;
use crate::objects::digest;

impl Sink {
    /// Takes the sender's answer for one [`Compare`](super::Compare) of the plan: for each of its
    /// values, whether the source has it. Returns the chunks of the virtual object that need not
    /// be sent therefore; [`Sink::take_changed`] has those that must be, for all that was said.
    ///
    /// # Errors
    /// An answer that nobody asked for or of the wrong length (`Usage`); else as
    /// [`write_chunk`](Sink::write_chunk).
    pub fn compare_result(
        &mut self,
        entry: u32,
        matches: &[bool],
    ) -> Result<Vec<Range<u64>>, Error> {
        let settled = self.states.get(entry as usize).is_some_and(|s| *s != State::Due);
        let Some(asked) = self.comparing.remove(&entry) else {
            // It may have been settled while the question was under way.
            return match settled {
                true => Ok(self.take_needless()),
                false => Err(Error::new(Class::Usage, "an answer that nobody asked for")),
            };
        };
        if matches.len() != asked.values.len() {
            return Err(Error::new(Class::Usage, "an answer of the wrong length"));
        }
        let taken = match asked.under_final_name {
            true => self.take_from_final(entry, &asked, matches),
            false => self.take_from_partial(entry, &asked, matches),
        };
        match taken {
            Ok(()) => Ok(self.take_needless()),
            Err(error) => {
                self.local_failure(entry, &error)?;
                Ok(self.take_needless())
            }
        }
    }

    fn take_from_partial(
        &mut self,
        entry: u32,
        asked: &Comparing,
        matches: &[bool],
    ) -> io::Result<()> {
        let Some(large) = self.larges.get_mut(&entry) else { return Ok(()) };
        let right = asked.values.iter().zip(matches).filter(|(_, right)| **right);
        let right: Vec<_> = right.map(|(value, _)| *value).collect();
        for (chunk, value) in &right {
            self.watch.step();
            large.take(*chunk, *value);
        }
        let is_whole = large.is_whole();
        for (chunk, _) in right {
            self.settle_chunk_of(entry, chunk);
        }
        if is_whole { self.complete_large(entry) } else { Ok(()) }
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
        let is_equal = all && basis.is_of(size);
        if self.options.dry_run {
            if !is_equal {
                return self.see_whether_its_folder_may(entry);
            }
            self.settle(entry, State::Skipped);
            self.settle_chunks(entry);
            return Ok(());
        }
        if is_equal {
            self.keep.apply(basis.file(), it, None)?;
            if let Some(large) = self.larges.remove(&entry) {
                large.remove(&mut self.ground)?;
            }
            self.small.forget(&mut self.ground, entry);
            self.settle(entry, State::Skipped);
            self.settle_chunks(entry);
            return Ok(());
        }
        if !self.object.is_large(entry) {
            return Ok(());
        }
        let mut content = vec![0; CHUNK as usize];
        for ((chunk, value), _) in asked.values.iter().zip(matches).filter(|(_, right)| **right) {
            self.watch.step();
            let start = chunk * CHUNK;
            let content = &mut content[..(size - start).min(CHUNK) as usize];
            // It may have changed since it was hashed, or end earlier.
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

    /// Notes that a chunk of a large file, counted in the file, need not come.
    fn settle_chunk_of(&mut self, entry: u32, chunk: u64) {
        let chunk = self.object.chunks_of(entry).start + chunk;
        if self.needed.remove(chunk) {
            match self.needless.last_mut() {
                Some(last) if last.end == chunk => last.end += 1,
                _ => self.needless.push(chunk..chunk + 1),
            }
        }
    }
}
