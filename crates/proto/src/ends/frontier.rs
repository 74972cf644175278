//! First sends: the blocks that were never sent, in order, within the receiver's grant (the bytes
//! that may be sent for the first time).

use core::ops::Range;

use crate::endpoint::{BlockRange, Setup};
use crate::layout::{Block, Layout};
use crate::ranges::RangeSet;
use crate::units::Bytes;

/// A run of blocks of one segment, to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The segment.
    pub segment: u32,
    /// The indices of the blocks within the segment.
    pub blocks: Range<u32>,
}

/// Tracks the first sends of a flow. All blocks below [`Frontier::passed`] have been sent or need
/// not be sent. Blocks are numbered from the start of the object, as by [`Layout::number`].
#[derive(Clone, Debug)]
pub struct Frontier {
    layout: Layout,
    next: u64,
    there: RangeSet,
    /// Bytes of blocks sent for the first time, without blocks that the receiver then got from
    /// another source.
    first_sent: Bytes,
    /// The limit of `first_sent`.
    grant: Bytes,
    unacknowledged: u64,
}

impl Frontier {
    /// The frontier at the start of a flow.
    pub fn new(setup: &Setup) -> Frontier {
        Frontier {
            layout: setup.layout,
            next: 0,
            there: RangeSet::new(),
            first_sent: Bytes::ZERO,
            grant: setup.grant,
            unacknowledged: 0,
        }
    }

    /// The first unsent block that the receiver lacks, as far as known; `None` if no such block
    /// exists.
    pub fn peek(&self) -> Option<u64> {
        self.there.first_gap(self.next..self.layout.blocks()).map(|gap| gap.start)
    }

    /// Length of a segment's initial run of blocks that were sent or need not be sent.
    pub fn sent_to(&self, segment: u32) -> u32 {
        let blocks = self.layout.blocks_in(segment);
        let base = self.layout.number(Block { segment, index: 0 });
        let next = self.peek().unwrap_or(u64::MAX);
        next.saturating_sub(base).min(u64::from(blocks)) as u32
    }

    /// Blocks that the receiver is known to have.
    pub fn there(&self) -> &RangeSet {
        &self.there
    }

    /// All blocks below this number have been sent or are known to have arrived. No block from this
    /// number on has been sent.
    pub fn passed(&self) -> u64 {
        self.next
    }

    /// Number of blocks that were sent and are not known to have arrived.
    pub(crate) fn unacknowledged(&self) -> u64 {
        self.unacknowledged
    }

    /// Whether the receiver is known to have every block.
    pub fn is_complete(&self) -> bool {
        self.there.count() == self.layout.blocks()
    }

    pub(crate) fn is_out_of_grant(&self) -> bool {
        self.peek().is_some_and(|next| self.first_sent + self.len(next) > self.grant)
    }

    /// Whether a first send is possible now.
    pub fn is_open(&self) -> bool {
        self.peek().is_some() && !self.is_out_of_grant()
    }

    /// Raises the grant of first sends; a grant never shrinks.
    pub(crate) fn raise_grant(&mut self, grant: Bytes) {
        self.grant = self.grant.max(grant);
    }

    /// Takes the next blocks for a first send: at most `max`, of one segment, without a gap, within
    /// the grant.
    pub fn take(&mut self, max: u32) -> Option<Run> {
        let gap = self.there.first_gap(self.next..self.layout.blocks())?;
        let first = self.layout.block(gap.start)?;
        let rest = u64::from(self.layout.blocks_in(first.segment) - first.index);
        let most = rest.min(gap.end - gap.start).min(u64::from(max));
        let all = gap.start..gap.start + most;
        let (mut end, mut bytes) = (all.end, self.first_sent + Bytes::new(self.bytes_of(&all)));
        if bytes > self.grant {
            (end, bytes) = (all.start, self.first_sent);
            while end < all.end && bytes + self.len(end) <= self.grant {
                bytes += self.len(end);
                end += 1;
            }
        }
        let count = (end - gap.start) as u32;
        if count == 0 {
            return None;
        }
        (self.next, self.first_sent) = (end, bytes);
        self.unacknowledged += u64::from(count);
        Some(Run { segment: first.segment, blocks: first.index..first.index + count })
    }

    /// Marks all blocks before `end` as sent, regardless of the grant. For a sender whose receiver
    /// chooses the blocks.
    pub fn pass(&mut self, end: u64) {
        let end = end.min(self.layout.blocks());
        let (mut at, mut bytes) = (self.next, 0);
        while let Some(gap) = self.there.first_gap(at..end) {
            at = gap.end;
            self.unacknowledged += gap.end - gap.start;
            bytes += self.bytes_of(&gap);
        }
        self.first_sent += Bytes::new(bytes);
        self.next = self.next.max(end);
    }

    /// Records blocks that have arrived at the receiver; returns how many were new.
    pub(crate) fn set_there(&mut self, blocks: Range<u64>) -> u64 {
        let end = blocks.end.min(self.layout.blocks());
        let sent = self.there.insert(blocks.start..end.min(self.next));
        self.unacknowledged -= sent;
        sent + self.there.insert(blocks.start.max(self.next)..end)
    }

    /// Records blocks that the receiver has from another source. If such a block was sent, and is
    /// not known to have arrived, it no longer counts against the grant: the receiver does not
    /// store it again. Returns the part of the range within the object, if any.
    pub fn skip(&mut self, blocks: BlockRange) -> Option<Range<u64>> {
        let range = blocks.numbers(&self.layout);
        if range.is_empty() {
            return None;
        }
        let (mut at, mut bytes) = (range.start, 0);
        while let Some(gap) = self.there.first_gap(at..range.end.min(self.next)) {
            at = gap.end;
            self.unacknowledged -= gap.end - gap.start;
            bytes += self.bytes_of(&gap);
        }
        self.first_sent = self.first_sent.saturating_sub(Bytes::new(bytes));
        self.there.insert(range.clone());
        Some(range)
    }

    /// Bytes of a run of blocks; blocks of the object are contiguous.
    fn bytes_of(&self, run: &Range<u64>) -> u64 {
        let extent = |number| self.layout.block(number).map(|block| self.layout.extent(block));
        let (first, last) = (extent(run.start), extent(run.end.saturating_sub(1)));
        first.zip(last).map_or(0, |(first, last)| last.offset + u64::from(last.len) - first.offset)
    }

    fn len(&self, number: u64) -> Bytes {
        let len = self.layout.block(number).map_or(0, |block| self.layout.extent(block).len);
        Bytes::new(u64::from(len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::FlowId;
    use crate::time::Span;

    fn frontier(grant: u64) -> Frontier {
        let segment = Bytes::new(16_000);
        let layout = Layout::new(Bytes::new(40_000), segment, Bytes::new(8_000), 1000).unwrap();
        let grant = Bytes::new(grant);
        Frontier::new(&Setup { grant, ..Setup::new(FlowId(1), layout, Span::from_millis(10)) })
    }

    fn skipped(segment: u32, index: u32, count: u32) -> BlockRange {
        BlockRange { first: Block { segment, index }, count }
    }

    #[test]
    fn first_sends_are_in_order_and_each_run_is_within_one_segment_and_the_grant() {
        let mut frontier = frontier(20_500);
        assert_eq!(frontier.take(10), Some(Run { segment: 0, blocks: 0..10 }));
        assert_eq!(frontier.take(10), Some(Run { segment: 0, blocks: 10..16 }));
        assert_eq!((frontier.sent_to(0), frontier.sent_to(1)), (16, 0));
        assert_eq!(frontier.take(10), Some(Run { segment: 1, blocks: 0..4 }));
        assert!(frontier.is_out_of_grant() && !frontier.is_open());
        assert_eq!(frontier.take(10), None);
        frontier.raise_grant(Bytes::new(1));
        assert!(frontier.is_out_of_grant());
        frontier.raise_grant(Bytes::MAX);
        assert!(frontier.is_open());
        assert_eq!(frontier.take(100), Some(Run { segment: 1, blocks: 4..16 }));
        assert_eq!(frontier.take(100), Some(Run { segment: 2, blocks: 0..8 }));
        assert_eq!((frontier.take(1), frontier.peek()), (None, None));
        assert!(!frontier.is_out_of_grant() && !frontier.is_open() && !frontier.is_complete());
    }

    #[test]
    fn skipped_blocks_are_left_out_and_complete_the_object() {
        let mut frontier = frontier(u64::MAX);
        assert_eq!(frontier.set_there(0..3), 3);
        assert_eq!(frontier.skip(skipped(0, 5, 2)), Some(5..7));
        assert_eq!(frontier.take(9), Some(Run { segment: 0, blocks: 3..5 }));
        assert_eq!(frontier.take(9), Some(Run { segment: 0, blocks: 7..16 }));
        assert_eq!(frontier.skip(skipped(7, 0, 2)), None);
        assert_eq!(frontier.set_there(0..u64::MAX), 35);
        assert!(frontier.is_complete());
        assert_eq!(frontier.take(9), None);
    }

    #[test]
    fn blocks_sent_on_request_count_against_the_grant() {
        let mut frontier = frontier(20_000);
        frontier.set_there(3..5);
        frontier.pass(12);
        frontier.pass(10);
        assert_eq!((frontier.peek(), frontier.is_out_of_grant()), (Some(12), false));
        frontier.pass(23);
        assert_eq!((frontier.peek(), frontier.is_out_of_grant()), (Some(23), true));
        assert_eq!(frontier.unacknowledged(), 23 - 2);
        frontier.pass(u64::MAX);
        assert_eq!(frontier.peek(), None);
    }

    #[test]
    fn a_skip_of_sent_blocks_frees_their_grant_only_once() {
        let mut frontier = frontier(10_000);
        frontier.take(10);
        assert!(frontier.is_out_of_grant());
        frontier.set_there(0..2);
        assert_eq!(frontier.unacknowledged(), 8);
        frontier.skip(skipped(0, 0, 4));
        assert_eq!(frontier.unacknowledged(), 6);
        frontier.skip(skipped(0, 0, 4));
        assert_eq!(frontier.take(10), Some(Run { segment: 0, blocks: 10..12 }));
    }

    #[test]
    fn blocks_in_flight_were_sent_and_have_not_arrived() {
        let mut frontier = frontier(u64::MAX);
        frontier.skip(skipped(0, 2, 2));
        frontier.take(10);
        frontier.take(10);
        assert_eq!((frontier.passed(), frontier.unacknowledged()), (14, 12));
        // The receiver has block 14 before this sender sends it, so the block is never in flight.
        frontier.set_there(0..15);
        assert_eq!((frontier.passed(), frontier.unacknowledged()), (14, 0));
        frontier.take(10);
        frontier.skip(skipped(0, 0, 15));
        assert_eq!((frontier.passed(), frontier.unacknowledged()), (16, 1));
    }
}
