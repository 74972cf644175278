//! Assembly of chunks: the position of each block's bytes, and detection of complete chunks.
//!
//! A *block* is the payload of one datagram. A *chunk* consists of blocks; it is the unit that is
//! verified and written. A *coded symbol* (forward error correction) can replace any missing block
//! of its chunk.
//!
//! A *place* is a block's memory in its chunk's buffer. A place is lent only while its block is
//! missing, so a datagram that fails to open (decrypt) cannot damage received data. Complete chunks
//! are returned as owned buffers. Memory is allocated per chunk, never per datagram.

use std::collections::{HashMap, VecDeque};

use longhaul_proto::coded::{Symbol, shape};
use longhaul_proto::endpoint::BlockRange;
use longhaul_proto::layout::{Block, Layout};

use crate::buffers::chunks::{ChunkBuffer, ChunkPool};
use crate::buffers::repair::{Repair, Symbols};

/// The outcome for the payload of a block, or of a coded symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed<E> {
    /// The block was written to its place, or the symbol to the buffer of its chunk's symbols.
    Filled(Block),
    /// A duplicate, a skipped block, or a block or symbol of a finished chunk. Nothing was written.
    Present(Block),
    /// There is no buffer for the block's chunk or its symbols. The block counts as never received.
    NoRoom,
    /// The object has no such block, or the payload does not have the block's length.
    Unfit,
    /// The fill function failed; the block is still missing.
    Failed(E),
}

/// A complete chunk.
pub struct WholeChunk {
    /// The chunk's number in the object.
    pub chunk: u64,
    /// The chunk's memory. Bytes of skipped blocks ([`Assembly::skip`]) are undefined.
    pub buffer: ChunkBuffer,
    /// Number of the chunk's bytes that belong to the object.
    pub len: usize,
    /// How to compute the missing blocks, if coded symbols replace some.
    pub repair: Option<Repair>,
}

/// The chunks of an object in progress.
pub struct Assembly {
    layout: Layout,
    pool: ChunkPool,
    /// A bit for each finished chunk.
    done: Vec<u64>,
    /// Skipped blocks of unfinished chunks, as runs within the chunk.
    skipped: HashMap<u64, Vec<Run>>,
    open: Vec<Filling>,
    index: HashMap<u64, usize>,
    /// The index into `open` that was used last, and is usually used next.
    last: usize,
    /// The chunk whose places were lent last.
    lent: Option<u64>,
    whole: VecDeque<WholeChunk>,
    /// The `present` bits of closed chunks, to be used again.
    spare: Vec<Vec<u64>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The block's number, counted from the start of the object.
    pub(crate) number: u64,
    pub(crate) start: usize,
    pub(crate) len: usize,
}

struct Filling {
    chunk: u64,
    buffer: ChunkBuffer,
    /// A bit for each block that was received or skipped.
    present: Vec<u64>,
    missing: u32,
    /// Whether a block or symbol of the chunk was received.
    begun: bool,
    symbols: Option<Symbols>,
}

#[derive(Clone, Copy)]
struct Run {
    first: u32,
    count: u32,
}

impl Assembly {
    /// Returns an assembly without received blocks. The pool's buffers must have the layout's chunk
    /// size.
    pub fn new(layout: Layout, pool: ChunkPool) -> Assembly {
        let words = layout.chunks().div_ceil(64) as usize;
        Assembly {
            layout,
            pool,
            done: vec![0; words],
            skipped: HashMap::new(),
            open: Vec::new(),
            index: HashMap::new(),
            last: 0,
            lent: None,
            whole: VecDeque::new(),
            spare: Vec::new(),
        }
    }

    /// Returns how the object is divided.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    #[cfg(test)]
    pub(crate) fn open_chunks(&self) -> usize {
        self.open.len()
    }

    /// Calls `fill` to write the payload of block `number`, `len` bytes long, into its place, if
    /// the block is missing.
    pub fn place<E>(
        &mut self,
        number: u64,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Placed<E> {
        let Some(block) = self.layout.block(number) else {
            return Placed::Unfit;
        };
        let extent = self.layout.extent(block);
        if extent.len as usize != len {
            return Placed::Unfit;
        }
        let chunk = self.layout.chunk_of(block);
        if self.is_done(chunk) {
            return Placed::Present(block);
        }
        let Some(at) = self.open_chunk(chunk) else {
            return Placed::NoRoom;
        };
        let start = (extent.offset - chunk * self.layout.chunk_size().get()) as usize;
        let within = start / self.layout.block_size() as usize;
        let filling = &mut self.open[at];
        if is_set(&filling.present, within) {
            return Placed::Present(block);
        }
        if let Err(error) = fill(&mut filling.buffer[start..start + len]) {
            self.close_unbegun(at);
            return Placed::Failed(error);
        }
        filling.begun = true;
        set(&mut filling.present, within);
        filling.missing -= 1;
        if filling.missing == 0 {
            self.finish(at, None);
        }
        Placed::Filled(block)
    }

    /// Calls `fill` to write a coded symbol of `len` bytes, unless its chunk is complete or has the
    /// symbol. All symbols of a chunk share one buffer of the pool. [`Placed::NoRoom`] if that
    /// buffer is full, if taking it would leave less than a quarter of the pool free, or if the
    /// pool has no buffer for the chunk itself.
    pub fn place_symbol<E>(
        &mut self,
        symbol: Symbol,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Placed<E> {
        let size = self.layout.block_size() as usize;
        let Some(block) = symbol.block(&self.layout).filter(|_| len == size) else {
            return Placed::Unfit;
        };
        if self.is_done(symbol.chunk) {
            return Placed::Present(block);
        }
        let Some(at) = self.open_chunk(symbol.chunk) else {
            return Placed::NoRoom;
        };
        let Filling { symbols, begun, .. } = &mut self.open[at];
        if symbols.as_ref().is_some_and(|symbols| symbols.has(symbol.number)) {
            return Placed::Present(block);
        }
        let had = symbols.is_some();
        if !had {
            *symbols = self.pool.take_spare().map(|buffer| Symbols::new(buffer, size));
        }
        let placed = match symbols.as_mut().and_then(|symbols| symbols.add(symbol.number, fill)) {
            Some(Ok(())) => {
                *begun = true;
                return Placed::Filled(block);
            }
            Some(Err(error)) => Placed::Failed(error),
            None => Placed::NoRoom,
        };
        // A symbol that was not placed, such as a forged one, keeps no buffer.
        if !had {
            *symbols = None;
        }
        self.close_unbegun(at);
        placed
    }

    /// Completes a chunk whose symbols replace the missing blocks: [`WholeChunk::repair`] computes
    /// those blocks later. The caller must know that enough symbols have arrived.
    pub fn restore(&mut self, chunk: u64) {
        let Some((&at, shape)) = self.index.get(&chunk).zip(shape(&self.layout, chunk)) else {
            return;
        };
        let size = self.layout.block_size() as usize;
        let Filling { buffer, present, symbols, .. } = &mut self.open[at];
        // If only a part of a chunk is skipped, that part is padding. The sender codes it as zeros.
        for run in self.skipped.get(&chunk).into_iter().flatten() {
            let end = (run.first + run.count) as usize * size;
            let end = end.min(buffer.len());
            buffer[run.first as usize * size..end].fill(0);
        }
        let repair = symbols.take().map(|symbols| {
            let present = std::mem::take(present);
            Repair { shape, symbols, present }
        });
        self.finish(at, repair);
    }

    /// Skips blocks that the destination already has or that will never arrive: their chunks are
    /// complete without them. A chunk that is skipped completely is never returned.
    pub fn skip(&mut self, blocks: BlockRange) {
        let mut at = blocks.first;
        let mut left = blocks.count.min(self.layout.blocks_in(at.segment).saturating_sub(at.index));
        while left > 0 {
            let chunk = self.layout.chunk_of(at);
            let (first, blocks) = self.layout.blocks_of_chunk(chunk);
            let run_first = at.index - first.index;
            let count = left.min(blocks - run_first);
            if count == blocks {
                self.forget(chunk);
            } else if !self.is_done(chunk) {
                self.skip_in(chunk, blocks, Run { first: run_first, count });
            }
            at.index += count;
            left -= count;
        }
    }

    /// Lends the places of up to `max` missing blocks, from block `number` to the end of its chunk.
    /// Replaces the content of `places`, and returns the chunk's buffer. Only the last block may be
    /// shorter than the others. `None` if there is no such block, its chunk is complete, or no
    /// buffer is left.
    pub(crate) fn lend(
        &mut self,
        number: u64,
        max: usize,
        places: &mut Vec<Place>,
    ) -> Option<&mut [u8]> {
        places.clear();
        let block = self.layout.block(number)?;
        let chunk = self.layout.chunk_of(block);
        if self.is_done(chunk) {
            return None;
        }
        // The caller borrows the places of the blocks that it expects next. If it borrowed places
        // of another chunk before, that prediction may have been wrong. Free the other chunk's
        // buffer if that chunk has received nothing.
        if let Some(&at) = self.lent.filter(|lent| *lent != chunk).and_then(|c| self.index.get(&c))
        {
            self.close_unbegun(at);
        }
        self.lent = Some(chunk);
        let at = self.open_chunk(chunk)?;
        let (first, count) = self.layout.blocks_of_chunk(chunk);
        let size = self.layout.block_size();
        for within in block.index - first.index..count {
            if places.len() == max {
                break;
            }
            if is_set(&self.open[at].present, within as usize) {
                continue;
            }
            let block = Block { segment: first.segment, index: first.index + within };
            let (number, len) = (self.layout.number(block), self.layout.extent(block).len);
            places.push(Place { number, start: (within * size) as usize, len: len as usize });
            if len < size {
                break;
            }
        }
        Some(&mut self.open[at].buffer)
    }

    /// Records that block `number` was received into its lent place. `None` if there is no such
    /// block, if the block was present before, or if its chunk is not open.
    pub(crate) fn mark(&mut self, number: u64) -> Option<Block> {
        let block = self.layout.block(number)?;
        let chunk = self.layout.chunk_of(block);
        let &at = self.index.get(&chunk)?;
        let (first, _) = self.layout.blocks_of_chunk(chunk);
        let within = (block.index - first.index) as usize;
        let filling = &mut self.open[at];
        if is_set(&filling.present, within) {
            return None;
        }
        filling.begun = true;
        set(&mut filling.present, within);
        filling.missing -= 1;
        if filling.missing == 0 {
            self.finish(at, None);
        }
        Some(block)
    }

    /// Returns the next complete chunk.
    pub fn pop_whole(&mut self) -> Option<WholeChunk> {
        self.whole.pop_front()
    }

    fn skip_in(&mut self, chunk: u64, blocks: u32, run: Run) {
        let runs = self.skipped.entry(chunk).or_default();
        runs.push(run);
        let mut skipped = vec![0; blocks.div_ceil(64) as usize];
        if runs.iter().map(|run| fill_run(&mut skipped, *run)).sum::<u32>() == blocks {
            self.forget(chunk);
        } else if let Some(&at) = self.index.get(&chunk) {
            let filling = &mut self.open[at];
            filling.missing -= fill_run(&mut filling.present, run);
            if filling.missing == 0 {
                self.finish(at, None);
            }
        }
    }

    fn forget(&mut self, chunk: u64) {
        set(&mut self.done, chunk as usize);
        self.skipped.remove(&chunk);
        if let Some(&at) = self.index.get(&chunk) {
            self.close(at);
        }
    }

    fn is_done(&self, chunk: u64) -> bool {
        is_set(&self.done, chunk as usize)
    }

    /// Opens the chunk if necessary and returns its index in `open`; `None` if no buffer is left.
    fn open_chunk(&mut self, chunk: u64) -> Option<usize> {
        if self.open.get(self.last).is_some_and(|filling| filling.chunk == chunk) {
            return Some(self.last);
        }
        if let Some(&at) = self.index.get(&chunk) {
            self.last = at;
            return Some(at);
        }
        let buffer = self.pool.take()?;
        let (_, blocks) = self.layout.blocks_of_chunk(chunk);
        let mut present = self.spare.pop().unwrap_or_default();
        present.clear();
        present.resize(blocks.div_ceil(64) as usize, 0);
        let skipped = self.skipped.get(&chunk).into_iter().flatten();
        let there: u32 = skipped.map(|run| fill_run(&mut present, *run)).sum();
        self.last = self.open.len();
        self.index.insert(chunk, self.last);
        let missing = blocks - there;
        self.open.push(Filling { chunk, buffer, present, missing, begun: false, symbols: None });
        Some(self.last)
    }

    fn finish(&mut self, at: usize, repair: Option<Repair>) {
        let filling = self.close(at);
        let chunk = filling.0;
        set(&mut self.done, chunk as usize);
        self.skipped.remove(&chunk);
        let size = self.layout.chunk_size().get();
        let len = (self.layout.object().get() - chunk * size).min(size) as usize;
        self.whole.push_back(WholeChunk { chunk, buffer: filling.1, len, repair });
    }

    /// Returns the buffer of a chunk without received blocks to the pool: otherwise forged
    /// datagrams, each for another chunk, would use up the pool.
    fn close_unbegun(&mut self, at: usize) {
        if !self.open[at].begun {
            self.close(at);
        }
    }

    fn close(&mut self, at: usize) -> (u64, ChunkBuffer) {
        let filling = self.open.swap_remove(at);
        self.index.remove(&filling.chunk);
        if let Some(moved) = self.open.get(at) {
            self.index.insert(moved.chunk, at);
        }
        self.spare.push(filling.present);
        (filling.chunk, filling.buffer)
    }
}

fn is_set(words: &[u64], bit: usize) -> bool {
    words.get(bit / 64).is_some_and(|word| word >> (bit % 64) & 1 == 1)
}

fn set(words: &mut [u64], bit: usize) {
    if let Some(word) = words.get_mut(bit / 64) {
        *word |= 1 << (bit % 64);
    }
}

/// Sets a run of bits; returns how many were not set.
fn fill_run(words: &mut [u64], run: Run) -> u32 {
    let mut fresh = 0;
    for bit in run.first..run.first + run.count {
        if !is_set(words, bit as usize) {
            set(words, bit as usize);
            fresh += 1;
        }
    }
    fresh
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_proto::fec::Decoder;
    use longhaul_proto::units::Bytes;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::convert::Infallible;

    const CHUNK: u64 = 1000;
    const BLOCK: u32 = 30;

    fn assembly(object: u64, buffers: u64) -> Assembly {
        let layout =
            Layout::new(Bytes::new(object), Bytes::new(3 * CHUNK), Bytes::new(CHUNK), BLOCK);
        let pool = ChunkPool::new(Bytes::new(CHUNK), Bytes::new(CHUNK * buffers));
        Assembly::new(layout.unwrap(), pool)
    }

    fn byte_at(offset: u64) -> u8 {
        (offset * 31 % 251) as u8
    }

    fn put(assembly: &mut Assembly, number: u64) -> Placed<Infallible> {
        let Some(block) = assembly.layout().block(number) else {
            return assembly.place(number, BLOCK as usize, |_| Ok(()));
        };
        let extent = assembly.layout().extent(block);
        assembly.place(number, extent.len as usize, |out| {
            for (byte, offset) in out.iter_mut().zip(extent.offset..) {
                *byte = byte_at(offset);
            }
            Ok(())
        })
    }

    fn check(whole: &WholeChunk, object: u64, skipped: &BTreeSet<u64>, layout: &Layout) {
        let start = whole.chunk * CHUNK;
        assert_eq!(whole.len as u64, (object - start).min(CHUNK));
        let (first, count) = layout.blocks_of_chunk(whole.chunk);
        for index in first.index..first.index + count {
            let block = Block { segment: first.segment, index };
            if skipped.contains(&layout.number(block)) {
                continue;
            }
            let extent = layout.extent(block);
            for offset in extent.offset..extent.offset + u64::from(extent.len) {
                assert_eq!(whole.buffer[(offset - start) as usize], byte_at(offset));
            }
        }
    }

    fn symbols_of(layout: &Layout, chunk: u64) -> Vec<Vec<u8>> {
        let (shape, start) = (shape(layout, chunk).unwrap(), chunk * CHUNK);
        let end = (start + CHUNK).min(layout.object().get());
        let content: Vec<u8> = (start..end).map(byte_at).collect();
        let mut made = Vec::new();
        let blocks = content.chunks(BLOCK as usize);
        longhaul_proto::fec::Encoder::new().encode(shape, blocks, &mut made).unwrap();
        made.chunks(BLOCK as usize).map(<[u8]>::to_vec).collect()
    }

    fn put_symbol(assembly: &mut Assembly, chunk: u64, number: u8, bytes: &[u8]) -> bool {
        let fill = |out: &mut [u8]| -> Result<(), Infallible> {
            out.copy_from_slice(bytes);
            Ok(())
        };
        let placed = assembly.place_symbol(Symbol { chunk, number }, bytes.len(), fill);
        matches!(placed, Placed::Filled(_))
    }

    #[test]
    fn symbols_replace_an_equal_number_of_lost_blocks_in_any_order() {
        let mut assembly = assembly(2_500, 5);
        let layout = *assembly.layout();
        for (chunk, lost) in [(0, [0, 7, 33]), (2, [3, 15, 16])] {
            let symbols = symbols_of(&layout, chunk);
            let (first, count) = layout.blocks_of_chunk(chunk);
            let first = layout.number(first);
            assert!(put_symbol(&mut assembly, chunk, 127, &symbols[127]));
            assert!(!put_symbol(&mut assembly, chunk, 127, &symbols[127]), "it is present");
            for within in (0..u64::from(count)).filter(|within| !lost.contains(within)) {
                put(&mut assembly, first + within);
            }
            assert!(put_symbol(&mut assembly, chunk, 0, &symbols[0]));
            assert!(put_symbol(&mut assembly, chunk, 60, &symbols[60]));
            assert!(assembly.pop_whole().is_none());
            assembly.restore(chunk);
            let mut whole = assembly.pop_whole().expect("it is complete");
            whole
                .repair
                .take()
                .expect("it has symbols")
                .apply(&mut Decoder::new(), &mut whole.buffer[..whole.len]);
            check(&whole, 2_500, &BTreeSet::new(), &layout);
            assert!(!put_symbol(&mut assembly, chunk, 1, &symbols[1]), "the chunk is done");
        }
        assert_eq!((assembly.open_chunks(), assembly.pool.lent()), (0, 0));
    }

    #[test]
    fn skipped_blocks_count_as_zeros_in_a_repair() {
        let mut assembly = assembly(1_000, 3);
        let layout = *assembly.layout();
        let mut content: Vec<u8> = (0..1_000).map(byte_at).collect();
        content[600..1_000].fill(0);
        let mut symbols = Vec::new();
        let blocks = content.chunks(BLOCK as usize);
        let shape = shape(&layout, 0).unwrap();
        longhaul_proto::fec::Encoder::new().encode(shape, blocks, &mut symbols).unwrap();
        assembly.skip(BlockRange { first: Block { segment: 0, index: 20 }, count: 14 });
        for number in (0..20).filter(|number| *number != 4) {
            put(&mut assembly, number);
        }
        // The buffer has the bytes of a chunk that used it before.
        assembly.open[0].buffer[600..].fill(7);
        assert!(put_symbol(&mut assembly, 0, 3, &symbols[90..120]));
        assembly.restore(0);
        let mut whole = assembly.pop_whole().unwrap();
        whole.repair.take().unwrap().apply(&mut Decoder::new(), &mut whole.buffer[..]);
        assert_eq!(whole.buffer[..600], content[..600]);
    }

    #[test]
    fn wrong_or_too_few_symbols_make_a_chunk_with_wrong_bytes() {
        for symbols in [1, 2] {
            let mut assembly = assembly(1_000, 4);
            for number in 2..34 {
                put(&mut assembly, number);
            }
            for number in 0..symbols {
                assert!(put_symbol(&mut assembly, 0, number, &[number; 30]));
            }
            assembly.restore(0);
            let mut whole = assembly.pop_whole().unwrap();
            whole.repair.take().unwrap().apply(&mut Decoder::new(), &mut whole.buffer[..]);
            let right: Vec<u8> = (0..60).map(byte_at).collect();
            assert_ne!(whole.buffer[..60], right);
        }
    }

    #[test]
    fn symbols_take_no_memory_that_chunks_need() {
        let mut assembly = assembly(2_500, 4);
        assembly.restore(1);
        assert!(assembly.pop_whole().is_none(), "the chunk has not begun");
        assert!(!put_symbol(&mut assembly, 3, 0, &[0; 30]), "there is no such chunk");
        assert!(!put_symbol(&mut assembly, 1, 0, &[0; 29]), "it is too short");
        let forged = |_: &mut [u8]| Err(());
        let symbol = Symbol { chunk: 1, number: 0 };
        assert_eq!(assembly.place_symbol(symbol, 30, forged), Placed::Failed(()));
        assert_eq!((assembly.open_chunks(), assembly.pool.lent()), (0, 0));
        // Chunk 1 and its symbols have two of the four buffers. Chunk 0 would take the third; the
        // fourth must stay free for blocks.
        assert!(put_symbol(&mut assembly, 1, 0, &[0; 30]));
        assert_eq!(assembly.pool.lent(), 2);
        let (symbol, fill) = (Symbol { chunk: 0, number: 0 }, |_: &mut [u8]| Ok::<(), ()>(()));
        assert_eq!(assembly.place_symbol(symbol, 30, fill), Placed::NoRoom);
        assert_eq!((assembly.open_chunks(), assembly.pool.lent()), (1, 2));
        // A buffer of 1,000 bytes holds 33 symbols of 30 bytes.
        assert!((1..33).all(|number| put_symbol(&mut assembly, 1, number, &[0; 30])));
        assert!(!put_symbol(&mut assembly, 1, 33, &[0; 30]));
        // The chunk completes without its symbols.
        for number in 34..68 {
            put(&mut assembly, number);
        }
        assert!(assembly.pop_whole().unwrap().repair.is_none());
        assert_eq!((assembly.open_chunks(), assembly.pool.lent()), (0, 0));
    }

    proptest! {
        #[test]
        fn every_chunk_is_returned_once_and_correct_unless_it_is_skipped(
            object in 1u64..12_000,
            skips in proptest::collection::vec((0u64..500, 1u32..60), 0..6),
            orders in proptest::collection::vec(any::<proptest::sample::Index>(), 0..400),
            late_skip in any::<bool>(),
        ) {
            let mut assembly = assembly(object, 100);
            let layout = *assembly.layout();
            let mut skipped = BTreeSet::new();
            let skip_all = |assembly: &mut Assembly, skipped: &mut BTreeSet<u64>| {
                for (number, count) in &skips {
                    let Some(first) = layout.block(*number) else { continue };
                    assembly.skip(BlockRange { first, count: *count });
                    let end = layout.blocks_in(first.segment).min(first.index + count);
                    skipped.extend((0..u64::from(end - first.index)).map(|n| number + n));
                }
            };
            if !late_skip {
                skip_all(&mut assembly, &mut skipped);
            }
            let blocks = layout.blocks() as usize;
            let mut there = BTreeSet::new();
            let shuffled = orders.iter().map(|index| index.index(blocks) as u64);
            for number in shuffled {
                let fresh = there.insert(number) && !skipped.contains(&number);
                let block = layout.block(number).unwrap();
                let expected = if fresh { Placed::Filled(block) } else { Placed::Present(block) };
                prop_assert_eq!(put(&mut assembly, number), expected);
            }
            if late_skip {
                skip_all(&mut assembly, &mut skipped);
            }
            for number in 0..layout.blocks() {
                put(&mut assembly, number);
            }
            let mut chunks = BTreeSet::new();
            while let Some(whole) = assembly.pop_whole() {
                check(&whole, object, &skipped, &layout);
                prop_assert!(chunks.insert(whole.chunk), "chunk {} twice", whole.chunk);
            }
            prop_assert_eq!(assembly.open_chunks(), 0);
            for chunk in (0..layout.chunks()).filter(|chunk| !chunks.contains(chunk)) {
                let (first, count) = layout.blocks_of_chunk(chunk);
                let first = layout.number(first);
                prop_assert!((first..first + u64::from(count)).all(|n| skipped.contains(&n)));
            }
        }
    }

    #[test]
    fn a_chunk_whose_blocks_are_all_skipped_is_never_returned() {
        let skip_parts = |assembly: &mut Assembly, parts: &[(u32, u32)]| {
            for (index, count) in parts {
                let first = Block { segment: 0, index: *index };
                assembly.skip(BlockRange { first, count: *count });
            }
        };
        // A chunk has 34 blocks; the first block is received before, between or after the parts.
        for parts in [&[(0, 34)][..], &[(0, 20), (20, 14)], &[(14, 20), (0, 20)]] {
            for received_after in 0..=parts.len() {
                let mut assembly = assembly(1_000, 1);
                skip_parts(&mut assembly, &parts[..received_after]);
                put(&mut assembly, 0);
                skip_parts(&mut assembly, &parts[received_after..]);
                assert!(assembly.pop_whole().is_none(), "{parts:?}, {received_after}");
                assert_eq!((assembly.open_chunks(), assembly.pool.lent()), (0, 0));
            }
        }
    }

    #[test]
    fn a_block_is_still_missing_after_its_fill_function_failed() {
        let mut assembly = assembly(60, 2);
        assert_eq!(assembly.place(0, 30, |_| Err("forged")), Placed::Failed("forged"));
        assert!(matches!(put(&mut assembly, 0), Placed::Filled(_)));
        assert!(assembly.pop_whole().is_none());
        assert!(matches!(put(&mut assembly, 1), Placed::Filled(_)));
        assert_eq!(assembly.pop_whole().map(|whole| whole.len), Some(60));
    }

    #[test]
    fn forged_blocks_keep_no_buffers() {
        let mut assembly = assembly(50_000, 2);
        let layout = *assembly.layout();
        let (first, count) = layout.blocks_of_chunk(7);
        assembly.skip(BlockRange { first, count: count - 1 });
        for chunk in 0..layout.chunks() {
            let (first, count) = layout.blocks_of_chunk(chunk);
            let last = Block { segment: first.segment, index: first.index + count - 1 };
            let len = layout.extent(last).len as usize;
            let placed = assembly.place(layout.number(last), len, |_| Err("forged"));
            assert_eq!(placed, Placed::Failed("forged"), "chunk {chunk}");
        }
        assert_eq!((assembly.open_chunks(), assembly.pool.lent()), (0, 0));
        // Skipped blocks are remembered: one more block completes the chunk.
        let last = Block { segment: first.segment, index: first.index + count - 1 };
        assert_eq!(put(&mut assembly, layout.number(last)), Placed::Filled(last));
        assert_eq!(assembly.pop_whole().map(|whole| whole.chunk), Some(7));
        // A chunk with a received block keeps its buffer.
        put(&mut assembly, 0);
        assert_eq!(assembly.place(1, BLOCK as usize, |_| Err(())), Placed::Failed(()));
        assert!(matches!(put(&mut assembly, 0), Placed::Present(_)));
    }

    #[test]
    fn unused_lent_places_keep_only_one_buffer() {
        let mut assembly = assembly(9000, 2);
        let per_chunk = CHUNK.div_ceil(BLOCK.into());
        let mut places = Vec::new();
        for chunk in 0..9 {
            assert!(assembly.lend(chunk * per_chunk, 4, &mut places).is_some(), "chunk {chunk}");
        }
        assert_eq!(assembly.open_chunks(), 1);
        assert!(assembly.mark(8 * per_chunk).is_some());
        assert!(assembly.lend(0, 4, &mut places).is_some());
        assert_eq!(assembly.open_chunks(), 2);
    }

    #[test]
    fn blocks_outside_the_layout_are_refused() {
        let mut assembly = assembly(60, 2);
        assert_eq!(put(&mut assembly, 2), Placed::Unfit);
        assert_eq!(assembly.place(0, 29, |_| Ok::<_, ()>(())), Placed::Unfit);
        assert_eq!(assembly.open_chunks(), 0);
    }

    #[test]
    fn no_chunk_begins_while_the_pool_has_no_free_buffer() {
        let mut assembly = assembly(5000, 2);
        let per_chunk = CHUNK.div_ceil(BLOCK.into());
        assert!(matches!(put(&mut assembly, 0), Placed::Filled(_)));
        assert!(matches!(put(&mut assembly, per_chunk), Placed::Filled(_)));
        assert_eq!(put(&mut assembly, 2 * per_chunk), Placed::NoRoom);
        for number in 1..per_chunk {
            put(&mut assembly, number);
        }
        assert_eq!(put(&mut assembly, 2 * per_chunk), Placed::NoRoom, "the writer has the buffer");
        drop(assembly.pop_whole());
        assert!(matches!(put(&mut assembly, 2 * per_chunk), Placed::Filled(_)));
    }
}
