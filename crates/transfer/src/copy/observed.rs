//! What the attempts of a copy show about its bottleneck.

use longhaul_proto::time::{Span, Time};

use crate::counters::{Counters, Times};

/// The earlier attempts of a copy, and the state of this attempt at the other end's last sign of
/// life. A sender's waits after this sign show an outage, not a bottleneck.
#[derive(Debug)]
pub(super) struct Observed {
    /// The times of the sending end, summed over the earlier attempts since the last change between
    /// UDP and streams.
    from: Times,
    /// The same times of the receiving end.
    to: Times,
    /// Whether these attempts sent over streams.
    by_streams: bool,
    /// How long the copy had no connection before this attempt.
    away: Span,
    /// The start of this attempt.
    began: Time,
    /// The other end's last sign of life in this attempt; zero if there was none.
    lived: Time,
    /// The counters of the sending and the receiving end at `lived`.
    ends: (Counters, Counters),
}

impl Observed {
    pub(super) fn new(now: Time) -> Observed {
        Observed {
            from: Times::default(),
            to: Times::default(),
            by_streams: false,
            away: Span::ZERO,
            began: now,
            lived: Time::ZERO,
            ends: (Counters::default(), Counters::default()),
        }
    }

    /// Notes the time of the other end's last sign of life. `ends` returns the counters of the
    /// sending and the receiving end.
    pub(super) fn note(&mut self, lived: Time, ends: impl FnOnce() -> (Counters, Counters)) {
        if lived != self.lived {
            (self.lived, self.ends) = (lived, ends());
        }
    }

    /// Ends this attempt, if there was one, and begins the next.
    pub(super) fn begin(&mut self, now: Time) {
        self.away = self.away + now.since(self.lived.max(self.began));
        (self.began, self.lived) = (now, Time::ZERO);
        let (mut from, mut to) = std::mem::take(&mut self.ends);
        let by_streams = from.sender.streams > 0;
        if by_streams || from.sender.sent > 0 {
            self.join(&mut from, &mut to);
            (self.from, self.to, self.by_streams) = (from.times, to.times, by_streams);
        }
    }

    /// Adds the times of the earlier attempts to `from` and `to`, the counters of both ends of the
    /// last attempt, if all these attempts used UDP or all used streams. Otherwise adds nothing:
    /// waits over UDP do not explain the rate over TCP. Returns the part of `elapsed` with a
    /// connection.
    pub(super) fn join_all(&self, from: &mut Counters, to: &mut Counters, elapsed: Span) -> Span {
        self.join(from, to);
        elapsed.saturating_sub(self.away)
    }

    fn join(&self, from: &mut Counters, to: &mut Counters) {
        if self.by_streams == (from.sender.streams > 0) {
            from.times += self.from;
            to.times += self.to;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::SenderCounters;
    use crate::counters::bound::Ends;
    use crate::summary::BoundBy;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Span::from_secs(seconds)
    }

    /// Returns the counters of both ends after the sender waited `paced` seconds for its pacer and
    /// `granted` seconds for a grant.
    fn waited(paced: u64, granted: u64) -> (Counters, Counters) {
        let (paced, granted) = (Span::from_secs(paced), Span::from_secs(granted));
        let sender = SenderCounters { sent: 9, ..SenderCounters::default() };
        let times = Times { paced, granted, ..Times::default() };
        (Counters { sender, times, ..Counters::default() }, Counters::default())
    }

    fn bound(observed: &Observed, last: (Counters, Counters), elapsed: u64) -> BoundBy {
        let (mut from, mut to) = last;
        let elapsed = observed.join_all(&mut from, &mut to, Span::from_secs(elapsed));
        Ends { from: &from, to: &to, fixed_rate: true, small: false }.bound(elapsed)
    }

    #[test]
    fn the_time_without_a_connection_does_not_count_for_the_bottleneck_of_a_copy() {
        let mut observed = Observed::new(at(1));
        observed.begin(at(1));
        observed.note(at(60), || waited(59, 0));
        // During the outage the sender gets no grant.
        observed.note(at(60), || waited(59, 90));
        observed.begin(at(150));
        // The attempt from 150 s to 160 s found no server.
        observed.begin(at(160));
        assert_eq!(bound(&observed, waited(20, 0), 180), BoundBy::RateOption);
        assert_eq!(observed.away, Span::from_secs(100));
        assert_eq!(bound(&Observed::new(at(1)), waited(20, 0), 180), BoundBy::Nothing);
    }

    #[test]
    fn waits_over_udp_do_not_explain_the_rate_of_a_copy_over_tcp() {
        let mut observed = Observed::new(at(1));
        observed.begin(at(1));
        observed.note(at(61), || waited(60, 0));
        observed.begin(at(61));
        let streams = || {
            let (mut from, to) = waited(20, 0);
            from.sender.streams = 8;
            (from, to)
        };
        assert_eq!(bound(&observed, streams(), 80), BoundBy::Nothing);
        observed.note(at(81), streams);
        observed.begin(at(81));
        assert_eq!(bound(&observed, streams(), 79), BoundBy::RateOption);
    }
}
