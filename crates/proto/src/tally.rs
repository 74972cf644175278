//! Records which blocks have arrived: one bit each, marked in constant time, read a word at a time.
//!
//! A billion blocks take 125 MB, so receivers keep a tally only for each incomplete segment. A set
//! bit is never cleared.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// Which of a number of blocks have arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    /// Bit `i % 64` of word `i / 64` is block `i`.
    words: Vec<u64>,
    blocks: u32,
    marked: u32,
}

impl Tally {
    /// A tally of `blocks` blocks, all missing.
    pub fn new(blocks: u32) -> Tally {
        Tally { words: vec![0; blocks.div_ceil(64) as usize], blocks, marked: 0 }
    }

    /// Marks a block as arrived; returns whether it is new. A block beyond the last is ignored.
    pub fn mark(&mut self, block: u32) -> bool {
        if block >= self.blocks {
            return false;
        }
        let word = &mut self.words[block as usize / 64];
        let bit = 1 << (block % 64);
        let new = *word & bit == 0;
        *word |= bit;
        self.marked += u32::from(new);
        new
    }

    /// Marks a run of blocks; returns how many were new. Blocks beyond the last are ignored.
    pub(crate) fn mark_range(&mut self, range: Range<u32>) -> u32 {
        let before = self.marked;
        for (index, mask) in words(range.start..range.end.min(self.blocks)) {
            let word = &mut self.words[index];
            self.marked += (mask & !*word).count_ones();
            *word |= mask;
        }
        self.marked - before
    }

    #[cfg(test)]
    fn is_marked(&self, block: u32) -> bool {
        block < self.blocks && self.words[block as usize / 64] & 1 << (block % 64) != 0
    }

    /// Number of blocks.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Number of arrived blocks.
    pub fn marked(&self) -> u32 {
        self.marked
    }

    /// Whether every block has arrived.
    pub fn is_whole(&self) -> bool {
        self.marked == self.blocks
    }

    pub(crate) fn missing_in(&self, range: Range<u32>) -> u32 {
        words(range.start..range.end.min(self.blocks))
            .map(|(index, mask)| (mask & !self.words[index]).count_ones())
            .sum()
    }

    /// The runs of missing blocks within `range`, in order.
    pub fn missing(&self, range: Range<u32>) -> Missing<'_> {
        Missing { tally: self, at: range.start, end: range.end.min(self.blocks) }
    }

    /// The first block in `from..end` whose bit equals `marked`; `end` if there is none.
    fn find(&self, from: u32, end: u32, marked: bool) -> u32 {
        for (index, mask) in words(from..end) {
            let word = if marked { self.words[index] } else { !self.words[index] };
            if word & mask != 0 {
                return index as u32 * 64 + (word & mask).trailing_zeros();
            }
        }
        end
    }
}

/// The runs of missing blocks, found a word at a time.
#[derive(Clone, Debug)]
pub struct Missing<'a> {
    tally: &'a Tally,
    at: u32,
    end: u32,
}

impl Iterator for Missing<'_> {
    type Item = Range<u32>;

    fn next(&mut self) -> Option<Range<u32>> {
        if self.at >= self.end {
            return None;
        }
        let start = self.tally.find(self.at, self.end, false);
        self.at = self.tally.find(start, self.end, true);
        (start < self.end).then_some(start..self.at)
    }
}

/// The words that `range` touches, each with the mask of its bits within the range.
pub(crate) fn words(range: Range<u32>) -> impl Iterator<Item = (usize, u64)> {
    let (start, end) = (range.start, range.end);
    let indices = if start < end { start / 64..(end - 1) / 64 + 1 } else { 0..0 };
    indices.map(move |index| {
        let first = index * 64;
        let low = u64::MAX << start.saturating_sub(first);
        let high = match end - first {
            bits @ 0..64 => !(u64::MAX << bits),
            _ => u64::MAX,
        };
        (index as usize, low & high)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Mark(u32),
        Range(u32, u32),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let mark = (0u32..420).prop_map(Step::Mark);
        let range = (0u32..420, 0u32..150).prop_map(|(start, len)| Step::Range(start, len));
        prop::collection::vec(prop_oneof![8 => mark, 1 => range], 0..60)
    }

    proptest! {
        #[test]
        fn a_tally_gives_the_same_answers_as_a_plain_set(
            blocks in 0u32..400, steps in steps(), from in 0u32..450, len in 0u32..300,
        ) {
            let (mut tally, mut model) = (Tally::new(blocks), BTreeSet::new());
            for step in steps {
                match step {
                    Step::Mark(block) => {
                        let new = block < blocks && model.insert(block);
                        prop_assert_eq!(tally.mark(block), new);
                    }
                    Step::Range(start, len) => {
                        let before = model.len();
                        model.extend(start..(start + len).min(blocks));
                        let new = (model.len() - before) as u32;
                        prop_assert_eq!(tally.mark_range(start..start + len), new);
                    }
                }
            }
            prop_assert_eq!(tally.marked() as usize, model.len());
            prop_assert_eq!(tally.is_whole(), model.len() == blocks as usize);
            prop_assert!((0..450).all(|block| tally.is_marked(block) == model.contains(&block)));
            let window = from..from + len;
            let missing: Vec<u32> = tally.missing(window.clone()).flatten().collect();
            let expected: Vec<u32> =
                window.clone().filter(|b| *b < blocks && !model.contains(b)).collect();
            prop_assert_eq!(tally.missing_in(window.clone()) as usize, expected.len());
            prop_assert_eq!(missing, expected);
            let runs: Vec<_> = tally.missing(window).collect();
            prop_assert!(runs.windows(2).all(|pair| pair[0].end < pair[1].start));
        }
    }

    #[test]
    fn a_billion_blocks_are_searched_a_word_at_a_time() {
        let mut tally = Tally::new(1_000_000_000);
        tally.mark_range(0..999_999_999);
        assert_eq!((tally.blocks(), tally.marked()), (1_000_000_000, 999_999_999));
        let mut missing = tally.missing(0..u32::MAX);
        assert_eq!(missing.next(), Some(999_999_999..1_000_000_000));
        assert_eq!(missing.next(), None);
        assert!(tally.mark(999_999_999) && tally.is_whole());
    }
}
