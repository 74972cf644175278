//! Transitions: the effects of joins and departures, and when a new rate takes effect.
//!
//! > When a flow terminates, we try to proportionally increase the estimates of all remaining
//! > flows. … we may introduce a delay for rate adjustment to coordinate among flows, and the
//! > delay for flow i is defined as Delay_i = RTT_max − RTT_i. (section 4.4)

use crate::time::{Span, Time};

/// The part of `gone`, the rate of departed flows, that goes to a flow with this estimate. In the
/// paper: C_l · r̂_i / Σ r̂_j, where C_l is `gone`, r̂_i the `estimate` and Σ r̂_j the `sum`.
pub(super) fn gain(gone: f64, estimate: f64, sum: f64) -> f64 {
    if sum > 0.0 { gone * (estimate / sum) } else { 0.0 }
}

/// How long a flow delays its new rate, so that all rates take effect together at the receiver.
pub(super) fn delay(longest: Span, rtt: Span) -> Span {
    longest - rtt
}

/// A target (the next rate) that has not taken effect yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pending(Option<(Time, f64)>);

impl Pending {
    /// Sets the target `rate`, which takes effect at `at` and replaces a waiting target. If the
    /// waiting target was due earlier, the earlier time stays: otherwise a series of changes would
    /// postpone the target for ever.
    pub(super) fn set(&mut self, at: Time, rate: f64) {
        let at = self.0.map_or(at, |(sooner, _)| sooner.min(at));
        self.0 = Some((at, rate));
    }

    pub(super) fn due(&self) -> Time {
        self.0.map_or(Time::NEVER, |(at, _)| at)
    }

    pub(super) fn take(&mut self, now: Time) -> Option<f64> {
        let (_, rate) = self.0.take_if(|(at, _)| *at <= now)?;
        Some(rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_departed_flows_rate_goes_to_the_others_in_proportion() {
        let estimates = [100.0, 300.0];
        let gains = estimates.map(|estimate| gain(200.0, estimate, 400.0));
        assert_eq!(gains, [50.0, 150.0]);
        assert_eq!(gain(200.0, 0.0, 0.0), 0.0);
    }

    #[test]
    fn rates_take_effect_together_at_the_receiver() {
        let longest = Span::from_millis(50);
        for ms in [5, 20, 50] {
            let rtt = Span::from_millis(ms);
            assert_eq!(delay(longest, rtt) + rtt, longest);
        }
        assert_eq!(delay(longest, Span::from_millis(90)), Span::ZERO);
    }

    #[test]
    fn a_newer_target_replaces_a_waiting_target_at_the_earlier_of_both_times() {
        let at = |ms| Time::ZERO + Span::from_millis(ms);
        let mut pending = Pending::default();
        assert_eq!(pending.due(), Time::NEVER);
        pending.set(at(40), 1.0);
        pending.set(at(90), 2.0);
        assert_eq!((pending.due(), pending.take(at(39))), (at(40), None));
        assert_eq!((pending.take(at(40)), pending.take(at(99))), (Some(2.0), None));
        pending.set(at(90), 3.0);
        pending.set(at(80), 4.0);
        assert_eq!((pending.due(), pending.take(at(80))), (at(80), Some(4.0)));
    }
}
