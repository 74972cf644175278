//! The capacity estimator (CE): after each control interval, estimates the rate that a flow could
//! reach.
//!
//! > When there is continuously no packet loss and the achieved throughput is close to target
//! > rate, the CE needs to increase the flow's estimate faster. When flow incurs a packet loss,
//! > the estimated rate should be reduced according to the loss ratio. We use an Exponential
//! > Increment and Loss Proportional Decrement (EIPD) scheme for estimation. (section 4.2)
//!
//! The paper's estimate follows a flow's achieved rate, and the target follows the estimate. A busy
//! host stays a little below its target. With the paper's rule, each interval would therefore lower
//! the next target, down to nothing. Here a flow without loss whose rate is below the share `close`
//! of its target keeps its estimate, up to its bound. After `patience` such intervals in a row, the
//! estimate follows the highest rate of these intervals.

use super::options::Rules;

/// An estimate r̂ and its last step Δr̂, in bits a second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Estimator {
    estimate: f64,
    step: f64,
    /// Number of intervals in a row without loss but below the share `close` of the target.
    missed: u32,
    /// The highest rate in one of the `missed` intervals.
    most: f64,
}

impl Estimator {
    pub(super) fn new(bound: f64) -> Estimator {
        Estimator { estimate: bound, step: 0.0, missed: 0, most: 0.0 }
    }

    pub(super) fn estimate(&self) -> f64 {
        self.estimate
    }

    pub(super) fn raise(&mut self, by: f64, bound: f64) {
        self.estimate = (self.estimate + by).min(bound);
    }

    /// Updates the estimate at the end of an interval. `total` is the rate of received and lost
    /// datagrams together, `loss` the loss ratio, `target` the flow's target rate, and `bound` the
    /// upper bound of its rate.
    pub(super) fn on_interval(
        &mut self,
        rules: &Rules,
        (total, loss): (f64, f64),
        target: f64,
        bound: f64,
    ) {
        let is_close = total >= rules.close * target;
        let mut total = total;
        if loss == 0.0 && !is_close {
            self.missed += 1;
            self.most = self.most.max(total);
            if self.missed < rules.patience {
                self.estimate = self.estimate.min(bound);
                return;
            }
            total = self.most;
        }
        (self.missed, self.most) = (0, 0.0);
        let first = rules.increase * total;
        self.step = if loss > 0.0 && loss >= rules.loss_threshold {
            // Δr̂ = 0 − min{0.5 × loss, 0.2} × r_total
            -(rules.loss_weight * loss).min(rules.most_cut) * total
        } else if loss == 0.0 && is_close && self.step > 0.0 {
            // "we increase the allowable increment of estimation exponentially"; a step larger than
            // the bound has no further effect.
            (rules.estimate_growth * self.step).min(bound)
        } else {
            first
        };
        self.estimate = (total + self.step).min(bound);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gtp::ROW;
    use crate::settings::Settings;

    /// Runs steps of (total, target, loss, expected estimate): rates in Mbit/s, loss as a ratio.
    fn run(bound: f64, steps: &[(f64, f64, f64, f64)]) {
        let rules = Rules { patience: 1, ..Rules::new(&Settings::default()) };
        let mut ce = Estimator::new(bound * 1e6);
        for (index, &(total, target, loss, estimate)) in steps.iter().enumerate() {
            ce.on_interval(&rules, (total * 1e6, loss), target * 1e6, bound * 1e6);
            let off = (ce.estimate() / 1e6 - estimate).abs();
            assert!(off < 1e-6, "step {index}: {} is not {estimate}", ce.estimate() / 1e6);
        }
    }

    #[test]
    fn the_estimate_follows_the_papers_rules_step_by_step() {
        run(
            1000.0,
            &[
                // No loss, close to the target: 2 %, then the step doubles.
                (100.0, 100.0, 0.0, 102.0),
                (102.0, 102.0, 0.0, 106.0),
                (106.0, 106.0, 0.0, 114.0),
                (110.0, 114.0, 0.0, 126.0),
                // No loss, not close: 2 % again.
                (100.0, 126.0, 0.0, 102.0),
                // Loss below the threshold: 2 %.
                (100.0, 102.0, 0.004, 102.0),
                // At and above the threshold: half the loss, at most a fifth.
                (100.0, 102.0, 0.005, 99.75),
                (100.0, 99.75, 0.1, 95.0),
                (100.0, 95.0, 0.9, 80.0),
                // No loss after a cut: the step starts at 2 % again; the cut is not doubled.
                (80.0, 80.0, 0.0, 81.6),
                (81.6, 81.6, 0.0, 84.8),
            ],
        );
    }

    #[test]
    fn the_growth_of_the_step_is_a_setting() {
        let settings = Settings::default().with(&ROW, "estimate-growth", 3.0).unwrap();
        let (rules, mut ce) = (Rules::new(&settings), Estimator::new(1000.0));
        let after = [100.0, 102.0, 108.0].map(|total| {
            ce.on_interval(&rules, (total, 0.0), total, 1000.0);
            libm::round(ce.estimate())
        });
        assert_eq!(after, [102.0, 108.0, 126.0]);
    }

    #[test]
    fn a_host_that_pauses_keeps_its_estimate_and_a_host_that_stays_slow_does_not() {
        let rules = Rules { patience: 3, ..Rules::new(&Settings::default()) };
        let mut ce = Estimator::new(1000.0);
        let mut turn = |total: f64| {
            let target = ce.estimate().min(100.0);
            ce.on_interval(&rules, (total * target / 100.0, 0.0), target, 1000.0);
            ce.estimate()
        };
        for total in [100.0, 66.0, 70.0, 98.0, 66.0, 97.0, 70.0, 50.0].repeat(50) {
            assert!(turn(total) > 100.0);
        }
        // A third slow interval in a row: the estimate follows the best of them (70), plus 2 %.
        assert!((turn(60.0) - 71.4).abs() < 0.1);
    }

    #[test]
    fn a_departed_flow_raises_the_estimate_up_to_the_bound() {
        let mut ce = Estimator::new(100.0);
        ce.raise(30.0, 200.0);
        assert_eq!(ce.estimate(), 130.0);
        ce.raise(100.0, 200.0);
        assert_eq!(ce.estimate(), 200.0);
    }

    #[test]
    fn after_several_slow_intervals_in_a_row_the_estimate_follows_the_best_of_them() {
        let rules = Rules { patience: 2, ..Rules::new(&Settings::default()) };
        let mut ce = Estimator::new(1000.0);
        let mut after = |total: f64, bound: f64| {
            ce.on_interval(&rules, (total, 0.0), 100.0, bound);
            ce.estimate()
        };
        assert_eq!(after(60.0, 1000.0), 1000.0);
        assert_eq!(after(100.0, 1000.0), 102.0, "an interval at the target resets `missed`");
        assert_eq!(after(50.0, 80.0), 80.0, "the bound also limits a kept estimate");
        assert_eq!(after(40.0, 1000.0), 51.0, "the best of these slow intervals was 50");
        assert_eq!(after(45.0, 1000.0), 51.0);
        assert_eq!(after(30.0, 1000.0), 45.9);
    }

    #[test]
    fn the_estimate_never_exceeds_its_bound_and_is_zero_for_a_silent_flow() {
        run(
            105.0,
            &[(100.0, 100.0, 0.0, 102.0), (102.0, 102.0, 0.0, 105.0), (0.0, 105.0, 0.0, 0.0)],
        );
        let rules = Rules::new(&Settings::default());
        let mut ce = Estimator::new(1e9);
        for _ in 0..5000 {
            ce.on_interval(&rules, (1e9, 0.0), 1e9, 2e9);
        }
        assert_eq!(ce.estimate(), 2e9);
    }
}
