//! The sender's clock as the receiver sees it.

use crate::time::{Span, Time};

/// A minimum is forgotten after one to two of these: clocks drift (50 ppm are 3 ms a minute), and
/// routes change.
const WINDOW: Span = Span::from_secs(30);

/// Dates the receiver's deadlines by the sender's stamps. The least of (arrival − stamp) is the
/// path's own delay plus the difference of the clocks; a deadline lies D minus the path's delay
/// after it. A queue that never empties counts as the path's own delay, and so does the jitter of
/// all datagrams so far: until one comes without it, frames may be that much late.
#[derive(Debug)]
pub(crate) struct Clock {
    /// The stamp last seen, without the wrap at 2³² µs.
    last: Option<i64>,
    /// Least (arrival − stamp) in µs of the window before this one and of this one.
    least: [Option<i64>; 2],
    /// When this window ends.
    ends: Time,
}

impl Clock {
    /// Knows nothing yet.
    pub(crate) fn new() -> Clock {
        Clock { last: None, least: [None; 2], ends: Time::ZERO }
    }

    /// The stamp without its wrap: the one that is nearest to the last.
    pub(crate) fn stamp(&mut self, at: u32) -> i64 {
        let stamp = match self.last {
            None => i64::from(at),
            Some(last) => last + i64::from(at.wrapping_sub(last as u32) as i32),
        };
        self.last = Some(stamp);
        stamp
    }

    /// A datagram with `stamp` arrived.
    pub(crate) fn on_arrival(&mut self, now: Time, stamp: i64) {
        if now >= self.ends {
            self.least = [self.least[1], None];
            self.ends = now + WINDOW;
        }
        let offset = micros(now) - stamp;
        self.least[1] = Some(self.least[1].map_or(offset, |least| least.min(offset)));
    }

    /// When a frame with `stamp` must be delivered that may take `beyond` longer than the path's
    /// own delay; at the latest, `beyond` from now on.
    pub(crate) fn due(&self, now: Time, stamp: i64, beyond: Span) -> Time {
        let latest = now + beyond;
        let Some(offset) = self.least.iter().flatten().min() else { return latest };
        let nanos = i128::from(stamp + offset) * 1_000 + i128::from(beyond.as_nanos());
        Time::from_nanos(u64::try_from(nanos).unwrap_or(0)).min(latest)
    }
}

/// Whole microseconds of a time, rounded up: a delay is never taken for less than it is.
fn micros(time: Time) -> i64 {
    time.as_nanos().div_ceil(1_000) as i64
}
