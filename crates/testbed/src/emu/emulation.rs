//! An emulation: its hosts, the forwarder between them, and the keeper of their programs.

use std::ffi::OsStr;
use std::time::Instant;

use longhaul_proto::time::Span;

use super::EmulationError;
use super::awake::Awake;
use super::command::HostCommand;
use super::forwarder::{Forwarder, Remote};
use super::host::{self, Host};
use super::keeper::Keeper;
use super::spec::{EmulationSpec, HostAddresses};
use super::statistics::{HostStatistics, LinkStatistics, Statistics};
use super::ways::Ways;
use crate::link::LinkSpec;

/// Hosts on this machine with an emulated path between them, while this value lives.
///
/// The drop, or any end of the process, kills every program on the hosts and removes the hosts.
pub struct Emulation {
    // Drop order: programs, path, hosts.
    keeper: Keeper,
    remote: Remote,
    hosts: Vec<Host>,
    awake: Awake,
    routers: Vec<String>,
    ends: Vec<(usize, usize)>,
    /// The links with schedules, in their initial state.
    changing: Vec<(usize, LinkSpec)>,
    started: Instant,
    mtu: u16,
    notices: Vec<String>,
}

impl Emulation {
    /// Creates the hosts and starts forwarding.
    ///
    /// If the process may not create network namespaces, it is put into a user namespace first.
    /// Such a process must not have started a thread.
    ///
    /// # Errors
    /// [`EmulationError::Forbidden`] if this machine does not let this user emulate (see
    /// [`super::available`]); [`EmulationError::Spec`] and [`EmulationError::Link`] for an invalid
    /// specification; [`EmulationError::System`] if a system call fails.
    pub fn start(spec: EmulationSpec) -> Result<Emulation, EmulationError> {
        spec.validate()?;
        let ways = Ways::of(&spec)?;
        host::become_root_if_needed()?;
        let mut hosts = Vec::new();
        let mut ports = Vec::new();
        for (index, name) in spec.hosts.iter().enumerate() {
            let card = spec.cards.iter().find(|(place, _)| *place == index).map(|(_, rate)| *rate);
            let (host, port) = host::make(name, HostAddresses::of(index), spec.mtu, card)?;
            hosts.push(host);
            ports.push(port);
        }
        let keeper = Keeper::start(names(&hosts))?;
        let network = spec.network;
        let ends = network.links.iter().map(|l| (l.from, l.to)).collect();
        let links = network.links.iter().map(|between| between.link.clone()).enumerate();
        let changing = links.filter(|(_, link)| !link.schedule.is_empty()).collect();
        let started = Instant::now();
        let awake = Awake::keep();
        let remote = Forwarder::start(ports, network.links, ways, spec.seed, awake.rouser())?;
        let mut notices: Vec<String> =
            hosts.iter_mut().flat_map(|host| core::mem::take(&mut host.notices)).collect();
        // Keep equal notices of hosts once.
        notices.sort();
        notices.dedup();
        let routers = network.routers;
        let mtu = spec.mtu;
        Ok(Emulation {
            keeper,
            remote,
            hosts,
            awake,
            routers,
            ends,
            changing,
            started,
            mtu,
            notices,
        })
    }

    /// Prepares a program to run on the host named `host`.
    ///
    /// # Errors
    /// [`EmulationError::NoSuchHost`].
    pub fn command(
        &self,
        host: &str,
        program: impl AsRef<OsStr>,
    ) -> Result<HostCommand<'_>, EmulationError> {
        Ok(HostCommand::new(self.host(host)?, &self.keeper, program.as_ref()))
    }

    /// Runs `work` in a new thread within the host and waits for its result. Sockets and threads
    /// that `work` opens belong to the host, and may outlive the call.
    ///
    /// # Errors
    /// [`EmulationError::NoSuchHost`]; or the namespace cannot be entered.
    pub fn enter_host<T: Send>(
        &self,
        host: &str,
        work: impl FnOnce() -> T + Send,
    ) -> Result<T, EmulationError> {
        let host = self.host(host)?;
        host.enter(work).map_err(EmulationError::system("enter a host"))
    }

    /// The addresses of the host named `host`.
    ///
    /// # Errors
    /// [`EmulationError::NoSuchHost`].
    pub fn addresses(&self, host: &str) -> Result<HostAddresses, EmulationError> {
        Ok(self.host(host)?.addresses)
    }

    /// The names of the hosts, in order.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        self.hosts.iter().map(|host| host.name.as_str())
    }

    /// Limitations of this machine, in sentences.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// Replaces the link from node `from` to node `to`, except for packets in flight. The new
    /// link's schedule counts from the emulation's start.
    ///
    /// # Errors
    /// [`EmulationError::NoSuchHost`]; [`EmulationError::Spec`] if there is no such link;
    /// [`EmulationError::Link`] if the new link is invalid; [`EmulationError::Ended`] if the
    /// forwarder failed.
    pub fn update_link(&self, from: &str, to: &str, link: LinkSpec) -> Result<(), EmulationError> {
        link.validate(self.mtu.into()).map_err(|error| EmulationError::Link {
            from: from.into(),
            to: to.into(),
            error,
        })?;
        let ends = (self.node(from)?, self.node(to)?);
        let found = self.ends.iter().position(|e| *e == ends);
        let index =
            found.ok_or_else(|| EmulationError::Spec(format!("no link from {from} to {to}")))?;
        self.remote.update_link(index, link)
    }

    /// Restarts all schedules now.
    pub(crate) fn begin_schedules(&self) -> Result<(), EmulationError> {
        let passed = Span::from_secs_f64(self.started.elapsed().as_secs_f64());
        for (index, link) in &self.changing {
            let mut link = link.clone();
            link.schedule.iter_mut().for_each(|step| step.at += passed);
            self.remote.update_link(*index, link)?;
        }
        Ok(())
    }

    /// The statistics so far.
    ///
    /// # Errors
    /// [`EmulationError::Ended`] if the forwarder failed.
    pub fn statistics(&self) -> Result<Statistics, EmulationError> {
        let report = self.remote.report()?;
        let name = |node: usize| match node.checked_sub(self.hosts.len()) {
            None => self.hosts[node].name.clone(),
            Some(router) => self.routers[router].clone(),
        };
        let links = self.ends.iter().zip(&report.links).map(|((from, to), link)| LinkStatistics {
            from: name(*from),
            to: name(*to),
            tally: link.tally,
        });
        let hosts = self.hosts.iter().map(|host| HostStatistics {
            host: host.name.clone(),
            socket_drops: host.socket_drops.read(),
        });
        Ok(Statistics {
            links: links.collect(),
            hosts: hosts.collect(),
            in_flight: report.in_flight,
            delivered: report.delivered,
            own_drops: report.own_drops,
            offered: report.offered,
            frames: report.frames,
            unrouted: report.unrouted,
            late: report.late,
            waited: report.waited,
            burst_drops: report.burst_drops,
            notices: self.notices.clone(),
            processor: report.processor,
            awake: self.awake.taken(),
            elapsed: report.elapsed,
            shortest_delay: report.links.iter().map(|l| l.delay).min().unwrap_or(Span::ZERO),
        })
    }

    fn node(&self, name: &str) -> Result<usize, EmulationError> {
        let names = self.hosts().chain(self.routers.iter().map(String::as_str));
        let found = names.zip(0..).find(|(node, _)| *node == name);
        found.map(|(_, place)| place).ok_or_else(|| EmulationError::NoSuchHost(name.into()))
    }

    fn host(&self, name: &str) -> Result<&Host, EmulationError> {
        let found = self.hosts.iter().find(|host| host.name == name);
        found.ok_or_else(|| EmulationError::NoSuchHost(name.into()))
    }
}

fn names(hosts: &[Host]) -> String {
    let mut lines = String::from("127.0.0.1 localhost\n::1 localhost\n");
    for host in hosts {
        let HostAddresses { v4, v6 } = host.addresses;
        lines += &format!("{v4} {name}\n{v6} {name}\n", name = host.name);
    }
    lines
}
