//! What the ends of every protocol share, so that a protocol's folder holds only its decisions.
//!
//! - [`frontier`]: which blocks were never sent, in order, within the receiver's grant.
//! - [`sending`]: pacing, round-trip time, the receiver's pulses, the circuit breaker, the columns.
//! - [`receiving`]: arrivals into columns and pulses; many flows behind one receiver.

pub mod frontier;
pub mod receiving;
pub mod sending;

pub use frontier::{Frontier, Run};
pub use receiving::{Flows, ReceivingEnd, ReceivingFlow};
pub use sending::SendingEnd;
