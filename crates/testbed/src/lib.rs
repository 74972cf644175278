//! Simulated and emulated network paths for testing protocols.
//!
//! - [`link`]: models of a path's effects on packets: rate, queue, delay, jitter, loss, …. A model
//!   gets the time and size of each packet and returns its arrival or drop. It has no clock and no
//!   socket; its randomness comes from a seed.
//! - [`emu`]: hosts in network namespaces, connected in real time by the same link code (Linux
//!   only). Any IP program runs across the path unchanged.
//! - [`scenario`]: hosts, network and flows as one value; the simulator and the emulator run it.
//! - [`sim`]: runs a scenario in virtual time. [`tcp`]: the simulator's TCP model.
//! - [`skip`]: skips a test on a host that cannot run it.
//! - [`alone`]: runs a test in a process of its own.
//! - [`random`]: the small seeded random generator of the links, the simulator and the emulator.

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
