//! A set of chunk numbers or entry numbers below a limit.

use std::ops::Range;

#[derive(Clone, Debug, Default)]
pub(super) struct Bits {
    words: Vec<u64>,
    len: u64,
    count: u64,
}

impl Bits {
    pub(super) fn new(len: u64) -> Bits {
        Bits { words: vec![0; len.div_ceil(64) as usize], len, count: 0 }
    }

    pub(super) fn has(&self, at: u64) -> bool {
        at < self.len && self.words[(at / 64) as usize] >> (at % 64) & 1 == 1
    }

    /// Adds `at`; returns true if it was missing and is below the limit.
    pub(super) fn insert(&mut self, at: u64) -> bool {
        let before = self.count;
        self.insert_run(at..at.saturating_add(1));
        self.count > before
    }

    /// Removes `at`; returns true if it was present.
    pub(super) fn remove(&mut self, at: u64) -> bool {
        let before = self.count;
        self.remove_run(at..at.saturating_add(1));
        self.count < before
    }

    pub(super) fn insert_run(&mut self, run: Range<u64>) {
        self.change(run, |word, run| word | run);
    }

    pub(super) fn remove_run(&mut self, run: Range<u64>) {
        self.change(run, |word, run| word & !run);
    }

    fn change(&mut self, run: Range<u64>, change: impl Fn(u64, u64) -> u64) {
        let (mut at, end) = (run.start, run.end.min(self.len));
        while at < end {
            let stop = ((at / 64 + 1) * 64).min(end);
            let run = (u64::MAX >> (64 - (stop - at))) << (at % 64);
            let word = &mut self.words[(at / 64) as usize];
            let before = u64::from(word.count_ones());
            *word = change(*word, run);
            self.count = self.count + u64::from(word.count_ones()) - before;
            at = stop;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the runs of present numbers if `present`, otherwise of missing numbers; in order.
    pub(super) fn runs(&self, present: bool) -> Vec<Range<u64>> {
        let mut out: Vec<Range<u64>> = Vec::new();
        let blank = if present { 0 } else { u64::MAX };
        for (number, word) in self.words.iter().enumerate().filter(|(_, word)| **word != blank) {
            let wanted = if present { *word } else { !*word };
            let start = number as u64 * 64;
            let (mut at, end) = (start, (start + 64).min(self.len));
            while at < end {
                at += u64::from((wanted >> (at - start)).trailing_zeros());
                if at >= end {
                    break;
                }
                let len = u64::from((wanted >> (at - start)).trailing_ones());
                let stop = (at + len).min(end);
                match out.last_mut() {
                    Some(last) if last.end == at => last.end = stop,
                    _ => out.push(at..stop),
                }
                at = stop;
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_run_is_inserted_and_removed_like_its_single_numbers(
            len in 0u64..300,
            changes in prop::collection::vec((0u64..300, 0u64..300, any::<bool>()), 0..20),
        ) {
            let (mut runs, mut single) = (Bits::new(len), Bits::new(len));
            let mut set = BTreeSet::new();
            for (start, end, is_in) in changes {
                if is_in {
                    runs.insert_run(start..end);
                    for at in start..end {
                        assert_eq!(single.insert(at), at < len && set.insert(at));
                    }
                } else {
                    runs.remove_run(start..end);
                    (start..end).for_each(|at| assert_eq!(single.remove(at), set.remove(&at)));
                }
                prop_assert_eq!(&runs.words, &single.words);
                prop_assert_eq!((runs.count, single.count), (set.len() as u64, set.len() as u64));
                prop_assert_eq!(runs.is_empty(), set.is_empty());
            }
            for present in [true, false] {
                let numbers: Vec<u64> = runs.runs(present).into_iter().flatten().collect();
                let expected = (0..len).filter(|at| set.contains(at) == present);
                prop_assert_eq!(numbers, expected.collect::<Vec<u64>>());
            }
        }
    }

    #[test]
    fn runs_cover_the_present_or_the_missing_numbers() {
        let mut bits = Bits::new(130);
        for at in [0, 1, 63, 64, 65, 129, 130, 500] {
            bits.insert(at);
        }
        assert_eq!(bits.count(), 6);
        assert_eq!(bits.runs(true), [0..2, 63..66, 129..130]);
        assert_eq!(bits.runs(false), [2..63, 66..129]);
        assert!(bits.remove(64) && !bits.remove(64) && !bits.has(64));
    }
}
