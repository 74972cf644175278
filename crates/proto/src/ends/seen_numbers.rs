//! Numbered messages that may arrive twice, early or late: each is accepted at most once.

/// A message counts as a duplicate if its number is at least this far behind the highest.
const WINDOW: u64 = 128;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SeenNumbers {
    /// Highest number, plus one.
    next: u64,
    /// Bit `i` stands for the number `next - 1 - i`.
    recent: u128,
}

impl SeenNumbers {
    /// Records a message; returns whether it is the first with its number. A message far behind the
    /// newest counts as a duplicate, and so does the largest possible number.
    pub(crate) fn is_new(&mut self, number: u64) -> bool {
        let Some(next) = number.checked_add(1) else { return false };
        if next > self.next {
            let risen = next - self.next;
            self.recent = if risen < WINDOW { self.recent << risen | 1 } else { 1 };
            self.next = next;
            return true;
        }
        let behind = self.next - 1 - number;
        let bit = if behind < WINDOW { 1 << behind } else { 0 };
        let new = bit != 0 && self.recent & bit == 0;
        self.recent |= bit;
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_number_is_new_once_unless_it_is_far_behind(
            numbers in prop::collection::vec(0u64..600, 0..200),
        ) {
            let (mut seen, mut model) = (SeenNumbers::default(), BTreeSet::new());
            for number in numbers {
                let highest = model.last().copied().unwrap_or(0);
                let near = number + WINDOW > highest;
                prop_assert_eq!(seen.is_new(number), near && model.insert(number));
            }
        }
    }

    #[test]
    fn the_largest_number_is_never_new_and_the_number_below_it_is_new_once() {
        let mut seen = SeenNumbers::default();
        assert!(!seen.is_new(u64::MAX) && seen.is_new(0));
        assert!(seen.is_new(u64::MAX - 1) && !seen.is_new(u64::MAX - 1));
        assert!(!seen.is_new(u64::MAX) && seen.is_new(u64::MAX - 2));
    }
}
