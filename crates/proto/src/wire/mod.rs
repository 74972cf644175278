//! What the core says on the wire: the header of a data datagram and the control messages.

/// A protocol's control message.
#[derive(Clone, Debug, PartialEq)]
pub enum Control {}
