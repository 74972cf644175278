//! A scenario: hosts, the network between them, and their flows, as one value for the simulator and
//! the emulator. In reading order: `host` (a machine's limits), `graph` (nodes, one-way links,
//! routes), `topology` (well-known networks), `flow` (who sends what to whom), `checks`
//! (validation), `file` (the TOML format).

mod checks;
mod file;
mod flow;
mod graph;
mod host;
mod topology;

use longhaul_proto::time::Span;

pub use checks::{Fault, Place};
pub use file::{FileError, Reading};
pub use flow::{
    Amount, Arrivals, Congestion, Flow, Mice, Record, Strategy, Tcp, Traffic, Transfer, Udp,
};
pub use graph::{LinkBetween, Network, Route, Routes};
pub use host::{Disk, Host, Pace, Stalls};
pub use topology::{Duplex, Topology};

/// Maximum number of hosts and routers together.
pub const MAX_NODES: usize = 2_000;
/// Maximum number of one-way links, and of given routes.
pub const MAX_LINKS: usize = 20_000;
/// Maximum number of flows of a scenario.
pub const MAX_FLOWS: usize = 10_000;
/// The default for the largest IP packet, in bytes.
pub(crate) const DEFAULT_MTU: u16 = 1_500;

/// Hosts, links, flows, and what to record.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Its name in results.
    pub name: String,
    /// Its purpose, in a sentence or two.
    pub about: String,
    /// The seed of all randomness.
    pub seed: u64,
    /// When an unfinished run is stopped.
    pub time_limit: Span,
    /// The largest IP packet that a host sends, in bytes.
    pub mtu: u16,
    /// The hosts: the nodes that programs run on.
    pub hosts: Vec<Host>,
    /// Nodes, links and routes.
    pub network: Network,
    /// The flows, in the order of the file.
    pub flows: Vec<Flow>,
    /// A run's records besides its totals.
    pub record: Record,
}

impl Scenario {
    /// The index of the host named `name`.
    pub fn host(&self, name: &str) -> Option<usize> {
        self.hosts.iter().position(|host| host.name == name)
    }

    /// The name of the node with index `node`: hosts first, then routers.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn node_name(&self, node: usize) -> &str {
        match node.checked_sub(self.hosts.len()) {
            None => &self.hosts[node].name,
            Some(router) => &self.network.routers[router],
        }
    }

    /// The number of hosts and routers.
    pub fn nodes(&self) -> usize {
        self.hosts.len() + self.network.routers.len()
    }

    /// Returns a finder of routes through the network.
    pub fn routes(&self) -> Routes<'_> {
        self.network.routes(self.hosts.len())
    }
}
