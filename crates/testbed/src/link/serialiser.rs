//! A rate and the drop-tail queue before it.

use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::{Bytes, Rate};

/// Puts packets on the wire one behind the other.
///
/// All it remembers is when the wire is free again: what is queued is the rate times the span
/// until then. A change of rate leaves the packets that were queued before at their old times.
#[derive(Clone, Debug, Default)]
pub(super) struct Serialiser {
    free_at: Time,
    /// The part of a nanosecond by which the wire is free later than `free_at`, in units of one
    /// nanosecond / rate, so that rounding never adds up.
    fraction: u64,
}

impl Serialiser {
    /// What is waiting or being sent at `now`.
    pub(super) fn backlog(&self, now: Time, rate: Rate) -> Bytes {
        rate.over(self.free_at.since(now))
    }

    /// When the wire is free for a packet offered at `now`.
    pub(super) fn turn(&self, now: Time) -> Time {
        self.free_at.max(now)
    }

    /// When a packet of `wire` bytes offered at `now` has left, or nothing if more than `queue`
    /// would then be waiting. A rate of zero never finishes: nothing.
    pub(super) fn accept(
        &mut self,
        now: Time,
        wire: Bytes,
        rate: Rate,
        queue: Bytes,
    ) -> Option<Time> {
        if rate == Rate::ZERO || self.backlog(now, rate) + wire > queue {
            return None;
        }
        if self.free_at < now {
            (self.free_at, self.fraction) = (now, 0);
        }
        let bps = u128::from(rate.as_bps());
        let work = u128::from(wire.get()) * 8 * 1_000_000_000 + u128::from(self.fraction);
        // The fraction is a remainder of a division by the rate, which fits 64 bits.
        self.fraction = (work % bps) as u64;
        let nanos = u64::try_from(work / bps).unwrap_or(u64::MAX);
        self.free_at += Span::from_nanos(nanos);
        Some(self.free_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIGABIT: Rate = Rate::from_mbps(1_000);

    #[test]
    fn a_full_wire_carries_its_rate_to_the_nanosecond() {
        let (mut wire, rate) = (Serialiser::default(), Rate::from_bps(7_777_777_777));
        let packet = Bytes::new(1_538);
        let mut left = Time::ZERO;
        for _ in 0..100_000 {
            left = wire.accept(Time::ZERO, packet, rate, Bytes::MAX).unwrap();
        }
        let exact = Bytes::new(153_800_000) / rate;
        assert_eq!(left.since(Time::ZERO), exact);
    }

    #[test]
    fn an_idle_wire_starts_at_once() {
        let mut wire = Serialiser::default();
        let now = Time::from_nanos(5_000);
        let left = wire.accept(now, Bytes::new(125), GIGABIT, Bytes::new(125));
        assert_eq!(left, Some(now + Span::from_micros(1)));
        assert_eq!(wire.backlog(now, GIGABIT), Bytes::new(125));
    }

    #[test]
    fn a_full_queue_drops_the_newest_and_drains_with_time() {
        let mut wire = Serialiser::default();
        let (packet, queue) = (Bytes::new(1_000), Bytes::new(3_000));
        let took =
            (0..5).filter(|_| wire.accept(Time::ZERO, packet, GIGABIT, queue).is_some()).count();
        assert_eq!(took, 3);
        // The last that was taken waited for two others: 3 × 8 µs.
        assert_eq!(wire.backlog(Time::ZERO, GIGABIT), queue);
        let later = Time::from_nanos(8_000);
        assert!(wire.accept(later, packet, GIGABIT, queue).is_some());
    }

    #[test]
    fn packets_at_random_wait_as_long_as_queueing_theory_says() {
        // M/D/1: service of a fixed length s, arrivals at random, load ρ: the mean wait is
        // s × ρ / (2 (1 − ρ)) (Pollaczek and Khinchine).
        let (packet, n) = (Bytes::new(1_250), 400_000);
        let service = packet / GIGABIT;
        for load in [0.3, 0.7] {
            let (mut wire, mut random) = (Serialiser::default(), crate::random::Random::new(5));
            let (mut now, mut waited) = (Time::ZERO, 0.0);
            for _ in 0..n {
                let gap = -libm::log(1.0 - random.unit()) * service.as_secs_f64() / load;
                now += Span::from_secs_f64(gap);
                let left = wire.accept(now, packet, GIGABIT, Bytes::MAX).unwrap();
                waited += (left.since(now) - service).as_secs_f64();
            }
            let mean = waited / f64::from(n);
            let expected = service.as_secs_f64() * load / (2.0 * (1.0 - load));
            // Waits near each other are alike: the error is far above that of independent ones.
            assert!((mean / expected - 1.0).abs() < 0.03, "{load}: {mean} s, not {expected} s");
        }
    }

    #[test]
    fn a_rate_of_zero_takes_nothing() {
        let mut wire = Serialiser::default();
        assert_eq!(wire.accept(Time::ZERO, Bytes::new(1), Rate::ZERO, Bytes::MAX), None);
    }
}
