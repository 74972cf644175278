//! Reads and verifies chunks of a partial file.

use std::io;

use super::Large;
use crate::CHUNK;
use crate::digest::{self, Digest};
use crate::sink::destination::Ground;
use crate::store::{self, File};

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

/// Returns the value (see [`digest::file_value`]) of a chunk of `file`, as if the file had `size`
/// bytes.
pub(in crate::sink) fn read_value(file: &dyn File, size: u64, chunk: u64) -> io::Result<Digest> {
    read_chunk(file, size, chunk).map(|(_, value)| value)
}

pub(super) fn read_chunk(file: &dyn File, size: u64, chunk: u64) -> io::Result<(Vec<u8>, Digest)> {
    let mut content = vec![0; (size - chunk * CHUNK).min(CHUNK) as usize];
    file.read_exact_at(&mut content, chunk * CHUNK)?;
    let value = digest::file_value(size, chunk, &content);
    Ok((content, value))
}

/// Reads a chunk of `file`, as if the file had `size` bytes. Returns the content if its value is
/// `value`; `None` if it has another value or cannot be read.
pub(super) fn read_verified(
    file: &dyn File,
    size: u64,
    chunk: u64,
    value: &Digest,
) -> Option<Vec<u8>> {
    let (content, found) = read_chunk(file, size, chunk).ok()?;
    (found == *value).then_some(content)
}
