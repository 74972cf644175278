//! Complete segments (parts of the object), for the protocols that number blocks from the start of
//! the object.

use core::ops::Range;

use crate::layout::{Block, Layout};
use crate::ranges::RangeSet;

/// The segments known to be complete; each is reported once.
#[derive(Clone, Debug)]
pub(crate) struct CompleteSegments {
    layout: Layout,
    reported: RangeSet,
}

impl CompleteSegments {
    pub(crate) fn new(layout: Layout) -> CompleteSegments {
        CompleteSegments { layout, reported: RangeSet::new() }
    }

    pub(crate) fn contains(&self, segment: u32) -> bool {
        self.reported.contains(segment.into())
    }

    pub(crate) fn is_all(&self) -> bool {
        self.reported.count() == u64::from(self.layout.segments())
    }

    /// Checks the segments of `blocks`, which the caller has already added to `there` (all blocks
    /// so far). Calls `report` for each of these segments that is complete and was not reported
    /// before.
    pub(crate) fn note(
        &mut self,
        there: &RangeSet,
        blocks: Range<u64>,
        mut report: impl FnMut(u32),
    ) {
        let segment = |number| self.layout.block(number).map(|block| block.segment);
        let last = blocks.end.checked_sub(1).and_then(segment);
        let (Some(first), Some(last)) = (segment(blocks.start), last) else { return };
        for segment in first..=last {
            let base = self.layout.number(Block { segment, index: 0 });
            let all = base..base + u64::from(self.layout.blocks_in(segment));
            let number = u64::from(segment);
            if there.covers(all) && self.reported.insert(number..number + 1) > 0 {
                report(segment);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Bytes;
    use alloc::vec::Vec;

    #[test]
    fn a_segment_is_reported_when_its_last_block_arrives_and_not_again() {
        let (object, segment) = (Bytes::new(25_000), Bytes::new(10_000));
        let layout = Layout::new(object, segment, Bytes::new(1000), 1000).unwrap();
        let (mut complete_segments, mut there) = (CompleteSegments::new(layout), RangeSet::new());
        let mut note = |blocks: Range<u64>| {
            let mut reported = Vec::new();
            there.insert(blocks.clone());
            complete_segments.note(&there, blocks, |segment| reported.push(segment));
            reported
        };
        assert_eq!(note(0..9), []);
        assert_eq!(note(10..21), [1]);
        assert_eq!(note(9..10), [0]);
        assert_eq!(note(0..10), []);
        assert_eq!(note(0..25), [2]);
        assert_eq!(note(25..26), []);
        assert!(complete_segments.is_all());
    }

    #[test]
    fn only_reported_segments_count_as_complete() {
        let (object, segment) = (Bytes::new(25_000), Bytes::new(10_000));
        let layout = Layout::new(object, segment, Bytes::new(1000), 1000).unwrap();
        let (mut complete_segments, mut there) = (CompleteSegments::new(layout), RangeSet::new());
        there.insert(10..20);
        complete_segments.note(&there, 10..20, |_| {});
        assert_eq!(
            [0, 1, 2].map(|segment| complete_segments.contains(segment)),
            [false, true, false]
        );
        assert!(!complete_segments.is_all());
    }
}
