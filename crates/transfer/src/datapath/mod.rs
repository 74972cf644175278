//! The data plane: threads, sockets, seals. It knows no protocol.
//!
//! Outwards: a [`seal::Sealer`] writes into a [`batch::Batch`], a [`socket::Socket`] sends it,
//! [`wait`] keeps the time between. Inwards: a [`port::Port`] receives and hands each flow its
//! datagrams, an [`open::Opener`] opens them to where they belong. [`keys`] says which key serves
//! what.

pub mod address;
pub mod assembly;
pub mod batch;
pub mod chunks;
pub mod clock;
pub mod hold;
pub mod keys;
pub mod mtu;
pub mod open;
pub mod place;
pub mod port;
mod receive;
pub mod replay;
pub mod scatter;
pub mod seal;
pub mod socket;
mod sys;
pub mod wait;

pub(crate) use sys::{tcp_round_trip, tcp_segments};

#[cfg(test)]
mod port_tests;
#[cfg(test)]
mod seal_tests;
