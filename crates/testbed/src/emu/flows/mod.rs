//! A scenario's flows, for real: what [`crate::sim`] does in virtual time.
//!
//! Copies are run by the real program, a server on each host that receives and a copy for each
//! flow; TCP and short connections by the kernel's TCP; UDP by a socket that is paced. What a
//! scenario asks for and no emulation can give is told by name ([`Flows::absent`]).
//!
//! Files by decision: `absent` (what cannot be), `copies` (the real program) and what it `tells`,
//! `streams` (TCP), `mice`, `datagrams` (UDP), `end` (what a flow came to), `scratch` (a folder
//! that is gone however this ends).

mod absent;
mod copies;
mod datagrams;
mod end;
mod mice;
mod scratch;
mod streams;
mod tells;

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

/// The first port that a flow's receiving end listens on; each flow has one of its own.
const FIRST_PORT: u16 = 20_000;
/// Flows that are run at most: a port each, and threads.
pub const MAX_FLOWS: usize = 1_000;

/// Says to all flows of a run that it is over.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    said: Arc<AtomicBool>,
    bell: Arc<(Mutex<()>, Condvar)>,
}

impl Stop {
    /// Says so.
    pub fn stop(&self) {
        let (door, bell) = &*self.bell;
        let _inside = door.lock().unwrap_or_else(PoisonError::into_inner);
        self.said.store(true, Ordering::Relaxed);
        bell.notify_all();
    }

    /// Whether it was said.
    pub(crate) fn is_stopped(&self) -> bool {
        self.said.load(Ordering::Relaxed)
    }

    /// Waits until it is said, or until a time, or for ever; whether it was said.
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

/// The flows of a scenario, ready to start; commands are not among them.
pub struct Flows<'e> {
    emulation: &'e Emulation,
    scenario: &'e Scenario,
    copies: Option<Copies>,
    absent: Vec<String>,
}

/// A flow at its start.
struct Run<'e> {
    emulation: &'e Emulation,
    scenario: &'e Scenario,
    /// Its place in the scenario.
    place: usize,
    flow: &'e Flow,
    /// When the scenario began.
    began: Instant,
    stop: &'e Stop,
}

impl<'e> Flows<'e> {
    /// Makes everything ready: objects, servers, identities. `binary` is the `longhaul` to run.
    ///
    /// # Errors
    /// [`EmulationError::Program`] where the objects find no room, a server does not start, or
    /// `stop` was said before all was ready.
    pub fn prepare(
        emulation: &'e Emulation,
        scenario: &'e Scenario,
        binary: &Path,
        stop: &Stop,
    ) -> Result<Flows<'e>, EmulationError> {
        let flows = scenario.flows.len();
        if flows > MAX_FLOWS {
            let what = format!("{flows} flows; an emulation runs {MAX_FLOWS} at most");
            return Err(EmulationError::Spec(what));
        }
        let absent = absent::of(scenario);
        let copies = Copies::prepare(emulation, scenario, binary, stop)?;
        Ok(Flows { emulation, scenario, copies, absent })
    }

    /// What the scenario asks for and this emulation does not give, each with its host or flow.
    pub fn absent(&self) -> &[String] {
        &self.absent
    }

    /// Whether there is a flow to run.
    pub fn are_some(scenario: &Scenario) -> bool {
        scenario.flows.iter().any(|flow| !matches!(flow.traffic, Traffic::Command(_)))
    }

    /// Runs all flows, each at its time after `began`, until every flow that can end has, or until
    /// `stop`; what they came to, in the scenario's order, commands left out. The links' schedules
    /// begin with them.
    pub fn run(&self, began: Instant, stop: &Stop) -> Vec<FlowEnd> {
        // Servers and objects took their time. An emulation that has ended shows at the flows.
        let _ = self.emulation.begin_schedules();
        let flows = self.scenario.flows.iter().enumerate();
        let flows: Vec<_> =
            flows.filter(|(_, flow)| !matches!(flow.traffic, Traffic::Command(_))).collect();
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
            end.error = Some("the run ended before its start".into());
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

impl Run<'_> {
    /// When the flow starts.
    fn start(&self) -> Instant {
        self.began + duration(self.flow.start.since(Time::ZERO))
    }

    /// When its time is over, if it has one.
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

    /// How long ago the flow started.
    fn took(&self) -> Span {
        Span::from_secs_f64(self.start().elapsed().as_secs_f64())
    }
}

fn duration(span: Span) -> Duration {
    Duration::from_nanos(span.as_nanos())
}
