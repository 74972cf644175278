//! The digest of a file whose chunks arrive in any order.

use longhaul_fetch::{Digest, Hasher};
use longhaul_files::{CHUNK, Sink};

use crate::error::Error;

pub(super) struct Checksum {
    published: Option<Digest>,
    hasher: Option<Hasher>,
    /// Number of chunks from the start that are hashed.
    hashed: u64,
    was_right: bool,
}

impl Checksum {
    pub(super) fn new(published: Option<&Digest>) -> Checksum {
        Checksum {
            published: published.cloned(),
            hasher: published.map(Digest::hasher),
            hashed: 0,
            was_right: false,
        }
    }

    /// Hashes the earlier chunks that `sink` has, up to the first missing chunk. Hashes `chunk` if
    /// no earlier chunk is missing.
    pub(super) fn take(
        &mut self,
        sink: &mut Sink,
        chunk: u64,
        content: &[u8],
    ) -> Result<(), Error> {
        let Some(hasher) = &mut self.hasher else { return Ok(()) };
        while self.hashed < chunk && !sink.needs(self.hashed) {
            hasher.update(&sink.read_back(self.hashed)?);
            self.hashed += 1;
        }
        if self.hashed == chunk {
            hasher.update(content);
            self.hashed += 1;
        }
        Ok(())
    }

    /// Returns whether the file has the published digest; to be called when `last` is the only
    /// missing chunk. Returns true if there is no published digest. Only the first call compares:
    /// later calls, when the last chunk arrives again after a failed sync, return true.
    pub(super) fn is_right(
        &mut self,
        sink: &mut Sink,
        size: u64,
        last: u64,
        content: &[u8],
    ) -> Result<bool, Error> {
        self.take(sink, last, content)?;
        let (Some(mut hasher), Some(published)) = (self.hasher.take(), &self.published) else {
            return Ok(true);
        };
        while self.hashed < size.div_ceil(CHUNK) {
            hasher.update(&sink.read_back(self.hashed)?);
            self.hashed += 1;
        }
        self.was_right = hasher.is(published);
        Ok(self.was_right)
    }

    /// Returns whether this run found the published digest to be right.
    pub(super) fn was_right(&self) -> bool {
        self.was_right
    }
}
