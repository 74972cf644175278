//! Simulated and emulated network paths for testing protocols.
//!
//! - [`link`]: models of a path's effects on packets: rate, queue, delay, jitter, loss, …. A model
//!   gets each packet's time and size and returns its arrival or drop, without clock and socket.
//! - [`emu`]: hosts in network namespaces, connected in real time by the same models (Linux only),
//!   for any IP program.
//! - [`scenario`]: hosts, network and flows as one value, for simulator and emulator.
//! - [`sim`]: runs a scenario in virtual time. [`tcp`]: the simulator's TCP model.
//! - [`skip`]: skips a test on a host that cannot run it.
//! - [`alone`]: runs a test in a process of its own.
//! - [`random`]: the small seeded random generator.

// The page names private modules, too: it is for readers of the source.
#![allow(rustdoc::private_intra_doc_links)]

#[doc(hidden)]
pub mod alone;
#[cfg(target_os = "linux")]
pub mod emu;
pub mod link;
pub mod random;
pub mod scenario;
pub mod sim;
#[doc(hidden)]
pub mod skip;
mod tcp;
