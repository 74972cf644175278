//! Cases run in real time: the emulator's path, the real binary's `serve` and `cp`, and the
//! kernel's TCP, as [`longhaul_testbed::emu::flows`] has them.
//!
//! Files are made in memory where the machine has a folder there, so that no disk is in the way.
//! An emulation that was itself the bottleneck is an error, not a value.

use std::fmt;
use std::path::PathBuf;
use std::time::Instant;

use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::Bytes;
use longhaul_testbed::emu::flows::{FlowEnd, Flows, Stop};
use longhaul_testbed::emu::{Emulation, EmulationError, EmulationSpec, Verdict};
use longhaul_testbed::scenario::Scenario;

use crate::experiment::{Case, Ways};
use crate::outcome::{FlowOutcome, Outcome, Outcomes, Sample};

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
        let emulation = Emulation::start(EmulationSpec::of(scenario))?;
        let stop = Stop::default();
        let flows = Flows::prepare(&emulation, scenario, &self.binary, &stop)?;
        let ends = flows.run(Instant::now(), &stop);
        drop(flows);
        let flows = ends.into_iter().map(outcome).collect::<Result<_, EmulateError>>()?;
        match emulation.statistics()?.verdict() {
            Verdict::Valid => Ok(Outcome { flows }),
            Verdict::Invalid(why) => Err(EmulateError::of("not valid", &why)),
        }
    }
}

/// What a flow came to. The time of a copy begins with its first datagram: the simulation has no
/// session to set up.
fn outcome(end: FlowEnd) -> Result<FlowOutcome, EmulateError> {
    let name = &end.name;
    if let Some(why) = &end.error {
        return Err(EmulateError::new(format!("flow {name} failed: {why}")));
    }
    if !end.finished {
        return Err(EmulateError::new(format!("flow {name} did not come to its end")));
    }
    let start = end.started.since(Time::ZERO).as_secs_f64();
    let sample = |pair: &[(Span, Bytes)]| {
        let ((before, had), (at, has)) = (pair[0], pair[1]);
        let goodput = (has - had).bits() / (at - before).as_secs_f64() / 1e6;
        Sample { at: start + at.as_secs_f64(), goodput, ..Sample::default() }
    };
    let apart = end.series.windows(2).filter(|pair| pair[1].0 > pair[0].0);
    let series = apart.map(sample).collect();
    let counts = end.counts;
    let count = |count: Option<u64>| count.unwrap_or_default();
    Ok(FlowOutcome {
        bytes: end.delivered,
        started: end.started,
        elapsed: end.took - end.setup,
        finished: end.finished,
        sent: count(counts.sent),
        retransmitted: count(counts.retransmitted),
        reported_lost: count(counts.reported_lost),
        received: count(counts.received),
        duplicates: count(counts.duplicates),
        lost: count(counts.lost),
        blocks: count(counts.blocks),
        rounds: u32::try_from(count(counts.rounds)).unwrap_or(u32::MAX),
        series,
        name: end.name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_testbed::scenario::Reading;

    #[test]
    fn a_copy_is_timed_from_its_first_datagram() {
        let flow = r#"{ from = "a", to = "b", protocol = "rbudp", size = "250MB", start = "1s" }"#;
        let text = format!("flow = [{flow}]\n[topology]\nkind = \"pair\"");
        let scenario = Scenario::parse("case", &text, &Reading::PLAIN).unwrap();
        let mut end = FlowEnd::of(&scenario, &scenario.flows[0]);
        assert!(outcome(end.clone()).is_err(), "it did not end");
        let seconds = Span::from_secs;
        end.series = vec![(seconds(1), Bytes::ZERO), (seconds(2), Bytes::new(125_000_000))];
        (end.delivered, end.finished) = (Bytes::new(250_000_000), true);
        (end.took, end.setup) = (Span::from_millis(2_500), Span::from_millis(500));
        (end.counts.sent, end.counts.lost) = (Some(12), Some(3));
        let outcome = outcome(end.clone()).unwrap();
        assert_eq!((outcome.goodput(), outcome.loss()), (1000.0, 25.0));
        assert_eq!((outcome.series.len(), outcome.series[0].at), (1, 3.0));
        assert_eq!(outcome.series[0].goodput, 1000.0);
        end.error = Some("no way".into());
        assert!(super::outcome(end).unwrap_err().to_string().contains("no way"));
    }
}
