//! Reads the partial file of a large file in progress.

use std::io;

use super::{Large, read_chunk};
use crate::sink::destination::Ground;
use crate::store;

impl Large {
    /// Reads a chunk of the partial file.
    pub(in crate::sink) fn read_back(
        &mut self,
        ground: &mut Ground,
        chunk: u64,
    ) -> io::Result<Vec<u8>> {
        if !self.have.has(chunk) {
            return Err(store::not_found());
        }
        let size = self.header.size;
        read_chunk(self.file(ground)?, size, chunk).map(|(content, _)| content)
    }
}
