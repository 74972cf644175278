//! Runs cases in real time: the emulator's path, the real binary's `serve` and `cp`, and the
//! kernel's TCP.
//!
//! Files are in memory if the machine has an in-memory folder, so that no disk limits the rate. If
//! the emulator itself was the bottleneck, the case is an error. Cases longer than [`LONGEST`] are
//! skipped.

mod course;

use std::fmt;
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_proto::time::Span;
use longhaul_testbed::emu::flows::{FlowEnd, Flows, Stop, updates};
use longhaul_testbed::emu::{Emulation, EmulationError, EmulationSpec, Verdict};
use longhaul_testbed::scenario::Scenario;
use longhaul_testbed::sim::updates::{UpdatesOutcome, UpdatesRun};

use crate::experiment::{Case, LONGEST};
use crate::outcome::{CaseFlow, CaseOutcome, Count, Outcomes};

/// Attempts for each case: a second one helps if the machine was busy for a moment.
const ATTEMPTS: u32 = 2;
/// The sampling interval of rates, if the scenario sets none.
const POINTS_APART: Span = Span::from_millis(100);
/// Time to start and stop hosts and servers, and to write objects.
const AROUND: Span = Span::from_secs(3);
/// A case is stopped after its duration in the simulation times this factor, plus [`PATIENCE`].
const SLOWER: u64 = 3;
const PATIENCE: Span = Span::from_secs(60);

/// Why a case was not emulated, or gave no valid result.
#[derive(Debug)]
pub struct EmulateError {
    what: String,
    tried: bool,
}

impl EmulateError {
    fn new(what: impl Into<String>) -> EmulateError {
        EmulateError { what: what.into(), tried: true }
    }

    fn untried(what: impl Into<String>) -> EmulateError {
        EmulateError { what: what.into(), tried: false }
    }

    fn of(doing: &str, error: &dyn fmt::Display) -> EmulateError {
        EmulateError::new(format!("{doing}: {error}"))
    }

    /// Whether the case was run. False if it would take too long or this machine cannot emulate.
    pub fn was_tried(&self) -> bool {
        self.tried
    }
}

impl fmt::Display for EmulateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for EmulateError {}

impl From<EmulationError> for EmulateError {
    fn from(error: EmulationError) -> EmulateError {
        match error {
            EmulationError::Forbidden(_) => EmulateError::untried(error.to_string()),
            other => EmulateError::new(other.to_string()),
        }
    }
}

/// Runs cases over the emulator.
#[derive(Debug)]
pub struct Emulator {
    binary: PathBuf,
    /// Earlier results: pages with the same cases share them.
    done: Vec<(Scenario, CaseOutcome)>,
}

impl Emulator {
    /// An emulator that uses the `serve` and the `cp` of `binary`.
    pub fn new(binary: PathBuf) -> Emulator {
        Emulator { binary, done: Vec::new() }
    }

    /// The number of `cases` that will be emulated, and the minimum total time.
    pub fn expected(&self, cases: &[Case], simulated: &Outcomes) -> (usize, Span) {
        let run = cases.iter().filter(|case| case.is_emulated());
        let fresh = run.filter(|case| self.earlier(&case.scenario).is_none());
        let spans = fresh.filter_map(|case| {
            let simulated = simulated.case(&case.name).map(CaseOutcome::span);
            match case.is_simulated() {
                true => simulated.filter(|span| *span <= LONGEST).map(|span| span + AROUND),
                false => Some(AROUND),
            }
        });
        spans.fold((0, Span::ZERO), |(count, sum), span| (count + 1, sum + span))
    }

    /// Runs the cases that can be emulated, one after the other, and reports each to `report`.
    /// Failed and skipped cases have no outcome. The durations in `simulated` determine the time
    /// limits; a case that was not simulated counts as [`LONGEST`].
    pub fn run(
        &mut self,
        cases: &[Case],
        simulated: &Outcomes,
        mut report: impl FnMut(&str, Result<&CaseOutcome, &EmulateError>),
    ) -> Outcomes {
        let mut outcomes = Outcomes::default();
        for case in cases.iter().filter(|case| case.is_emulated()) {
            let span = simulated.case(&case.name).map_or(LONGEST, CaseOutcome::span);
            let outcome = match self.earlier(&case.scenario) {
                Some(outcome) => Ok(outcome.clone()),
                None if span > LONGEST => {
                    Err(EmulateError::untried(format!("it takes {span}, more than {LONGEST}")))
                }
                None => self.patiently(&case.scenario, span),
            };
            report(&case.name, outcome.as_ref());
            if let Ok(outcome) = outcome {
                outcomes.insert(&*case.name, outcome);
            }
        }
        outcomes
    }

    /// Runs several series of state updates at the same time, each series on a separate path.
    /// Reports each series to `report`; a failed series has no outcome.
    pub fn updates(
        &self,
        side_by_side: &[(String, UpdatesRun)],
        mut report: impl FnMut(&str, Result<&UpdatesOutcome, &EmulateError>),
    ) -> Outcomes {
        let mut outcomes = Outcomes::default();
        let mut left: Vec<&(String, UpdatesRun)> = side_by_side.iter().collect();
        for attempt in 1..=ATTEMPTS {
            let done: Vec<_> = thread::scope(|scope| {
                let run = |(_, run): &'_ (String, UpdatesRun)| updates::run(run, &self.binary);
                let runs: Vec<_> = left.iter().map(|one| scope.spawn(move || run(one))).collect();
                let join = |run: thread::ScopedJoinHandle<'_, _>| {
                    run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                };
                runs.into_iter().map(join).collect()
            });
            let mut again = Vec::new();
            for (one, done) in left.into_iter().zip(done) {
                match done.map_err(EmulateError::from) {
                    Ok(outcome) => {
                        report(&one.0, Ok(&outcome));
                        outcomes.insert_updates(&*one.0, outcome);
                    }
                    Err(error) if attempt == ATTEMPTS => report(&one.0, Err(&error)),
                    Err(_) => again.push(one),
                }
            }
            left = again;
        }
        outcomes
    }

    fn earlier(&self, scenario: &Scenario) -> Option<&CaseOutcome> {
        self.done.iter().find(|(done, _)| done == scenario).map(|(_, outcome)| outcome)
    }

    /// Runs a scenario that should take `span`, with another attempt if needed.
    fn patiently(&mut self, scenario: &Scenario, span: Span) -> Result<CaseOutcome, EmulateError> {
        let limit = span * SLOWER + PATIENCE;
        let mut outcome = self.case(scenario, limit);
        for _ in 1..ATTEMPTS {
            if outcome.is_err() {
                outcome = self.case(scenario, limit);
            }
        }
        if let Ok(outcome) = &outcome {
            self.done.push((scenario.clone(), outcome.clone()));
        }
        outcome
    }

    /// Runs one scenario, for at most `limit`.
    ///
    /// # Errors
    /// This machine cannot emulate, a flow failed or did not finish, or the emulator was the
    /// bottleneck.
    pub fn case(&self, scenario: &Scenario, limit: Span) -> Result<CaseOutcome, EmulateError> {
        let emulation = Emulation::start(EmulationSpec::of(scenario))?;
        let stop = Stop::default();
        let flows = Flows::prepare(&emulation, scenario, &self.binary, &stop)?;
        let (done, watched) = channel::<()>();
        let over = &stop;
        let ends = thread::scope(|scope| {
            scope.spawn(move || {
                let limit = Duration::from_nanos(limit.as_nanos());
                if watched.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                    over.stop();
                }
            });
            let ends = flows.run(Instant::now(), over);
            drop(done);
            ends
        });
        drop(flows);
        let apart = scenario.record.interval.unwrap_or(POINTS_APART);
        let flows = ends.into_iter().map(|end| outcome(end, apart));
        let flows = flows.collect::<Result<_, EmulateError>>()?;
        match emulation.statistics()?.verdict() {
            Verdict::Valid => Ok(CaseOutcome { flows }),
            Verdict::Invalid(why) => Err(EmulateError::of("not valid", &why)),
        }
    }
}

/// A flow's result, with samples of its rate every `apart`. A copy's time starts with its first
/// datagram, because the simulation has no session setup.
fn outcome(end: FlowEnd, apart: Span) -> Result<CaseFlow, EmulateError> {
    let name = &end.name;
    if let Some(why) = &end.error {
        return Err(EmulateError::new(format!("flow {name} failed: {why}")));
    }
    if !end.finished {
        return Err(EmulateError::new(format!("flow {name} did not finish")));
    }
    let series = course::of(&end, apart);
    let counts = end.counts;
    Ok(CaseFlow {
        bytes: end.delivered,
        started: end.started,
        elapsed: end.took - end.setup,
        finished: end.finished,
        sent: Count(counts.sent),
        retransmitted: Count(counts.retransmitted),
        reported_lost: Count(counts.reported_lost),
        received: Count(counts.received),
        duplicates: Count(counts.duplicates),
        lost: Count(counts.lost),
        blocks: Count(counts.blocks),
        rounds: Count(counts.rounds),
        series,
        name: end.name,
    })
}

#[cfg(test)]
mod tests {
    use longhaul_proto::units::Bytes;
    use longhaul_testbed::scenario::Reading;

    use super::*;

    #[test]
    fn the_expected_duration_covers_only_the_cases_that_will_be_run() {
        use crate::scenarios::vary;

        let copy = || vary("quanta-streaming");
        let cases = [
            Case::both("short", copy()),
            Case::both("long", copy()),
            Case::simulated("never", copy(), "it is not to be"),
            Case::emulated("always", copy().set("seed", 2), "nobody has a model of it"),
        ];
        let mut simulated = Outcomes::default();
        for (name, seconds) in [("short", 7), ("long", 1_000), ("never", 1)] {
            let elapsed = Span::from_secs(seconds);
            let flow = CaseFlow { elapsed, ..CaseFlow::default() };
            simulated.insert(name, CaseOutcome { flows: vec![flow] });
        }
        let mut emulator = Emulator::new("/no/such/program".into());
        let expected = (2, Span::from_secs(7) + AROUND * 2);
        assert_eq!(emulator.expected(&cases, &simulated), expected);
        let mut reported = Vec::new();
        let outcomes = emulator.run(&cases[1..3], &simulated, |name, outcome| {
            reported.push((name.to_owned(), outcome.err().map(ToString::to_string)));
        });
        assert!(outcomes.is_empty());
        let [(name, Some(why))] = &reported[..] else { panic!("{reported:?}") };
        assert!(name == "long" && why.contains("more than"), "{why}");
    }

    #[test]
    fn a_copy_is_timed_from_its_first_datagram() {
        let flow = r#"{ from = "a", to = "b", protocol = "rbudp", size = "250MB", start = "1s" }"#;
        let text = format!("flow = [{flow}]\n[topology]\nkind = \"pair\"");
        let scenario = Scenario::parse("case", &text, &Reading::PLAIN).unwrap();
        let mut end = FlowEnd::of(&scenario, &scenario.flows[0]);
        let outcome = |end| outcome(end, POINTS_APART);
        assert!(outcome(end.clone()).is_err(), "it did not end");
        let seconds = Span::from_secs;
        end.series = vec![(seconds(1), Bytes::ZERO), (seconds(2), Bytes::new(125_000_000))];
        (end.delivered, end.finished) = (Bytes::new(250_000_000), true);
        (end.took, end.setup) = (Span::from_millis(2_500), Span::from_millis(500));
        (end.counts.sent, end.counts.lost) = (Some(12), Some(3));
        let made = outcome(end.clone()).unwrap();
        assert_eq!((made.goodput(), made.loss()), (1000.0, 25.0));
        end.error = Some("no way".into());
        assert!(outcome(end).unwrap_err().to_string().contains("no way"));
    }
}
