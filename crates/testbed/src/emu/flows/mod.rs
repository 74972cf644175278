//! Runs a scenario's flows in real time, as [`crate::sim`] does in virtual time.
//!
//! The real program runs the copies, one server per receiving host. The kernel's TCP runs TCP flows
//! and short connections; a paced socket sends UDP.
//!
//! Modules:
//! - `copies`: copies by the real program. `copy_events`: their events.
//! - `streams`: TCP. `mice`: short TCP connections. `datagrams`: UDP.
//! - [`updates`]: state updates over channels.
//! - `end`: a flow's result. `absent`: the parts that cannot be emulated.
//! - `scratch`: a temporary folder that is always removed.

mod absent;
mod copies;
mod copy_events;
mod datagrams;
mod end;
mod mice;
mod scratch;
mod streams;
pub mod updates;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_proto::time::{Span, Time};

use super::{Emulation, EmulationError};
use crate::scenario::{Amount, Flow, Scenario, Traffic};

pub use end::{FlowCounts, FlowEnd};

use copies::Copies;

/// The first receiver's port; each flow has its own.
const FIRST_PORT: u16 = 20_000;
/// Maximum number of flows: each needs a port and threads.
pub const MAX_FLOWS: usize = 1_000;

/// Tells all flows of a run to stop.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    said: Arc<AtomicBool>,
    bell: Arc<(Mutex<()>, Condvar)>,
}

impl Stop {
    /// Signals the stop.
    pub fn stop(&self) {
        let (door, bell) = &*self.bell;
        let _inside = door.lock().unwrap_or_else(PoisonError::into_inner);
        self.said.store(true, Ordering::Relaxed);
        bell.notify_all();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.said.load(Ordering::Relaxed)
    }

    /// Waits for the stop, or until `until`; returns whether it was signalled.
    pub(super) fn wait(&self, until: Option<Instant>) -> bool {
        let (door, bell) = &*self.bell;
        let mut inside = door.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.is_stopped() {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            inside = match left {
                Some(Duration::ZERO) => return false,
                Some(left) => {
                    bell.wait_timeout(inside, left).unwrap_or_else(PoisonError::into_inner).0
                }
                None => bell.wait(inside).unwrap_or_else(PoisonError::into_inner),
            };
        }
        true
    }
}

/// A scenario's flows, ready to start, except commands.
pub struct Flows<'e> {
    emulation: &'e Emulation,
    scenario: &'e Scenario,
    copies: Option<Copies>,
    absent: Vec<String>,
}

struct Run<'e> {
    emulation: &'e Emulation,
    scenario: &'e Scenario,
    place: usize,
    flow: &'e Flow,
    began: Instant,
    stop: &'e Stop,
}

impl<'e> Flows<'e> {
    /// Prepares objects, servers and identities; `binary` is the `longhaul` program.
    ///
    /// # Errors
    /// [`EmulationError::Spec`] for more than [`MAX_FLOWS`] flows; [`EmulationError::Program`] if a
    /// copy is not possible, a server does not start, or `stop` was signalled.
    pub fn prepare(
        emulation: &'e Emulation,
        scenario: &'e Scenario,
        binary: &Path,
        stop: &Stop,
    ) -> Result<Flows<'e>, EmulationError> {
        let flows = scenario.flows.len();
        if flows > MAX_FLOWS {
            let what = format!("{flows} flows; an emulation runs at most {MAX_FLOWS}");
            return Err(EmulationError::Spec(what));
        }
        let absent = absent::of(scenario);
        let copies = Copies::prepare(emulation, scenario, binary, stop)?;
        Ok(Flows { emulation, scenario, copies, absent })
    }

    /// The parts of the scenario that are left out.
    pub fn absent(&self) -> &[String] {
        &self.absent
    }

    /// Whether the scenario has a flow that is not a command.
    pub fn are_some(scenario: &Scenario) -> bool {
        scenario.flows.iter().any(|flow| !matches!(flow.traffic, Traffic::Command(_)))
    }

    /// Runs each flow at its time after `began`, except commands and copies without an end, until
    /// all flows with a size or a duration have ended, or until `stop`. Returns the results in the
    /// scenario's order. The links' schedules start with this call.
    pub fn run(&self, began: Instant, stop: &Stop) -> Vec<FlowEnd> {
        // The schedules must not count the preparation. The call fails only if the emulation has
        // ended, and then the flows fail too.
        let _ = self.emulation.begin_schedules();
        let flows = self.scenario.flows.iter().enumerate();
        let flows: Vec<_> = flows.filter(|(_, flow)| can_run(flow)).collect();
        let can_end = |flow: &Flow| !matches!(flow.amount, Amount::Endless);
        let open = AtomicUsize::new(flows.iter().filter(|(_, flow)| can_end(flow)).count());
        thread::scope(|scope| {
            let start = |(place, flow): &(usize, &'e Flow)| {
                let (emulation, scenario) = (self.emulation, self.scenario);
                let run = Run { emulation, scenario, place: *place, flow, began, stop };
                let open = &open;
                scope.spawn(move || {
                    let end = self.one(&run);
                    if can_end(run.flow) && open.fetch_sub(1, Ordering::AcqRel) == 1 {
                        stop.stop();
                    }
                    end
                })
            };
            let running: Vec<_> = flows.iter().map(start).collect();
            let ends = running
                .into_iter()
                .map(|flow| flow.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            ends.collect()
        })
    }

    fn one(&self, run: &Run<'_>) -> FlowEnd {
        let mut end = FlowEnd::of(run.scenario, run.flow);
        if run.stop.wait(Some(run.start())) {
            end.error = Some("the run ended before the flow's start".into());
            return end;
        }
        let done = match &run.flow.traffic {
            Traffic::Protocol(transfer) => match &self.copies {
                Some(copies) => copies.run(run, transfer, &mut end),
                None => Ok(()),
            },
            Traffic::Tcp(tcp) => streams::run(run, tcp, &mut end),
            Traffic::Udp(udp) => datagrams::run(run, udp, &mut end),
            Traffic::Mice(mice) => mice::run(run, mice, &mut end),
            Traffic::Command(_) => Ok(()),
        };
        end.error = done.err();
        end
    }
}

/// Whether [`Flows::run`] runs the flow.
fn can_run(flow: &Flow) -> bool {
    match flow.traffic {
        Traffic::Command(_) => false,
        // `absent` names copies without an end.
        Traffic::Protocol(_) => flow.amount != Amount::Endless,
        Traffic::Tcp(_) | Traffic::Udp(_) | Traffic::Mice(_) => true,
    }
}

impl Run<'_> {
    fn start(&self) -> Instant {
        self.began + duration(self.flow.start.since(Time::ZERO))
    }

    fn over(&self) -> Option<Instant> {
        match self.flow.amount {
            Amount::Lasts(span) => Some(self.start() + duration(span)),
            Amount::Size(_) | Amount::Endless => None,
        }
    }

    fn port(&self) -> u16 {
        FIRST_PORT + u16::try_from(self.place).expect("checked against MAX_FLOWS")
    }

    fn from(&self) -> &str {
        &self.scenario.hosts[self.flow.from].name
    }

    fn to(&self) -> &str {
        &self.scenario.hosts[self.flow.to].name
    }

    fn took(&self) -> Span {
        Span::from_secs_f64(self.start().elapsed().as_secs_f64())
    }
}

fn duration(span: Span) -> Duration {
    Duration::from_nanos(span.as_nanos())
}
