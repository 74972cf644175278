//! The digest of a file whose chunks arrive in any order.

use longhaul_fetch::{Digest, Hasher};
use longhaul_files::{CHUNK, Sink};

use crate::error::Error;

pub(super) struct Checksum {
    /// The published digest, and the digest of the hashed chunks.
    digests: Option<(Digest, Hasher)>,
    /// Number of chunks from the start that are hashed.
    hashed: u64,
    was_right: bool,
}

impl Checksum {
    pub(super) fn new(published: Option<&Digest>) -> Checksum {
        Checksum {
            digests: published.map(|published| (published.clone(), published.hasher())),
            hashed: 0,
            was_right: false,
        }
    }

    /// Hashes the earlier chunks that `sink` has, up to the first missing chunk. Hashes `chunk` if
    /// no earlier chunk is missing.
    ///
    /// After a failed sync, `sink` needs hashed chunks again, and the server may now send other
    /// content. The hash then starts again, over the content that `sink` has.
    pub(super) fn take(
        &mut self,
        sink: &mut Sink,
        chunk: u64,
        content: &[u8],
    ) -> Result<(), Error> {
        let Some((published, hasher)) = &mut self.digests else { return Ok(()) };
        if chunk < self.hashed && sink.needs(chunk) {
            (*hasher, self.hashed) = (published.hasher(), 0);
        }
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

    /// Returns whether the file has the published digest; true if there is no published digest.
    /// Call this after [`Checksum::take`] of the last missing chunk, or for an empty file.
    pub(super) fn is_right(&mut self, sink: &mut Sink, size: u64) -> Result<bool, Error> {
        let Some((published, hasher)) = &mut self.digests else { return Ok(true) };
        while self.hashed < size.div_ceil(CHUNK) {
            hasher.update(&sink.read_back(self.hashed)?);
            self.hashed += 1;
        }
        self.was_right = hasher.clone().is(published);
        Ok(self.was_right)
    }

    /// Returns whether this run has compared the file with a published digest, and they matched.
    pub(super) fn was_right(&self) -> bool {
        self.was_right
    }
}
