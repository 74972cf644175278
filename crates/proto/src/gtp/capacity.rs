//! C_r, "the capacity of all GTP traffic" (section 4.3): given by the user, or found.
//!
//! The paper takes the access link's capacity as known; the search for C_r is our addition. The
//! first value comes from a flow's first train: datagrams that are sent back to back. A host reads
//! its card in steps, and all datagrams of a step get the same arrival time. A train may therefore
//! have taken one step longer than it seems. A train of many steps is exact enough to show a
//! ceiling (see below). Without a train C_r doubles in each interval while flows use all of it
//! without loss. After the first value, C_r rises while the flows use all of it, and falls to a
//! ceiling. The steps up double while C_r is below nine tenths of the train's rate. Above that, the
//! steps are small, because a rate that is too high first fills a queue, and the queue is noticed
//! late.
//!
//! A *ceiling* is an upper limit of C_r that was found. After a loss, it is a rate just below the
//! arrival rate. After a queue grew, it is a rate a few steps below C_r. After a train of many
//! steps, it is a rate just below the train's rate. While no ceiling holds, a small loss is enough
//! to set one. While a ceiling holds, loss counts only above the threshold of the capacity
//! estimator (CE, which follows one flow): a path may lose a little at any rate. Once a limit has
//! been found, a loss of up to 20 % may come from hosts that pause and catch up, if flows send far
//! less than requested. This loss counts only if the next interval has loss too.
//!
//! A train over one path measures the slower of the path and the receiver's link. When flows arrive
//! over several paths, a measurement of a single path does not limit C_r. C_r rises to just below
//! the sum of the trains' rates, or to a ceiling that all flows show. The steps are small near the
//! rate of the fastest train (most likely the rate of a shared link), and double elsewhere.
//!
//! An overloaded link delays and drops all flows alike; a bad path affects only its own flow. The
//! link's loss is therefore the loss of the median flow, weighted by rate.

use core::cmp::Ordering;

use super::options::Rules;
use super::tuning::Tuning;
use crate::time::Span;

/// The first trains of the flows that are active now; rates in bits a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Trains {
    /// Number of trains, each over a path of its own.
    pub(super) paths: usize,
    pub(super) sum: f64,
    pub(super) fastest: f64,
}

impl Trains {
    pub(super) fn add(&mut self, rate: f64) {
        self.paths += 1;
        self.sum += rate;
        self.fastest = self.fastest.max(rate);
    }
}

/// Measurements of all flows together in an interval; rates in bits a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Totals {
    /// Rate of received and lost datagrams together.
    pub(super) total: f64,
    /// Rate of received datagrams.
    pub(super) current: f64,
    /// Loss ratio of the median flow.
    pub(super) loss: f64,
    /// Requested rate of the flows that cannot be measured yet.
    pub(super) unmeasured: f64,
    /// Geometric mean of the shortest and the longest queue of the flows' paths, in seconds.
    pub(super) queue: f64,
    pub(super) trains: Trains,
}

impl Totals {
    /// Sums up flows, each given as `(total, current, loss)`.
    pub(super) fn of(flows: &mut [(f64, f64, f64)]) -> Totals {
        let total: f64 = flows.iter().map(|flow| flow.0).sum();
        let current = flows.iter().map(|flow| flow.1).sum();
        flows.sort_unstable_by(|a, b| a.2.partial_cmp(&b.2).unwrap_or(Ordering::Equal));
        let mut below = 0.0;
        let median = flows.iter().find(|flow| {
            below += flow.0;
            below >= total / 2.0
        });
        let loss = median.map_or(0.0, |flow| flow.2);
        Totals { total, current, loss, ..Totals::default() }
    }

    /// Replaces the totals if the datagrams that the host's socket dropped show a higher loss:
    /// `came` bits arrived and `dropped` bits were dropped in the time `took`. These counts cover
    /// all flows, so `unmeasured` becomes zero.
    pub(super) fn with_drops(self, came: f64, dropped: f64, took: Span) -> Totals {
        let loss = dropped / (came + dropped).max(1.0);
        if loss <= self.loss || took == Span::ZERO {
            return self;
        }
        let rate = |bits: f64| bits / took.as_secs_f64();
        let (total, current) = (rate(came + dropped), rate(came));
        Totals { total, current, loss, unmeasured: 0.0, ..self }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Capacity {
    given: Option<f64>,
    share: f64,
    found: f64,
    /// Rate of the train that last set C_r; infinite without a train, and once a ceiling is known.
    shown: f64,
    /// Whether that train is exact enough to show a ceiling.
    exact: bool,
    /// Whether C_r was measured over a single path.
    alone: bool,
    /// The trains of several paths, until the paths together show a ceiling.
    several: Option<Trains>,
    /// C_r when it began to rise.
    base: f64,
    /// The last relative step of C_r.
    step: f64,
    /// Whether C_r stayed the same in the last interval, to observe the last step for longer.
    waits: bool,
    /// Whether no measurement has shown a limit yet.
    searching: bool,
    /// The last ceiling; zero if there is none.
    ceiling: f64,
    /// Number of intervals for which the ceiling still holds.
    belief: u64,
    /// Number of intervals for which the ceiling holds, counted from when it was set.
    lasts: u64,
    /// The shortest queue since C_r began to rise, in seconds.
    queue: f64,
    /// Whether the last interval had a loss that the link may not have caused.
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
            alone: true,
            several: None,
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

    /// Sets the rules of a flow; if flows differ, the newest flow's rules apply to all.
    pub(super) fn set_rules(&mut self, rules: &Rules) {
        self.given = rules.receive_rate;
        self.share = rules.receive_share;
        self.tuning = rules.tuning;
        self.found = self.found.max(rules.start_rate);
    }

    /// The usable rate: C_r times the share of it that may be used. If C_r was found, the usable
    /// rate is at least `fixed`, the sum of the rates that users fixed.
    pub(super) fn rate(&self, fixed: f64) -> f64 {
        self.given.map_or((self.found * self.share).max(fixed), |given| given * self.share)
    }

    pub(super) fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    pub(super) fn given(&self) -> Option<f64> {
        self.given
    }

    /// The found C_r, and the share of it that may be used.
    pub(super) fn found(&self) -> (f64, f64) {
        (self.found, self.share)
    }

    pub(super) fn set_found(&mut self, found: f64) {
        self.found = found;
    }

    /// Whether no limit has been found yet. The flows then reach every requested rate, so their
    /// estimates mean nothing.
    pub(super) fn is_searching(&self) -> bool {
        self.given.is_none() && self.searching
    }

    /// Raises C_r to the certain part of a train's `rate`, if this part is above C_r. The host read
    /// the train in `steps` steps. Returns whether C_r changed.
    pub(super) fn on_train(&mut self, rate: f64, steps: u32) -> bool {
        let slower = f64::from(steps) / f64::from(steps + 1);
        let sure = rate * slower.min(self.tuning.train);
        let is_new = self.given.is_none() && sure > self.found;
        if is_new {
            (self.found, self.shown, self.exact) = (sure, rate, self.is_exact(steps));
            (self.base, self.step, self.belief) = (sure, 0.0, 0);
            self.queue = f64::INFINITY;
            (self.alone, self.several) = (true, None);
        }
        self.searching &= !is_new;
        is_new
    }

    fn is_exact(&self, steps: u32) -> bool {
        u64::from(steps) >= self.tuning.train_steps
    }

    /// Discards the ceiling of a single path once flows arrive over several paths whose trains
    /// together show more than C_r.
    fn compare_paths(&mut self, trains: Trains) {
        if trains.paths < 2 {
            (self.alone, self.several) = (true, None);
        } else if self.alone && trains.sum * self.tuning.train > self.found {
            (self.alone, self.several) = (false, Some(trains));
            (self.ceiling, self.belief) = (0.0, 0);
            (self.base, self.step, self.queue) = (self.found, 0.0, f64::INFINITY);
        }
    }

    pub(super) fn on_interval(&mut self, rules: &Rules, whole: &Totals) {
        self.compare_paths(whole.trains);
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
            // Even a confirmed ceiling holds only for `tuning.belief` intervals here: a paused host
            // may have caused the queue.
            self.belief = self.tuning.belief;
        } else if whole.total >= rules.close * asked {
            // C_r rises only while the flows use it: unused capacity proves nothing.
            self.rise(rules);
        }
    }

    /// Whether a queue has grown since C_r began to rise. An older queue does not lower C_r: other
    /// traffic may have caused it.
    fn grows(&mut self, queue: f64) -> bool {
        self.queue = self.queue.min(queue);
        self.step > 0.0 && queue >= self.queue + self.tuning.queue_growth.as_secs_f64()
    }

    fn rise(&mut self, rules: &Rules) {
        if self.searching {
            self.found *= self.tuning.search;
        } else if self.share == 1.0 {
            // With a `receive-share` below 1, C_r does not rise: requests never fill the link, so
            // nothing would show the link's limit.
            let Tuning { train, below_ceiling, step_growth, past, .. } = self.tuning;
            let goal = self.several.map_or(self.shown, |trains| trains.sum) * train;
            let is_far = goal.is_finite() && self.found < goal;
            // Most likely the fastest train shows the link that all paths share.
            let shared = self.several.map_or(0.0, |trains| trains.fastest);
            let is_near = is_far && self.found >= shared * train && self.found < shared * past;
            let is_known = self.ceiling > 0.0 && !is_far;
            let is_late = is_near && self.found >= shared * below_ceiling;
            self.waits = (is_known || is_late) && !self.waits;
            if self.waits {
                return;
            }
            let grown = if is_far && !is_near { step_growth * self.step } else { 0.0 };
            self.step = grown.max(rules.increase);
            let wanted = self.found * (1.0 + self.step);
            let goal = if self.found < shared * train { goal.min(shared * train) } else { goal };
            if is_far {
                self.found = wanted.min(goal);
            } else if self.exact && self.several.is_none() && wanted >= self.shown * below_ceiling {
                self.believe(self.found.max(self.shown * below_ceiling));
            } else {
                self.found = wanted;
            }
        }
    }

    /// Accepts a ceiling: sets C_r to `rate`.
    fn believe(&mut self, rate: f64) {
        let Tuning { same_ceiling, belief, belief_again, longest_belief, .. } = self.tuning;
        let is_same = (rate - self.ceiling).abs() <= self.ceiling * same_ceiling;
        let again = (self.lasts * belief_again).min(longest_belief);
        self.lasts = if is_same { again } else { belief };
        (self.ceiling, self.belief) = (rate, self.lasts);
        (self.found, self.base) = (rate, rate);
        (self.shown, self.exact, self.several) = (f64::INFINITY, false, None);
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

    /// Ends an interval in which flows use all of C_r over a link of `link` bits a second. Returns
    /// the loss, which every flow has.
    fn interval(capacity: &mut Capacity, rules: &Rules, link: f64) -> f64 {
        let total = capacity.rate(0.0);
        let current = total.min(link);
        let whole = Totals { total, current, loss: 1.0 - current / total, ..Totals::default() };
        capacity.on_interval(rules, &whole);
        whole.loss
    }

    #[test]
    fn a_given_capacity_never_changes() {
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
    fn a_train_shows_the_links_rate_immediately_and_a_slower_train_is_ignored() {
        let mut capacity = Capacity::new();
        capacity.set_rules(&rules());
        assert!(capacity.on_train(1e9, 31));
        assert_eq!(capacity.rate(0.0), 0.9e9);
        assert!(!capacity.on_train(0.5e9, 31));
        // Intervals without loss raise C_r by 2 % each, up to just below the train's rate.
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
        close(&rates(8), &[980.0; 8]);
        close(&rates(6), &[980.0, 999.6, 999.6, 1019.6, 980.0, 980.0]);
        close(&rates(17), &[[980.0; 16].as_slice(), &[999.6]].concat());
    }

    #[test]
    fn a_confirmed_ceiling_holds_longer_by_a_factor() {
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

    /// Ends an interval in which three paths deliver all of C_r; returns the new C_r in Mbit/s. The
    /// paths' trains showed 250, 250 and `third` Mbit/s. All paths have a queue of `queue`
    /// milliseconds.
    fn over_paths(capacity: &mut Capacity, third: f64, queue: f64) -> f64 {
        let total = capacity.rate(0.0);
        let mut trains = Trains::default();
        [250e6, 250e6, third * 1e6].into_iter().for_each(|rate| trains.add(rate));
        let queue = queue / 1e3;
        capacity.on_interval(
            &rules(),
            &Totals { total, current: total, queue, trains, ..Totals::default() },
        );
        capacity.rate(0.0) / 1e6
    }

    #[test]
    fn c_r_rises_to_the_sum_of_the_rates_of_several_paths() {
        let mut capacity = Capacity::new();
        capacity.set_rules(&rules());
        assert!(capacity.on_train(250e6, 31));
        // C_r rises up to just below the fastest train's rate. Then each step is observed for
        // another interval, until C_r exceeds that rate by 6 %. Then the steps double.
        let rates: std::vec::Vec<f64> =
            (0..19).map(|_| over_paths(&mut capacity, 250.0, 0.0)).collect();
        let expected = [
            229.5, 234.1, 238.8, 243.5, 248.4, 248.4, 253.4, 253.4, 258.5, 258.5, 263.6, 263.6,
            268.9, 279.7, 302.0, 350.4, 462.5, 675.0, 688.5,
        ];
        assert!(rates.iter().zip(expected).all(|(a, b)| (a - b).abs() < 0.1), "{rates:?}");
    }

    #[test]
    fn a_queue_on_all_of_several_paths_shows_a_ceiling() {
        let mut capacity = Capacity::new();
        capacity.set_rules(&rules());
        capacity.on_train(250e6, 31);
        let rates: std::vec::Vec<f64> =
            [0.0, 0.0, 0.0, 4.0, 0.0].map(|queue| over_paths(&mut capacity, 250.0, queue)).into();
        let expected = [229.5, 234.1, 238.8, 225.0, 225.0];
        assert!(rates.iter().zip(expected).all(|(a, b)| (a - b).abs() < 0.1), "{rates:?}");
        assert_eq!((capacity.belief, capacity.several), (7, None));
        // The ceiling belongs to all paths: the same paths start no second search.
        for _ in 0..8 {
            over_paths(&mut capacity, 250.0, 0.0);
        }
        assert_eq!((capacity.several, capacity.alone), (None, false));
        wait(&mut capacity, 0.0);
        assert!(capacity.alone);
        over_paths(&mut capacity, 300.0, 0.0);
        assert_eq!(capacity.several.unwrap(), Trains { paths: 3, sum: 800e6, fastest: 300e6 });
    }

    /// Ends an interval in which all of C_r is used and arrives. All paths have a queue of `queue`
    /// milliseconds. Returns the new C_r in Mbit/s.
    fn wait(capacity: &mut Capacity, queue: f64) -> f64 {
        let (total, queue) = (capacity.rate(0.0), queue / 1e3);
        let whole = Totals { total, current: total, queue, ..Totals::default() };
        capacity.on_interval(&rules(), &whole);
        capacity.rate(0.0) / 1e6
    }

    #[test]
    fn a_train_of_few_steps_counts_as_slower_and_shows_no_ceiling() {
        let mut capacity = Capacity::new();
        capacity.set_rules(&rules());
        assert!(capacity.on_train(1.2e9, 4));
        assert_eq!(capacity.rate(0.0), 0.96e9);
        let mut capacity = Capacity::new();
        assert!(capacity.on_train(1e9, 1));
        // C_r rises in doubling steps up to 90 % of the train's rate, then in small steps.
        let rates: std::vec::Vec<f64> = (0..9).map(|_| wait(&mut capacity, 0.0)).collect();
        let expected = [510.0, 530.4, 572.8, 664.5, 877.1, 900.0, 918.0, 936.4, 955.1];
        assert!(rates.iter().zip(expected).all(|(a, b)| (a - b).abs() < 0.1), "{rates:?}");
    }

    #[test]
    fn a_queue_that_grows_with_the_rate_shows_a_ceiling_and_an_older_queue_does_not() {
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
        for _ in 0..100 {
            wait(&mut capacity, 0.0);
            assert!(wait(&mut capacity, 30.0) >= after - 0.1);
        }
    }

    #[test]
    fn loss_of_a_host_that_pauses_shows_a_ceiling_only_when_it_repeats() {
        let mut capacity = Capacity::new();
        capacity.on_train(1e9, 31);
        let pause = Totals { total: 6e8, current: 5.5e8, loss: 0.08, ..Totals::default() };
        capacity.on_interval(&rules(), &pause);
        assert_eq!(capacity.rate(0.0), 0.9e9);
        wait(&mut capacity, 0.0);
        capacity.on_interval(&rules(), &pause);
        capacity.on_interval(&rules(), &pause);
        assert!((capacity.rate(0.0) - 5.39e8).abs() < 1.0);
    }

    #[test]
    fn a_loss_too_high_for_a_pause_counts_immediately() {
        let mut capacity = Capacity::new();
        capacity.on_train(2e9, 31);
        let overrun = Totals { total: 1.3e9, current: 9e8, loss: 0.31, ..Totals::default() };
        capacity.on_interval(&rules(), &overrun);
        assert!((capacity.rate(0.0) - 8.82e8).abs() < 1.0);
    }

    #[test]
    fn drops_at_the_hosts_socket_count_if_their_loss_exceeds_the_loss_of_the_flows() {
        let whole = Totals { loss: 0.05, unmeasured: 7.0, ..Totals::default() };
        let half = Span::from_millis(500);
        let expected =
            Totals { total: 2000.0, current: 1800.0, loss: 0.1, unmeasured: 0.0, ..whole };
        assert_eq!(whole.with_drops(900.0, 100.0, half), expected);
        assert_eq!(whole.with_drops(950.0, 50.0, half), whole, "the same loss");
        assert_eq!(whole.with_drops(900.0, 100.0, Span::ZERO), whole);
    }

    #[test]
    fn drops_of_the_host_count_even_if_no_flow_can_be_measured() {
        let mut capacity = Capacity::new();
        capacity.on_train(1e9, 31);
        let whole = Totals { unmeasured: 0.9e9, ..Totals::default() };
        let (came, dropped, took) = (0.12e9, 0.15e9, Span::from_millis(300));
        assert_eq!(whole.with_drops(came, 0.0, took), whole);
        capacity.on_interval(&rules(), &whole);
        assert_eq!(capacity.rate(0.0), 0.9e9);
        capacity.on_interval(&rules(), &whole.with_drops(came, dropped, took));
        assert!((capacity.rate(0.0) - 0.392e9).abs() < 1.0, "{}", capacity.rate(0.0));
    }

    #[test]
    fn c_r_falls_within_one_interval_to_just_below_the_rate_of_a_link_that_shrank() {
        let mut capacity = Capacity::new();
        capacity.set_rules(&rules());
        capacity.on_train(1e9, 31);
        interval(&mut capacity, &rules(), 0.3e9);
        assert!((capacity.rate(0.0) - 0.294e9).abs() < 1.0);
    }

    #[test]
    fn the_requested_rate_of_unmeasured_flows_does_not_raise_c_r() {
        let mut capacity = Capacity::new();
        capacity.set_rules(&rules());
        let whole = Totals { total: 1e6, current: 1e6, unmeasured: 9e6, ..Totals::default() };
        capacity.on_interval(&rules(), &whole);
        assert_eq!((capacity.rate(0.0), capacity.is_searching()), (10e6, true));
        capacity.on_interval(&rules(), &Totals { total: 10e6, current: 10e6, ..Totals::default() });
        assert_eq!(capacity.rate(0.0), 20e6);
    }

    #[test]
    fn the_loss_of_one_bad_path_among_good_paths_does_not_lower_c_r() {
        let flow = |loss| (1e8, 1e8 * (1.0 - loss), loss);
        let whole = Totals::of(&mut [flow(0.3), flow(0.0), flow(0.0)]);
        assert_eq!((whole.total, whole.loss), (3e8, 0.0));
        assert_eq!(Totals::of(&mut [flow(0.3), flow(0.2), flow(0.0)]).loss, 0.2);
        assert_eq!(Totals::of(&mut []), Totals::default());
        let mut capacity = Capacity::new();
        capacity.set_rules(&rules());
        capacity.on_train(1e9 / 3.0, 31);
        capacity.on_interval(&rules(), &whole);
        assert!(capacity.rate(0.0) >= 3e8);
    }

    #[test]
    fn the_requested_rate_of_unmeasured_flows_does_not_count_as_a_pause() {
        let mut capacity = Capacity::new();
        capacity.on_train(1e9, 31);
        let whole =
            Totals { total: 4e8, current: 3.5e8, unmeasured: 4e8, loss: 0.08, ..Totals::default() };
        capacity.on_interval(&rules(), &whole);
        assert!((capacity.rate(0.0) - 0.98 * 7.5e8).abs() < 1.0, "{}", capacity.rate(0.0));
    }

    #[test]
    fn without_a_ceiling_a_loss_above_the_first_threshold_sets_one() {
        let after = |loss| {
            let mut capacity = Capacity::new();
            capacity.on_train(1e9, 31);
            let whole = Totals { total: 9e8, current: 8.9e8, loss, ..Totals::default() };
            capacity.on_interval(&rules(), &whole);
            (capacity.rate(0.0) / 1e6) as u64
        };
        let most = Tuning::OURS.first_loss;
        assert_eq!([after(most), after(most * 1.01)], [918, 872]);
    }

    #[test]
    fn paths_are_searched_again_only_if_nine_tenths_of_the_trains_summed_rates_exceed_c_r() {
        let alone = |each: f64| {
            let mut capacity = Capacity::new();
            capacity.on_train(1e9, 31);
            let mut trains = Trains::default();
            [each, each].into_iter().for_each(|rate| trains.add(rate));
            capacity.on_interval(&rules(), &Totals { trains, ..Totals::default() });
            capacity.alone
        };
        assert_eq!([alone(499e6), alone(501e6)], [true, false]);
    }

    #[test]
    fn loss_with_a_receive_share_shows_a_ceiling_only_if_less_arrives_than_was_requested() {
        let after = |current| {
            let rules = Rules { receive_share: 0.5, ..rules() };
            let mut capacity = Capacity::new();
            capacity.set_rules(&rules);
            capacity.on_train(1e9, 31);
            let whole = Totals { total: 7e8, current, loss: 0.1, ..Totals::default() };
            capacity.on_interval(&rules, &whole);
            libm::round(capacity.rate(0.0) / 1e6)
        };
        // C_r is 900 Mbit/s, of which half is requested.
        assert_eq!([after(4.6e8), after(4e8)], [450.0, 392.0]);
    }

    #[test]
    fn a_queue_that_grows_before_c_r_rises_shows_no_ceiling() {
        let mut capacity = Capacity::new();
        capacity.on_train(1e9, 31);
        for queue in [0.0, 0.1] {
            let whole = Totals { total: 1e8, current: 1e8, queue, ..Totals::default() };
            capacity.on_interval(&rules(), &whole);
        }
        assert_eq!((capacity.rate(0.0), capacity.belief), (0.9e9, 0));
    }
}
