//! Coded repair: symbols that replace any lost blocks of their chunk.
//!
//! A block is the payload of one datagram, and a chunk is the unit that is hashed. The blocks of a
//! chunk are the originals of a Reed–Solomon code with [`SYMBOLS`] symbols ([`crate::fec`]). Any n
//! symbols of a chunk replace any n of its blocks. A sender adds symbols to the last rounds of an
//! object, because a loss there would cost another round trip. A symbol travels like a block, in
//! its own datagram. The block number in the datagram's header names the chunk and the symbol, so
//! no other message is needed.
//!
//! In the core (the state machine of a protocol) a symbol is a [`Block`] whose index is above the
//! indices of all real blocks. The core decides which symbols are sent and when they suffice; the
//! driver (the program that does the I/O) moves bytes. A sender may send symbols only to a receiver
//! that takes them ([`crate::endpoint::Sender::allow_coded`]).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::fec::{Losses, Scheme, Shape, repairs};
use crate::layout::{Block, Layout};
use crate::units::LossRatio;

/// Symbols of a chunk.
pub const SYMBOLS: u8 = 128;
const BITS: u32 = SYMBOLS.ilog2();
/// This bit marks an index within a segment as the index of a symbol.
const INDEX: u32 = 1 << 31;
/// In a header, block numbers from this value on name symbols.
pub const FIRST_SYMBOL: u64 = 1 << 47;
/// Maximum number of chunks whose symbols a receiver keeps.
const MOST_CHUNKS: usize = 4_096;
/// Accepted probabilities that a round needs another round; [`amounts`] uses the lowest one whose
/// symbols fit into its `budget`, the maximum number of symbols.
const FAILURES: [f64; 4] = [0.01, 0.03, 0.1, 0.3];
/// If a first round needs another round with a higher probability than this, even with `budget`
/// symbols, [`amounts`] keeps symbols for that other round.
const LIKELY: f64 = 0.8;
/// Bits of a chunk's number in a header.
const CHUNK_BITS: u32 = FIRST_SYMBOL.ilog2() - BITS;

/// A symbol of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Symbol {
    /// The chunk.
    pub chunk: u64,
    /// The symbol within the chunk's code, below [`SYMBOLS`].
    pub number: u8,
}

impl Symbol {
    /// The [`Block`] that stands for this symbol in the core; `None` if the chunk cannot be coded.
    pub fn block(self, layout: &Layout) -> Option<Block> {
        let has_number = self.chunk >> CHUNK_BITS == 0 && layout.blocks() <= FIRST_SYMBOL;
        shape(layout, self.chunk).filter(|_| has_number)?;
        let (first, _) = layout.blocks_of_chunk(self.chunk);
        let within = self.chunk - layout.chunk_of(Block { index: 0, ..first });
        let within = u32::try_from(within).ok().filter(|within| *within < INDEX >> BITS)?;
        let index = INDEX | within << BITS | u32::from(self.number % SYMBOLS);
        Some(Block { segment: first.segment, index })
    }

    /// The symbol that `block` stands for; `None` for a real block, and for a symbol of a chunk
    /// that cannot be coded.
    pub fn of(layout: &Layout, block: Block) -> Option<Symbol> {
        if block.index < INDEX || layout.blocks_in(block.segment) > INDEX {
            return None;
        }
        let first = layout.chunk_of(Block { index: 0, ..block });
        let within = (block.index - INDEX) >> BITS;
        let number = (block.index % u32::from(SYMBOLS)) as u8;
        let symbol = Symbol { chunk: first + u64::from(within), number };
        (symbol.block(layout) == Some(block)).then_some(symbol)
    }

    /// The symbol with this number in a header.
    pub fn numbered(layout: &Layout, number: u64) -> Option<Symbol> {
        let rest = number.checked_sub(FIRST_SYMBOL)?;
        let symbol = Symbol { chunk: rest >> BITS, number: (rest % u64::from(SYMBOLS)) as u8 };
        symbol.block(layout).map(|_| symbol)
    }

    fn in_header(self) -> u64 {
        FIRST_SYMBOL | self.chunk << BITS | u64::from(self.number)
    }
}

/// The number of a block or symbol in a header.
pub fn header_number(layout: &Layout, block: Block) -> u64 {
    Symbol::of(layout, block).map_or_else(|| layout.number(block), Symbol::in_header)
}

/// The length of the payload of a block or symbol.
pub fn payload_len(layout: &Layout, block: Block) -> u32 {
    match Symbol::of(layout, block) {
        Some(_) => layout.block_size(),
        None => layout.extent(block).len,
    }
}

/// The code of a chunk: its blocks and [`SYMBOLS`] symbols. `None` if the chunk is beyond the
/// object, or if its blocks are too many, too long, or of an odd length.
pub fn shape(layout: &Layout, chunk: u64) -> Option<Shape> {
    let (_, blocks) = layout.blocks_of_chunk(chunk);
    let (blocks, symbol) = (u16::try_from(blocks).ok()?, u16::try_from(layout.block_size()).ok()?);
    Shape::new(Scheme::ReedSolomon, blocks, SYMBOLS.into(), symbol).ok()
}

/// Returns for each chunk the number of symbols to add to a round; `sent` has the number of blocks
/// that the round sends of each chunk. All chunks together get at most `budget` symbols. If the
/// budget is large enough, the probability that the round needs another round is at most one of
/// [`FAILURES`]; otherwise the chunks share the budget in proportion to their blocks. A first round
/// that very probably needs another round sends only symbols that probably replace a loss, and
/// keeps the others for that other round.
pub(crate) fn amounts(sent: &[u32], losses: Losses, budget: u64, is_first: bool) -> Vec<u8> {
    let sum = |all: &[u8]| all.iter().map(|count| u64::from(*count)).sum::<u64>();
    let enough = |failure: f64| {
        let each = failure / sent.len() as f64;
        // Reuse the last result: most chunks send the same number of blocks.
        let mut last = None;
        let mut of = |blocks: u32| match last {
            Some((same, symbols)) if same == blocks => symbols,
            _ => {
                let symbols = u16::try_from(blocks).ok().and_then(|k| repairs(k, losses, each));
                let symbols = symbols.and_then(|symbols| u8::try_from(symbols).ok());
                last = Some((blocks, symbols));
                symbols
            }
        };
        let all: Vec<u8> = sent.iter().map(|blocks| of(*blocks)).collect::<Option<_>>()?;
        (sum(&all) <= budget).then_some(all)
    };
    if let Some(all) = FAILURES.into_iter().find_map(enough) {
        return all;
    }
    let kept = used(sent, losses.ratio());
    let is_kept = is_first && sum(&kept) <= budget && enough(LIKELY).is_none();
    if is_kept { kept } else { shared(sent, budget) }
}

/// Divides `budget` symbols among chunks in proportion to the blocks that a round sends of each.
fn shared(sent: &[u32], budget: u64) -> Vec<u8> {
    let total: u64 = sent.iter().map(|blocks| u64::from(*blocks)).sum();
    let part = |blocks: &u32| budget * u64::from(*blocks) / total.max(1);
    sent.iter().map(|blocks| part(blocks).min(SYMBOLS.into()) as u8).collect()
}

/// Returns for each chunk the number of symbols that a round uses in most cases: the expected
/// losses, less one standard deviation, divided by the share of symbols that arrive.
fn used(sent: &[u32], loss: LossRatio) -> Vec<u8> {
    let loss = loss.get();
    let of = |blocks: &u32| {
        let lost = f64::from(*blocks) * loss;
        let least = (lost - libm::sqrt(lost)) / (1.0 - loss);
        least.clamp(0.0, SYMBOLS.into()) as u8
    };
    sent.iter().map(of).collect()
}

/// The arrived symbols of chunks that cannot be restored yet: more blocks are missing than symbols
/// have arrived.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting {
    /// For each chunk, a bit for each of its symbols.
    of: BTreeMap<u64, u128>,
}

impl Waiting {
    pub(crate) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Keeps a symbol. Drops it if symbols of [`MOST_CHUNKS`] other chunks wait already.
    pub(crate) fn keep(&mut self, symbol: Symbol) {
        if self.of.len() < MOST_CHUNKS || self.of.contains_key(&symbol.chunk) {
            *self.of.entry(symbol.chunk).or_default() |= 1 << symbol.number;
        }
    }

    pub(crate) fn chunks(&self, chunks: core::ops::Range<u64>) -> impl Iterator<Item = u64> + '_ {
        self.of.range(chunks).map(|(chunk, _)| *chunk)
    }

    pub(crate) fn count(&self, chunk: u64) -> u32 {
        self.of.get(&chunk).map_or(0, |symbols| symbols.count_ones())
    }

    pub(crate) fn drop_chunk(&mut self, chunk: u64) {
        self.of.remove(&chunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Bytes;

    /// Four chunks of 1,000 bytes and one of 250, in segments of two chunks and blocks of 100
    /// bytes.
    fn layout() -> Layout {
        layout_of(100)
    }

    fn layout_of(block: u32) -> Layout {
        let size = |bytes| Bytes::new(bytes);
        Layout::new(size(4_250), size(2_000), size(1_000), block).unwrap()
    }

    #[test]
    fn a_symbol_has_one_block_in_the_core_and_one_number_in_a_header() {
        let layout = layout();
        for chunk in 0..5 {
            for number in [0, 1, 127] {
                let symbol = Symbol { chunk, number };
                let block = symbol.block(&layout).unwrap();
                assert_eq!(block.segment, (chunk / 2) as u32);
                let index = 0x8000_0000 | (chunk % 2 * 128) as u32 | u32::from(number);
                assert_eq!(block.index, index);
                assert_eq!(Symbol::of(&layout, block), Some(symbol));
                let in_header = header_number(&layout, block);
                assert_eq!(in_header, (1 << 47) + chunk * 128 + u64::from(number));
                assert_eq!(Symbol::numbered(&layout, in_header), Some(symbol));
                assert_eq!(layout.block(in_header), None);
                assert_eq!(payload_len(&layout, block), 100);
            }
        }
        let last = Block { segment: 2, index: 2 };
        assert_eq!((header_number(&layout, last), payload_len(&layout, last)), (42, 50));
    }

    #[test]
    fn a_chunk_beyond_the_object_or_with_blocks_that_cannot_be_coded_has_no_symbols() {
        let layout = layout();
        assert_eq!(Symbol { chunk: 5, number: 0 }.block(&layout), None);
        assert_eq!(Symbol { chunk: u64::MAX, number: 0 }.block(&layout), None);
        for number in [0, 42, (1 << 47) - 1, (1 << 47) + 5 * 128, (1 << 48) - 1, u64::MAX] {
            assert_eq!(Symbol::numbered(&layout, number), None, "{number}");
        }
        // Segment 2 has no second chunk, segments 3 and 9 do not exist, and no symbol of segment 0
        // has the highest index.
        for (segment, index) in [(2, INDEX | 128), (3, INDEX), (0, u32::MAX), (9, u32::MAX)] {
            assert_eq!(Symbol::of(&layout, Block { segment, index }), None, "{segment} {index}");
        }
        let odd = layout_of(99);
        assert_eq!(shape(&odd, 0), None);
        assert_eq!(Symbol { chunk: 0, number: 0 }.block(&odd), None);
        let many = Layout::whole(Bytes::new(100_000_000), 1_440).unwrap();
        assert_eq!(shape(&many, 0), None);
        assert_eq!(shape(&layout, 4).unwrap().originals(), 3);
    }

    #[test]
    fn a_round_has_the_lowest_failure_probability_within_the_budget_or_shares_the_budget() {
        let losses = |loss| Losses::independent(LossRatio::new(loss).unwrap());
        let five = losses(0.05);
        // P(Bin(36 + m, 0.05) > m) is 0.129, 0.048, 0.016, 0.0045 for m = 3 to 6 symbols.
        assert_eq!(amounts(&[36], five, 99, false), [6]);
        assert_eq!(amounts(&[36, 36], five, 12, false), [6, 6]);
        assert_eq!(amounts(&[36, 36], five, 11, false), [4, 4]);
        assert_eq!(amounts(&[36, 36], five, 7, false), [3, 3]);
        assert_eq!(amounts(&[36, 36], five, 5, false), [2, 2]);
        assert_eq!(amounts(&[36, 12], five, 4, false), [3, 1]);
        assert_eq!(amounts(&[1], losses(0.009), 1, false), [0]);
        assert_eq!(amounts(&[1], losses(0.011), 1, false), [1]);
        assert_eq!(amounts(&[7], losses(0.0), 9, false), [0]);
        assert!(amounts(&[], five, 9, false).is_empty());
        // A chunk of too many blocks for the code gets at most [`SYMBOLS`] symbols.
        assert_eq!(amounts(&[70_000, 1], five, 999, false), [128, 0]);
    }

    #[test]
    fn a_first_round_that_probably_needs_another_sends_only_symbols_that_it_probably_uses() {
        let five = Losses::independent(LossRatio::new(0.05).unwrap());
        let first = |sent: &[u32], budget| amounts(sent, five, budget, true);
        // P(Bin(200 + m, 0.05) > m) is 0.366 for 11 symbols and 0.48 for 10. Each of the two chunks
        // may fail with a probability of [`LIKELY`] / 2 = 0.4, so 11 symbols are enough and 10 are
        // not.
        assert_eq!(first(&[200, 200], 22), [11, 11]);
        // Ten expected losses less √10 are 6.84. Only 95 % of the symbols arrive, so 7.2 symbols
        // replace these losses.
        assert_eq!(first(&[200, 200], 21), [7, 7]);
        assert_eq!(amounts(&[200, 200], five, 21, false), [10, 10]);
        assert_eq!(first(&[200, 200], 13), [6, 6]);
        assert_eq!(first(&[200, 100, 10], 15), [7, 2, 0]);
        assert_eq!(used(&[200_000], LossRatio::new(0.5).unwrap()), [128]);
    }

    #[test]
    fn a_repeated_symbol_counts_once_and_symbols_of_chunks_above_the_limit_are_dropped() {
        let mut waiting = Waiting::default();
        for number in [0, 5, 5, 127] {
            waiting.keep(Symbol { chunk: 3, number });
        }
        assert_eq!((waiting.count(3), waiting.count(4)), (3, 0));
        assert!(waiting.chunks(3..4).eq([3]) && waiting.chunks(4..9).next().is_none());
        waiting.drop_chunk(3);
        assert!(waiting.is_empty());
        for chunk in 0..5_000 {
            waiting.keep(Symbol { chunk, number: 1 });
        }
        waiting.keep(Symbol { chunk: 4_095, number: 2 });
        assert_eq!((waiting.count(4_095), waiting.count(4_096)), (2, 0));
    }

    #[test]
    fn a_chunk_beyond_the_first_2_to_the_24_of_a_segment_has_no_symbols() {
        let layout = |chunks: u64| {
            let size = Bytes::new(chunks * 4);
            Layout::new(size, size, Bytes::new(4), 2).unwrap()
        };
        let layout = layout((1 << 24) + 1);
        let block = |chunk| Symbol { chunk, number: 1 }.block(&layout);
        assert_eq!(block((1 << 24) - 1), Some(Block { segment: 0, index: u32::MAX - 126 }));
        assert_eq!(block(1 << 24), None);
    }

    #[test]
    fn an_object_of_at_most_2_to_the_47_blocks_has_symbols_for_its_first_2_to_the_40_chunks() {
        let layout = |blocks: u64| {
            let size = |blocks: u64| Bytes::new(blocks * 2);
            Layout::new(size(blocks), size(1 << 17), size(2), 2).unwrap()
        };
        let has = |layout: &Layout, chunk| Symbol { chunk, number: 0 }.block(layout).is_some();
        let most = layout(1 << 47);
        assert_eq!([(1 << 40) - 1, 1 << 40].map(|chunk| has(&most, chunk)), [true, false]);
        assert!(!has(&layout((1 << 47) + 1), 0));
    }
    #[test]
    fn a_segment_of_more_than_2_to_the_31_blocks_has_no_symbols() {
        let of = |blocks: u64, index| {
            let size = Bytes::new(blocks * 2);
            let layout = Layout::new(size, size, Bytes::new(4), 2).unwrap();
            Symbol::of(&layout, Block { segment: 0, index })
        };
        assert_eq!(of(1 << 31, INDEX | 5), Some(Symbol { chunk: 0, number: 5 }));
        assert_eq!(of((1 << 31) + 2, INDEX | 5), None);
    }
}
