//! Samples of the path's state, from the counters of both ends.

use std::time::{Duration, Instant};

use longhaul_proto::time::Span;
use longhaul_proto::units::LossRatio;

use super::Counters;
use super::recent::over;
use crate::progress::PathSample;

/// The receiver reports every 100 ms. If its count of datagrams has not grown for this long, the
/// delivery rate is zero.
const STALE: Duration = Duration::from_millis(250);

#[derive(Debug, Default)]
pub(crate) struct PathWatch {
    /// The state when the delivery rate was last computed: time, datagrams received, and datagrams
    /// known to have been sent.
    last: Option<(Instant, u64, u64)>,
    queue: QueueWatch,
    sample: PathSample,
}

/// The queue of a path, as the rise of its round-trip time.
#[derive(Debug, Default)]
pub(crate) struct QueueWatch {
    least: Option<Span>,
}

impl QueueWatch {
    /// Returns the rise of `rtt` above the lowest round-trip time so far; zero while `rtt` is
    /// unknown.
    pub(crate) fn note(&mut self, rtt: Span) -> Span {
        if rtt == Span::ZERO {
            return Span::ZERO;
        }
        let least = self.least.map_or(rtt, |least| least.min(rtt));
        self.least = Some(least);
        rtt.saturating_sub(least)
    }
}

impl PathWatch {
    pub(crate) fn note(&mut self, now: Instant, block: u32, counters: &Counters) -> PathSample {
        let Counters { sender, receiver, .. } = counters;
        let (received, highest) = (receiver.received, receiver.highest);
        let sample = &mut self.sample;
        (sample.rate, sample.phase) = (sender.rate, sender.found.phase);
        sample.queue = self.queue.note(sender.rtt);
        let (at, before, sent_before) = *self.last.get_or_insert((now, received, highest));
        let (came, passed) = (received.saturating_sub(before), now.duration_since(at));
        if (came > 0 || passed >= STALE) && !passed.is_zero() {
            let sent = highest.saturating_sub(sent_before);
            sample.delivered = over(came.saturating_mul(u64::from(block)), passed);
            sample.loss = LossRatio::of(sent.saturating_sub(came), sent);
            self.last = Some((now, received, highest));
        }
        *sample
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_proto::law::Phase;
    use longhaul_proto::units::Rate;

    fn counters(received: u64, highest: u64, rtt: u64) -> Counters {
        let mut counters = Counters::default();
        (counters.receiver.received, counters.receiver.highest) = (received, highest);
        counters.sender.rtt = Span::from_millis(rtt);
        counters.sender.rate = Rate::from_mbps(9);
        counters.sender.found.phase = Some(Phase::Shared);
        counters
    }

    #[test]
    fn a_sample_covers_the_datagrams_since_the_counts_last_grew() {
        let (mut watch, start) = (PathWatch::default(), Instant::now());
        // Returns the delivery rate in bits a second, the loss and the queue in milliseconds.
        let mut at = |millis, received, highest, rtt| {
            let now = start + Duration::from_millis(millis);
            let sample = watch.note(now, 1_000, &counters(received, highest, rtt));
            assert_eq!((sample.rate, sample.phase), (Rate::from_mbps(9), Some(Phase::Shared)));
            let (loss, queue) = (sample.loss.get(), sample.queue.as_nanos() / 1_000_000);
            (sample.delivered.as_bps(), loss, queue)
        };
        assert_eq!(at(0, 5, 5, 40), (0, 0.0, 0));
        // In 100 ms 90 of 100 datagrams of 1,000 bytes arrive, and the round-trip time rises by 5
        // ms.
        assert_eq!(at(100, 95, 105, 45), (7_200_000, 0.1, 5));
        // A slightly late count changes neither the delivery rate nor the loss; a count that does
        // not arrive sets both to zero.
        assert_eq!(at(200, 95, 105, 30), (7_200_000, 0.1, 0));
        assert_eq!(at(300, 195, 205, 31), (4_000_000, 0.0, 1));
        assert_eq!(at(549, 195, 205, 0), (4_000_000, 0.0, 0));
        assert_eq!(at(550, 195, 205, 30), (0, 0.0, 0));
    }

    #[test]
    fn huge_counts_and_falling_counts_give_a_sample() {
        let (mut watch, start) = (PathWatch::default(), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        watch.note(at(0), u32::MAX, &counters(0, 0, 1));
        watch.note(at(1), u32::MAX, &counters(u64::MAX, 3, 1));
        let sample = watch.note(at(300), u32::MAX, &counters(7, 0, 1));
        assert_eq!((sample.delivered, sample.loss), (Rate::ZERO, LossRatio::default()));
    }
}
