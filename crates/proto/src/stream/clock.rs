//! The clock of a stream's sender, as the receiver sees it. Each datagram has a stamp: the time at
//! which the sender got the frame.

use crate::time::{Span, Time};

/// The minima of [`Clock`] are forgotten after one to two windows of this length: clocks drift
/// (50 ppm are 3 ms a minute), and routes change.
const WINDOW: Span = Span::from_secs(30);

/// Computes the receiver's deadlines from the sender's stamps. The minimum of (arrival − stamp) is
/// the path's own delay plus the difference of the clocks. A frame's deadline is its stamp plus
/// this minimum, plus the stream's deadline, minus the path's own delay. A queue that never empties
/// counts as part of the path's own delay.
#[derive(Debug)]
pub(crate) struct Clock {
    /// The last stamp, without the wrap at 2³² µs.
    last: Option<i64>,
    /// Minimum of (arrival − stamp) in µs, in the previous and in the current window.
    least: [Option<i64>; 2],
    ends: Time,
}

impl Clock {
    pub(crate) fn new() -> Clock {
        Clock { last: None, least: [None; 2], ends: Time::ZERO }
    }

    /// The stamp without its wrap: the value nearest to the last stamp.
    pub(crate) fn stamp(&mut self, at: u32) -> i64 {
        let stamp = match self.last {
            None => i64::from(at),
            Some(last) => last + i64::from(at.wrapping_sub(last as u32) as i32),
        };
        self.last = Some(stamp);
        stamp
    }

    pub(crate) fn on_arrival(&mut self, now: Time, stamp: i64) {
        if now >= self.ends {
            self.least = [self.least[1], None];
            self.ends = now + WINDOW;
        }
        let offset = micros(now) - stamp;
        self.least[1] = Some(self.least[1].map_or(offset, |least| least.min(offset)));
    }

    /// When a frame with `stamp` must be delivered if it may take `beyond` longer than the path's
    /// own delay; at the latest `beyond` from now.
    pub(crate) fn due(&self, now: Time, stamp: i64, beyond: Span) -> Time {
        let latest = now + beyond;
        let Some(offset) = self.least.iter().flatten().min() else { return latest };
        let nanos = i128::from(stamp + offset) * 1_000 + i128::from(beyond.as_nanos());
        Time::from_nanos(u64::try_from(nanos).unwrap_or(0)).min(latest)
    }
}

/// Whole microseconds, rounded up, so that no delay is underestimated.
fn micros(time: Time) -> i64 {
    time.as_nanos().div_ceil(1_000) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Time {
        Time::from_nanos(nanos)
    }

    #[test]
    fn a_stamp_continues_the_last_one_beyond_its_wrap() {
        let mut clock = Clock::new();
        let wrap = 1_i64 << 32;
        let stamps = [u32::MAX - 9, 10, u32::MAX - 9].map(|at| clock.stamp(at));
        assert_eq!(stamps, [wrap - 10, wrap + 10, wrap - 10]);
        assert_eq!(
            [5, u32::MAX].map(|at| Clock { last: Some(0), ..Clock::new() }.stamp(at)),
            [5, -1]
        );
    }

    #[test]
    fn the_least_offset_is_kept_for_one_to_two_windows() {
        let mut clock = Clock::new();
        let mut after = |nanos, stamp| {
            clock.on_arrival(at(nanos), stamp);
            clock.least
        };
        // Times are rounded up to a microsecond.
        assert_eq!(after(1_001, 0), [None, Some(2)]);
        assert_eq!(after(30_000_000_000, 29_999_900), [None, Some(2)]);
        assert_eq!(after(30_000_001_001, 29_999_902), [Some(2), Some(100)]);
        assert_eq!(after(60_000_001_001, 59_999_802), [Some(100), Some(200)]);
    }

    #[test]
    fn a_frame_is_due_at_its_stamp_plus_the_least_offset_plus_the_rest_of_the_deadline() {
        let (now, beyond) = (at(2_000_000), Span::from_millis(10));
        let due = |least, stamp| Clock { least, ..Clock::new() }.due(now, stamp, beyond);
        assert_eq!(due([None, None], 600), at(12_000_000));
        assert_eq!(due([None, Some(500)], 600), at(11_100_000));
        assert_eq!(due([Some(400), Some(500)], 600), at(11_000_000));
        assert_eq!(due([None, Some(500)], 1_501), at(12_000_000), "at the latest 10 ms from now");
        assert_eq!(due([None, Some(500)], -20_000), Time::ZERO);
    }
}
