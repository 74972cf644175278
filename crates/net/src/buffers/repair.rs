//! The coded symbols (redundant blocks, forward error correction) of an unfinished chunk, and the
//! repair of the chunk with them.

use longhaul_proto::fec::{Decoder, Shape};

use crate::buffers::chunks::ChunkBuffer;

/// The symbols of one chunk. They are kept in a buffer of the chunk pool, so the pool's budget
/// covers them.
pub(super) struct Symbols {
    buffer: ChunkBuffer,
    size: usize,
    numbers: Vec<u8>,
}

impl Symbols {
    pub(super) fn new(buffer: ChunkBuffer, size: usize) -> Symbols {
        Symbols { buffer, size, numbers: Vec::new() }
    }

    pub(super) fn has(&self, number: u8) -> bool {
        self.numbers.contains(&number)
    }

    /// Adds the symbol `number`, which `fill` writes; `None` if the buffer is full.
    pub(super) fn add<E>(
        &mut self,
        number: u8,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Option<Result<(), E>> {
        let start = self.numbers.len() * self.size;
        let filled = fill(self.buffer.get_mut(start..start + self.size)?);
        if filled.is_ok() {
            self.numbers.push(number);
        }
        Some(filled)
    }

    fn iter(&self) -> impl Iterator<Item = (u16, &[u8])> {
        self.numbers.iter().map(|number| u16::from(*number)).zip(self.buffer.chunks(self.size))
    }
}

/// The missing blocks of a chunk, still to be computed from its symbols. The computation takes
/// about a millisecond for 1 MiB, so a receiving thread leaves it to the writer.
pub struct Repair {
    pub(super) shape: Shape,
    pub(super) symbols: Symbols,
    /// A bit for each block; bits of missing blocks are clear.
    pub(super) present: Vec<u64>,
}

impl Repair {
    /// Writes the missing blocks into the chunk's content. If symbols are wrong or too few, these
    /// blocks have arbitrary bytes: the chunk's digest decides whether the content is right.
    /// `decoder` keeps its working memory for the next chunk.
    pub fn apply(self, decoder: &mut Decoder, content: &mut [u8]) {
        let Repair { shape, symbols, present } = self;
        let is_present = |within: usize| present[within / 64] >> (within % 64) & 1 == 1;
        let blocks = content.chunks(symbols.size).enumerate();
        let blocks = blocks.filter(|(within, _)| is_present(*within));
        let blocks = blocks.map(|(within, block)| (within as u16, block));
        let mut made = Vec::new();
        let keep = |within: u16, block: &[u8]| made.push((within, block.to_vec()));
        if decoder.decode(shape, blocks, symbols.iter(), keep) != Ok(0) {
            return;
        }
        for (within, block) in made {
            let place = content.chunks_mut(symbols.size).nth(within.into());
            let place = place.unwrap_or_default();
            place.copy_from_slice(&block[..place.len()]);
        }
    }
}
