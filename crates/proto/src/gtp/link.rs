//! The receiver's access link: how C_r is known from the host's card, and what other traffic on the
//! link takes of it.
//!
//! [`Capacity`] finds what flows can bring that are alone. What the host's card takes is a ceiling
//! of that, and where a first train comes nearly as fast as the card takes, the card is what bounds
//! the host, and C_r is all of it. Alone the card's word is not enough, for the way to the host is
//! often narrower than its card. What the user lets all flows have is another ceiling.
//!
//! Where it is known what else comes in, what is found is the whole link with all that it carries,
//! and what others are left ([`beside`](super::beside)) comes off it.

use alloc::vec::Vec;

use super::beside::Told;
use super::capacity::{Capacity, Whole};
use super::tuning::Tuning;
use crate::endpoint::{Origin, Others, ReceiveCapacity};
use crate::time::Time;
use crate::units::Rate;

/// What is known of the link beside what the flows show.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    /// What the card takes, in bits a second, and what the user lets all flows have.
    card: f64,
    limit: f64,
    others: Option<Told>,
    /// What the rates that users fixed add up to: they hold.
    fixed: f64,
}

impl Link {
    /// Nothing is known.
    pub(super) fn new() -> Link {
        Link { card: f64::INFINITY, limit: f64::INFINITY, others: None, fixed: 0.0 }
    }

    /// What a driver tells; whether others are to be left anything.
    pub(super) fn set(&mut self, now: Time, told: Others, counts: bool) {
        self.card = told.link.map_or(f64::INFINITY, |link| link.as_bps() as f64);
        match &mut self.others {
            _ if !counts => self.others = None,
            Some(others) => others.note(now, told),
            None => self.others = Some(Told::new(now, told)),
        }
    }

    /// What all flows together may have at the most.
    pub(super) fn set_limit(&mut self, limit: f64) {
        self.limit = limit;
    }

    /// No more is found: neither the card takes it, nor would the user want it.
    fn most(&self, capacity: &Capacity) -> f64 {
        self.card.min(self.limit / capacity.found().1)
    }

    fn left(&self) -> f64 {
        self.others.map_or(0.0, |others| others.left())
    }

    /// What the link carries of everything, as far as is known.
    fn carries(capacity: &Capacity) -> f64 {
        capacity.given().unwrap_or(capacity.found().0)
    }

    /// C_r, where the rates that users fixed add up to `fixed`.
    pub(super) fn rate(&mut self, capacity: &Capacity, fixed: f64) -> f64 {
        self.fixed = fixed;
        self.taken(capacity)
    }

    /// The same, where they are what they were.
    pub(super) fn taken(&self, capacity: &Capacity) -> f64 {
        let rest = (Link::carries(capacity) - self.left()).max(self.fixed);
        capacity.rate(self.fixed).min(rest).min(self.limit)
    }

    /// A flow's first datagrams came at this rate; tells whether C_r is another now.
    pub(super) fn on_train(&self, capacity: &mut Capacity, rate: f64) -> bool {
        let (found, most) = (capacity.found().0, self.most(capacity));
        let news = capacity.given().is_none()
            && (found > most || (rate >= self.card * capacity.tuning().like_card && found < most));
        if news {
            capacity.set_found(most);
        }
        news
    }

    /// What all flows did, as C_r is judged by it: what is left to others counts as having come.
    pub(super) fn whole(&self, capacity: &Capacity, whole: Whole) -> Whole {
        let Some(others) = self.others else { return whole };
        let (found, share) = capacity.found();
        let theirs = (found * share - (found - others.left())).max(0.0);
        let came = whole.current + whole.unmeasured + others.seen();
        // A link that carries what it should, and loses, has others who take more than they were
        // left: they will be left more.
        let is_full = others.seen() > 0.0 && came >= found * capacity.tuning().link_full;
        let (total, current) = (whole.total + theirs, whole.current + theirs);
        Whole { total, current, loss: if is_full { 0.0 } else { whole.loss }, ..whole }
    }

    /// What of an even share among others and ours, whose weights add up to `weights`, one of ours
    /// counts for at the least, for each unit of weight.
    pub(super) fn even_least(&self, capacity: &Capacity, weights: f64) -> f64 {
        let flows = self.others.map_or(0, |others| others.flows());
        let even = Link::carries(capacity) / (weights + f64::from(flows)).max(1.0);
        even * capacity.tuning().even_least
    }

    /// An interval is over, in which `current` of ours came; ours could do `estimates`, each with
    /// its weight.
    pub(super) fn on_interval(
        &mut self,
        tuning: &Tuning,
        capacity: &mut Capacity,
        current: f64,
        estimates: &[(Rate, f64)],
    ) {
        let seen = self.others.map_or(0.0, |others| others.seen());
        // So much has been carried.
        let carried = if seen > 0.0 { (current + seen) * tuning.link_full } else { 0.0 };
        let (found, _) = capacity.found();
        capacity.set_found(found.max(carried).min(self.most(capacity)));
        if let Some(others) = &mut self.others {
            others.on_interval(tuning, Rate::from_bps_f64(Link::carries(capacity)), estimates);
        }
    }

    /// What is taken, of what, and where that is known from.
    pub(super) fn told(&self, capacity: &Capacity) -> ReceiveCapacity {
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

/// What flows could do, each with its weight.
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

    /// A link of which the card takes so many Mbit/s.
    fn card(mbps: u64) -> Link {
        let mut link = Link::new();
        let told = Others { link: Some(Rate::from_mbps(mbps)), bytes: Bytes::ZERO, flows: 0 };
        link.set(Time::ZERO, told, false);
        link
    }

    fn origin(link: &Link, capacity: &Capacity) -> (u64, Origin) {
        let told = link.told(capacity);
        (told.rate.as_bps() / 1_000_000, told.origin)
    }

    #[test]
    fn a_card_is_a_ceiling_and_all_of_it_is_taken_once_a_train_came_nearly_as_fast() {
        let (mut link, mut capacity) = (card(1000), found(450e6));
        // The way is narrower than the card: what it shows is found, as without a card.
        assert!(!link.on_train(&mut capacity, 500e6));
        assert_eq!(origin(&link, &capacity), (450, Origin::Found));
        assert!(link.on_train(&mut capacity, 800e6));
        assert_eq!(origin(&link, &capacity), (1000, Origin::Card));
        assert!(!link.on_train(&mut capacity, 5e9));
        // What would be found beyond it is not taken, also where it has come from a train.
        capacity.set_found(1.02e9);
        link.on_interval(&rules().tuning, &mut capacity, 1e9, &[]);
        assert_eq!(origin(&link, &capacity), (1000, Origin::Card));
        capacity.set_found(1.3e9);
        assert!(link.on_train(&mut capacity, 1.5e9));
        assert_eq!(origin(&link, &capacity), (1000, Origin::Card));
        // A share is of the card, and a rate that was given is given.
        capacity.set_rules(&Rules { receive_share: 0.85, ..rules() });
        assert_eq!(origin(&link, &capacity), (850, Origin::Card));
        capacity.set_rules(&Rules { receive_rate: Some(9e9), ..rules() });
        assert_eq!(origin(&link, &capacity), (9000, Origin::Given));
        assert!(!link.on_train(&mut capacity, 1.5e9));
    }

    #[test]
    fn a_limit_is_for_all_that_comes_whatever_the_link_shows_and_whatever_was_given() {
        let (mut link, mut capacity) = (Link::new(), found(10e6));
        link.set_limit(100e6);
        assert_eq!(origin(&link, &capacity), (10, Origin::Found));
        // The link has ten times as much; what users fixed is bounded, too.
        assert!(capacity.on_train(1e9, 31) && link.on_train(&mut capacity, 1e9));
        assert_eq!(origin(&link, &capacity), (100, Origin::Limit));
        assert_eq!(link.rate(&capacity, 3e9), 100e6);
        for _ in 0..200 {
            let whole = Whole { total: 100e6, current: 100e6, ..Whole::default() };
            capacity.on_interval(&rules(), &whole);
            link.on_interval(&rules().tuning, &mut capacity, 100e6, &[]);
            assert_eq!(link.rate(&capacity, 0.0), 100e6);
        }
        // Of a share of the link, no more is found than its share needs.
        let mut half = found(10e9);
        half.set_rules(&Rules { receive_share: 0.5, ..rules() });
        link.on_interval(&rules().tuning, &mut half, 0.0, &[]);
        assert_eq!(half.found().0, 200e6);
        // A narrow link is found all the same.
        capacity.set_found(50e6);
        assert_eq!(origin(&link, &capacity), (50, Origin::Found));
        let given = Rules { receive_rate: Some(1e9), receive_share: 0.5, ..rules() };
        capacity.set_rules(&given);
        assert_eq!(origin(&link, &capacity), (100, Origin::Limit));
        capacity.set_rules(&Rules { receive_rate: Some(150e6), ..given });
        assert_eq!(origin(&link, &capacity), (75, Origin::Given));
    }

    /// A link on which others bring so many Mbit/s and are left as much as they get among equals of
    /// one flow of ours that could do anything.
    fn beside(capacity: &mut Capacity, others: u64) -> Link {
        let mut link = Link::new();
        for look in 0..3u64 {
            let bytes = Rate::from_mbps(others).over(Span::from_secs(look));
            let told = Others { link: None, bytes, flows: 1 };
            link.set(Time::ZERO + Span::from_secs(look), told, true);
            link.on_interval(&rules().tuning, capacity, 0.0, &[(Rate::from_bps(u64::MAX), 1.0)]);
        }
        link
    }

    #[test]
    fn what_others_are_left_comes_off_the_link_and_off_no_rate_that_was_fixed() {
        let mut capacity = found(1e9);
        let mut link = beside(&mut capacity, 600);
        assert_eq!(link.rate(&capacity, 0.0), 500e6);
        assert_eq!(link.rate(&capacity, 700e6), 700e6);
        assert_eq!(link.told(&capacity).others, Some(Rate::from_mbps(500)));
        // Beside one flow, half of an even share of one of ours is a quarter, of three an eighth.
        let least = [1.0, 3.0].map(|weights| link.even_least(&capacity, weights));
        assert_eq!(least, [250e6, 125e6]);
        let tuning = Tuning { even_least: 1.0, ..Tuning::OURS };
        capacity.set_rules(&Rules { tuning, ..rules() });
        assert_eq!(link.even_least(&capacity, 1.0), 500e6);
        // A share of the link that is less holds.
        capacity.set_rules(&Rules { receive_share: 0.3, ..rules() });
        assert_eq!(link.rate(&capacity, 0.0), 300e6);
    }

    #[test]
    fn what_others_bring_is_part_of_what_the_link_is_seen_to_carry() {
        let mut capacity = found(450e6);
        let mut link = beside(&mut capacity, 600);
        // 300 of ours and 600 of theirs came through: it carries 900, of which 98 % are believed.
        link.on_interval(&rules().tuning, &mut capacity, 300e6, &[]);
        assert_eq!(capacity.found().0, 882e6);
        let mut capacity = found(1e9);
        let link = beside(&mut capacity, 600);
        // Half of it is left to them, and counts as having come. 480 of ours of 500 and 600 of
        // theirs: the link is full, and the loss no sign that it is narrower.
        let whole = Whole { total: 500e6, current: 480e6, loss: 0.04, ..Whole::default() };
        let judged = link.whole(&capacity, whole);
        assert_eq!((judged.total, judged.current, judged.loss), (1e9, 980e6, 0.0));
        // With 300 of ours it carries less than it did.
        let whole = Whole { current: 300e6, loss: 0.4, ..whole };
        let judged = link.whole(&capacity, whole);
        assert_eq!((judged.total, judged.current, judged.loss), (1e9, 800e6, 0.4));
        // A share that leaves them half anyway is judged as it is.
        capacity.set_rules(&Rules { receive_share: 0.5, ..rules() });
        assert_eq!(link.whole(&capacity, whole), whole);
        assert_eq!(Link::new().whole(&capacity, whole), whole);
    }
}
