//! C_r, "the capacity of all GTP traffic" (section 4.3): given, or found.
//!
//! Found is ours; the paper knows the access link. What a flow's first datagrams show, which leave
//! at once, is a first value, and a ceiling near which C_r stays for [`BELIEF`] intervals; without
//! that it doubles each interval, as long as all of it is used and arrives. Then it rises and falls
//! on the whole of all flows as the CE's estimate does on one, but its steps stay as small as the
//! first: what is too much fills a queue first, and shows late. A fall shows a ceiling too, and
//! what arrives is the measure of it. A first loss is enough for that; while the ceiling is
//! believed it takes as much as the CE minds, for a path may lose a little at any rate.
//!
//! The receiver's own loss is the median flow's (each counting with its rate): a link that is
//! overrun loses of all flows alike, a bad path of one.

use core::cmp::Ordering;

use super::options::Rules;

/// For how many intervals a ceiling is believed.
const BELIEF: u32 = 32;
/// What of a first train's rate is taken, and how far below a ceiling C_r goes.
const TRAIN: f64 = 0.9;
const BELOW: f64 = 0.98;
/// A first loss is more than this: a step up that was too much loses more of an interval.
const FIRST_LOSS: f64 = 0.003;

/// What all flows did together in an interval, in bits a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Whole {
    pub(super) total: f64,
    pub(super) current: f64,
    /// The loss ratio of the median flow.
    pub(super) loss: f64,
    /// What those flows are asked for that cannot be measured yet.
    pub(super) unmeasured: f64,
}

impl Whole {
    /// The whole of flows that did `(total, current, loss)`.
    pub(super) fn of(flows: &mut [(f64, f64, f64)]) -> Whole {
        let total: f64 = flows.iter().map(|flow| flow.0).sum();
        let current = flows.iter().map(|flow| flow.1).sum();
        flows.sort_unstable_by(|a, b| a.2.partial_cmp(&b.2).unwrap_or(Ordering::Equal));
        let mut below = 0.0;
        let median = flows.iter().find(|flow| {
            below += flow.0;
            below >= total / 2.0
        });
        let loss = median.map_or(0.0, |flow| flow.2);
        Whole { total, current, loss, unmeasured: 0.0 }
    }
}

/// C_r.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capacity {
    given: Option<f64>,
    share: f64,
    found: f64,
    /// What the fastest first train showed, until it is doubted.
    shown: f64,
    /// Nothing has shown how much there is.
    searching: bool,
    /// Intervals for which the ceiling is still believed.
    belief: u32,
}

impl Capacity {
    pub(super) fn new() -> Capacity {
        Capacity {
            given: None,
            share: 1.0,
            found: 0.0,
            shown: f64::INFINITY,
            searching: true,
            belief: 0,
        }
    }

    /// A flow's rules; where flows differ, the newest one's count for all.
    pub(super) fn set_rules(&mut self, rules: &Rules) {
        self.given = rules.receive_rate;
        self.share = rules.receive_share;
        self.found = self.found.max(rules.start_rate);
    }

    /// C_r, where the rates that users fixed add up to `fixed`: what is found does not lower them.
    pub(super) fn rate(&self, fixed: f64) -> f64 {
        self.given.map_or((self.found * self.share).max(fixed), |given| given * self.share)
    }

    /// Whether estimates say nothing yet, because all flows do what they are asked for.
    pub(super) fn is_searching(&self) -> bool {
        self.given.is_none() && self.searching
    }

    /// A flow's first datagrams, sent at once, came at this rate; tells whether that is news.
    pub(super) fn on_train(&mut self, rate: f64) -> bool {
        let news = self.given.is_none() && rate * TRAIN > self.found;
        if news {
            (self.found, self.shown) = (rate * TRAIN, rate);
        }
        self.searching &= !news;
        news
    }

    /// An interval is over.
    pub(super) fn on_interval(&mut self, rules: &Rules, whole: &Whole) {
        let loss = rules.excess(whole.loss);
        let most = if self.belief == 0 { FIRST_LOSS } else { rules.loss_threshold };
        let current = whole.current + whole.unmeasured;
        // What nobody has seen arrive does not show that there is more.
        let is_used = whole.total >= rules.close * self.found * self.share;
        if loss > most && current < self.found * self.share {
            self.found = self.found.min(current * BELOW / self.share).max(rules.least_rate);
            self.searching = false;
            self.belief = BELIEF;
        } else if self.belief > 0 {
            self.belief -= 1;
        } else if is_used && self.searching {
            self.found *= 2.0;
        } else if is_used && self.share == 1.0 {
            // More than a share of the link is not asked for, so nothing shows the link's limit.
            let (wanted, top) = (whole.total * (1.0 + rules.increase), self.shown * BELOW);
            self.found = self.found.max(wanted.min(top));
            if wanted >= top {
                // Next time the train counts no more.
                (self.shown, self.belief) = (f64::INFINITY, BELIEF);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    fn rules() -> Rules {
        Rules::new(&Settings::default())
    }

    /// All of C_r is used and this much lost of every flow.
    fn interval(capacity: &mut Capacity, rules: &Rules, link: f64) -> f64 {
        let total = capacity.rate(0.0);
        let current = total.min(link);
        let whole = Whole { total, current, loss: 1.0 - current / total, unmeasured: 0.0 };
        capacity.on_interval(rules, &whole);
        whole.loss
    }

    #[test]
    fn what_is_given_is_taken_whatever_happens() {
        let mut capacity = Capacity::new();
        let rules = Rules { receive_rate: Some(1e9), receive_share: 0.85, ..rules() };
        capacity.set_rules(&rules);
        assert!(!capacity.on_train(5e9) && !capacity.is_searching());
        interval(&mut capacity, &rules, 1e8);
        assert_eq!(capacity.rate(7e9), 0.85e9);
    }

    #[test]
    fn a_link_is_found_by_doubling_and_then_seldom_overrun() {
        let mut capacity = Capacity::new();
        capacity.set_rules(&rules());
        assert_eq!((capacity.rate(0.0), capacity.rate(25e6)), (10e6, 25e6));
        let mut losses = (0..200).map(|_| interval(&mut capacity, &rules(), 1e9));
        let search: f64 = losses.by_ref().take(9).sum();
        assert!(search < 0.3, "{search}");
        let rest: f64 = losses.sum::<f64>() / 191.0;
        assert!(rest < 0.001, "{rest}");
        assert!((0.95e9..1.05e9).contains(&capacity.rate(0.0)), "{}", capacity.rate(0.0));
    }

    #[test]
    fn a_train_shows_the_link_at_once_and_a_slower_one_says_nothing() {
        let mut capacity = Capacity::new();
        capacity.set_rules(&rules());
        assert!(capacity.on_train(1e9));
        assert_eq!(capacity.rate(0.0), 0.9e9);
        assert!(!capacity.on_train(0.5e9));
        // Clean intervals raise it, 2 % each, up to just below what the train showed.
        let mut rates = |intervals: usize| {
            let each = (0..intervals).map(|_| {
                interval(&mut capacity, &rules(), 1e9);
                capacity.rate(0.0) / 1e6
            });
            each.collect::<std::vec::Vec<f64>>()
        };
        let close = |rates: &[f64], expected: &[f64]| {
            assert!(rates.iter().zip(expected).all(|(a, b)| (a - b).abs() < 0.1), "{rates:?}");
        };
        close(&rates(5), &[918.0, 936.4, 955.1, 974.2, 980.0]);
        // That is believed for a while, then doubted a step at a time.
        close(&rates(32), &[980.0; 32]);
        close(&rates(4), &[999.6, 1019.6, 980.0, 980.0]);
    }

    #[test]
    fn a_link_that_shrinks_is_followed_in_one_interval() {
        let mut capacity = Capacity::new();
        capacity.set_rules(&rules());
        capacity.on_train(1e9);
        interval(&mut capacity, &rules(), 0.3e9);
        assert!((capacity.rate(0.0) - 0.294e9).abs() < 1.0);
    }

    #[test]
    fn what_is_asked_for_and_not_seen_to_arrive_shows_nothing() {
        let mut capacity = Capacity::new();
        capacity.set_rules(&rules());
        let whole = Whole { total: 1e6, current: 1e6, loss: 0.0, unmeasured: 9e6 };
        capacity.on_interval(&rules(), &whole);
        assert_eq!((capacity.rate(0.0), capacity.is_searching()), (10e6, true));
        capacity.on_interval(&rules(), &Whole { total: 10e6, current: 10e6, ..Whole::default() });
        assert_eq!(capacity.rate(0.0), 20e6);
    }

    #[test]
    fn one_bad_path_among_good_ones_is_not_the_receivers_loss() {
        let flow = |loss| (1e8, 1e8 * (1.0 - loss), loss);
        let whole = Whole::of(&mut [flow(0.3), flow(0.0), flow(0.0)]);
        assert_eq!((whole.total, whole.loss), (3e8, 0.0));
        assert_eq!(Whole::of(&mut [flow(0.3), flow(0.2), flow(0.0)]).loss, 0.2);
        assert_eq!(Whole::of(&mut []), Whole::default());
        let mut capacity = Capacity::new();
        capacity.set_rules(&rules());
        capacity.on_train(1e9 / 3.0);
        capacity.on_interval(&rules(), &whole);
        assert!(capacity.rate(0.0) >= 3e8);
    }
}
