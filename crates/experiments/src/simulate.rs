//! Runs cases in virtual time, on all cores; the number of cores does not change the results.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use longhaul_proto::time::{Span, Time};
use longhaul_testbed::scenario::Scenario;
use longhaul_testbed::sim::{self, SimError};

use crate::experiment::Case;
use crate::outcome::{CaseFlow, CaseOutcome, Count, Outcomes, Sample};

/// A case whose simulation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimulateError {
    /// The case's name.
    pub case: String,
    /// The reason.
    pub error: SimError,
}

impl fmt::Display for SimulateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.case, self.error)
    }
}

impl std::error::Error for SimulateError {}

/// Simulates `cases`, except those that are only emulated.
///
/// # Errors
/// The first case that cannot be simulated or that broke an invariant.
pub fn run(cases: &[Case]) -> Result<Outcomes, SimulateError> {
    let cases: Vec<&Case> = cases.iter().filter(|case| case.is_simulated()).collect();
    let done = spread(&cases, |case| one(&case.scenario));
    let mut outcomes = Outcomes::default();
    for (case, outcome) in cases.iter().zip(done) {
        let name = &*case.name;
        match outcome {
            Ok(outcome) => outcomes.insert(name, outcome),
            Err(error) => return Err(SimulateError { case: name.into(), error }),
        }
    }
    Ok(outcomes)
}

/// Runs `work` for each item, with as many threads as the process may use cores, but at most one
/// for each item. Returns the results in the order of the items.
///
/// # Panics
/// `work` panicked.
pub fn spread<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let take = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else { return done };
            done.push((index, work(item)));
        }
    };
    let cores = thread::available_parallelism().map_or(1, usize::from).min(items.len());
    let mut done: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(take)).collect();
        let joined = workers.into_iter().map(|worker| worker.join());
        joined.flat_map(|done| done.expect("the work does not panic")).collect()
    });
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Simulates one scenario.
///
/// # Errors
/// [`SimError`] if the scenario cannot be simulated, or its run broke an invariant.
pub fn one(scenario: &Scenario) -> Result<CaseOutcome, SimError> {
    let outcome = sim::run(scenario)?;
    let flows = outcome.flows.iter().map(|flow| of_flow(flow, outcome.ended));
    Ok(CaseOutcome { flows: flows.collect() })
}

fn of_flow(flow: &sim::FlowOutcome, ended: Time) -> CaseFlow {
    let accounts = &flow.accounts;
    // As in RBUDP's equation 2, a transfer ends when its sender knows that everything has arrived;
    // or when the receiver's disk is done, if that is later.
    let end = flow.known.max(flow.finished).unwrap_or(ended);
    let lost = accounts.dropped + accounts.socket_lost;
    // Plain UDP has no loss reports; iperf's receiver counts missing datagrams.
    let reported_lost = if flow.carrier == "udp" { lost } else { accounts.reported_lost };
    CaseFlow {
        name: flow.name.clone(),
        bytes: flow.delivered,
        started: flow.started,
        elapsed: end.since(flow.started),
        finished: flow.finished.is_some(),
        sent: Count::of(accounts.sent),
        retransmitted: Count::of(accounts.retransmitted),
        reported_lost: Count::of(reported_lost),
        received: Count::of(accounts.received),
        duplicates: Count::of(accounts.duplicates),
        lost: Count::of(lost),
        blocks: Count::of(accounts.first),
        rounds: Count::of(accounts.rounds.into()),
        series: series(flow),
    }
}

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
                // The count can fall: a coded symbol counts as a duplicate until it replaces a
                // missing block.
                duplicates: point.duplicates.saturating_sub(before.duplicates) as f64,
            });
        }
        before = *point;
    }
    samples
}

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, Mutex};
    use std::time::Duration;

    use longhaul_testbed::scenario::Traffic;

    use super::*;
    use crate::scenarios::vary;

    #[test]
    fn the_first_failing_case_is_reported() {
        let case = |name: &str, protocol: &str| {
            let copy = vary("quanta-streaming").set("flow.frames.size", "1MB");
            let mut case = Case::both(name, copy);
            let Traffic::Protocol(transfer) = &mut case.scenario.flows[0].traffic else {
                panic!("the frames are a copy");
            };
            // Set here, because a scenario file with an unknown protocol would be refused.
            transfer.protocol = protocol.into();
            case
        };
        let cases = [
            case("good", "rbudp"),
            case("first", "no-such"),
            case("good too", "rbudp"),
            case("last", "nor-this"),
        ];
        let error = run(&cases).expect_err("two of them fail");
        assert_eq!(error.case, "first");
        assert!(error.to_string().contains("no-such"), "{error}");
    }

    #[test]
    fn every_core_works_on_an_item_at_the_same_time() {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let (begun, another) = (Mutex::new(0), Condvar::new());
        let wait = |place: &usize| {
            let mut count = begun.lock().unwrap();
            *count += 1;
            another.notify_all();
            let long = Duration::from_secs(120);
            let left = another.wait_timeout_while(count, long, |count| *count < cores);
            assert!(!left.unwrap().1.timed_out(), "fewer than {cores} at once");
            *place
        };
        let places: Vec<usize> = (0..2 * cores).collect();
        assert_eq!(spread(&places, wait), places);
    }
}
