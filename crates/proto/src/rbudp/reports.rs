//! One segment (part of the object) at RBUDP's receiving end: when to report which blocks as
//! missing. A report answers DONE, the sender's message at the end of a round.

use core::ops::Range;

use crate::ranges::RangeSet;
use crate::tally::Tally;
use crate::time::{Span, Time};
use crate::wire::{Done, Report};

/// A DONE that waits for its round's last datagram.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// The highest datagram number of the round.
    highest: u64,
    /// The latest time of the answer; moves on while newer data arrive.
    deadline: Time,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Segment {
    /// The round of the last DONE.
    round: u32,
    /// The last DONE covers the segment's blocks before this block.
    sent_to: u32,
    waiting: Option<Waiting>,
    /// The part of the answer that is still to be sent.
    rest: Range<u32>,
    /// When the last answer was completed.
    answered: Option<Time>,
    /// Missing blocks before this block have been counted as lost.
    lost_to: u32,
}

/// One message of a report, which covers a slice of the segment, and its effect on the counters.
pub(super) struct Slice {
    pub(super) report: Report,
    /// Missing blocks in the part of the slice that no earlier report covered.
    pub(super) newly_lost: u32,
    /// Number of missing blocks among those that DONE covers; `None` before the report's last
    /// message.
    pub(super) round_left: Option<u32>,
}

impl Segment {
    /// Handles DONE. Ignores a DONE of an earlier round than the last DONE. Also ignores a copy: a
    /// DONE of the same round, whose answer is pending or was completed less than `recent` ago.
    pub(super) fn on_done(&mut self, now: Time, done: &Done, grace: Span, recent: Span) {
        let known = done.round == self.round;
        let answered = self.answered.is_some_and(|at| now.since(at) >= recent);
        if done.round < self.round || (known && !answered) {
            return;
        }
        self.round = done.round;
        self.sent_to = done.sent_to;
        self.rest = 0..0;
        self.answered = None;
        self.waiting = Some(Waiting { highest: done.highest.0, deadline: now + grace });
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Begins the answer if the round's last datagram has arrived or the grace (the wait for late
    /// data) is over. `highest` is the highest datagram number that arrived, plus one; it was
    /// reached at `risen`.
    pub(super) fn begin(&mut self, now: Time, highest: u64, risen: Time, grace: Span) {
        let Some(waiting) = &mut self.waiting else { return };
        // As long as newer data arrive, the rest of the round is in flight.
        waiting.deadline = waiting.deadline.max(risen + grace);
        if highest > waiting.highest || now >= waiting.deadline {
            self.waiting = None;
            self.rest = 0..self.sent_to;
        }
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.waiting.map(|waiting| waiting.deadline)
    }

    pub(super) fn lost_to(&self) -> u32 {
        self.lost_to
    }

    pub(super) fn is_reporting(&self) -> bool {
        !self.rest.is_empty()
    }

    /// The next message of the answer, from the segment's tally of arrived blocks. The message
    /// does not name the blocks in `spared`, which coded symbols replace.
    pub(super) fn next_slice(
        &mut self,
        now: Time,
        segment: u32,
        tally: &Tally,
        spared: &RangeSet,
    ) -> Option<Slice> {
        if self.rest.is_empty() {
            return None;
        }
        let wide = |run: Range<u32>| u64::from(run.start)..u64::from(run.end);
        let missing = tally.missing(self.rest.clone()).flat_map(|run| spared.gaps(wide(run)));
        let missing = missing.map(|run| run.start as u32..run.end as u32);
        let report = Report::fill(segment, self.round, self.rest.clone(), missing);
        let slice = report.slice();
        let newly_lost = tally.missing_in(slice.start.max(self.lost_to)..slice.end);
        self.lost_to = self.lost_to.max(slice.end);
        self.rest.start = slice.end;
        let mut round_left = None;
        if self.rest.is_empty() {
            self.answered = Some(now);
            round_left = Some(tally.missing_in(0..self.sent_to));
        }
        Some(Slice { report, newly_lost, round_left })
    }
}

pub(super) fn complete_report(segment: u32, round: u32, blocks: u32) -> Report {
    Report::fill(segment, round, 0..blocks, core::iter::empty())
}
