//! The fair share of other traffic on the access link.
//!
//! > In our future work, we expect to dynamically adjust allocatable GTP traffic by monitoring and
//! > estimating TCP traffic, so as to achieve max-min fairness to all flows, including both TCP
//! > and GTP. (section 3.6)
//!
//! The *part* of other traffic is the rate that our flows leave to it. All TCP flows together enter
//! the max-min schedule as one flow, weighted by their number. The demand of other traffic is
//! estimated from its observed rate: while other traffic uses its part, the part grows, up to a
//! fair share. C_r is the capacity of the link minus this part. The rules of the capacity estimator
//! (CE) do not work here: TCP rarely uses its whole part, and the CE would mistake TCP's current
//! rate for its limit.
//!
//! If the rate of other traffic exceeds its part, the estimated demand rises at least to this rate.
//! Only traffic that lasts for two periods counts: after a pause of this program, its own unread
//! datagrams look like other traffic. A period is at least `others_look` (`tuning`) long.

use alloc::vec::Vec;

use super::scheduler::{Demand, shares};
use super::tuning::Tuning;
use crate::endpoint::Others;
use crate::time::Time;
use crate::units::{Bytes, Rate};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FairShare {
    /// The part of other traffic, in bits a second.
    left: f64,
}

impl FairShare {
    /// Returns C_r for the next period. `seen` is the rate of other traffic, in about `flows`
    /// flows, over a link of capacity `link`; `estimates` has the estimated rate and the weight of
    /// each of our flows.
    pub(super) fn capacity(
        &mut self,
        tuning: &Tuning,
        link: Rate,
        seen: Rate,
        flows: u32,
        estimates: &[(Rate, f64)],
    ) -> Rate {
        let link = link.as_bps() as f64;
        let seen = (seen.as_bps() as f64).min(link);
        let least = link * tuning.others_least;
        let left = self.left.clamp(least, link);
        let estimate = match seen / left.max(f64::MIN_POSITIVE) {
            used if used >= tuning.others_used => left.max(seen) * tuning.others_more,
            used if used < tuning.others_absent => left * tuning.others_much_less,
            used if used < tuning.others_unused => left * tuning.others_less,
            _ => left,
        };
        let others =
            Demand { estimate: estimate.clamp(least, link), weight: f64::from(flows.max(1)) };
        let ours = estimates.iter().map(|(estimate, weight)| Demand {
            estimate: estimate.as_bps() as f64,
            weight: weight.max(f64::MIN_POSITIVE),
        });
        let demands: Vec<Demand> = core::iter::once(others).chain(ours).collect();
        self.left = shares(&demands, link, &mut 0)[0];
        Rate::from_bps_f64(link - self.left)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct OtherTraffic {
    fair_share: FairShare,
    /// The report at the start of the current period.
    from: (Time, Bytes),
    newest: (Time, Others),
    last: Rate,
    /// The lower of the rates in the last two periods.
    seen: Rate,
}

impl OtherTraffic {
    pub(super) fn new(now: Time, others: Others) -> OtherTraffic {
        let from = (now, others.bytes);
        let (last, seen) = (Rate::ZERO, Rate::ZERO);
        OtherTraffic { fair_share: FairShare::default(), from, newest: (now, others), last, seen }
    }

    pub(super) fn note(&mut self, now: Time, others: Others) {
        if others.bytes < self.newest.1.bytes {
            // The counter was reset: the bytes in between are unknown.
            self.from = (now, others.bytes);
        }
        self.newest = (now, others);
    }

    /// Ends a control interval, and also the period if it is long enough.
    pub(super) fn on_interval(&mut self, tuning: &Tuning, link: Rate, estimates: &[(Rate, f64)]) {
        let ((since, before), (at, others)) = (self.from, self.newest);
        let span = at.since(since);
        if span >= tuning.others_look {
            self.from = (at, others.bytes);
            let came = (others.bytes - before) / span;
            self.seen = came.min(self.last);
            self.last = came;
            self.fair_share.capacity(tuning, link, self.seen, others.flows, estimates);
        }
    }

    /// The rate of other traffic, in bits a second.
    pub(super) fn seen(&self) -> f64 {
        self.seen.as_bps() as f64
    }

    pub(super) fn flows(&self) -> u32 {
        self.newest.1.flows.max(1)
    }

    pub(super) fn left(&self) -> f64 {
        self.fair_share.left
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Span;

    const LINK: Rate = Rate::from_mbps(1000);

    fn tuning() -> Tuning {
        Tuning::OURS
    }

    /// C_r in Mbit/s after each period; `seen` gives the other traffic in Mbit/s.
    fn rates(others: &mut FairShare, seen: &[u64], flows: u32, ours: &[(Rate, f64)]) -> Vec<u64> {
        let rate = |seen: &u64| {
            let seen = Rate::from_mbps(*seen);
            others.capacity(&tuning(), LINK, seen, flows, ours).as_bps() / 1_000_000
        };
        seen.iter().map(rate).collect()
    }

    #[test]
    fn the_part_of_others_follows_their_use_step_by_step() {
        // Worked by hand, in Mbit/s. Others start with the least part, 10, and use 600: their
        // estimate is 750 and their part an even share, 500. They use 92 % of their part: it stays,
        // because it is the even share. They use 60 %: it stays. They use 40 %: a tenth less, 450.
        // They use 7 %: 0.7 of 450, 315. They use 80 %: a quarter more, 393.75.
        let seen = [600, 460, 300, 200, 30, 252];
        let rates = rates(&mut FairShare::default(), &seen, 1, &[(LINK, 1.0)]);
        assert_eq!(rates, [500, 500, 500, 550, 685, 606]);
    }

    #[test]
    fn other_flows_count_as_one_each_and_our_flows_by_weight() {
        let fair =
            |flows, ours: &[(Rate, f64)]| rates(&mut FairShare::default(), &[900], flows, ours)[0];
        let greedy = (LINK, 1.0);
        assert_eq!(fair(3, &[greedy]), 250);
        assert_eq!(fair(0, &[greedy]), 500);
        assert_eq!(fair(1, &[greedy, greedy, greedy]), 750);
        assert_eq!(fair(2, &[(LINK, 3.0), greedy]), 666);
        let slow = (Rate::from_mbps(200), 1.0);
        assert_eq!(fair(1, &[slow]), 200);
        assert_eq!(fair(1, &[slow, greedy]), 600);
        assert_eq!(fair(1, &[]), 0);
    }

    /// Simulates TCP with a demand of `could` Mbit/s; returns the final C_r in Mbit/s.
    fn settle(others: &mut FairShare, could: u64, flows: u32, ours: &[(Rate, f64)]) -> f64 {
        let mut capacity = LINK;
        let mut seen = 0.0f64;
        for _ in 0..100 {
            let room = LINK.as_bps() as f64 - capacity.as_bps() as f64;
            // Reno takes free capacity slowly and gives way quickly.
            seen = (seen + 0.3 * (room - seen)).min(room).min(could as f64 * 1e6);
            capacity = others.capacity(&tuning(), LINK, Rate::from_bps_f64(seen), flows, ours);
        }
        capacity.as_bps() as f64 / 1e6
    }

    #[test]
    fn without_other_traffic_our_flows_get_all_of_the_link_except_the_least_part() {
        assert_eq!(settle(&mut FairShare::default(), 0, 0, &[(LINK, 1.0)]), 990.0);
    }

    #[test]
    fn greedy_tcp_gets_its_fair_share() {
        for (tcp, ours) in [(1, 1), (3, 1), (1, 3), (2, 2)] {
            let estimates: Vec<_> = (0..ours).map(|_| (LINK, 1.0)).collect();
            let capacity = settle(&mut FairShare::default(), 1000, tcp, &estimates);
            let fair = 1000.0 * ours as f64 / (ours as f64 + f64::from(tcp));
            assert!((capacity - fair).abs() < fair * 0.15, "{tcp}, {ours}: {capacity} of {fair}");
        }
    }

    #[test]
    fn tcp_that_wants_little_leaves_most_of_the_rest_to_us() {
        let capacity = settle(&mut FairShare::default(), 50, 1, &[(LINK, 1.0)]);
        assert!((890.0..940.0).contains(&capacity), "{capacity}");
    }

    #[test]
    fn our_flows_get_what_tcp_gives_back_within_a_dozen_periods() {
        let mut others = FairShare::default();
        settle(&mut others, 1000, 1, &[(LINK, 1.0)]);
        let rates = rates(&mut others, &[0; 12], 1, &[(LINK, 1.0)]);
        assert_eq!(rates[11], 990);
    }

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    fn others(megabytes: u64) -> Others {
        Others { link: None, bytes: Bytes::new(megabytes * 1_000_000), flows: 1 }
    }

    #[test]
    fn only_traffic_that_lasts_for_two_periods_counts() {
        let mut traffic = OtherTraffic::new(at(0), others(5));
        let mut period = |ms, megabytes| {
            traffic.note(at(ms), others(megabytes));
            traffic.on_interval(&tuning(), LINK, &[(LINK, 1.0)]);
            (traffic.seen() / 1e6, traffic.left() / 1e6)
        };
        // 10 MB in 100 ms are 800 Mbit/s, 5 MB are 400. The lower rate of two periods counts.
        assert_eq!(period(100, 15), (0.0, 10.0));
        assert_eq!(period(200, 15), (0.0, 10.0));
        assert_eq!(period(300, 25), (0.0, 10.0));
        assert_eq!(period(400, 30), (400.0, 500.0));
        assert_eq!(period(450, 31), (400.0, 500.0));
        assert_eq!(period(500, 0), (400.0, 500.0));
        assert_eq!(period(600, 5), (400.0, 500.0));
    }
}
