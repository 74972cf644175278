//! The threads that carry chunks of 1 MiB: they run a core (a protocol's state machine) over
//! sockets, or send chunks over streams.
//!
//! | thread | file | owns |
//! | --- | --- | --- |
//! | one per sending flow | [`send`] | the sending core, the source ([`payloads`]) |
//! | the port's receive thread | [`receive`], [`feedback`] | receiving cores, chunks being filled |
//! | one per sending transfer without datagrams | [`stream`] | the source |
//!
//! Complete chunks go to the writing thread ([`write`](crate::write)). The threads communicate by
//! channels, and publish their counters on a [`board`](crate::counters::board).
//!
//! [`outbox`] and `relay` carry control messages. [`shared_core`] is one receiving core for several
//! flows. `drain` measures the rate of the writer. `hole` detects a path that drops large
//! datagrams. `questions` asks how much of a first flight (the data sent before the session is
//! open) has arrived. `refusals` counts lost and refused datagrams. `trial` finds the best number
//! of connections for [`stream`].

mod drain;
pub(crate) mod feedback;
mod hole;
pub(crate) mod outbox;
pub(crate) mod payloads;
mod questions;
pub(crate) mod receive;
mod refusals;
mod relay;
pub(crate) mod send;
pub(crate) mod shared_core;
pub(crate) mod stream;
mod trial;
