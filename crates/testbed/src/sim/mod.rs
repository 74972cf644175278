//! The simulator: a scenario in virtual time, by the protocols' own cores and the links' own code.
//!
//! [`run`] runs a [`Scenario`] and gives an [`SimOutcome`]. One seed determines all chance, each
//! link and each flow draws from a stream of its own, ties in time go by the order of making, and
//! floats go through `libm`: a run is the same bit for bit on every machine.
//!
//! What a run promises is checked while it runs and at its end; [`SimError::Broken`] says what did
//! not hold. An object is whole, both ends' accounts agree with the network's, nothing is sent
//! after the end, no core is polled without end, each link gives back what it takes.
//!
//! What is modelled: links with all that [`crate::link`] has, along routes; hosts' cards, sending
//! and receiving programs, socket buffers, disks; the control messages of a copy on the same links
//! as its data, by datagram and by an ordered stream that repeats what is lost. What is not: the
//! session's opening (a copy starts with the session there, and an estimate of its round trip that
//! is the route's), the time that a driver without a limit takes, verification. What the receiving
//! program and the socket buffer limit are the datagrams of copies; TCP and plain UDP pass them by.
//!
//! [`stream::run`] runs a coded stream of frames over one link.
//!
//! Files by decision: `world` (the run), `begin` (a flow's agents), `copies` (what comes for
//! copies), `others` (what comes beside them), `ending` (accounts and outcome); below them
//! `calendar` (what is next), `fabric` (packets on links), `host` (receiving programs and disks),
//! `memory` (what copies hold); the agents `copy` with its `lane`s and `setup`, `connection` (TCP),
//! `plain` (UDP).

mod begin;
mod calendar;
mod connection;
mod copies;
mod copy;
mod ending;
mod error;
mod fabric;
mod host;
mod lane;
mod memory;
mod others;
mod outcome;
mod packet;
mod plain;
mod setup;
mod store;
pub mod stream;
mod world;

pub use error::SimError;
pub use outcome::{Accounts, FlowOutcome, LinkOutcome, Point, SimOutcome};

pub(crate) use setup::check as check_copy;

use packet::End;

use crate::scenario::Scenario;

/// Runs a scenario with its own seed.
///
/// # Errors
/// [`SimError::Scenario`] for what cannot be simulated, [`SimError::Broken`] for a run in which a
/// promise was broken.
pub fn run(scenario: &Scenario) -> Result<SimOutcome, SimError> {
    let mut world = world::World::new(scenario)?;
    world.run()?;
    world.outcome()
}

/// What happens at a time.
#[derive(Clone, Copy, Debug)]
enum What {
    /// The first packet on a link comes out.
    Wire(u32),
    /// A packet that overtook comes out.
    Loose(u32),
    /// A flow starts.
    Start(u32),
    /// An agent's sender is woken.
    Wake(u32),
    /// A timer of a TCP connection.
    Timer { agent: u32, end: End },
    /// A receiver's core is woken.
    Receiver(u32),
    /// A host's receiving program has done with its batch.
    Program(u32),
    /// What a host has drained is counted.
    Drain(u32),
    /// A receiver's core is told what else comes in.
    Others(u32),
    /// A packet of a control stream is sent again.
    Again { agent: u32, to: End, bytes: u32, message: u32 },
    /// The next mouse of a flow sets out.
    Mouse(u32),
    /// A flow's time is over.
    Stop(u32),
    /// A copy's receiver forgets it.
    Close(u32),
    /// The series get their next point.
    Sample,
    /// The run is over.
    End,
}
