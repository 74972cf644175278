//! The core's wire format: the [`header`] of a datagram and the [`control`] messages.
//!
//! Bytes are parsed once, into an error or a value that is valid by construction. No memory is
//! allocated for a message before its length has been checked.

pub mod control;
pub mod header;
mod messages;

pub use control::{
    Ack, Begun, BufferOk, Burst, Closing, Control, Done, Echo, ErrorRate, Go, Loss, Pulse, Report,
    Request, Resend, Selective, SenderOffer, Sync, Train, WireError,
};
pub use header::{FlowId, Header, Kind, PacketNumber};

/// Maximum length of a control message in bytes; it fits into one sealed datagram on any path.
pub const MAX_CONTROL: usize = 1200;
