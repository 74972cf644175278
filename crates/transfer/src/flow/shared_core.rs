//! One receiving core (the state machine of a protocol) for many flows, on any number of ports.
//!
//! A port drives each flow separately, but a core that divides a host's capacity has to know all
//! flows. So each flow has its own [`Receiver`], which is only a handle to the shared core. The
//! handle passes the flow's input to the core, and returns the core's output for the flow.
//!
//! If the core uses them, it also gets the speed of this host's card, and the byte count of other
//! traffic on the host's access link.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use longhaul_net::access::Watch;
use longhaul_net::port::{PortHandle, PortStatistics};
use longhaul_proto::accounting::ReceiverAccounting;
use longhaul_proto::endpoint::{
    Arrival, BlockRange, BoxedReceiver, Event, FlowId, Outgoing, ReceiveCapacity, Receiver, Setup,
    Wake,
};
use longhaul_proto::registry::{self, Row};
use longhaul_proto::settings::Settings;
use longhaul_proto::time::Time;
use longhaul_proto::units::{Bytes, Rate};
use longhaul_proto::wire::Control;

use crate::options::Protocol;

/// The core of a protocol, for all flows of a copy or for flows of several transfers to a server.
#[derive(Clone)]
pub(crate) struct SharedCore {
    name: &'static str,
    inner: Arc<Mutex<Inner>>,
}

/// The cores of a server: one for all current transfers with the same protocol and settings. A
/// client with other settings gets a separate core, so that no client controls the rates of others.
#[derive(Default)]
pub(crate) struct SharedCores(Vec<InUse>);

/// A core that exists as long as a transfer uses it.
struct InUse {
    row: &'static Row,
    settings: Settings,
    inner: Weak<Mutex<Inner>>,
}

impl SharedCores {
    /// Returns the core for a transfer with `row`'s protocol and these settings; `None` if the
    /// protocol has no core for many flows.
    pub(crate) fn of(&mut self, row: &'static Row, settings: &Settings) -> Option<SharedCore> {
        if !row.many {
            return None;
        }
        self.0.retain(|used| used.inner.strong_count() > 0);
        let same = |used: &&InUse| used.row.name == row.name && used.settings == *settings;
        let found = self.0.iter().find(same).and_then(|used| used.inner.upgrade());
        Some(match found {
            Some(inner) => SharedCore { name: row.name, inner },
            None => {
                let core = SharedCore::new(row);
                let inner = Arc::downgrade(&core.inner);
                self.0.push(InUse { row, settings: settings.clone(), inner });
                core
            }
        })
    }
}

struct Inner {
    core: BoxedReceiver,
    members: BTreeMap<FlowId, Member>,
    /// Watches the access links on which data arrive, to find the rate of other traffic.
    watch: Watch,
    /// The ports of the core's flows. Their bytes do not count as other traffic.
    ports: Vec<CountedPort>,
}

/// A port, and how many of its bytes have been subtracted from the traffic of the link.
struct CountedPort {
    port: PortHandle,
    counted: u64,
}

/// A flow, and the output that the core had for it while the core served another flow.
struct Member {
    port: PortHandle,
    mail: VecDeque<Outgoing>,
    events: VecDeque<Event>,
}

impl SharedCore {
    pub(crate) fn new(row: &'static Row) -> SharedCore {
        let (members, watch, ports) = (BTreeMap::new(), Watch::default(), Vec::new());
        let inner = Inner { core: (row.receiver)(), members, watch, ports };
        SharedCore { name: row.name, inner: Arc::new(Mutex::new(inner)) }
    }

    /// Returns a core for a copy to this host by `protocol`, if the protocol divides the host's
    /// capacity.
    pub(crate) fn of_copy(protocol: &Protocol) -> Option<SharedCore> {
        match protocol {
            Protocol::Registry(name) => {
                registry::find(name).filter(|row| row.many).map(SharedCore::new)
            }
            Protocol::Tcp { .. } | Protocol::TcpTried => None,
        }
    }

    pub(crate) fn limited(self, limit: Option<Rate>) -> SharedCore {
        if let Some(limit) = limit {
            self.inner().core.set_receive_limit(limit);
        }
        self
    }

    pub(crate) fn is_of(&self, row: &Row) -> bool {
        row.name == self.name
    }

    pub(crate) fn watch(&self, peer: IpAddr, datagram: u16) {
        self.inner().watch.add(peer, datagram);
    }

    /// Returns the capacity that the core divides among the flows; `None` if it divides none.
    pub(crate) fn capacity(&self) -> Option<ReceiveCapacity> {
        self.inner().core.receive_capacity()
    }

    /// Returns the receiver of `flow`, which `port` drives; `None` if `row` is another protocol, or
    /// the core has a flow of this id already.
    pub(crate) fn of_flow(
        &self,
        row: &'static Row,
        flow: FlowId,
        port: &PortHandle,
    ) -> Option<BoxedReceiver> {
        if !self.is_of(row) {
            return None;
        }
        let (mail, events) = (VecDeque::new(), VecDeque::new());
        let member = Member { port: port.clone(), mail, events };
        let mut inner = self.inner();
        if inner.members.contains_key(&flow) {
            return None;
        }
        inner.members.insert(flow, member);
        inner.open(port);
        drop(inner);
        Some(Box::new(Handle { shared: self.clone(), flow, accounting: None }))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Recover from a flow whose code panicked: its port drops that flow, and the others
        // continue.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Counts the traffic of a port as traffic of this core from now on.
    fn open(&mut self, port: &PortHandle) {
        let is_same = |counted: &CountedPort| Arc::ptr_eq(counted.port.socket(), port.socket());
        if !self.ports.iter().any(is_same) {
            self.ports.push(CountedPort { port: port.clone(), counted: came_to(port) });
        }
    }

    /// Reports other incoming traffic to the core, if the core uses it and a report is due.
    fn look(&mut self, now: Time) {
        if !self.watch.is_due(now) || !self.core.wants_others() {
            return;
        }
        let ports = &mut self.ports;
        let ours = || {
            let ours = ports.iter_mut().map(CountedPort::count).sum();
            ports.retain(|counted| !counted.port.is_closed());
            ours
        };
        if let Some(others) = self.watch.look(now, ours) {
            self.core.set_others(now, others);
        }
    }

    /// Returns whether the flow has the lowest id of its port's flows. Only this flow of a port
    /// wakes up for the core's timers.
    fn leads(&self, flow: FlowId) -> bool {
        let Some(own) = self.members.get(&flow) else { return false };
        let of_port = |member: &Member| Arc::ptr_eq(member.port.socket(), own.port.socket());
        let first = self.members.iter().find(|(_, member)| of_port(member));
        first.is_some_and(|(first, _)| *first == flow)
    }

    /// Returns the next message for `flow`. Until the core has one, messages for other flows are
    /// moved into their queues.
    fn control_of(&mut self, now: Time, flow: FlowId) -> Option<Outgoing> {
        if let Some(waiting) = self.members.get_mut(&flow)?.mail.pop_front() {
            return Some(waiting);
        }
        while let Some(outgoing) = self.core.poll_control(now) {
            if outgoing.flow == flow {
                return Some(outgoing);
            }
            let of = outgoing.flow;
            self.post(of, |member| member.mail.push_back(outgoing));
        }
        None
    }

    fn event_of(&mut self, flow: FlowId) -> Option<Event> {
        if let Some(waiting) = self.members.get_mut(&flow)?.events.pop_front() {
            return Some(waiting);
        }
        while let Some((of, event)) = self.core.poll_event() {
            if of == flow {
                return Some(event);
            }
            self.post(of, |member| member.events.push_back(event));
        }
        None
    }

    /// Queues output for a flow, and wakes the flow for the first item.
    fn post(&mut self, flow: FlowId, post: impl FnOnce(&mut Member)) {
        let Some(member) = self.members.get_mut(&flow) else { return };
        if member.mail.is_empty() && member.events.is_empty() {
            member.port.wake(flow);
        }
        post(member);
    }
}

impl CountedPort {
    fn count(&mut self) -> u64 {
        let came = came_to(&self.port);
        came.saturating_sub(std::mem::replace(&mut self.counted, came))
    }
}

/// Returns the number of bytes that arrived at a port, with an estimate for datagrams that the full
/// socket dropped: the link carried them too.
fn came_to(port: &PortHandle) -> u64 {
    let seen = port.statistics();
    let each = seen.bytes as f64 / seen.received.max(1) as f64;
    let dropped = seen.dropped_since(&PortStatistics::default());
    seen.bytes.saturating_add((dropped * each) as u64)
}

struct Handle {
    shared: SharedCore,
    flow: FlowId,
    /// The flow's accounts at the last call of [`Receiver::set_socket_lost`]. The flow makes that
    /// call before each request for its accounts.
    accounting: Option<ReceiverAccounting>,
}

impl Receiver for Handle {
    fn on_datagrams(&mut self, now: Time, flow: FlowId, arrivals: &[Arrival]) {
        self.shared.inner().core.on_datagrams(now, flow, arrivals);
    }

    fn on_control(&mut self, now: Time, flow: FlowId, control: &Control) {
        self.shared.inner().core.on_control(now, flow, control);
    }

    fn on_timeout(&mut self, now: Time) {
        self.shared.inner().core.on_timeout(now);
    }

    fn skip(&mut self, now: Time, flow: FlowId, blocks: BlockRange) {
        self.shared.inner().core.skip(now, flow, blocks);
    }

    fn set_grant(&mut self, now: Time, flow: FlowId, grant: Bytes, drain: Option<Rate>) {
        self.shared.inner().core.set_grant(now, flow, grant, drain);
    }

    fn set_socket_lost(&mut self, now: Time, flow: FlowId, lost: u64) {
        let mut inner = self.shared.inner();
        inner.core.set_socket_lost(now, flow, lost);
        inner.look(now);
        self.accounting = inner.core.accounting(flow).copied();
    }

    fn poll_control(&mut self, now: Time) -> Option<Outgoing> {
        self.shared.inner().control_of(now, self.flow)
    }

    fn poll_event(&mut self) -> Option<(FlowId, Event)> {
        let event = self.shared.inner().event_of(self.flow)?;
        Some((self.flow, event))
    }

    fn next_wakeup(&self) -> Wake {
        let inner = self.shared.inner();
        if inner.leads(self.flow) { inner.core.next_wakeup() } else { Wake::OnInput }
    }

    fn is_finished(&self, flow: FlowId) -> bool {
        self.shared.inner().core.is_finished(flow)
    }

    fn accounting(&self, _flow: FlowId) -> Option<&ReceiverAccounting> {
        self.accounting.as_ref()
    }

    fn add_flow(&mut self, now: Time, setup: &Setup) {
        let mut inner = self.shared.inner();
        inner.core.add_flow(now, setup);
        inner.look(now);
    }

    fn remove_flow(&mut self, flow: FlowId) {
        self.shared.inner().core.remove_flow(flow);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut inner = self.shared.inner();
        inner.core.remove_flow(self.flow);
        inner.members.remove(&self.flow);
    }
}

#[cfg(test)]
mod tests {
    use longhaul_net::port::Port;

    use super::*;
    use longhaul_proto::layout::Layout;
    use longhaul_proto::registry;
    use longhaul_proto::time::Span;
    use std::net::Ipv4Addr;

    fn setup(flow: u32) -> Setup {
        let layout = Layout::new(Bytes::mebi(4), Bytes::mebi(4), Bytes::mebi(1), 1440).unwrap();
        Setup::new(FlowId(flow), layout, Span::from_millis(10))
    }

    #[test]
    fn output_of_the_core_reaches_the_flow_that_it_concerns() {
        let row = registry::of_many();
        let shared = SharedCore::new(row);
        let port = Port::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let of_flow = |flow| shared.of_flow(row, FlowId(flow), &port).unwrap();
        let (mut first, mut second) = (of_flow(1), of_flow(2));
        first.add_flow(Time::ZERO, &setup(1));
        second.add_flow(Time::ZERO, &setup(2));
        // Only the first of the two flows wakes up for the timers of the core.
        assert!(matches!(first.next_wakeup(), Wake::At(..)));
        assert_eq!(second.next_wakeup(), Wake::OnInput);
        let (mut of_first, mut of_second) = (Vec::new(), Vec::new());
        for tick in 0..20 {
            let now = Time::ZERO + Span::from_millis(10) * tick;
            first.on_timeout(now);
            of_first.extend(std::iter::from_fn(|| first.poll_control(now)));
            of_second.extend(std::iter::from_fn(|| second.poll_control(now)));
        }
        assert!(!of_first.is_empty() && of_first.iter().all(|said| said.flow == FlowId(1)));
        assert!(!of_second.is_empty() && of_second.iter().all(|said| said.flow == FlowId(2)));
        drop(first);
        assert!(matches!(second.next_wakeup(), Wake::At(..)));
    }

    #[test]
    fn a_flow_of_another_protocol_or_with_a_used_id_cannot_use_the_shared_core() {
        let row = registry::of_many();
        let shared = SharedCore::new(row);
        let port = Port::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let other = registry::all().iter().find(|row| !row.many).unwrap();
        assert!(shared.of_flow(other, FlowId(1), &port).is_none());
        let _first = shared.of_flow(row, FlowId(1), &port).unwrap();
        assert!(shared.of_flow(row, FlowId(1), &port).is_none());
    }

    #[test]
    fn transfers_with_equal_settings_share_a_core_that_is_dropped_with_the_last_transfer() {
        let row = registry::of_many();
        let mut cores = SharedCores::default();
        let same = |a: &SharedCore, b: &SharedCore| Arc::ptr_eq(&a.inner, &b.inner);
        let plain = Settings::default();
        let limited = Settings::default().with(row, "receive-rate", 100.0).unwrap();
        let first = cores.of(row, &plain).unwrap();
        assert!(same(&first, &cores.of(row, &plain).unwrap()));
        assert!(!same(&first, &cores.of(row, &limited).unwrap()));
        let before = Arc::downgrade(&first.inner);
        drop(first);
        assert!(before.upgrade().is_none());
        assert!(cores.of(row, &plain).is_some() && cores.0.len() == 1);
        let other = registry::all().iter().find(|row| !row.many).unwrap();
        assert!(cores.of(other, &plain).is_none());
    }

    #[test]
    fn a_flow_has_accounts_after_its_socket_losses_are_set() {
        let row = registry::of_many();
        let shared = SharedCore::new(row);
        let port = Port::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let mut handle = shared.of_flow(row, FlowId(1), &port).unwrap();
        handle.add_flow(Time::ZERO, &setup(1));
        handle.set_socket_lost(Time::ZERO, FlowId(1), 3);
        assert!(handle.accounting(FlowId(1)).is_some());
    }
}
