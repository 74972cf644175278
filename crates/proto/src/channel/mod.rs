//! Channels: messages with boundaries, from several senders through a room to several subscribers.
//!
//! A room keeps its newest messages in one [`Log`]; a subscriber is a [`Cursor`] into it. So a slow
//! subscriber costs no memory of its own: when the log drops messages that the subscriber has not
//! taken, the subscriber loses them, learns how many, and delays nobody. A subscriber that connects
//! again continues at its position.
//!
//! - [`Mode`]: what a subscriber gets of the log. `reliable`: every message, in order. `latest`:
//!   the newest value of each key. `datagram`: every message, at once or never. `deadline`: as
//!   `datagram`, but no message that is too old.
//! - [`Seen`]: drops messages that come twice, after a lost connection or round a ring of servers.
//! - [`encode`], [`Cutter`], [`Joiner`], [`decode`]: messages as datagrams, with repairs.
//! - [`cover`], [`Judge`]: the code that a deadline needs, and the age of each message.
//! - [`Array`]: an array of numbers as a message.
//! - [`Meter`]: throughput, loss, reordering and jitter, at a subscriber.
//!
//! Large frames at a fixed rate with a deadline are a [`stream`](crate::stream).

mod array;
mod blob;
mod cursor;
mod cutter;
mod deadline;
mod joiner;
mod log;
mod meter;
mod seen;
#[cfg(test)]
mod tests;

use alloc::sync::Arc;

use crate::share::Key;
use crate::time::Span;

pub use array::{Array, ArrayError, Element};
pub use blob::{decode, encode};
pub use cursor::{Cursor, Taken};
pub use cutter::{Code, CodeError, Cutter, Datagram, TooLong};
pub use deadline::{Cover, Departure, Judge, cover};
pub use joiner::{Joined, Joiner};
pub use log::{Limits, Log};
pub use meter::{Meter, Stats};
pub use seen::{Numbers, Placed, Seen};

/// Most bytes of a message.
pub const MAX_MESSAGE: usize = 16 << 20;
/// A message that has passed this many links between servers goes no further.
pub const MAX_HOPS: u32 = 16;

/// What a subscriber gets of a room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Every message, in order. A subscriber that falls behind by more than the room keeps loses
    /// the oldest messages.
    #[default]
    Reliable,
    /// The newest value of each key; older values that were not sent yet are skipped.
    Latest,
    /// Every message in datagrams, at once or never.
    Datagram,
    /// Every message in datagrams, unless it would come later than this after its sender had it.
    Deadline(Span),
}

impl Mode {
    /// Whether messages travel in datagrams.
    pub fn is_datagrams(self) -> bool {
        matches!(self, Mode::Datagram | Mode::Deadline(_))
    }

    /// The deadline, if it has one.
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
    /// Identifies the sender. Numbers of different senders have nothing in common.
    pub origin: u64,
    /// Counts the messages of the sender, from 1.
    pub number: u64,
    /// When the sender had it, in microseconds of a clock of the sender.
    pub at: u64,
    /// The same in microseconds of the clock of this host, as far as it is known.
    pub born: i64,
    /// How many links between servers it has passed.
    pub hops: u32,
    /// The link by which it came; 0 if it came from its sender.
    pub via: u64,
    /// The value that it replaces, for the mode [`Mode::Latest`] and for late subscribers.
    pub key: Option<Key>,
    /// The content.
    pub bytes: Arc<[u8]>,
}

impl Message {
    /// Bytes of memory that it takes, about.
    pub fn cost(&self) -> usize {
        const BESIDE: usize = 160;
        BESIDE + self.bytes.len() + self.key.as_ref().map_or(0, |key| key.as_str().len())
    }
}
