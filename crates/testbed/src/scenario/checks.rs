//! Validation of a scenario before it is run.

use core::fmt;
use std::collections::BTreeSet;

use longhaul_proto::units::{Bytes, Rate};

use longhaul_proto::time::Span;

use super::{
    Amount, Arrivals, Flow, Host, LinkBetween, MAX_FLOWS, MAX_LINKS, MAX_NODES, Route, Scenario,
    Tcp, Traffic,
};

/// A fault in a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The faulty part.
    pub place: Place,
    /// The fault.
    pub what: String,
}

/// A part of a scenario, by its index in its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The whole scenario.
    Whole,
    /// The largest packet.
    Mtu,
    /// The time limit.
    TimeLimit,
    /// The records of a run.
    Record,
    /// A host.
    Host(usize),
    /// A router.
    Router(usize),
    /// A link.
    Link(usize),
    /// A given route.
    Route(usize),
    /// A flow.
    Flow(usize),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl core::error::Error for Fault {}

type Checked = Result<(), Fault>;

fn fault<T>(place: Place, what: impl Into<String>) -> Result<T, Fault> {
    Err(Fault { place, what: what.into() })
}

/// Maximum number of connections of one flow.
const MAX_CONNECTIONS: u32 = 100_000;

impl Scenario {
    /// Checks that this scenario can be run.
    ///
    /// # Errors
    /// The first fault found:
    /// - no host, or an empty, malformed or duplicate name;
    /// - more than [`MAX_NODES`] hosts and routers, [`MAX_LINKS`] links or routes, or [`MAX_FLOWS`]
    ///   flows;
    /// - an impossible value, such as a rate of zero or an MTU below 576 bytes;
    /// - an invalid route, a flow without a route there and back, or a host that no link connects
    ///   to another host.
    pub fn validate(&self) -> Result<(), Fault> {
        let (nodes, flows) = (self.nodes(), self.flows.len());
        if nodes > MAX_NODES {
            return fault(Place::Whole, format!("{nodes} hosts and routers; at most {MAX_NODES}"));
        }
        if flows > MAX_FLOWS {
            return fault(Place::Whole, format!("{flows} flows; at most {MAX_FLOWS}"));
        }
        let (links, routes) = (self.network.links.len(), self.network.routes.len());
        if links > MAX_LINKS || routes > MAX_LINKS {
            let what = format!("{links} one-way links and {routes} routes; at most {MAX_LINKS}");
            return fault(Place::Whole, what);
        }
        if self.hosts.is_empty() {
            return fault(Place::Whole, "the scenario has no host");
        }
        if self.mtu < 576 {
            return fault(Place::Mtu, format!("an MTU of {} bytes; the least is 576", self.mtu));
        }
        if self.time_limit == Span::ZERO {
            return fault(Place::TimeLimit, "a time limit of zero leaves no time");
        }
        if self.record.interval == Some(Span::ZERO) {
            return fault(Place::Record, "a time series needs an interval above zero");
        }
        self.check_names()?;
        for (i, host) in self.hosts.iter().enumerate() {
            self.check_host(Place::Host(i), host)?;
        }
        let joined = self.check_links()?;
        let mut seen = BTreeSet::new();
        for (i, route) in self.network.routes.iter().enumerate() {
            self.check_route(Place::Route(i), route, &joined)?;
            if !seen.insert((route.from, route.to)) {
                let (from, to) = (self.node_name(route.from), self.node_name(route.to));
                return fault(Place::Route(i), format!("two routes from {from} to {to}"));
            }
        }
        self.check_flows()?;
        self.check_connected(&joined)
    }

    fn check_names(&self) -> Checked {
        let hosts = self.hosts.iter().enumerate().map(|(i, host)| (Place::Host(i), &host.name));
        let routers = self.network.routers.iter().enumerate();
        let routers = routers.map(|(i, name)| (Place::Router(i), name));
        let mut seen = BTreeSet::new();
        for (place, name) in hosts.chain(routers) {
            let sound = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
            if name.is_empty() || name.len() > 63 || !name.bytes().all(sound) {
                return fault(place, format!("name {name:?}: 1 to 63 letters, digits and - only"));
            }
            if !seen.insert(name) {
                return fault(place, format!("two hosts or routers are named {name}"));
            }
        }
        Ok(())
    }

    fn check_host(&self, place: Place, host: &Host) -> Checked {
        let paces = [("sends", host.sends), ("receives", host.receives)];
        for (what, pace) in paces {
            if pace.packets.is_some_and(|packets| !(packets > 0.0 && packets.is_finite())) {
                let what =
                    format!("{} {what} packets at a rate that is not a positive number", host.name);
                return fault(place, what);
            }
            if pace.rate == Some(Rate::ZERO) {
                return fault(place, format!("{} {what} at a rate of zero", host.name));
            }
        }
        if host.nic == Some(Rate::ZERO) {
            return fault(place, format!("the card of {} has a rate of zero", host.name));
        }
        if let Some(queue) = host.nic_queue {
            if host.nic.is_none() {
                return fault(place, format!("{} has a queue for a card, but no card", host.name));
            }
            if queue < Bytes::new(self.mtu.into()) {
                let (name, mtu) = (&host.name, self.mtu);
                let what =
                    format!("{name}: a card queue of {queue} is smaller than a packet of {mtu} B");
                return fault(place, what);
            }
        }
        if host.send_buffer < Bytes::new(self.mtu.into()) {
            let (buffer, mtu) = (host.send_buffer, self.mtu);
            let what = format!("a send buffer of {buffer} is smaller than a packet of {mtu} B");
            return fault(place, what);
        }
        if host.socket_buffer < Bytes::new(self.mtu.into()) {
            return fault(
                place,
                format!(
                    "a socket buffer of {} is smaller than a packet of {} B",
                    host.socket_buffer, self.mtu
                ),
            );
        }
        if let Some(memory) = host.memory.filter(|memory| *memory < Host::LEAST_MEMORY) {
            let (name, least) = (&host.name, Host::LEAST_MEMORY);
            return fault(
                place,
                format!("{memory} of memory for copies to {name}; at least {least}"),
            );
        }
        if let Some(disk) = host.disk {
            if disk.rate == Rate::ZERO {
                return fault(place, format!("the disk of {} has a rate of zero", host.name));
            }
            if disk.stalls.is_some_and(|stalls| stalls.length >= stalls.every) {
                return fault(
                    place,
                    format!("the disk of {} never works between stalls", host.name),
                );
            }
        }
        Ok(())
    }

    fn check_links(&self) -> Result<BTreeSet<(usize, usize)>, Fault> {
        let nodes = self.nodes();
        let mut seen = BTreeSet::new();
        for (i, LinkBetween { from, to, link }) in self.network.links.iter().enumerate() {
            let place = Place::Link(i);
            if *from >= nodes || *to >= nodes {
                let what = format!(
                    "a link from node {from} to node {to}; the {nodes} nodes are numbered from 0"
                );
                return fault(place, what);
            }
            let ends = || format!("{} to {}", self.node_name(*from), self.node_name(*to));
            if from == to {
                return fault(place, format!("the link from {} ends where it begins", ends()));
            }
            if !seen.insert((*from, *to)) {
                return fault(place, format!("two links from {}", ends()));
            }
            if let Err(error) = link.validate(self.mtu.into()) {
                return fault(place, format!("link {}: {error}", ends()));
            }
        }
        Ok(seen)
    }

    /// Checks that links connect each host to another host, if there are several hosts.
    fn check_connected(&self, joined: &BTreeSet<(usize, usize)>) -> Checked {
        let hosts = self.hosts.len();
        // Connected nodes form a tree; its root has the lowest index.
        let mut parents: Vec<usize> = (0..self.nodes()).collect();
        // The root of the tree of `node`.
        let root = |parents: &mut Vec<usize>, mut node: usize| {
            while parents[node] != node {
                parents[node] = parents[parents[node]];
                node = parents[node];
            }
            node
        };
        for (from, to) in joined {
            let (from, to) = (root(&mut parents, *from), root(&mut parents, *to));
            parents[from.max(to)] = from.min(to);
        }
        // Each tree's number of hosts, at its root.
        let mut hosts_of = vec![0u32; self.nodes()];
        for host in 0..hosts {
            hosts_of[root(&mut parents, host)] += 1;
        }
        for (place, host) in self.hosts.iter().enumerate() {
            if hosts > 1 && hosts_of[root(&mut parents, place)] == 1 {
                let what = format!("host {}: no link connects it to another host", host.name);
                return fault(Place::Host(place), what);
            }
        }
        Ok(())
    }

    fn check_route(
        &self,
        place: Place,
        route: &Route,
        joined: &BTreeSet<(usize, usize)>,
    ) -> Checked {
        let hosts = self.hosts.len();
        if route.from >= hosts || route.to >= hosts {
            return fault(place, "a route must begin and end at a host");
        }
        let ends = format!("{} to {}", self.node_name(route.from), self.node_name(route.to));
        let mut seen = BTreeSet::from([route.from]);
        let mut at = route.from;
        for node in route.via.iter().copied().chain([route.to]) {
            if node >= self.nodes() || (node < hosts && node != route.to) {
                return fault(place, format!("the route from {ends} may pass only routers"));
            }
            if !seen.insert(node) {
                let again = self.node_name(node);
                return fault(place, format!("the route from {ends} passes {again} twice"));
            }
            if !joined.contains(&(at, node)) {
                let (a, b) = (self.node_name(at), self.node_name(node));
                let what = format!("the route from {ends} needs a link from {a} to {b}");
                return fault(place, what);
            }
            at = node;
        }
        Ok(())
    }

    fn check_flows(&self) -> Checked {
        let mut routes = self.routes();
        let mut names = BTreeSet::new();
        for (i, flow) in self.flows.iter().enumerate() {
            let place = Place::Flow(i);
            if flow.from >= self.hosts.len() || flow.to >= self.hosts.len() {
                return fault(place, format!("flow {} must be between two hosts", flow.name));
            }
            if !names.insert(&flow.name) {
                return fault(place, format!("two flows are named {}", flow.name));
            }
            let (from, to) = (self.node_name(flow.from), self.node_name(flow.to));
            let command = matches!(flow.traffic, Traffic::Command(_));
            if flow.from == flow.to && !command {
                return fault(place, format!("flow {} goes from {from} to itself", flow.name));
            }
            for (a, b) in [(flow.from, flow.to), (flow.to, flow.from)] {
                if routes.between(a, b).is_none() {
                    let (a, b) = (self.node_name(a), self.node_name(b));
                    let what = format!("flow {}: no route leads from {a} to {b}", flow.name);
                    return fault(place, what);
                }
            }
            self.check_flow(place, flow, to)?;
        }
        Ok(())
    }

    fn check_flow(&self, place: Place, flow: &Flow, to: &str) -> Checked {
        let name = &flow.name;
        let nothing = [Amount::Size(Bytes::ZERO), Amount::Lasts(Span::ZERO)];
        if nothing.contains(&flow.amount) {
            return fault(place, format!("flow {name} sends nothing"));
        }
        if flow.start.since(longhaul_proto::time::Time::ZERO) > self.time_limit {
            return fault(place, format!("flow {name} starts after the time limit"));
        }
        match &flow.traffic {
            Traffic::Protocol(transfer) => {
                if transfer.protocol.is_empty() {
                    return fault(place, format!("flow {name} has no protocol"));
                }
                if transfer.rate == Some(Rate::ZERO) {
                    return fault(place, format!("flow {name} has a rate of zero"));
                }
                if transfer.segment == Some(Bytes::ZERO) {
                    return fault(place, format!("flow {name} has a segment size of zero"));
                }
                self.check_payload(place, name, transfer.block, 60)?;
                if transfer.reads_disk && self.hosts[flow.from].disk.is_none() {
                    let from = self.node_name(flow.from);
                    return fault(
                        place,
                        format!("flow {name} reads from a disk, but {from} has no disk"),
                    );
                }
                if transfer.writes_disk && self.hosts[flow.to].disk.is_none() {
                    return fault(
                        place,
                        format!("flow {name} writes to a disk, but {to} has no disk"),
                    );
                }
                if transfer.settings.values().any(|value| !value.is_finite()) {
                    return fault(place, format!("flow {name} has a setting that is not a number"));
                }
                Ok(())
            }
            Traffic::Tcp(tcp) => check_tcp(place, name, tcp),
            Traffic::Udp(udp) => {
                if udp.rate == Rate::ZERO || udp.bursts.is_some_and(|(on, _)| on == Span::ZERO) {
                    return fault(place, format!("flow {name} sends nothing"));
                }
                self.check_payload(place, name, udp.datagram, 28)
            }
            Traffic::Mice(mice) => {
                if mice.count == 0 || mice.count > MAX_CONNECTIONS {
                    let what =
                        format!("flow {name} has {} mice; 1 to {MAX_CONNECTIONS}", mice.count);
                    return fault(place, what);
                }
                let at_once = [Arrivals::Poisson(Span::ZERO)];
                if at_once.contains(&mice.arrivals) {
                    return fault(
                        place,
                        format!("flow {name}: its mice would all start at the same time"),
                    );
                }
                if !matches!(flow.amount, Amount::Size(_)) {
                    return fault(place, format!("flow {name}: its mice have no size"));
                }
                check_tcp(place, name, &mice.tcp)
            }
            Traffic::Command(command) if command.trim().is_empty() => {
                fault(place, format!("flow {name} has an empty command"))
            }
            Traffic::Command(_) => Ok(()),
        }
    }

    fn check_payload(&self, place: Place, flow: &str, bytes: Option<u32>, headers: u32) -> Checked {
        let most = u32::from(self.mtu).saturating_sub(headers);
        match bytes {
            Some(bytes) if bytes == 0 || bytes > most => fault(
                place,
                format!(
                    "flow {flow}: {bytes} bytes a datagram; an MTU of {} takes 1 to {most}",
                    self.mtu
                ),
            ),
            _ => Ok(()),
        }
    }
}

fn check_tcp(place: Place, name: &str, tcp: &Tcp) -> Checked {
    if tcp.streams == 0 || tcp.streams > MAX_CONNECTIONS {
        let what = format!("flow {name} has {} streams; 1 to {MAX_CONNECTIONS}", tcp.streams);
        return fault(place, what);
    }
    if tcp.initial_window == 0 {
        return fault(place, format!("flow {name} has an initial window of zero segments"));
    }
    if tcp.window.is_some_and(|window| window < Bytes::new(1_460)) {
        return fault(place, format!("flow {name} has a window smaller than a segment"));
    }
    Ok(())
}
