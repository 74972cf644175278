//! Nodes, one-way links between them, and routes.

use core::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use longhaul_proto::time::Span;

use crate::link::LinkSpec;

/// Routers, links and routes. Node indices count the hosts first, then the routers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Network {
    /// The names of the routers.
    pub routers: Vec<String>,
    /// One-way links, at most one from a node to another.
    pub links: Vec<LinkBetween>,
    /// The scenario's routes, which override computed ones.
    pub routes: Vec<Route>,
}

impl Network {
    /// Returns a finder of routes. Nodes with an index below `hosts` are hosts.
    pub fn routes(&self, hosts: usize) -> Routes<'_> {
        Routes::new(self, hosts + self.routers.len())
    }
}

/// A one-way link between two nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkBetween {
    /// The sending node.
    pub from: usize,
    /// The receiving node.
    pub to: usize,
    /// The link's properties.
    pub link: LinkSpec,
}

/// A route that the scenario sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The index of the sending host.
    pub from: usize,
    /// The index of the receiving host.
    pub to: usize,
    /// The nodes between the two hosts; empty for a direct link.
    pub via: Vec<usize>,
}

/// Finds the route between two hosts: the scenario's route if there is one, otherwise the route
/// with the lowest delay. Of routes with equal delay, the route with the fewest links is chosen,
/// then the route whose links the scenario lists first.
///
/// Only routers forward packets: no route leads through a host.
#[derive(Clone, Debug)]
pub struct Routes<'n> {
    network: &'n Network,
    nodes: usize,
    /// Only nodes from this index on forward packets.
    first_router: usize,
    into: Vec<Vec<usize>>,
    trees: BTreeMap<usize, Vec<Option<usize>>>,
}

impl<'n> Routes<'n> {
    fn new(network: &'n Network, nodes: usize) -> Routes<'n> {
        let mut into = vec![Vec::new(); nodes];
        for (index, link) in network.links.iter().enumerate() {
            into[link.to].push(index);
        }
        let first_router = nodes - network.routers.len();
        Routes { network, nodes, first_router, into, trees: BTreeMap::new() }
    }

    /// The links of the route from one node to another, in order. `None` without a route.
    pub fn between(&mut self, from: usize, to: usize) -> Option<Vec<usize>> {
        let given = self.network.routes.iter().find(|route| (route.from, route.to) == (from, to));
        if let Some(route) = given {
            return self.along(route);
        }
        let network = self.network;
        let tree = self.tree(to);
        let (mut at, mut links) = (from, Vec::new());
        while at != to {
            let next = tree[at]?;
            links.push(next);
            at = network.links[next].to;
        }
        Some(links)
    }

    /// The delay of a route, without jitter and queues.
    pub fn delay(&self, links: &[usize]) -> Span {
        links.iter().fold(Span::ZERO, |sum, link| sum + self.network.links[*link].link.delay)
    }

    fn along(&self, route: &Route) -> Option<Vec<usize>> {
        let mut at = route.from;
        let nodes = route.via.iter().chain([&route.to]);
        nodes
            .map(|node| {
                let before = core::mem::replace(&mut at, *node);
                let ends = |link: &&usize| self.network.links[**link].from == before;
                self.into[*node].iter().find(ends).copied()
            })
            .collect()
    }

    /// The first link of each node's route to `to`, by Dijkstra's algorithm from `to`.
    fn tree(&mut self, to: usize) -> &[Option<usize>] {
        let (network, into, nodes) = (self.network, &self.into, self.nodes);
        let first_router = self.first_router;
        self.trees.entry(to).or_insert_with(|| {
            let mut next = vec![None; nodes];
            let mut best = vec![(Span::MAX, usize::MAX, usize::MAX); nodes];
            let mut heap = BinaryHeap::from([Reverse((Span::ZERO, 0, to))]);
            best[to] = (Span::ZERO, 0, 0);
            while let Some(Reverse((delay, hops, node))) = heap.pop() {
                let stale = (delay, hops) > (best[node].0, best[node].1);
                let forwards = node == to || node >= first_router;
                if stale || !forwards {
                    continue;
                }
                for index in &into[node] {
                    let link = &network.links[*index];
                    let way = (delay + link.link.delay, hops + 1, *index);
                    if way < best[link.from] {
                        best[link.from] = way;
                        next[link.from] = Some(*index);
                        heap.push(Reverse((way.0, way.1, link.from)));
                    }
                }
            }
            next
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn link(from: usize, to: usize, millis: u64) -> LinkBetween {
        let link = LinkSpec { delay: Span::from_millis(millis), ..LinkSpec::default() };
        LinkBetween { from, to, link }
    }

    /// Hosts 0, 1, 2; routers 3, 4.
    fn network(links: Vec<LinkBetween>, routes: Vec<Route>) -> Network {
        Network { routers: vec!["r".into(), "s".into()], links, routes }
    }

    #[test]
    fn the_computed_route_has_the_least_delay_and_then_the_fewest_links() {
        let links = vec![
            link(0, 3, 5),  // index 0
            link(3, 1, 5),  // index 1
            link(0, 4, 1),  // index 2
            link(4, 1, 1),  // index 3
            link(3, 4, 0),  // index 4
            link(4, 2, 9),  // index 5
            link(0, 2, 10), // index 6
        ];
        let network = network(links, Vec::new());
        let mut routes = Routes::new(&network, 5);
        assert_eq!(routes.between(0, 1), Some(vec![2, 3]));
        let way = routes.between(0, 2).unwrap();
        assert_eq!(way, [6], "same delay as by router 4, but one link");
        assert_eq!(routes.delay(&way), Span::from_millis(10));
        assert_eq!(routes.between(1, 0), None);
        assert_eq!(routes.between(1, 1), Some(vec![]));
    }

    #[test]
    fn of_two_equal_routes_the_one_whose_links_are_listed_first_is_used() {
        for first in [3, 4] {
            let second = 7 - first;
            let links =
                vec![link(0, first, 1), link(first, 1, 1), link(0, second, 1), link(second, 1, 1)];
            let network = network(links, Vec::new());
            assert_eq!(Routes::new(&network, 5).between(0, 1), Some(vec![0, 1]));
        }
    }

    #[test]
    fn no_route_leads_through_a_host() {
        let network = network(vec![link(0, 1, 1), link(1, 2, 1)], Vec::new());
        assert_eq!(Routes::new(&network, 5).between(0, 2), None);
    }

    #[test]
    fn a_route_that_the_scenario_sets_overrides_the_computed_one() {
        let links = vec![link(0, 1, 1), link(0, 3, 9), link(3, 4, 9), link(4, 1, 9)];
        let route = Route { from: 0, to: 1, via: vec![3, 4] };
        let with_route = network(links.clone(), vec![route]);
        assert_eq!(Routes::new(&with_route, 5).between(0, 1), Some(vec![1, 2, 3]));
        let broken = network(links, vec![Route { from: 0, to: 1, via: vec![4] }]);
        assert_eq!(Routes::new(&broken, 5).between(0, 1), None);
    }

    /// The lowest delay from each node to `to` through routers (nodes from 3 on), by Bellman and
    /// Ford.
    fn least_delays(links: &[LinkBetween], nodes: usize, to: usize) -> Vec<Span> {
        let mut least = vec![Span::MAX; nodes];
        least[to] = Span::ZERO;
        for _ in 0..nodes {
            for LinkBetween { from, to: next, link } in links {
                if (*next == to || *next >= 3) && least[*next] < Span::MAX {
                    least[*from] = least[*from].min(least[*next] + link.delay);
                }
            }
        }
        least
    }

    proptest! {
        #[test]
        fn a_route_has_the_least_delay_and_leads_through_routers_only(
            ends in prop::collection::vec((0usize..8, 0usize..8, 0u64..4), 0..30),
        ) {
            let ends = ends.into_iter().filter(|(from, to, _)| from != to);
            let links: Vec<LinkBetween> = ends.map(|(a, b, delay)| link(a, b, delay)).collect();
            let routers = ["r", "s", "t", "u", "v"].map(String::from).into();
            let network = Network { routers, links: links.clone(), routes: Vec::new() };
            let mut routes = network.routes(3);
            for (from, to) in (0..3).flat_map(|from| (0..3).map(move |to| (from, to))) {
                let least = least_delays(&links, 8, to)[from];
                let Some(way) = routes.between(from, to) else {
                    prop_assert_eq!(least, Span::MAX);
                    continue;
                };
                prop_assert_eq!(routes.delay(&way), least);
                let mut at = from;
                for (nth, link) in way.iter().enumerate() {
                    prop_assert_eq!(links[*link].from, at);
                    at = links[*link].to;
                    prop_assert!(at >= 3 || nth + 1 == way.len());
                }
                prop_assert_eq!(at, to);
            }
        }
    }
}
