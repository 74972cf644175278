//! The end of a run: consistency checks, and the outcome.

use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::Bytes;

use super::SimError;
use super::connection::Connection;
use super::copy::CopyAgent;
use super::fabric::Fares;
use super::outcome::{Accounts, FlowOutcome, LinkOutcome, SimOutcome};
use super::plain::Plain;
use super::world::{Agent, World};
use crate::scenario::Traffic;

impl World<'_> {
    /// Builds the run's outcome. Fails if a flow's accounts or a link's packet counts do not
    /// balance.
    pub(super) fn outcome(&mut self) -> Result<SimOutcome, SimError> {
        let broken = |whose, what| SimError::Broken { at: self.fabric.now, whose, what };
        if let Some(link) = self.fabric.leak() {
            let what = "the link returned a different number of packets than it took".into();
            return Err(broken(self.link_name(link), what));
        }
        let mut under_way = self.fabric.under_way();
        for datagram in self.programs.iter().flat_map(|program| program.holds()) {
            under_way[datagram.agent as usize] += 1;
        }
        let mut flows = Vec::new();
        for index in 0..self.flows.len() {
            let flow = self
                .flow_outcome(index, &under_way)
                .map_err(|what| broken(self.scenario.flows[index].name.clone(), what))?;
            flows.push(flow);
        }
        let links = self.fabric.wires.iter().enumerate();
        let links = links.map(|(index, wire)| LinkOutcome {
            name: self.link_name(index),
            tally: *wire.link.tally(),
            queue_max: wire.queue_max,
        });
        Ok(SimOutcome {
            scenario: self.scenario.name.clone(),
            seed: self.scenario.seed,
            ended: self.ended.unwrap_or(self.fabric.now),
            timed_out: self.timed_out,
            events: self.events,
            packets: self.fabric.offered,
            flows,
            links: links.collect(),
        })
    }

    fn link_name(&self, index: usize) -> String {
        let name = |node| self.scenario.node_name(node);
        if let Some(link) = self.scenario.network.links.get(index) {
            return format!("{} > {}", name(link.from), name(link.to));
        }
        let mut names = self.cards.iter().enumerate().filter_map(|(host, card)| {
            let (out, inward) = (*card)?;
            let side =
                [(out, "out"), (inward, "in")].into_iter().find(|(n, _)| *n == index as u32)?;
            Some(format!("{} card {}", name(host), side.1))
        });
        names.next().unwrap_or_default()
    }

    fn flow_outcome(&self, index: usize, under_way: &[u64]) -> Result<FlowOutcome, String> {
        let (flow, state) = (&self.scenario.flows[index], &self.flows[index]);
        let mut accounts = Accounts::default();
        let (mut delivered, mut lives, mut stall) = (Bytes::ZERO, Vec::new(), Span::ZERO);
        let (mut finished, mut known) = (Vec::new(), Vec::new());
        for agent in &state.agents {
            let place = *agent as usize;
            let (mut one, fares) = match &self.agents[place] {
                Agent::Copy(copy) => {
                    stall = stall.max(copy.stall.longest);
                    delivered += copy.delivered;
                    finished.push(copy.finished());
                    known.push(copy.known);
                    (self.copy_accounts(copy), self.fabric.fares[place])
                }
                Agent::Tcp(connection) => {
                    stall = stall.max(connection.stall.longest);
                    delivered += connection.delivered();
                    finished.push(connection.whole);
                    known.push(connection.known);
                    let end = connection.whole.unwrap_or(self.fabric.now);
                    lives.push(end.since(connection.began));
                    (tcp_accounts(connection), self.fabric.fares[place])
                }
                Agent::Plain(plain) => {
                    delivered += Bytes::new(plain.received * u64::from(plain.payload));
                    finished.push(plain.last.filter(|_| plain.is_sent()));
                    (plain_accounts(plain), self.fabric.fares[place])
                }
            };
            if one.sent != fares.sent {
                return Err(format!("it sent {}, the network counts {}", one.sent, fares.sent));
            }
            add_fares(&mut one, &fares, under_way[place]);
            accounts += &one;
        }
        if let Some(wrong) = accounts.wrong() {
            return Err(wrong);
        }
        let all = |times: &[Option<Time>]| times.iter().copied().collect::<Option<Vec<Time>>>();
        let ended = state.busy == 0 && !state.agents.is_empty();
        let last = |times: &[Option<Time>]| {
            all(times).filter(|_| ended && state.delivered.is_none())?.into_iter().max()
        };
        let (finished, known) = (last(&finished), last(&known));
        let delivered = state.delivered.unwrap_or(delivered);
        let end = finished.or(state.ended).unwrap_or(self.ended.unwrap_or(self.fabric.now));
        let is_mice = matches!(flow.traffic, Traffic::Mice(_));
        Ok(FlowOutcome {
            name: flow.name.clone(),
            carrier: flow.carrier(),
            from: self.scenario.node_name(flow.from).to_owned(),
            to: self.scenario.node_name(flow.to).to_owned(),
            rtt: state.rtt,
            started: flow.start,
            finished,
            known,
            object: flow.object(),
            delivered,
            goodput: delivered / end.since(flow.start),
            waste: (accounts.sent - accounts.first) as f64 / (accounts.first as f64).max(1.0),
            accounts,
            stall,
            lives: if is_mice { lives } else { Vec::<Span>::new() },
            series: state.series.clone(),
        })
    }

    fn copy_accounts(&self, copy: &CopyAgent) -> Accounts {
        let (sent, came) = (copy.sent(), self.receiver_accounts(copy));
        Accounts {
            sent: sent.sent,
            first: sent.first,
            retransmitted: sent.retransmitted,
            received: came.received,
            distinct: came.distinct,
            duplicates: came.duplicates,
            path_lost: came.path_lost(),
            blocks_lost: came.blocks_lost,
            reported_lost: sent.reported_lost,
            socket_lost: copy.socket_lost,
            replayed: copy.replayed,
            corrupted: copy.corrupted,
            in_flight: copy.late,
            rounds: sent.rounds,
            controls: copy.to_receiver.sent + copy.to_sender.sent,
            ..Accounts::default()
        }
    }
}

/// Adds the network's counters for the data packets of an agent (a copy, a TCP connection or a UDP
/// sender with its receiver).
fn add_fares(accounts: &mut Accounts, fares: &Fares, under_way: u64) {
    accounts.dropped = fares.dropped;
    accounts.queue_full = fares.queue_full;
    accounts.copied = fares.copied;
    accounts.in_flight += under_way;
}

fn tcp_accounts(connection: &Connection) -> Accounts {
    let (sent, came) = (connection.sender.counts(), connection.receiver.counts());
    Accounts {
        sent: sent.sent,
        first: sent.first,
        retransmitted: sent.sent - sent.first,
        received: came.received,
        distinct: came.distinct,
        duplicates: came.received - came.distinct,
        blocks_lost: sent.lost,
        reported_lost: sent.lost,
        corrupted: connection.corrupted,
        timeouts: sent.timeouts,
        controls: came.acks,
        ..Accounts::default()
    }
}

fn plain_accounts(plain: &Plain) -> Accounts {
    Accounts {
        sent: plain.sent,
        first: plain.sent,
        received: plain.received,
        distinct: plain.received,
        corrupted: plain.corrupted,
        ..Accounts::default()
    }
}
