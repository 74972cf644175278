//! Other traffic on a receiving host's access link, as the host's card would count it, for cores
//! (protocols' state machines) that divide the link among flows.

use longhaul_proto::endpoint::Others;
use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, Rate};

use super::packet::{End, Packet, UDP_IP};
use super::world::{Agent, World};
use super::{SimError, What};

/// The interval of the reports of other traffic to a core, as over real sockets.
const TURN: Span = Span::from_millis(100);

impl World<'_> {
    pub(super) fn count(&mut self, packet: &Packet) {
        let flow = &self.scenario.flows[self.flow_of(packet.agent)];
        let payload = Bytes::new(packet.bytes.saturating_sub(UDP_IP).into());
        match packet.to {
            End::Sender => self.arrived[flow.from] += payload,
            End::Receiver => {
                self.arrived[flow.to] += payload;
                if let Agent::Copy(copy) = &self.agents[packet.agent as usize] {
                    self.receivers[copy.receiver].own += payload;
                }
            }
        }
    }

    /// Starts the reports to a core that has a new flow, if the core uses reports.
    pub(super) fn begin_reports(&mut self, index: usize) -> Result<(), SimError> {
        let core = &mut self.receivers[index];
        if !core.core.wants_others() || core.gets_reports {
            return Ok(());
        }
        core.gets_reports = true;
        self.report_others(index)
    }

    /// Reports the other traffic to a core, unless all flows of the core are done.
    pub(super) fn report_others(&mut self, index: usize) -> Result<(), SimError> {
        let (now, host) = (self.fabric.now, self.receivers[index].host);
        let is_ours = |agent: &Agent| matches!(agent, Agent::Copy(c) if c.receiver == index);
        let to_host = |agent: usize| self.scenario.flows[self.flow_of(agent as u32)].to == host;
        let there = (0..self.agents.len()).filter(|&agent| !self.done[agent] && to_host(agent));
        let (ours, theirs): (Vec<usize>, Vec<usize>) =
            there.partition(|&agent| is_ours(&self.agents[agent]));
        if ours.is_empty() {
            self.receivers[index].gets_reports = false;
            return Ok(());
        }
        let others = Others {
            link: self.cards[host].and_then(|(_, inward)| self.card_payload(inward)),
            bytes: self.arrived[host] - self.receivers[index].own,
            flows: theirs.len() as u32,
        };
        self.receivers[index].core.set_others(now, others);
        self.fabric.calendar.add(now + TURN, What::Others(index as u32));
        self.pump_receiver(index)
    }

    /// The rate of UDP payload in one direction of a host's card, in full packets, if limited.
    pub(super) fn card_payload(&self, side: u32) -> Option<Rate> {
        let spec = self.fabric.wires[side as usize].link.spec();
        let mtu = u32::from(self.scenario.mtu);
        let share = f64::from(mtu.saturating_sub(UDP_IP)) / f64::from(mtu + spec.framing);
        Some(spec.rate?.scale(share))
    }
}
