//! Progress of a copy over time.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use longhaul::Summary;
use longhaul_proto::units::Rate;

pub(super) struct Course {
    started: Instant,
    /// Seconds since the start, and bytes copied.
    points: Mutex<Vec<(f64, u64)>>,
}

impl Course {
    pub(super) fn new() -> Course {
        Course { started: Instant::now(), points: Mutex::new(vec![(0.0, 0)]) }
    }

    pub(super) fn note(&self, bytes: u64) {
        let at = self.started.elapsed().as_secs_f64();
        self.with(|points| points.push((at, bytes)));
    }

    /// Replaces all samples at or after the copy's end by one sample at its end. Returns the copy's
    /// duration in seconds.
    pub(super) fn done(&self, summary: &Summary) -> f64 {
        let end = summary.elapsed.as_secs_f64();
        self.with(|points| {
            points.retain(|(at, _)| *at < end);
            points.push((end, summary.bytes));
        });
        end
    }

    /// Goodput in the first `until` seconds.
    pub(super) fn rate(&self, until: f64) -> Rate {
        let bytes = self.with(|points| at(points, until));
        Rate::from_bps_f64(if until > 0.0 { bytes * 8.0 / until } else { 0.0 })
    }

    /// Rates between samples: seconds since the start, Mbit/s.
    pub(super) fn rates(&self) -> Vec<(f64, f64)> {
        self.with(|points| rates(points))
    }

    /// Uses a poisoned lock too: the samples stay valid if a thread panics.
    fn with<T>(&self, act: impl FnOnce(&mut Vec<(f64, u64)>) -> T) -> T {
        act(&mut self.points.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Bytes copied until `time`, interpolated linearly; constant after the last sample.
fn at(points: &[(f64, u64)], time: f64) -> f64 {
    let mut before = (0.0, 0.0);
    for (at, bytes) in points {
        let here = (*at, *bytes as f64);
        if here.0 >= time && here.0 > before.0 {
            let part = (time - before.0) / (here.0 - before.0);
            return before.1 + part * (here.1 - before.1);
        }
        before = here;
    }
    before.1
}

/// Mbit/s between neighbouring samples, each at the time of the later one.
fn rates(points: &[(f64, u64)]) -> Vec<(f64, f64)> {
    let apart = points.windows(2).filter(|pair| pair[1].0 > pair[0].0);
    let rate = |pair: &[(f64, u64)]| {
        let bits = pair[1].1.saturating_sub(pair[0].1) as f64 * 8.0;
        (pair[1].0, bits / (pair[1].0 - pair[0].0) / 1e6)
    };
    apart.map(rate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_interpolated_between_samples_and_constant_after_them() {
        let points = [(0.5, 100), (1.0, 200), (2.0, 600)];
        let found = [0.0, 0.25, 0.5, 1.5, 2.0, 9.0].map(|time| at(&points, time));
        assert_eq!(found, [0.0, 50.0, 100.0, 400.0, 600.0, 600.0]);
        assert_eq!(at(&[], 1.0), 0.0);
        assert_eq!(at(&[(0.0, 7)], 1.0), 7.0);
    }

    #[test]
    fn rates_are_averages_between_samples() {
        // Two samples have the same time; the last has fewer bytes than the one before it.
        let points = [(0.0, 0), (0.5, 500_000), (0.5, 500_001), (1.0, 500_000)];
        assert_eq!(rates(&points), [(0.5, 8.0), (1.0, 0.0)]);
        assert!(rates(&[]).is_empty());
    }
}
