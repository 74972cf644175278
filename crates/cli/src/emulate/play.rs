//! Runs flows and programs concurrently.

use std::thread;
use std::time::Instant;

use longhaul_testbed::emu::flows::{FlowEnd, Flows, Stop};
use longhaul_testbed::emu::{Emulation, EmulationError};

use super::Plan;
use super::programs::{self, CaughtSignals, EXIT_TIME_LIMIT, Event, Events};
use crate::console;

/// Exit status of a run without programs, if all flows stopped before the time limit, and at least
/// one failed or is not [`finished`](FlowEnd::finished).
const EXIT_UNFINISHED: u8 = 1;

pub(super) struct Played {
    pub(super) status: u8,
    pub(super) flows: Vec<FlowEnd>,
    /// Requested settings that could not be applied.
    pub(super) absent: Vec<String>,
}

/// Runs everything in `plan`, until the run ends or `signals` catches a signal.
pub(super) fn play(
    emulation: &Emulation,
    plan: &Plan,
    signals: CaughtSignals,
) -> Result<Played, EmulationError> {
    let stop = Stop::default();
    let events = Events::of(signals, &stop)?;
    let ready = match &plan.flows {
        None => None,
        Some(scenario) => {
            let binary = std::env::current_exe()
                .map_err(|error| EmulationError::System("find this program", error))?;
            match Flows::prepare(emulation, scenario, &binary, &stop) {
                Ok(flows) => Some(flows),
                Err(error) => match events.signalled() {
                    Some(status) => return Ok(Played { status, flows: vec![], absent: vec![] }),
                    None => return Err(error),
                },
            }
        }
    };
    let absent = ready.as_ref().map_or(Vec::new(), |flows| flows.absent().to_vec());
    for what in &absent {
        console::note(format_args!("longhaul emulate: NOT emulated: {what}"));
    }
    let began = Instant::now();
    let alone = plan.programs.is_empty();
    let (status, flows) = thread::scope(|scope| {
        let running = ready.as_ref().map(|flows| {
            let (stop, sender) = (stop.clone(), events.sender());
            scope.spawn(move || {
                let ends = flows.run(began, &stop);
                if alone {
                    // If the run has already ended, nobody reads this event.
                    let _ = sender.send(Event::Flows);
                }
                ends
            })
        });
        let status = programs::run(emulation, &plan.programs, began, plan.limit, &events);
        stop.stop();
        let ends = running.map(|flows| flows.join().expect("a flow's run does not panic"));
        (status, ends.unwrap_or_default())
    });
    let mut status = status?;
    if alone && [0, EXIT_TIME_LIMIT].contains(&status) {
        let all = flows.iter().all(|flow| flow.finished && flow.error.is_none());
        // Endless flows count as finished when the run stops them. So a run of endless flows, which
        // ends at the time limit, has the status 0.
        status = match (all, status) {
            (true, _) => 0,
            (false, 0) => EXIT_UNFINISHED,
            (false, status) => status,
        };
    }
    Ok(Played { status, flows, absent })
}
