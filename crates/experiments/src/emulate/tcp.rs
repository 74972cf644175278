//! The kernel's TCP as a flow of a scenario.

use std::fs;

use longhaul_testbed::emu::{Emulation, KernelTcp};
use longhaul_testbed::scenario::{Amount, Congestion, Flow, Scenario, Tcp};

use super::EmulateError;
use crate::outcome::FlowOutcome;

/// Where a flow's receiving end listens; each flow has a port of its own.
const FIRST_PORT: u16 = 5001;

/// Moves what the flow at `place` says from one host to the other.
pub(super) fn run(
    emulation: &Emulation,
    scenario: &Scenario,
    place: usize,
    tcp: &Tcp,
) -> Result<FlowOutcome, EmulateError> {
    let flow: &Flow = &scenario.flows[place];
    if flow.amount == Amount::Endless {
        return Err(EmulateError::new("a TCP flow without an end is not emulated"));
    }
    let fits = |number: usize| u16::try_from(number).unwrap_or(u16::MAX);
    let mut running = emulation.start_tcp(&KernelTcp {
        from: scenario.hosts[flow.from].name.clone(),
        to: scenario.hosts[flow.to].name.clone(),
        port: FIRST_PORT.saturating_add(fits(place)),
        streams: fits(tcp.streams as usize),
        amount: flow.amount,
        window: tcp.window,
        congestion: congestion(tcp.congestion),
    })?;
    let elapsed = running.wait().map_err(|error| EmulateError::of("TCP", &error))?;
    Ok(FlowOutcome {
        name: flow.name.clone(),
        bytes: running.received(),
        started: flow.start,
        elapsed,
        finished: true,
        ..FlowOutcome::default()
    })
}

/// The kernel's name of a congestion control, if it has it; a kernel without it takes its own: the
/// page says which it has.
fn congestion(wanted: Congestion) -> Option<String> {
    const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let name = match wanted {
        Congestion::NewReno => "reno",
        Congestion::Cubic => "cubic",
    };
    let available = fs::read_to_string(AVAILABLE).unwrap_or_default();
    available.split_whitespace().any(|known| known == name).then(|| name.to_owned())
}
