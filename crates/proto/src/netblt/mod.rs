//! NETBLT: Clark, Lambert, Zhang, "NETBLT: A Bulk Data Transfer Protocol", RFC 998 (1987).
//!
//! The object is sent as a sequence of buffers. With GO the receiver allows further buffers, so
//! that a set number of them is in flight. The sender sends each buffer completely, in bursts of an
//! agreed size at an agreed interval. The receiver sets a data timer for each buffer. When the
//! timer expires or the buffer's last packet arrives, the receiver answers with OK, or with RESEND
//! and the list of missing blocks. Only listed blocks are resent. The rate is agreed again with
//! each buffer: OK offers a burst size and an interval. Of the receiver's offer and the sender's
//! own values, the lower rate and the smaller burst size then apply.
//!
//! Differences from the RFC, and why:
//! - The RFC's control messages are sequenced and acknowledged packets. Here they use the session's
//!   reliable stream and need no timer. The RFC's GO is per buffer; here it is the total number of
//!   buffers allowed, so a repetition changes nothing.
//! - The RFC marks a buffer's last packet. Here the receiver knows which block is the last of a
//!   buffer or of a RESEND's list. An overtaken packet is not lost: RESEND waits for a grace of
//!   max(RTT/4, 1 ms).
//! - The RFC opens a connection to agree on sizes; here sender and receiver get them at the start.
//!   The sender reports its rate with the first packet of a buffer, and the receiver sets the data
//!   timer from this rate. The timer does not expire while data arrive.
//! - A sender that is slow, or may not send more bytes, would get requests for blocks that are
//!   unsent or in flight. RESEND therefore carries the highest packet number that had arrived. The
//!   sender resends only listed blocks that it sent before that number, or more than a timeout ago.
//! - A buffer lies within one segment (a part of the object, 16 MiB by default).
//!
//! Source files: `buffers` divides the object. `sender` sends all buffers; `sending` has the state
//! of one buffer. `receiver` allows buffers (GO) and answers with OK or RESEND. `incoming` has the
//! data timer and the missing blocks of one buffer.

mod buffers;
mod incoming;
mod receiver;
mod sender;
mod sending;
#[cfg(test)]
mod tests;

pub use receiver::NetbltReceiver;
pub use sender::NetbltSender;

use alloc::boxed::Box;

use crate::kind::Kind;
use crate::row::Row;
use crate::settings::ProtocolOption;

/// "Buffer size", which the ends of RFC 998 negotiate when they open a connection.
pub const BUFFER: ProtocolOption = ProtocolOption::new(
    Kind::Count,
    "buffer",
    "blocks of a buffer, at most a segment's (0: an eighth of the object, at least 64)",
    (0.0, 4_294_967_295.0),
    0.0,
);

/// "Maximum number of outstanding buffers" in RFC 998's OPEN.
pub(crate) const BUFFERS: ProtocolOption = ProtocolOption::new(
    Kind::Count,
    "buffers",
    "buffers in flight at a time",
    (1.0, 1e6),
    // A buffer is at most a segment (16 MiB by default). Eight of that size hold a second of data
    // at 1 Gbit/s: ten round trips of 100 ms.
    8.0,
);

/// "Burst size" in RFC 998's OPEN.
pub const BURST: ProtocolOption = ProtocolOption::new(
    Kind::Count,
    "burst",
    "datagrams of a burst (0: what the rate sends in 1 ms, up to 128 KiB, or in 0.25 ms if that is \
     more; at most 88 datagrams); the receiver offers the same number as its limit (0: no limit)",
    (0.0, 4096.0),
    0.0,
);

/// NETBLT in the registry.
pub const ROW: Row = Row {
    name: "netblt",
    title: "NETBLT",
    paper: "Clark, Lambert, Zhang, NETBLT: A Bulk Data Transfer Protocol, RFC 998 (1987)",
    summary: "Sends the object buffer by buffer, a few buffers at a time, in bursts of an agreed \
              size and interval. The receiver decides which buffers may be sent, has a timer for \
              each, and requests exactly its missing blocks. The ends agree on the rate with each \
              buffer, and loss does not change it. NETBLT was the first protocol to separate the \
              rate from the acknowledgements.",
    experiments: &[],
    frugal: true,
    many: false,
    options: &[BUFFER, BUFFERS, BURST],
    sender: |setup| Box::new(NetbltSender::new(setup)),
    receiver: || Box::new(NetbltReceiver::default()),
};
