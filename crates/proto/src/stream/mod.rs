//! A coded `deadline` channel: frames that arrive whole, in order and before a deadline, or are
//! reported as missed.
//!
//! A frame is cut into k symbols, one a datagram, and m repairs follow them
//! ([`repairs`](crate::fec::repairs)): any k of the k + m datagrams give the frame. The originals
//! are sent as soon as the frame is there; nothing is sent again, so a lost datagram costs no round
//! trip.
//!
//! As everywhere in this crate the cores name symbols and never hold their bytes. The driver of a
//! [`Sender`] keeps the bytes of the frames that the sender has queued and computes repairs by
//! [`fec`](crate::fec); the driver of a [`Receiver`] keeps the symbols for which
//! [`Receiver::on_symbol`] returned [`Placed::Keep`], and decodes a frame when the receiver says
//! that the frame is whole.
//!
//! - [`Head`]: what a datagram says of its frame.
//! - [`Delays`]: percentiles of any number of delays.
//! - [`Meter`]: losses, bursts and jitter of a path, from what arrives.
//! - [`Plan`]: the rate and the repairs that follow from them.
//! - [`choose`]: payloads, repair or code, from deadline, round-trip time, jitter and loss.

mod choose;
mod clock;
mod delays;
mod head;
mod meter;
mod plan;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;

pub(crate) use clock::Clock;

pub use choose::{Choice, Needs, Path, choose};
pub use delays::Delays;
pub use head::{Head, HeadError, MAX_FRAME};
pub use meter::{Meter, chain};
pub use plan::{EPSILON, Plan, plan};
pub use receiver::{Delivery, Placed, Receiver};
pub use sender::{Full, Overflow, Sender, Settings};
