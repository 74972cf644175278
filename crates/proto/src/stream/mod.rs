//! Streams: frames that arrive whole, in order and before a deadline, or are reported as missed. A
//! stream resembles a `deadline` [channel](crate::channel), and is made for large frames.
//!
//! The sender splits a frame into k symbols, one for each datagram, and adds m repairs
//! ([`repairs`](crate::fec::repairs)). Any k of the k + m datagrams restore the frame. The sender
//! sends the originals as soon as it has the frame, and the repairs without a request. So a lost
//! datagram costs no round trip. If the deadline leaves time for round trips, a frame can do
//! without repairs: the receiver requests lost symbols, and the sender sends them again
//! ([`Sender::again`]).
//!
//! As everywhere in this crate, the cores (the state machines of the protocols) name symbols and
//! never hold their bytes. The driver (the program that does the I/O) of a [`Sender`] keeps the
//! bytes of the queued frames and computes repairs with [`fec`](crate::fec). The driver of a
//! [`Receiver`] keeps the symbols for which [`Receiver::on_symbol`] returned [`Placed::Keep`], and
//! decodes a frame when the receiver reports that the frame is complete.
//!
//! - [`Head`]: a datagram's description of its frame.
//! - [`Delays`]: percentiles of any number of delays.
//! - [`Meter`]: losses, bursts and jitter of a path, from arrivals.
//! - [`Arrivals`] and [`Ceiling`]: the rate that the path carries, as a limit of the sending rate.
//! - [`Plan`]: the rate and the repairs for a measured path.
//! - [`choose`]: the [`Way`] to meet the deadline, from round-trip time, jitter and loss.

mod ceiling;
mod choose;
mod clock;
mod delays;
mod head;
mod kept;
mod meter;
mod plan;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;

pub(crate) use clock::Clock;

pub use ceiling::{Arrivals, Ceiling};
pub use choose::{Choice, Needs, Path, Way, choose};
pub use delays::Delays;
pub use head::{Head, HeadError, MAX_FRAME};
pub use meter::{Meter, chain};
pub use plan::{EPSILON, Plan, plan};
pub use receiver::{Delivery, MAX_RANGES, Placed, Receiver, Request};
pub use sender::{Full, Overflow, Sender, Settings};
