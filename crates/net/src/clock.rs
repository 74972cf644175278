//! The process's one clock: monotonic, zero at its first reading.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

pub use longhaul_proto::time::{Span, Time};

static START: OnceLock<Instant> = OnceLock::new();

/// Returns the time now.
pub fn now() -> Time {
    let start = START.get_or_init(Instant::now);
    // 2⁶⁴ nanoseconds are 584 years.
    Time::from_nanos(start.elapsed().as_nanos() as u64)
}

/// Converts a span to the standard library's type.
pub fn duration(span: Span) -> Duration {
    Duration::from_nanos(span.as_nanos())
}

/// A reading of this clock and of the system's clock, which the kernel uses for timestamps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    now: Time,
    wall: SystemTime,
}

impl Reading {
    pub(crate) fn now() -> Reading {
        Reading { now: now(), wall: SystemTime::now() }
    }

    /// Converts the kernel's timestamp (since 1970) of a message that arrived after `since` and
    /// before this reading. Without a timestamp, returns the time of this reading. The system's
    /// clock may have been set meanwhile, so the result is limited to the time between `since` and
    /// this reading.
    pub(crate) fn at(&self, stamp: Option<Duration>, since: Time) -> Time {
        let came = stamp.and_then(|stamp| SystemTime::UNIX_EPOCH.checked_add(stamp));
        let age = came.and_then(|came| self.wall.duration_since(came).ok()).unwrap_or_default();
        let at = self.now.as_nanos().saturating_sub(age.as_nanos() as u64);
        Time::from_nanos(at).max(since.min(self.now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_timestamp_gives_an_arrival_time_between_since_and_the_reading() {
        let at = |millis: u64| Time::from_nanos(millis * 1_000_000);
        let reading = Reading { now: at(90_000), wall: SystemTime::now() };
        let dated = |age: u64| {
            let since_1970 = reading.wall.duration_since(SystemTime::UNIX_EPOCH).ok()?;
            since_1970.checked_sub(Duration::from_millis(age))
        };
        let since = at(89_000);
        assert_eq!(reading.at(dated(3), since), at(89_997));
        assert_eq!(reading.at(None, since), at(90_000));
        // The system's clock was set forward by 60 s, or back by 1 s.
        assert_eq!(reading.at(dated(60_000), since), since);
        let later = dated(0).map(|now| now + Duration::from_secs(1));
        assert_eq!(reading.at(later, since), at(90_000));
    }

    #[test]
    fn the_clock_never_runs_backwards() {
        let readings: Vec<Time> = (0..1_000).map(|_| now()).collect();
        assert!(readings.is_sorted());
    }
}
