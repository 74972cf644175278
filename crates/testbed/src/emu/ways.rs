//! Routes: a packet's links from host to host.

use super::EmulationError;
use super::spec::EmulationSpec;

#[derive(Debug)]
pub(super) struct Ways {
    hosts: usize,
    /// For each pair of hosts, the index of its route.
    pairs: Vec<Option<u32>>,
    ways: Vec<Box<[u32]>>,
}

impl Ways {
    pub(super) fn of(spec: &EmulationSpec) -> Result<Ways, EmulationError> {
        let hosts = spec.hosts.len();
        let mut routes = spec.network.routes(hosts);
        let (mut pairs, mut ways) = (Vec::new(), Vec::new());
        for (from, to) in (0..hosts).flat_map(|from| (0..hosts).map(move |to| (from, to))) {
            let links = routes.between(from, to).filter(|links| !links.is_empty());
            pairs.push(links.as_ref().map(|_| ways.len() as u32));
            if let Some(links) = links {
                if links.len() > usize::from(u16::MAX) {
                    let what = format!("a route of {} links; 65535 is the limit", links.len());
                    return Err(EmulationError::Spec(what));
                }
                ways.push(links.iter().map(|link| *link as u32).collect());
            }
        }
        Ok(Ways { hosts, pairs, ways })
    }

    /// The index of the route from one host to another, if there is one.
    pub(super) fn between(&self, from: usize, to: usize) -> Option<u32> {
        self.pairs[from * self.hosts + to]
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &[u32]> {
        self.ways.iter().map(|links| &**links)
    }

    pub(super) fn links(&self, way: u32) -> &[u32] {
        &self.ways[way as usize]
    }
}
