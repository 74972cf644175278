//! Ends slow start before the queue overflows, as Linux's CUBIC does (Ha and Rhee, "Taming the
//! elephants: new TCP slow start", Computer Networks 55, 2011).
//!
//! Either of two signs is enough:
//! - Acknowledgements have arrived closely spaced for half the minimum round-trip time. So data
//!   fill the path to the receiver.
//! - All round-trip times of this round exceed the minimum by more than an eighth (at least 4 ms,
//!   at most 16 ms). So a queue builds up.

use longhaul_proto::time::{Span, Time};

/// HyStart is inactive below this window, in segments.
pub(super) const LOW_WINDOW: u32 = 16;
/// The largest gap between closely spaced acknowledgements.
const CLOSE: Span = Span::from_millis(2);
/// An allowance for acknowledgements of several segments, added to the minimum round trip before
/// the sum is halved. Linux adds at most this; here it is always added.
const COVERED: Span = Span::from_millis(1);
/// Samples in a round before the second sign counts.
const SAMPLES: u32 = 8;

#[derive(Clone, Copy, Debug)]
pub(super) struct HyStart {
    round_end: u32,
    began: Time,
    last: Time,
    samples: u32,
    round_min: Span,
}

impl HyStart {
    pub(super) fn new() -> HyStart {
        let (began, last) = (Time::ZERO, Time::ZERO);
        HyStart { round_end: 0, began, last, samples: 0, round_min: Span::MAX }
    }

    /// Processes an acknowledgement of all segments below number `acked`; `sent` is the number of
    /// the next segment to send. Returns whether slow start should end.
    pub(super) fn on_ack(
        &mut self,
        now: Time,
        acked: u32,
        sent: u32,
        rtt: Option<Span>,
        min_rtt: Span,
    ) -> bool {
        if acked > self.round_end {
            let (began, last) = (now, now);
            *self = HyStart { round_end: sent, began, last, samples: 0, round_min: Span::MAX };
        }
        if now.since(self.last) <= CLOSE {
            self.last = now;
            if now.since(self.began) > (min_rtt + COVERED) / 2 {
                return true;
            }
        }
        let Some(rtt) = rtt else { return false };
        self.round_min = self.round_min.min(rtt);
        self.samples += 1;
        let margin = (min_rtt / 8).max(Span::from_millis(4)).min(Span::from_millis(16));
        self.samples > SAMPLES && self.round_min > min_rtt + margin
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Span = Span::from_millis(100);

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    #[test]
    fn a_long_ack_train_ends_slow_start_and_a_broken_train_does_not() {
        let mut train = HyStart::new();
        let ends = |ms: u64| train.on_ack(at(ms), 1 + ms as u32, 1_000, Some(RTT), RTT);
        // A train of closely spaced acknowledgements may last (100 ms + 1 ms) / 2 = 50.5 ms.
        assert_eq!((0..100).map(ends).position(|ends| ends), Some(51));
        let mut broken = HyStart::new();
        assert!((0..100).all(|i| !broken.on_ack(at(3 * i), 1 + i as u32, 1_000, Some(RTT), RTT)));
    }

    #[test]
    fn longer_round_trips_end_slow_start_after_eight_samples() {
        // Round trips may be longer by an eighth: 12.5 ms.
        let mut delayed = HyStart::new();
        let long = RTT + Span::from_millis(14);
        let ends = |i: u64| delayed.on_ack(at(3 * i), 1 + i as u32, 1_000, Some(long), RTT);
        assert_eq!((0..20).map(ends).position(|ends| ends), Some(8));
        let mut steady = HyStart::new();
        let near = RTT + Span::from_millis(12);
        assert!((0..20).all(|i| !steady.on_ack(at(3 * i), 1 + i as u32, 99, Some(near), RTT)));
    }
}
