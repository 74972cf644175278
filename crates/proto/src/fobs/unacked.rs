//! The blocks of a segment that are not known to have arrived, as a tree of 64-bit words. The
//! paper's sender keeps
//!
//! > one byte (or even one bit) allocated per data packet, where this data structure tracks the
//! > received/not received status of every packet
//!
//! The lowest level has one bit for each block. Each level above has one bit for each word of the
//! level below, set while that word is not zero; the highest level is one word. The next block is
//! found in at most two steps for each level (sixteen million blocks have four levels).

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use crate::tally::words;

#[derive(Clone, Debug)]
pub(super) struct Unacked {
    levels: Vec<Vec<u64>>,
    count: u32,
}

impl Unacked {
    pub(super) fn new(blocks: u32) -> Unacked {
        let (mut levels, mut bits) = (Vec::new(), blocks);
        loop {
            let mut level = vec![0; bits.div_ceil(64) as usize];
            words(0..bits).for_each(|(index, mask)| level[index] = mask);
            levels.push(level);
            bits = bits.div_ceil(64);
            if bits <= 1 {
                return Unacked { levels, count: blocks };
            }
        }
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Returns the first unacknowledged block in `range`.
    pub(super) fn next(&self, range: Range<u32>) -> Option<u32> {
        let (mut level, mut at) = (0, range.start as usize);
        loop {
            let word = *self.levels.get(level)?.get(at / 64)?;
            let rest = word & u64::MAX << (at % 64);
            if rest != 0 {
                at = at / 64 * 64 + rest.trailing_zeros() as usize;
                break;
            }
            (level, at) = (level + 1, at / 64 + 1);
        }
        for words in self.levels[..level].iter().rev() {
            at = at * 64 + words[at].trailing_zeros() as usize;
        }
        // `at` is now a block number, which has 32 bits.
        Some(at as u32).filter(|found| *found < range.end)
    }

    /// Returns the first run of unacknowledged blocks in `range`, cut to `max` blocks.
    pub(super) fn next_run(&self, range: Range<u32>, max: u32) -> Option<Range<u32>> {
        let start = self.next(range.clone())?;
        let most = range.end.min(start.saturating_add(max));
        let mut end = start;
        while end < most {
            let word = self.levels[0].get(end as usize / 64).copied().unwrap_or(0);
            let ones = (word >> (end % 64)).trailing_ones();
            end = end.saturating_add(ones);
            // A run that reaches the end of the word may continue in the next word.
            if ones == 0 || !end.is_multiple_of(64) {
                break;
            }
        }
        Some(start..end.min(most))
    }

    pub(super) fn clear(&mut self, range: Range<u32>) {
        let mut from = range.start;
        while let Some(found) = self.next(from..range.end) {
            let word = found / 64;
            let next = word.saturating_add(1).saturating_mul(64);
            for (index, mask) in words(found..range.end.min(next)) {
                self.count -= (self.levels[0][index] & mask).count_ones();
                self.clear_bits(0, index, mask);
            }
            from = next;
        }
    }

    /// Clears bits of a word. If the word is then empty, also clears its bit on the level above.
    fn clear_bits(&mut self, level: usize, index: usize, mask: u64) {
        let Some(word) = self.levels.get_mut(level).map(|words| &mut words[index]) else { return };
        *word &= !mask;
        if *word == 0 && level + 1 < self.levels.len() {
            self.clear_bits(level + 1, index / 64, 1 << (index % 64));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_tree_gives_the_same_answers_as_a_plain_set(
            blocks in 1u32..10_000,
            clears in prop::collection::vec((0u32..10_000, 0u32..3_000), 0..20),
            asks in prop::collection::vec((0u32..10_100, 0u32..10_100, 1u32..200), 1..30),
        ) {
            let mut unacked = Unacked::new(blocks);
            let mut model: BTreeSet<u32> = (0..blocks).collect();
            for (start, len) in clears {
                unacked.clear(start..start + len);
                model.retain(|block| !(start..start + len).contains(block));
                prop_assert_eq!(unacked.count() as usize, model.len());
            }
            for (start, end, max) in asks {
                let found = model.range(start..end.max(start)).next().copied();
                prop_assert_eq!(unacked.next(start..end), found);
                let run = found.map(|found| {
                    let most = end.min(found + max);
                    found..(found..most).find(|block| !model.contains(block)).unwrap_or(most)
                });
                prop_assert_eq!(unacked.next_run(start..end, max), run);
            }
        }
    }

    #[test]
    fn a_run_may_end_with_the_last_bit_of_the_last_word() {
        assert_eq!(Unacked::new(64).next_run(60..65, 44), Some(60..64));
    }

    #[test]
    fn the_only_block_left_of_sixteen_million_is_found_through_four_levels() {
        let mut unacked = Unacked::new(1 << 24);
        unacked.clear(0..12_345_678);
        unacked.clear(12_345_679..1 << 24);
        assert_eq!((unacked.count(), unacked.levels.len()), (1, 4));
        for _ in 0..100_000 {
            assert_eq!(unacked.next(0..u32::MAX), Some(12_345_678));
        }
        unacked.clear(0..u32::MAX);
        assert_eq!((unacked.count(), unacked.next(0..u32::MAX)), (0, None));
    }
}
