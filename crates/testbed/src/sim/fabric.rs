//! The network: packets on links, from one end of a route to the other.
//!
//! A link almost always delivers its packets in order. So for each link, only the packet that
//! arrives next is in the calendar (the queue of future events). A packet that overtakes others has
//! its own entry. The order of arrivals is the same as if each packet had an entry. An *agent* is
//! one copy, TCP connection or UDP stream, with both its ends.

use std::collections::VecDeque;

use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::Bytes;

use super::What;
use super::calendar::{Calendar, Due};
use super::packet::{Body, End, Packet};
use super::store::Store;
use crate::link::{Fate, Link, LinkSpec};

#[derive(Debug)]
pub(super) struct Wire {
    pub(super) link: Link,
    /// Packets on the link, in the order of their arrival.
    flying: VecDeque<(Due, Packet)>,
    /// The longest queue in front of the link so far.
    pub(super) queue_max: Bytes,
    /// Packets that left the link, duplicates included.
    pub(super) delivered: u64,
    /// Number of further packets on the link: those that overtook others, and so have their own
    /// calendar entries.
    loose: u64,
    /// Whether the first packet of `flying` is in the calendar, or packets are being taken out.
    active: bool,
}

/// Counts of an agent's data packets on links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fares {
    /// Packets offered to the route's first link.
    pub(super) sent: u64,
    /// Duplicates that a link made.
    pub(super) copied: u64,
    /// Packets that a link lost, for any reason.
    pub(super) dropped: u64,
    /// Those of `dropped` that a full queue or CoDel dropped.
    pub(super) queue_full: u64,
}

/// A control message.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) bytes: Vec<u8>,
    /// Number of the message among all messages of its sender, on the stream and in datagrams.
    pub(super) number: u64,
    /// Number of the message on the stream, if it is sent on the stream.
    pub(super) on_stream: u64,
    /// How often the stream has repeated the message.
    pub(super) tries: u32,
    /// References to the message: one for each of its packets.
    pub(super) uses: u32,
}

/// An agent's routes in `Fabric::hops`: index of the first link, and number of links.
#[derive(Clone, Copy, Debug)]
struct Ways {
    there: (u32, u32),
    back: (u32, u32),
}

/// Links, routes, the calendar, and the disks' reads.
#[derive(Debug)]
pub(super) struct Fabric {
    pub(super) now: Time,
    pub(super) calendar: Calendar<What>,
    pub(super) wires: Vec<Wire>,
    /// The links of all routes.
    hops: Vec<u32>,
    ways: Vec<Ways>,
    loose: Store<(u32, Packet)>,
    pub(super) messages: Store<Message>,
    pub(super) fares: Vec<Fares>,
    pub(super) offered: u64,
    /// By host: until when its disk is busy reading.
    pub(super) reading: Vec<Time>,
}

impl Fabric {
    pub(super) fn new(hosts: usize) -> Fabric {
        Fabric {
            now: Time::ZERO,
            calendar: Calendar::new(),
            wires: Vec::new(),
            hops: Vec::new(),
            ways: Vec::new(),
            loose: Store::new(),
            messages: Store::new(),
            fares: Vec::new(),
            offered: 0,
            reading: vec![Time::ZERO; hosts],
        }
    }

    pub(super) fn add_link(&mut self, spec: LinkSpec, seed: u64) -> u32 {
        self.wires.push(Wire {
            link: Link::new(spec, seed),
            flying: VecDeque::new(),
            queue_max: Bytes::ZERO,
            delivered: 0,
            loose: 0,
            active: false,
        });
        (self.wires.len() - 1) as u32
    }

    /// Stores a route; returns its place in `hops`, and its length.
    pub(super) fn add_route(&mut self, links: &[u32]) -> (u32, u32) {
        let start = self.hops.len() as u32;
        self.hops.extend_from_slice(links);
        (start, links.len() as u32)
    }

    pub(super) fn add_agent(&mut self, there: (u32, u32), back: (u32, u32)) -> u32 {
        self.ways.push(Ways { there, back });
        self.fares.push(Fares::default());
        (self.ways.len() - 1) as u32
    }

    fn way(&self, agent: u32, to: End) -> &[u32] {
        let ways = &self.ways[agent as usize];
        self.links_of(match to {
            End::Receiver => ways.there,
            End::Sender => ways.back,
        })
    }

    /// The sum of the delays of an agent's links, there and back.
    pub(super) fn round_trip(&self, agent: u32) -> Span {
        let ways = [End::Receiver, End::Sender].map(|to| self.way(agent, to));
        let links = ways.into_iter().flatten();
        let spec = |link: &u32| self.wires[*link as usize].link.spec();
        links.fold(Span::ZERO, |sum, link| sum + spec(link).delay)
    }

    pub(super) fn send(&mut self, packet: Packet) {
        if packet.is_load() {
            self.fares[packet.agent as usize].sent += 1;
        }
        let first = self.way(packet.agent, packet.to).first().copied();
        let first = first.expect("no flow goes from a host to itself");
        self.offer(first, packet);
    }

    fn offer(&mut self, index: u32, mut packet: Packet) {
        self.offered += 1;
        let wire = &mut self.wires[index as usize];
        let fate = wire.link.offer(self.now, packet.bytes);
        let backlog = wire.link.backlog(self.now);
        wire.queue_max = wire.queue_max.max(backlog);
        let Fate::Arrives(passage) = fate else {
            self.drop(packet, fate.is_queue());
            return;
        };
        packet.hop += 1;
        packet.corrupted |= passage.turned_bit.is_some();
        self.fly(index, passage.at, packet);
        if passage.twice {
            if packet.is_load() {
                self.fares[packet.agent as usize].copied += 1;
            }
            if let Body::Control { message, .. } = packet.body
                && let Some(message) = self.messages.at_mut(message)
            {
                message.uses += 1;
            }
            self.fly(index, passage.at, packet);
        }
    }

    fn fly(&mut self, index: u32, at: Time, packet: Packet) {
        let due = self.calendar.due(at);
        let wire = &mut self.wires[index as usize];
        match wire.flying.back() {
            Some((last, _)) if *last > due => {
                wire.loose += 1;
                let place = self.loose.put((index, packet));
                self.calendar.add_due(due, What::Loose(place));
            }
            _ => {
                if !core::mem::replace(&mut wire.active, true) {
                    self.calendar.add_due(due, What::Wire(index));
                }
                wire.flying.push_back((due, packet));
            }
        }
    }

    fn drop(&mut self, packet: Packet, queue_full: bool) {
        if packet.is_load() {
            let fares = &mut self.fares[packet.agent as usize];
            fares.dropped += 1;
            fares.queue_full += u64::from(queue_full);
        }
        match packet.body {
            // A timeout detects the loss later.
            Body::Control { message, on_stream: true } => self.late(packet, message),
            Body::Control { message, on_stream: false } => self.release(message),
            Body::Block { .. } | Body::Tcp(_) | Body::Plain => {}
        }
    }

    /// Sends a lost packet of the stream again after a probe timeout (RFC 9002, section 6.2), which
    /// doubles up to a limit.
    pub(super) fn late(&mut self, packet: Packet, place: u32) {
        let round_trip = self.round_trip(packet.agent);
        let Some(message) = self.messages.at_mut(place) else { return };
        let wait = (round_trip * 3 / 2 + MAX_ACK_DELAY) * (1 << message.tries.min(6));
        message.tries += 1;
        let at = self.now + wait.min(MAX_PROBE.max(round_trip * 3));
        let Packet { agent, to, bytes, .. } = packet;
        self.calendar.add(at, What::Again { agent, to, bytes, message: place });
    }

    /// Drops one reference to a message.
    pub(super) fn release(&mut self, place: u32) {
        if let Some(message) = self.messages.at_mut(place) {
            message.uses -= 1;
            if message.uses == 0 {
                self.messages.take(place);
            }
        }
    }

    /// Takes the first packet of `flying` from a link. Call this when the packet arrives.
    pub(super) fn take_first(&mut self, index: u32) -> Option<Packet> {
        let wire = &mut self.wires[index as usize];
        let (_, packet) = wire.flying.pop_front()?;
        wire.delivered += 1;
        Some(packet)
    }

    pub(super) fn rest(&mut self, index: u32) {
        self.wires[index as usize].active = false;
    }

    pub(super) fn links_of(&self, (start, len): (u32, u32)) -> &[u32] {
        &self.hops[start as usize..(start + len) as usize]
    }

    pub(super) fn next_on(&self, index: u32) -> Option<Due> {
        self.wires[index as usize].flying.front().map(|(due, _)| *due)
    }

    pub(super) fn take_loose(&mut self, place: u32) -> Option<Packet> {
        let (index, packet) = self.loose.take(place)?;
        let wire = &mut self.wires[index as usize];
        wire.delivered += 1;
        wire.loose -= 1;
        Some(packet)
    }

    /// Moves a packet to the next link, or returns it at the end of its route.
    pub(super) fn forward(&mut self, packet: Packet) -> Option<Packet> {
        match self.way(packet.agent, packet.to).get(usize::from(packet.hop)) {
            Some(next) => {
                let next = *next;
                self.offer(next, packet);
                None
            }
            None => Some(packet),
        }
    }

    /// Returns the number of data packets on links, for each agent.
    pub(super) fn under_way(&self) -> Vec<u64> {
        let mut counts = vec![0; self.ways.len()];
        let flying = self.wires.iter().flat_map(|wire| wire.flying.iter().map(|(_, p)| p));
        let loose = self.loose.iter().map(|(_, packet)| packet);
        for packet in flying.chain(loose).filter(|packet| packet.is_load()) {
            counts[packet.agent as usize] += 1;
        }
        counts
    }

    /// Returns the first link whose counters do not agree with its packets.
    pub(super) fn leak(&self) -> Option<usize> {
        self.wires.iter().position(|wire| {
            let tally = wire.link.tally();
            let on_it = wire.flying.len() as u64 + wire.loose;
            tally.offered != tally.arrives + tally.dropped()
                || tally.arrives + tally.duplicates != wire.delivered + on_it
        })
    }
}

/// A QUIC peer's longest acknowledgement delay (RFC 9000, section 18.2).
const MAX_ACK_DELAY: Span = Span::from_millis(25);
/// Limit of the probe timeout, unless three round trips are longer.
const MAX_PROBE: Span = Span::from_secs(4);
