//! The receiving end: what has arrived, and when to acknowledge.

use longhaul_proto::ranges::RangeSet;
use longhaul_proto::time::{Span, Time};

use super::{Ack, Data, SACK_RUNS};

/// Linux's minimum delay of a delayed acknowledgement.
const DELAY: Span = Span::from_millis(40);
/// Segments at the start that Linux acknowledges individually.
const QUICK: u32 = 16;

/// A receiver's counters, in segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReceiverCounts {
    pub received: u64,
    /// New segments, a part of `received`.
    pub distinct: u64,
    pub acks: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Receiver {
    come: RangeSet,
    next: u32,
    /// Ranges of segments that arrived beyond `next`; the one that changed last comes first (RFC
    /// 2018, section 4).
    runs: Vec<(u32, u32)>,
    /// In-order segments since the last acknowledgement.
    unacked: u32,
    /// The timestamp for the next acknowledgement.
    echo: Time,
    due: Option<Time>,
    at_once: bool,
    counts: ReceiverCounts,
}

impl Receiver {
    pub(crate) fn new() -> Receiver {
        Receiver::default()
    }

    pub(crate) fn counts(&self) -> &ReceiverCounts {
        &self.counts
    }

    /// The next segment in order: all segments below it have arrived.
    pub(crate) fn next(&self) -> u32 {
        self.next
    }

    pub(crate) fn on_data(&mut self, now: Time, data: &Data) {
        self.counts.received += 1;
        let number = u64::from(data.number);
        // RFC 7323, 4.3: echo the timestamp of the first unacknowledged segment, or of a segment
        // that fills a gap.
        if self.unacked == 0 && data.number <= self.next {
            self.echo = data.sent;
        }
        if self.come.insert(number..number + 1) == 0 {
            // A repeated segment is old (RFC 9293, 3.10.7.4) or out of order (RFC 5681, 4.2): both
            // are acknowledged immediately.
            self.at_once = true;
            return;
        }
        self.counts.distinct += 1;
        if data.number != self.next {
            self.at_once = true;
            self.note_run(data.number);
            return;
        }
        let run = self.come.run_at(number).map_or(number + 1, |run| run.end);
        self.next = run as u32;
        // RFC 5681, 4.2: "when it receives a segment that fills in all or part of a gap".
        self.at_once |= !self.runs.is_empty();
        let next = self.next;
        self.runs.retain(|(_, end)| *end > next);
        self.unacked += 1;
        if self.unacked >= 2 || self.counts.received <= u64::from(QUICK) {
            self.at_once = true;
        } else {
            self.due = self.due.or(Some(now + DELAY));
        }
    }

    fn note_run(&mut self, number: u32) {
        let number = u64::from(number);
        let Some(run) = self.come.run_at(number) else { return };
        let run = (run.start as u32, run.end as u32);
        self.runs.retain(|(start, end)| *end < run.0 || *start > run.1);
        self.runs.insert(0, run);
        self.runs.truncate(SACK_RUNS);
    }

    /// When a delayed acknowledgement is due.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        self.due
    }

    /// The acknowledgement to send now, if any.
    pub(crate) fn poll(&mut self, now: Time) -> Option<Ack> {
        if !self.at_once && self.due.is_none_or(|due| due > now) {
            return None;
        }
        (self.at_once, self.due, self.unacked) = (false, None, 0);
        self.counts.acks += 1;
        let mut sacked = [(0, 0); SACK_RUNS];
        sacked.iter_mut().zip(&self.runs).for_each(|(place, run)| *place = *run);
        Some(Ack { next: self.next, echo: self.echo, sacked })
    }
}
