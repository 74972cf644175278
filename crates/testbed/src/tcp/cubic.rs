//! CUBIC's congestion avoidance (RFC 9438). Windows are in segments.

use longhaul_proto::time::{Span, Time};

/// RFC 9438, 4.6: the window after a loss, as a share.
pub(super) const BETA: f64 = 0.7;
/// RFC 9438, 5: how steep the curve is, in segments a second cubed.
const C: f64 = 0.4;
/// RFC 9438, 4.3: what makes the estimate of Reno's window as fast as Reno with [`BETA`].
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// The state between two losses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cubic {
    /// The window at the last reduction, lowered by fast convergence.
    max: f64,
    /// The window just before the last reduction.
    prior: f64,
    epoch: Option<Epoch>,
}

#[derive(Clone, Copy, Debug)]
struct Epoch {
    began: Time,
    /// Where the curve is flat, and seconds until then.
    origin: f64,
    k: f64,
    /// What Reno's window would be.
    reno: f64,
}

impl Cubic {
    pub(super) fn new() -> Cubic {
        Cubic { max: 0.0, prior: 0.0, epoch: None }
    }

    /// `acked` segments have arrived in congestion avoidance: the window from now on.
    pub(super) fn on_ack(&mut self, now: Time, window: f64, acked: u32, rtt: Span) -> f64 {
        let max = self.max;
        let epoch = self.epoch.get_or_insert_with(|| {
            let origin = max.max(window);
            // RFC 9438, (2): K = ∛((W_max − cwnd_epoch) / C).
            Epoch { began: now, origin, k: libm::cbrt((origin - window) / C), reno: window }
        });
        let t = now.since(epoch.began).as_secs_f64();
        let curve = |t: f64| {
            let from = t - epoch.k;
            C * from * from * from + epoch.origin
        };
        // RFC 9438, 4.3: "once W_est has grown to reach the cwnd at the time of most recently
        // setting ssthresh […] the sender SHOULD set α_cubic to 1".
        let alpha = if epoch.reno >= self.prior { 1.0 } else { ALPHA };
        let reno = epoch.reno + alpha * f64::from(acked) / window;
        let cubic = curve(t);
        let target = curve(t + rtt.as_secs_f64()).clamp(window, 1.5 * window);
        epoch.reno = reno;
        if cubic < reno {
            return window.max(reno);
        }
        window + f64::from(acked) * (target - window) / window
    }

    /// A loss: the window after it, of `flight` segments in flight.
    pub(super) fn on_loss(&mut self, window: f64, flight: f64) -> f64 {
        // RFC 9438, 4.7, fast convergence.
        self.max = if window < self.max { window * (1.0 + BETA) / 2.0 } else { window };
        self.prior = window;
        self.epoch = None;
        (flight * BETA).max(2.0)
    }

    /// RFC 9438, 4.8: after a time-out the curve begins anew where slow start ends.
    pub(super) fn on_timeout(&mut self, window: f64, flight: f64) -> f64 {
        let threshold = self.on_loss(window, flight);
        self.max = 0.0;
        threshold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The window `secs` after a loss at `before`, one acknowledgement a millisecond.
    fn after_loss(before: f64, secs: f64, rtt: Span) -> f64 {
        let mut cubic = Cubic::new();
        let mut window = cubic.on_loss(before, before);
        assert_eq!(window, before * BETA);
        let step = Span::from_millis(1);
        for i in 0..(secs * 1e3) as u64 {
            let acked = window * step.as_secs_f64() / rtt.as_secs_f64();
            // Fractions of a segment, kept exact by chance of the numbers: 100 ms, 1 ms.
            let now = Time::ZERO + step * i;
            window = cubic.on_ack(now, window, acked.round().max(1.0) as u32, rtt);
        }
        window
    }

    #[test]
    fn after_k_seconds_the_window_is_what_it_was() {
        // K = ∛(1000 × 0.3 / 0.4) = 9.086 s; the curve leads by one round trip.
        let window = after_loss(1_000.0, 9.086, Span::from_millis(100));
        assert!((window - 1_000.0).abs() < 2.0, "{window}");
        // A second later: 1000 + 0.4 × 1³.
        let later = after_loss(1_000.0, 10.086, Span::from_millis(100));
        assert!((later - 1_000.4).abs() < 2.0, "{later}");
    }

    #[test]
    fn on_a_short_path_it_grows_as_reno_does() {
        let rtt = Span::from_millis(1);
        let mut cubic = Cubic::new();
        let mut window = cubic.on_loss(20.0, 20.0);
        // One window's worth of acknowledgements a round trip: + α each.
        for round in 0..10 {
            let now = Time::ZERO + rtt * round;
            window = cubic.on_ack(now, window, window as u32, rtt);
        }
        assert!((window - (14.0 + 10.0 * ALPHA)).abs() < 0.4, "{window}");
    }

    #[test]
    fn a_second_loss_below_the_first_lowers_the_origin() {
        let mut cubic = Cubic::new();
        cubic.on_loss(100.0, 100.0);
        cubic.on_loss(80.0, 80.0);
        assert_eq!((cubic.max, cubic.prior), (80.0 * 1.7 / 2.0, 80.0));
    }
}
