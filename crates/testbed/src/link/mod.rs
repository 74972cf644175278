//! Links as values: one direction of a path, and its effect on each packet.
//!
//! The simulator or the emulator offers each packet to a [`Link`], with the time and the size as an
//! IP packet, and gets the packet's [`Fate`]. The link applies, in this order:
//!
//! 1. An outage or a size limit drops the packet.
//! 2. A policer drops packets that exceed its token bucket.
//! 3. A full queue drops the packet (room is counted in bytes on the wire).
//! 4. CoDel, if configured, drops a packet that waited too long.
//! 5. The rate serialises the packet.
//! 6. Loss removes the packet, which has used its share of the rate.
//! 7. Delay, jitter and reordering set the arrival time. The packet may be duplicated or corrupted.
//!
//! The link has no clock and stores no packets. The same seed and packets give the same fates.

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
