//! Detects that a copy from several sources makes no progress.

use std::time::{Duration, Instant};

/// Measures the time without progress. Time without a connected source does not count, because
/// `--retry-for` limits it.
#[derive(Debug)]
pub(super) struct Standstill {
    since: Instant,
    /// The progress counter at the time `since`.
    moved: u64,
}

impl Standstill {
    pub(super) fn new(now: Instant) -> Standstill {
        Standstill { since: now, moved: 0 }
    }

    /// Returns the time without progress; `moved` is the progress counter. The time is zero while
    /// `may_rest` is true, which means that no source is connected or all bytes are written.
    pub(super) fn lasts(&mut self, now: Instant, moved: u64, may_rest: bool) -> Duration {
        if moved != self.moved || may_rest {
            *self = Standstill { since: now, moved };
        }
        now.duration_since(self.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_connected_sources_can_stall() {
        let start = Instant::now();
        let mut standstill = Standstill::new(start);
        let mut lasts = |seconds, moved, is_there: bool| {
            let now = start + Duration::from_secs(seconds);
            standstill.lasts(now, moved, !is_there).as_secs()
        };
        assert_eq!([lasts(1, 10, true), lasts(60, 10, true)], [0, 59]);
        // All sources are lost for longer than a stall may last, then one returns.
        assert_eq!([lasts(61, 10, false), lasts(200, 10, false), lasts(259, 10, true)], [0, 0, 59]);
        assert_eq!([lasts(261, 11, true), lasts(321, 11, true)], [0, 60]);
    }
}
