//! Flows and programs side by side, until the end of those that are waited for.

use std::thread;
use std::time::Instant;

use longhaul_testbed::emu::flows::{FlowEnd, Flows, Stop};
use longhaul_testbed::emu::{Emulation, EmulationError};

use super::programs::{self, Asked, EXIT_TIME_LIMIT, Event, Events};
use super::{Plan, say};

/// A flow did not come to its end.
const EXIT_UNFINISHED: u8 = 1;

/// What a run came to.
pub(super) struct Played {
    pub(super) status: u8,
    /// The scenario's flows.
    pub(super) flows: Vec<FlowEnd>,
    /// What it asked for and did not get.
    pub(super) absent: Vec<String>,
}

/// Runs all that `plan` has, on hosts that are there, until its end or the one `asked` for.
pub(super) fn play(
    emulation: &Emulation,
    plan: &Plan,
    asked: Asked,
) -> Result<Played, EmulationError> {
    let stop = Stop::default();
    let events = Events::of(asked, &stop)?;
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
        say(&format!("longhaul emulate: NOT emulated: {what}"));
    }
    let began = Instant::now();
    let alone = plan.programs.is_empty();
    let (status, flows) = thread::scope(|scope| {
        let running = ready.as_ref().map(|flows| {
            let (stop, told) = (stop.clone(), events.sender());
            scope.spawn(move || {
                let ends = flows.run(began, &stop);
                if alone {
                    // Nobody listens where something else has brought the end.
                    let _ = told.send(Event::Flows);
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
        // Flows without an end go on until the time limit: that is how such a run ends.
        status = match (all, status) {
            (true, _) => 0,
            (false, 0) => EXIT_UNFINISHED,
            (false, status) => status,
        };
    }
    Ok(Played { status, flows, absent })
}
