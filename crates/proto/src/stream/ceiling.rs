//! Measures, by the arrivals of frames, the rate that the path carries, and limits the sending rate
//! to that rate. A frame is sent as symbols, one in each datagram.
//!
//! The sending rate of a stream is planned from the reported loss and delays. The rate rises with
//! the loss and with the variation of the delays. If the rate exceeds what the path carries, a
//! queue fills, so delays and losses grow, and the next plan has a still higher rate. The limit
//! ends this loop.

use crate::time::{Span, Time};
use crate::units::{Bytes, Rate};

/// Rates are forgotten after one to two windows.
const WINDOW: Span = Span::from_secs(15);
/// Minimum number of symbols of a frame for a measurement: pauses of a busy host would distort the
/// rate of fewer symbols.
const ENOUGH: u32 = 64;
/// The limit is set if the path carries less than this share of the sending rate.
const SLOWER: f64 = 15.0 / 16.0;
/// How long a limit applies. After that time a higher rate is tried, because the path may have
/// become faster.
const KEPT: Span = Span::from_secs(60);
/// Reports describe a new sending rate after this time plus a round trip plus two frame intervals.
const REPORTED: Span = Span::from_secs(3);

/// The frame that is arriving.
#[derive(Clone, Copy, Debug)]
struct Arriving {
    frame: u32,
    index: u16,
    first: Time,
    last: Time,
    /// Bytes of this and of older frames that have arrived after `first`.
    bytes: u64,
    /// The value of `bytes` at `last`.
    until_last: u64,
    symbols: u32,
}

/// Measures the rate at which the symbols of frames arrive.
#[derive(Clone, Debug, Default)]
pub struct Arrivals {
    arriving: Option<Arriving>,
    highest: [Rate; 2],
    ends: Time,
}

impl Arrivals {
    /// Takes in a datagram of `bytes` with the symbol `index` of a frame. A symbol below the
    /// highest index so far was sent again or late: its bytes count, but it does not extend the
    /// frame.
    pub fn on_symbol(&mut self, now: Time, frame: u32, index: u16, bytes: u64) {
        if now >= self.ends {
            self.highest = [self.highest[1], Rate::ZERO];
            self.ends = now + WINDOW;
        }
        match &mut self.arriving {
            Some(arriving) if frame <= arriving.frame => {
                arriving.bytes = arriving.bytes.saturating_add(bytes);
                if frame == arriving.frame && index > arriving.index {
                    arriving.symbols += 1;
                    (arriving.index, arriving.last) = (index, now);
                    arriving.until_last = arriving.bytes;
                }
            }
            _ => {
                self.close();
                let (bytes, until_last, symbols) = (0, 0, 1);
                let (first, last) = (now, now);
                let arriving = Arriving { frame, index, first, last, bytes, until_last, symbols };
                self.arriving = Some(arriving);
            }
        }
    }

    fn close(&mut self) {
        if let Some(Arriving { first, last, until_last, symbols, .. }) = self.arriving
            && symbols >= ENOUGH
        {
            let rate = Bytes::new(until_last) / last.since(first);
            self.highest[1] = self.highest[1].max(rate);
        }
    }

    /// The highest rate at which a frame arrived in the last 15 to 30 s; zero if no frame was long
    /// enough. Without arrivals the value stays.
    pub fn carried(&self) -> Rate {
        self.highest[0].max(self.highest[1])
    }
}

/// Limits the sending rate to the rate that the path carries.
#[derive(Clone, Copy, Debug)]
pub struct Ceiling {
    /// The time between two frames.
    interval: Span,
    /// The limit, and when it was set.
    limit: Option<(Rate, Time)>,
    rate: Option<Rate>,
    /// The lowest sending rate in the last period, and in the current period, which ends at `ends`.
    /// A period is the time after which reports describe a new rate.
    lowest: [Option<Rate>; 2],
    ends: Time,
}

impl Ceiling {
    /// No limit yet, for a stream with frames every `interval`.
    pub fn new(interval: Span) -> Ceiling {
        Ceiling { interval, limit: None, rate: None, lowest: [None; 2], ends: Time::ZERO }
    }

    /// Takes in the measured rate `carried`, zero if it is unknown; `rtt` is the round-trip time.
    pub fn measure(&mut self, now: Time, carried: Rate, rtt: Span) {
        if now >= self.ends {
            self.lowest = [self.lowest[1], self.rate];
            self.ends = now + REPORTED + rtt + self.interval * 2;
        }
        if let [Some(before), Some(lowest)] = self.lowest
            && carried > Rate::ZERO
            && carried < before.min(lowest).scale(SLOWER)
        {
            self.limit = Some((carried, now));
        }
        self.limit = self.limit.filter(|(_, at)| now < *at + KEPT);
    }

    /// Returns the limit; `None` if no limit applies.
    pub fn limit(&self) -> Option<Rate> {
        self.limit.map(|(limit, _)| limit)
    }

    /// Returns the rate to send at from now on: `wanted`, or the limit if that is less.
    pub fn cap(&mut self, wanted: Rate) -> Rate {
        let rate = self.limit().map_or(wanted, |limit| wanted.min(limit));
        self.rate = Some(rate);
        self.lowest[1] = Some(self.lowest[1].map_or(rate, |lowest| lowest.min(rate)));
        rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Time {
        Time::ZERO + Span::from_micros(micros)
    }

    /// A frame whose symbols of 1,000 bytes arrive every `gap` µs from `start` on.
    fn frame(arrivals: &mut Arrivals, number: u32, symbols: u16, start: u64, gap: u64) {
        for index in 0..symbols {
            arrivals.on_symbol(at(start + u64::from(index) * gap), number, index, 1_000);
        }
    }

    #[test]
    fn the_bytes_of_the_first_symbol_do_not_count_in_the_rate_of_a_frame() {
        let mut arrivals = Arrivals::default();
        frame(&mut arrivals, 0, 100, 0, 10);
        assert_eq!(arrivals.carried(), Rate::ZERO, "the frame may go on");
        frame(&mut arrivals, 1, 100, 50_000, 20);
        // 1,000 bytes in 10 µs.
        assert_eq!(arrivals.carried(), Rate::from_mbps(800));
        frame(&mut arrivals, 2, 63, 100_000, 1);
        arrivals.on_symbol(at(200_000), 3, 0, 1_000);
        assert_eq!(arrivals.carried(), Rate::from_mbps(800), "63 symbols are too few");
        // Lost symbols lower the rate of arrivals.
        let mut lossy = Arrivals::default();
        for index in (0..=100).step_by(2) {
            lossy.on_symbol(at(index * 10), 0, index as u16, 1_000);
        }
        for index in (101..=200).step_by(3) {
            lossy.on_symbol(at(index * 10), 0, index as u16, 1_000);
        }
        lossy.on_symbol(at(5_000), 1, 0, 1_000);
        // 84 symbols after the first in 2 ms.
        assert_eq!(lossy.carried(), Rate::from_bps(84 * 8_000 * 500));
    }

    #[test]
    fn symbols_sent_again_count_in_the_rate_but_do_not_extend_a_frame() {
        let mut arrivals = Arrivals::default();
        arrivals.on_symbol(at(0), 6, 0, 1_000);
        // Symbols of the old frame 6 arrive between those of the new frame 7.
        for index in 0..100 {
            arrivals.on_symbol(at(u64::from(index) * 20), 7, index, 1_000);
            arrivals.on_symbol(at(u64::from(index) * 20 + 10), 6, 3, 1_000);
        }
        // A round trip later, a symbol of frame 7 itself is sent again.
        arrivals.on_symbol(at(100_000), 7, 40, 1_000);
        arrivals.on_symbol(at(100_010), 8, 0, 1_000);
        assert_eq!(arrivals.carried(), Rate::from_mbps(800));
    }

    #[test]
    fn a_measured_rate_is_forgotten_after_at_most_30_s() {
        let mut arrivals = Arrivals::default();
        frame(&mut arrivals, 0, 100, 0, 10);
        frame(&mut arrivals, 1, 100, 1_000_000, 20);
        arrivals.on_symbol(at(15_000_000), 2, 0, 1_000);
        assert_eq!(arrivals.carried(), Rate::from_mbps(800));
        arrivals.on_symbol(at(30_000_000), 3, 0, 1_000);
        assert_eq!(arrivals.carried(), Rate::from_mbps(400));
        arrivals.on_symbol(at(45_000_000), 4, 0, 1_000);
        assert_eq!(arrivals.carried(), Rate::ZERO);
        arrivals.on_symbol(at(45_000_000), u32::MAX, u16::MAX, u64::MAX);
        arrivals.on_symbol(at(45_000_001), u32::MAX, 0, u64::MAX);
    }

    /// A stream with two frames a second over a round trip of 100 ms. Reports describe a rate after
    /// 4.1 s: [`REPORTED`], the round trip and two frame intervals.
    fn ceiling() -> (Ceiling, impl Fn(u64) -> Time, impl Fn(&mut Ceiling, Time, u64)) {
        let settled = Span::from_millis(4_100);
        let mut ceiling = Ceiling::new(Span::from_millis(500));
        let measure = |ceiling: &mut Ceiling, now, mbps| {
            ceiling.measure(now, Rate::from_mbps(mbps), Span::from_millis(100));
        };
        measure(&mut ceiling, Time::ZERO, 0);
        ceiling.cap(Rate::from_mbps(1_280));
        (ceiling, move |periods| Time::ZERO + settled * periods, measure)
    }

    #[test]
    fn a_lower_measured_rate_limits_the_sending_rate_for_a_minute() {
        let (mut ceiling, period, measure) = ceiling();
        let mbps = Rate::from_mbps;
        // The path carries 1 Gbit/s. The jitter of a full queue raises the planned rate (equation
        // 11 in `crate::model`) to 1.2 Gbit/s. A report before the end of the first period sets no
        // limit, because it may describe frames of an earlier rate.
        measure(&mut ceiling, Time::from_nanos(4_099_999_999), 570);
        assert_eq!(ceiling.cap(mbps(1_213)), mbps(1_213));
        let limited = period(1);
        measure(&mut ceiling, limited, 981);
        assert_eq!(ceiling.cap(mbps(1_300)), mbps(981));
        // 975 is more than 15/16 of 981, so it neither lowers nor renews the limit.
        let last = limited + (KEPT - Span::from_nanos(1));
        measure(&mut ceiling, last, 975);
        assert_eq!(ceiling.cap(mbps(1_300)), mbps(981));
        assert_eq!(ceiling.cap(mbps(576)), mbps(576));
        measure(&mut ceiling, limited + KEPT, 975);
        assert_eq!(ceiling.cap(mbps(1_300)), mbps(1_300));
    }

    #[test]
    fn the_measured_rate_is_compared_with_the_lowest_recent_sending_rate() {
        let (mut ceiling, period, measure) = ceiling();
        for (half, mbps) in [(1, 1_100), (2, 1_200), (3, 1_150), (4, 1_300)] {
            let now = Time::ZERO + period(1).since(Time::ZERO) / 2 * half;
            measure(&mut ceiling, now, 1_040);
            assert_eq!(ceiling.cap(Rate::from_mbps(mbps)), Rate::from_mbps(mbps));
        }
        // 1,040 is more than 15/16 of 1,100; 1,031 is less.
        measure(&mut ceiling, period(2), 1_031);
        assert_eq!(ceiling.cap(Rate::from_mbps(1_200)), Rate::from_mbps(1_031));
    }

    #[test]
    fn a_measured_rate_of_15_sixteenths_of_the_sending_rate_or_of_zero_sets_no_limit() {
        let (mut ceiling, period, measure) = ceiling();
        measure(&mut ceiling, period(1), 1_280);
        measure(&mut ceiling, period(2), 1_200);
        measure(&mut ceiling, period(3), 0);
        assert_eq!(ceiling.limit(), None);
        measure(&mut ceiling, period(3), 1_199);
        assert_eq!(ceiling.limit(), Some(Rate::from_mbps(1_199)));
    }
}
