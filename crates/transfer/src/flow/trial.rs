//! Finds the best number of connections by experiment on the path itself.
//!
//! PSockets splits an object over several connections, and finds their number by trying before the
//! transfer (Sivakumar, Bailey, Grossman: PSockets, SC 2000). Here the experiment already sends the
//! object: over one connection for a moment, then over two, four, and so on. Each number gets time
//! to settle before arrivals are counted. The search ends when two numbers in a row were no better,
//! or when the highest allowed number was tried. It keeps the best number.

use longhaul_proto::time::{Span, Time};

/// Minimum and maximum length of a step. Each number of connections gets one step to settle, and at
/// least one step in which its rate is measured.
const STEPS: [Span; 2] = [Span::from_millis(500), Span::from_secs(2)];
/// Length of a step in round trips (slow start takes several), within the limits [`STEPS`].
const ROUND_TRIPS: u64 = 8;
/// A measurement lasts at least one step, and until this many bytes have arrived.
const ENOUGH: u64 = 1 << 20;
/// Maximum number of steps of a measurement, even if fewer than [`ENOUGH`] bytes have arrived.
const LONGEST: u64 = 4;
/// A number of connections is better if its rate exceeds the best rate so far by this factor.
const BETTER: f64 = 1.1;
/// The search ends after this many numbers in a row that are no better.
const NO_BETTER: u32 = 2;

#[derive(Debug)]
pub(super) struct Trial {
    most: usize,
    step: Span,
    count: usize,
    /// When the current number of connections started; `None` before the first call of
    /// [`Trial::look`].
    begun: Option<Time>,
    /// When the current number of connections had settled, and the bytes received by then.
    settled: Option<(Time, u64)>,
    /// The best number of connections so far, and its rate in bytes per second.
    best: (usize, f64),
    no_better: u32,
    found: bool,
}

impl Trial {
    /// Starts a search up to `most` connections on a path with round-trip time `rtt`.
    pub(super) fn new(most: usize, rtt: Span) -> Trial {
        let step = (rtt * ROUND_TRIPS).max(STEPS[0]).min(STEPS[1]);
        let (begun, settled) = (None, None);
        let found = most <= 1;
        Trial { most, step, count: 1, begun, settled, best: (1, 0.0), no_better: 0, found }
    }

    pub(super) fn count(&self) -> usize {
        self.count.min(self.most)
    }

    pub(super) fn is_found(&self) -> bool {
        self.found
    }

    /// Takes the receiver's report: `came` bytes in total by `now`.
    pub(super) fn look(&mut self, now: Time, came: u64) {
        let begun = *self.begun.get_or_insert(now);
        if self.found || now < begun + self.step {
            return;
        }
        let Some((since, before)) = self.settled else {
            self.settled = Some((now, came));
            return;
        };
        let (time, bytes) = (now.since(since), came.saturating_sub(before));
        let done = time >= self.step && bytes >= ENOUGH;
        if done || time >= self.step * LONGEST {
            self.end_one(now, bytes as f64 / time.as_secs_f64());
        }
    }

    fn end_one(&mut self, now: Time, rate: f64) {
        if rate > self.best.1 * BETTER {
            self.best = (self.count, rate);
            self.no_better = 0;
        } else {
            self.no_better += 1;
        }
        (self.begun, self.settled) = (Some(now), None);
        if self.no_better >= NO_BETTER || self.count >= self.most {
            self.count = self.best.0;
            self.found = true;
        } else {
            self.count = (2 * self.count).min(self.most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Span = Span::from_millis(100);

    /// Searches on a path that carries `rate(n)` bytes a second over n connections. Returns the
    /// number found, and the time taken.
    fn try_on(most: usize, rate: impl Fn(usize) -> f64) -> (usize, Span) {
        let mut trial = Trial::new(most, RTT);
        let (tick, begun) = (Span::from_millis(20), Time::from_nanos(1));
        let (mut now, mut came) = (begun, 0.0);
        while !trial.is_found() {
            trial.look(now, came as u64);
            came += rate(trial.count()) * tick.as_secs_f64();
            now += tick;
            assert!(now.since(begun) < Span::from_secs(60), "{trial:?}");
        }
        (trial.count(), now.since(begun))
    }

    #[test]
    fn the_search_finds_the_smallest_tried_number_that_fills_the_path() {
        let full_at = |n: f64| move |count: usize| 3e6 * (count as f64).min(n);
        for (full, found) in [(1.0, 1), (2.0, 2), (4.0, 4), (8.0, 8), (100.0, 16)] {
            assert_eq!(try_on(16, full_at(full)).0, found, "full at {full}");
        }
        // Five connections fill the path. The search tries 4 and 8, and only 8 fill the path.
        assert_eq!(try_on(16, full_at(5.0)).0, 8);
        assert_eq!(try_on(6, full_at(100.0)).0, 6);
    }

    #[test]
    fn one_number_that_is_no_better_does_not_end_the_search_and_two_in_a_row_do() {
        let hole = |count: usize| if count == 2 { 1e6 } else { 1e6 * count as f64 };
        assert_eq!(try_on(16, hole).0, 16);
        let decline = |count: usize| 8e6 / (count as f64 - 4.0).abs().max(1.0);
        assert_eq!(try_on(64, decline).0, 4);
    }

    #[test]
    fn each_number_is_tried_briefly_even_with_few_arrivals() {
        // Three numbers (1, 2, 4) with two steps each. A step is eight round trips of 100 ms.
        let (found, took) = try_on(16, |_| 1e8);
        assert!(found == 1 && took < Span::from_secs(6), "{took}");
        // Without arrivals: two numbers, each with one step to settle and four steps to measure.
        let (found, took) = try_on(16, |_| 0.0);
        assert!(found == 1 && took < Span::from_secs(9), "{took}");
    }

    #[test]
    fn a_single_connection_needs_no_trial() {
        let trial = Trial::new(1, RTT);
        assert!(trial.is_found() && trial.count() == 1);
    }
}
