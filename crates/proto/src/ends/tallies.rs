//! Which blocks of a flow's object have arrived: a tally (one bit for each block) for each
//! incomplete segment.

use alloc::collections::BTreeMap;
use core::ops::Range;

use crate::endpoint::{Arrival, BlockRange};
use crate::layout::{Block, Layout};
use crate::ranges::RangeSet;
use crate::tally::Tally;

/// Arrived blocks. A complete segment keeps no tally.
#[derive(Clone, Debug)]
pub(crate) struct Tallies {
    layout: Layout,
    /// Segments that have begun and are incomplete.
    open: BTreeMap<u32, Tally>,
    whole: RangeSet,
    /// Blocks from other sources, numbered within the object. A segment's tally starts with them.
    skipped: RangeSet,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marked {
    /// Blocks that arrived for the first time.
    pub new: u64,
    /// Whether the arrivals completed the segment.
    pub is_last: bool,
}

impl Tallies {
    pub(crate) fn new(layout: Layout) -> Tallies {
        let (whole, skipped) = (RangeSet::new(), RangeSet::new());
        Tallies { layout, open: BTreeMap::new(), whole, skipped }
    }

    /// Marks arrivals of one segment. Blocks beyond the segment's end are ignored.
    pub(crate) fn mark(&mut self, segment: u32, run: &[Arrival]) -> Marked {
        let blocks = self.layout.blocks_in(segment);
        let mut known = run.iter().filter(|arrival| arrival.block.index < blocks).peekable();
        if known.peek().is_none() || self.is_whole(segment) {
            return Marked::default();
        }
        let tally = self.begin(segment);
        let new = known.map(|arrival| u64::from(tally.mark(arrival.block.index))).sum();
        let is_last = tally.is_whole();
        if is_last {
            self.set_whole(segment);
        }
        Marked { new, is_last }
    }

    /// Marks the range `blocks` of a segment; returns whether they completed the segment.
    pub(crate) fn fill(&mut self, segment: u32, blocks: Range<u32>) -> bool {
        if self.is_whole(segment) {
            return false;
        }
        let tally = self.begin(segment);
        tally.mark_range(blocks);
        let is_last = tally.is_whole();
        if is_last {
            self.set_whole(segment);
        }
        is_last
    }

    /// Marks blocks from another source; returns whether they completed their segment.
    pub(crate) fn skip(&mut self, blocks: BlockRange) -> bool {
        let segment = blocks.first.segment;
        let indices = blocks.indices(&self.layout);
        if indices.is_empty() || self.is_whole(segment) {
            return false;
        }
        self.skipped.insert(blocks.numbers(&self.layout));
        let is_whole = match self.open.get_mut(&segment) {
            Some(tally) => {
                tally.mark_range(indices);
                tally.is_whole()
            }
            None => {
                let base = self.base(segment);
                self.skipped.covers(base..base + u64::from(self.layout.blocks_in(segment)))
            }
        };
        if is_whole {
            self.set_whole(segment);
        }
        is_whole
    }

    /// Number of missing blocks within a segment's `blocks`.
    pub(crate) fn missing_in(&self, segment: u32, blocks: Range<u32>) -> u32 {
        if self.is_whole(segment) {
            return 0;
        }
        if let Some(tally) = self.open.get(&segment) {
            return tally.missing_in(blocks);
        }
        let base = self.base(segment);
        let end = blocks.end.min(self.layout.blocks_in(segment)).max(blocks.start);
        let there = self.skipped.within(base + u64::from(blocks.start)..base + u64::from(end));
        let there: u64 = there.map(|run| run.end - run.start).sum();
        end - blocks.start - there as u32
    }

    /// The tally of an incomplete segment, created if necessary; `None` for a complete segment or a
    /// segment beyond the object.
    pub(crate) fn open(&mut self, segment: u32) -> Option<&Tally> {
        let is_open = segment < self.layout.segments() && !self.is_whole(segment);
        if is_open { Some(self.begin(segment)) } else { None }
    }

    /// The tally of a segment that has begun and is incomplete.
    pub(crate) fn tally(&self, segment: u32) -> Option<&Tally> {
        self.open.get(&segment)
    }

    pub(crate) fn is_whole(&self, segment: u32) -> bool {
        self.whole.contains(u64::from(segment))
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.whole.count() == u64::from(self.layout.segments())
    }

    fn base(&self, segment: u32) -> u64 {
        self.layout.number(Block { segment, index: 0 })
    }

    fn set_whole(&mut self, segment: u32) {
        self.open.remove(&segment);
        self.whole.insert(u64::from(segment)..u64::from(segment) + 1);
    }

    /// The tally of an incomplete segment. A new tally starts with the blocks from other sources.
    fn begin(&mut self, segment: u32) -> &mut Tally {
        let blocks = self.layout.blocks_in(segment);
        let base = self.base(segment);
        let skipped = &self.skipped;
        self.open.entry(segment).or_insert_with(|| {
            let mut tally = Tally::new(blocks);
            for run in skipped.within(base..base + u64::from(blocks)) {
                tally.mark_range((run.start - base) as u32..(run.end - base) as u32);
            }
            tally
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::PacketNumber;
    use crate::time::Time;
    use crate::units::Bytes;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn tallies_agree_with_a_plain_set_of_blocks(
            steps in prop::collection::vec((any::<bool>(), 0u32..5, 0u32..20, 1u32..9), 0..60),
        ) {
            // Three segments of 16 blocks and one of 4.
            let layout = Layout::new(
                Bytes::new(52_000), Bytes::new(16_000), Bytes::new(8_000), 1000,
            ).unwrap();
            let (mut tallies, mut model) = (Tallies::new(layout), BTreeSet::new());
            for (skip, segment, index, count) in steps {
                let known = index..(index + count).min(layout.blocks_in(segment)).max(index);
                let named = known.clone().map(|index| (segment, index));
                let news: BTreeSet<(u32, u32)> = named.filter(|b| !model.contains(b)).collect();
                model.extend(news.iter().copied());
                let there = model.iter().filter(|(of, _)| *of == segment).count() as u32;
                let is_last = !news.is_empty() && there == layout.blocks_in(segment);
                let first = Block { segment, index };
                if skip {
                    prop_assert_eq!(tallies.skip(BlockRange { first, count }), is_last);
                } else {
                    let arrival = |index| Arrival {
                        number: PacketNumber(0), block: Block { segment, index }, at: Time::ZERO,
                    };
                    let run: Vec<Arrival> = (index..index + count).map(arrival).collect();
                    let marked = Marked { new: news.len() as u64, is_last };
                    prop_assert_eq!(tallies.mark(segment, &run), marked);
                }
                let window = known.start.min(3)..known.end;
                let lacks = |index: &u32| {
                    *index < layout.blocks_in(segment) && !model.contains(&(segment, *index))
                };
                let missing = window.clone().filter(lacks).count() as u32;
                prop_assert_eq!(tallies.missing_in(segment, window), missing);
                if let Some(tally) = tallies.tally(segment) {
                    prop_assert_eq!(tally.marked(), there);
                }
            }
            prop_assert_eq!(tallies.is_complete(), model.len() == 52);
        }
    }

    #[test]
    fn only_an_incomplete_segment_of_the_object_has_a_tally() {
        let layout = Layout::new(Bytes::new(3), Bytes::new(2), Bytes::new(1), 1).unwrap();
        let mut tallies = Tallies::new(layout);
        let blocks = |tallies: &mut Tallies| {
            [0, 1, 2].map(|segment| tallies.open(segment).map(|tally| tally.blocks()))
        };
        assert_eq!(blocks(&mut tallies), [Some(2), Some(1), None]);
        let first = Block { segment: 0, index: 0 };
        assert!(tallies.skip(BlockRange { first, count: 2 }));
        assert_eq!(blocks(&mut tallies), [None, Some(1), None]);
    }
}
