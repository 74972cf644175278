//! How much may be in flight: slow start, congestion avoidance, and what a loss costs.

use longhaul_proto::time::{Span, Time};

use super::cubic::Cubic;
use super::hystart::{HyStart, LOW_WINDOW};
use crate::scenario::Congestion;

/// The congestion window, in segments.
#[derive(Clone, Debug)]
pub(super) struct Window {
    size: f64,
    threshold: f64,
    growth: Growth,
}

#[derive(Clone, Debug)]
enum Growth {
    NewReno,
    Cubic { cubic: Cubic, hystart: HyStart },
}

/// What an acknowledgement says to the window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acked {
    /// Segments that it acknowledges for the first time.
    pub(super) count: u32,
    /// All below have arrived.
    pub(super) next: u32,
    /// The next segment to be sent.
    pub(super) sent: u32,
    pub(super) rtt: Option<Span>,
    pub(super) min_rtt: Span,
    pub(super) smoothed: Span,
}

impl Window {
    pub(super) fn new(congestion: Congestion, initial: u32) -> Window {
        let growth = match congestion {
            Congestion::NewReno => Growth::NewReno,
            Congestion::Cubic => Growth::Cubic { cubic: Cubic::new(), hystart: HyStart::new() },
        };
        Window { size: f64::from(initial.max(1)), threshold: f64::INFINITY, growth }
    }

    /// Whole segments that may be in flight.
    pub(super) fn size(&self) -> u32 {
        self.size as u32
    }

    /// Whether it is below the threshold.
    pub(super) fn is_slow_start(&self) -> bool {
        self.size < self.threshold
    }

    /// Grows, while nothing is being repaired and the window is what limits.
    pub(super) fn on_ack(&mut self, now: Time, acked: Acked) {
        let mut count = acked.count;
        if self.is_slow_start() {
            if let Growth::Cubic { hystart, .. } = &mut self.growth {
                let Acked { next, sent, rtt, min_rtt, .. } = acked;
                let enough = hystart.on_ack(now, next, sent, rtt, min_rtt);
                if enough && self.size >= LOW_WINDOW {
                    self.threshold = self.size;
                    return;
                }
            }
            // RFC 5681, (2), counted in segments acknowledged as RFC 3465 has it.
            let grown = (self.size + f64::from(count)).min(self.threshold);
            count -= ((grown - self.size) as u32).min(count);
            self.size = grown;
        }
        if count == 0 {
            return;
        }
        match &mut self.growth {
            // RFC 5681, (3): one segment a round trip.
            Growth::NewReno => self.size += f64::from(count) / self.size,
            Growth::Cubic { cubic, .. } => {
                self.size = cubic.on_ack(now, self.size, count, acked.smoothed);
            }
        }
    }

    /// A loss was found, the first of its window; `flight` segments were in flight.
    pub(super) fn on_loss(&mut self, flight: u32) {
        let flight = f64::from(flight);
        self.threshold = match &mut self.growth {
            // RFC 5681, (4): ssthresh = max(FlightSize / 2, 2 × SMSS).
            Growth::NewReno => (flight / 2.0).max(2.0),
            Growth::Cubic { cubic, .. } => cubic.on_loss(self.size, flight),
        };
        self.size = self.threshold;
    }

    /// A time-out. A second one of the same data leaves the threshold (RFC 5681, section 3.1).
    pub(super) fn on_timeout(&mut self, flight: u32, again: bool) {
        let flight = f64::from(flight);
        if !again {
            self.threshold = match &mut self.growth {
                Growth::NewReno => (flight / 2.0).max(2.0),
                Growth::Cubic { cubic, .. } => cubic.on_timeout(self.size, flight),
            };
        }
        self.size = 1.0;
    }

    /// RFC 5681, 4.1: nothing was sent for longer than a time-out.
    pub(super) fn restart(&mut self, initial: u32) {
        self.size = self.size.min(f64::from(initial.max(1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acked(count: u32, next: u32) -> Acked {
        let rtt = Span::from_millis(50);
        let (sent, rtt, min_rtt, smoothed) = (next + 10, Some(rtt), rtt, rtt);
        Acked { count, next, sent, rtt, min_rtt, smoothed }
    }

    #[test]
    fn slow_start_doubles_and_newreno_adds_one_a_round_trip() {
        let mut window = Window::new(Congestion::NewReno, 10);
        window.on_ack(Time::ZERO, acked(10, 10));
        assert_eq!(window.size(), 20);
        window.on_loss(20);
        assert_eq!((window.size(), window.is_slow_start()), (10, false));
        for round in 0..5 {
            (0..10).for_each(|i| window.on_ack(Time::ZERO, acked(1, 21 + 10 * round + i)));
        }
        // Each adds 1 / w: the square grows by two each, from 100 to 200.
        assert!((window.size - 200f64.sqrt()).abs() < 0.03, "{}", window.size);
    }

    #[test]
    fn a_time_out_begins_at_one_and_slow_start_ends_at_the_threshold() {
        let mut window = Window::new(Congestion::NewReno, 10);
        window.on_timeout(40, false);
        assert_eq!(window.size(), 1);
        window.on_timeout(1, true);
        window.on_ack(Time::ZERO, acked(30, 30));
        // 19 bring it to 20; the other 11 count at 1/20.
        assert!((window.size - 20.55).abs() < 1e-9, "{}", window.size);
    }

    #[test]
    fn a_window_of_few_is_never_below_two_after_a_loss() {
        for congestion in [Congestion::NewReno, Congestion::Cubic] {
            let mut window = Window::new(congestion, 10);
            window.on_loss(2);
            assert_eq!(window.size(), 2);
        }
    }

    #[test]
    fn idleness_brings_the_initial_window_back() {
        let mut window = Window::new(Congestion::Cubic, 10);
        window.on_ack(Time::ZERO, acked(5, 5));
        window.restart(10);
        assert_eq!(window.size(), 10);
        window.on_timeout(4, false);
        window.restart(10);
        assert_eq!(window.size(), 1);
    }
}
