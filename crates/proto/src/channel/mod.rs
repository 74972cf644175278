//! Channels: messages with boundaries, from several senders through a room (a named group at a
//! server) to several subscribers.
//!
//! A room keeps its newest messages in one [`Log`]. A subscriber is a [`Cursor`] into the log, so a
//! slow subscriber needs no copies of messages and never delays other subscribers.
//!
//! - [`Mode`]: what a subscriber gets from the log.
//! - [`Seen`]: detects duplicate messages, after a lost connection or around a ring of servers.
//! - [`encode`], [`Cutter`], [`Joiner`], [`decode`]: messages as datagrams, with repairs.
//! - [`Senders`]: a [`Joiner`] for each sender of a multicast group.
//! - [`cover`], [`Judge`]: the erasure code that a deadline needs, and the age of each message.
//! - [`Array`]: an array of numbers as a message.
//! - [`Meter`]: throughput, loss, reordering and jitter.
//!
//! For large frames at a fixed rate with a deadline use a [`stream`](crate::stream).

mod array;
mod blob;
mod cursor;
mod cutter;
mod deadline;
mod joiner;
mod log;
mod meter;
mod seen;
mod senders;
#[cfg(test)]
mod tests;

use alloc::sync::Arc;

use crate::share::{Key, Prefix};
use crate::time::Span;

pub use array::{Array, ArrayError, Element};
pub use blob::{decode, encode, encode_head};
pub use cursor::{Cursor, Taken};
pub use cutter::{Code, CodeError, Cutter, Cutting, Datagram, TooLong};
pub use deadline::{Cover, Departure, Judge, cover};
pub use joiner::{Joined, Joiner};
pub use log::{Limits, Log};
pub use meter::{Meter, Stats};
pub use seen::{Numbers, Placed, Seen};
pub use senders::{MAX_SENDERS, Senders};

/// Maximum bytes of a message.
pub const MAX_MESSAGE: usize = 16 << 20;
/// A message that has passed this many links between servers goes no further.
pub const MAX_HOPS: u32 = 16;

/// What a subscriber gets from a room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Every message, in order. The room limits the count and the bytes of kept messages; a
    /// subscriber that falls further behind loses the oldest.
    #[default]
    Reliable,
    /// The newest value of each key; older values that were not sent yet are skipped.
    Latest,
    /// Every message in datagrams, immediately or never.
    Datagram,
    /// Messages in datagrams, except those whose age at arrival would exceed this time.
    Deadline(Span),
    /// Every message in the datagrams of a multicast group, immediately or never.
    Multicast,
}

impl Mode {
    /// Whether messages travel in datagrams of a single connection (not of a multicast group).
    pub fn is_datagrams(self) -> bool {
        matches!(self, Mode::Datagram | Mode::Deadline(_))
    }

    /// The deadline, if the mode has one.
    pub fn deadline(self) -> Option<Span> {
        match self {
            Mode::Deadline(deadline) => Some(deadline),
            _ => None,
        }
    }
}

/// A message of a room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Identifies the sender. Different senders number their messages independently.
    pub origin: u64,
    /// Counts the messages of the sender, from 1.
    pub number: u64,
    /// When the application gave the message to the sender, in microseconds of the sender's clock.
    pub at: u64,
    /// The same time as `at`, in microseconds of this host's clock, as far as known.
    pub born: i64,
    /// Number of links between servers that the message has passed.
    pub hops: u32,
    /// The link on which the message arrived; 0 if it came from its sender.
    pub via: u64,
    /// The key whose value the message replaces, for the mode [`Mode::Latest`] and for late
    /// subscribers.
    pub key: Option<Key>,
    /// The content.
    pub bytes: Arc<[u8]>,
}

impl Message {
    /// Whether the message's key is in `keys`. A message without a key is only in [`Prefix::ALL`].
    pub fn is_below(&self, keys: &Prefix) -> bool {
        match &self.key {
            Some(key) => keys.contains(key.as_str()),
            None => *keys == Prefix::ALL,
        }
    }

    /// Approximate bytes of memory.
    pub fn cost(&self) -> usize {
        const OVERHEAD: usize = 160;
        OVERHEAD + self.bytes.len() + self.key.as_ref().map_or(0, |key| key.as_str().len())
    }
}
