//! The congestion window: its growth, and its reductions.

use longhaul_proto::time::{Span, Time};

use super::bbr::{self, Bbr};
use super::cubic::Cubic;
use super::hystart::{HyStart, LOW_WINDOW};
use crate::scenario::Congestion;

/// The congestion window, in whole segments as Linux counts it.
#[derive(Clone, Debug)]
pub(super) struct Window {
    size: u32,
    /// Acknowledged segments that have not increased the window.
    count: u32,
    threshold: u32,
    growth: Growth,
}

#[derive(Clone, Debug)]
enum Growth {
    NewReno,
    Cubic { cubic: Cubic, hystart: HyStart },
    Bbr(Box<Bbr>),
}

/// The window's input from an acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acked {
    /// Segments newly known to have arrived.
    pub(super) count: u32,
    /// All segments below this number have arrived.
    pub(super) next: u32,
    /// The next new segment.
    pub(super) sent: u32,
    pub(super) rtt: Option<Span>,
    pub(super) min_rtt: Span,
}

impl Window {
    pub(super) fn new(congestion: Congestion, initial: u32) -> Window {
        let growth = match congestion {
            Congestion::NewReno => Growth::NewReno,
            Congestion::Bbr => Growth::Bbr(Box::new(Bbr::new(initial.max(1)))),
            Congestion::Cubic => Growth::Cubic { cubic: Cubic::default(), hystart: HyStart::new() },
        };
        Window { size: initial.max(1), count: 0, threshold: u32::MAX, growth }
    }

    pub(super) fn size(&self) -> u32 {
        self.size
    }

    pub(super) fn is_slow_start(&self) -> bool {
        self.size < self.threshold
    }

    /// BBR's state, which sets window and pace.
    pub(super) fn bbr(&self) -> Option<&Bbr> {
        if let Growth::Bbr(bbr) = &self.growth { Some(bbr) } else { None }
    }

    pub(super) fn on_bbr_ack(&mut self, now: Time, acked: &bbr::Acked) {
        if let Growth::Bbr(bbr) = &mut self.growth {
            bbr.on_ack(now, acked);
            self.size = bbr.window();
        }
    }

    /// Grows the window, except BBR's. Must be called only outside recovery, and only if the sender
    /// has used the window (RFC 7661).
    pub(super) fn on_ack(&mut self, now: Time, acked: Acked) {
        if self.bbr().is_some() {
            return;
        }
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
            // RFC 5681, (2), with growth by acknowledged segments as in RFC 3465.
            let grown = self.size.saturating_add(count).min(self.threshold);
            count -= grown - self.size;
            self.size = grown;
        }
        if count == 0 {
            return;
        }
        let every = match &mut self.growth {
            // RFC 5681, (3): one segment per round trip.
            Growth::NewReno | Growth::Bbr(_) => self.size,
            Growth::Cubic { cubic, .. } => cubic.on_ack(now, self.size, count, acked.min_rtt),
        };
        self.grow(every.max(1), count);
    }

    /// Adds one segment per `every` arrivals. Earlier arrivals add at most one if `every` has
    /// shrunk.
    fn grow(&mut self, every: u32, arrived: u32) {
        if self.count >= every {
            self.count = 0;
            self.size += 1;
        }
        self.count += arrived;
        self.size += self.count / every;
        self.count %= every;
    }

    /// Reduces the window when a recovery begins, except BBR's. RFC 5681, (4), uses the flight
    /// size; Linux uses the window (`tcp_reno_ssthresh`).
    pub(super) fn on_loss(&mut self) {
        self.threshold = match &mut self.growth {
            Growth::NewReno => (self.size / 2).max(2),
            Growth::Cubic { cubic, .. } => cubic.on_loss(self.size),
            Growth::Bbr(bbr) => {
                bbr.on_loss();
                return;
            }
        };
        self.size = self.threshold;
        self.count = 0;
    }

    /// Reduces the window after a timeout. A second timeout of the same data keeps the threshold
    /// (RFC 5681, section 3.1).
    pub(super) fn on_timeout(&mut self, again: bool) {
        if let Growth::Bbr(bbr) = &mut self.growth {
            bbr.on_timeout();
        } else if !again {
            self.threshold = match &mut self.growth {
                Growth::NewReno => (self.size / 2).max(2),
                Growth::Cubic { cubic, .. } => cubic.on_timeout(self.size),
                Growth::Bbr(_) => self.threshold,
            };
        }
        (self.size, self.count) = (1, 0);
    }

    /// Reduces the window to at most `initial`, after idleness longer than a timeout (RFC 5681,
    /// section 4.1).
    pub(super) fn restart(&mut self, initial: u32) {
        self.size = self.size.min(initial.max(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acked(count: u32, next: u32) -> Acked {
        let rtt = Span::from_millis(50);
        let (sent, rtt, min_rtt) = (next + 10, Some(rtt), rtt);
        Acked { count, next, sent, rtt, min_rtt }
    }

    #[test]
    fn slow_start_doubles_and_newreno_adds_one_a_round_trip() {
        let mut window = Window::new(Congestion::NewReno, 10);
        window.on_ack(Time::ZERO, acked(10, 10));
        assert_eq!(window.size(), 20);
        window.on_loss();
        assert_eq!((window.size(), window.is_slow_start()), (10, false));
        for size in 10..15 {
            assert_eq!(window.size(), size);
            (0..size).for_each(|_| window.on_ack(Time::ZERO, acked(1, 21)));
        }
        assert_eq!(window.size(), 15);
    }

    #[test]
    fn after_a_timeout_the_window_is_one_and_slow_start_ends_at_the_threshold() {
        let mut window = Window::new(Congestion::NewReno, 40);
        window.on_timeout(false);
        assert_eq!(window.size(), 1);
        window.on_timeout(true);
        window.on_ack(Time::ZERO, acked(30, 30));
        // 19 arrivals grow the window from 1 to 20; the other 11 count towards the next growth.
        assert_eq!((window.size(), window.count), (20, 11));
    }

    #[test]
    fn a_small_window_is_never_below_two_after_a_loss() {
        for congestion in [Congestion::NewReno, Congestion::Cubic] {
            let mut window = Window::new(congestion, 2);
            window.on_loss();
            assert_eq!(window.size(), 2);
        }
    }

    #[test]
    fn idleness_reduces_the_window_to_at_most_the_initial_window() {
        let mut window = Window::new(Congestion::Cubic, 10);
        window.on_ack(Time::ZERO, acked(5, 5));
        window.restart(10);
        assert_eq!(window.size(), 10);
        window.on_timeout(false);
        window.restart(10);
        assert_eq!(window.size(), 1);
    }
}
