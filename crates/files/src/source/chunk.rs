//! Reads a chunk as a whole, in parts from its start on, or any part of it alone. The value of a
//! chunk is its BLAKE3 hash or chaining value (see `digest`).

use super::Source;
use crate::digest::{ChunkHasher, Digest};
use crate::error::{Error, FileErrorKind};
use crate::virtual_object::Extent;
use crate::{CHUNK, ChunkKind};

/// A chunk that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkRead {
    /// Bytes of content, at the start of the buffer.
    pub len: usize,
    /// The chunk's value.
    pub value: Digest,
}

/// A chunk that is read in parts, from [`Source::begin_chunk`].
#[derive(Debug)]
pub struct PartialChunk {
    chunk: u64,
    len: usize,
    read: usize,
    hasher: ChunkHasher,
}

impl PartialChunk {
    /// The chunk's number.
    pub fn number(&self) -> u64 {
        self.chunk
    }

    /// The length of the chunk's content in bytes.
    pub fn content_len(&self) -> usize {
        self.len
    }

    /// The number of bytes that were read so far.
    pub fn bytes_read(&self) -> usize {
        self.read
    }
}

impl Source {
    /// Reads chunk `chunk` into the start of `buf` (as long as a chunk) and computes its value.
    ///
    /// A file that vanished or changed since the walk becomes a failure and reads as zeros. So a
    /// chunk that is read again may have a different value.
    ///
    /// # Errors
    /// The chunk is outside the object, or the buffer is too short (`Request`). If there is no
    /// memory for the names of failed files: as [`ListMemory::hold`](crate::ListMemory::hold).
    pub fn read_chunk(&mut self, chunk: u64, buf: &mut [u8]) -> Result<ChunkRead, Error> {
        let mut part = self.begin_chunk(chunk)?;
        self.read_on(&mut part, buf, usize::MAX)?;
        Ok(ChunkRead { len: part.len, value: part.hasher.value() })
    }

    /// Starts to read chunk `chunk` in parts. Nothing is read yet.
    ///
    /// # Errors
    /// The chunk is outside the object (`Request`).
    pub fn begin_chunk(&self, chunk: u64) -> Result<PartialChunk, Error> {
        let hasher = match self.object.chunk_kind(chunk) {
            Some(ChunkKind::Large { entry, chunk }) => ChunkHasher::new(self.size(entry), chunk),
            Some(ChunkKind::Manifest | ChunkKind::Packed) => ChunkHasher::packed(),
            None => return Err(outside(chunk)),
        };
        Ok(PartialChunk { chunk, len: self.object.chunk_content(chunk), read: 0, hasher })
    }

    /// Reads the next bytes of the chunk, up to byte `end` or to the end of the content, whichever
    /// comes first. `buf` is as long as a chunk, and each byte gets the same place in `buf` as in
    /// the chunk. Returns the chunk's value once all of the content was read. Treats a file that
    /// vanished or changed as [`Source::read_chunk`] does.
    ///
    /// # Errors
    /// As [`read_chunk`](Source::read_chunk).
    pub fn read_on(
        &mut self,
        part: &mut PartialChunk,
        buf: &mut [u8],
        end: usize,
    ) -> Result<Option<Digest>, Error> {
        let (start, end) = (part.read, end.min(part.len));
        if start < end {
            let content = buf.get_mut(start..end).ok_or_else(|| outside(part.chunk))?;
            self.read_within(part.chunk, start, content)?;
            part.hasher.update(content);
            part.read = end;
        }
        Ok((part.read == part.len).then(|| part.hasher.value()))
    }

    /// Reads a part of chunk `chunk` from its byte `start` on, without computing a value; bytes
    /// after the content are zero.
    ///
    /// # Errors
    /// As [`read_chunk`](Source::read_chunk); but a buffer of any length is accepted.
    pub fn read_within(&mut self, chunk: u64, start: usize, buf: &mut [u8]) -> Result<(), Error> {
        let Some(kind) = self.object.chunk_kind(chunk) else { return Err(outside(chunk)) };
        let end = start + buf.len();
        if kind == ChunkKind::Manifest {
            let at = chunk * CHUNK;
            let content = &self.encoded[at as usize..][..self.object.chunk_content(chunk)];
            let part = content.get(start..end.min(content.len())).unwrap_or_default();
            buf[..part.len()].copy_from_slice(part);
            buf[part.len()..].fill(0);
            return Ok(());
        }
        let mut filled = 0;
        let extents: Vec<Extent> = self.object.extents(chunk).collect();
        for extent in extents {
            let from = extent.chunk_offset.max(start);
            let to = (extent.chunk_offset + extent.len).min(end);
            if from < to {
                let at = extent.file_offset + (from - extent.chunk_offset) as u64;
                buf[filled..from - start].fill(0);
                self.read_piece(extent.entry, at, &mut buf[from - start..to - start]);
                filled = to - start;
            }
        }
        buf[filled..].fill(0);
        self.refused.clone().map_or(Ok(()), Err)
    }
}

fn outside(chunk: u64) -> Error {
    let what = format!("chunk {chunk} is not in the object, or is longer than its buffer");
    Error::new(FileErrorKind::Request, what)
}
