//! A TCP connection between two hosts of the simulator.

use longhaul_proto::time::Time;
use longhaul_proto::units::{Bytes, Rate};

use super::What;
use super::copy::Stall;
use super::fabric::Fabric;
use super::packet::{Body, End, Packet};
use crate::scenario::Tcp;
use crate::tcp::{HEADERS, Receiver, Segment, Sender};

#[derive(Debug)]
pub(super) struct Connection {
    agent: u32,
    pub(super) flow: usize,
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    mss: u32,
    /// Bytes to send; `None` for an endless connection.
    size: Option<Bytes>,
    /// Next wake-ups of sender and receiver.
    wakes: [Time; 2],
    pub(super) began: Time,
    pub(super) stall: Stall,
    /// When all bytes had arrived.
    pub(super) whole: Option<Time>,
    /// When the sender knew that all bytes had arrived.
    pub(super) known: Option<Time>,
    pub(super) corrupted: u64,
    stopped: bool,
}

/// The payload of a full segment in packets of `mtu` bytes.
pub(super) fn mss(mtu: u16) -> u32 {
    u32::from(mtu).saturating_sub(HEADERS).max(1)
}

impl Connection {
    /// Opens a connection for `size` bytes, or without end.
    pub(super) fn new(
        now: Time,
        tcp: &Tcp,
        places: (u32, usize),
        mss: u32,
        size: Option<Bytes>,
    ) -> Connection {
        let total = size.map(|size| size.get().div_ceil(u64::from(mss)));
        let total = total.map(|total| u32::try_from(total).unwrap_or(u32::MAX));
        let (agent, flow) = places;
        Connection {
            agent,
            flow,
            sender: Sender::new(now, tcp, mss, total),
            receiver: Receiver::new(),
            mss,
            size,
            wakes: [Time::NEVER; 2],
            began: now,
            stall: Stall::new(now),
            whole: None,
            known: None,
            corrupted: 0,
            stopped: false,
        }
    }

    /// Bytes that have arrived in order.
    pub(super) fn delivered(&self) -> Bytes {
        let bytes = Bytes::new(u64::from(self.receiver.next()) * u64::from(self.mss));
        self.size.map_or(bytes, |size| bytes.min(size))
    }

    /// Bytes that have arrived, repeats included; each segment counts as a full one.
    pub(super) fn received(&self) -> Bytes {
        Bytes::new(self.receiver.counts().received * u64::from(self.mss))
    }

    /// The window divided by the round-trip time.
    pub(super) fn rate(&self) -> Rate {
        let window = u64::from(self.sender.window()) * u64::from(self.mss);
        Bytes::new(window) / self.sender.rtt()
    }

    pub(super) fn stop(&mut self) {
        self.stopped = true;
    }

    pub(super) fn arrive(&mut self, fabric: &mut Fabric, packet: &Packet, segment: Segment) {
        let now = fabric.now;
        if packet.corrupted {
            self.corrupted += u64::from(packet.is_load());
            return;
        }
        match segment {
            Segment::Syn => self.send(fabric, End::Sender, Segment::SynAck),
            Segment::Data(data) => {
                let before = self.receiver.counts().distinct;
                self.receiver.on_data(now, &data);
                if self.receiver.counts().distinct > before {
                    self.stall.end(now);
                }
                let whole = self.size.is_some_and(|size| self.delivered() == size);
                if whole && self.whole.is_none() {
                    self.whole = Some(now);
                }
                self.answer(fabric);
            }
            Segment::SynAck => {
                self.sender.on_syn_ack(now);
                self.pump(fabric);
            }
            Segment::Ack(ack) => {
                self.sender.on_ack(now, &ack);
                self.pump(fabric);
            }
        }
    }

    pub(super) fn on_wake(&mut self, fabric: &mut Fabric, end: End) {
        let wake = &mut self.wakes[end as usize];
        if *wake != fabric.now {
            return;
        }
        *wake = Time::NEVER;
        match end {
            End::Sender => self.pump(fabric),
            End::Receiver => self.answer(fabric),
        }
    }

    pub(super) fn pump(&mut self, fabric: &mut Fabric) {
        if self.stopped || self.known.is_some() {
            return;
        }
        if self.sender.is_done() {
            self.known = Some(fabric.now);
            return;
        }
        while let Some(segment) = self.sender.poll(fabric.now) {
            self.send(fabric, End::Receiver, segment);
        }
        self.wake_at(fabric, End::Sender, self.sender.next_timeout());
    }

    fn answer(&mut self, fabric: &mut Fabric) {
        while let Some(ack) = self.receiver.poll(fabric.now) {
            self.send(fabric, End::Sender, Segment::Ack(ack));
        }
        self.wake_at(fabric, End::Receiver, self.receiver.next_timeout());
    }

    fn send(&self, fabric: &mut Fabric, to: End, segment: Segment) {
        let bytes = segment.bytes(self.mss);
        fabric.send(Packet::new(self.agent, to, bytes, Body::Tcp(segment)));
    }

    fn wake_at(&mut self, fabric: &mut Fabric, end: End, at: Option<Time>) {
        let Some(at) = at.map(|at| at.max(fabric.now)) else { return };
        let wake = &mut self.wakes[end as usize];
        // If an earlier wake-up is pending, it will set this one.
        if at < *wake {
            *wake = at;
            fabric.calendar.add(at, What::Timer { agent: self.agent, end });
        }
    }
}
