//! One segment at the receiving end: when and what is reported.

use core::ops::Range;

use crate::tally::Tally;
use crate::time::{Span, Time};
use crate::wire::{Done, Report};

/// A question that waits for its round's last datagram.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    highest: u64,
    /// The answer goes then at the latest, unless data still come.
    deadline: Time,
}

/// A segment that is not whole.
#[derive(Clone, Debug, Default)]
pub(super) struct Segment {
    /// The last question's number, and how much of the segment it was about.
    round: u32,
    sent_to: u32,
    waiting: Option<Waiting>,
    /// What of the answer has still to be said.
    rest: Range<u32>,
    /// When the last answer was complete.
    answered: Option<Time>,
    /// Missing blocks before this one have been counted as lost.
    lost_to: u32,
}

/// A slice of a report, and what it means for the accounting.
pub(super) struct Slice {
    pub(super) report: Report,
    /// Missing blocks that no report had named before.
    pub(super) newly_lost: u32,
    /// Blocks that the round left missing, if this slice is its report's last.
    pub(super) round_left: Option<u32>,
}

impl Segment {
    /// DONE has come. One that is older than the last, or is being answered, or was answered less
    /// than `recent` ago, is a copy that says nothing.
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

    /// Whether a question waits for data.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Begins the answer if the round's last datagram has come, or the grace is over: `highest` is
    /// one more than the highest number that came, at `risen`.
    pub(super) fn begin(&mut self, now: Time, highest: u64, risen: Time, grace: Span) {
        let Some(waiting) = &mut self.waiting else { return };
        // As long as newer data come, the rest of the round is on its way.
        waiting.deadline = waiting.deadline.max(risen + grace);
        if highest > waiting.highest || now >= waiting.deadline {
            self.waiting = None;
            self.rest = 0..self.sent_to;
        }
    }

    /// When the grace ends.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.waiting.map(|waiting| waiting.deadline)
    }

    /// The missing blocks before this one have been counted as lost.
    pub(super) fn lost_to(&self) -> u32 {
        self.lost_to
    }

    /// Whether an answer has something left to say.
    pub(super) fn is_reporting(&self) -> bool {
        !self.rest.is_empty()
    }

    /// The next slice of the answer, by the segment's tally.
    pub(super) fn next_slice(&mut self, now: Time, segment: u32, tally: &Tally) -> Option<Slice> {
        if self.rest.is_empty() {
            return None;
        }
        let missing = tally.missing(self.rest.clone());
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

/// The report that nothing of a segment with `blocks` blocks is missing.
pub(super) fn whole(segment: u32, round: u32, blocks: u32) -> Report {
    Report::fill(segment, round, 0..blocks, core::iter::empty())
}
