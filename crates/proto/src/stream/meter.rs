//! Measurements of the path from the datagrams of one flow. Each datagram carries a piece of a
//! frame (a *symbol*) and the sender's time stamp.

use crate::fec::Losses;
use crate::time::{Span, Time};
use crate::units::LossRatio;

/// Each count is kept for one to two windows of this length. A window ends at the first datagram
/// after this time, so a pause lengthens it.
const WINDOW: Span = Span::from_secs(15);
/// Minimum loss ratio if fewer than [`ENOUGH`] datagrams were sent in the windows.
const BEFORE: f64 = 0.005;
/// Minimum number of datagrams sent (received or lost) in the windows for a loss ratio that may be
/// below [`BEFORE`].
const ENOUGH: u64 = 2_000;
/// Minimum loss ratio for repairs: a path that has lost nothing so far may still start to lose.
const LEAST: f64 = 0.0005;
/// Highest loss ratio for repairs: a code for more losses would send a multiple of the stream's
/// rate.
const MOST: f64 = 0.1;
/// Minimum number of losses from which the mean burst length is computed.
const BURSTS: u64 = 20;
/// Longest mean burst for repairs, in datagrams.
const LONGEST: f64 = 64.0;
/// Upper limit of a single delay difference, in µs.
const MOST_JITTER: i64 = 60_000_000;

/// Counts of one window.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    received: u64,
    lost: u64,
    bursts: u64,
    /// Minimum and maximum of (arrival − stamp) of the first symbols of frames, in µs.
    offsets: Option<(i64, i64)>,
}

/// Measures losses, their burst length, and delay variation from packet numbers and stamps.
#[derive(Clone, Debug)]
pub struct Meter {
    /// A gap in the packet numbers after a longer pause than this is an outage, which no code can
    /// repair.
    outage: Span,
    next: u64,
    last: Time,
    ends: Time,
    windows: [Counts; 2],
    received: u64,
    lost: u64,
    reordered: u64,
    /// The jitter of RFC 3550, section 6.4.1, in 1/16 µs.
    jitter: i64,
    before: Option<i64>,
    /// The (arrival − stamp) of the first 32-bit stamp, in µs.
    base: Option<u32>,
}

impl Meter {
    /// A meter for a stream with frames every `interval`.
    pub fn new(interval: Span) -> Meter {
        Meter {
            outage: interval * 4 + Span::from_millis(250),
            next: 0,
            last: Time::ZERO,
            ends: Time::ZERO,
            windows: [Counts::default(); 2],
            received: 0,
            lost: 0,
            reordered: 0,
            jitter: 0,
            before: None,
            base: None,
        }
    }

    /// Takes in the arrival of a datagram with this packet number.
    pub fn on_datagram(&mut self, now: Time, number: u64) {
        if now >= self.ends {
            self.windows = [self.windows[1], Counts::default()];
            self.ends = now + WINDOW;
        }
        let counts = &mut self.windows[1];
        counts.received += 1;
        self.received += 1;
        let gap = number.saturating_sub(self.next);
        if number < self.next {
            counts.lost = counts.lost.saturating_sub(1);
            self.lost = self.lost.saturating_sub(1);
            self.reordered += 1;
        } else if gap > 0 && self.received > 1 && now.since(self.last) <= self.outage {
            counts.lost = counts.lost.saturating_add(gap);
            counts.bursts += 1;
            self.lost = self.lost.saturating_add(gap);
        }
        self.next = self.next.max(number.saturating_add(1));
        self.last = now;
    }

    /// Takes in the first symbol of a frame with this stamp in µs, which wraps after 71 minutes.
    /// The clocks of both ends may differ.
    pub fn on_stamp(&mut self, arrived: Time, stamp: u32) {
        let offset = ((arrived.as_nanos() / 1_000) as u32).wrapping_sub(stamp);
        let base = *self.base.get_or_insert(offset);
        self.on_frame(i64::from(offset.wrapping_sub(base) as i32));
    }

    /// Takes in the first symbol of a frame, which arrived `offset` µs after its stamp; the two
    /// clocks may differ.
    pub fn on_frame(&mut self, offset: i64) {
        let (least, most) = self.windows[1].offsets.unwrap_or((offset, offset));
        self.windows[1].offsets = Some((least.min(offset), most.max(offset)));
        if let Some(before) = self.before.replace(offset) {
            let difference = offset.saturating_sub(before).saturating_abs().min(MOST_JITTER);
            self.jitter += difference - (self.jitter + 8) / 16;
        }
    }

    /// The losses that repairs must cover: the loss ratio of the last 15 to 30 s plus a margin (two
    /// standard deviations and two losses), limited to 0.05 to 10 %. If fewer than [`ENOUGH`]
    /// datagrams were sent in this time, the ratio has no margin, but is at least 0.5 %; fewer than
    /// 100 datagrams count as 100.
    pub fn losses(&self) -> Losses {
        let sum =
            |count: fn(&Counts) -> u64| self.windows.iter().map(count).fold(0, u64::saturating_add);
        let (received, lost) = (sum(|c| c.received), sum(|c| c.lost));
        let (bursts, sent) = (sum(|c| c.bursts), received.saturating_add(lost));
        let likely = lost as f64 + 2.0 * libm::sqrt(lost as f64) + 2.0;
        let share = match sent {
            0..ENOUGH => BEFORE.max(lost as f64 / sent.max(100) as f64),
            sent => likely / sent as f64,
        };
        let burst = if lost < BURSTS { 1.0 } else { lost as f64 / bursts.max(1) as f64 };
        let ratio = LossRatio::new(share.clamp(LEAST, MOST));
        Losses::bursty(ratio.expect("a share within its limits"), burst.min(LONGEST))
    }

    /// Delay variation of the first symbols of frames in the last 15 to 30 s: slowest minus
    /// fastest.
    pub fn spread(&self) -> Span {
        let offsets = self.windows.iter().filter_map(|counts| counts.offsets);
        let all = offsets.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        all.map_or(Span::ZERO, |(least, most)| {
            Span::from_micros(most.saturating_sub(least).unsigned_abs())
        })
    }

    /// The smoothed difference between the delays of successive frames, as in RTP (RFC 3550,
    /// section 6.4.1).
    pub fn jitter(&self) -> Span {
        Span::from_micros((self.jitter / 16).unsigned_abs())
    }

    /// Datagrams received, lost, and received late, since the beginning.
    pub fn counts(&self) -> (u64, u64, u64) {
        (self.received, self.lost, self.reordered)
    }
}

/// The combined losses of two paths in a row.
pub fn chain(first: Losses, second: Losses) -> Losses {
    let arrives = (1.0 - first.ratio().get()) * (1.0 - second.ratio().get());
    let ratio = LossRatio::new((1.0 - arrives).clamp(0.0, 1.0));
    Losses::bursty(ratio.expect("a share"), first.burst().max(second.burst()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Time {
        Time::from_nanos(1_000_000_000 + micros * 1_000)
    }

    fn meter() -> Meter {
        Meter::new(Span::from_millis(50))
    }

    #[test]
    fn gaps_in_the_numbers_are_losses_and_a_late_datagram_is_none() {
        let mut meter = meter();
        // One in a hundred is lost, in pairs. The pair before the first arrival does not count.
        for n in (0..100_000_u64).filter(|n| n % 200 > 1) {
            meter.on_datagram(at(n * 50), n);
        }
        let (received, lost, reordered) = meter.counts();
        assert_eq!((received, lost, reordered), (99_000, 998, 0));
        let losses = meter.losses();
        assert!((0.0100..0.0108).contains(&losses.ratio().get()), "{losses:?}");
        assert!((1.99..2.01).contains(&losses.burst()), "{losses:?}");
        meter.on_datagram(at(5_000_000), 200);
        assert_eq!(meter.counts(), (99_001, 997, 1));
    }

    #[test]
    fn an_outage_is_no_loss_and_old_losses_are_forgotten() {
        let mut meter = meter();
        for n in (0..10_000_u64).filter(|n| n % 10 > 0) {
            meter.on_datagram(at(n * 50), n);
        }
        meter.on_datagram(at(10_000_000), 1_000_000);
        assert_eq!(meter.counts().1, 999);
        for n in 0..20_000_u64 {
            meter.on_datagram(at(10_000_000 + n * 2_000), 1_000_001 + n);
        }
        assert_eq!(meter.losses(), Losses::independent(LossRatio::new(LEAST).expect("a share")));
    }

    #[test]
    fn an_unmeasured_path_has_half_a_per_cent_loss_and_no_path_more_than_ten() {
        let share = |meter: &Meter| meter.losses().ratio().get();
        assert_eq!(share(&meter()), 0.005);
        let mut bad = meter();
        for n in (0..40_000_u64).filter(|n| n % 2 > 0) {
            bad.on_datagram(at(n * 50), n);
        }
        assert_eq!(share(&bad), 0.1);
        bad.on_datagram(at(2_000_001), u64::MAX);
        bad.on_datagram(at(2_000_002), 0);
        assert_eq!(share(&bad), 0.1);
    }

    #[test]
    fn jitter_is_smoothed_as_in_rtp_and_the_spread_is_slowest_minus_fastest() {
        let mut meter = meter();
        for n in 0..1_000 {
            meter.on_datagram(at(n * 50), n);
            meter.on_frame(-7_000_000 + (n as i64 % 2) * 2_000);
        }
        assert_eq!(meter.spread(), Span::from_millis(2));
        let jitter = meter.jitter();
        assert!(jitter > Span::from_micros(1_990) && jitter <= Span::from_millis(2), "{jitter}");
    }

    #[test]
    fn a_stamp_or_a_clock_that_wraps_makes_no_jitter() {
        for stamp in [u32::MAX - 500_000, 0, 1 << 31] {
            // In the first case the stamps wrap after half of the frames. The receiver's clock of
            // 32 bits has wrapped before the first frame.
            let mut meter = meter();
            for n in 0..100 {
                let arrived = at((1 << 32) - 500_000 + u64::from(n) * 10_000);
                meter.on_stamp(arrived, stamp.wrapping_add(n * 10_000));
            }
            assert_eq!((meter.jitter(), meter.spread()), (Span::ZERO, Span::ZERO));
        }
    }

    #[test]
    fn two_paths_in_a_row_lose_what_either_loses() {
        let losses = |share, burst| Losses::bursty(LossRatio::new(share).expect("a share"), burst);
        let both = chain(losses(0.01, 3.0), losses(0.02, 1.0));
        assert!((both.ratio().get() - 0.0298).abs() < 1e-12);
        assert_eq!(both.burst(), 3.0);
    }

    #[test]
    fn few_datagrams_show_their_loss_ratio_without_a_margin() {
        let share = |received: u64, lost: u64| {
            let mut meter = meter();
            meter.on_datagram(at(0), 0);
            (1..received).for_each(|n| meter.on_datagram(at(n), n + lost));
            assert_eq!(meter.counts(), (received, lost, 0));
            meter.losses().ratio().get()
        };
        assert_eq!(
            [share(190, 10), share(1_999, 0), share(1_960, 39)],
            [0.05, 0.005, 39.0 / 1_999.0]
        );
        // Fewer than 100 datagrams count as 100.
        assert_eq!(share(18, 2), 0.02);
        // From 2,000 datagrams on, two standard deviations and two losses are added.
        assert_eq!(share(1_964, 36), (36.0 + 12.0 + 2.0) / 2_000.0);
    }

    #[test]
    fn the_burst_length_is_measured_from_20_losses_on_and_is_at_most_64() {
        let burst = |lost: u64| {
            let mut meter = meter();
            meter.on_datagram(at(0), 0);
            (1..1_000).for_each(|n| meter.on_datagram(at(n), n + lost));
            meter.losses().burst()
        };
        assert!(burst(19) < 1.02);
        assert_eq!([burst(20), burst(64), burst(65)], [20.0, 64.0, 64.0]);
    }

    #[test]
    fn a_gap_after_a_pause_longer_than_four_intervals_and_a_quarter_second_is_an_outage() {
        let mut meter = meter();
        meter.on_datagram(at(0), 0);
        meter.on_datagram(at(450_000), 2);
        meter.on_datagram(at(900_001), 4);
        assert_eq!((meter.counts(), meter.windows[1].bursts), ((3, 1, 0), 1));
    }

    #[test]
    fn a_window_ends_after_15_s() {
        let mut meter = meter();
        let mut after = |micros| {
            meter.on_datagram(at(micros), 0);
            meter.windows.map(|counts| counts.received)
        };
        assert_eq!([0, 14_999_999].map(&mut after), [[0, 1], [0, 2]]);
        assert_eq!([15_000_000, 29_999_999].map(&mut after), [[2, 1], [2, 2]]);
        assert_eq!(after(30_000_000), [2, 1]);
    }

    #[test]
    fn each_delay_difference_counts_a_sixteenth_and_is_limited_to_one_minute() {
        let mut meter = meter();
        let mut after = |offset| {
            meter.on_frame(offset);
            (meter.jitter, meter.jitter())
        };
        assert_eq!(after(0), (0, Span::ZERO));
        assert_eq!(after(1_600), (1_600, Span::from_micros(100)));
        assert_eq!(after(1_600), (1_500, Span::from_micros(93)));
        assert_eq!(after(0), (1_500 + 1_600 - 94, Span::from_micros(187)));
        assert_eq!(after(i64::MAX).0, 3_006 + 60_000_000 - 188);
    }
}
