//! C_r, "the capacity of all GTP traffic" (section 4.3): given, or found.
//!
//! Found is ours; the paper knows the access link. What a flow's first datagrams show, which leave
//! at once, is a first value. A host looks at its card now and then, and what came meanwhile is one
//! step: so a train of few steps is taken for slower than it looks, by one step, and where there
//! are many it shows a ceiling too. Without a train C_r doubles each interval, as long as all of it
//! is used and arrives. Then it rises and falls on the whole of all flows as the CE's estimate does
//! on one, but near what was shown its steps stay as small as the first: what is too much fills a
//! queue first, and shows late.
//!
//! A ceiling is what arrives when there is loss, or where C_r was before a queue grew. A first loss
//! is enough for that; while the ceiling is believed it takes as much as the CE minds, for a path
//! may lose a little at any rate. Loss of flows that send far less than they are asked for is that
//! of hosts that pause and make up for it; it counts when it comes again. A ceiling that is found
//! again is believed for longer.
//!
//! The receiver's own loss is the median flow's (each counting with its rate), and its queue one
//! that all flows have: a link that is overrun makes all alike lose and wait, a bad path one.

use core::cmp::Ordering;

use super::options::Rules;
use super::tuning::Tuning;
use crate::time::Span;

/// What all flows did together in an interval, in bits a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Whole {
    pub(super) total: f64,
    pub(super) current: f64,
    /// The loss ratio of the median flow.
    pub(super) loss: f64,
    /// What those flows are asked for that cannot be measured yet.
    pub(super) unmeasured: f64,
    /// The geometric mean of the shortest and the longest queue on the flows' paths, in seconds.
    pub(super) queue: f64,
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
        Whole { total, current, loss, ..Whole::default() }
    }

    /// The same where the host's socket dropped so many bits beside those that came, in this time.
    /// That needs no flow's measure: it is known of all, also of flows so slow, or of so new a
    /// target, that they cannot be measured.
    pub(super) fn with_drops(self, came: f64, dropped: f64, took: Span) -> Whole {
        let loss = dropped / (came + dropped).max(1.0);
        if loss <= self.loss || took == Span::ZERO {
            return self;
        }
        let rate = |bits: f64| bits / took.as_secs_f64();
        let (total, current) = (rate(came + dropped), rate(came));
        Whole { total, current, loss, unmeasured: 0.0, ..self }
    }
}

/// C_r.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capacity {
    given: Option<f64>,
    share: f64,
    found: f64,
    /// What the fastest first train showed, until it is doubted; and whether that is a ceiling.
    shown: f64,
    exact: bool,
    /// Where C_r began to rise, and its last step, as a share.
    base: f64,
    step: f64,
    /// Near a ceiling that was met before every step is looked at for another interval.
    waits: bool,
    /// Nothing has shown how much there is.
    searching: bool,
    /// The last ceiling, intervals for which it is still believed, and will be if it is met again.
    ceiling: f64,
    belief: u64,
    lasts: u64,
    /// The shortest queue since C_r began to rise.
    queue: f64,
    /// The last interval had a loss that may not have been of the link's making.
    doubted: bool,
    tuning: Tuning,
}

impl Capacity {
    pub(super) fn new() -> Capacity {
        Capacity {
            given: None,
            share: 1.0,
            found: 0.0,
            shown: f64::INFINITY,
            exact: false,
            base: 0.0,
            step: 0.0,
            waits: false,
            searching: true,
            ceiling: 0.0,
            belief: 0,
            lasts: 0,
            queue: f64::INFINITY,
            doubted: false,
            tuning: Tuning::OURS,
        }
    }

    /// A flow's rules; where flows differ, the newest one's count for all.
    pub(super) fn set_rules(&mut self, rules: &Rules) {
        self.given = rules.receive_rate;
        self.share = rules.receive_share;
        self.tuning = rules.tuning;
        self.found = self.found.max(rules.start_rate);
    }

    /// C_r, where the rates that users fixed add up to `fixed`: what is found does not lower them.
    pub(super) fn rate(&self, fixed: f64) -> f64 {
        self.given.map_or((self.found * self.share).max(fixed), |given| given * self.share)
    }

    /// The constants that it goes by.
    pub(super) fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    /// What was given.
    pub(super) fn given(&self) -> Option<f64> {
        self.given
    }

    /// What is found without a given rate, and the share of it that may be used.
    pub(super) fn found(&self) -> (f64, f64) {
        (self.found, self.share)
    }

    /// It is known from elsewhere how much there is.
    pub(super) fn set_found(&mut self, found: f64) {
        self.found = found;
    }

    /// Whether estimates say nothing yet, because all flows do what they are asked for.
    pub(super) fn is_searching(&self) -> bool {
        self.given.is_none() && self.searching
    }

    /// A flow's first datagrams, sent at once, came at this rate in so many steps; tells whether
    /// that is news.
    pub(super) fn on_train(&mut self, rate: f64, steps: u32) -> bool {
        // The first step may have been late by all of one, and the last early.
        let slower = f64::from(steps) / f64::from(steps + 1);
        let sure = rate * slower.min(self.tuning.train);
        let news = self.given.is_none() && sure > self.found;
        if news {
            (self.found, self.shown, self.exact) = (sure, rate, self.is_exact(steps));
            (self.base, self.step, self.belief) = (sure, 0.0, 0);
            self.queue = f64::INFINITY;
        }
        self.searching &= !news;
        news
    }

    /// Whether a first train of so many steps shows a ceiling.
    fn is_exact(&self, steps: u32) -> bool {
        u64::from(steps) >= self.tuning.train_steps
    }

    /// An interval is over.
    pub(super) fn on_interval(&mut self, rules: &Rules, whole: &Whole) {
        let loss = rules.excess(whole.loss);
        let most = if self.belief == 0 { self.tuning.first_loss } else { rules.loss_threshold };
        let (current, asked) = (whole.current + whole.unmeasured, self.found * self.share);
        let was_doubted = core::mem::take(&mut self.doubted);
        if loss > most && current < asked {
            let pauses = whole.total + whole.unmeasured < asked * self.tuning.paused;
            self.doubted = !self.searching && pauses && loss <= self.tuning.doubtful;
            if was_doubted || !self.doubted {
                let below = current * self.tuning.below_ceiling;
                self.believe((below / self.share).max(rules.least_rate));
            }
        } else if self.belief > 0 {
            self.belief -= 1;
            self.queue = whole.queue;
        } else if self.grows(whole.queue) {
            let Tuning { below_ceiling, steps_back, .. } = self.tuning;
            let below = (0..steps_back).fold(self.found, |found, _| found * below_ceiling);
            self.believe(below.max(self.base));
            // It costs nothing to look again, and a host that paused may have made the queue.
            self.belief = self.tuning.belief;
        } else if whole.total >= rules.close * asked {
            // What nobody has seen arrive does not show that there is more.
            self.rise(rules);
        }
    }

    /// Whether a queue has grown since C_r began to rise. What it was is no reason to fall: others
    /// may have made it.
    fn grows(&mut self, queue: f64) -> bool {
        self.queue = self.queue.min(queue);
        self.step > 0.0 && queue >= self.queue + self.tuning.queue_growth.as_secs_f64()
    }

    fn rise(&mut self, rules: &Rules) {
        if self.searching {
            self.found *= self.tuning.search;
        } else if self.share == 1.0 {
            // More than a share of the link is not asked for, so nothing shows the link's limit.
            let Tuning { train, below_ceiling, step_growth, .. } = self.tuning;
            let is_far = self.shown.is_finite() && self.found < self.shown * train;
            let grown = if is_far { step_growth * self.step } else { 0.0 };
            self.step = grown.max(rules.increase);
            let wanted = self.found * (1.0 + self.step);
            self.waits = self.ceiling > 0.0 && !is_far && !self.waits;
            if self.waits {
                return;
            }
            if is_far {
                self.found = wanted.min(self.shown * train);
            } else if self.exact && wanted >= self.shown * below_ceiling {
                self.believe(self.found.max(self.shown * below_ceiling));
            } else {
                self.found = wanted;
            }
        }
    }

    /// A ceiling has shown itself, and C_r goes to `rate`.
    fn believe(&mut self, rate: f64) {
        let Tuning { same_ceiling, belief, belief_again, longest_belief, .. } = self.tuning;
        let is_same = (rate - self.ceiling).abs() <= self.ceiling * same_ceiling;
        let again = (self.lasts * belief_again).min(longest_belief);
        self.lasts = if is_same { again } else { belief };
        (self.ceiling, self.belief) = (rate, self.lasts);
        (self.found, self.base) = (rate, rate);
        // Next time the train counts no more.
        (self.shown, self.exact) = (f64::INFINITY, false);
        (self.step, self.waits, self.searching) = (0.0, false, false);
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
        let whole = Whole { total, current, loss: 1.0 - current / total, ..Whole::default() };
        capacity.on_interval(rules, &whole);
        whole.loss
    }

    #[test]
    fn what_is_given_is_taken_whatever_happens() {
        let mut capacity = Capacity::new();
        let rules = Rules { receive_rate: Some(1e9), receive_share: 0.85, ..rules() };
        capacity.set_rules(&rules);
        assert!(!capacity.on_train(5e9, 31) && !capacity.is_searching());
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
        assert!(capacity.on_train(1e9, 31));
        assert_eq!(capacity.rate(0.0), 0.9e9);
        assert!(!capacity.on_train(0.5e9, 31));
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
        close(&rates(8), &[980.0; 8]);
        close(&rates(6), &[980.0, 999.6, 999.6, 1019.6, 980.0, 980.0]);
        // The same ceiling again is believed for twice as long.
        close(&rates(17), &[[980.0; 16].as_slice(), &[999.6]].concat());
    }

    #[test]
    fn a_ceiling_that_is_met_again_is_believed_for_so_many_times_as_long() {
        let believed = |belief_again| {
            let mut capacity = Capacity::new();
            let tuning = Tuning { belief_again, ..Tuning::OURS };
            capacity.set_rules(&Rules { tuning, ..rules() });
            [1e9, 1.01e9, 0.99e9, 1e9, 2e9].map(|ceiling| {
                capacity.believe(ceiling);
                capacity.belief
            })
        };
        assert_eq!(believed(2), [8, 16, 32, 32, 8]);
        assert_eq!(believed(3), [8, 24, 32, 32, 8]);
        assert_eq!(believed(1), [8; 5]);
    }

    /// All of C_r is used and comes, with this queue on all paths, in milliseconds.
    fn wait(capacity: &mut Capacity, queue: f64) -> f64 {
        let (total, queue) = (capacity.rate(0.0), queue / 1e3);
        let whole = Whole { total, current: total, queue, ..Whole::default() };
        capacity.on_interval(&rules(), &whole);
        capacity.rate(0.0) / 1e6
    }

    #[test]
    fn a_train_of_few_steps_is_taken_for_slower_and_shows_no_ceiling() {
        let mut capacity = Capacity::new();
        capacity.set_rules(&rules());
        assert!(capacity.on_train(1.2e9, 4));
        assert_eq!(capacity.rate(0.0), 0.96e9);
        let mut capacity = Capacity::new();
        assert!(capacity.on_train(1e9, 1));
        // It rises in steps that double, as far as the train bears it out, and in small ones.
        let rates: std::vec::Vec<f64> = (0..9).map(|_| wait(&mut capacity, 0.0)).collect();
        let expected = [510.0, 530.4, 572.8, 664.5, 877.1, 900.0, 918.0, 936.4, 955.1];
        assert!(rates.iter().zip(expected).all(|(a, b)| (a - b).abs() < 0.1), "{rates:?}");
    }

    #[test]
    fn a_queue_that_grows_as_the_rate_rises_is_a_ceiling_and_one_that_was_there_is_none() {
        let mut capacity = Capacity::new();
        capacity.on_train(1e9, 9);
        for queue in [7.0, 6.0, 7.0, 8.0] {
            wait(&mut capacity, queue);
        }
        let before = capacity.rate(0.0) / 1e6;
        assert!((before - 900.0 * 1.02f64.powi(4)).abs() < 0.1, "{before}");
        let after = wait(&mut capacity, 12.0);
        assert!((after - before * 0.941192).abs() < 0.1, "{after}");
        assert_eq!(wait(&mut capacity, 40.0), after);
        // Others that fill the queue again and again take nothing of what was reached.
        for _ in 0..100 {
            wait(&mut capacity, 0.0);
            assert!(wait(&mut capacity, 30.0) >= after - 0.1);
        }
    }

    #[test]
    fn a_host_that_pauses_and_loses_what_it_makes_up_for_shows_no_ceiling_at_once() {
        let mut capacity = Capacity::new();
        capacity.on_train(1e9, 31);
        let pause = Whole { total: 6e8, current: 5.5e8, loss: 0.08, ..Whole::default() };
        capacity.on_interval(&rules(), &pause);
        assert_eq!(capacity.rate(0.0), 0.9e9);
        wait(&mut capacity, 0.0);
        capacity.on_interval(&rules(), &pause);
        capacity.on_interval(&rules(), &pause);
        assert!((capacity.rate(0.0) - 5.39e8).abs() < 1.0);
    }

    #[test]
    fn a_loss_that_no_pause_makes_counts_at_once() {
        let mut capacity = Capacity::new();
        capacity.on_train(2e9, 31);
        let overrun = Whole { total: 1.3e9, current: 9e8, loss: 0.31, ..Whole::default() };
        capacity.on_interval(&rules(), &overrun);
        assert!((capacity.rate(0.0) - 8.82e8).abs() < 1.0);
    }

    #[test]
    fn what_the_host_drops_counts_also_where_no_flow_can_be_measured() {
        let mut capacity = Capacity::new();
        capacity.on_train(1e9, 31);
        let whole = Whole { unmeasured: 0.9e9, ..Whole::default() };
        let (came, dropped, took) = (0.12e9, 0.15e9, Span::from_millis(300));
        assert_eq!(whole.with_drops(came, 0.0, took), whole);
        capacity.on_interval(&rules(), &whole);
        assert_eq!(capacity.rate(0.0), 0.9e9);
        capacity.on_interval(&rules(), &whole.with_drops(came, dropped, took));
        assert!((capacity.rate(0.0) - 0.392e9).abs() < 1.0, "{}", capacity.rate(0.0));
    }

    #[test]
    fn a_link_that_shrinks_is_followed_in_one_interval() {
        let mut capacity = Capacity::new();
        capacity.set_rules(&rules());
        capacity.on_train(1e9, 31);
        interval(&mut capacity, &rules(), 0.3e9);
        assert!((capacity.rate(0.0) - 0.294e9).abs() < 1.0);
    }

    #[test]
    fn what_is_asked_for_and_not_seen_to_arrive_shows_nothing() {
        let mut capacity = Capacity::new();
        capacity.set_rules(&rules());
        let whole = Whole { total: 1e6, current: 1e6, unmeasured: 9e6, ..Whole::default() };
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
        capacity.on_train(1e9 / 3.0, 31);
        capacity.on_interval(&rules(), &whole);
        assert!(capacity.rate(0.0) >= 3e8);
    }
}
