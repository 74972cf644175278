//! Holes of a large file: ranges of chunks that are not sent, and read as zeros.

use std::io;

use super::Large;
use crate::digest;
use crate::sink::partial;
use crate::store::File;
use crate::{CHUNK, Watch};

/// A copy may hash this many bytes of holes, plus one byte for each byte of content received.
const HASHED_HOLES: u64 = 4 << 30;

/// Counts the bytes of hashed holes, and limits them: a few bytes on the wire can announce holes
/// that would keep a core busy for hours.
#[derive(Debug, Default)]
pub(in crate::sink) struct HoleBudget(u64);

impl HoleBudget {
    /// Counts `bytes` of holes if the total stays within the limit: [`HASHED_HOLES`] plus the
    /// `come` bytes of received content. Otherwise counts nothing and returns false.
    fn take(&mut self, bytes: u64, come: u64) -> bool {
        let is_within = self.0.saturating_add(bytes) <= HASHED_HOLES.saturating_add(come);
        if is_within {
            self.0 += bytes;
        }
        is_within
    }
}

impl Large {
    pub(super) fn is_hole(&self, chunk: u64) -> bool {
        let after = self.holes.partition_point(|hole| hole.end <= chunk);
        self.holes.get(after).is_some_and(|hole| hole.contains(&chunk))
    }

    /// Makes the holes read as zeros, whatever an earlier run has written there.
    pub(super) fn clear_holes(&self, file: &dyn File, watch: &Watch) -> io::Result<()> {
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

    /// Hashes the holes for the root (the hash of the whole file), after `come` bytes of content
    /// have arrived. If the holes exceed the limit of `budget`, or the copy was cancelled, the file
    /// has no root.
    pub(in crate::sink) fn hash_holes(
        &mut self,
        budget: &mut HoleBudget,
        come: u64,
        watch: &Watch,
    ) {
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::large::read_back::{read_chunk, read_verified};
    use crate::sink::large::tests::large;
    use crate::store::Folder;

    #[test]
    fn holes_are_hashed_up_to_a_limit_that_grows_with_the_content() {
        let mut budget = HoleBudget::default();
        assert!(budget.take(HASHED_HOLES - 1, 0) && budget.take(1, 0));
        assert!(!budget.take(1, 0) && !budget.take(u64::MAX, u64::MAX - HASHED_HOLES - 1));
        assert!(budget.take(1000, 1000) && !budget.take(1, 1000));
        assert_eq!(HASHED_HOLES, 4_294_967_296);
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
    fn a_hole_reads_as_zeros_whatever_was_there_before() {
        let large = large();
        // Files of a `MemoryFolder` cannot have holes; zeros are written instead.
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
