//! A link's rate, with a drop-tail queue before it.

use std::collections::VecDeque;

use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::{Bytes, Rate};

/// Sends packets one after another at the link's rate. Stores no packets, only busy periods; each
/// has one rate. The queue is the rate times the remaining time of the current period, plus the
/// bytes of the later periods. So a change of the rate does not change the number of queued bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Serialiser {
    free_at: Time,
    /// The fraction of a nanosecond to add to `free_at`: a numerator over the rate in bit/s,
    /// carried on so that rounding errors do not add up at a constant rate.
    fraction: u64,
    /// The busy periods, contiguous and in order.
    busy: VecDeque<Stretch>,
    bytes: Bytes,
}

#[derive(Clone, Copy, Debug)]
struct Stretch {
    until: Time,
    /// `None`: packets need no time to send; they leave at `until`.
    rate: Option<Rate>,
    bytes: Bytes,
}

impl Serialiser {
    /// Bytes waiting or being sent at `now`.
    pub(super) fn backlog(&self, now: Time) -> Bytes {
        let mut rest = self.bytes;
        for stretch in &self.busy {
            rest = rest.saturating_sub(stretch.bytes);
            if stretch.until >= now {
                // No later period has begun.
                let left = stretch.until.since(now);
                return rest + stretch.rate.map_or(stretch.bytes, |rate| rate.over(left));
            }
        }
        Bytes::ZERO
    }

    /// The time when the wire is free for a packet offered at `now`.
    pub(super) fn turn(&self, now: Time) -> Time {
        self.free_at.max(now)
    }

    /// The time when a packet of `wire` bytes offered at `now` has left; `None` if the backlog
    /// would exceed `queue` bytes, or at a rate of zero. `rate` is the rate at the packet's
    /// [`Serialiser::turn`]; with `None`, the packet needs no time to send and leaves at its turn.
    pub(super) fn accept(
        &mut self,
        now: Time,
        wire: Bytes,
        rate: Option<Rate>,
        queue: Bytes,
    ) -> Option<Time> {
        while let Some(over) = self.busy.pop_front_if(|stretch| stretch.until < now) {
            self.bytes = self.bytes.saturating_sub(over.bytes);
        }
        let turn = self.turn(now);
        if rate.is_none() && turn == now {
            return Some(now);
        }
        if rate == Some(Rate::ZERO) || self.backlog(now) + wire > queue {
            return None;
        }
        if self.busy.back().is_none_or(|last| last.rate != rate) {
            self.fraction = 0;
            self.busy.push_back(Stretch { until: turn, rate, bytes: Bytes::ZERO });
        }
        self.free_at = turn + rate.map_or(Span::ZERO, |rate| self.takes(wire, rate));
        if let Some(last) = self.busy.back_mut() {
            last.until = self.free_at;
            last.bytes += wire;
            self.bytes += wire;
        }
        Some(self.free_at)
    }

    /// The transmission time of `wire` bytes in whole nanoseconds; `fraction` keeps the rest.
    fn takes(&mut self, wire: Bytes, rate: Rate) -> Span {
        let bps = rate.as_bps();
        let work = u128::from(wire.get()) * 8_000_000_000 + u128::from(self.fraction);
        // A 64-bit division is several times as fast as a 128-bit one.
        if let Ok(work) = u64::try_from(work) {
            self.fraction = work % bps;
            return Span::from_nanos(work / bps);
        }
        // The remainder is smaller than the rate, so it fits 64 bits.
        self.fraction = (work % u128::from(bps)) as u64;
        Span::from_nanos(u64::try_from(work / u128::from(bps)).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIGABIT: Rate = Rate::from_mbps(1_000);

    #[test]
    fn rounding_errors_do_not_add_up_over_100_000_packets_at_a_constant_rate() {
        let (mut wire, rate) = (Serialiser::default(), Rate::from_bps(7_777_777_777));
        let packet = Bytes::new(1_538);
        let mut left = Time::ZERO;
        for _ in 0..100_000 {
            left = wire.accept(Time::ZERO, packet, Some(rate), Bytes::MAX).unwrap();
        }
        let exact = Bytes::new(153_800_000) / rate;
        assert_eq!(left.since(Time::ZERO), exact);
    }

    #[test]
    fn an_idle_wire_sends_a_packet_immediately() {
        let mut wire = Serialiser::default();
        let now = Time::from_nanos(5_000);
        let left = wire.accept(now, Bytes::new(125), Some(GIGABIT), Bytes::new(125));
        assert_eq!(left, Some(now + Span::from_micros(1)));
        assert_eq!(wire.backlog(now), Bytes::new(125));
    }

    #[test]
    fn a_full_queue_drops_the_newest_and_drains_with_time() {
        let mut wire = Serialiser::default();
        let (packet, queue) = (Bytes::new(1_000), Bytes::new(3_000));
        let took = (0..5)
            .filter(|_| wire.accept(Time::ZERO, packet, Some(GIGABIT), queue).is_some())
            .count();
        assert_eq!(took, 3);
        // One is being sent, for 8 µs, and two wait.
        assert_eq!(wire.backlog(Time::ZERO), queue);
        let later = Time::from_nanos(8_000);
        assert!(wire.accept(later, packet, Some(GIGABIT), queue).is_some());
    }

    #[test]
    fn packets_at_random_wait_as_long_as_queueing_theory_says() {
        // M/D/1 (fixed service s, random arrivals, load ρ): the mean wait is s × ρ / (2 (1 − ρ))
        // (Pollaczek and Khinchine).
        let (packet, n) = (Bytes::new(1_250), 400_000);
        let service = packet / GIGABIT;
        for load in [0.3, 0.7] {
            let (mut wire, mut random) = (Serialiser::default(), crate::random::Random::new(5));
            let (mut now, mut waited) = (Time::ZERO, 0.0);
            for _ in 0..n {
                let gap = -libm::log(1.0 - random.unit()) * service.as_secs_f64() / load;
                now += Span::from_secs_f64(gap);
                let left = wire.accept(now, packet, Some(GIGABIT), Bytes::MAX).unwrap();
                waited += (left.since(now) - service).as_secs_f64();
            }
            let mean = waited / f64::from(n);
            let expected = service.as_secs_f64() * load / (2.0 * (1.0 - load));
            // Neighbouring waits are correlated, so the error is larger than for independent waits.
            assert!((mean / expected - 1.0).abs() < 0.03, "{load}: {mean} s, not {expected} s");
        }
    }

    #[test]
    fn a_link_with_a_rate_of_zero_accepts_no_packet() {
        let mut wire = Serialiser::default();
        assert_eq!(wire.accept(Time::ZERO, Bytes::new(1), Some(Rate::ZERO), Bytes::MAX), None);
    }

    #[test]
    fn the_queue_is_counted_in_bytes_at_any_rate() {
        let (mut wire, packet) = (Serialiser::default(), Bytes::new(1_000));
        // One packet takes 8 µs at 1 Gbit/s, one 80 µs at 100 Mbit/s, and one needs no time.
        for rate in [Some(GIGABIT), Some(Rate::from_mbps(100)), None] {
            wire.accept(Time::ZERO, packet, rate, Bytes::MAX).unwrap();
        }
        for (nanos, waits) in [(0, 3_000), (4_000, 2_500), (48_000, 1_500), (88_001, 0)] {
            assert_eq!(wire.backlog(Time::from_nanos(nanos)), Bytes::new(waits), "{nanos} ns");
        }
        let later = Time::from_nanos(48_000);
        assert_eq!(wire.accept(later, packet, Some(GIGABIT), Bytes::new(2_499)), None);
        let left = wire.accept(later, packet, Some(GIGABIT), Bytes::new(2_500));
        assert_eq!(left, Some(Time::from_nanos(96_000)));
    }
}
