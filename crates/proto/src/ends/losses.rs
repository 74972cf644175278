//! The loss list (the blocks that a sender has to send again), and the blocks that the sender has
//! resent recently.

use alloc::collections::VecDeque;
use core::ops::Range;

use crate::ranges::RangeSet;
use crate::time::{Span, Time};

/// Blocks to be sent again, as ranges in ascending order. The head is found in constant time,
/// however many ranges follow.
#[derive(Clone, Debug, Default)]
pub(crate) struct LossList {
    /// The first range; no range of `rest` is below it. Empty only if the list is empty.
    head: Range<u64>,
    rest: RangeSet,
}

impl LossList {
    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_empty()
    }

    pub(crate) fn head(&self) -> Range<u64> {
        self.head.clone()
    }

    /// Removes the blocks below `to` from the head: they were resent, or need not be resent.
    pub(crate) fn advance(&mut self, to: u64) {
        self.head.start = self.head.start.max(to);
        if self.head.is_empty() {
            self.head = self.rest.pop_first().unwrap_or_default();
        }
    }

    pub(crate) fn insert(&mut self, blocks: Range<u64>) {
        // A range that starts below the head, or that comes into an empty list, changes the head.
        // Of any other range, the part above the head goes to `rest`.
        if self.head.is_empty() || blocks.start < self.head.start {
            self.rest.insert(self.head.clone());
            self.rest.insert(blocks);
            self.head = self.rest.pop_first().unwrap_or_default();
        } else {
            self.rest.insert(blocks.start.max(self.head.end)..blocks.end);
        }
    }

    pub(crate) fn remove(&mut self, blocks: Range<u64>) {
        if blocks.start < self.head.end {
            self.rest.insert(self.head.clone());
            self.rest.remove(blocks);
            self.head = self.rest.pop_first().unwrap_or_default();
        } else {
            self.rest.remove(blocks);
        }
    }
}

/// Blocks that a sender resent less than a round trip ago: a report that arrives now cannot cover
/// them yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recent {
    runs: VecDeque<(Time, Range<u64>)>,
    blocks: RangeSet,
}

impl Recent {
    /// Records that `blocks` are sent again now; forgets blocks that were resent at least `rtt`
    /// ago.
    pub(crate) fn insert(&mut self, now: Time, blocks: Range<u64>, rtt: Span) {
        self.forget(now, rtt);
        self.blocks.insert(blocks.clone());
        self.runs.push_back((now, blocks));
    }

    /// Forgets blocks resent at least a round trip ago; returns the rest.
    pub(crate) fn forget(&mut self, now: Time, rtt: Span) -> &RangeSet {
        while let Some((at, blocks)) = self.runs.front()
            && now.since(*at) >= rtt
        {
            self.blocks.remove(blocks.clone());
            self.runs.pop_front();
        }
        &self.blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn pop(list: &mut LossList) -> Option<u64> {
        let head = list.head();
        list.advance(head.start + 1);
        head.into_iter().next()
    }

    proptest! {
        #[test]
        fn a_loss_list_answers_as_a_plain_set_does(
            steps in prop::collection::vec((0u8..6, 0u64..100, 0u64..20), 0..80),
        ) {
            let (mut list, mut model) = (LossList::default(), BTreeSet::new());
            for (kind, start, len) in steps {
                match kind {
                    0..3 => {
                        list.insert(start..start + len);
                        model.extend(start..start + len);
                    }
                    3 => {
                        list.remove(start..start + len);
                        model.retain(|n| !(start..start + len).contains(n));
                    }
                    _ => prop_assert_eq!(pop(&mut list), model.pop_first()),
                }
                prop_assert_eq!(list.is_empty(), model.is_empty());
                prop_assert_eq!(list.head().next(), model.first().copied());
            }
            let rest: Vec<u64> = core::iter::from_fn(|| pop(&mut list)).collect();
            prop_assert_eq!(rest, model.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_resent_block_is_recent_for_a_round_trip() {
        let at = |ms| Time::ZERO + Span::from_millis(ms);
        let rtt = Span::from_millis(100);
        let mut recent = Recent::default();
        recent.insert(at(0), 5..10, rtt);
        recent.insert(at(50), 20..30, rtt);
        assert_eq!(recent.forget(at(99), rtt).count(), 15);
        assert_eq!(recent.forget(at(100), rtt).count(), 10);
        recent.insert(at(150), 0..1, rtt);
        assert_eq!(recent.forget(at(150), rtt).count(), 1);
    }
}
