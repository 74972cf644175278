//! Cases run in real time: the emulator's path, the real binary's `serve` and `cp`, and the
//! kernel's TCP.
//!
//! Files are made in memory where the machine has a folder there, so that no disk is in the way.
//! An emulation that was itself the bottleneck is an error, not a value.

mod binary;
mod tcp;

use std::fmt;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use longhaul_proto::time::Time;
use longhaul_testbed::emu::{Emulation, EmulationError, EmulationSpec, Verdict};
use longhaul_testbed::scenario::{Scenario, Traffic};

use crate::experiment::{Case, Ways};
use crate::outcome::{FlowOutcome, Outcome, Outcomes};
use binary::Ends;

/// A machine that was busy for a moment may do better at once.
const ATTEMPTS: u32 = 3;

/// Why a case could not be emulated, or gave nothing that can be believed.
#[derive(Debug)]
pub struct EmulateError(String);

impl EmulateError {
    fn new(what: impl Into<String>) -> EmulateError {
        EmulateError(what.into())
    }

    fn of(doing: &str, error: &dyn fmt::Display) -> EmulateError {
        EmulateError(format!("{doing}: {error}"))
    }
}

impl fmt::Display for EmulateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for EmulateError {}

impl From<EmulationError> for EmulateError {
    fn from(error: EmulationError) -> EmulateError {
        EmulateError(error.to_string())
    }
}

/// Runs cases over the emulator.
#[derive(Clone, Debug)]
pub struct Emulator {
    /// The binary whose `serve` and `cp` are run.
    pub binary: PathBuf,
}

impl Emulator {
    /// Runs those of `cases` that can be emulated, one after the other, and tells each that is
    /// done and each that failed to `told`; the failed ones have no outcome.
    pub fn run(
        &self,
        cases: &[Case],
        mut told: impl FnMut(&str, Result<&Outcome, &EmulateError>),
    ) -> Outcomes {
        let mut outcomes = Outcomes::default();
        for case in cases.iter().filter(|case| case.ways == Ways::Both) {
            let mut outcome = self.case(&case.scenario);
            for _ in 1..ATTEMPTS {
                if outcome.is_err() {
                    outcome = self.case(&case.scenario);
                }
            }
            told(&case.name, outcome.as_ref());
            if let Ok(outcome) = outcome {
                outcomes.insert(&*case.name, outcome);
            }
        }
        outcomes
    }

    /// Runs one scenario.
    ///
    /// # Errors
    /// [`EmulateError`] where this machine cannot emulate, a program failed, or the emulator was
    /// in the way.
    pub fn case(&self, scenario: &Scenario) -> Result<Outcome, EmulateError> {
        let ends = Ends::new(&self.binary, scenario)?;
        let emulation = Emulation::start(EmulationSpec::of(scenario))?;
        let servers = ends.serve(&emulation, scenario)?;
        let began = Instant::now();
        let flows = thread::scope(|scope| {
            let flows = scenario.flows.iter();
            let running: Vec<_> = flows
                .enumerate()
                .map(|(place, _)| {
                    let (emulation, ends) = (&emulation, &ends);
                    scope.spawn(move || run_flow(place, scenario, emulation, ends, began))
                })
                .collect();
            let flows = running.into_iter().map(|flow| flow.join().expect("a flow never panics"));
            flows.collect::<Result<Vec<FlowOutcome>, EmulateError>>()
        })?;
        drop(servers);
        match emulation.statistics()?.verdict() {
            Verdict::Valid => Ok(Outcome { flows }),
            Verdict::Invalid(why) => Err(EmulateError::of("not valid", &why)),
        }
    }
}

fn run_flow(
    place: usize,
    scenario: &Scenario,
    emulation: &Emulation,
    ends: &Ends,
    began: Instant,
) -> Result<FlowOutcome, EmulateError> {
    let flow = &scenario.flows[place];
    let start = Duration::from_nanos(flow.start.since(Time::ZERO).as_nanos());
    // A scenario's time is an event of its own: nothing else says that it has come.
    thread::sleep(start.saturating_sub(began.elapsed()));
    match &flow.traffic {
        Traffic::Protocol(transfer) => ends.copy(emulation, scenario, flow, transfer, began),
        Traffic::Tcp(tcp) => tcp::run(emulation, scenario, place, tcp),
        _ => Err(EmulateError::new(format!("flow {} is neither a copy nor TCP", flow.name))),
    }
}
