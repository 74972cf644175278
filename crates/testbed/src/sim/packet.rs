//! Packets on links: small values without heap memory.

use longhaul_proto::endpoint::PacketNumber;
use longhaul_proto::layout::Block;

pub(super) use crate::link::UDP_IP;
use crate::tcp;

/// One end of an agent (a copy, a TCP connection or a stream of UDP).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Sender,
    Receiver,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    pub(super) agent: u32,
    pub(super) to: End,
    /// Whether a bit was flipped: the receiving end discards the packet.
    pub(super) corrupted: bool,
    /// Number of links of the route that the packet has passed.
    pub(super) hop: u16,
    /// The size as an IP packet, in bytes.
    pub(super) bytes: u32,
    pub(super) body: Body,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Body {
    /// A block of a copy.
    Block { number: PacketNumber, block: Block },
    /// A control message of a copy: its index in `Fabric::messages`.
    Control { message: u32, on_stream: bool },
    /// A segment of TCP.
    Tcp(tcp::Segment),
    /// UDP without retransmission.
    Plain,
}

impl Packet {
    pub(super) fn new(agent: u32, to: End, bytes: u32, body: Body) -> Packet {
        Packet { agent, to, corrupted: false, hop: 0, bytes, body }
    }

    /// Whether the packet carries data.
    pub(super) fn is_load(&self) -> bool {
        match self.body {
            Body::Block { .. } | Body::Plain => true,
            Body::Control { .. } => false,
            Body::Tcp(segment) => matches!(segment, tcp::Segment::Data(_)),
        }
    }
}
