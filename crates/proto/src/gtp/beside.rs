//! Leaving other traffic its share of the access link.
//!
//! > In our future work, we expect to dynamically adjust allocatable GTP traffic by monitoring and
//! > estimating TCP traffic, so as to achieve max-min fairness to all flows, including both TCP
//! > and GTP. (section 3.6)
//!
//! TCP flows take part in the max-min schedule as one flow with the weight of their number. What
//! they could do is estimated from what is seen of them: as long as they use what they were left,
//! they are left more, until they have what they would have had among equals. What the schedule
//! gives them is taken off C_r. The CE's rules do not do for that: a TCP flow halves its window now
//! and then and comes back slowly, so that it never does all it could, and 95 % says that it could
//! do no more.

use alloc::vec::Vec;

use super::scheduler::{Demand, shares};
use crate::endpoint::Others;
use crate::time::{Span, Time};
use crate::units::{Bytes, Rate};

/// What is left to others at the least, so that what they could do shows, as a share of the link.
const LEAST: f64 = 0.01;
/// The share of what they were left above which they want more: TCP between two losses has three
/// quarters of its window on average. And the one below which they are left less.
const USED: f64 = 0.7;
const UNUSED: f64 = 0.5;
/// By how much they are left more or less.
const MORE: f64 = 1.25;
const LESS: f64 = 0.9;
/// What came in is not judged over a shorter time: a card's counter moves in steps.
const SHORTEST: Span = Span::from_millis(100);

/// The traffic beside ours on the receiver's access link.
#[derive(Clone, Copy, Debug)]
pub struct Beside {
    link: f64,
    left: f64,
}

impl Beside {
    /// Nothing has been seen yet on an access link with this capacity.
    pub fn new(link: Rate) -> Beside {
        let link = link.as_bps() as f64;
        Beside { link, left: link * LEAST }
    }

    /// C_r for the next control interval. In the last one, `seen` came in that was not ours, of
    /// about `flows` flows; ours could do `estimates`, each with its weight.
    pub fn capacity(&mut self, seen: Rate, flows: u32, estimates: &[(Rate, f64)]) -> Rate {
        let seen = (seen.as_bps() as f64).min(self.link);
        let estimate = match seen / self.left {
            used if used >= USED => self.left * MORE,
            used if used < UNUSED => self.left * LESS,
            _ => self.left,
        };
        let others = Demand {
            estimate: estimate.clamp(self.link * LEAST, self.link),
            weight: f64::from(flows.max(1)),
        };
        let ours = estimates.iter().map(|(estimate, weight)| Demand {
            estimate: estimate.as_bps() as f64,
            weight: weight.max(f64::MIN_POSITIVE),
        });
        let demands: Vec<Demand> = core::iter::once(others).chain(ours).collect();
        self.left = shares(&demands, self.link, &mut 0)[0];
        Rate::from_bps_f64(self.link - self.left)
    }
}

/// The same, as a driver tells of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    beside: Beside,
    /// Where the stretch that is judged next begins, and what was told last.
    from: (Time, Bytes),
    newest: (Time, Others),
    /// C_r, once a stretch has been judged.
    capacity: Option<Rate>,
}

impl Told {
    /// The first word of others.
    pub(super) fn new(now: Time, others: Others) -> Told {
        let beside = Beside::new(others.link);
        Told { beside, from: (now, others.bytes), newest: (now, others), capacity: None }
    }

    /// A further word. Where the link has become another, what was learnt of it is void.
    pub(super) fn note(&mut self, now: Time, others: Others) {
        let is_same = others.link == self.newest.1.link && others.bytes >= self.newest.1.bytes;
        if is_same {
            self.newest = (now, others);
        } else {
            *self = Told { capacity: self.capacity, ..Told::new(now, others) };
        }
    }

    /// A control interval is over, in which ours could do `estimates`, each with its weight.
    pub(super) fn on_interval(&mut self, estimates: &[(Rate, f64)]) {
        let ((since, before), (at, others)) = (self.from, self.newest);
        let span = at.since(since);
        if span >= SHORTEST {
            self.from = (at, others.bytes);
            let seen = (others.bytes - before) / span;
            self.capacity = Some(self.beside.capacity(seen, others.flows, estimates));
        }
    }

    /// What others leave of the link, in bits a second.
    pub(super) fn left(&self) -> f64 {
        self.capacity.map_or(f64::INFINITY, |capacity| capacity.as_bps() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: Rate = Rate::from_mbps(1000);

    /// TCP that could do `could` takes what it is left, in steps; gives C_r in Mbit/s at the end.
    fn settle(beside: &mut Beside, could: u64, flows: u32, estimates: &[(Rate, f64)]) -> f64 {
        let mut capacity = LINK;
        let mut seen = 0.0f64;
        for _ in 0..100 {
            let room = LINK.as_bps() as f64 - capacity.as_bps() as f64;
            // Reno is slow to take what is free, and quick to give way.
            seen = (seen + 0.3 * (room - seen)).min(room).min(could as f64 * 1e6);
            capacity = beside.capacity(Rate::from_bps_f64(seen), flows, estimates);
        }
        capacity.as_bps() as f64 / 1e6
    }

    #[test]
    fn a_link_without_other_traffic_is_ours_but_for_what_would_show_it() {
        let mut beside = Beside::new(LINK);
        assert!(settle(&mut beside, 0, 0, &[(LINK, 1.0)]) >= 989.0);
    }

    #[test]
    fn greedy_tcp_gets_what_it_would_have_among_equals() {
        for (tcp, ours) in [(1, 1), (3, 1), (1, 3), (2, 2)] {
            let mut beside = Beside::new(LINK);
            let estimates: Vec<_> = (0..ours).map(|_| (LINK, 1.0)).collect();
            let capacity = settle(&mut beside, 1000, tcp, &estimates);
            let fair = 1000.0 * ours as f64 / (ours as f64 + f64::from(tcp));
            assert!((capacity - fair).abs() < fair * 0.15, "{tcp}, {ours}: {capacity} of {fair}");
        }
    }

    #[test]
    fn tcp_that_wants_little_leaves_the_rest_to_us_but_for_room_to_breathe() {
        let mut beside = Beside::new(LINK);
        let capacity = settle(&mut beside, 50, 1, &[(LINK, 1.0)]);
        assert!((890.0..940.0).contains(&capacity), "{capacity}");
    }

    #[test]
    fn a_stretch_is_judged_once_and_a_link_that_has_changed_anew() {
        let others = |bytes, link| Others { link, bytes: Bytes::new(bytes), flows: 1 };
        let at = |ms| Time::ZERO + Span::from_millis(ms);
        let mut told = Told::new(at(0), others(5_000_000, LINK));
        assert_eq!(told.left(), f64::INFINITY);
        // A hundredth of the link is left them at first. 1.25 MB in a second are all of that.
        told.note(at(1_000), others(6_250_000, LINK));
        told.on_interval(&[(LINK, 1.0)]);
        assert_eq!(told.left(), 987.5e6);
        told.on_interval(&[(LINK, 1.0)]);
        assert_eq!(told.left(), 987.5e6);
        // A counter that begins anew says nothing yet.
        told.note(at(2_000), others(0, LINK));
        told.on_interval(&[(LINK, 1.0)]);
        assert_eq!(told.left(), 987.5e6);
        let half = Rate::from_mbps(500);
        told.note(at(3_000), others(1, half));
        told.note(at(4_000), others(2, half));
        told.on_interval(&[(LINK, 1.0)]);
        assert_eq!(told.left(), 495e6);
    }

    #[test]
    fn what_tcp_gives_back_is_ours_again() {
        let mut beside = Beside::new(LINK);
        settle(&mut beside, 1000, 1, &[(LINK, 1.0)]);
        assert!(settle(&mut beside, 10, 1, &[(LINK, 1.0)]) > 970.0);
    }
}
