//! UDP without retransmission: at a constant rate, or on and off.

use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::{Bytes, Rate};

use super::What;
use super::fabric::Fabric;
use super::packet::{Body, End, Packet, UDP_IP};
use crate::random::Random;
use crate::scenario::Udp;

#[derive(Debug)]
pub(super) struct Plain {
    agent: u32,
    pub(super) flow: usize,
    udp: Udp,
    pub(super) payload: u32,
    /// Datagrams left to send, if limited.
    left: Option<u64>,
    /// When the next silent phase begins.
    silent_at: Time,
    random: Random,
    pub(super) sent: u64,
    pub(super) received: u64,
    pub(super) corrupted: u64,
    pub(super) last: Option<Time>,
    stopped: bool,
}

impl Plain {
    pub(super) fn new(
        places: (u32, usize),
        udp: Udp,
        payload: u32,
        size: Option<Bytes>,
        random: Random,
    ) -> Plain {
        let (agent, flow) = places;
        Plain {
            agent,
            flow,
            udp,
            payload,
            left: size.map(|size| size.get().div_ceil(u64::from(payload))),
            silent_at: Time::NEVER,
            random,
            sent: 0,
            received: 0,
            corrupted: 0,
            last: None,
            stopped: false,
        }
    }

    pub(super) fn stop(&mut self) {
        self.stopped = true;
    }

    pub(super) fn is_sent(&self) -> bool {
        self.left == Some(0)
    }

    /// The rate of payload outside silent phases.
    pub(super) fn rate(&self) -> Rate {
        self.udp.rate
    }

    pub(super) fn begin(&mut self, fabric: &mut Fabric) {
        if let Some((on, _)) = self.udp.bursts {
            self.silent_at = fabric.now + self.length(on);
        }
        self.on_wake(fabric);
    }

    pub(super) fn on_wake(&mut self, fabric: &mut Fabric) {
        if self.stopped || self.is_sent() {
            return;
        }
        self.left = self.left.map(|left| left - 1);
        self.sent += 1;
        let bytes = self.payload + UDP_IP;
        fabric.send(Packet::new(self.agent, End::Receiver, bytes, Body::Plain));
        let mut next = fabric.now + Bytes::new(self.payload.into()) / self.udp.rate;
        if let Some((on, off)) = self.udp.bursts
            && next >= self.silent_at
        {
            next = next.max(self.silent_at + self.length(off));
            self.silent_at = next + self.length(on);
        }
        fabric.calendar.add(next, What::Wake(self.agent));
    }

    pub(super) fn arrive(&mut self, now: Time, corrupted: bool) {
        if corrupted {
            self.corrupted += 1;
        } else {
            self.received += 1;
            self.last = Some(now);
        }
    }

    /// A phase's length: `mean` or, if the flow's phases are random, exponentially distributed with
    /// this mean.
    fn length(&mut self, mean: Span) -> Span {
        if self.udp.random { self.random.exponential(mean) } else { mean }
    }
}
