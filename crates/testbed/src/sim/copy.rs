//! A copy: its sending program, its sending core (protocol state machine), and the state of its
//! receiving program.

use longhaul_proto::accounting::{ReceiverAccounting, SenderAccounting};
use longhaul_proto::coded::payload_len;
use longhaul_proto::endpoint::{BoxedSender, Event, PacketNumber, Setup, Wake};
use longhaul_proto::layout::Block;
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::{Bytes, Rate};
use longhaul_proto::wire::Control;

use super::What;
use super::fabric::Fabric;
use super::lane::Lane;
use super::memory::Holding;
use super::packet::{Body, End, Packet, UDP_IP};
use super::store::Bits;
use crate::scenario::{Disk, Pace};

/// Maximum number of datagrams per poll: one segmented send.
const BATCH: usize = 44;
/// A slow program polls only for what it can send in this time.
const TURN: Span = Span::from_micros(250);
/// A core with more polls in one instant of virtual time is stuck.
pub(super) const MAX_POLLS: u32 = 10_000;

#[derive(Clone, Copy, Debug)]
pub(super) struct SendingHost {
    pub(super) pace: Pace,
    /// The host, and the disk with the object.
    pub(super) disk: Option<(usize, Disk)>,
    /// The link that models the host's card.
    pub(super) card: Option<u32>,
    /// Maximum bytes in the card's queue before the program must wait.
    pub(super) buffer: Bytes,
}

/// The longest time without a new block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stall {
    last: Time,
    pub(super) longest: Span,
}

impl Stall {
    pub(super) fn new(began: Time) -> Stall {
        Stall { last: began, longest: Span::ZERO }
    }

    /// Ends the stall: a new block has arrived.
    pub(super) fn end(&mut self, now: Time) {
        self.longest = self.longest.max(now.since(self.last));
        self.last = now;
    }
}

/// A program that reads in order, from a bounded buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct InOrder {
    /// The buffer's size in blocks.
    pub(super) room: u64,
    /// The program's first missing block.
    pub(super) next: u64,
}

pub(super) struct CopyAgent {
    /// The copy's index among the agents.
    pub(super) agent: u32,
    pub(super) flow: usize,
    pub(super) host: usize,
    pub(super) receiver: usize,
    pub(super) setup: Setup,
    pub(super) sender: BoxedSender,
    sending: SendingHost,
    next: u64,
    /// Until when the sending program is busy.
    busy: Time,
    /// When the last datagram leaves the card.
    leaves: Time,
    /// When the sender is next woken.
    wake: Time,
    polls: (Time, u32),
    pub(super) to_receiver: Lane,
    pub(super) to_sender: Lane,
    pub(super) numbers: Bits,
    pub(super) blocks: Bits,
    pub(super) delivered: Bytes,
    /// The program's in-order buffer, if any.
    pub(super) in_order: Option<InOrder>,
    pub(super) stall: Stall,
    /// Bytes on the disk, if there is one.
    pub(super) written: Option<Bytes>,
    /// The copy's share of limited memory.
    pub(super) holding: Option<Holding>,
    pub(super) replayed: u64,
    pub(super) corrupted: u64,
    pub(super) socket_lost: u64,
    /// Datagrams that arrived after the receiver had forgotten the flow.
    pub(super) late: u64,
    /// When the object was complete at the receiving host.
    pub(super) whole: Option<Time>,
    /// When the object was complete on the disk.
    pub(super) stored: Option<Time>,
    /// When the sender knew that the object was complete.
    pub(super) known: Option<Time>,
    /// The counters of the receiver when the flow ended.
    pub(super) closed: Option<ReceiverAccounting>,
    stopped: bool,
}

impl CopyAgent {
    pub(super) fn new(
        setup: Setup,
        sender: BoxedSender,
        sending: SendingHost,
        places: (u32, usize, usize, usize),
        writes: bool,
        began: Time,
    ) -> CopyAgent {
        let (agent, flow, host, receiver) = places;
        CopyAgent {
            agent,
            flow,
            host,
            receiver,
            setup,
            sender,
            sending,
            next: 0,
            busy: Time::ZERO,
            leaves: Time::ZERO,
            wake: Time::NEVER,
            polls: (Time::ZERO, 0),
            to_receiver: Lane::default(),
            to_sender: Lane::default(),
            numbers: Bits::default(),
            blocks: Bits::default(),
            delivered: Bytes::ZERO,
            in_order: None,
            stall: Stall::new(began),
            written: writes.then_some(Bytes::ZERO),
            holding: None,
            replayed: 0,
            corrupted: 0,
            socket_lost: 0,
            late: 0,
            whole: None,
            stored: None,
            known: None,
            closed: None,
            stopped: false,
        }
    }

    pub(super) fn stop(&mut self) {
        self.stopped = true;
    }

    /// When the object was complete (on the disk, for a copy to a disk).
    pub(super) fn finished(&self) -> Option<Time> {
        if self.written.is_some() { self.stored } else { self.whole }
    }

    /// Handles the sender's wake-up, unless an earlier one has replaced it.
    pub(super) fn on_wake(
        &mut self,
        fabric: &mut Fabric,
        blocks: &mut Vec<Block>,
    ) -> Result<(), String> {
        if fabric.now != self.wake {
            return Ok(());
        }
        self.wake = Time::NEVER;
        let now = fabric.now;
        self.polls = if self.polls.0 == now { (now, self.polls.1 + 1) } else { (now, 0) };
        if self.polls.1 > MAX_POLLS {
            return Err(format!("its sender was woken {MAX_POLLS} times in one instant"));
        }
        if due(self.sender.next_wakeup(), fabric.now) {
            self.sender.on_timeout(fabric.now);
        }
        self.pump(fabric, blocks)
    }

    pub(super) fn on_controls(
        &mut self,
        fabric: &mut Fabric,
        controls: &mut Vec<Control>,
        blocks: &mut Vec<Block>,
    ) -> Result<(), String> {
        for control in controls.drain(..) {
            self.sender.on_control(fabric.now, self.setup.flow, &control);
        }
        self.pump(fabric, blocks)
    }

    pub(super) fn pump(
        &mut self,
        fabric: &mut Fabric,
        blocks: &mut Vec<Block>,
    ) -> Result<(), String> {
        let now = fabric.now;
        if self.stopped {
            return Ok(());
        }
        let free = self.transmit(fabric, blocks)?;
        while let Some(outgoing) = self.sender.poll_control(now) {
            self.to_receiver.send(fabric, self.agent, End::Receiver, &outgoing);
        }
        while let Some(event) = self.sender.poll_event() {
            if event == Event::Finished {
                self.known = Some(now);
            }
        }
        let wake = self.sender.next_wakeup();
        if self.known.is_some() != self.sender.is_finished() {
            return Err("its sender's state and its report of the end disagree".into());
        }
        match wake {
            Wake::OnInput => {}
            _ if self.known.is_some() => {
                return Err(format!("its sender has finished, but wants to be woken: {wake:?}"));
            }
            Wake::Now => self.wake_at(fabric, now.max(free)),
            Wake::At(at, _) => self.wake_at(fabric, at.max(now).max(free)),
        }
        Ok(())
    }

    fn wake_at(&mut self, fabric: &mut Fabric, at: Time) {
        if at < self.wake {
            self.wake = at;
            fabric.calendar.add(at, What::Wake(self.agent));
        }
    }

    /// Sends due datagrams; returns when the program is free to send again.
    fn transmit(&mut self, fabric: &mut Fabric, blocks: &mut Vec<Block>) -> Result<Time, String> {
        let now = fabric.now;
        for turn in 0.. {
            if turn > MAX_POLLS {
                return Err("its sender sends without end in one instant".into());
            }
            let free = self.busy.max(self.socket_free(fabric));
            if free > now {
                return Ok(free);
            }
            blocks.clear();
            self.sender.poll_transmit(now, PacketNumber(self.next), self.batch(), blocks);
            if blocks.is_empty() {
                break;
            }
            if self.known.is_some() {
                return Err(format!("{} datagrams were sent after the end", blocks.len()));
            }
            let mut cost = Span::ZERO;
            let mut bytes = 0;
            for block in &*blocks {
                let len = payload_len(&self.setup.layout, *block);
                if len == 0 {
                    return Err(format!("{block:?} is not a block of the object"));
                }
                bytes += u64::from(len);
                let payload = len + self.setup.overhead.get() as u32;
                cost = cost + self.sending.pace.cost(Bytes::new(payload.into()));
                let body = Body::Block { number: PacketNumber(self.next), block: *block };
                self.next += 1;
                fabric.send(Packet::new(self.agent, End::Receiver, payload + UDP_IP, body));
            }
            self.busy = (now + cost).max(self.read(fabric, Bytes::new(bytes)));
            self.leaves = self.card(fabric).map_or(now, |(waits, rate)| now + waits / rate);
        }
        Ok(now)
    }

    fn batch(&self) -> usize {
        let payload = u64::from(self.setup.layout.block_size()) + self.setup.overhead.get();
        match self.sending.pace.cost(Bytes::new(payload)).as_nanos() {
            0 => BATCH,
            each => (TURN.as_nanos() / each).clamp(1, BATCH as u64) as usize,
        }
    }

    fn card(&self, fabric: &Fabric) -> Option<(Bytes, Rate)> {
        let link = &fabric.wires[self.sending.card? as usize].link;
        Some((link.backlog(fabric.now), link.spec().rate?))
    }

    /// When this program may send more: when at most `sending.buffer` bytes remain in the card's
    /// queue up to the end of the program's last datagram. Datagrams that other programs queued
    /// later do not count, so programs take turns.
    fn socket_free(&self, fabric: &Fabric) -> Time {
        let room = self.card(fabric).map_or(Span::ZERO, |(_, rate)| self.sending.buffer / rate);
        Time::ZERO + self.leaves.since(Time::ZERO).saturating_sub(room)
    }

    /// When the disk has read `bytes`, after earlier reads.
    fn read(&self, fabric: &mut Fabric, bytes: Bytes) -> Time {
        let Some((host, disk)) = self.sending.disk else { return fabric.now };
        let free = fabric.now.max(fabric.reading[host]);
        let begin =
            disk.stalls.map_or(free, |stalls| Time::ZERO + stalls.resume(free.since(Time::ZERO)));
        fabric.reading[host] = begin + bytes / disk.rate;
        fabric.reading[host]
    }

    pub(super) fn unwritten(&self) -> Bytes {
        self.written.map_or(Bytes::ZERO, |written| self.delivered - written)
    }

    pub(super) fn sent(&self) -> &SenderAccounting {
        self.sender.accounting()
    }
}

pub(super) fn due(wake: Wake, now: Time) -> bool {
    match wake {
        Wake::Now => true,
        Wake::At(at, _) => at <= now,
        Wake::OnInput => false,
    }
}

#[cfg(test)]
mod tests {
    use longhaul_proto::endpoint::{BlockRange, FlowId, Outgoing, Sender};

    use super::*;
    use crate::scenario::{Reading, Scenario};
    use crate::sim::world::{Agent, World};

    /// A broken core: it has finished, but still sends or wakes.
    struct Restless {
        inner: BoxedSender,
        sends: bool,
        wakes: bool,
    }

    impl Sender for Restless {
        fn on_control(&mut self, now: Time, flow: FlowId, control: &Control) {
            self.inner.on_control(now, flow, control);
        }
        fn on_timeout(&mut self, now: Time) {
            self.inner.on_timeout(now);
        }
        fn skip(&mut self, now: Time, flow: FlowId, blocks: BlockRange) {
            self.inner.skip(now, flow, blocks);
        }
        fn poll_transmit(&mut self, _: Time, _: PacketNumber, _: usize, out: &mut Vec<Block>) {
            if self.sends {
                out.push(Block { segment: 0, index: 0 });
            }
        }
        fn poll_control(&mut self, now: Time) -> Option<Outgoing> {
            self.inner.poll_control(now)
        }
        fn poll_event(&mut self) -> Option<Event> {
            self.inner.poll_event()
        }
        fn next_wakeup(&self) -> Wake {
            if self.wakes { Wake::Now } else { self.inner.next_wakeup() }
        }
        fn is_finished(&self) -> bool {
            self.inner.is_finished()
        }
        fn is_blocked_by_grant(&self) -> bool {
            self.inner.is_blocked_by_grant()
        }
        fn rate(&self) -> Rate {
            self.inner.rate()
        }
        fn rtt(&self) -> Span {
            self.inner.rtt()
        }
        fn accounting(&self) -> &SenderAccounting {
            self.inner.accounting()
        }
    }

    /// Runs a copy, replaces its core by [`Restless`], and returns the simulator's verdict.
    fn judged(sends: bool, wakes: bool) -> Result<(), String> {
        let flow = r#"{ from = "a", to = "b", protocol = "rbudp", rate = "50M", size = "1MB" }"#;
        let text = format!("flow = [{flow}]\n[topology]\nkind = \"pair\"");
        let scenario = Scenario::parse("canary", &text, &Reading::PLAIN).unwrap();
        let mut world = World::new(&scenario).unwrap();
        world.run().unwrap();
        let Agent::Copy(copy) = &mut world.agents[0] else { panic!("the flow is a copy") };
        assert!(copy.known.is_some());
        let fresh = (longhaul_proto::rbudp::ROW.sender)(&copy.setup);
        let inner = std::mem::replace(&mut copy.sender, fresh);
        copy.sender = Box::new(Restless { inner, sends, wakes });
        copy.pump(&mut world.fabric, &mut Vec::new())
    }

    #[test]
    fn a_core_that_sends_or_wakes_after_the_end_is_an_error() {
        assert_eq!(judged(false, false), Ok(()));
        let sent = judged(true, false).unwrap_err();
        assert!(sent.contains("1 datagrams were sent after the end"), "{sent}");
        let woken = judged(false, true).unwrap_err();
        assert!(woken.contains("wants to be woken: Now"), "{woken}");
    }
}
