//! A set of chunk numbers.

use std::ops::Range;

#[derive(Clone, Debug, Default)]
pub(super) struct Bits {
    words: Vec<u64>,
    len: u64,
    count: u64,
}

impl Bits {
    /// None of the numbers below `len`.
    pub(super) fn new(len: u64) -> Bits {
        Bits { words: vec![0; len.div_ceil(64) as usize], len, count: 0 }
    }

    pub(super) fn has(&self, at: u64) -> bool {
        at < self.len && self.words[(at / 64) as usize] >> (at % 64) & 1 == 1
    }

    /// Takes `at` in; true if it was not there.
    pub(super) fn insert(&mut self, at: u64) -> bool {
        let new = at < self.len && !self.has(at);
        if new {
            self.words[(at / 64) as usize] |= 1 << (at % 64);
            self.count += 1;
        }
        new
    }

    /// Takes `at` out; true if it was there.
    pub(super) fn remove(&mut self, at: u64) -> bool {
        let there = self.has(at);
        if there {
            self.words[(at / 64) as usize] &= !(1 << (at % 64));
            self.count -= 1;
        }
        there
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many numbers are there.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The runs of numbers that are there (`present`) or not, in order.
    pub(super) fn runs(&self, present: bool) -> Vec<Range<u64>> {
        let mut out: Vec<Range<u64>> = Vec::new();
        let blank = if present { 0 } else { u64::MAX };
        for (number, word) in self.words.iter().enumerate().filter(|(_, word)| **word != blank) {
            let start = number as u64 * 64;
            for at in start..(start + 64).min(self.len) {
                if (word >> (at % 64) & 1 == 1) == present {
                    match out.last_mut() {
                        Some(last) if last.end == at => last.end += 1,
                        _ => out.push(at..at + 1),
                    }
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_what_was_taken_in_and_the_rest() {
        let mut bits = Bits::new(130);
        for at in [0, 1, 63, 64, 65, 129, 130, 500] {
            bits.insert(at);
        }
        assert_eq!(bits.runs(true), [0..2, 63..66, 129..130]);
        assert_eq!(bits.runs(false), [2..63, 66..129]);
        assert!(bits.remove(64) && !bits.remove(64) && !bits.has(64));
    }
}
