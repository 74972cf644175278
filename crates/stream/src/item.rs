//! The items that a receiver of a stream delivers.

use longhaul_proto::time::Span;

use crate::terms::Terms;

/// An item of a stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A sender starts the stream, or replaces another sender.
    Begun(Terms),
    /// A frame.
    Frame(Received),
    /// Frames that are lost, too late, or too fast for the reader.
    Missed {
        /// Number of the first frame.
        first: u32,
        /// Number of the last frame.
        last: u32,
        /// How many of them arrived, but were dropped because the reader was slow.
        unread: u32,
    },
    /// The sender has ended the stream.
    Ended,
}

/// A frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Received {
    /// The frame's number.
    pub number: u32,
    /// The frame's bytes.
    pub bytes: Vec<u8>,
    /// Delay from the sender to the reader: half of the sum of two round-trip times (between sender
    /// and server, and between server and receiver), plus the delay behind the fastest recent
    /// datagram.
    pub delay: Span,
    /// Whether the delay is longer than the deadline.
    pub is_late: bool,
    /// Number of the frame's datagrams that were lost and restored. For frames that were sent
    /// together, the first frame counts the restored datagrams of all of them, the others have 0.
    pub restored: u16,
}
