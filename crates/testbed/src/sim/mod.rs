//! The simulator: runs a scenario in virtual time, with the real program's protocol cores (state
//! machines without I/O) and the emulator's link code.
//!
//! [`run`] runs a [`Scenario`] and returns a [`SimOutcome`], identical bit for bit on every
//! machine. One seed determines all randomness; each link and each flow has its own random stream.
//! Events at the same time run in the order of their insertion, and floats use `libm`.
//!
//! A run checks these invariants; [`SimError::Broken`] names the one that failed:
//! - A finished object is complete.
//! - Both ends' counters agree with the network's.
//! - No flow sends after its end.
//! - No core needs endless polling.
//! - Each link delivers, drops or still holds every packet that it accepted or duplicated.
//!
//! Modelled:
//! - links with all features of [`crate::link`], along routes;
//! - hosts' cards, sending and receiving programs, socket buffers, disks;
//! - a copy's control messages on the same links, by datagram and by an ordered reliable stream.
//!
//! Not modelled:
//! - the session's opening: a copy starts with an open session, and knows its route's round-trip
//!   time;
//! - the processing time of programs without a configured limit;
//! - verification.
//!
//! Only the datagrams of copies pass through the receiving program and the socket buffer.
//!
//! [`stream::run`] runs a coded stream of frames over one link. [`updates::run`] runs state updates
//! (small messages) over one link.
//!
//! Modules (an *agent* is one copy, TCP connection or UDP stream, with both its ends):
//! - the run: `world` (the event loop), `begin` (a flow's agents), `copies` (arrivals for copies),
//!   `others` (other traffic at a host), `ending` (accounts and outcome);
//! - below it: `calendar` (the event queue), `fabric` (packets on links), `host` (receiving
//!   programs and disks), `memory` (the copies' memory);
//! - agents: `copy` with its `lane`s and `setup`, `connection` (TCP), `plain` (UDP).

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
pub mod updates;
mod world;

pub use error::SimError;
pub use outcome::{Accounts, FlowOutcome, LinkOutcome, Point, SimOutcome};

pub(crate) use setup::check as check_copy;

use packet::End;

use crate::scenario::Scenario;

/// Runs a scenario with its own seed.
///
/// # Errors
/// [`SimError::Scenario`] if it cannot be simulated, [`SimError::Broken`] if an invariant failed.
pub fn run(scenario: &Scenario) -> Result<SimOutcome, SimError> {
    let mut world = world::World::new(scenario)?;
    world.run()?;
    world.outcome()
}

#[derive(Clone, Copy, Debug)]
enum What {
    /// The foremost packet on a link arrives at the link's end.
    Wire(u32),
    /// A packet that overtook others arrives at the link's end.
    Loose(u32),
    /// A flow starts.
    Start(u32),
    /// An agent's sender is woken.
    Wake(u32),
    /// A timer of a TCP connection.
    Timer { agent: u32, end: End },
    /// A receiver's core is woken.
    Receiver(u32),
    /// A host's receiving program finishes its batch.
    Program(u32),
    /// A host frees memory.
    Drain(u32),
    /// A receiver's core learns how much other traffic arrives.
    Others(u32),
    /// A packet of a control stream is sent again.
    Again { agent: u32, to: End, bytes: u32, message: u32 },
    /// The next mouse (short TCP connection) of a flow starts.
    Mouse(u32),
    /// A flow's time is over.
    Stop(u32),
    /// The receiver of a copy forgets the copy.
    Close(u32),
    /// The series get their next point.
    Sample,
    /// The run is over.
    End,
}
