//! Which block goes again: the circular buffer.
//!
//! > treat the data as a circular buffer. That is, the algorithm never went back to re-transmit a
//! > packet that was not yet acknowledged, if there were any packets that had not yet been sent
//! > for the first time. Similarly, a given packet was re-transmitted for the n+1st time only if
//! > all other unacknowledged packets had been re-transmitted n times.
//!
//! What was sent is kept in stretches: runs of blocks that all have gone equally often, in the
//! order in which they are to go again. So the next block is found without a search, whatever the
//! grant and the receiver's skips have done to the order of first sends.

use alloc::collections::BTreeMap;
use core::ops::Range;

use super::unacked::Unacked;
use crate::ends::Run;
use crate::layout::{Block, Layout};
use crate::ranges::RangeSet;
use crate::time::{Span, Time};

/// The most blocks of a stretch: of what is in flight so many are judged together.
pub(super) const STRETCH: u32 = 256;

/// When a stretch has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gone {
    /// The number of its last datagram.
    last: u64,
    at: Time,
}

/// Blocks that lie side by side, of one segment, and have gone equally often.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    len: u32,
    /// Those before it have gone once more than the others.
    cursor: u32,
    gone: Gone,
    /// The going that is under way.
    going: Gone,
}

/// What is known of datagrams under way: which of them would have been acknowledged by now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// Datagrams with lower numbers had come, or were lost, when the receiver last told.
    pub(super) highest: u64,
    /// An acknowledgement that takes longer is lost.
    pub(super) patience: Span,
    /// Only datagrams up to this number are lost for want of an acknowledgement.
    pub(super) by_time_to: u64,
}

/// What has been sent and is not known to have arrived.
#[derive(Clone, Debug)]
pub(super) struct Circle {
    layout: Layout,
    /// Segments begun and not known to be whole.
    open: BTreeMap<u32, Unacked>,
    /// By how often they have gone, then by their first block, counted through the object.
    stretches: BTreeMap<(u32, u64), Stretch>,
    /// The stretch that first blocks are still added to.
    newest: Option<(u64, Stretch)>,
}

impl Circle {
    pub(super) fn new(layout: Layout) -> Circle {
        Circle { layout, open: BTreeMap::new(), stretches: BTreeMap::new(), newest: None }
    }

    /// A run of blocks goes for the first time, the last under number `last`; `there` holds what
    /// the receiver has from elsewhere.
    pub(super) fn send_first(&mut self, now: Time, run: &Run, last: u64, there: &RangeSet) {
        let Run { segment, ref blocks } = *run;
        let base = self.base(segment);
        let count = self.layout.blocks_in(segment);
        self.open.entry(segment).or_insert_with(|| {
            let mut unacked = Unacked::new(count);
            for run in there.within(base..base + u64::from(count)) {
                unacked.clear((run.start - base) as u32..(run.end - base) as u32);
            }
            unacked
        });
        let (first, len) = (base + u64::from(blocks.start), blocks.end - blocks.start);
        let gone = Gone { last, at: now };
        match &mut self.newest {
            Some((start, stretch))
                if *start + u64::from(stretch.len) == first
                    && *start >= base
                    && stretch.len < STRETCH =>
            {
                stretch.len += len;
                stretch.gone = gone;
            }
            _ => {
                self.close();
                self.newest = Some((first, Stretch { len, cursor: 0, gone, going: gone }));
            }
        }
    }

    /// What goes again now, at most `max` blocks, the first under number `number`; and how often
    /// it has gone with this time. With `known` only what is known to be lost does.
    pub(super) fn send_again(
        &mut self,
        now: Time,
        number: u64,
        max: u32,
        known: Option<Known>,
    ) -> Option<(Run, u32)> {
        self.close();
        let due = |stretch: &Stretch| {
            known.is_none_or(|known| {
                let Gone { last, at } = stretch.gone;
                last < known.highest || (last <= known.by_time_to && at + known.patience <= now)
            })
        };
        loop {
            let found = self.stretches.iter().find(|(_, stretch)| due(stretch));
            let (key, stretch) = found.map(|(key, stretch)| (*key, *stretch))?;
            let Some(run) = self.next_run(key.1, stretch.cursor..stretch.len, max) else {
                self.turn(key);
                continue;
            };
            let first = self.index(key.1);
            if let Some(stretch) = self.stretches.get_mut(&key) {
                stretch.cursor = run.blocks.end - first;
                stretch.going = Gone { last: number + run.blocks.len() as u64 - 1, at: now };
            }
            return Some((run, key.0 + 1));
        }
    }

    /// When, at the latest, something of what was sent counts as lost.
    pub(super) fn next_loss(&self, patience: Span) -> Option<Time> {
        let newest = self.newest.iter().map(|(_, stretch)| stretch);
        self.stretches.values().chain(newest).map(|stretch| stretch.gone.at + patience).min()
    }

    /// Of `slice` of a segment all but `missing` has come; tells whether that is the whole segment.
    pub(super) fn acknowledge(
        &mut self,
        segment: u32,
        slice: Range<u32>,
        missing: &[Range<u32>],
    ) -> bool {
        let Some(unacked) = self.open.get_mut(&segment) else { return false };
        let mut at = slice.start;
        for run in missing {
            unacked.clear(at..run.start);
            at = run.end;
        }
        unacked.clear(at..slice.end);
        unacked.count() == 0
    }

    /// Every block of a segment has come.
    pub(super) fn forget(&mut self, segment: u32) {
        if self.open.remove(&segment).is_none() {
            return;
        }
        let base = self.base(segment);
        let end = base + u64::from(self.layout.blocks_in(segment));
        self.newest.take_if(|(first, _)| (base..end).contains(first));
        // There are few counts at a time: all that goes again has gone about equally often.
        let mut times = 0;
        while let Some((&(of, first), _)) = self.stretches.range((times, base)..).next() {
            if of > times {
                times = of;
            } else if first < end {
                self.stretches.remove(&(of, first));
            } else {
                times += 1;
            }
        }
    }

    /// Segments and stretches that are kept.
    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.open.len() + self.stretches.len() + usize::from(self.newest.is_some())
    }

    /// The newest stretch is to go again like any other.
    fn close(&mut self) {
        if let Some((first, stretch)) = self.newest.take() {
            self.stretches.insert((1, first), stretch);
        }
    }

    /// All of a stretch has gone once more: it comes behind those that have not.
    fn turn(&mut self, key: (u32, u64)) {
        let Some(stretch) = self.stretches.remove(&key) else { return };
        if self.next_run(key.1, 0..stretch.len, 1).is_some() {
            let gone = stretch.going;
            self.stretches.insert((key.0 + 1, key.1), Stretch { cursor: 0, gone, ..stretch });
        }
    }

    fn base(&self, segment: u32) -> u64 {
        self.layout.number(Block { segment, index: 0 })
    }

    fn index(&self, number: u64) -> u32 {
        self.layout.block(number).map_or(0, |block| block.index)
    }

    /// The first run of a stretch's part that is not known to have arrived.
    fn next_run(&self, first: u64, part: Range<u32>, max: u32) -> Option<Run> {
        let Block { segment, index } = self.layout.block(first)?;
        let part = index + part.start..index + part.end;
        let blocks = self.open.get(&segment)?.next_run(part, max)?;
        Some(Run { segment, blocks })
    }
}
