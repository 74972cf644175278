//! Control messages from one end of a copy to the other: sealed datagrams, and an ordered, reliable
//! stream. As in the real driver, each message of the stream is also sent in a datagram; the
//! receiving end takes each message once. On the stream, a lost packet is sent again after a
//! timeout, and later messages wait for it. A scenario can disable the datagrams, as over TCP.

use std::collections::BTreeMap;

use longhaul_proto::endpoint::{Carrier, Outgoing};
use longhaul_proto::wire::Control;

use super::fabric::{Fabric, Message};
use super::packet::{Body, End, Packet, UDP_IP};
use super::store::Bits;

/// Bytes around a message, from QUIC or the seal.
const AROUND: u32 = 32;

/// One direction between the ends of a copy.
#[derive(Debug, Default)]
pub(super) struct Lane {
    ordered: bool,
    pub(super) sent: u64,
    on_stream: u64,
    /// The next position to deliver from the stream.
    expected: u64,
    /// Later messages that have arrived: position, place in the fabric.
    early: BTreeMap<u64, u32>,
    seen: Bits,
}

impl Lane {
    pub(super) fn new(ordered: bool) -> Lane {
        Lane { ordered, ..Lane::default() }
    }

    pub(super) fn send(&mut self, fabric: &mut Fabric, agent: u32, to: End, outgoing: &Outgoing) {
        let mut bytes = Vec::new();
        outgoing.control.encode(&mut bytes);
        let size = UDP_IP + AROUND + bytes.len() as u32;
        let reliable = self.ordered || outgoing.carrier == Carrier::Reliable;
        let uses = if reliable && !self.ordered { 2 } else { 1 };
        let (number, on_stream) = (self.sent, self.on_stream);
        let message = fabric.messages.put(Message { bytes, number, on_stream, tries: 0, uses });
        self.sent += 1;
        if !self.ordered {
            let body = Body::Control { message, on_stream: false };
            fabric.send(Packet::new(agent, to, size, body));
        }
        if reliable {
            self.on_stream += 1;
            let body = Body::Control { message, on_stream: true };
            fabric.send(Packet::new(agent, to, size, body));
        }
    }

    /// Takes a packet; appends to `out` all messages that can now be delivered.
    pub(super) fn take(
        &mut self,
        fabric: &mut Fabric,
        place: u32,
        on_stream: bool,
        out: &mut Vec<Control>,
    ) {
        let Some(message) = fabric.messages.at_mut(place) else { return };
        if !on_stream {
            self.open(message, out);
            fabric.release(place);
        } else if message.on_stream < self.expected || self.early.contains_key(&message.on_stream) {
            fabric.release(place);
        } else {
            self.early.insert(message.on_stream, place);
        }
        while let Some(place) = self.early.remove(&self.expected) {
            self.expected += 1;
            if let Some(message) = fabric.messages.at_mut(place) {
                self.open(message, out);
            }
            fabric.release(place);
        }
    }

    fn open(&mut self, message: &Message, out: &mut Vec<Control>) {
        if self.seen.insert(message.number) {
            out.push(Control::decode(&message.bytes).expect("what the other end encoded"));
        }
    }
}
