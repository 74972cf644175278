//! The result of a case, in virtual or in real time.

use std::collections::BTreeMap;

use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::Bytes;
use longhaul_testbed::sim::updates::UpdatesOutcome;

/// The results of all flows of a case, in the scenario's order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CaseOutcome {
    /// The flows.
    pub flows: Vec<CaseFlow>,
}

/// The result of a flow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CaseFlow {
    /// The flow's name in the scenario.
    pub name: String,
    /// Delivered bytes of the object.
    pub bytes: Bytes,
    /// When the flow started.
    pub started: Time,
    /// Time from the flow's start to its end, or to the end of the run. A copy ends when its sender
    /// knows that all data have arrived, and any simulated disk is done.
    pub elapsed: Span,
    /// Whether everything was delivered.
    pub finished: bool,
    /// Data datagrams (of TCP: segments) sent.
    pub sent: Count,
    /// Repeats, a part of `sent`.
    pub retransmitted: Count,
    /// Reported losses; one loss may count several times.
    pub reported_lost: Count,
    /// Datagrams that reached the receiving program.
    pub received: Count,
    /// Datagrams with a block that the receiver already had, a part of `received`.
    pub duplicates: Count,
    /// Datagrams lost on the way: on a line, in a queue, in the receiver's socket.
    pub lost: Count,
    /// Blocks in the object.
    pub blocks: Count,
    /// The highest number of rounds that any segment (of NETBLT: any buffer) of the object needed;
    /// of FOBS: the highest number of sends of a block.
    pub rounds: Count,
    /// Samples of the time series.
    pub series: Vec<Sample>,
}

/// A number of datagrams, blocks or rounds; unknown if it was not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count(pub Option<u64>);

impl Count {
    /// A known number.
    pub fn of(number: u64) -> Count {
        Count(Some(number))
    }

    /// The number; NaN if unknown.
    pub fn number(self) -> f64 {
        self.0.map_or(f64::NAN, |number| number as f64)
    }
}

/// A sample of a flow's time series. Its interval ends at `at`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Seconds since the scenario's start.
    pub at: f64,
    /// Mbit/s of object data delivered.
    pub goodput: f64,
    /// Losses reported in the interval.
    pub reported_lost: f64,
    /// Duplicates received in the interval.
    pub duplicates: f64,
}

impl CaseFlow {
    /// Object bits delivered a second, in Mbit/s.
    pub fn goodput(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { self.bytes.bits() / seconds / 1e6 } else { 0.0 }
    }

    /// Data sent beyond the object's blocks, in per cent of the object.
    pub fn waste(&self) -> f64 {
        percent((self.sent.number() - self.blocks.number()).max(0.0), self.blocks.number())
    }

    /// Data lost on the way, in per cent of the data sent.
    pub fn loss(&self) -> f64 {
        percent(self.lost.number(), self.sent.number())
    }

    /// Mean goodput in Mbit/s between two times, in seconds since the scenario's start; NaN without
    /// a time series.
    pub(crate) fn goodput_between(&self, from: f64, to: f64) -> f64 {
        if self.series.is_empty() {
            return f64::NAN;
        }
        let inside = self.series.iter().filter(|sample| sample.at > from && sample.at <= to);
        let (sum, count) = inside.fold((0.0, 0u32), |(sum, n), s| (sum + s.goodput, n + 1));
        if count == 0 { 0.0 } else { sum / f64::from(count) }
    }
}

impl CaseOutcome {
    /// The first flow.
    pub fn first(&self) -> &CaseFlow {
        self.flows.first().expect("a case has a flow")
    }

    /// The flow called `name`.
    pub fn flow(&self, name: &str) -> Option<&CaseFlow> {
        self.flows.iter().find(|flow| flow.name == name)
    }

    /// From the scenario's start to the end of the last flow.
    pub fn span(&self) -> Span {
        let ends = self.flows.iter().map(|flow| flow.started.since(Time::ZERO) + flow.elapsed);
        ends.max().unwrap_or(Span::ZERO)
    }

    /// Goodput of each flow while all of them ran, in Mbit/s: from the last start to the first end.
    pub(crate) fn sustained(&self) -> Vec<f64> {
        let start = |flow: &CaseFlow| flow.started.since(Time::ZERO).as_secs_f64();
        let end = |flow: &CaseFlow| start(flow) + flow.elapsed.as_secs_f64();
        let from = self.flows.iter().map(start).fold(0.0, f64::max);
        let to = self.flows.iter().map(end).fold(f64::INFINITY, f64::min);
        self.flows.iter().map(|flow| flow.goodput_between(from, to)).collect()
    }

    /// Total goodput while all flows ran, in Mbit/s.
    pub fn aggregate(&self) -> f64 {
        self.sustained().iter().sum()
    }

    /// Data lost on the way by all flows, in per cent of the data sent.
    pub fn loss(&self) -> f64 {
        let sum = |of: fn(&CaseFlow) -> Count| -> f64 {
            self.flows.iter().map(|flow| of(flow).number()).sum()
        };
        percent(sum(|flow| flow.lost), sum(|flow| flow.sent))
    }
}

/// Jain's fairness index, (Σx)² / (n·Σx²): 1 if all are equal, 1/n if one has everything.
pub fn fairness(rates: &[f64]) -> f64 {
    let (sum, squares) = rates.iter().fold((0.0, 0.0), |(s, q), x| (s + x, q + x * x));
    if squares > 0.0 { sum * sum / (rates.len() as f64 * squares) } else { 1.0 }
}

fn percent(part: f64, whole: f64) -> f64 {
    if whole == 0.0 { 0.0 } else { part * 100.0 / whole }
}

/// The outcomes of an experiment's cases, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcomes {
    cases: BTreeMap<String, CaseOutcome>,
    /// Runs of state updates in real time.
    updates: BTreeMap<String, UpdatesOutcome>,
}

impl Outcomes {
    /// Adds the outcome of the case `name`.
    pub fn insert(&mut self, name: impl Into<String>, outcome: CaseOutcome) {
        self.cases.insert(name.into(), outcome);
    }

    /// Adds the outcome of state updates in real time.
    pub fn insert_updates(&mut self, name: impl Into<String>, outcome: UpdatesOutcome) {
        self.updates.insert(name.into(), outcome);
    }

    pub(crate) fn updates(&self) -> &BTreeMap<String, UpdatesOutcome> {
        &self.updates
    }

    /// The outcome of the case `name`, if it was run.
    pub fn case(&self, name: &str) -> Option<&CaseOutcome> {
        self.cases.get(name)
    }

    /// A number of the case `name`; `None` if the case was not run or an input was not counted.
    pub fn of(&self, name: &str, number: impl Fn(&CaseOutcome) -> f64) -> Option<f64> {
        self.case(name).map(number).filter(|number| number.is_finite())
    }

    /// A number of the first flow of the case `name`.
    pub fn first(&self, name: &str, number: impl Fn(&CaseFlow) -> f64) -> Option<f64> {
        self.of(name, |outcome| number(outcome.first()))
    }

    /// All outcomes except the outcome of the case `name`.
    pub fn without(&self, name: &str) -> Outcomes {
        let mut others = self.clone();
        others.cases.remove(name);
        others
    }

    /// Whether there is no outcome.
    pub fn is_empty(&self) -> bool {
        self.cases.is_empty() && self.updates.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_flows_at_6_2_2_1_have_the_fairness_index_of_the_gtp_paper() {
        // GTP, section 5.1.1.
        assert!((fairness(&[6.0, 2.0, 2.0, 1.0]) - 0.67).abs() < 0.02);
        assert_eq!((fairness(&[1.0; 4]), fairness(&[])), (1.0, 1.0));
    }

    #[test]
    fn waste_is_a_share_of_the_objects_blocks_and_loss_is_a_share_of_the_sent_data() {
        let flow = CaseFlow {
            bytes: Bytes::new(125_000_000),
            elapsed: Span::from_secs(2),
            sent: Count::of(112),
            blocks: Count::of(100),
            lost: Count::of(7),
            ..CaseFlow::default()
        };
        assert_eq!((flow.goodput(), flow.waste(), flow.loss()), (500.0, 12.0, 6.25));
        let outcome = CaseOutcome { flows: vec![flow.clone(), flow] };
        assert_eq!(outcome.loss(), 6.25);
        assert_eq!(CaseFlow::default().goodput(), 0.0);
    }

    #[test]
    fn an_uncounted_value_is_unknown_and_not_zero() {
        let mut outcomes = Outcomes::default();
        let flow = CaseFlow { sent: Count::of(10), ..CaseFlow::default() };
        outcomes.insert("cut off", CaseOutcome { flows: vec![flow] });
        assert_eq!(outcomes.first("cut off", CaseFlow::loss), None);
        assert_eq!(outcomes.of("cut off", CaseOutcome::loss), None);
        assert_eq!(outcomes.of("cut off", CaseOutcome::aggregate), None);
        assert_eq!(outcomes.first("cut off", |flow| flow.sent.number()), Some(10.0));
    }

    #[test]
    fn a_mean_between_two_times_counts_the_samples_whose_interval_ends_between_them() {
        let sample = |at, goodput| Sample { at, goodput, ..Sample::default() };
        let series = vec![sample(1.0, 10.0), sample(2.0, 20.0), sample(3.0, 40.0)];
        let flow = CaseFlow { series, ..CaseFlow::default() };
        assert_eq!(flow.goodput_between(1.0, 3.0), 30.0);
        let lasts = |secs| CaseFlow { elapsed: Span::from_secs(secs), ..flow.clone() };
        let late = CaseFlow { started: Time::ZERO + Span::from_secs(1), ..lasts(9) };
        let outcome = CaseOutcome { flows: vec![lasts(2), late] };
        assert_eq!((outcome.sustained(), outcome.aggregate()), (vec![20.0; 2], 40.0));
        assert_eq!(flow.goodput_between(5.0, 6.0), 0.0);
    }
}
