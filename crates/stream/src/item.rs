//! What comes of a stream.

use longhaul_proto::time::Span;

use crate::terms::Terms;

/// What comes of a stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A sender begins, or another one.
    Begun(Terms),
    /// A frame.
    Frame(Received),
    /// Frames that do not come.
    Missed {
        /// The first.
        first: u32,
        /// The last.
        last: u32,
        /// So many of them came, but the reader was too slow.
        unread: u32,
    },
    /// The sender has ended the stream.
    Ended,
}

/// A frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Received {
    /// Its number.
    pub number: u32,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// From the sender to here: half of the round-trip times, and how much longer it took than the
    /// fastest datagram lately.
    pub delay: Span,
    /// It took longer than the deadline.
    pub is_late: bool,
    /// Datagrams of it that were lost and restored.
    pub restored: u16,
}
