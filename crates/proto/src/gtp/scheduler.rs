//! The max-min fairness scheduler (MFS): divides the receiver's capacity.
//!
//! > Our scheme tries to schedule the flow with smaller estimate (than fair share) first, and
//! > evenly distribute the remaining bandwidth to those with the estimate higher than average fair
//! > share. (section 4.3)
//!
//! With weights, the shares per unit of weight are max-min fair. Equal weights give the paper's
//! schedule.

use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Ordering;

/// The demand of a flow on the receiver's capacity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// The maximum rate of the flow, in bits a second.
    pub estimate: f64,
    /// The weight of the flow; positive.
    pub weight: f64,
}

impl Demand {
    fn level(&self) -> f64 {
        self.estimate / self.weight
    }
}

/// The minimum share of a flow of this weight. Without it, a flow with a low estimate would get too
/// few requests to be measured. The minimum is `least`, but at most the flow's part of `capacity`
/// by weight; `weights` is the sum of all flows' weights.
pub(super) fn floor(least: f64, capacity: f64, weight: f64, weights: f64) -> f64 {
    least.min(capacity * (weight / weights))
}

/// The shares of `capacity`, in the order of `demands`. Adds the number of steps (comparisons of
/// flows, and flows with a share) to `work`: O(N log N) for N flows.
pub fn shares(demands: &[Demand], capacity: f64, work: &mut u64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..demands.len()).collect();
    order.sort_unstable_by(|&a, &b| {
        *work += 1;
        demands[a].level().partial_cmp(&demands[b].level()).unwrap_or(Ordering::Equal)
    });
    let mut shares = vec![0.0; demands.len()];
    let mut left = capacity;
    let mut weight: f64 = demands.iter().map(|demand| demand.weight).sum();
    // "Find flow j with minimum rate estimate" (Figure 6, line 3): the flows are sorted.
    for &flow in &order {
        *work += 1;
        let demand = demands[flow];
        let fair = left * (demand.weight / weight).min(1.0);
        // Lines 4, 5 and 9: the lower of the estimate and the fair share. Once a flow gets its fair
        // share, all later flows do too: their estimates per weight are at least as high.
        shares[flow] = demand.estimate.min(fair);
        left = (left - shares[flow]).max(0.0);
        weight -= demand.weight;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plain(estimates: &[f64], capacity: f64) -> Vec<f64> {
        let demands: Vec<Demand> =
            estimates.iter().map(|&estimate| Demand { estimate, weight: 1.0 }).collect();
        shares(&demands, capacity, &mut 0)
    }

    /// Figure 6 line by line, with nothing sorted.
    fn figure_6(estimates: &[f64], capacity: f64) -> Vec<f64> {
        let (mut left, mut done) = (capacity, Vec::new());
        let mut targets = vec![f64::NAN; estimates.len()];
        while done.len() < estimates.len() {
            let fair = left / (estimates.len() - done.len()) as f64;
            let rest = (0..estimates.len()).filter(|flow| !done.contains(flow));
            let least = rest.min_by(|&a, &b| estimates[a].total_cmp(&estimates[b])).unwrap();
            if estimates[least] >= fair {
                break;
            }
            targets[least] = estimates[least];
            left -= targets[least];
            done.push(least);
        }
        let fair = left / (estimates.len() - done.len()) as f64;
        targets.iter().map(|target| if target.is_nan() { fair } else { *target }).collect()
    }

    #[test]
    fn the_papers_example_is_reproduced() {
        assert_eq!(plain(&[100.0, 200.0, 500.0, 500.0], 1000.0), [100.0, 200.0, 350.0, 350.0]);
        assert_eq!(plain(&[500.0, 100.0, 500.0, 200.0], 1000.0), [350.0, 100.0, 350.0, 200.0]);
        assert_eq!(plain(&[100.0, 200.0], 1000.0), [100.0, 200.0]);
        assert_eq!(plain(&[f64::INFINITY, 10.0], 100.0), [90.0, 10.0]);
        assert!(plain(&[], 1000.0).is_empty());
    }

    #[test]
    fn weights_divide_contended_capacity() {
        let demand = |estimate, weight| Demand { estimate, weight };
        let demands = [demand(900.0, 3.0), demand(900.0, 1.0), demand(100.0, 4.0)];
        assert_eq!(shares(&demands, 900.0, &mut 0), [600.0, 200.0, 100.0]);
    }

    #[test]
    fn the_floor_is_the_least_rate_but_at_most_the_flows_part_of_the_capacity() {
        assert_eq!([floor(1e6, 800.0, 1.0, 4.0), floor(10.0, 800.0, 1.0, 4.0)], [200.0, 10.0]);
    }

    #[test]
    fn each_comparison_and_each_share_is_a_step() {
        let steps = |flows| {
            let mut work = 10;
            shares(&vec![Demand { estimate: 1.0, weight: 1.0 }; flows], 1.0, &mut work);
            work - 10
        };
        assert_eq!([0, 1, 2].map(steps), [0, 1, 3]);
    }

    #[test]
    fn the_steps_for_n_flows_are_of_the_order_of_n_log_n() {
        for flows in [10u64, 100, 1_000, 10_000] {
            let estimates = (0..flows).map(|flow| (flow * 7919 % flows) as f64 + 1.0);
            let demands: Vec<Demand> =
                estimates.map(|estimate| Demand { estimate, weight: 1.0 }).collect();
            let mut work = 0;
            shares(&demands, flows as f64 * 100.0, &mut work);
            let bound = flows as f64 * (2.0 * (flows as f64).log2() + 4.0);
            assert!((work as f64) < bound, "{flows} flows: {work} of {bound}");
        }
    }

    prop_compose! {
        fn demands()(
            list in prop::collection::vec((0.0..1e9, 0.01..100.0), 1..50),
        ) -> Vec<Demand> {
            list.into_iter().map(|(estimate, weight)| Demand { estimate, weight }).collect()
        }
    }

    proptest! {
        #[test]
        fn shares_reach_their_floors_and_together_never_exceed_the_capacity(
            list in prop::collection::vec((0.0..1e6, 0.01..100.0, 0.0..1e6), 1..3_000),
            capacity in 1.0..1e9,
        ) {
            let weights: f64 = list.iter().map(|(_, weight, _)| weight).sum();
            let floors: Vec<f64> = list
                .iter()
                .map(|&(_, weight, least)| floor(least, capacity, weight, weights))
                .collect();
            let demand = |(&(estimate, weight, _), floor): (&(f64, f64, f64), &f64)| {
                Demand { estimate: f64::max(estimate, *floor), weight }
            };
            let demands: Vec<Demand> = list.iter().zip(&floors).map(demand).collect();
            let shares = shares(&demands, capacity, &mut 0);
            let slack = capacity * 1e-9;
            prop_assert!(shares.iter().sum::<f64>() <= capacity + slack);
            prop_assert!(shares.iter().zip(&floors).all(|(share, floor)| *share >= floor - slack));
        }

        #[test]
        fn shares_are_weighted_max_min_fair(demands in demands(), capacity in 1.0..2e9) {
            let shares = shares(&demands, capacity, &mut 0);
            let (used, slack) = (shares.iter().sum::<f64>(), capacity * 1e-9);
            prop_assert!(used <= capacity + slack);
            let mut unsatisfied = Vec::new();
            for (share, demand) in shares.iter().zip(&demands) {
                prop_assert!(*share >= 0.0 && *share <= demand.estimate);
                if *share < demand.estimate - slack {
                    unsatisfied.push(share / demand.weight);
                }
            }
            // The capacity is used up, or all flows have their maximum.
            prop_assert!(unsatisfied.is_empty() || used >= capacity - slack);
            if let Some(level) = unsatisfied.first() {
                let is_level = |share: &f64| (share - level).abs() <= level * 1e-6 + slack;
                prop_assert!(unsatisfied.iter().all(is_level));
                let mut all = shares.iter().zip(&demands);
                prop_assert!(all.all(|(s, d)| s / d.weight <= level * (1.0 + 1e-6) + slack / 0.01));
            }
        }

        #[test]
        fn equal_weights_give_the_papers_figure_6(
            estimates in prop::collection::vec(1.0..1e9, 1..30), capacity in 1.0..2e9,
        ) {
            let theirs = figure_6(&estimates, capacity);
            for (ours, theirs) in plain(&estimates, capacity).iter().zip(&theirs) {
                prop_assert!((ours - theirs).abs() <= capacity * 1e-9);
            }
        }
    }
}
