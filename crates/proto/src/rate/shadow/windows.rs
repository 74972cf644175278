//! The sum of several CUBIC windows (RFC 9438), in datagrams. The windows grow with time, not with
//! each acknowledgement.

use alloc::vec::Vec;

use crate::time::Time;

/// Factor of the cubic growth (RFC 9438, section 4.1).
const C: f64 = 0.4;
/// Share of a window that is left after a loss (RFC 9438, section 4.6).
pub(super) const BETA: f64 = 0.7;
/// The minimum sum of the windows. Windows that yield may start at [`BETA`] times this minimum.
const LEAST: f64 = 4.0;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Windows {
    each: Vec<Window>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Window {
    size: f64,
    /// The window before the last loss, or less after a fast convergence (`lose`).
    most: f64,
    /// The window after the last loss.
    from: f64,
    /// When the last loss was; before any loss, the start.
    since: Time,
    /// Reno's window (RFC 9438, 4.3).
    reno: f64,
    has_lost: bool,
}

impl Windows {
    /// Returns `count` windows with a sum of `size`. If `yields`, the windows start as after a
    /// loss.
    pub(super) fn new(now: Time, size: f64, count: u32, yields: bool) -> Windows {
        let most = size.max(LEAST) / f64::from(count);
        let size = if yields { most * BETA } else { most };
        let one = Window { size, most, from: size, since: now, reno: size, has_lost: false };
        Windows { each: alloc::vec![one; count as usize] }
    }

    pub(super) fn size(&self) -> f64 {
        self.each.iter().map(|window| window.size).sum()
    }

    pub(super) fn has_lost(&self) -> bool {
        self.each.iter().any(|window| window.has_lost)
    }

    /// Grows the windows over `span` seconds at a round-trip time of `rtt` seconds.
    pub(super) fn grow(&mut self, now: Time, span: f64, rtt: f64) {
        self.each.iter_mut().for_each(|window| window.grow(now, span, rtt));
    }

    /// Raises each window to its share of `size`, if that is larger.
    pub(super) fn raise(&mut self, size: f64) {
        let part = size / self.each.len() as f64;
        self.each.iter_mut().for_each(|window| window.size = window.size.max(part));
    }

    /// Applies `lost` losses to the windows, largest first; each window takes at most one loss in
    /// `rtt`. Returns the sum of the windows before the losses, if a loss counted.
    pub(super) fn lose(&mut self, now: Time, rtt: f64, lost: u64) -> Option<f64> {
        let (before, least) = (self.size(), LEAST / self.each.len() as f64);
        self.each.sort_by(|one, other| other.size.total_cmp(&one.size));
        let can = self.each.iter_mut().filter(|window| window.can_lose(now, rtt));
        let count = can.take(lost as usize).map(|window| window.lose(now, least)).count();
        (count > 0).then_some(before)
    }
}

impl Window {
    fn grow(&mut self, now: Time, span: f64, rtt: f64) {
        let k = libm::cbrt((self.most - self.from).max(0.0) / C);
        let t = now.since(self.since).as_secs_f64() - k;
        let cubic = C * t * t * t + self.most;
        // RFC 9438, 4.3: with the decrease factor BETA, this growth gives Reno's average window.
        self.reno += 3.0 * (1.0 - BETA) / (1.0 + BETA) * span / rtt.max(1e-6);
        // RFC 9438, 4.2: at most by half in a round trip.
        let bound = self.size * (1.0 + 0.5 * span / rtt.max(1e-6));
        self.size = cubic.max(self.reno).min(bound).max(self.size);
    }

    fn can_lose(&self, now: Time, rtt: f64) -> bool {
        !self.has_lost || now.since(self.since).as_secs_f64() >= rtt
    }

    fn lose(&mut self, now: Time, least: f64) {
        // RFC 9438, 4.7 (fast convergence): a window that has not grown back to `most` leaves
        // room for new flows.
        self.most = if self.size < self.most { self.size * (1.0 + BETA) / 2.0 } else { self.size };
        self.size = (self.size * BETA).max(least);
        (self.reno, self.from, self.since) = (self.size, self.size, now);
        self.has_lost = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Span;

    fn at(secs: f64) -> Time {
        Time::ZERO + Span::from_secs_f64(secs)
    }

    fn is(value: f64, expected: f64) {
        assert!((value - expected).abs() < 1e-6, "{value}, expected {expected}");
    }

    fn one(size: f64) -> Windows {
        Windows::new(Time::ZERO, size, 1, false)
    }

    #[test]
    fn the_window_grows_as_reno_then_as_the_cubic_and_by_half_at_most_in_a_round_trip() {
        let mut window = one(100.0);
        window.grow(at(1.0), 0.1, 0.1);
        // Reno's 0.9 / 1.7 a round trip is more than 0.4 · 1³.
        is(window.size(), 100.0 + 0.9 / 1.7);
        window.grow(at(5.0), 0.1, 0.1);
        is(window.size(), 100.0 + 0.4 * 125.0);
        window.grow(at(50.0), 0.1, 0.1);
        is(window.size(), 225.0);
    }

    #[test]
    fn a_loss_shrinks_a_window_by_three_tenths_at_most_once_in_a_round_trip() {
        let mut window = one(100.0);
        assert_eq!(window.lose(at(5.0), 0.1, 9), Some(100.0));
        is(window.size(), 70.0);
        is(window.each[0].most, 100.0);
        assert_eq!(window.lose(at(5.05), 0.1, 9), None);
        assert_eq!(window.lose(at(5.2), 0.1, 9).map(|before| before as u32), Some(70));
        is(window.size(), 49.0);
        is(window.each[0].most, 70.0 * 0.85);
        // The cubic curve reaches `most` (59.5) ∛((59.5 − 49) / 0.4) seconds after the loss.
        window.grow(at(5.2 + libm::cbrt(10.5 / 0.4)), 0.0, 1e3);
        is(window.size(), 49.0);
        window.grow(at(5.2 + libm::cbrt(10.5 / 0.4)), 1e3, 1e3);
        is(window.size(), 59.5);
    }

    #[test]
    fn windows_that_yield_begin_as_after_a_loss() {
        let window = Windows::new(at(1.0), 100.0, 1, true).each[0];
        is(window.size, 70.0);
        is(window.reno, 70.0);
        is(window.from, 70.0);
        is(window.most, 100.0);
        assert!(!window.has_lost);
        is(one(3.0).size(), 4.0);
    }

    #[test]
    fn each_lost_datagram_shrinks_one_of_four_windows() {
        let mut windows = Windows::new(Time::ZERO, 400.0, 4, false);
        assert_eq!(windows.lose(at(1.0), 0.1, 0), None);
        assert_eq!(windows.lose(at(1.0), 0.1, 1), Some(400.0));
        is(windows.size(), 370.0);
        assert!(windows.lose(at(1.01), 0.1, 2).is_some());
        is(windows.size(), 310.0);
        assert!(windows.lose(at(1.02), 0.1, 9).is_some());
        is(windows.size(), 280.0);
        assert_eq!(windows.lose(at(1.03), 0.1, 9), None);
        assert!(windows.has_lost());
        // Four windows grow four times as fast as one window: 4 · 0.9 / 1.7.
        let mut windows = Windows::new(Time::ZERO, 400.0, 4, false);
        windows.grow(at(1.0), 0.1, 0.1);
        is(windows.size(), 400.0 + 4.0 * 0.9 / 1.7);
        windows.raise(500.0);
        is(windows.size(), 500.0);
        windows.raise(100.0);
        is(windows.size(), 500.0);
    }
}
