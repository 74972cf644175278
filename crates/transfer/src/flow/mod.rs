//! The threads that carry chunks: they run a core over sockets, or chunks over streams.
//!
//! | thread | file | owns |
//! | --- | --- | --- |
//! | one a sending flow | [`send`] | the sending core, the source ([`payloads`]) |
//! | the port's receive thread | [`receive`], [`feedback`] | receiving cores, chunks being filled |
//! | one a sending transfer without datagrams | [`stream`] | the source |
//!
//! Whole chunks go to the writing thread ([`write`](crate::write)). The threads meet in channels
//! and on a [`board`](crate::counters::board) that others read.

mod drain;
pub(crate) mod feedback;
pub(crate) mod outbox;
pub(crate) mod payloads;
pub(crate) mod receive;
mod refusals;
mod relay;
pub(crate) mod send;
pub(crate) mod shared_core;
pub(crate) mod stream;
mod trial;
