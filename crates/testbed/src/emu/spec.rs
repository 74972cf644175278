//! The specification of an emulation: hosts and the links between them.

use std::net::{Ipv4Addr, Ipv6Addr};

use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, Rate};

use super::EmulationError;
use crate::link::{ETHERNET_FRAMING, LinkSpec, UDP_IP};
use crate::scenario::{Host, LinkBetween, Network, Record, Scenario};

/// Maximum number of hosts: each has its own last address byte.
pub(crate) const MAX_HOSTS: usize = 200;

/// Length of a card's queue in full packets: the usual length of a device's queue.
const CARD_QUEUE: u64 = 1_000;

/// Hosts, and the network between them.
#[derive(Clone, Debug)]
pub struct EmulationSpec {
    /// The hosts' names, resolved on every host.
    pub hosts: Vec<String>,
    /// Routers, one-way links, given routes. Packets without a route are dropped.
    pub network: Network,
    /// The largest IP packet in bytes, at least 1280 for IPv6.
    pub mtu: u16,
    /// The seed of all random losses and delays. The programs' timing may still differ.
    pub seed: u64,
    /// Hosts with a network card: the host's index, and the card's rate including framing. Packets
    /// that wait for the card occupy the programs' send buffers. If the kernel cannot do this, the
    /// emulation has a notice.
    pub cards: Vec<(usize, Rate)>,
}

/// The addresses of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostAddresses {
    /// The host's IPv4 address, 10.77.0.N.
    pub v4: Ipv4Addr,
    /// The host's IPv6 address, fd77::N.
    pub v6: Ipv6Addr,
}

impl HostAddresses {
    pub(super) fn of(index: usize) -> HostAddresses {
        let last = u8::try_from(index + 1).expect("checked against MAX_HOSTS");
        HostAddresses {
            v4: Ipv4Addr::new(10, 77, 0, last),
            v6: Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, last.into()),
        }
    }
}

impl EmulationSpec {
    /// Hosts `a` and `b`, with `forward` from a to b and `back` from b to a; MTU 1500.
    pub fn pair(forward: LinkSpec, back: LinkSpec) -> EmulationSpec {
        EmulationSpec {
            hosts: vec!["a".into(), "b".into()],
            network: Network {
                links: vec![
                    LinkBetween { from: 0, to: 1, link: forward },
                    LinkBetween { from: 1, to: 0, link: back },
                ],
                ..Network::default()
            },
            mtu: 1500,
            seed: 1,
            cards: Vec::new(),
        }
    }

    /// The hosts and the network of `scenario`. A host's card becomes a router `HOST-card`, with a
    /// link of the card's rate in each direction. The host's programs wait for the card, unless the
    /// card has a queue (`nic-queue`): then it drops the excess. The receiving program's rate and
    /// socket buffer become the last link to the host, from a router `HOST-program`, so the real
    /// program cannot count the datagrams that this link drops. Limits of sending programs and of
    /// disks are left out.
    pub fn of(scenario: &Scenario) -> EmulationSpec {
        let n = scenario.hosts.len();
        let cards: Vec<(usize, Rate)> = scenario
            .hosts
            .iter()
            .enumerate()
            .filter_map(|(place, host)| Some((place, host.nic?)))
            .collect();
        let Network { mut routers, mut links, mut routes } = scenario.network.clone();
        let first_card = n + routers.len();
        let card = |host: usize| {
            let nth = cards.iter().position(|(place, _)| *place == host);
            nth.map(|nth| first_card + nth)
        };
        for link in &mut links {
            link.from = card(link.from).unwrap_or(link.from);
            link.to = card(link.to).unwrap_or(link.to);
        }
        for route in &mut routes {
            let via = core::mem::take(&mut route.via);
            let ends = (card(route.from), card(route.to));
            route.via = ends.0.into_iter().chain(via).chain(ends.1).collect();
        }
        for (host, rate) in &cards {
            let card = n + routers.len();
            routers.push(format!("{}-card", scenario.hosts[*host].name));
            let packet = u64::from(scenario.mtu) + u64::from(ETHERNET_FRAMING);
            let queue = Bytes::new(CARD_QUEUE * packet);
            let link = |queue| LinkSpec { rate: Some(*rate), queue, ..LinkSpec::default() };
            let out = link(scenario.hosts[*host].nic_queue.unwrap_or(queue));
            links.push(LinkBetween { from: *host, to: card, link: out });
            links.push(LinkBetween { from: card, to: *host, link: link(queue) });
        }
        for (place, host) in scenario.hosts.iter().enumerate() {
            let Some(link) = program(host, scenario.mtu) else { continue };
            let program = n + routers.len();
            routers.push(format!("{}-program", host.name));
            links.iter_mut().filter(|link| link.to == place).for_each(|link| link.to = program);
            links.push(LinkBetween { from: program, to: place, link });
            routes.iter_mut().filter(|r| r.to == place).for_each(|r| r.via.push(program));
        }
        let waits = |(host, _): &(usize, Rate)| scenario.hosts[*host].nic_queue.is_none();
        let cards = cards.into_iter().filter(waits).collect();
        let hosts = scenario.hosts.iter().map(|host| host.name.clone()).collect();
        let network = Network { routers, links, routes };
        EmulationSpec { hosts, network, mtu: scenario.mtu, seed: scenario.seed, cards }
    }

    pub(super) fn validate(&self) -> Result<(), EmulationError> {
        let n = self.hosts.len();
        if n == 0 || n > MAX_HOSTS {
            let what = format!("{n} hosts; an emulation has 1 to {MAX_HOSTS}");
            return Err(EmulationError::Spec(what));
        }
        for (nth, (place, rate)) in self.cards.iter().enumerate() {
            let what = match self.hosts.get(*place) {
                None => format!("a card of host {place}, but there are {n} hosts"),
                Some(host) if *rate == Rate::ZERO => {
                    format!("the card of {host} has a rate of zero")
                }
                Some(host) if self.cards[..nth].iter().any(|(other, _)| other == place) => {
                    format!("two cards of {host}")
                }
                Some(_) => continue,
            };
            return Err(EmulationError::Spec(what));
        }
        let scenario = Scenario {
            name: String::new(),
            about: String::new(),
            seed: self.seed,
            time_limit: Span::MAX,
            mtu: self.mtu,
            hosts: self.hosts.iter().map(Host::new).collect(),
            network: self.network.clone(),
            flows: Vec::new(),
            record: Record::default(),
        };
        scenario.validate().map_err(|fault| EmulationError::Spec(fault.what))
    }
}

/// A host's receiving program as a link: its rate, with its socket buffer as the queue. `None`
/// without a limit.
fn program(host: &Host, mtu: u16) -> Option<LinkSpec> {
    let payload = Bytes::new(u64::from(mtu) - u64::from(UDP_IP));
    let frame = Bytes::new(u64::from(mtu) + u64::from(ETHERNET_FRAMING));
    let rate = host.receives.keeps_up_with(payload, frame)?;
    let datagrams = host.socket_buffer.get() / payload.get();
    let queue = Bytes::new(datagrams.max(1).saturating_mul(frame.get()));
    Some(LinkSpec { rate: Some(rate), queue, ..LinkSpec::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Reading;

    #[test]
    fn an_impossible_emulation_is_refused_with_the_reason() {
        let pair = || EmulationSpec::pair(LinkSpec::default(), LinkSpec::default());
        assert!(pair().validate().is_ok());
        let mut doubled = pair();
        doubled.network.links.extend(pair().network.links);
        let mut lonely = pair();
        lonely.network.links[0].to = 7;
        let cut_off = EmulationSpec { hosts: ["a", "b", "c"].map(String::from).into(), ..pair() };
        let named = |a: &str, b: &str| EmulationSpec { hosts: vec![a.into(), b.into()], ..pair() };
        let many = (0..=MAX_HOSTS).map(|i| format!("h{i}")).collect();
        let carded = |cards: &[(usize, u64)]| {
            let cards = cards.iter().map(|(place, mbps)| (*place, Rate::from_mbps(*mbps)));
            EmulationSpec { cards: cards.collect(), ..pair() }
        };
        assert!(carded(&[(0, 100), (1, 100)]).validate().is_ok());
        let wrong = [
            (carded(&[(2, 100)]), "a card of host 2"),
            (carded(&[(1, 0)]), "the card of b has a rate of zero"),
            (carded(&[(0, 100), (0, 50)]), "two cards of a"),
            (EmulationSpec { hosts: vec![], ..pair() }, "0 hosts"),
            (EmulationSpec { hosts: many, ..pair() }, "1 to 200"),
            (named("a", "a"), "are named a"),
            (named("a", "b c"), "letters"),
            (EmulationSpec { mtu: 100, ..pair() }, "MTU"),
            (doubled, "two links"),
            (lonely, "node 7"),
            (cut_off, "host c: no link"),
        ];
        for (spec, reason) in wrong {
            let error = spec.validate().expect_err(reason).to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn a_hosts_card_is_a_separate_link_on_every_route() {
        let text = r#"
            routers = ["r"]
            host = [{ name = "a", nic = "1G" }, { name = "b" }, { name = "c", nic = "100M" }]
            link = [{ between = ["a", "r"] }, { between = ["r", "b"] }, { between = ["r", "c"] }]
            route = [{ from = "a", to = "c", via = ["r"] }]
        "#;
        let scenario = Scenario::parse("cards", text, &Reading::PLAIN).unwrap();
        let spec = EmulationSpec::of(&scenario);
        spec.validate().unwrap();
        let mut routes = spec.network.routes(3);
        let mut rates = |from, to| -> Vec<Option<Rate>> {
            let way = routes.between(from, to).unwrap();
            way.into_iter().map(|link| spec.network.links[link].link.rate).collect()
        };
        let card = |mbps| Some(Rate::from_mbps(mbps));
        assert_eq!(rates(0, 1), [card(1_000), None, None]);
        assert_eq!(rates(0, 2), [card(1_000), None, None, card(100)]);
        assert_eq!(rates(2, 0), [card(100), None, None, card(1_000)]);
        assert_eq!(spec.cards, [(0, Rate::from_mbps(1_000)), (2, Rate::from_mbps(100))]);
    }

    #[test]
    fn a_card_with_a_queue_drops_packets_and_does_not_block_programs() {
        let text = r#"
            host = [{ name = "a", nic = "100M", nic-queue = "30KB" }, { name = "b" }]
            link = [{ between = ["a", "b"] }]
        "#;
        let scenario = Scenario::parse("queue", text, &Reading::PLAIN).unwrap();
        let spec = EmulationSpec::of(&scenario);
        assert!(spec.cards.is_empty());
        let out = spec.network.links.iter().find(|between| between.from == 0).unwrap();
        assert_eq!(out.link.queue, Bytes::new(30_000));
    }

    #[test]
    fn a_programs_receive_limit_is_the_last_link_of_each_path_to_it() {
        let text = r#"
            all-hosts = { socket-buffer = 147_200 }
            host = [{ name = "a" }, { name = "b", nic = "1G", receives-rate = "736M" }]
            link = [{ between = ["a", "b"] }]
            route = [{ from = "a", to = "b", via = [] }]
        "#;
        let scenario = Scenario::parse("programs", text, &Reading::PLAIN).unwrap();
        let spec = EmulationSpec::of(&scenario);
        spec.validate().unwrap();
        let mut routes = spec.network.routes(2);
        let mut links = |from, to| -> Vec<&LinkSpec> {
            let way = routes.between(from, to).unwrap();
            way.into_iter().map(|link| &spec.network.links[link].link).collect()
        };
        let there = links(0, 1);
        let rates: Vec<_> = there.iter().map(|link| link.rate).collect();
        // 1472 bytes of payload are 1538 on the wire.
        assert_eq!(rates, [None, Some(Rate::from_mbps(1_000)), Some(Rate::from_mbps(769))]);
        assert_eq!(there[2].queue, Bytes::new(100 * 1_538));
        assert_eq!(links(1, 0).len(), 2);
    }
}
