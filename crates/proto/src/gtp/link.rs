//! The receiver's access link: how the host's card and other traffic on the link determine C_r, the
//! capacity that the receiver divides among its flows.
//!
//! [`Capacity`] estimates the capacity from measurements of our flows. The card's speed is an upper
//! limit. If a flow's first packet train (datagrams sent back to back) arrives at the fraction
//! `like_card` of that speed or faster, the card is the bottleneck. The capacity is then the card's
//! full speed. The card's speed alone is not enough, because the path to the host is often
//! narrower. The user's limit for all flows is a second upper limit.
//!
//! If the host reports other traffic, the estimate is the capacity for all traffic on the link. C_r
//! is this estimate minus the *part* of other traffic: the rate that other traffic gets by the
//! rules of [`fair_share`](super::fair_share).

use alloc::vec::Vec;

use super::capacity::{Capacity, Totals, Trains};
use super::fair_share::OtherTraffic;
use super::tuning::Tuning;
use crate::endpoint::{Origin, Others, ReceiveCapacity};
use crate::time::Time;
use crate::units::Rate;

#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    /// The card's speed, in bits a second.
    card: f64,
    /// The user's limit for all flows, in bits a second.
    limit: f64,
    others: Option<OtherTraffic>,
    /// Sum of the rates that users fixed; other traffic does not reduce it.
    fixed: f64,
}

impl Link {
    pub(super) fn new() -> Link {
        Link { card: f64::INFINITY, limit: f64::INFINITY, others: None, fixed: 0.0 }
    }

    /// Takes the host's report on other traffic; `counts` says whether other traffic gets a part.
    pub(super) fn set(&mut self, now: Time, report: Others, counts: bool) {
        self.card = report.link.map_or(f64::INFINITY, |link| link.as_bps() as f64);
        match &mut self.others {
            _ if !counts => self.others = None,
            Some(others) => others.note(now, report),
            None => self.others = Some(OtherTraffic::new(now, report)),
        }
    }

    pub(super) fn set_limit(&mut self, limit: f64) {
        self.limit = limit;
    }

    /// The upper limit of the link's found capacity: the card's speed or, if lower, the capacity at
    /// which C_r reaches the user's limit.
    fn most(&self, capacity: &Capacity) -> f64 {
        let for_limit = (self.limit / capacity.found().1).max(self.limit + self.left());
        self.card.min(for_limit)
    }

    /// The part of other traffic, in bits a second.
    fn left(&self) -> f64 {
        self.others.map_or(0.0, |others| others.left())
    }

    /// The capacity of the link for all traffic, as far as known.
    fn carries(capacity: &Capacity) -> f64 {
        capacity.given().unwrap_or(capacity.found().0)
    }

    /// C_r, if the rates that users fixed add up to `fixed`.
    pub(super) fn rate(&mut self, capacity: &Capacity, fixed: f64) -> f64 {
        self.fixed = fixed;
        self.taken(capacity)
    }

    /// C_r, with the fixed rates of the last call of [`Link::rate`].
    pub(super) fn taken(&self, capacity: &Capacity) -> f64 {
        let rest = (Link::carries(capacity) - self.left()).max(self.fixed);
        capacity.rate(self.fixed).min(rest).min(self.limit)
    }

    /// Takes the rate of a flow's first train; returns whether that changed the found capacity.
    pub(super) fn on_train(&self, capacity: &mut Capacity, rate: f64) -> bool {
        let (found, most) = (capacity.found().0, self.most(capacity));
        let is_new = capacity.given().is_none()
            && (found > most || (rate >= self.card * capacity.tuning().like_card && found < most));
        if is_new {
            capacity.set_found(most);
        }
        is_new
    }

    /// The totals from which C_r is adjusted. `receive-share` leaves a part of the link free. If
    /// the part of other traffic is larger than this free part, the difference counts as arrived.
    pub(super) fn totals(&self, capacity: &Capacity, totals: Totals) -> Totals {
        let Some(others) = self.others else { return totals };
        let (found, share) = capacity.found();
        let theirs = (found * share - (found - others.left())).max(0.0);
        let came = totals.current + totals.unmeasured + others.seen();
        // On a full link with loss, other traffic took more than its part. Its part will grow, so
        // the loss does not count.
        let is_full = others.seen() > 0.0 && came >= found * capacity.tuning().link_full;
        let (total, current) = (totals.total + theirs, totals.current + theirs);
        let loss = if is_full { 0.0 } else { totals.loss };
        // On a link that other traffic may fill, loss is no sign that C_r is too high. Loss could
        // then not end the quick rise that trains allow, so trains do not count.
        let is_small = others.seen() < found * capacity.tuning().others_small;
        let trains = if is_small { totals.trains } else { Trains::default() };
        Totals { total, current, loss, trains, ..totals }
    }

    /// The minimum rate of one of our flows, per unit of weight: the fraction `even_least`
    /// (`tuning`) of an even share among other flows and ours. Our weights add up to `weights`.
    pub(super) fn even_least(&self, capacity: &Capacity, weights: f64) -> f64 {
        let flows = self.others.map_or(0, |others| others.flows());
        let even = Link::carries(capacity) / (weights + f64::from(flows)).max(1.0);
        even * capacity.tuning().even_least
    }

    /// Ends a control interval. Our flows received `current` bits a second; `estimates` has the
    /// estimated rate and the weight of each of our flows.
    pub(super) fn on_interval(
        &mut self,
        tuning: &Tuning,
        capacity: &mut Capacity,
        current: f64,
        estimates: &[(Rate, f64)],
    ) {
        let seen = self.others.map_or(0.0, |others| others.seen());
        // The link has carried at least this much.
        let carried = if seen > 0.0 { (current + seen) * tuning.link_full } else { 0.0 };
        let (found, _) = capacity.found();
        capacity.set_found(found.max(carried).min(self.most(capacity)));
        if let Some(others) = &mut self.others {
            others.on_interval(tuning, Rate::from_bps_f64(Link::carries(capacity)), estimates);
        }
    }

    pub(super) fn receive_capacity(&self, capacity: &Capacity) -> ReceiveCapacity {
        let (found, share) = capacity.found();
        let origin = match capacity.given() {
            Some(given) if given * share <= self.limit => Origin::Given,
            Some(_) => Origin::Limit,
            None if found < self.most(capacity) => Origin::Found,
            None if found < self.card => Origin::Limit,
            None => Origin::Card,
        };
        let rate = Rate::from_bps_f64;
        ReceiveCapacity {
            rate: rate(self.taken(capacity)),
            link: rate(Link::carries(capacity)),
            origin,
            share,
            others: self.others.map(|others| rate(others.left())),
        }
    }
}

pub(super) fn estimates(flows: impl Iterator<Item = (f64, f64)>) -> Vec<(Rate, f64)> {
    flows.map(|(estimate, weight)| (Rate::from_bps_f64(estimate), weight)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gtp::options::Rules;
    use crate::settings::Settings;
    use crate::time::Span;
    use crate::units::Bytes;

    fn rules() -> Rules {
        Rules::new(&Settings::default())
    }

    fn found(found: f64) -> Capacity {
        let mut capacity = Capacity::new();
        capacity.set_rules(&rules());
        capacity.set_found(found);
        capacity
    }

    fn card(mbps: u64) -> Link {
        let mut link = Link::new();
        let report = Others { link: Some(Rate::from_mbps(mbps)), bytes: Bytes::ZERO, flows: 0 };
        link.set(Time::ZERO, report, false);
        link
    }

    fn origin(link: &Link, capacity: &Capacity) -> (u64, Origin) {
        let found = link.receive_capacity(capacity);
        (found.rate.as_bps() / 1_000_000, found.origin)
    }

    #[test]
    fn a_train_nearly_as_fast_as_the_card_raises_the_capacity_to_the_cards_speed_but_no_more() {
        let (mut link, mut capacity) = (card(1000), found(450e6));
        assert!(!link.on_train(&mut capacity, 500e6));
        assert_eq!(origin(&link, &capacity), (450, Origin::Found));
        assert!(link.on_train(&mut capacity, 800e6));
        assert_eq!(origin(&link, &capacity), (1000, Origin::Card));
        assert!(!link.on_train(&mut capacity, 5e9));
        capacity.set_found(1.02e9);
        link.on_interval(&rules().tuning, &mut capacity, 1e9, &[]);
        assert_eq!(origin(&link, &capacity), (1000, Origin::Card));
        capacity.set_found(1.3e9);
        assert!(link.on_train(&mut capacity, 1.5e9));
        assert_eq!(origin(&link, &capacity), (1000, Origin::Card));
        capacity.set_rules(&Rules { receive_share: 0.85, ..rules() });
        assert_eq!(origin(&link, &capacity), (850, Origin::Card));
        capacity.set_rules(&Rules { receive_rate: Some(9e9), ..rules() });
        assert_eq!(origin(&link, &capacity), (9000, Origin::Given));
        assert!(!link.on_train(&mut capacity, 1.5e9));
    }

    #[test]
    fn a_limit_applies_to_found_given_and_fixed_rates() {
        let (mut link, mut capacity) = (Link::new(), found(10e6));
        link.set_limit(100e6);
        assert_eq!(origin(&link, &capacity), (10, Origin::Found));
        // The link carries ten times the limit. The limit also applies to fixed rates.
        assert!(capacity.on_train(1e9, 31) && link.on_train(&mut capacity, 1e9));
        assert_eq!(origin(&link, &capacity), (100, Origin::Limit));
        assert_eq!(link.rate(&capacity, 3e9), 100e6);
        for _ in 0..200 {
            let totals = Totals { total: 100e6, current: 100e6, ..Totals::default() };
            capacity.on_interval(&rules(), &totals);
            link.on_interval(&rules().tuning, &mut capacity, 100e6, &[]);
            assert_eq!(link.rate(&capacity, 0.0), 100e6);
        }
        // With a `receive-share` of 50 %, C_r reaches the limit at a capacity of twice the limit.
        let mut half = found(10e9);
        half.set_rules(&Rules { receive_share: 0.5, ..rules() });
        link.on_interval(&rules().tuning, &mut half, 0.0, &[]);
        assert_eq!(half.found().0, 200e6);
        capacity.set_found(50e6);
        assert_eq!(origin(&link, &capacity), (50, Origin::Found));
        let given = Rules { receive_rate: Some(1e9), receive_share: 0.5, ..rules() };
        capacity.set_rules(&given);
        assert_eq!(origin(&link, &capacity), (100, Origin::Limit));
        capacity.set_rules(&Rules { receive_rate: Some(150e6), ..given });
        assert_eq!(origin(&link, &capacity), (75, Origin::Given));
    }

    /// A link with other traffic of `others` Mbit/s. The other traffic has its fair share against
    /// one flow of ours without a limit.
    fn with_others(capacity: &mut Capacity, others: u64) -> Link {
        let mut link = Link::new();
        for second in 0..3u64 {
            let bytes = Rate::from_mbps(others).over(Span::from_secs(second));
            let report = Others { link: None, bytes, flows: 1 };
            link.set(Time::ZERO + Span::from_secs(second), report, true);
            link.on_interval(&rules().tuning, capacity, 0.0, &[(Rate::from_bps(u64::MAX), 1.0)]);
        }
        link
    }

    #[test]
    fn other_traffic_does_not_reduce_a_limited_c_r_that_fits_beside_it() {
        for others in [10, 600] {
            let mut capacity = found(1e9);
            let mut link = with_others(&mut capacity, others);
            link.set_limit(100e6);
            for _ in 0..30 {
                let flow = [(Rate::from_bps(u64::MAX), 1.0)];
                link.on_interval(&rules().tuning, &mut capacity, 100e6, &flow);
                assert_eq!(link.rate(&capacity, 0.0), 100e6, "beside {others} Mbit/s");
            }
        }
    }

    #[test]
    fn the_part_of_other_traffic_reduces_c_r_but_no_fixed_rate() {
        let mut capacity = found(1e9);
        let mut link = with_others(&mut capacity, 600);
        assert_eq!(link.rate(&capacity, 0.0), 500e6);
        assert_eq!(link.rate(&capacity, 700e6), 700e6);
        assert_eq!(link.receive_capacity(&capacity).others, Some(Rate::from_mbps(500)));
        // The minimum is half of an even share. With one flow of ours and one other flow the
        // minimum is a quarter of the link; with three flows of ours, an eighth.
        let least = [1.0, 3.0].map(|weights| link.even_least(&capacity, weights));
        assert_eq!(least, [250e6, 125e6]);
        let tuning = Tuning { even_least: 1.0, ..Tuning::OURS };
        capacity.set_rules(&Rules { tuning, ..rules() });
        assert_eq!(link.even_least(&capacity, 1.0), 500e6);
        capacity.set_rules(&Rules { receive_share: 0.3, ..rules() });
        assert_eq!(link.rate(&capacity, 0.0), 300e6);
    }

    #[test]
    fn other_traffic_counts_towards_the_capacity_of_the_link() {
        let mut capacity = found(450e6);
        let mut link = with_others(&mut capacity, 600);
        // 300 Mbit/s of ours and 600 of other traffic arrived: the link carries 900, of which
        // 98 % count.
        link.on_interval(&rules().tuning, &mut capacity, 300e6, &[]);
        assert_eq!(capacity.found().0, 882e6);
        let mut capacity = found(1e9);
        let link = with_others(&mut capacity, 600);
        // Half of the link is the part of other traffic and counts as arrived. With 480 Mbit/s of
        // ours and 600 Mbit/s of other traffic the link is full, so the loss does not show a
        // narrower link.
        let totals = Totals { total: 500e6, current: 480e6, loss: 0.04, ..Totals::default() };
        let judged = link.totals(&capacity, totals);
        assert_eq!((judged.total, judged.current, judged.loss), (1e9, 980e6, 0.0));
        // The link is full from 98 % of its capacity on, but only if other traffic is seen.
        let judge = |current| link.totals(&capacity, Totals { current, ..totals }).loss;
        assert_eq!([judge(380e6), judge(379e6)], [0.0, 0.04]);
        let mut quiet = found(1e9);
        let alone = Totals { current: 990e6, ..totals };
        assert_eq!(with_others(&mut quiet, 0).totals(&quiet, alone).loss, 0.04);
        let totals = Totals { current: 300e6, loss: 0.4, ..totals };
        let judged = link.totals(&capacity, totals);
        assert_eq!((judged.total, judged.current, judged.loss), (1e9, 800e6, 0.4));
        // Trains count only while other traffic has less than 5 % of the link.
        let mut trains = Trains::default();
        [1e9, 1e9].into_iter().for_each(|rate| trains.add(rate));
        let totals = Totals { trains, ..totals };
        assert_eq!(link.totals(&capacity, totals).trains, Trains::default());
        let mut little = found(1e9);
        assert_eq!(with_others(&mut little, 49).totals(&little, totals).trains, trains);
        assert_eq!(with_others(&mut little, 51).totals(&little, totals).trains, Trains::default());
        let totals = Totals { trains: Trains::default(), ..totals };
        capacity.set_rules(&Rules { receive_share: 0.5, ..rules() });
        assert_eq!(link.totals(&capacity, totals), totals);
        assert_eq!(Link::new().totals(&capacity, totals), totals);
    }

    #[test]
    fn without_other_traffic_the_arrivals_raise_no_capacity() {
        let (mut link, mut capacity) = (Link::new(), found(1e9));
        link.on_interval(&Tuning::OURS, &mut capacity, 2e9, &[]);
        assert_eq!(capacity.found().0, 1e9);
    }
}
