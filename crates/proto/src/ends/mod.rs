//! What the ends of every protocol share, so that a protocol's folder holds only its decisions.
//!
//! - [`frontier`]: which blocks were never sent, in order, within the receiver's grant.
//! - [`sending`]: pacing, round-trip time, the receiver's pulses, the circuit breaker, the columns.
//! - [`wholes`]: which segments are whole. [`heard`]: which numbered messages have come.
//! - [`receiving`]: arrivals into columns and pulses; many flows behind one receiver.

pub mod frontier;
pub mod heard;
pub mod receiving;
pub mod sending;
pub mod wholes;

pub use frontier::{Frontier, Run};
pub use heard::Heard;
pub use receiving::{Flows, ReceivingEnd, ReceivingFlow};
pub use sending::SendingEnd;
pub use wholes::Wholes;
