//! Code that the protocols' senders and receivers share, so that a protocol's folder holds only its
//! decisions.
//!
//! - [`frontier`]: blocks that were never sent, in order, within the receiver's grant (the bytes
//!   that may be sent for the first time).
//! - [`sending`]: pacing, round-trip time, the receiver's pulses (periodic reports), the circuit
//!   breaker (stops a sender whose peer is silent for too long), counters.
//! - [`flow`]: a sender made from a protocol's decisions.
//! - [`mod@train`]: a first rate, from the first datagrams.
//! - [`repairs`]: the blocks that a sender has to send again, in a loss list ([`losses`]).
//!   [`arrived`]: the blocks that a receiver has. Both number blocks from the start of the object.
//! - [`complete_segments`]: which segments are complete.
//! - [`seen_numbers`]: which numbered messages have arrived. [`again`]: repetition with backoff
//!   during silence. [`mod@grace`]: how long to wait for an overtaken datagram.
//! - [`loss_window`]: the loss ratio of recent datagrams.
//! - [`receiving`]: counters and pulses of a receiver; a receiver of many independent flows.
//! - `out`, for tests: a sender without a network.
//! - [`tallies`]: which blocks have arrived, a bitmap for each incomplete segment.

pub(crate) mod again;
pub(crate) mod arrived;
pub(crate) mod complete_segments;
pub(crate) mod flow;
pub(crate) mod frontier;
pub(crate) mod grace;
pub(crate) mod loss_window;
pub(crate) mod losses;
#[cfg(test)]
pub(crate) mod out;
pub(crate) mod receiving;
pub(crate) mod repairs;
pub(crate) mod seen_numbers;
pub(crate) mod sending;
pub(crate) mod tallies;
pub(crate) mod train;

pub(crate) use again::Again;
pub(crate) use arrived::Arrived;
pub(crate) use complete_segments::CompleteSegments;
pub(crate) use flow::SendingFlow;
pub(crate) use frontier::{Frontier, Run};
pub(crate) use grace::{SHORTEST_GRACE, grace};
pub(crate) use losses::{LossList, Recent};
pub(crate) use receiving::{Flows, ReceivingEnd, ReceivingFlow};
pub(crate) use repairs::Repairs;
pub(crate) use seen_numbers::SeenNumbers;
pub(crate) use sending::SendingEnd;
pub(crate) use tallies::Tallies;
pub(crate) use train::FirstTrain;
