//! The scoreboard of RFC 6675: which sent segments have arrived, are lost, or are in flight.
//!
//! A *sacked* segment was selectively acknowledged. A *repair* is a retransmission.

use std::collections::VecDeque;

use longhaul_proto::ranges::RangeSet;
use longhaul_proto::time::{Span, Time};

use super::Ack;
use super::bbr::Sample;

/// RFC 6675, section 2: `DupThresh`.
const REORDERING: u32 = 3;

/// A segment above the cumulative acknowledgement.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Time,
    sacked: bool,
    lost: bool,
    /// Whether a repair of this segment is in flight.
    again: bool,
    mark: Mark,
}

/// The delivery state at a sending time (draft-cheng-iccrg-delivery-rate-estimation).
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    delivered: u64,
    at: Time,
    /// The sending time of the newest segment delivered by then.
    sent: Time,
}

/// The segments from the first unacknowledged one on.
#[derive(Debug, Default)]
pub(super) struct Board {
    first: u32,
    sent: VecDeque<Sent>,
    /// Sacked runs, and all segments below `first`.
    reported: RangeSet,
    sacked: u32,
    lost: u32,
    again: u32,
    /// The highest sacked segment plus one.
    highest: u32,
    /// Segments below this number were checked for loss.
    judged: u32,
    /// No segment below this number waits for a repair.
    repair_from: u32,
    /// Repairs in the order of transmission.
    repairs: VecDeque<(Time, u32)>,
    /// When the newest arrived segment was sent.
    newest_arrived: Time,
    mark: Mark,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Change {
    /// Segments newly known to have arrived.
    pub(super) arrived: u32,
    /// Segments newly acknowledged cumulatively, also those sacked before.
    pub(super) acked: u32,
    /// Segments and repairs found lost.
    pub(super) lost: u32,
    /// The delivery rate at the newest of `arrived`.
    pub(super) sample: Option<Sample>,
    /// The newest of `arrived`: sending time and mark.
    newest: Option<(Time, Mark)>,
}

impl Board {
    pub(super) fn first(&self) -> u32 {
        self.first
    }

    pub(super) fn next(&self) -> u32 {
        self.first + self.sent.len() as u32
    }

    /// Segments above the cumulative acknowledgement.
    pub(super) fn flight(&self) -> u32 {
        self.sent.len() as u32
    }

    /// RFC 6675's pipe: the estimate of segments on the path.
    pub(super) fn pipe(&self) -> u32 {
        self.flight() - self.sacked - self.lost + self.again
    }

    pub(super) fn delivered(&self) -> u64 {
        self.mark.delivered
    }

    pub(super) fn on_sent(&mut self, now: Time) {
        if self.sent.is_empty() {
            (self.mark.at, self.mark.sent) = (now, now);
        }
        let mark = self.mark;
        self.sent.push_back(Sent { at: now, sacked: false, lost: false, again: false, mark });
    }

    fn at_mut(&mut self, number: u32) -> Option<&mut Sent> {
        self.sent.get_mut(number.checked_sub(self.first)? as usize)
    }

    pub(super) fn on_ack(&mut self, now: Time, ack: &Ack, reordering: Span) -> Change {
        let mut change = Change::default();
        let next = ack.next.min(self.next());
        while self.first < next
            && let Some(sent) = self.sent.pop_front()
        {
            self.first += 1;
            change.acked += 1;
            self.leave(sent, &mut change);
            self.sacked -= u32::from(sent.sacked);
        }
        self.reported.insert(0..u64::from(self.first));
        for (start, end) in ack.sacked {
            self.on_run(start.max(self.first), end.min(self.next()), &mut change);
        }
        self.judged = self.judged.max(self.first);
        self.repair_from = self.repair_from.max(self.first);
        change.lost = self.judge() + self.judge_repairs(reordering);
        self.measure(now, &mut change);
        change
    }

    /// Measures the delivery rate over the longer of the sending and acknowledgement intervals.
    fn measure(&mut self, now: Time, change: &mut Change) {
        let Some((sent, mark)) = change.newest else { return };
        (self.mark.at, self.mark.sent) = (now, sent);
        let span = now.since(mark.at).max(sent.since(mark.sent));
        let count = self.mark.delivered - mark.delivered;
        change.sample = (span > Span::ZERO)
            .then(|| Sample { rate: count as f64 / span.as_secs_f64(), before: mark.delivered });
    }

    /// Records a segment's arrival, once.
    fn leave(&mut self, sent: Sent, change: &mut Change) {
        if sent.sacked {
            return;
        }
        change.arrived += 1;
        self.lost -= u32::from(sent.lost);
        self.again -= u32::from(sent.again);
        self.newest_arrived = self.newest_arrived.max(sent.at);
        self.mark.delivered += 1;
        if change.newest.is_none_or(|(at, _)| sent.at >= at) {
            change.newest = Some((sent.at, sent.mark));
        }
    }

    fn on_run(&mut self, start: u32, end: u32, change: &mut Change) {
        let run = u64::from(start)..u64::from(end);
        while let Some(gap) = self.reported.first_gap(run.clone()) {
            for number in gap.clone() {
                let Some(sent) = self.at_mut(number as u32) else { continue };
                let before = *sent;
                *sent = Sent { sacked: true, lost: false, again: false, ..before };
                self.leave(before, change);
                self.sacked += 1;
            }
            self.reported.insert(gap);
        }
        if start < end {
            self.highest = self.highest.max(end);
        }
    }

    /// Marks segments with three sacked ones above them as lost (RFC 6675, `IsLost`); returns their
    /// number.
    fn judge(&mut self) -> u32 {
        let (mut above, mut number) = (0, self.highest);
        while above < REORDERING {
            if number <= self.judged {
                return 0;
            }
            number -= 1;
            above += u32::from(self.at_mut(number).is_some_and(|sent| sent.sacked));
        }
        let mut found = 0;
        for number in self.judged..number {
            let sent = self.at_mut(number).expect("between the first and the highest");
            if !sent.sacked && !sent.lost {
                sent.lost = true;
                found += 1;
            }
        }
        if found > 0 {
            self.repair_from = self.repair_from.min(self.judged);
        }
        self.judged = number;
        self.lost += found;
        found
    }

    /// Finds lost repairs, and returns their number. A repair is lost if a segment has arrived that
    /// was sent more than `reordering` later than the repair (RFC 8985, 6.2).
    fn judge_repairs(&mut self, reordering: Span) -> u32 {
        let mut found = 0;
        while let Some(&(at, number)) = self.repairs.front() {
            let newest = self.newest_arrived;
            match self.at_mut(number) {
                Some(sent) if sent.again && sent.at == at => {
                    if at + reordering >= newest {
                        break;
                    }
                    sent.again = false;
                    self.again -= 1;
                    self.repair_from = self.repair_from.min(number);
                    found += 1;
                }
                _ => {}
            }
            self.repairs.pop_front();
        }
        found
    }

    /// Returns the next lost segment to repair, and marks its repair as sent.
    pub(super) fn repair(&mut self, now: Time) -> Option<u32> {
        if self.lost == self.again {
            return None;
        }
        while self.repair_from < self.next() {
            let (number, mark) = (self.repair_from, self.mark);
            self.repair_from += 1;
            let sent = self.at_mut(number)?;
            if sent.lost && !sent.again {
                (sent.again, sent.at, sent.mark) = (true, now, mark);
                self.again += 1;
                self.repairs.push_back((now, number));
                return Some(number);
            }
        }
        None
    }

    /// RFC 8985, 7.3: a probe repeats the last segment; the flight size does not change.
    pub(super) fn probe(&mut self, now: Time) -> Option<u32> {
        let (last, mark) = (self.next().checked_sub(1)?, self.mark);
        let sent = self.at_mut(last)?;
        (sent.at, sent.mark) = (now, mark);
        Some(last)
    }

    /// RFC 6298, 5.4, and RFC 6675, 5.1: after a timeout every segment that is not sacked counts as
    /// lost. Returns the number of segments and repairs found lost.
    pub(super) fn lose_all(&mut self) -> u32 {
        let mut found = 0;
        for sent in self.sent.iter_mut().filter(|sent| !sent.sacked) {
            found += u32::from(!sent.lost || sent.again);
            (sent.lost, sent.again) = (true, false);
        }
        self.lost = self.flight() - self.sacked;
        self.again = 0;
        self.repairs.clear();
        self.judged = self.next();
        self.repair_from = self.first;
        found
    }
}
