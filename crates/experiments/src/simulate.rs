//! Cases run in virtual time, on all cores; the numbers do not depend on how many there are.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use longhaul_proto::time::{Span, Time};
use longhaul_testbed::scenario::Scenario;
use longhaul_testbed::sim::{self, SimError};

use crate::experiment::Case;
use crate::outcome::{FlowOutcome, Outcome, Outcomes, Sample};

/// A case whose simulation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimulateError {
    /// The case.
    pub case: String,
    /// Why.
    pub error: SimError,
}

impl fmt::Display for SimulateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.case, self.error)
    }
}

impl std::error::Error for SimulateError {}

/// Runs all `cases`.
///
/// # Errors
/// The first of the cases that cannot be simulated, or broke a promise.
pub fn run(cases: &[Case]) -> Result<Outcomes, SimulateError> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..cores.min(cases.len()) {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = one(&case.scenario);
                    let mut done = done.lock().expect("whoever held it did not panic");
                    done.push((&*case.name, outcome));
                }
            });
        }
    });
    let mut outcomes = Outcomes::default();
    let mut failed = None;
    for (name, outcome) in done.into_inner().expect("whoever held it did not panic") {
        match outcome {
            Ok(outcome) => outcomes.insert(name, outcome),
            Err(error) => failed = Some(SimulateError { case: name.into(), error }),
        }
    }
    failed.map_or(Ok(outcomes), Err)
}

/// Runs one scenario.
///
/// # Errors
/// [`SimError`] where it cannot be simulated, or broke a promise.
pub fn one(scenario: &Scenario) -> Result<Outcome, SimError> {
    let outcome = sim::run(scenario)?;
    let flows = outcome.flows.iter().map(|flow| of_flow(flow, outcome.ended));
    Ok(Outcome { flows: flows.collect() })
}

/// A transfer ends when its sender knows that all has arrived: that is what the papers' tools
/// time, and what RBUDP's equation 2 counts.
fn of_flow(flow: &sim::FlowOutcome, ended: Time) -> FlowOutcome {
    let accounts = &flow.accounts;
    let end = flow.known.or(flow.finished).unwrap_or(ended);
    let lost = accounts.dropped + accounts.socket_lost;
    // Nobody reports the losses of plain UDP; iperf's receiver counts what did not come.
    let reported_lost = if flow.carrier == "udp" { lost } else { accounts.reported_lost };
    FlowOutcome {
        name: flow.name.clone(),
        bytes: flow.delivered,
        started: flow.started,
        elapsed: end.since(flow.started),
        finished: flow.finished.is_some(),
        sent: accounts.sent,
        retransmitted: accounts.retransmitted,
        reported_lost,
        received: accounts.received,
        duplicates: accounts.duplicates,
        lost,
        blocks: accounts.first,
        rounds: accounts.rounds,
        series: series(flow),
    }
}

/// What happened between the points.
fn series(flow: &sim::FlowOutcome) -> Vec<Sample> {
    let mut before = sim::Point { at: flow.started, ..sim::Point::default() };
    let mut samples = Vec::new();
    for point in &flow.series {
        let span = point.at.since(before.at);
        if span > Span::ZERO {
            let rate = (point.delivered - before.delivered) / span;
            samples.push(Sample {
                at: point.at.since(Time::ZERO).as_secs_f64(),
                goodput: rate.as_bps() as f64 / 1e6,
                reported_lost: (point.reported_lost - before.reported_lost) as f64,
                duplicates: (point.duplicates - before.duplicates) as f64,
            });
        }
        before = *point;
    }
    samples
}
