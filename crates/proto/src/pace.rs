//! Pacing by token buckets, which count bytes.
//!
//! Two token buckets work together; a datagram leaves only if both allow it. The *long* bucket
//! keeps the exact mean rate, and up to 10 ms of credit for a driver (the sending program) that is
//! late. The *short* bucket fills at 108 % of the rate. It limits how much leaves at one time and
//! how fast a late driver catches up. Its credit of 250 µs lets a driver catch up even if it is
//! always a little late. A driver that is on time sends half a burst; a late driver sends up to a
//! whole burst plus this credit. A flow that has nothing to send calls [`Pacer::idle`], which drops
//! all credit except half a burst.

use crate::time::{Span, Time};
use crate::units::{Bytes, Rate};

/// Longest duration of a burst larger than [`MOST`]: short compared with a queue on the path, long
/// compared with a system call.
const BURST: Span = Span::from_micros(250);
/// Longest duration of a burst of at most [`MOST`] bytes, unless one datagram takes longer. A
/// wake-up every 250 µs would be too expensive for a slow flow.
const SLOW_BURST: Span = Span::from_millis(1);
/// Size limit of a burst that lasts longer than [`BURST`]: twice what Linux's TCP sends at most in
/// a pacing step (64 KiB), because a driver on time sends half a burst.
const MOST: Bytes = Bytes::new(2 * 65_536);
/// Maximum number of datagrams in a burst: twice the 44 datagrams of 1,472 bytes that fit into one
/// segmented send (GSO, at most 64 KiB). So half a burst still fills one send.
const MAX_BURST: u64 = 88;
/// How much lateness the long bucket makes up for: a few time slices of a busy core.
const CREDIT: Span = Span::from_millis(10);
/// A rate that rises by more than this factor jumps.
const JUMP: f64 = 4.0;
/// Catch-up rate, in per cent of the rate.
const CATCH_UP: u64 = 108;

/// Minimum number of extra datagrams for a driver whose lateness is forgiven
/// ([`Pacer::forgive`]): TCP's initial window (RFC 6928).
const OWED: u64 = 10;

const PICOS: u128 = 1_000_000_000_000;

/// Releases datagrams at a rate.
#[derive(Clone, Debug)]
pub struct Pacer {
    rate: Rate,
    datagram: Bytes,
    burst: u64,
    /// The fixed burst size, if one was set.
    fixed: Option<u64>,
    /// Datagrams of the current fixed burst that have not been sent.
    begun: u64,
    /// Upper limit of the burst size at any rate.
    most: u64,
    /// A late driver may send as much as the rate carries in this time, in addition to its burst.
    owed: Span,
    /// Whether nothing has been sent yet; the first send is treated like a send after an idle time.
    is_new: bool,
    /// When the long bucket is full, in picoseconds.
    long: u128,
    /// When the short bucket is full, in picoseconds.
    short: u128,
}

impl Pacer {
    /// A pacer for datagrams of at most `datagram` bytes of UDP payload at `rate`.
    pub fn new(rate: Rate, datagram: Bytes) -> Pacer {
        let burst = burst_of(rate, datagram);
        Pacer {
            rate,
            datagram,
            burst,
            fixed: None,
            begun: 0,
            most: u64::MAX,
            owed: Span::ZERO,
            is_new: true,
            long: 0,
            short: 0,
        }
    }

    /// The rate.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Datagrams of a burst: a driver that is on time sends half of them, a late driver all. A
    /// fixed burst leaves as a whole.
    pub fn burst(&self) -> u64 {
        self.burst
    }

    /// Changes the rate from `now` on.
    pub fn set_rate(&mut self, now: Time, rate: Rate) {
        if rate == self.rate {
            return;
        }
        // Datagrams that were sent before the change are charged at the old rate. This debt is
        // limited to one burst: at the old rate, or after a jump to a much higher rate at the new
        // rate, because one datagram at a very low rate would delay a fast flow for long.
        let now = picos(now);
        let before = self.cost(self.burst);
        let jumps = rate > self.rate.scale(JUMP);
        self.rate = rate;
        self.burst = self.burst_at_rate();
        let most = now + if jumps { self.cost(self.burst).min(before) } else { before };
        self.long = self.long.min(most);
        self.short = self.short.min(most);
    }

    pub(crate) fn fix_burst(&mut self, datagrams: u64) {
        self.fixed = Some(datagrams.max(1));
        self.burst = self.burst_at_rate();
    }

    /// Limits the burst size, also of fixed bursts; at least 1 datagram.
    pub(crate) fn limit_burst(&mut self, datagrams: u64) {
        self.most = datagrams.max(1);
        self.burst = self.burst_at_rate();
    }

    fn burst_at_rate(&self) -> u64 {
        self.fixed.unwrap_or_else(|| burst_of(self.rate, self.datagram)).min(self.most)
    }

    /// Lets a late driver send more datagrams together, in addition to its burst: as many as the
    /// rate carries in the time `late`, at least ten and at most [`MAX_BURST`]. A limit of the
    /// burst size applies to them too. A fixed burst stays as it is.
    pub fn forgive(&mut self, late: Span) {
        self.owed = late;
    }

    /// Number of full datagrams that may leave now. Zero before the time of [`Pacer::next`]: a
    /// driver that polls continuously would otherwise make a system call for each datagram.
    pub fn allowance(&self, now: Time) -> u64 {
        if self.rate == Rate::ZERO {
            return 0;
        }
        if self.begun > 0 {
            return self.begun;
        }
        if self.is_new {
            return self.half();
        }
        let now = picos(now);
        let long = self.long.max(now.saturating_sub(picos_of(CREDIT)));
        let room = |full: u128, burst: u128, cost: u128| {
            (now + burst).saturating_sub(full).checked_div(cost).unwrap_or(u128::MAX)
        };
        let (one, all) = (self.cost(1), self.cost(self.burst));
        let by_long = room(long, all, one);
        let (one, all) = (quick(one), quick(all));
        let by_short = room(self.short.max(now.saturating_sub(self.remembered())), all, one);
        let count = by_long.min(by_short).min(u128::from(self.burst.max(self.late()))) as u64;
        if count < self.half() { 0 } else { count }
    }

    /// Charges `sent` bytes of UDP payload that leave now.
    pub fn spend(&mut self, now: Time, sent: Bytes) {
        if core::mem::take(&mut self.is_new) {
            self.idle(now);
        }
        let now = picos(now);
        let cost = self.cost_of(sent);
        self.long = self.long.max(now.saturating_sub(picos_of(CREDIT))) + cost;
        self.short = self.short.max(now.saturating_sub(self.remembered())) + quick(cost);
        if self.fixed.is_some() {
            // Sending only a part of a burst does not end the burst.
            let left = if self.begun > 0 { self.begun } else { self.burst };
            self.begun = left.saturating_sub(sent.get().div_ceil(self.datagram.get().max(1)));
        }
    }

    /// Records that there was nothing to send: unused time gives no credit, and the next send
    /// starts with half a burst.
    pub fn idle(&mut self, now: Time) {
        let half = self.cost(self.burst - self.half());
        self.long = self.long.max(picos(now) + half);
        self.begun = 0;
    }

    /// When at least half a burst may leave; the other half is the driver's tolerance for lateness.
    /// A fixed burst leaves as a whole.
    pub fn next(&self) -> Time {
        if self.rate == Rate::ZERO {
            return Time::NEVER;
        }
        if self.begun > 0 {
            return Time::ZERO;
        }
        let spare = self.cost(self.burst - self.half());
        let long = self.long.saturating_sub(spare);
        let short = self.short.saturating_sub(quick(spare));
        let nanos = long.max(short).div_ceil(1000);
        u64::try_from(nanos).map_or(Time::NEVER, Time::from_nanos)
    }

    /// Maximum number of datagrams that a late driver may send together in addition to its burst.
    fn late(&self) -> u64 {
        if self.owed == Span::ZERO || self.fixed.is_some() {
            return 0;
        }
        (self.rate.over(self.owed).get() / self.datagram.get().max(1))
            .clamp(OWED, MAX_BURST)
            .min(self.most)
    }

    /// How much lateness the short bucket makes up for, in picoseconds.
    fn remembered(&self) -> u128 {
        let short = self.rate.over(BURST).get() / self.datagram.get().max(1);
        quick(self.cost(self.fixed.unwrap_or(short.clamp(1, self.burst)).max(self.late())))
    }

    fn half(&self) -> u64 {
        if self.fixed.is_some() { self.burst } else { (self.burst / 2).max(1) }
    }

    fn cost(&self, datagrams: u64) -> u128 {
        self.cost_of(self.datagram) * u128::from(datagrams)
    }

    /// Picoseconds that `bytes` take at the rate; practically infinite at rate zero.
    fn cost_of(&self, bytes: Bytes) -> u128 {
        let bits = u128::from(bytes.get()) * 8;
        (bits * PICOS).checked_div(u128::from(self.rate.as_bps())).unwrap_or(u128::from(u64::MAX))
    }
}

/// Converts a duration at the rate to one at the catch-up rate.
fn quick(picos: u128) -> u128 {
    picos * 100 / u128::from(CATCH_UP)
}

fn burst_of(rate: Rate, datagram: Bytes) -> u64 {
    let within = |span| rate.over(span).get() / datagram.get().max(1);
    let most = MOST.get() / datagram.get().max(1);
    within(BURST).max(within(SLOW_BURST).min(most)).clamp(1, MAX_BURST)
}

fn picos(time: Time) -> u128 {
    u128::from(time.as_nanos()) * 1000
}

fn picos_of(span: Span) -> u128 {
    u128::from(span.as_nanos()) * 1000
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const DATAGRAM: Bytes = Bytes::new(1472);

    /// Sends for a second; `late` gives the lateness of each wake-up. Returns times and datagrams.
    fn drive(rate: Rate, mut late: impl FnMut() -> Span) -> Vec<(Time, u64)> {
        let mut pacer = Pacer::new(rate, DATAGRAM);
        let (mut now, mut sent) = (Time::ZERO, Vec::new());
        while now < Time::from_nanos(1_000_000_000) {
            let count = pacer.allowance(now);
            if count > 0 {
                pacer.spend(now, Bytes::new(count * DATAGRAM.get()));
                sent.push((now, count));
            }
            let next = pacer.next();
            assert!(next > now || pacer.allowance(now) > 0, "a wake-up in the past at {now:?}");
            now = next.max(now) + late();
        }
        sent
    }

    fn total(sent: &[(Time, u64)]) -> u64 {
        sent.iter().map(|(_, count)| count).sum()
    }

    #[test]
    fn the_mean_rate_is_exact_from_slow_to_fast() {
        for mbps in [10, 100, 611, 1_000, 10_000] {
            let rate = Rate::from_mbps(mbps);
            let expected = rate.over(Span::from_secs(1)).get() / DATAGRAM.get();
            let sent = total(&drive(rate, || Span::ZERO));
            assert!(sent.abs_diff(expected) <= MAX_BURST + 1, "{mbps}: {sent} of {expected}");
        }
    }

    #[test]
    fn a_driver_that_sometimes_wakes_late_keeps_the_mean_rate() {
        for mbps in [10, 1_000, 4_000] {
            let rate = Rate::from_mbps(mbps);
            let mut turn = 0u64;
            let sent = total(&drive(rate, || {
                turn += 1;
                Span::from_micros(if turn.is_multiple_of(50) { 500 } else { 3 })
            }));
            let expected = rate.over(Span::from_secs(1)).get() / DATAGRAM.get();
            assert!(sent.abs_diff(expected) <= expected / 100 + 50, "{mbps}: {sent} of {expected}");
        }
    }

    #[test]
    fn a_driver_that_always_wakes_late_and_sometimes_sleeps_long_keeps_the_mean_rate() {
        for mbps in [100, 1_000, 6_000] {
            let rate = Rate::from_mbps(mbps);
            let mut turn = 0u64;
            let sent = total(&drive(rate, || {
                turn += 1;
                Span::from_micros(if turn.is_multiple_of(1_000) { 8_000 } else { 60 })
            }));
            let expected = rate.over(Span::from_secs(1)).get() / DATAGRAM.get();
            // The last delay may be too close to the end to be made up for.
            assert!(sent.abs_diff(expected) <= expected / 100 + 50, "{mbps}: {sent} of {expected}");
        }
    }

    #[test]
    fn a_flow_that_was_very_slow_is_fast_within_a_millisecond_of_a_higher_rate() {
        let mut pacer = Pacer::new(Rate::from_bps(100_000), DATAGRAM);
        pacer.spend(Time::ZERO, DATAGRAM);
        // At 100 kbit/s, one datagram takes 118 ms.
        assert!(pacer.next() > Time::ZERO + Span::from_millis(100));
        let now = Time::ZERO + Span::from_millis(10);
        pacer.set_rate(now, Rate::from_mbps(900));
        assert!(pacer.next() <= now + Span::from_millis(1));
    }

    #[test]
    fn catching_up_is_limited_by_the_catch_up_rate_and_by_a_credit_of_10_ms() {
        let rate = Rate::from_mbps(1_000);
        for stall in [5, 10, 500] {
            let mut woken = false;
            let sent = drive(rate, || {
                if core::mem::replace(&mut woken, true) {
                    Span::ZERO
                } else {
                    Span::from_millis(stall)
                }
            });
            for (at, (from, _)) in sent.iter().enumerate() {
                let until = *from + Span::from_millis(5);
                let within: u64 =
                    sent[at..].iter().take_while(|(t, _)| *t < until).map(|(_, count)| count).sum();
                let most = rate.over(Span::from_millis(5)).get() / DATAGRAM.get() * CATCH_UP / 100;
                assert!(within <= most + 2 * 84, "{stall} ms: {within} within 5 ms, at {from:?}");
            }
            let lost = Span::from_millis(stall).saturating_sub(CREDIT);
            let expected =
                rate.over(Span::from_secs(1).saturating_sub(lost)).get() / DATAGRAM.get();
            let sent = total(&sent);
            assert!(sent.abs_diff(expected) <= 2 * 84, "{stall} ms: {sent} of {expected}");
        }
    }

    #[test]
    fn a_sender_woken_once_a_millisecond_keeps_its_rate_if_lateness_is_forgiven() {
        for mbps in [5, 20, 80, 310] {
            let rate = Rate::from_mbps(mbps);
            let expected = rate.over(Span::from_secs(1)).get() / DATAGRAM.get();
            let mut pacer = Pacer::new(rate, DATAGRAM);
            pacer.forgive(Span::from_millis(2));
            let (mut sent, mut most) = (0, 0);
            for wake in 0..1_000 {
                let now = Time::ZERO + Span::from_millis(wake);
                // A driver polls until nothing is allowed, so this counts all polls of one instant.
                let mut at_once = 0;
                while let count @ 1.. = pacer.allowance(now) {
                    pacer.spend(now, Bytes::new(count * DATAGRAM.get()));
                    at_once += count;
                }
                (sent, most) = (sent + at_once, most.max(at_once));
            }
            assert!(sent.abs_diff(expected) <= expected / 100 + 100, "{mbps}: {sent}, {expected}");
            let two = rate.over(Span::from_millis(3)).get() / DATAGRAM.get() + OWED;
            assert!(most <= two, "{mbps}: {most} together");
        }
    }

    #[test]
    fn a_late_driver_may_send_what_the_rate_carries_in_the_forgiven_time() {
        let late = |mbps, millis, change: fn(&mut Pacer)| {
            let mut pacer = Pacer::new(Rate::from_mbps(mbps), DATAGRAM);
            pacer.forgive(Span::from_millis(millis));
            change(&mut pacer);
            pacer.late()
        };
        let keep = |_: &mut Pacer| {};
        assert_eq!((late(300, 2, keep), late(300, 0, keep)), (50, 0));
        assert_eq!((late(10, 2, keep), late(10_000, 2, keep)), (OWED, MAX_BURST));
        assert_eq!(late(300, 2, |pacer| pacer.limit_burst(3)), 3);
        assert_eq!(late(300, 2, |pacer| pacer.fix_burst(25)), 0);
    }

    #[test]
    fn bursts_are_bounded_by_time_bytes_and_count() {
        let burst = |mbps, bytes| Pacer::new(Rate::from_mbps(mbps), Bytes::new(bytes)).burst();
        assert_eq!((burst(10, 1_472), burst(120, 1_472), burst(300, 1_472)), (1, 10, 25));
        assert_eq!((burst(1_000, 1_472), burst(10_000, 1_472)), (84, MAX_BURST));
        // [`MOST`] holds 14 jumbo datagrams: a millisecond at 2 Gbit/s would be 27 of them.
        assert_eq!((burst(1_000, 8_972), burst(2_000, 8_972)), (13, 14));
        assert_eq!((burst(10_000, 8_972), burst(100_000, 8_972)), (34, MAX_BURST));
    }

    #[test]
    fn a_change_of_rate_keeps_the_size_of_a_fixed_burst_and_gives_the_new_mean_rate() {
        let mut pacer = Pacer::new(Rate::from_mbps(1_000), DATAGRAM);
        pacer.fix_burst(25);
        pacer.set_rate(Time::ZERO, Rate::from_mbps(10));
        assert_eq!((pacer.burst(), pacer.allowance(Time::ZERO)), (25, 25));
        pacer.spend(Time::ZERO, Bytes::new(25 * DATAGRAM.get()));
        let whole = Bytes::new(25 * DATAGRAM.get()) / Rate::from_mbps(10);
        assert_eq!((pacer.allowance(Time::ZERO + whole), pacer.next()), (25, Time::ZERO + whole));
    }

    #[test]
    fn a_limit_only_shortens_bursts() {
        let mut pacer = Pacer::new(Rate::from_mbps(1_000), DATAGRAM);
        pacer.limit_burst(7);
        assert_eq!((pacer.burst(), pacer.allowance(Time::ZERO)), (7, 3));
        pacer.set_rate(Time::ZERO, Rate::from_mbps(10));
        assert_eq!(pacer.burst(), 1);
        pacer.fix_burst(25);
        assert_eq!(pacer.burst(), 7);
        pacer.limit_burst(u64::MAX);
        assert_eq!((pacer.burst(), pacer.allowance(Time::ZERO)), (25, 25));
    }

    #[test]
    fn a_fixed_burst_that_is_sent_in_parts_leaves_without_a_pause() {
        let mut pacer = Pacer::new(Rate::from_mbps(100), DATAGRAM);
        pacer.fix_burst(25);
        for (sent, left) in [(7, 18), (7, 11), (1, 10)] {
            pacer.spend(Time::ZERO, Bytes::new(sent * DATAGRAM.get()));
            assert_eq!((pacer.allowance(Time::ZERO), pacer.next()), (left, Time::ZERO));
        }
        pacer.spend(Time::ZERO, Bytes::new(10 * DATAGRAM.get()));
        let whole = Bytes::new(25 * DATAGRAM.get()) / Rate::from_mbps(100);
        assert_eq!((pacer.allowance(Time::ZERO), pacer.next()), (0, Time::ZERO + whole));
        // The unsent rest of a burst is dropped when there was nothing more to send.
        pacer.spend(Time::ZERO + whole, DATAGRAM);
        pacer.idle(Time::ZERO + whole);
        assert_eq!(pacer.allowance(Time::ZERO + whole), 0);
    }

    #[test]
    fn a_start_or_an_idle_time_gives_at_most_half_a_burst() {
        let mut pacer = Pacer::new(Rate::from_mbps(1_000), DATAGRAM);
        for begin in [Time::ZERO + Span::from_secs(1), Time::ZERO + Span::from_secs(9)] {
            let half = pacer.burst() / 2;
            assert_eq!(pacer.allowance(begin), half);
            pacer.spend(begin, Bytes::new(half * DATAGRAM.get()));
            let next = pacer.next();
            let before = Time::from_nanos(next.as_nanos() - 1);
            assert_eq!((pacer.allowance(begin), pacer.allowance(before)), (0, 0));
            assert_eq!(pacer.allowance(next), half);
            pacer.spend(next, Bytes::new(half * DATAGRAM.get()));
            pacer.idle(Time::ZERO + Span::from_secs(9));
        }
    }

    #[test]
    fn a_driver_on_time_sends_half_a_burst_and_a_late_driver_a_whole_burst_or_more() {
        // Less than half a burst never leaves, so the credit of 250 µs counts only if bursts are
        // shorter than 500 µs.
        for (mbps, on_time, most) in [(120, 5, 10), (1_000, 42, 84), (10_000, 44, 176)] {
            let mut pacer = Pacer::new(Rate::from_mbps(mbps), DATAGRAM);
            let mut at_once = |now: Time| {
                let mut sent = 0;
                while let count @ 1.. = pacer.allowance(now) {
                    pacer.spend(now, Bytes::new(count * DATAGRAM.get()));
                    sent += count;
                }
                (sent, pacer.next())
            };
            let (start, next) = at_once(Time::ZERO);
            let (again, _) = at_once(next);
            assert_eq!((start, again), (on_time, on_time), "{mbps}");
            let (late, _) = at_once(next + Span::from_millis(9));
            assert_eq!(late, most, "{mbps}");
        }
    }

    #[test]
    fn a_driver_that_polls_continuously_gets_at_least_half_a_burst_at_a_time() {
        for mbps in [100, 1_000, 8_000] {
            let mut pacer = Pacer::new(Rate::from_mbps(mbps), DATAGRAM);
            let half = (pacer.burst() / 2).max(1);
            let mut sent = 0;
            for micros in 0..100_000 {
                let now = Time::ZERO + Span::from_micros(micros);
                let count = pacer.allowance(now);
                assert!(count == 0 || count >= half, "{mbps}: {count}");
                pacer.spend(now, Bytes::new(count * DATAGRAM.get()));
                sent += count;
            }
            let all = Rate::from_mbps(mbps).over(Span::from_millis(100)).get() / DATAGRAM.get();
            assert!(sent.abs_diff(all) <= pacer.burst() + all / 100, "{mbps}: {sent} of {all}");
        }
    }

    #[test]
    fn a_rate_of_zero_releases_nothing() {
        let mut pacer = Pacer::new(Rate::from_mbps(100), DATAGRAM);
        pacer.set_rate(Time::ZERO, Rate::ZERO);
        assert_eq!((pacer.allowance(Time::ZERO), pacer.next()), (0, Time::NEVER));
        pacer.set_rate(Time::ZERO, Rate::from_mbps(100));
        assert!(pacer.next() < Time::from_nanos(1_000_000));
    }

    proptest! {
        #[test]
        fn no_window_carries_more_than_the_catch_up_rate_and_two_bursts(
            mbps in 5u64..12_000, lateness in prop::collection::vec(0u64..400, 1..20),
        ) {
            let rate = Rate::from_mbps(mbps);
            let mut turn = 0;
            let sent = drive(rate, || {
                turn += 1;
                Span::from_micros(lateness[turn % lateness.len()])
            });
            let fastest = rate.scale(CATCH_UP as f64 / 100.0);
            let burst = Pacer::new(rate, DATAGRAM).burst();
            for window in sent.windows(8) {
                let span = window[7].0.since(window[0].0);
                let room = fastest.over(span).get() / DATAGRAM.get() + 2 * burst + 1;
                prop_assert!(total(&window[..7]) <= room);
            }
        }
    }
}
