//! Assembles chunks from pieces (messages with consecutive parts of a chunk), and refuses chunks
//! that are too large.

use super::ChunkPiece;
use crate::error::{Error, ErrorKind};
use longhaul_files::CHUNK;

/// Assembles the pieces of one incoming stream.
#[derive(Debug)]
pub struct Pieces {
    chunks: u64,
    chunk: u64,
    content: Vec<u8>,
}

impl Pieces {
    /// Returns an empty assembler for an object of `chunks` chunks.
    pub fn new(chunks: u64) -> Pieces {
        Pieces { chunks, chunk: 0, content: Vec::new() }
    }

    /// Adds a piece; returns the chunk's number and content once the chunk is complete.
    ///
    /// # Errors
    /// The pieces do not follow each other, exceed a chunk, or belong to a chunk that the object
    /// does not have.
    pub fn take(&mut self, piece: ChunkPiece) -> Result<Option<(u64, Vec<u8>)>, Error> {
        if piece.chunk >= self.chunks {
            let what = format!(
                "received a piece of chunk {}; the object has {} chunks",
                piece.chunk, self.chunks
            );
            return Err(Error::new(ErrorKind::Unfinished, what));
        }
        if piece.offset == 0 {
            self.chunk = piece.chunk;
            self.content = Vec::with_capacity(CHUNK as usize);
        }
        let follows = piece.chunk == self.chunk && piece.offset as usize == self.content.len();
        if !follows {
            let what = format!(
                "a piece of chunk {} at offset {} does not follow the first {} bytes of chunk {}",
                piece.chunk,
                piece.offset,
                self.content.len(),
                self.chunk
            );
            return Err(Error::new(ErrorKind::Unfinished, what));
        }
        if self.content.len() + piece.bytes.len() > CHUNK as usize {
            let what = format!("received more than {CHUNK} bytes of chunk {}", self.chunk);
            return Err(Error::new(ErrorKind::Unfinished, what));
        }
        self.content.extend_from_slice(&piece.bytes);
        Ok(piece.last.then(|| (self.chunk, std::mem::take(&mut self.content))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(chunk: u64, offset: u32, len: usize, last: bool) -> ChunkPiece {
        ChunkPiece { chunk, offset, bytes: vec![7; len], last }
    }

    #[test]
    fn pieces_make_a_chunk() {
        let mut pieces = Pieces::new(6);
        assert_eq!(pieces.take(piece(3, 0, 10, false)).unwrap(), None);
        assert_eq!(pieces.take(piece(3, 10, 5, true)).unwrap(), Some((3, vec![7; 15])));
        assert_eq!(pieces.take(piece(4, 0, 0, true)).unwrap(), Some((4, vec![])));
    }

    #[test]
    fn pieces_after_a_gap_or_of_a_too_large_or_unknown_chunk_are_refused() {
        let mut pieces = Pieces::new(6);
        pieces.take(piece(3, 0, 10, false)).unwrap();
        assert!(pieces.take(piece(3, 11, 5, true)).is_err());
        assert!(pieces.take(piece(4, 10, 5, true)).is_err());
        assert!(pieces.take(piece(5, 0, CHUNK as usize + 1, true)).is_err());
        assert!(pieces.take(piece(6, 0, 1, true)).is_err());
    }
}
