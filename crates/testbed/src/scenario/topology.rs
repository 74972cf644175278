//! Well-known network topologies, built from a few numbers.

use super::{LinkBetween, Network};
use crate::link::LinkSpec;

/// Both directions between two nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Duplex {
    /// From the first node to the second.
    pub forward: LinkSpec,
    /// From the second node to the first.
    pub back: LinkSpec,
}

impl Duplex {
    /// The same link in both directions.
    pub fn both(link: LinkSpec) -> Duplex {
        Duplex { forward: link.clone(), back: link }
    }
}

/// A well-known network topology.
#[derive(Clone, Debug, PartialEq)]
pub enum Topology {
    /// Hosts `a` and `b` with one link.
    Pair(Duplex),
    /// Hosts `left1`, `left2`, … at router `left`, hosts `right1`, `right2`, … at router `right`,
    /// and a shared link between the routers. The hosts' links take the entries of `access` in
    /// turn, the left hosts first.
    Dumbbell {
        /// Hosts on the left.
        left: usize,
        /// Hosts on the right.
        right: usize,
        /// From `left` to `right`.
        bottleneck: Duplex,
        /// From host to router.
        access: Vec<Duplex>,
    },
    /// Hosts `h1`, `h2`, … around `hub`. The hosts' links take the entries of `access` in turn.
    Star {
        /// The number of hosts.
        hosts: usize,
        /// From host to hub.
        access: Vec<Duplex>,
    },
    /// Routers `r1`, `r2`, … in a row, each with a host `h1`, `h2`, …. The hosts' links take the
    /// entries of `access` in turn.
    ParkingLot {
        /// The number of links in the row; there is one router more.
        hops: usize,
        /// From a router to the next router.
        bottleneck: Duplex,
        /// From host to router.
        access: Vec<Duplex>,
    },
}

impl Topology {
    /// The number of nodes.
    pub fn nodes(&self) -> usize {
        match self {
            Topology::Pair(_) => 2,
            Topology::Dumbbell { left, right, .. } => left.saturating_add(*right).saturating_add(2),
            Topology::Star { hosts, .. } => hosts.saturating_add(1),
            Topology::ParkingLot { hops, .. } => hops.saturating_add(1).saturating_mul(2),
        }
    }

    /// The host names and the network. Without entries in `access`, the hosts' links have no delay
    /// and no limits.
    pub fn build(&self) -> (Vec<String>, Network) {
        let numbered = |prefix: &str, n: usize| -> Vec<String> {
            (1..=n).map(|i| format!("{prefix}{i}")).collect()
        };
        match self {
            Topology::Pair(link) => {
                let mut links = Links::default();
                links.join(0, 1, link);
                (vec!["a".into(), "b".into()], links.network(Vec::new()))
            }
            Topology::Dumbbell { left, right, bottleneck, access } => {
                let (n, mut links) = (left + right, Links::default());
                links.join(n, n + 1, bottleneck);
                for (host, link) in links.accesses(access, n) {
                    links.join(host, if host < *left { n } else { n + 1 }, &link);
                }
                let hosts = [numbered("left", *left), numbered("right", *right)].concat();
                (hosts, links.network(vec!["left".into(), "right".into()]))
            }
            Topology::Star { hosts, access } => {
                let mut links = Links::default();
                for (host, link) in links.accesses(access, *hosts) {
                    links.join(host, *hosts, &link);
                }
                (numbered("h", *hosts), links.network(vec!["hub".into()]))
            }
            Topology::ParkingLot { hops, bottleneck, access } => {
                let (n, mut links) = (hops + 1, Links::default());
                for hop in 0..*hops {
                    links.join(n + hop, n + hop + 1, bottleneck);
                }
                for (host, link) in links.accesses(access, n) {
                    links.join(host, n + host, &link);
                }
                (numbered("h", n), links.network(numbered("r", n)))
            }
        }
    }
}

#[derive(Default)]
struct Links(Vec<LinkBetween>);

impl Links {
    fn join(&mut self, from: usize, to: usize, link: &Duplex) {
        self.0.push(LinkBetween { from, to, link: link.forward.clone() });
        self.0.push(LinkBetween { from: to, to: from, link: link.back.clone() });
    }

    fn accesses(&self, access: &[Duplex], n: usize) -> Vec<(usize, Duplex)> {
        let plain = [Duplex::both(LinkSpec::default())];
        let access = if access.is_empty() { &plain } else { access };
        (0..n).zip(access.iter().cycle().cloned()).collect()
    }

    fn network(self, routers: Vec<String>) -> Network {
        Network { routers, links: self.0, routes: Vec::new() }
    }
}
