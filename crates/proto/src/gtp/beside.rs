//! Leaving other traffic its share of the access link.
//!
//! > In our future work, we expect to dynamically adjust allocatable GTP traffic by monitoring and
//! > estimating TCP traffic, so as to achieve max-min fairness to all flows, including both TCP
//! > and GTP. (section 3.6)
//!
//! TCP flows take part in the max-min schedule as one flow with the weight of their number. What
//! they could do is estimated from what is seen of them: as long as they use what they were left,
//! they are left more, until they have what they would have had among equals. What the schedule
//! gives them is taken off the link; the rest is C_r. The CE's rules do not do for that: a TCP flow
//! halves its window now and then and comes back slowly, so that it never does all it could, and
//! 95 % says that it could do no more.
//!
//! What took more than it was left could do that much, so traffic that fills the link before us
//! has its share after one look. What lasts for one look only is no traffic: our own datagrams are
//! counted by the card before this program has them, and a program that was not running for a
//! moment sees them come as another's.

use alloc::vec::Vec;

use super::scheduler::{Demand, shares};
use super::tuning::Tuning;
use crate::endpoint::Others;
use crate::time::Time;
use crate::units::{Bytes, Rate};

/// The traffic beside ours on the receiver's access link.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Beside {
    left: f64,
}

impl Beside {
    /// C_r for the next control interval. In the last one, `seen` came in over a link that carries
    /// `link` that was not ours, of about `flows` flows; ours could do `estimates`, each with its
    /// weight.
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
            used if used < tuning.others_gone => left * tuning.others_much_less,
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

/// The same, as a driver tells of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    beside: Beside,
    /// Where the stretch that is judged next begins, and what was told last.
    from: (Time, Bytes),
    newest: (Time, Others),
    /// What came in the last stretch, and what lasted over the last two.
    last: Rate,
    seen: Rate,
}

impl Told {
    /// The first word of others.
    pub(super) fn new(now: Time, others: Others) -> Told {
        let from = (now, others.bytes);
        let (last, seen) = (Rate::ZERO, Rate::ZERO);
        Told { beside: Beside::default(), from, newest: (now, others), last, seen }
    }

    /// A further word.
    pub(super) fn note(&mut self, now: Time, others: Others) {
        if others.bytes < self.newest.1.bytes {
            // A counter that begins anew: what came meanwhile is not known.
            self.from = (now, others.bytes);
        }
        self.newest = (now, others);
    }

    /// A control interval is over, in which ours could do `estimates`, each with its weight, over a
    /// link that carries `link`.
    pub(super) fn on_interval(&mut self, tuning: &Tuning, link: Rate, estimates: &[(Rate, f64)]) {
        let ((since, before), (at, others)) = (self.from, self.newest);
        let span = at.since(since);
        if span >= tuning.others_look {
            self.from = (at, others.bytes);
            let came = (others.bytes - before) / span;
            self.seen = came.min(self.last);
            self.last = came;
            self.beside.capacity(tuning, link, self.seen, others.flows, estimates);
        }
    }

    /// What lasted of them, in bits a second.
    pub(super) fn seen(&self) -> f64 {
        self.seen.as_bps() as f64
    }

    /// About how many flows they are.
    pub(super) fn flows(&self) -> u32 {
        self.newest.1.flows.max(1)
    }

    /// What they are left, in bits a second.
    pub(super) fn left(&self) -> f64 {
        self.beside.left
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

    /// C_r after each of the looks at which so many Mbit/s had come, in Mbit/s.
    fn looks(beside: &mut Beside, looks: &[u64], flows: u32, ours: &[(Rate, f64)]) -> Vec<u64> {
        let look = |seen: &u64| {
            let seen = Rate::from_mbps(*seen);
            beside.capacity(&tuning(), LINK, seen, flows, ours).as_bps() / 1_000_000
        };
        looks.iter().map(look).collect()
    }

    #[test]
    fn what_others_are_left_follows_what_they_use_step_by_step() {
        // By hand. 600 of the 10 that are left: they could do 750, and have an even share, 500. Of
        // that they use 92 %, then 60 %: it stays theirs. Then 40 %: a tenth less. Then 7 %: 0.7
        // of 450, 315. Then 80 %: a quarter more, 393.75.
        let seen = [600, 460, 300, 200, 30, 252];
        let rates = looks(&mut Beside::default(), &seen, 1, &[(LINK, 1.0)]);
        assert_eq!(rates, [500, 500, 500, 550, 685, 606]);
    }

    #[test]
    fn each_flow_counts_as_one_and_each_weight_as_it_is() {
        let fair =
            |flows, ours: &[(Rate, f64)]| looks(&mut Beside::default(), &[900], flows, ours)[0];
        let greedy = (LINK, 1.0);
        assert_eq!(fair(3, &[greedy]), 250);
        assert_eq!(fair(0, &[greedy]), 500);
        assert_eq!(fair(1, &[greedy, greedy, greedy]), 750);
        assert_eq!(fair(2, &[(LINK, 3.0), greedy]), 666);
        // Ours that can do no more than 200 need no more; one of them does not help the other.
        let slow = (Rate::from_mbps(200), 1.0);
        assert_eq!(fair(1, &[slow]), 200);
        assert_eq!(fair(1, &[slow, greedy]), 600);
        // Nothing of ours is there.
        assert_eq!(fair(1, &[]), 0);
    }

    /// TCP that could do `could` takes what it is left, in steps; gives C_r in Mbit/s at the end.
    fn settle(beside: &mut Beside, could: u64, flows: u32, ours: &[(Rate, f64)]) -> f64 {
        let mut capacity = LINK;
        let mut seen = 0.0f64;
        for _ in 0..100 {
            let room = LINK.as_bps() as f64 - capacity.as_bps() as f64;
            // Reno is slow to take what is free, and quick to give way.
            seen = (seen + 0.3 * (room - seen)).min(room).min(could as f64 * 1e6);
            capacity = beside.capacity(&tuning(), LINK, Rate::from_bps_f64(seen), flows, ours);
        }
        capacity.as_bps() as f64 / 1e6
    }

    #[test]
    fn a_link_without_other_traffic_is_ours_but_for_what_would_show_it() {
        assert_eq!(settle(&mut Beside::default(), 0, 0, &[(LINK, 1.0)]), 990.0);
    }

    #[test]
    fn greedy_tcp_gets_what_it_would_have_among_equals() {
        for (tcp, ours) in [(1, 1), (3, 1), (1, 3), (2, 2)] {
            let estimates: Vec<_> = (0..ours).map(|_| (LINK, 1.0)).collect();
            let capacity = settle(&mut Beside::default(), 1000, tcp, &estimates);
            let fair = 1000.0 * ours as f64 / (ours as f64 + f64::from(tcp));
            assert!((capacity - fair).abs() < fair * 0.15, "{tcp}, {ours}: {capacity} of {fair}");
        }
    }

    #[test]
    fn tcp_that_wants_little_leaves_the_rest_to_us_but_for_room_to_breathe() {
        let capacity = settle(&mut Beside::default(), 50, 1, &[(LINK, 1.0)]);
        assert!((890.0..940.0).contains(&capacity), "{capacity}");
    }

    #[test]
    fn what_tcp_gives_back_is_ours_again_within_a_dozen_looks() {
        let mut beside = Beside::default();
        settle(&mut beside, 1000, 1, &[(LINK, 1.0)]);
        let rates = looks(&mut beside, &[0; 12], 1, &[(LINK, 1.0)]);
        assert_eq!(rates[11], 990);
    }

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    fn others(megabytes: u64) -> Others {
        Others { link: None, bytes: Bytes::new(megabytes * 1_000_000), flows: 1 }
    }

    #[test]
    fn only_what_lasts_for_two_looks_is_traffic() {
        let mut told = Told::new(at(0), others(5));
        let mut look = |ms, megabytes| {
            told.note(at(ms), others(megabytes));
            told.on_interval(&tuning(), LINK, &[(LINK, 1.0)]);
            (told.seen() / 1e6, told.left() / 1e6)
        };
        // Of 10 MB in 100 ms, 800 Mbit/s, nothing is believed before they come again.
        assert_eq!(look(100, 15), (0.0, 10.0));
        assert_eq!(look(200, 15), (0.0, 10.0));
        assert_eq!(look(300, 25), (0.0, 10.0));
        assert_eq!(look(400, 30), (400.0, 500.0));
        // A look that comes too soon is none.
        assert_eq!(look(450, 31), (400.0, 500.0));
        // A counter that begins anew says nothing of the time before.
        assert_eq!(look(500, 0), (400.0, 500.0));
        assert_eq!(look(600, 5), (400.0, 500.0));
    }
}
