//! Paths to try a protocol on: links as values, and an emulator of a wide-area path.
//!
//! - [`link`]: what a path does to packets (rate, queue, delay, jitter, loss, …) as plain values,
//!   time and size in, arrival or drop out; no clock, no socket, one seed.
//! - [`emu`]: hosts in network namespaces with the same link code between them in real time, so
//!   that any program that speaks IP runs across the path unchanged (Linux only).
//! - [`scenario`]: hosts, network and flows as one value, which all of them run.
//! - [`sim`]: a scenario in virtual time. [`tcp`]: the TCP in it, as a model.
//! - [`skip`]: how a test ends on a host that cannot run it.
//! - [`random`]: the small seeded generator under all.

// The page names private modules, too: it is for readers of the source.
#![allow(rustdoc::private_intra_doc_links)]

#[cfg(target_os = "linux")]
pub mod emu;
pub mod link;
pub mod random;
pub mod scenario;
pub mod sim;
#[doc(hidden)]
pub mod skip;
mod tcp;
