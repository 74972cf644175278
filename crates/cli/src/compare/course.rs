//! How far a copy was, when.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use longhaul::Summary;
use longhaul_proto::units::Rate;

/// A copy's way from its start on.
pub(super) struct Course {
    started: Instant,
    /// Seconds since the start, bytes that were there.
    points: Mutex<Vec<(f64, u64)>>,
}

impl Course {
    /// That of a copy that starts now.
    pub(super) fn new() -> Course {
        Course { started: Instant::now(), points: Mutex::new(vec![(0.0, 0)]) }
    }

    /// So many bytes are there now.
    pub(super) fn note(&self, bytes: u64) {
        let at = self.started.elapsed().as_secs_f64();
        self.with(|points| points.push((at, bytes)));
    }

    /// The copy has ended so; when.
    pub(super) fn done(&self, summary: &Summary) -> f64 {
        let end = summary.elapsed.as_secs_f64();
        self.with(|points| {
            points.retain(|(at, _)| *at < end);
            points.push((end, summary.bytes));
        });
        end
    }

    /// Goodput from the start until so many seconds after it.
    pub(super) fn rate(&self, until: f64) -> Rate {
        let bytes = self.with(|points| at(points, until));
        Rate::from_bps_f64(if until > 0.0 { bytes * 8.0 / until } else { 0.0 })
    }

    /// The rates between the looks: seconds, Mbit/s.
    pub(super) fn rates(&self) -> Vec<(f64, f64)> {
        self.with(|points| rates(points))
    }

    /// A poisoned lock only means that a thread died while it told.
    fn with<T>(&self, act: impl FnOnce(&mut Vec<(f64, u64)>) -> T) -> T {
        act(&mut self.points.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The bytes at a time, on straight lines between the points; what came after the last of them is
/// not known, and none.
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

/// Mbit/s between neighbouring points, each at the later of the two.
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
    fn what_has_come_is_told_between_the_looks_and_not_beyond_them() {
        let points = [(0.5, 100), (1.0, 200), (2.0, 600)];
        let found = [0.0, 0.25, 0.5, 1.5, 2.0, 9.0].map(|time| at(&points, time));
        assert_eq!(found, [0.0, 50.0, 100.0, 400.0, 600.0, 600.0]);
        assert_eq!(at(&[], 1.0), 0.0);
        assert_eq!(at(&[(0.0, 7)], 1.0), 7.0);
    }

    #[test]
    fn rates_are_those_between_the_looks() {
        let points = [(0.0, 0), (0.5, 500_000), (0.5, 500_001), (1.0, 500_000)];
        assert_eq!(rates(&points), [(0.5, 8.0), (1.0, 0.0)]);
        assert!(rates(&[]).is_empty());
    }
}
