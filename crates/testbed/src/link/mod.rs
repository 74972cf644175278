//! Links as values: what one direction of a path does to each packet.
//!
//! A packet is offered to a [`Link`] with the time and its size as an IP packet; back comes its
//! [`Fate`]. In this order: a link that is down or that the packet is too large for swallows it; a
//! policer drops what exceeds its token bucket;
//! the queue takes it if it has room (in bytes on the wire), and CoDel, if it is
//! told to, drops it for having waited; the rate serialises it;
//! loss takes it *after* that, so that a lost packet has used its share of the rate, as on a
//! real line; delay, jitter and reordering decide when it arrives.
//!
//! The link has no clock and no memory of packets, only of when it is free again; so it works the
//! same in virtual and in real time, and one seed determines every fate.

mod codel;
mod loss;
mod passage;
mod policer;
mod schedule;
mod serialiser;
mod spec;
mod trace;

pub use codel::CoDel;
pub use loss::{GilbertElliott, Loss};
pub use passage::{Fate, Link, LinkCount, LinkTally, Passage};
pub use policer::Policer;
pub use spec::{
    Change, ETHERNET_FRAMING, Jitter, LinkSpec, QueueControl, Reorder, SpecError, Step,
};

pub(crate) use spec::UDP_IP;
