//! The start of a run and of each flow: links, routes, agents (copies, connections, UDP streams).

use longhaul_proto::endpoint::{FlowId, Setup};
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::{Bytes, Rate};

use super::connection::{Connection, mss};
use super::copy::{CopyAgent, InOrder, SendingHost};
use super::fabric::Fabric;
use super::host::Program;
use super::lane::Lane;
use super::memory::{Holding, Memory};
use super::packet::UDP_IP;
use super::plain::Plain;
use super::setup::{more_than, row, setup};
use super::world::{Agent, Core, FlowState, World};
use super::{SimError, What};
use crate::link::LinkSpec;
use crate::random::Random;
use crate::scenario::{Amount, Arrivals, Flow, Mice, Scenario, Tcp, Traffic, Transfer, Udp};

/// Maximum bytes that wait before a receiving card: a switch port's buffer.
const PORT_BUFFER: Bytes = Bytes::new(512_000);

/// The purpose of a random stream.
#[derive(Clone, Copy)]
enum Stream {
    Link = 1,
    Card = 2,
    Flow = 3,
}

/// A stream's seed, independent of other streams.
fn stream(seed: u64, kind: Stream, index: usize) -> u64 {
    let place = ((kind as u64) << 56) ^ index as u64;
    Random::new(seed ^ Random::new(place).bits()).bits()
}

impl<'s> World<'s> {
    pub(super) fn new(scenario: &'s Scenario) -> Result<World<'s>, SimError> {
        let seed = scenario.seed;
        let mut fabric = Fabric::new(scenario.hosts.len());
        for (index, between) in scenario.network.links.iter().enumerate() {
            fabric.add_link(between.link.clone(), stream(seed, Stream::Link, index));
        }
        let mut cards = Vec::new();
        for (index, host) in scenario.hosts.iter().enumerate() {
            let mut card = |queue, rate, side| {
                let spec = LinkSpec { rate: Some(rate), queue, ..LinkSpec::default() };
                fabric.add_link(spec, stream(seed, Stream::Card, 2 * index + side))
            };
            let out = host.nic_queue.unwrap_or(Bytes::MAX);
            let both = host.nic.map(|rate| (card(out, rate, 0), card(PORT_BUFFER, rate, 1)));
            cards.push(both);
        }
        let mut world = World {
            scenario,
            fabric,
            agents: Vec::new(),
            done: Vec::new(),
            flows: Vec::new(),
            cards,
            programs: scenario.hosts.iter().map(Program::new).collect(),
            drains: vec![Vec::new(); scenario.hosts.len()],
            memories: scenario.hosts.iter().map(|host| host.memory.map(Memory::new)).collect(),
            receivers: Vec::new(),
            arrived: vec![Bytes::ZERO; scenario.hosts.len()],
            open: 0,
            ended: None,
            timed_out: false,
            events: 0,
            blocks: Vec::new(),
            controls: Vec::new(),
            batch: Vec::new(),
        };
        world.add_flows()?;
        Ok(world)
    }

    fn add_flows(&mut self) -> Result<(), SimError> {
        let mut routes = self.scenario.routes();
        for (index, flow) in self.scenario.flows.iter().enumerate() {
            let mut way = |from: usize, to: usize| {
                let name = |node| self.scenario.node_name(node);
                let links = routes.between(from, to).filter(|links| !links.is_empty());
                links.ok_or_else(|| {
                    let (flow, from, to) = (&flow.name, name(from), name(to));
                    SimError::Scenario(format!("flow {flow}: no route leads from {from} to {to}"))
                })
            };
            let (there, back) = (way(flow.from, flow.to)?, way(flow.to, flow.from)?);
            let rtt = routes.delay(&there) + routes.delay(&back);
            let ways = (
                self.add_flow_route(flow.from, &there, flow.to),
                self.add_flow_route(flow.to, &back, flow.from),
            );
            let can_end = !matches!(flow.amount, Amount::Endless);
            self.open += usize::from(can_end);
            self.flows.push(FlowState {
                agents: Vec::new(),
                ways,
                rtt,
                random: Random::new(stream(self.scenario.seed, Stream::Flow, index)),
                busy: 0,
                mice: 0,
                can_end,
                ended: None,
                delivered: None,
                series: Vec::new(),
            });
            self.fabric.calendar.add(flow.start, What::Start(index as u32));
        }
        self.fabric.calendar.add(Time::ZERO + self.scenario.time_limit, What::End);
        if let Some(interval) = self.scenario.record.interval {
            self.fabric.calendar.add(Time::ZERO + interval, What::Sample);
        }
        Ok(())
    }

    /// Adds a route with the cards at its ends; returns its start and length in the fabric's
    /// `hops`.
    fn add_flow_route(&mut self, from: usize, links: &[usize], to: usize) -> (u32, u32) {
        let out = self.cards[from].map(|(out, _)| out);
        let inward = self.cards[to].map(|(_, inward)| inward);
        let links = links.iter().map(|link| *link as u32);
        let way: Vec<u32> = out.into_iter().chain(links).chain(inward).collect();
        self.fabric.add_route(&way)
    }

    fn add_agent(&mut self, flow: usize, make: impl FnOnce(u32) -> Agent) -> u32 {
        let (there, back) = self.flows[flow].ways;
        let agent = self.fabric.add_agent(there, back);
        self.agents.push(make(agent));
        self.done.push(false);
        self.flows[flow].agents.push(agent);
        agent
    }

    pub(super) fn start(&mut self, index: usize) -> Result<(), SimError> {
        let flow = &self.scenario.flows[index];
        match &flow.traffic {
            Traffic::Protocol(copy) => self.start_copy(index, flow, copy)?,
            Traffic::Tcp(tcp) => self.start_tcp(index, flow, tcp),
            Traffic::Udp(udp) => self.start_udp(index, flow, *udp),
            Traffic::Mice(mice) => self.start_mice(index, mice),
            Traffic::Command(_) => {
                let name = &flow.name;
                let why = format!(
                    "flow {name} is a command, which only the emulator runs; use `longhaul emulate`"
                );
                return Err(SimError::Scenario(why));
            }
        }
        if let Amount::Lasts(span) = flow.amount {
            self.fabric.calendar.add(self.fabric.now + span, What::Stop(index as u32));
        }
        Ok(())
    }

    pub(super) fn stop(&mut self, index: usize) {
        if self.flows[index].ended.is_some() {
            return;
        }
        let mut delivered = Bytes::ZERO;
        for agent in &self.flows[index].agents {
            delivered += match &mut self.agents[*agent as usize] {
                Agent::Copy(copy) => {
                    copy.stop();
                    copy.delivered
                }
                Agent::Tcp(connection) => {
                    connection.stop();
                    connection.delivered()
                }
                Agent::Plain(plain) => {
                    plain.stop();
                    Bytes::new(plain.received * u64::from(plain.payload))
                }
            };
            self.done[*agent as usize] = true;
        }
        self.flows[index].delivered = Some(delivered);
        self.flows[index].mice = 0;
        self.end_flow(index);
    }

    fn start_copy(&mut self, index: usize, flow: &Flow, copy: &Transfer) -> Result<(), SimError> {
        let row = row(copy)?;
        let (now, rtt) = (self.fabric.now, self.flows[index].rtt);
        let object = match flow.amount {
            Amount::Size(size) => size,
            Amount::Lasts(span) => more_than(span, self.narrowest(index, copy.rate))?,
            Amount::Endless => {
                let left = self.scenario.time_limit - now.since(Time::ZERO);
                more_than(left, self.narrowest(index, copy.rate))?
            }
        };
        let host = &self.scenario.hosts[flow.from];
        let sending = SendingHost {
            pace: host.sends,
            disk: host.disk.filter(|_| copy.reads_disk).map(|disk| (flow.from, disk)),
            card: self.cards[flow.from].map(|(out, _)| out).filter(|_| host.nic_queue.is_none()),
            buffer: host.send_buffer,
        };
        let writes = copy.writes_disk && self.scenario.hosts[flow.to].disk.is_some();
        let receiver = self.receiver(row.name, flow.to, row.receiver);
        let id = FlowId(self.agents.len() as u32);
        let limited = self.memories[flow.to].is_some();
        let mut setup = setup(copy, id, object, rtt, self.scenario.mtu, limited)?;
        let holding = limited.then(|| Holding::new(&setup.layout));
        setup.grant = holding.as_ref().map_or(setup.grant, |holding| holding.granted);
        self.receivers[receiver].core.add_flow(now, &setup);
        let card = self.cards[flow.from].and_then(|(out, _)| self.card_payload(out));
        let mut sender = (row.sender)(&Setup { card, ..setup.clone() });
        let peer = self.cards[flow.to].and_then(|(_, inward)| self.card_payload(inward));
        if let Some(peer) = peer {
            sender.set_peer_card(now, peer);
        }
        sender.allow_coded();
        let ordered = copy.ordered_control;
        let block = u64::from(setup.layout.block_size());
        let in_order = copy.reorder_buffer;
        let in_order =
            in_order.map(|bytes| InOrder { room: (bytes.get() / block).max(1), next: 0 });
        let agent = self.add_agent(index, |agent| {
            let places = (agent, index, flow.to, receiver);
            let mut copy = CopyAgent::new(setup, sender, sending, places, writes, now);
            copy.holding = holding;
            (copy.to_receiver, copy.to_sender) = (Lane::new(ordered), Lane::new(ordered));
            copy.in_order = in_order;
            Agent::Copy(Box::new(copy))
        });
        self.flows[index].busy = 1;
        if writes || limited {
            if self.drains[flow.to].is_empty() {
                self.fabric.calendar.add(now, What::Drain(flow.to as u32));
            }
            self.drains[flow.to].push(agent);
        }
        if let Some(memory) = &mut self.memories[flow.to] {
            memory.enter(agent);
        }
        self.begin_reports(receiver)?;
        self.pump_receiver(receiver)?;
        let Agent::Copy(copy) = &mut self.agents[agent as usize] else { return Ok(()) };
        let result = copy.pump(&mut self.fabric, &mut self.blocks);
        let done = copy.known.is_some() && copy.finished().is_some();
        self.settle(agent, done);
        self.check(agent, result)
    }

    /// The lowest of `rate` and the maximum rates of the flow's links to the receiver, if any.
    fn narrowest(&self, index: usize, rate: Option<Rate>) -> Option<Rate> {
        let links = self.fabric.links_of(self.flows[index].ways.0);
        let rates =
            links.iter().filter_map(|link| self.fabric.wires[*link as usize].link.spec().fastest());
        rates.chain(rate).min()
    }

    /// The index of the core (state machine) that receives a protocol's copies on a host. Creates
    /// the core if missing.
    fn receiver(
        &mut self,
        protocol: &'static str,
        host: usize,
        make: fn() -> longhaul_proto::endpoint::BoxedReceiver,
    ) -> usize {
        let same = |core: &Core| core.protocol == protocol && core.host == host;
        self.receivers.iter().position(same).unwrap_or_else(|| {
            let (wake, polls) = (Time::NEVER, (Time::ZERO, 0));
            let (core, own, gets_reports) = (make(), Bytes::ZERO, false);
            self.receivers.push(Core { protocol, host, core, wake, polls, own, gets_reports });
            self.receivers.len() - 1
        })
    }

    fn start_tcp(&mut self, index: usize, flow: &Flow, tcp: &Tcp) {
        let streams = u64::from(tcp.streams.max(1));
        self.flows[index].busy = streams as usize;
        for stream in 0..streams {
            let size = match flow.amount {
                Amount::Size(size) => {
                    let more = u64::from(stream < size.get() % streams);
                    Some(Bytes::new(size.get() / streams + more))
                }
                Amount::Lasts(_) | Amount::Endless => None,
            };
            self.connect(index, tcp, size);
        }
    }

    fn connect(&mut self, index: usize, tcp: &Tcp, size: Option<Bytes>) {
        let (now, mss) = (self.fabric.now, mss(self.scenario.mtu));
        let agent = self.add_agent(index, |agent| {
            Agent::Tcp(Box::new(Connection::new(now, tcp, (agent, index), mss, size)))
        });
        if let Agent::Tcp(connection) = &mut self.agents[agent as usize] {
            connection.pump(&mut self.fabric);
        }
    }

    fn start_udp(&mut self, index: usize, flow: &Flow, udp: Udp) {
        let most = u32::from(self.scenario.mtu).saturating_sub(UDP_IP).max(1);
        let payload = udp.datagram.unwrap_or(most).clamp(1, most);
        let size = match flow.amount {
            Amount::Size(size) => Some(size),
            Amount::Lasts(_) | Amount::Endless => None,
        };
        self.flows[index].busy = 1;
        let random = Random::new(self.flows[index].random.bits());
        let agent = self.add_agent(index, |agent| {
            Agent::Plain(Box::new(Plain::new((agent, index), udp, payload, size, random)))
        });
        let Agent::Plain(plain) = &mut self.agents[agent as usize] else { return };
        plain.begin(&mut self.fabric);
        let sent = plain.is_sent();
        self.settle(agent, sent);
    }

    fn start_mice(&mut self, index: usize, mice: &Mice) {
        self.flows[index].mice = mice.count;
        self.flows[index].busy = mice.count as usize;
        if mice.count == 0 {
            self.end_flow(index);
        } else {
            self.set_out(index);
        }
    }

    /// Starts the next mouse (short TCP connection) of a flow. Unless mice run in turn, schedules
    /// the one after it.
    pub(super) fn set_out(&mut self, index: usize) {
        let flow = &self.scenario.flows[index];
        let Traffic::Mice(mice) = &flow.traffic else { return };
        let state = &mut self.flows[index];
        if state.mice == 0 {
            return;
        }
        state.mice -= 1;
        let wait: Option<Span> = match mice.arrivals {
            Arrivals::Regular(span) => Some(span),
            Arrivals::Poisson(mean) => Some(state.random.exponential(mean)),
            Arrivals::InTurn => None,
        };
        if let Some(wait) = wait.filter(|_| state.mice > 0) {
            self.fabric.calendar.add(self.fabric.now + wait, What::Mouse(index as u32));
        }
        let size = match flow.amount {
            Amount::Size(size) => Some(size),
            Amount::Lasts(_) | Amount::Endless => None,
        };
        self.connect(index, &mice.tcp, size);
    }

    /// Schedules the next mouse after one has ended, if the flow's mice run in turn.
    pub(super) fn after_mouse(&mut self, index: usize) {
        if let Traffic::Mice(Mice { arrivals: Arrivals::InTurn, .. }) =
            &self.scenario.flows[index].traffic
        {
            self.fabric.calendar.add(self.fabric.now, What::Mouse(index as u32));
        }
    }
}
