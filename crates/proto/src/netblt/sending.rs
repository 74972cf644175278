//! One buffer (a segment, or a part of one) at the sending end: requested blocks, and blocks that
//! may still be in flight.

use alloc::collections::VecDeque;
use core::ops::Range;

use crate::ranges::RangeSet;
use crate::time::{Span, Time};
use crate::wire::Resend;

/// The position in a buffer when a datagram was sent.
#[derive(Clone, Copy, Debug)]
struct Mark {
    /// The datagram's number, plus one.
    end: u64,
    /// All blocks of the buffer before the segment's block `index` had been sent.
    index: u32,
    at: Time,
}

impl Mark {
    /// Whether everything sent up to this mark has arrived or is lost: the mark's datagram or a
    /// later one has arrived, or `patience` has passed since the mark.
    fn is_past(&self, now: Time, highest: u64, patience: Span) -> bool {
        self.end <= highest || self.at + patience <= now
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Sending {
    /// Marks of the first transmissions, in order.
    marks: VecDeque<Mark>,
    resends: VecDeque<Range<u32>>,
    /// The mark of the last resent run.
    resent: Option<Mark>,
    /// The number of the current request.
    round: u32,
    /// The blocks that messages of the current request have covered.
    covered: RangeSet,
}

impl Sending {
    /// Records that each block of the buffer before `index` was sent once, in datagrams numbered
    /// below `end`.
    pub(super) fn on_first(&mut self, now: Time, index: u32, end: u64) {
        self.marks.push_back(Mark { end, index, at: now });
    }

    /// Handles a message of a request. Ignores a new request while blocks of the last request are
    /// unsent or may be in flight. Leaves out blocks whose first transmission may be in flight. The
    /// receiver requests ignored blocks again.
    pub(super) fn on_resend(&mut self, now: Time, resend: &Resend, patience: Span) {
        let (round, slice) = (resend.report.round(), resend.report.slice());
        let is_past = |mark: &Mark| mark.is_past(now, resend.highest, patience);
        if round > self.round {
            if !self.resends.is_empty() || self.resent.is_some_and(|mark| !is_past(&mark)) {
                return;
            }
            self.round = round;
            self.covered = RangeSet::new();
        } else if round < self.round {
            return;
        }
        let past = self.marks.partition_point(is_past);
        let Some(to) = past.checked_sub(1).map(|last| self.marks[last].index) else { return };
        for run in resend.report.missing() {
            let mut at = u64::from(run.start);
            // A repeated message requests nothing new.
            while let Some(gap) = self.covered.first_gap(at..u64::from(run.end.min(to))) {
                at = gap.end;
                self.resends.push_back(gap.start as u32..gap.end as u32);
            }
        }
        self.covered.insert(slice.start.into()..slice.end.into());
    }

    /// The number of the current request, from 1; 0 before the first request.
    pub(super) fn round(&self) -> u32 {
        self.round
    }

    pub(super) fn has_resends(&self) -> bool {
        !self.resends.is_empty()
    }

    /// The next run of at most `max` blocks to resend; datagram `number` carries the run's first
    /// block. `there` holds blocks that the receiver is known to have, numbered from the start of
    /// the object. `base` is the number of the segment's first block in the object.
    pub(super) fn next_resend(
        &mut self,
        now: Time,
        number: u64,
        max: u32,
        base: u64,
        there: &RangeSet,
    ) -> Option<Range<u32>> {
        while let Some(run) = self.resends.pop_front() {
            let Some(gap) = there.first_gap(base + u64::from(run.start)..base + u64::from(run.end))
            else {
                continue;
            };
            // Block numbers within a segment fit in 32 bits.
            let start = (gap.start - base) as u32;
            let end = start + max.min((gap.end - gap.start) as u32);
            if end < run.end {
                self.resends.push_front(end..run.end);
            }
            let last = number + u64::from(end - start);
            self.resent = Some(Mark { end: last, index: end, at: now });
            return Some(start..end);
        }
        None
    }
}
