//! The blocks that have arrived at a receiver, and the gaps between them. Blocks are numbered from
//! the start of the object.

use core::ops::Range;

use super::{CompleteSegments, ReceivingEnd};
use crate::endpoint::{Arrival, BlockRange, Event, Setup};
use crate::ranges::RangeSet;
use crate::time::Time;
use crate::wire::Loss;

#[derive(Clone, Debug)]
pub(crate) struct Arrived {
    there: RangeSet,
    complete_segments: CompleteSegments,
    highest: u64,
}

impl Arrived {
    pub(crate) fn new(setup: &Setup) -> Arrived {
        Arrived {
            there: RangeSet::new(),
            complete_segments: CompleteSegments::new(setup.layout),
            highest: 0,
        }
    }

    /// Handles and counts a batch; calls `gap` for each new gap below an arrived block. Returns the
    /// number of new blocks.
    pub(crate) fn on_datagrams(
        &mut self,
        end: &mut ReceivingEnd,
        now: Time,
        arrivals: &[Arrival],
        mut gap: impl FnMut(Range<u64>),
    ) -> u64 {
        let received = end.on_arrivals(now, arrivals);
        let (mut new, mut run) = (0, 0..0);
        for &Arrival { block, .. } in arrivals {
            if block.index >= end.layout.blocks_in(block.segment) {
                continue;
            }
            let number = end.layout.number(block);
            if number != run.end || run.is_empty() {
                new += self.arrive(end, run, &mut gap);
                run = number..number;
            }
            run.end += 1;
        }
        new += self.arrive(end, run, &mut gap);
        end.count(received, new);
        new
    }

    fn arrive(
        &mut self,
        end: &mut ReceivingEnd,
        run: Range<u64>,
        gap: &mut impl FnMut(Range<u64>),
    ) -> u64 {
        if run.is_empty() {
            return 0;
        }
        self.there.gaps(self.highest..run.start).for_each(gap);
        self.highest = self.highest.max(run.end);
        self.insert(end, run)
    }

    /// As [`Receiver::skip`](crate::endpoint::Receiver::skip). Calls `lost` with each run of
    /// missing blocks within `blocks` that is below the highest arrived block. The result of
    /// `lost`, the number of blocks of the run that were counted as lost, is subtracted from the
    /// losses. This function returns the number of new blocks.
    pub(crate) fn skip(
        &mut self,
        end: &mut ReceivingEnd,
        blocks: BlockRange,
        lost: impl FnMut(Range<u64>) -> u64,
    ) -> u64 {
        let blocks = blocks.numbers(&end.layout);
        let gaps = self.there.gaps(blocks.start..blocks.end.min(self.highest));
        end.forget_lost(gaps.map(lost).sum());
        self.insert(end, blocks)
    }

    fn insert(&mut self, end: &mut ReceivingEnd, blocks: Range<u64>) -> u64 {
        let new = self.there.insert(blocks.clone());
        if new > 0 {
            self.complete_segments.note(&self.there, blocks, |segment| {
                end.push_event(Event::SegmentDone { segment });
            });
            if self.there.count() == end.layout.blocks() {
                end.finish();
            }
        }
        new
    }

    pub(crate) fn there(&self) -> &RangeSet {
        &self.there
    }

    /// Number of the highest arrived block, plus one.
    pub(crate) fn highest(&self) -> u64 {
        self.highest
    }

    /// Takes from the front of `blocks` as many missing blocks as one message can name; `None` if
    /// none of `blocks` is missing.
    pub(crate) fn take_missing(&self, blocks: &mut RangeSet, sequence: u64) -> Option<Loss> {
        let mut lost = blocks.iter().flat_map(|run| self.there.gaps(run)).peekable();
        let loss = Loss::fill(sequence, &mut lost);
        let rest = lost.peek().map_or(u64::MAX, |run| run.start);
        drop(lost);
        blocks.remove(0..rest);
        (!loss.lost().is_empty()).then_some(loss)
    }

    /// Number of the first missing block; the object's block count if none is missing.
    pub(crate) fn next(&self) -> u64 {
        self.there.run_at(0).map_or(0, |run| run.end)
    }
}
