//! One buffer (a range of blocks that NETBLT acknowledges as a whole) at the receiving end, and the
//! buffer's data timer.
//!
//! RFC 998: when a buffer's data begin, the receiver sets a timer to the time that the buffer takes
//! at the negotiated rate. If blocks are missing when the timer expires or the buffer's last packet
//! arrives, the receiver requests them with RESEND and sets the timer again. This receiver also
//! sets the timer again at each arrival, and after the last packet waits briefly for late blocks.

use core::ops::Range;

use crate::ends::grace;
use crate::tally::Tally;
use crate::time::{Span, Time};
use crate::wire::{Burst, Report};

/// Maximum interval between repeats of an unanswered request, unless four round trips or the
/// requested blocks take longer.
const MAX_REPEAT: Span = Span::from_secs(2);

/// How long to wait for a buffer's data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    rtt: Span,
    /// How long to wait after a buffer's last block for reordered earlier blocks.
    grace: Span,
}

impl Patience {
    pub(super) fn new(rtt: Span) -> Patience {
        Patience { rtt, grace: grace(rtt) }
    }

    /// The longest silence within a buffer that the receiver tolerates.
    fn silence(self) -> Span {
        self.rtt + self.grace * 2
    }
}

#[derive(Clone, Debug)]
pub(super) struct Incoming {
    segment: u32,
    blocks: Range<u32>,
    pub(super) left: u32,
    /// Highest arrived block, plus one.
    reach: u32,
    /// The last expected block: the last of the buffer, or the last of the newest request.
    last: u32,
    /// Whether the block `last` or later data have arrived.
    ended: bool,
    burst: Option<Burst>,
    round: u32,
    /// Number of requests since data last arrived.
    unanswered: u32,
    /// The part of the request that is still to be sent.
    rest: Range<u32>,
    due: Option<Time>,
    /// Missing blocks before this block have been counted as lost.
    lost_to: u32,
}

/// A message of a request, and its effect on the counters.
pub(super) struct RequestMessage {
    pub(super) report: Report,
    /// Number of missing blocks in the message that are known to have been sent.
    pub(super) lost: u32,
    /// Number of blocks in `lost` that no earlier message counted as lost.
    pub(super) newly_lost: u32,
}

impl Incoming {
    pub(super) fn new(segment: u32, blocks: Range<u32>, left: u32) -> Incoming {
        Incoming {
            segment,
            left,
            reach: blocks.start,
            last: blocks.end - 1,
            ended: false,
            burst: None,
            round: 0,
            unanswered: 0,
            rest: 0..0,
            due: None,
            lost_to: blocks.start,
            blocks,
        }
    }

    pub(super) fn segment(&self) -> u32 {
        self.segment
    }

    /// The part of `blocks` in which missing blocks have been counted as lost.
    pub(super) fn counted(&self, blocks: &Range<u32>) -> Range<u32> {
        blocks.start.max(self.blocks.start)..blocks.end.min(self.lost_to)
    }

    pub(super) fn due(&self) -> Option<Time> {
        self.due
    }

    pub(super) fn on_begun(&mut self, now: Time, burst: Option<Burst>, patience: Patience) {
        self.burst = burst;
        let due = now + self.time_of(self.left) + patience.silence();
        // Arrived data and a request in progress are better information than the reported rate.
        if self.due.is_none() && self.round == 0 {
            self.due = Some(due);
        }
    }

    /// Records arrived blocks, the highest of them `last`.
    pub(super) fn on_data(&mut self, now: Time, last: u32, patience: Patience) {
        self.reach = self.reach.max(last + 1);
        self.ended |= last >= self.last;
        self.unanswered = 0;
        if self.rest.is_empty() {
            let wait = if self.ended { patience.grace } else { patience.silence() };
            self.due = Some(now + wait);
        }
    }

    /// Notes that blocks of a later buffer arrived: the whole of this buffer has been sent.
    pub(super) fn on_later_data(&mut self, now: Time, patience: Patience) {
        if self.round == 0 && !self.ended {
            self.ended = true;
            let due = now + patience.grace;
            self.due = Some(self.due.map_or(due, |before| before.min(due)));
        }
    }

    pub(super) fn ask(&mut self) {
        self.due = None;
        self.round = self.round.saturating_add(1);
        self.unanswered = self.unanswered.saturating_add(1);
        self.rest = self.blocks.clone();
    }

    /// The next message of the request. `is_past`: the whole buffer has been sent.
    pub(super) fn next_slice(
        &mut self,
        now: Time,
        tally: &Tally,
        is_past: bool,
        patience: Patience,
    ) -> Option<RequestMessage> {
        while !self.rest.is_empty() {
            let missing = tally.missing(self.rest.clone());
            let report = Report::fill(self.segment, self.round, self.rest.clone(), missing);
            let slice = report.slice();
            self.rest.start = slice.end;
            if let Some(run) = report.missing().last() {
                self.last = run.end - 1;
            }
            if self.rest.is_empty() {
                self.wait_for_resends(now, patience);
            }
            if report.missing().is_empty() {
                continue;
            }
            let sent = slice.start..slice.end.min(if is_past { slice.end } else { self.reach });
            let lost = tally.missing_in(sent.clone());
            let newly_lost = tally.missing_in(sent.start.max(self.lost_to)..sent.end);
            self.lost_to = self.lost_to.max(sent.end);
            return Some(RequestMessage { report, lost, newly_lost });
        }
        None
    }

    fn wait_for_resends(&mut self, now: Time, patience: Patience) {
        self.ended = false;
        let least = patience.silence() + self.time_of(self.left);
        let more = patience.silence() * (1 << self.unanswered.saturating_sub(1).min(16));
        let most = MAX_REPEAT.max(patience.rtt * 4).max(least);
        self.due = Some(now + least.max(more).min(most));
    }

    fn time_of(&self, blocks: u32) -> Span {
        self.burst.map_or(Span::ZERO, |burst| burst.time_of(blocks.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_for_an_answer_doubles_up_to_the_longer_of_two_seconds_and_four_round_trips() {
        let waits = |rtt| {
            let (mut incoming, patience) = (Incoming::new(0, 0..4, 4), Patience::new(rtt));
            [(); 6].map(|()| {
                incoming.ask();
                incoming.wait_for_resends(Time::ZERO, patience);
                incoming.due().map(|due| due.since(Time::ZERO))
            })
        };
        let ms = |millis: [u64; 6]| millis.map(|ms| Some(Span::from_millis(ms)));
        assert_eq!(waits(Span::from_millis(100)), ms([150, 300, 600, 1200, 2000, 2000]));
        assert_eq!(waits(Span::from_millis(600)), ms([900, 1800, 2400, 2400, 2400, 2400]));
    }
}
