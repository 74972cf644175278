//! The single-flow controller (SFC): sets the requested rate once a round trip.
//!
//! > For each RTT, based on the current flow loss rate loss_i, SFC decreases the requested rate
//! > proportional to this loss rate. We also set an upper bound (12.5%) for the decrease in rate.
//! > If there is no packet loss, SFC proportionally increases the requested rate with a small step
//! > size (2% per RTT). However the new rate should be no more than the allocated/target rate set
//! > by central scheduler. (section 4.1)
//!
//! With `delay-control` a queue counts like loss: the part of the queueing delay beyond the allowed
//! delay, as a share of the path's round-trip time with empty queues.

use super::options::Rules;
use crate::time::{Span, Time};

/// The controller of one flow; rates in bits a second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Controller {
    rate: f64,
    target: f64,
}

impl Controller {
    pub(super) fn new(rate: f64) -> Controller {
        Controller { rate, target: rate }
    }

    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    pub(super) fn target(&self) -> f64 {
        self.target
    }

    pub(super) fn set_target(&mut self, target: f64) {
        self.target = target;
        self.rate = target;
    }

    pub(super) fn on_rtt(&mut self, rules: &Rules, loss: f64) {
        self.rate = if loss > 0.0 {
            // r_req (1 − min{0.5 loss, 0.125})
            self.rate * (1.0 - (rules.loss_weight * loss).min(rules.most_decrease))
        } else {
            // min{r_req (1 + 0.02), r_target}
            self.rate * (1.0 + rules.increase)
        };
        self.rate = self.rate.min(self.target).max(rules.least_rate.min(self.target));
    }
}

/// The round-trip time of the path with empty queues: the shortest of two successive windows.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathRtt {
    /// The newest round-trip time.
    now: Span,
    /// The shortest round-trip times of the current window and of the window before it.
    shortest: [Span; 2],
    began: Time,
    /// The length of a window.
    age: Span,
}

impl PathRtt {
    pub(super) fn new(now: Time, rtt: Span, age: Span) -> PathRtt {
        PathRtt { now: rtt, shortest: [rtt; 2], began: now, age }
    }

    pub(super) fn on_sample(&mut self, now: Time, rtt: Span) {
        if now.since(self.began) >= self.age {
            self.shortest = [rtt, self.shortest[0]];
            self.began = now;
        }
        self.now = rtt;
        self.shortest[0] = self.shortest[0].min(rtt);
    }

    pub(super) fn shortest(&self) -> Span {
        self.shortest[0].min(self.shortest[1])
    }

    /// The queueing delay beyond the allowed delay, as a share of the path's round-trip time;
    /// zero without `delay-control`.
    pub(super) fn queued(&self, rules: &Rules) -> f64 {
        let path = self.shortest().as_secs_f64();
        let queue = self.now.as_secs_f64() - path * (1.0 + rules.queue);
        if rules.delay_control && path > 0.0 { (queue / path).max(0.0) } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gtp::{DELAY_CONTROL, ROW};
    use crate::settings::Settings;

    fn rules() -> Rules {
        Rules::new(&Settings::default())
    }

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-6 * b.abs().max(1.0), "{a} is not {b}");
    }

    #[test]
    fn the_requested_rate_follows_the_papers_rule_step_by_step() {
        let mut sfc = Controller::new(100e6);
        // Loss, and the rate in Mbit/s after this loss, worked by hand: a loss of 4 % reduces the
        // rate by 2 %, a loss of 60 % by 12.5 %.
        for (loss, rate) in [
            (0.0, 100.0),
            (0.04, 98.0),
            (0.0, 99.96),
            (0.0, 100.0),
            (0.6, 87.5),
            (0.25, 76.5625),
            (0.001, 76.52421875),
            (0.0, 78.054703125),
        ] {
            sfc.on_rtt(&rules(), loss);
            near(sfc.rate(), rate * 1e6);
        }
        assert_eq!(sfc.target(), 100e6);
    }

    #[test]
    fn the_rate_follows_a_new_target_immediately() {
        let mut sfc = Controller::new(10e6);
        sfc.set_target(300e6);
        assert_eq!(sfc.rate(), 300e6);
        sfc.set_target(40e6);
        sfc.on_rtt(&rules(), 0.0);
        assert_eq!(sfc.rate(), 40e6);
    }

    #[test]
    fn losses_reduce_the_rate_to_the_least_rate_or_to_a_lower_target() {
        let mut sfc = Controller::new(1e6);
        for _ in 0..100 {
            sfc.on_rtt(&rules(), 0.9);
        }
        assert_eq!(sfc.rate(), 0.5e6);
        sfc.set_target(0.1e6);
        sfc.on_rtt(&rules(), 0.9);
        assert_eq!(sfc.rate(), 0.1e6);
    }

    #[test]
    fn only_loss_beyond_the_tolerated_loss_counts() {
        let rules = Rules { tolerated_loss: 0.01, ..rules() };
        assert_eq!((rules.excess(0.01), rules.excess(0.0)), (0.0, 0.0));
        near(rules.excess(0.05), 0.04);
    }

    #[test]
    fn the_shortest_round_trip_is_that_of_the_last_two_windows() {
        let mut path = PathRtt::new(Time::ZERO, Span::from_millis(100), Span::from_secs(10));
        for (second, sample, shortest) in
            [(9, 120, 100), (10, 135, 100), (20, 150, 135), (29, 140, 135), (30, 160, 140)]
        {
            path.on_sample(Time::ZERO + Span::from_secs(second), Span::from_millis(sample));
            assert_eq!(path.shortest(), Span::from_millis(shortest), "at {second} s");
        }
    }

    #[test]
    fn a_queue_lowers_the_rate_only_with_delay_control() {
        let mut path = PathRtt::new(Time::ZERO, Span::from_millis(100), Span::from_secs(10));
        path.on_sample(Time::ZERO, Span::from_millis(135));
        assert_eq!(path.queued(&rules()), 0.0);
        let settings = Settings::default().with(&ROW, DELAY_CONTROL.name, 1.0).unwrap();
        let rules = Rules::new(&settings);
        // 35 ms of queue, of which 25 ms are allowed: the excess is a tenth of the round trip.
        near(path.queued(&rules), 0.1);
        let mut sfc = Controller::new(100e6);
        sfc.on_rtt(&rules, path.queued(&rules));
        near(sfc.rate(), 95e6);
        let mut instant = PathRtt::new(Time::ZERO, Span::ZERO, Span::from_secs(10));
        instant.on_sample(Time::ZERO, Span::from_millis(10));
        assert_eq!(instant.queued(&rules), 0.0);
        for second in [11, 22, 33] {
            path.on_sample(Time::ZERO + Span::from_secs(second), Span::from_millis(135));
        }
        assert_eq!(path.queued(&rules), 0.0);
    }
}
