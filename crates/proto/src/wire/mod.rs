//! What the core says on the wire: the [`header`] of a data datagram and the [`control`] messages.
//!
//! Two levels: bytes are looked at once and become a value that is valid by construction, or an
//! error. Nothing is allocated before its length is known to be sane.

pub mod control;
pub mod header;
mod messages;

pub use control::{
    Ack, Begun, BufferOk, Burst, Closing, Control, Done, Echo, ErrorRate, Go, Loss, Pulse, Report,
    Request, Resend, Selective, SenderOffer, Sync, Train, WireError,
};
pub use header::{FlowId, Header, Kind, PacketNumber};

/// The longest control message that is ever made, in bytes: it fits one sealed datagram on any
/// path.
pub const MAX_CONTROL: usize = 1200;
