//! NETBLT: Clark, Lambert, Zhang, "NETBLT: A Bulk Data Transfer Protocol", RFC 998 (1987).
//!
//! The object goes as a row of buffers. The receiver says GO for as many as it has room for at a
//! time; the sender sends each whole, in bursts of an agreed size at an agreed interval. For each
//! buffer the receiver sets a data timer. When it expires, or the buffer's last packet has come,
//! the receiver answers with OK, or with RESEND and the list of what is missing. Only what is on
//! the list goes again. Several buffers are under way at a time, so that the path is not idle
//! while one is checked. The rate is agreed anew with each buffer: the OK offers a burst size and
//! interval, and the slower of that and the sender's own rules the next, in bursts of the smaller
//! size.
//!
//! Where we differ, and why:
//! - Control messages of the RFC are sequenced and acknowledged packets of its own; ours go on the
//!   session's reliable stream, so that they need no timer. Its GO is per buffer; ours is a count
//!   of all that may be sent, and says the same if it comes twice.
//! - The RFC marks a buffer's last packet. Here the receiver knows which block that is, or which is
//!   the last of its list. A packet that was overtaken is not lost: RESEND waits for a grace of
//!   max(RTT/4, 1 ms).
//! - The RFC opens a connection to agree on sizes; here both ends are told them. The sender's side
//!   of the agreement is said with the first packet of a buffer, and sets the data timer; as long
//!   as data come the timer does not expire.
//! - A sender that has no grant, or is slow, would be asked for what it has not sent, or what is on
//!   its way. RESEND carries the highest packet number that had come: of the list only what was
//!   sent before that goes again. Anything else will be asked for again.
//! - Buffers never straddle our segments.
//!
//! Files by decision: `buffers` cuts the object, `sender` and `sending` (one buffer) send it,
//! `receiver` drives, `incoming` (one buffer) has the data timer.

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

/// What the two ends of RFC 998 agree on when they open a connection.
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
    "buffers that may be under way at a time",
    (1.0, 1e6),
    // Buffers of our segments' 16 MiB: a second of 1 Gbit/s, ten round trips of a long path.
    8.0,
);

/// "Burst size" in RFC 998's OPEN.
pub const BURST: ProtocolOption = ProtocolOption::new(
    Kind::Count,
    "burst",
    "datagrams of a burst (0: what the rate sends in a millisecond, at most 88 \
           and 128 KiB); the receiver offers it as the most that it takes at once",
    (0.0, 4096.0),
    0.0,
);

/// NETBLT in the registry.
pub const ROW: Row = Row {
    name: "netblt",
    title: "NETBLT",
    paper: "Clark, Lambert, Zhang, NETBLT: A Bulk Data Transfer Protocol, RFC 998 (1987)",
    summary: "Sends the object buffer by buffer, a few of them at a time, in bursts of an agreed \
              size and interval. The receiver drives: it says which buffers may come, times each, \
              and asks for exactly what is missing of it. The rate is agreed with each buffer and \
              does not react to loss; the first of the protocols that separate the rate from what \
              is acknowledged.",
    experiments: &[],
    frugal: true,
    many: false,
    options: &[BUFFER, BUFFERS, BURST],
    sender: |setup| Box::new(NetbltSender::new(setup)),
    receiver: || Box::new(NetbltReceiver::default()),
};
