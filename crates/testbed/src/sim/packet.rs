//! What is on the links: small values, nothing of the heap.

use longhaul_proto::endpoint::PacketNumber;
use longhaul_proto::layout::Block;

pub(super) use crate::link::UDP_IP;
use crate::tcp;

/// One end of an agent: a copy, a connection, a stream of UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Sender,
    Receiver,
}

/// A packet on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    /// Whose it is.
    pub(super) agent: u32,
    /// To which of the agent's ends it goes.
    pub(super) to: End,
    /// A bit was turned on the way: whoever gets it will not take it.
    pub(super) corrupted: bool,
    /// How many links of its route it has passed.
    pub(super) hop: u16,
    /// Its size as an IP packet.
    pub(super) bytes: u32,
    pub(super) body: Body,
}

/// What a packet carries.
#[derive(Clone, Copy, Debug)]
pub(super) enum Body {
    /// A block of a copy.
    Block { number: PacketNumber, block: Block },
    /// A control message of a copy, by the place of its bytes; on the stream, or ahead of it.
    Control { message: u32, on_stream: bool },
    /// TCP's.
    Tcp(tcp::Segment),
    /// UDP that nobody repairs.
    Plain,
}

impl Packet {
    pub(super) fn new(agent: u32, to: End, bytes: u32, body: Body) -> Packet {
        Packet { agent, to, corrupted: false, hop: 0, bytes, body }
    }

    /// Whether it is one of those that the accounting speaks of.
    pub(super) fn is_load(&self) -> bool {
        match self.body {
            Body::Block { .. } | Body::Plain => true,
            Body::Control { .. } => false,
            Body::Tcp(segment) => matches!(segment, tcp::Segment::Data(_)),
        }
    }
}
