//! The protocols of longhaul as pure state machines.
//!
//! Nothing here knows a clock, a socket, a thread or a file, and no randomness but what it is
//! handed; the crate is `no_std` so that the compiler keeps it so. One core runs in unit tests,
//! the simulator, the emulator and production.
//!
//! In reading order: [`time`], [`units`], [`layout`], [`endpoint`] (the verbs), [`accounting`],
//! [`wire`].
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod accounting;
pub mod endpoint;
pub mod layout;
pub mod time;
pub mod units;
pub mod wire;
