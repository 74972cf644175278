//! Arrivals for copies: datagrams pass through the host's receiving program to the receiver's core
//! (the protocol's state machine), and the host drains data.

use longhaul_proto::accounting::ReceiverAccounting;
use longhaul_proto::coded::Symbol;
use longhaul_proto::endpoint::{Arrival, Carrier, Event, PacketNumber, Wake};
use longhaul_proto::layout::Block;
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::Bytes;

use super::copy::{CopyAgent, MAX_POLLS, due};
use super::host::{Waiting, disk_work};
use super::packet::Packet;
use super::setup::MEMORY;
use super::world::{Agent, World};
use super::{SimError, What};

/// Interval of a host's drains.
const DRAIN_TURN: Span = Span::from_millis(5);

impl CopyAgent {
    /// Records an intact datagram, as a real driver does; returns whether to pass it to the core.
    fn accept(&mut self, now: Time, arrival: &Arrival) -> bool {
        if !self.numbers.insert(arrival.number.0) {
            self.replayed += 1;
            return false;
        }
        if Symbol::of(&self.setup.layout, arrival.block).is_some() {
            return true;
        }
        let number = self.setup.layout.number(arrival.block);
        if self.in_order.is_some_and(|buffer| number >= buffer.next + buffer.room) {
            self.socket_lost += 1;
            return false;
        }
        self.hold(now, arrival.block);
        true
    }

    /// Notes that coded symbols replace a chunk's missing blocks.
    fn restore(&mut self, now: Time, chunk: u64) {
        let (first, count) = self.setup.layout.blocks_of_chunk(chunk);
        for index in first.index..first.index + count {
            self.hold(now, Block { index, ..first });
        }
    }

    fn hold(&mut self, now: Time, block: Block) {
        let layout = &self.setup.layout;
        if self.blocks.insert(layout.number(block)) {
            match &mut self.in_order {
                None => self.delivered += Bytes::new(layout.extent(block).len.into()),
                Some(buffer) => {
                    while self.blocks.contains(buffer.next) {
                        let block = layout.block(buffer.next);
                        let len = block.map_or(0, |block| layout.extent(block).len);
                        self.delivered += Bytes::new(len.into());
                        buffer.next += 1;
                    }
                }
            }
            self.stall.end(now);
            if let Some(holding) = &mut self.holding {
                holding.take(layout, block);
            }
        }
    }
}

impl World<'_> {
    pub(super) fn on_block(
        &mut self,
        packet: &Packet,
        number: PacketNumber,
        block: Block,
    ) -> Result<(), SimError> {
        let Agent::Copy(copy) = &mut self.agents[packet.agent as usize] else { return Ok(()) };
        if copy.closed.is_some() {
            copy.late += 1;
            return Ok(());
        }
        if packet.corrupted {
            copy.corrupted += 1;
            return Ok(());
        }
        let (host, receiver) = (copy.host, copy.receiver);
        let (now, id) = (self.fabric.now, copy.setup.flow);
        let arrival = Arrival { number, block, at: now };
        let program = &mut self.programs[host];
        if program.is_instant() {
            if copy.accept(now, &arrival) {
                self.receivers[receiver].core.on_datagrams(now, id, &[arrival]);
                return self.pump_receiver(receiver);
            }
            return Ok(());
        }
        let payload = packet.bytes - super::packet::UDP_IP;
        if program.arrive(Waiting { agent: packet.agent, arrival, payload }) {
            self.begin_batch(host);
            return Ok(());
        }
        copy.socket_lost += 1;
        self.receivers[receiver].core.set_socket_lost(now, id, copy.socket_lost);
        self.pump_receiver(receiver)
    }

    fn begin_batch(&mut self, host: usize) {
        let now = self.fabric.now;
        if let Some(cost) = self.programs[host].begin(now) {
            self.fabric.calendar.add(now + cost, What::Program(host as u32));
        }
    }

    /// Ends the program's batch: a copy's consecutive datagrams go to its core together.
    pub(super) fn end_batch(&mut self, host: usize) -> Result<(), SimError> {
        let mut batch = core::mem::take(&mut self.batch);
        batch.clear();
        batch.extend_from_slice(&self.programs[host].batch);
        self.programs[host].end();
        self.begin_batch(host);
        let now = self.fabric.now;
        for run in batch.chunk_by(|a, b| a.agent == b.agent) {
            let Agent::Copy(copy) = &mut self.agents[run[0].agent as usize] else { continue };
            if copy.closed.is_some() {
                copy.late += run.len() as u64;
                continue;
            }
            let arrivals = run.iter().map(|datagram| datagram.arrival);
            let arrivals: Vec<Arrival> =
                arrivals.filter(|arrival| copy.accept(now, arrival)).collect();
            let (receiver, id) = (copy.receiver, copy.setup.flow);
            self.receivers[receiver].core.on_datagrams(self.fabric.now, id, &arrivals);
            self.pump_receiver(receiver)?;
        }
        self.batch = batch;
        Ok(())
    }

    pub(super) fn wake_receiver(&mut self, index: usize) -> Result<(), SimError> {
        let now = self.fabric.now;
        let core = &mut self.receivers[index];
        if core.wake != now {
            return Ok(());
        }
        core.wake = Time::NEVER;
        core.polls = if core.polls.0 == now { (now, core.polls.1 + 1) } else { (now, 0) };
        if core.polls.1 > MAX_POLLS {
            let what = format!("the core was polled {MAX_POLLS} times in one instant");
            return Err(self.broken(index, what));
        }
        if due(core.core.next_wakeup(), now) {
            core.core.on_timeout(now);
        }
        self.pump_receiver(index)
    }

    fn broken(&self, receiver: usize, what: String) -> SimError {
        let core = &self.receivers[receiver];
        let host = &self.scenario.hosts[core.host].name;
        let whose = format!("the receiver of {} on {host}", core.protocol);
        SimError::Broken { at: self.fabric.now, whose, what }
    }

    /// Polls a receiver's core until it has nothing to send; schedules the core's wake-up.
    pub(super) fn pump_receiver(&mut self, index: usize) -> Result<(), SimError> {
        let now = self.fabric.now;
        let (mut turns, mut reports) = (0, 0);
        while let Some(outgoing) = self.receivers[index].core.poll_control(now) {
            let agent = outgoing.flow.0;
            let Some(Agent::Copy(copy)) = self.agents.get_mut(agent as usize) else { continue };
            reports += u64::from(outgoing.carrier == Carrier::Datagram);
            copy.to_sender.send(&mut self.fabric, agent, super::End::Sender, &outgoing);
            turns += 1;
            if turns > MAX_POLLS {
                return Err(
                    self.broken(index, "it keeps sending without end in one instant".into())
                );
            }
        }
        self.programs[self.receivers[index].host].report(now, reports);
        while let Some((id, event)) = self.receivers[index].core.poll_event() {
            match event {
                Event::Finished => self.finish(id.0)?,
                Event::Restored { chunk } => {
                    let now = self.fabric.now;
                    if let Some(Agent::Copy(copy)) = self.agents.get_mut(id.0 as usize) {
                        copy.restore(now, chunk);
                    }
                }
                _ => {}
            }
        }
        let core = &mut self.receivers[index];
        let at = match core.core.next_wakeup() {
            Wake::Now => now,
            Wake::At(at, _) => at.max(now),
            Wake::OnInput => return Ok(()),
        };
        // If the core now has to wake later than scheduled, the scheduled wake-up stays. When it
        // comes, it schedules the later one.
        if at < core.wake {
            core.wake = at;
            self.fabric.calendar.add(at, What::Receiver(index as u32));
        }
        Ok(())
    }

    fn finish(&mut self, agent: u32) -> Result<(), SimError> {
        let Agent::Copy(copy) = &mut self.agents[agent as usize] else { return Ok(()) };
        let (come, all) = (copy.blocks.count(), copy.setup.layout.blocks());
        copy.whole = Some(self.fabric.now);
        if copy.written.is_some() && copy.unwritten() == Bytes::ZERO {
            copy.stored = copy.whole;
        }
        if come != all {
            let what = format!("reported complete with {come} of its {all} blocks");
            return self.check(agent, Err(what));
        }
        Ok(())
    }

    /// Frees a host's memory, once per [`DRAIN_TURN`]. With a disk, data leave the memory when they
    /// are written; in a limited memory they stay at least until their chunk is complete.
    pub(super) fn drain_host(&mut self, host: usize) -> Result<(), SimError> {
        let now = self.fabric.now;
        let mut drains = core::mem::take(&mut self.drains[host]);
        if let Some(memory) = &mut self.memories[host] {
            drains
                .iter()
                .filter(|agent| self.done[**agent as usize])
                .for_each(|a| memory.leave(*a));
        }
        drains.retain(|agent| !self.done[*agent as usize]);
        if let Some(disk) = self.scenario.hosts[host].disk {
            let from = now.since(Time::ZERO).saturating_sub(DRAIN_TURN);
            self.write(&drains, disk_work(&disk, Time::ZERO + from, DRAIN_TURN));
        }
        for agent in &drains {
            self.report_drained(*agent)?;
        }
        if !drains.is_empty() {
            self.fabric.calendar.add(now + DRAIN_TURN, What::Drain(host as u32));
        }
        self.drains[host] = drains;
        Ok(())
    }

    /// Divides `work`, the bytes that a disk can write, evenly among copies. Unused shares go to
    /// later copies; a second pass offers the rest to all.
    fn write(&mut self, drains: &[u32], mut work: Bytes) {
        for turn in 0..2 * drains.len() {
            let place = turn % drains.len();
            let Agent::Copy(copy) = &mut self.agents[drains[place] as usize] else { continue };
            let left = (drains.len() - place) as u64;
            let share = Bytes::new(work.get().div_ceil(left)).min(copy.unwritten()).min(work);
            work -= share;
            copy.written = copy.written.map(|written| written + share);
        }
    }

    fn report_drained(&mut self, agent: u32) -> Result<(), SimError> {
        let now = self.fabric.now;
        let Agent::Copy(copy) = &mut self.agents[agent as usize] else { return Ok(()) };
        let (receiver, id) = (copy.receiver, copy.setup.flow);
        if copy.whole.is_some() && copy.stored.is_none() && copy.unwritten() == Bytes::ZERO {
            copy.stored = Some(now);
        }
        let done = copy.known.is_some() && copy.finished().is_some();
        let written = copy.written;
        let grant = match (&mut copy.holding, &mut self.memories[copy.host]) {
            (Some(holding), Some(memory)) => {
                let drained = written.map_or(holding.whole, |written| written.min(holding.whole));
                let held = holding.granted.saturating_sub(drained);
                holding.granted = drained + memory.room(agent, held);
                holding.granted
            }
            _ => written.unwrap_or(Bytes::ZERO) + MEMORY,
        };
        // The simulator measures no drain rate.
        self.receivers[receiver].core.set_grant(now, id, grant, None);
        self.pump_receiver(receiver)?;
        self.settle(agent, done);
        Ok(())
    }

    /// Ends a copy: the receiver forgets the copy.
    pub(super) fn close(&mut self, agent: u32) {
        let Agent::Copy(copy) = &mut self.agents[agent as usize] else { return };
        let core = &mut self.receivers[copy.receiver].core;
        copy.closed = core.accounting(copy.setup.flow).copied();
        core.remove_flow(copy.setup.flow);
    }

    pub(super) fn receiver_accounts(&self, copy: &CopyAgent) -> ReceiverAccounting {
        let core = &self.receivers[copy.receiver].core;
        let open = || core.accounting(copy.setup.flow).copied();
        copy.closed.or_else(open).unwrap_or_default()
    }
}
