//! Numbered messages that may come twice, early or late: each is taken once.

/// Messages so far behind the newest are taken for copies.
const WINDOW: u64 = 128;

/// The numbers that have come, as far as they matter.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Heard {
    /// One more than the highest number.
    next: u64,
    /// Bit `i` stands for the number `next - 1 - i`.
    recent: u128,
}

impl Heard {
    /// A message has come; tells whether it is the first with its number. One that is far behind
    /// the newest is not.
    pub(crate) fn is_new(&mut self, number: u64) -> bool {
        if number >= self.next {
            let risen = number.saturating_add(1) - self.next;
            self.recent = if risen < WINDOW { self.recent << risen | 1 } else { 1 };
            self.next = number.saturating_add(1);
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
            let (mut heard, mut model) = (Heard::default(), BTreeSet::new());
            for number in numbers {
                let highest = model.last().copied().unwrap_or(0);
                let near = number + WINDOW > highest;
                prop_assert_eq!(heard.is_new(number), near && model.insert(number));
            }
        }
    }

    #[test]
    fn the_largest_number_is_new_once() {
        let mut heard = Heard::default();
        assert!(heard.is_new(u64::MAX - 1) && !heard.is_new(u64::MAX - 1));
    }
}
