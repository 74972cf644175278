//! The sender's loss list.

use alloc::collections::VecDeque;
use core::ops::Range;

use crate::ranges::RangeSet;
use crate::time::{Span, Time};

/// Blocks to be sent again, as ranges in ascending order; its head is found in constant time
/// however many ranges follow.
#[derive(Clone, Debug, Default)]
pub(super) struct LossList {
    /// The first range; none of `rest` is below it. Empty only if all is.
    head: Range<u64>,
    rest: RangeSet,
}

impl LossList {
    pub(super) fn is_empty(&self) -> bool {
        self.head.is_empty()
    }

    /// The first range.
    pub(super) fn head(&self) -> Range<u64> {
        self.head.clone()
    }

    /// The blocks below `to` at the head have been sent, or need not be.
    pub(super) fn advance(&mut self, to: u64) {
        self.head.start = self.head.start.max(to);
        if self.head.is_empty() {
            self.head = self.rest.pop_first().unwrap_or_default();
        }
    }

    pub(super) fn insert(&mut self, blocks: Range<u64>) {
        // What starts above the head may touch it, but never comes before it.
        if self.head.is_empty() || blocks.start < self.head.start {
            self.rest.insert(self.head.clone());
            self.rest.insert(blocks);
            self.head = self.rest.pop_first().unwrap_or_default();
        } else {
            self.rest.insert(blocks.start.max(self.head.end)..blocks.end);
        }
    }

    pub(super) fn remove(&mut self, blocks: Range<u64>) {
        if blocks.start < self.head.end {
            self.rest.insert(self.head.clone());
            self.rest.remove(blocks);
            self.head = self.rest.pop_first().unwrap_or_default();
        } else {
            self.rest.remove(blocks);
        }
    }
}

/// Blocks that were sent again less than a round trip ago: a report about them was made before
/// they could arrive.
#[derive(Clone, Debug, Default)]
pub(super) struct Recent {
    runs: VecDeque<(Time, Range<u64>)>,
    blocks: RangeSet,
}

impl Recent {
    /// `blocks` are sent again now; what is older than `rtt` is forgotten.
    pub(super) fn insert(&mut self, now: Time, blocks: Range<u64>, rtt: Span) {
        self.forget(now, rtt);
        self.blocks.insert(blocks.clone());
        self.runs.push_back((now, blocks));
    }

    /// Forgets what was sent a round trip ago; gives the rest.
    pub(super) fn forget(&mut self, now: Time, rtt: Span) -> &RangeSet {
        while let Some((at, blocks)) = self.runs.front()
            && now.since(*at) >= rtt
        {
            self.blocks.remove(blocks.clone());
            self.runs.pop_front();
        }
        &self.blocks
    }
}
