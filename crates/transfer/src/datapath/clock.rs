//! The process's one clock: monotonic, zero at its first reading.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use longhaul_proto::time::{Span, Time};

static START: OnceLock<Instant> = OnceLock::new();

/// The time now.
pub fn now() -> Time {
    let start = START.get_or_init(Instant::now);
    // 2⁶⁴ nanoseconds are 584 years.
    Time::from_nanos(start.elapsed().as_nanos() as u64)
}

/// A span as the standard library has it.
pub fn duration(span: Span) -> Duration {
    Duration::from_nanos(span.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_never_runs_backwards() {
        let readings: Vec<Time> = (0..1_000).map(|_| now()).collect();
        assert!(readings.is_sorted());
    }
}
