//! The circular buffer, which chooses the next block to resend. From the paper of FOBS:
//!
//! > treat the data as a circular buffer. That is, the algorithm never went back to re-transmit a
//! > packet that was not yet acknowledged, if there were any packets that had not yet been sent
//! > for the first time. Similarly, a given packet was re-transmitted for the n+1st time only if
//! > all other unacknowledged packets had been re-transmitted n times.
//!
//! Sent blocks are kept in stretches. A stretch is a run of blocks that were sent equally often.
//! Stretches are kept in the order in which they are to be resent, so the next block is found
//! without a search. Only a choice among known losses visits several stretches.

use alloc::collections::BTreeMap;
use core::ops::Range;

use super::unacked::Unacked;
use crate::ends::Run;
use crate::layout::{Block, Layout};
use crate::ranges::RangeSet;
use crate::time::{Span, Time};

/// A stretch with at least this many blocks gets no more. All unacknowledged blocks of a stretch
/// count as lost together.
pub(super) const STRETCH: u32 = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sent {
    /// The packet number of the stretch's last datagram.
    last: u64,
    at: Time,
}

/// Adjacent blocks of one segment that were sent equally often, except for the blocks before
/// `cursor`.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    len: u32,
    /// Blocks before this block were sent one time more than the later blocks.
    cursor: u32,
    sent: Sent,
    /// When the blocks before `cursor` were last sent.
    resent: Sent,
}

/// Decides which unacknowledged datagrams count as lost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// Datagrams with lower numbers had arrived or were lost at the time of the receiver's last
    /// report.
    pub(super) highest: u64,
    /// A datagram that stays unacknowledged for this long counts as lost.
    pub(super) patience: Span,
    /// Only datagrams up to this number count as lost because of time.
    pub(super) by_time_to: u64,
}

/// Blocks that were sent and are not known to have arrived.
#[derive(Clone, Debug)]
pub(super) struct Circle {
    layout: Layout,
    /// Segments that have begun and are not known to be complete.
    open: BTreeMap<u32, Unacked>,
    /// By number of sends, then by first block, numbered from the start of the object.
    stretches: BTreeMap<(u32, u64), Stretch>,
    /// The stretch to which first sends are still added.
    newest: Option<(u64, Stretch)>,
}

impl Circle {
    pub(super) fn new(layout: Layout) -> Circle {
        Circle { layout, open: BTreeMap::new(), stretches: BTreeMap::new(), newest: None }
    }

    /// Records a first send, whose last datagram has number `last`; `there` holds blocks that the
    /// receiver has from another source.
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
        let sent = Sent { last, at: now };
        match &mut self.newest {
            Some((start, stretch))
                if *start + u64::from(stretch.len) == first
                    && *start >= base
                    && stretch.len < STRETCH =>
            {
                stretch.len += len;
                stretch.sent = sent;
            }
            _ => {
                self.close();
                self.newest = Some((first, Stretch { len, cursor: 0, sent, resent: sent }));
            }
        }
    }

    /// Returns at most `max` blocks to resend now, and how often they have been sent, this time
    /// included. The first one gets the packet number `number`. With `known` only known losses are
    /// resent.
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
                let Sent { last, at } = stretch.sent;
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
                stretch.resent = Sent { last: number + run.blocks.len() as u64 - 1, at: now };
            }
            return Some((run, key.0 + 1));
        }
    }

    /// The earliest time at which a sent block may count as lost without a report.
    pub(super) fn next_loss(&self, patience: Span) -> Option<Time> {
        let newest = self.newest.iter().map(|(_, stretch)| stretch);
        self.stretches.values().chain(newest).map(|stretch| stretch.sent.at + patience).min()
    }

    /// Notes that all blocks of `slice` have arrived, except `missing`; returns whether that
    /// completes the segment.
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

    pub(super) fn forget(&mut self, segment: u32) {
        if self.open.remove(&segment).is_none() {
            return;
        }
        let base = self.base(segment);
        let end = base + u64::from(self.layout.blocks_in(segment));
        self.newest.take_if(|(first, _)| (base..end).contains(first));
        // All blocks are sent about equally often, so there are few different numbers of sends, and
        // the loop is short.
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

    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.open.len() + self.stretches.len() + usize::from(self.newest.is_some())
    }

    /// Closes the newest stretch, so that it can be resent like the others.
    fn close(&mut self) {
        if let Some((first, stretch)) = self.newest.take() {
            self.stretches.insert((1, first), stretch);
        }
    }

    /// Ends a round over a stretch, in which all its remaining blocks were resent: increases the
    /// stretch's number of sends by one. Drops a stretch whose blocks have all arrived.
    fn turn(&mut self, key: (u32, u64)) {
        let Some(stretch) = self.stretches.remove(&key) else { return };
        if self.next_run(key.1, 0..stretch.len, 1).is_some() {
            let sent = stretch.resent;
            self.stretches.insert((key.0 + 1, key.1), Stretch { cursor: 0, sent, ..stretch });
        }
    }

    fn base(&self, segment: u32) -> u64 {
        self.layout.number(Block { segment, index: 0 })
    }

    fn index(&self, number: u64) -> u32 {
        self.layout.block(number).map_or(0, |block| block.index)
    }

    /// The first run of blocks not known to have arrived within `part` of the stretch that begins
    /// with block `first`.
    fn next_run(&self, first: u64, part: Range<u32>, max: u32) -> Option<Run> {
        let Block { segment, index } = self.layout.block(first)?;
        let part = index + part.start..index + part.end;
        let blocks = self.open.get(&segment)?.next_run(part, max)?;
        Some(Run { segment, blocks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Bytes;

    const PATIENCE: Span = Span::from_millis(100);

    fn ms(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    fn circle() -> Circle {
        let (object, segment) = (Bytes::new(20_000), Bytes::new(10_000));
        Circle::new(Layout::new(object, segment, Bytes::new(1000), 1000).unwrap())
    }

    /// Sends these blocks of a segment for the first time, with packet numbers from `first` on.
    fn send(circle: &mut Circle, at: Time, segment: u32, blocks: Range<u32>, first: u64) {
        let last = first + blocks.len() as u64 - 1;
        circle.send_first(at, &Run { segment, blocks }, last, &RangeSet::new());
    }

    /// The blocks resent at a time, numbered from the start of the object, with their number of
    /// sends.
    fn again(circle: &mut Circle, now: Time, known: Option<Known>) -> Option<(Range<u64>, u32)> {
        let (run, times) = circle.send_again(now, 1_000, 100, known)?;
        let base = u64::from(run.segment) * 10;
        Some((base + u64::from(run.blocks.start)..base + u64::from(run.blocks.end), times))
    }

    #[test]
    fn a_segment_is_complete_when_all_missing_blocks_are_acknowledged() {
        for segment in [0, 1] {
            let (mut circle, mut there) = (circle(), RangeSet::new());
            there.insert(3..5);
            there.insert(13..15);
            circle.send_first(ms(0), &Run { segment, blocks: 0..3 }, 2, &there);
            assert!(!circle.acknowledge(segment, 0..3, &[]));
            assert!(!circle.acknowledge(segment, 5..10, &[6..7, 8..9]));
            assert!(!circle.acknowledge(segment, 6..7, &[]));
            assert!(circle.acknowledge(segment, 8..9, &[]));
            circle.forget(segment);
            assert!(!circle.acknowledge(segment, 0..10, &[]), "the segment is forgotten");
        }
    }

    #[test]
    fn blocks_below_the_reported_number_or_unacknowledged_for_long_count_as_lost() {
        let mut circle = circle();
        send(&mut circle, ms(5), 0, 0..3, 0);
        let lost = |now, highest, by_time_to| {
            let known = Known { highest, patience: PATIENCE, by_time_to };
            again(&mut circle.clone(), now, Some(known)).is_some()
        };
        assert!(!lost(ms(5), 2, 0) && lost(ms(5), 3, 0), "the last number is 2");
        let just_before = ms(104) + Span::from_nanos(999_999);
        assert!(!lost(just_before, 0, 2) && lost(ms(105), 0, 2));
        assert!(!lost(ms(105), 0, 1), "time counts only up to number 1");
        assert_eq!(circle.next_loss(PATIENCE), Some(ms(105)));
        send(&mut circle, ms(6), 1, 0..3, 3);
        assert_eq!(circle.next_loss(PATIENCE), Some(ms(105)), "the earlier one");
        circle.forget(0);
        assert_eq!(circle.next_loss(PATIENCE), Some(ms(106)));
        circle.forget(1);
        assert_eq!(circle.next_loss(PATIENCE), None);
    }

    #[test]
    fn adjacent_first_sends_form_one_stretch_within_their_segment() {
        let mut circle = circle();
        send(&mut circle, ms(0), 0, 0..4, 0);
        send(&mut circle, ms(1), 0, 4..8, 4);
        assert_eq!(circle.remembered(), 2, "a segment and a stretch");
        send(&mut circle, ms(2), 0, 9..10, 8);
        assert_eq!(circle.remembered(), 3, "there is a gap");
        send(&mut circle, ms(3), 1, 0..1, 9);
        assert_eq!(circle.remembered(), 5, "the next segment");
        assert_eq!(again(&mut circle, ms(4), None), Some((0..8, 2)));
    }

    #[test]
    fn the_least_sent_block_is_next_and_a_run_continues_where_it_was_cut() {
        let mut circle = circle();
        send(&mut circle, ms(0), 0, 0..4, 0);
        send(&mut circle, ms(0), 1, 2..4, 4);
        circle.acknowledge(0, 1..2, &[]);
        let mut next = |at, number, max| {
            let (run, times) = circle.send_again(ms(at), number, max, None).expect("some are left");
            (run.segment, run.blocks, times)
        };
        assert_eq!(next(10, 6, 100), (0, 0..1, 2));
        assert_eq!(next(10, 7, 1), (0, 2..3, 2));
        assert_eq!(next(20, 8, 100), (0, 3..4, 2));
        assert_eq!(next(30, 9, 100), (1, 2..4, 2));
        assert_eq!(next(40, 11, 100), (0, 0..1, 3));
        // A stretch counts as sent when its last block was sent: the first stretch at 20 ms with
        // number 8, the second at 30 ms with number 10.
        let known = |highest| Some(Known { highest, patience: PATIENCE, by_time_to: u64::MAX });
        assert!(again(&mut circle.clone(), ms(119), known(8)).is_none());
        assert_eq!(again(&mut circle.clone(), ms(119), known(9)), Some((2..4, 3)));
        assert_eq!(again(&mut circle, ms(120), known(8)), Some((2..4, 3)));
    }

    #[test]
    fn forgetting_a_segment_removes_its_own_stretches_and_no_others() {
        for (forgotten, kept, rest) in [(0, 10..12, 2), (1, 0..4, 3)] {
            let mut circle = circle();
            send(&mut circle, ms(0), 0, 0..4, 0);
            send(&mut circle, ms(0), 0, 5..7, 4);
            send(&mut circle, ms(0), 1, 0..2, 6);
            assert!(circle.clone().send_again(ms(1), 8, 100, None).is_some());
            // In `turned` every stretch was resent once, and the first stretch twice.
            let mut turned = circle.clone();
            for _ in 0..3 {
                turned.send_again(ms(1), 8, 100, None);
            }
            turned.send_again(ms(1), 8, 100, None);
            for (mut circle, times) in [(circle, 2), (turned, 3)] {
                circle.close();
                circle.forget(forgotten);
                assert_eq!(circle.remembered(), rest, "{forgotten}");
                let (found, count) = again(&mut circle, ms(2), None).expect("the other is kept");
                assert_eq!(count, times, "{forgotten}");
                assert!(kept.start <= found.start && found.end <= kept.end + 3, "{found:?}");
            }
        }
    }
}
