//! CUBIC's congestion avoidance (RFC 9438) as Linux has it. Windows are in segments.
//!
//! Linux increments the window after every N arrived segments; N is a whole number. While the
//! window does not change, Linux updates N at most every 32 ms. Linux evaluates the curve at most
//! once per clock tick. On a short path the window soon exceeds the curve; Linux then sets N very
//! high and keeps it for 32 ms. So after a loss the window stays constant for many round trips
//! (`net/ipv4/tcp_cubic.c`, `bictcp_update`). At 1 % loss and an RTT of 1 ms Linux's window is a
//! third of RFC 9438's.

use longhaul_proto::time::{Span, Time};

/// RFC 9438, 4.6: the share of the window that remains after a loss, in 1024ths.
const BETA: u32 = 717;
const PARTS: u32 = 1_024;
/// RFC 9438, 5: how steep the curve is, in segments/s³.
const C: f64 = 0.4;
/// The estimate of Reno's window grows by one segment after this many eighths of a window have
/// arrived: 8 / α, α = 3 (1 − β) / (1 + β) (RFC 9438, 4.3). The RFC drops this factor when the
/// estimate reaches the window before the loss; Linux keeps it.
const RENO_EIGHTHS: u32 = 8 * (PARTS + BETA) / 3 / (PARTS - BETA);
/// Linux's clock tick, at 250 Hz.
const TICK: Span = Span::from_millis(4);
/// The shortest time between two updates of N while the window does not change.
const LOOK_EVERY: Span = Span::from_millis(32);
/// Before the first loss and after a timeout, the window grows by at least a 20th per round trip.
const FIRST_EVERY: u32 = 20;
/// The window grows by at most one segment per two arrivals.
const LEAST_EVERY: u32 = 2;
/// Stands for no growth: the window grows by a segment after this many windows of arrivals.
const HARDLY: u32 = 100;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cubic {
    /// The window at the last reduction, lowered by fast convergence; zero before the first
    /// reduction and after a timeout.
    max: u32,
    epoch: Option<Epoch>,
    /// Arrivals per increment of the window: N.
    every: u32,
    /// The window at the last update.
    seen: u32,
    looked: Time,
    /// Arrivals that the estimate of Reno's window has not used.
    arrived: u32,
}

#[derive(Clone, Copy, Debug)]
struct Epoch {
    began: Time,
    /// The curve's plateau.
    origin: u32,
    /// Seconds from `began` to the plateau.
    k: f64,
    /// The estimate of Reno's window.
    reno: u32,
}

impl Cubic {
    /// Processes `arrived` segments; returns the arrivals per increment of `window`.
    pub(super) fn on_ack(&mut self, now: Time, window: u32, arrived: u32, min_rtt: Span) -> u32 {
        self.arrived = self.arrived.saturating_add(arrived);
        let same = self.seen == window && now.since(self.looked) < LOOK_EVERY;
        if same && self.every > 0 {
            return self.every;
        }
        let tick = |at: Time| at.since(Time::ZERO).as_nanos() / TICK.as_nanos();
        if self.epoch.is_none() || tick(now) != tick(self.looked) {
            (self.seen, self.looked) = (window, now);
            self.follow_curve(now, window, arrived, min_rtt);
        }
        self.follow_reno(window);
        self.every = self.every.max(LEAST_EVERY);
        self.every
    }

    /// RFC 9438, 4.2: the curve.
    fn follow_curve(&mut self, now: Time, window: u32, arrived: u32, min_rtt: Span) {
        let max = self.max;
        let epoch = match self.epoch {
            Some(epoch) => epoch,
            None => {
                self.arrived = arrived;
                let origin = max.max(window);
                // RFC 9438, (2): K = ∛((W_max − cwnd_epoch) / C).
                let k = libm::cbrt(f64::from(origin - window) / C);
                Epoch { began: now, origin, k, reno: window }
            }
        };
        self.epoch = Some(epoch);
        // RFC 9438, 4.2: the target window one round trip later.
        let from = (now.since(epoch.began) + min_rtt).as_secs_f64() - epoch.k;
        let away = (C * (from * from * from).abs()) as u32;
        let target = match from < 0.0 {
            true => epoch.origin.saturating_sub(away),
            false => epoch.origin.saturating_add(away),
        };
        self.every = match target.checked_sub(window) {
            Some(above) if above > 0 => window / above,
            _ => HARDLY.saturating_mul(window),
        };
        if self.max == 0 {
            self.every = self.every.min(FIRST_EVERY);
        }
    }

    /// RFC 9438, 4.3: at least as fast as Reno.
    fn follow_reno(&mut self, window: u32) {
        let Some(epoch) = &mut self.epoch else { return };
        let each = scaled(window, RENO_EIGHTHS, 8).max(1);
        epoch.reno = epoch.reno.saturating_add(self.arrived.saturating_sub(1) / each);
        self.arrived -= self.arrived.saturating_sub(1) / each * each;
        if let Some(behind) = epoch.reno.checked_sub(window).filter(|behind| *behind > 0) {
            self.every = self.every.min(window / behind);
        }
    }

    /// Returns the window after a loss.
    pub(super) fn on_loss(&mut self, window: u32) -> u32 {
        // RFC 9438, 4.7, fast convergence.
        self.max = match window < self.max {
            true => scaled(window, PARTS + BETA, 2 * PARTS),
            false => window,
        };
        self.epoch = None;
        scaled(window, BETA, PARTS).max(2)
    }

    /// RFC 9438, 4.8: after a timeout the curve restarts where slow start ends. Returns the window
    /// at which slow start ends.
    pub(super) fn on_timeout(&mut self, window: u32) -> u32 {
        let threshold = self.on_loss(window);
        *self = Cubic::default();
        threshold
    }
}

/// Returns `window` × `parts` / `whole`, at most [`u32::MAX`].
fn scaled(window: u32, parts: u32, whole: u32) -> u32 {
    u32::try_from(u64::from(window) * u64::from(parts) / u64::from(whole)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Follower {
        cubic: Cubic,
        window: u32,
        count: u32,
    }

    impl Follower {
        fn after_loss(before: u32) -> Follower {
            let mut cubic = Cubic::default();
            let window = cubic.on_loss(before);
            Follower { cubic, window, count: 0 }
        }

        fn arrive(&mut self, now: Time, arrived: u32, rtt: Span) {
            let every = self.cubic.on_ack(now, self.window, arrived, rtt);
            self.count += arrived;
            self.window += self.count / every;
            self.count %= every;
        }
    }

    #[test]
    fn k_seconds_after_a_loss_the_window_is_as_large_as_before_the_loss() {
        let (mut follower, rtt) = (Follower::after_loss(1_000), Span::from_millis(100));
        assert_eq!(follower.window, 700);
        // K = ∛(1000 × 0.3 / 0.4) = 9.086 s; one acknowledgement a millisecond.
        for millis in 0..9_086 {
            let arrived = (follower.window / 100).max(1);
            follower.arrive(Time::ZERO + Span::from_millis(millis), arrived, rtt);
        }
        assert!(follower.window.abs_diff(1_000) < 6, "{}", follower.window);
    }

    #[test]
    fn at_40_ms_a_window_of_14_segments_grows_as_fast_as_the_estimate_of_renos_window() {
        let (mut follower, rtt) = (Follower::after_loss(20), Span::from_millis(40));
        // One window of acknowledgements per round trip adds 3 (1 − β) / (1 + β) = 0.53 segments.
        for round in 0..20 {
            for _ in 0..follower.window {
                follower.arrive(Time::ZERO + rtt * round, 1, rtt);
            }
        }
        assert!((22..=25).contains(&follower.window), "{}", follower.window);
    }

    #[test]
    fn on_a_short_path_cubic_pauses_for_32_ms_after_a_loss() {
        let (mut follower, rtt) = (Follower::after_loss(20), Span::from_millis(1));
        let mut windows = Vec::new();
        for round in 0..60 {
            for _ in 0..follower.window {
                follower.arrive(Time::ZERO + rtt * round, 1, rtt);
            }
            windows.push(follower.window);
        }
        // After the loss the window is 14 and the target 15, so each increment takes 14 arrivals.
        // This number stays until the next clock tick (4 ms), so the window grows by one segment
        // in each round trip (1 ms).
        assert!(windows[0] == 15 && windows[4] <= 18, "{windows:?}");
        assert!(windows[5..36].iter().all(|window| *window == windows[4]), "{windows:?}");
        assert!(windows[59] > 30, "{windows:?}");
    }

    #[test]
    fn a_loss_at_a_smaller_window_than_at_the_previous_loss_lowers_the_curves_origin() {
        let mut cubic = Cubic::default();
        cubic.on_loss(100);
        // The window falls to 0.7 * 80, the curve's origin to 0.85 * 80.
        assert_eq!((cubic.on_loss(80), cubic.max), (56, 80 * 1_741 / 2_048));
    }
}
