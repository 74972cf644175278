//! The event loop of a run.

use longhaul_proto::endpoint::BoxedReceiver;
use longhaul_proto::layout::Block;
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::Bytes;
use longhaul_proto::wire::Control;

use super::connection::Connection;
use super::copy::CopyAgent;
use super::fabric::Fabric;
use super::host::{Program, Waiting};
use super::memory::Memory;
use super::outcome::Point;
use super::packet::{Body, End, Packet};
use super::plain::Plain;
use super::{SimError, What};
use crate::random::Random;
use crate::scenario::Scenario;

/// After its last flow has ended, a run continues for this time plus two of the longest round
/// trips, to detect late activity.
const LINGER: Span = Span::from_millis(50);

pub(super) struct World<'s> {
    pub(super) scenario: &'s Scenario,
    pub(super) fabric: Fabric,
    pub(super) agents: Vec<Agent>,
    /// By agent: whether it is finished.
    pub(super) done: Vec<bool>,
    pub(super) flows: Vec<FlowState>,
    /// By host: its card's links, out and in.
    pub(super) cards: Vec<Option<(u32, u32)>>,
    pub(super) programs: Vec<Program>,
    /// By host: the copies whose data drain to a disk or out of limited memory.
    pub(super) drains: Vec<Vec<u32>>,
    pub(super) memories: Vec<Option<Memory>>,
    pub(super) receivers: Vec<Core>,
    /// By host: bytes arrived at its card, without 28 bytes of headers per packet.
    pub(super) arrived: Vec<Bytes>,
    /// Flows that can end and have not ended.
    pub(super) open: usize,
    pub(super) ended: Option<Time>,
    pub(super) timed_out: bool,
    pub(super) events: u64,
    /// Reused, so a packet needs no allocation.
    pub(super) blocks: Vec<Block>,
    pub(super) controls: Vec<Control>,
    pub(super) batch: Vec<Waiting>,
}

/// A copy, TCP connection or UDP stream: sender and receiver.
pub(super) enum Agent {
    Copy(Box<CopyAgent>),
    Tcp(Box<Connection>),
    Plain(Box<Plain>),
}

/// The core (state machine) of a receiving protocol, shared by all its copies to one host.
pub(super) struct Core {
    pub(super) protocol: &'static str,
    pub(super) host: usize,
    pub(super) core: BoxedReceiver,
    pub(super) wake: Time,
    /// The time of the last wake-up, and the number of further wake-ups at that time.
    pub(super) polls: (Time, u32),
    /// Bytes of this core's copies, counted like `World::arrived`.
    pub(super) own: Bytes,
    pub(super) gets_reports: bool,
}

pub(super) struct FlowState {
    pub(super) agents: Vec<u32>,
    /// The flow's routes there and back, in the fabric's `hops`.
    pub(super) ways: ((u32, u32), (u32, u32)),
    /// The total delay of both routes.
    pub(super) rtt: Span,
    pub(super) random: Random,
    /// Unfinished agents, and mice (short TCP connections) that have not started.
    pub(super) busy: usize,
    pub(super) mice: u32,
    pub(super) can_end: bool,
    pub(super) ended: Option<Time>,
    /// The bytes delivered when the flow's time was over.
    pub(super) delivered: Option<Bytes>,
    pub(super) series: Vec<Point>,
}

impl World<'_> {
    /// Processes events to the end, or to the time limit.
    pub(super) fn run(&mut self) -> Result<(), SimError> {
        while let Some((due, what)) = self.fabric.calendar.pop() {
            self.fabric.now = due.at;
            self.events += 1;
            match what {
                What::Wire(index) => self.drain(index)?,
                What::Loose(place) => {
                    if let Some(packet) = self.fabric.take_loose(place) {
                        self.arrive(packet)?;
                    }
                }
                What::Wake(agent) => self.wake(agent)?,
                What::Timer { agent, end } => {
                    if let Agent::Tcp(connection) = &mut self.agents[agent as usize] {
                        connection.on_wake(&mut self.fabric, end);
                    }
                }
                What::Receiver(index) => self.wake_receiver(index as usize)?,
                What::Program(host) => self.end_batch(host as usize)?,
                What::Drain(host) => self.drain_host(host as usize)?,
                What::Others(index) => self.report_others(index as usize)?,
                What::Again { agent, to, bytes, message } => {
                    let body = Body::Control { message, on_stream: true };
                    self.fabric.send(Packet::new(agent, to, bytes, body));
                }
                What::Start(flow) => self.start(flow as usize)?,
                What::Mouse(flow) => self.set_out(flow as usize),
                What::Stop(flow) => self.stop(flow as usize),
                What::Close(agent) => self.close(agent),
                What::Sample => self.sample(),
                What::End => break,
            }
        }
        self.timed_out = self.open > 0;
        self.ended.get_or_insert(self.fabric.now);
        Ok(())
    }

    /// Delivers a link's packets until another event is due earlier than the next packet.
    fn drain(&mut self, index: u32) -> Result<(), SimError> {
        while let Some(packet) = self.fabric.take_first(index) {
            self.arrive(packet)?;
            let Some(due) = self.fabric.next_on(index) else { break };
            if self.fabric.calendar.next_due().is_some_and(|next| next < due) {
                self.fabric.calendar.add_due(due, What::Wire(index));
                return Ok(());
            }
            self.fabric.now = due.at;
            self.events += 1;
        }
        self.fabric.rest(index);
        Ok(())
    }

    fn arrive(&mut self, packet: Packet) -> Result<(), SimError> {
        let Some(packet) = self.fabric.forward(packet) else { return Ok(()) };
        self.count(&packet);
        match packet.body {
            Body::Block { number, block } => self.on_block(&packet, number, block),
            Body::Control { message, on_stream } => self.on_control(&packet, message, on_stream),
            Body::Tcp(segment) => {
                if let Agent::Tcp(connection) = &mut self.agents[packet.agent as usize] {
                    connection.arrive(&mut self.fabric, &packet, segment);
                    let known = connection.known.is_some();
                    self.settle(packet.agent, known);
                }
                Ok(())
            }
            Body::Plain => {
                if let Agent::Plain(plain) = &mut self.agents[packet.agent as usize] {
                    plain.arrive(self.fabric.now, packet.corrupted);
                }
                Ok(())
            }
        }
    }

    fn wake(&mut self, agent: u32) -> Result<(), SimError> {
        let done = match &mut self.agents[agent as usize] {
            Agent::Copy(copy) => {
                let result = copy.on_wake(&mut self.fabric, &mut self.blocks);
                let done = copy.known.is_some() && copy.finished().is_some();
                self.check(agent, result)?;
                done
            }
            Agent::Plain(plain) => {
                plain.on_wake(&mut self.fabric);
                plain.is_sent()
            }
            Agent::Tcp(_) => false,
        };
        self.settle(agent, done);
        Ok(())
    }

    /// Turns a broken invariant into the run's error.
    pub(super) fn check(&self, agent: u32, result: Result<(), String>) -> Result<(), SimError> {
        result.map_err(|what| {
            let whose = self.scenario.flows[self.flow_of(agent)].name.clone();
            SimError::Broken { at: self.fabric.now, whose, what }
        })
    }

    pub(super) fn flow_of(&self, agent: u32) -> usize {
        match &self.agents[agent as usize] {
            Agent::Copy(copy) => copy.flow,
            Agent::Tcp(connection) => connection.flow,
            Agent::Plain(plain) => plain.flow,
        }
    }

    /// Marks the agent as finished if `done` is true, and updates its flow and the run.
    pub(super) fn settle(&mut self, agent: u32, done: bool) {
        if !done || self.done[agent as usize] {
            return;
        }
        self.done[agent as usize] = true;
        let index = self.flow_of(agent);
        let now = self.fabric.now;
        let flow = &mut self.flows[index];
        if let Agent::Copy(_) = &self.agents[agent as usize] {
            let at = now + flow.rtt * 2 + Span::from_secs(1);
            self.fabric.calendar.add(at, What::Close(agent));
        }
        flow.busy -= 1;
        if flow.busy == 0 && flow.ended.is_none() {
            self.end_flow(index);
        } else if flow.mice > 0 {
            self.after_mouse(index);
        }
    }

    /// Records a flow's end. After the last flow that can end, the run ends after a pause.
    pub(super) fn end_flow(&mut self, index: usize) {
        let (now, flow) = (self.fabric.now, &mut self.flows[index]);
        flow.ended = Some(now);
        if !flow.can_end {
            return;
        }
        self.open -= 1;
        if self.open == 0 {
            self.ended = Some(now);
            let longest = self.flows.iter().map(|flow| flow.rtt).max().unwrap_or(Span::ZERO);
            self.fabric.calendar.add(now + longest * 2 + LINGER, What::End);
        }
    }

    fn sample(&mut self) {
        let Some(interval) = self.scenario.record.interval else { return };
        for index in 0..self.flows.len() {
            if self.scenario.flows[index].start < self.fabric.now && self.ended.is_none() {
                let point = self.point(index);
                self.flows[index].series.push(point);
            }
        }
        if self.ended.is_none() {
            self.fabric.calendar.add(self.fabric.now + interval, What::Sample);
        }
    }

    fn point(&self, index: usize) -> Point {
        let mut point = Point { at: self.fabric.now, ..Point::default() };
        let mut rate = 0;
        for agent in &self.flows[index].agents {
            let done = self.done[*agent as usize];
            let sends = match &self.agents[*agent as usize] {
                Agent::Copy(copy) => {
                    let accounts = self.receiver_accounts(copy);
                    let block = u64::from(copy.setup.layout.block_size());
                    point.received += Bytes::new(accounts.received * block);
                    point.delivered += copy.delivered;
                    point.reported_lost += copy.sent().reported_lost;
                    point.duplicates += accounts.duplicates;
                    copy.sender.rate()
                }
                Agent::Tcp(connection) => {
                    let counts = connection.receiver.counts();
                    point.received += connection.received();
                    point.delivered += connection.delivered();
                    point.reported_lost += connection.sender.counts().lost;
                    point.duplicates += counts.received - counts.distinct;
                    connection.rate()
                }
                Agent::Plain(plain) => {
                    let bytes = Bytes::new(plain.received * u64::from(plain.payload));
                    point.received += bytes;
                    point.delivered += bytes;
                    plain.rate()
                }
            };
            rate += if done { 0 } else { sends.as_bps() };
        }
        point.rate = longhaul_proto::units::Rate::from_bps(rate);
        point
    }

    fn on_control(
        &mut self,
        packet: &Packet,
        message: u32,
        on_stream: bool,
    ) -> Result<(), SimError> {
        if packet.corrupted {
            // The authentication tag detects the flipped bit, so the packet counts as lost. A
            // message on the stream is sent again.
            match on_stream {
                true => self.fabric.late(*packet, message),
                false => self.fabric.release(message),
            }
            return Ok(());
        }
        let Agent::Copy(copy) = &mut self.agents[packet.agent as usize] else { return Ok(()) };
        let mut controls = core::mem::take(&mut self.controls);
        let (fabric, out) = (&mut self.fabric, &mut controls);
        let result = match packet.to {
            End::Sender => {
                copy.to_sender.take(fabric, message, on_stream, out);
                let result = copy.on_controls(fabric, out, &mut self.blocks);
                let done = copy.known.is_some() && copy.finished().is_some();
                self.settle(packet.agent, done);
                self.check(packet.agent, result)
            }
            End::Receiver => {
                copy.to_receiver.take(fabric, message, on_stream, out);
                let (receiver, id) = (copy.receiver, copy.setup.flow);
                for control in out.drain(..) {
                    self.receivers[receiver].core.on_control(self.fabric.now, id, &control);
                }
                self.pump_receiver(receiver)
            }
        };
        self.controls = controls;
        result
    }
}
