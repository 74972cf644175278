//! One receiving core for many flows, on however many ports.
//!
//! A port drives each flow by itself; a core that shares out what a host can take knows all of
//! them. So each flow has a [`Receiver`] of its own, which is a handle: input goes to the one core,
//! and what the core says comes out at the flow that it concerns, which is woken for it. The flows
//! of a port run on its one thread, so the lock is waited for only where there are two ports; it
//! is taken once a call, never once a datagram.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_proto::accounting::ReceiverAccounting;
use longhaul_proto::endpoint::{
    Arrival, BlockRange, BoxedReceiver, Event, FlowId, Outgoing, Receiver, Setup, Wake,
};
use longhaul_proto::registry::Row;
use longhaul_proto::time::Time;
use longhaul_proto::units::{Bytes, Rate};
use longhaul_proto::wire::Control;

use crate::datapath::port::PortHandle;

/// The core of a protocol, for all flows of a copy. Clones are the same.
#[derive(Clone)]
pub(crate) struct SharedCore {
    name: &'static str,
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    core: BoxedReceiver,
    members: BTreeMap<FlowId, Member>,
}

/// A flow, and what the core said of it while another one was driven.
struct Member {
    port: PortHandle,
    mail: VecDeque<Outgoing>,
    events: VecDeque<Event>,
}

impl SharedCore {
    /// A core of `row`'s protocol.
    pub(crate) fn new(row: &'static Row) -> SharedCore {
        let inner = Inner { core: (row.receiver)(), members: BTreeMap::new() };
        SharedCore { name: row.name, inner: Arc::new(Mutex::new(inner)) }
    }

    /// The receiver of `flow`, which `port` drives, if the flow is of this core's protocol.
    pub(crate) fn of_flow(
        &self,
        row: &'static Row,
        flow: FlowId,
        port: &PortHandle,
    ) -> Option<BoxedReceiver> {
        if row.name != self.name {
            return None;
        }
        let (mail, events) = (VecDeque::new(), VecDeque::new());
        let member = Member { port: port.clone(), mail, events };
        let mut inner = self.inner();
        if inner.members.contains_key(&flow) {
            return None;
        }
        inner.members.insert(flow, member);
        drop(inner);
        Some(Box::new(Handle { shared: self.clone(), flow, accounting: None }))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // A flow whose code failed is forgotten by its port; the others go on.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// The flow of a port that keeps the core's time: its first.
    fn leads(&self, flow: FlowId) -> bool {
        let Some(own) = self.members.get(&flow) else { return false };
        let of_port = |member: &Member| Arc::ptr_eq(member.port.socket(), own.port.socket());
        let first = self.members.iter().find(|(_, member)| of_port(member));
        first.is_some_and(|(first, _)| *first == flow)
    }

    /// Puts what the core says of other flows into their boxes, up to the first word of `flow`.
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

    /// Posts to a flow, which is woken for the first thing that waits for it.
    fn post(&mut self, flow: FlowId, post: impl FnOnce(&mut Member)) {
        let Some(member) = self.members.get_mut(&flow) else { return };
        if member.mail.is_empty() && member.events.is_empty() {
            member.port.wake(flow);
        }
        post(member);
    }
}

/// One flow's side of the core.
struct Handle {
    shared: SharedCore,
    flow: FlowId,
    /// As they were when the host's own losses were last told, which is before they are asked for.
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
        self.shared.inner().core.add_flow(now, setup);
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
