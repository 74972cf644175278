//! What the ends of every protocol share, so that a protocol's folder holds only its decisions.
//!
//! - [`frontier`]: which blocks were never sent, in order, within the receiver's grant.
//! - [`sending`]: pacing, round-trip time, the receiver's pulses, the circuit breaker, the columns.
//! - [`flow`]: a sender by its protocol's decisions alone.
//! - [`mod@train`]: a first rate, from the first datagrams.
//! - [`repairs`], [`arrived`]: the two ends of a protocol that counts through the object; and
//!   what they are made of: [`losses`], the loss list; [`wholes`], which segments are whole.
//! - [`heard`]: which numbered messages have come. [`again`]: what is done while nothing is heard.
//!   [`mod@grace`]: how late a datagram may be.
//! - [`receiving`]: arrivals into columns and pulses; many flows behind one receiver.
//! - [`tallies`]: which blocks have arrived, a tally for each segment under way.

pub mod again;
pub mod arrived;
pub mod flow;
pub mod frontier;
pub mod grace;
pub mod heard;
pub mod losses;
pub mod receiving;
pub mod repairs;
pub mod sending;
pub mod tallies;
pub mod train;
pub mod wholes;

pub use again::Again;
pub use arrived::Arrived;
pub use flow::SendingFlow;
pub use frontier::{Frontier, Run};
pub use grace::{SHORTEST_GRACE, grace};
pub use heard::Heard;
pub use losses::{LossList, Recent};
pub use receiving::{Flows, ReceivingEnd, ReceivingFlow};
pub use repairs::Repairs;
pub use sending::SendingEnd;
pub use tallies::Tallies;
pub use train::FirstTrain;
pub use wholes::Wholes;
