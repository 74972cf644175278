//! Links as values: one direction of a path, and its effect on each packet.
//!
//! A driver offers a packet to a [`Link`] with the time and its size as an IP packet, and gets its
//! [`Fate`] back. The link applies in this order: an outage or a size limit swallows the packet; a
//! policer drops what exceeds its token bucket; a full queue drops the packet (room is counted in
//! bytes on the wire); CoDel, if configured, drops a packet that waited too long; the rate
//! serialises the packet; loss removes it *afterwards*, so a lost packet has used its share of the
//! rate, as on a real line; delay, jitter and reordering set the arrival time.
//!
//! The link has no clock and stores no packets; it only records the time when its wire is free
//! again. It works the same in virtual and in real time, and one seed determines every fate.

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
