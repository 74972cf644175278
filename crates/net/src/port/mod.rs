//! A port: one UDP socket, one receive thread, many flows.
//!
//! The thread sleeps until datagrams, a flow's wake-up or a command come, and calls each flow's
//! [`FlowSink`] with all that one system call brought for it. Sinks live on that thread and must
//! not block it. A sink that sends keeps the [`Socket`] (not the port, which owns the sink).

pub mod address;
mod answers;
mod early;
pub mod mtu;
pub mod place;
mod receive;
pub mod scatter;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use longhaul_proto::endpoint::FlowId;
use longhaul_proto::time::{Span, Time};
use longhaul_proto::wire::header::Header;
use rustix::event::{EventfdFlags, eventfd};

use crate::error::Error;
use crate::port::receive::ReceiveLoop;
use crate::port::scatter::ScatterCall;
use crate::socket::{Message, Path, Socket};

/// A datagram of a flow, as it came: its header can be read, nothing else is trusted yet.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// The header.
    pub header: Header,
    /// Where it came from, and to which address of ours.
    pub path: Path,
    /// All of it, the header included.
    pub bytes: &'a [u8],
    /// When it came to this host.
    pub at: Time,
}

/// A flow's own side of a port. Called on the receive thread only.
pub trait FlowSink: Send {
    /// Datagrams of the flow: all that one system call brought, in the order of arrival. What is
    /// left in the iterator is dropped.
    fn on_batch(&mut self, now: Time, datagrams: &mut Datagrams<'_>);

    /// All flows have got what one system call brought: time may pass for those that share what
    /// they do with it. Called after each [`FlowSink::on_batch`].
    fn on_told(&mut self, _now: Time) {}

    /// So many datagrams with data came before the flow was registered and did not fit what is held
    /// for such flows. Called once, before what was held comes.
    fn on_fallen(&mut self, _count: u64) {}

    /// The time that [`FlowSink::next_wakeup`] named has come, or [`PortHandle::wake`] was called,
    /// or the sink has just been registered (before anything that was held for it comes).
    fn on_wake(&mut self, now: Time);

    /// Receives by itself straight to where payloads belong, if it can
    /// ([`Scatter`](crate::port::scatter::Scatter)): asked when something is there while this is
    /// the port's only flow. `false` leaves the receiving to the port; what a flow received but
    /// could not use goes into the call's spill, and comes by [`FlowSink::on_batch`].
    ///
    /// # Errors
    /// What the socket says; `WouldBlock` where nothing is there.
    fn receive(&mut self, _call: &mut ScatterCall<'_>) -> io::Result<bool> {
        Ok(false)
    }

    /// When to call [`FlowSink::on_wake`], if at all. Asked after every other call.
    fn next_wakeup(&self) -> Option<Time>;

    /// Whether the flow has ended by itself: the port forgets it.
    fn is_closed(&self) -> bool {
        false
    }

    /// The port has ended before the flow did; nothing comes any more.
    fn on_port_closed(&mut self, why: &str);
}

/// Datagrams of one flow out of one system call.
pub struct Datagrams<'a> {
    messages: &'a [Message<'a>],
    slots: std::slice::Iter<'a, Slot>,
}

/// Where a datagram lies among the messages.
pub(super) struct Slot {
    pub(super) header: Header,
    pub(super) message: u32,
    pub(super) start: u32,
    pub(super) len: u32,
}

impl<'a> Datagrams<'a> {
    pub(super) fn new(messages: &'a [Message<'a>], slots: &'a [Slot]) -> Datagrams<'a> {
        Datagrams { messages, slots: slots.iter() }
    }
}

impl<'a> Iterator for Datagrams<'a> {
    type Item = Datagram<'a>;

    fn next(&mut self) -> Option<Datagram<'a>> {
        let slot = self.slots.next()?;
        let message = &self.messages[slot.message as usize];
        let bytes = &message.bytes[slot.start as usize..][..slot.len as usize];
        Some(Datagram { header: slot.header, path: message.path, bytes, at: message.at })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.slots.size_hint()
    }
}

impl ExactSizeIterator for Datagrams<'_> {}

/// What a port has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStatistics {
    /// Datagrams received, whatever they were.
    pub received: u64,
    /// Trains that they came in: what the kernel had merged, or one alone.
    pub trains: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Datagrams that are none of ours, or of flows that nobody expects.
    pub foreign: u64,
    /// Datagrams held for flows that were not registered yet.
    pub held: u64,
    /// Datagrams dropped by the limits for held ones.
    pub dropped: u64,
    /// Path-MTU probes answered.
    pub probes: u64,
    /// Trains dropped by the kernel for want of receive buffer, wrapping at 2³².
    pub kernel_drops: u64,
    /// How long the receive thread has waited for something to do.
    pub idle: Span,
}

impl PortStatistics {
    /// Datagrams that the kernel has dropped since `before`. It counts trains; each is taken to
    /// have been as long as those that came meanwhile.
    pub fn dropped_since(&self, before: &PortStatistics) -> f64 {
        // The kernel's count wraps.
        let drops = self.kernel_drops.wrapping_sub(before.kernel_drops) & u64::from(u32::MAX);
        let received = self.received.saturating_sub(before.received);
        let trains = self.trains.saturating_sub(before.trains);
        drops as f64 * (received as f64 / trains.max(1) as f64).max(1.0)
    }
}

/// Counters that the receive thread writes and others read.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) received: AtomicU64,
    pub(super) trains: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) foreign: AtomicU64,
    pub(super) held: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) probes: AtomicU64,
    pub(super) idle_nanos: AtomicU64,
}

/// What the receive thread is told.
pub(super) enum PortCommand {
    Register(FlowId, Box<dyn FlowSink>),
    Unregister(FlowId),
    Wake(FlowId),
    Expect(IpAddr),
    Announce(FlowId, IpAddr),
    Close,
}

/// Both sides' common ground.
pub(super) struct Shared {
    pub(super) socket: Arc<Socket>,
    /// Written after every command, so that the thread's one wait sees it.
    pub(super) bell: OwnedFd,
    pub(super) counters: Counters,
    /// Flow ids in use; the sinks themselves live on the thread.
    flows: Mutex<HashSet<FlowId>>,
    closed: AtomicBool,
}

impl Shared {
    fn flows(&self) -> MutexGuard<'_, HashSet<FlowId>> {
        // Nothing panics while the lock is held.
        self.flows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn forget(&self, flow: FlowId) {
        self.flows().remove(&flow);
    }

    /// No flow is registered any more after this.
    pub(super) fn close(&self) {
        let _flows = self.flows();
        self.closed.store(true, Ordering::Release);
    }
}

/// One UDP socket and its receive thread. Dropping it ends the thread and all its flows.
pub struct Port {
    handle: PortHandle,
    thread: Option<JoinHandle<()>>,
}

/// A way to a port's thread; does not keep the port alive.
#[derive(Clone)]
pub struct PortHandle {
    shared: Arc<Shared>,
    commands: Sender<PortCommand>,
}

impl Port {
    /// Binds `address` and starts the receive thread.
    ///
    /// # Errors
    /// with the address and the kernel's reason.
    pub fn bind(address: SocketAddr) -> Result<Port, Error> {
        let failed = |error| {
            let what = format!("cannot open UDP {address} for data: {error}");
            Error::new(what).advise("choose another address or port")
        };
        Port::open(Socket::bind(address).map_err(failed)?)
    }

    /// Starts the receive thread of `socket`.
    ///
    /// # Errors
    /// where the system has no thread or descriptor left.
    pub fn open(socket: Socket) -> Result<Port, Error> {
        let address = socket.local_addr();
        let failed = |error| {
            let what = format!("cannot serve UDP {address}: {error}");
            Error::new(what)
        };
        let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(|error| failed(error.into()))?;
        let shared = Arc::new(Shared {
            socket: Arc::new(socket),
            bell,
            counters: Counters::default(),
            flows: Mutex::default(),
            closed: AtomicBool::new(false),
        });
        let (commands, inbox): (_, Receiver<PortCommand>) = mpsc::channel();
        let receive = ReceiveLoop::new(shared.clone(), inbox);
        let thread = std::thread::Builder::new()
            .name(format!("receive {}", address.port()))
            .spawn(move || receive.run())
            .map_err(failed)?;
        Ok(Port { handle: PortHandle { shared, commands }, thread: Some(thread) })
    }

    /// A handle for other threads and for sinks.
    pub fn handle(&self) -> PortHandle {
        self.handle.clone()
    }
}

impl std::ops::Deref for Port {
    type Target = PortHandle;

    fn deref(&self) -> &PortHandle {
        &self.handle
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.handle.tell(PortCommand::Close);
        if let Some(thread) = self.thread.take() {
            // A sink that owned the port would make the thread wait for itself.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

impl PortHandle {
    /// The socket: for sending, and for its address and buffer.
    pub fn socket(&self) -> &Arc<Socket> {
        &self.shared.socket
    }

    /// Gives `flow` to `sink`; datagrams held for it come at once.
    ///
    /// # Errors
    /// If the flow id is in use here or the port has closed.
    pub fn register(&self, flow: FlowId, sink: Box<dyn FlowSink>) -> Result<(), Error> {
        let refused = |why| {
            let address = self.shared.socket.local_addr();
            Err(Error::new(format!("UDP {address}: {why}")))
        };
        // Under the lock that the thread takes to close: no sink is told and then forgotten.
        let mut flows = self.shared.flows();
        if self.is_closed() {
            return refused("the port has closed");
        }
        if !flows.insert(flow) {
            return refused("the flow id is in use");
        }
        self.tell(PortCommand::Register(flow, sink));
        Ok(())
    }

    /// Forgets `flow`; its sink is dropped on the receive thread.
    pub fn unregister(&self, flow: FlowId) {
        self.tell(PortCommand::Unregister(flow));
    }

    /// Has the flow's [`FlowSink::on_wake`] called soon.
    pub fn wake(&self, flow: FlowId) {
        self.tell(PortCommand::Wake(flow));
    }

    /// A handshake with `address` has begun, goes on or is done: its first datagrams are held for
    /// flows yet to be registered. Say it again every few seconds while that lasts.
    pub fn expect(&self, address: IpAddr) {
        self.tell(PortCommand::Expect(address.to_canonical()));
    }

    /// `address` has announced `flow` over its session, which will be registered soon.
    pub fn announce(&self, flow: FlowId, address: IpAddr) {
        self.tell(PortCommand::Announce(flow, address.to_canonical()));
    }

    /// A letter box into the sink of `flow`: what is posted waits in the receiver, and the sink
    /// is woken for it.
    pub fn mailbox<M>(&self, flow: FlowId) -> (Mailbox<M>, Receiver<M>) {
        let (letters, receiver) = mpsc::channel();
        (Mailbox { letters, port: self.clone(), flow }, receiver)
    }

    /// What the port has seen so far.
    pub fn statistics(&self) -> PortStatistics {
        let counters = &self.shared.counters;
        PortStatistics {
            received: counters.received.load(Ordering::Relaxed),
            trains: counters.trains.load(Ordering::Relaxed),
            bytes: counters.bytes.load(Ordering::Relaxed),
            foreign: counters.foreign.load(Ordering::Relaxed),
            held: counters.held.load(Ordering::Relaxed),
            dropped: counters.dropped.load(Ordering::Relaxed),
            probes: counters.probes.load(Ordering::Relaxed),
            kernel_drops: self.shared.socket.kernel_drops().unwrap_or(0).into(),
            idle: Span::from_nanos(counters.idle_nanos.load(Ordering::Relaxed)),
        }
    }

    /// Whether the receive thread has ended.
    pub fn is_closed(&self) -> bool {
        self.shared.closed.load(Ordering::Acquire)
    }

    fn tell(&self, command: PortCommand) {
        // A thread that has ended needs no commands; a full bell rings already.
        if self.commands.send(command).is_ok() {
            let _ = rustix::io::write(&self.shared.bell, &1u64.to_ne_bytes());
        }
    }
}

/// Posts messages of type `M` to a flow's sink.
pub struct Mailbox<M> {
    letters: Sender<M>,
    port: PortHandle,
    flow: FlowId,
}

impl<M> Clone for Mailbox<M> {
    fn clone(&self) -> Mailbox<M> {
        Mailbox { letters: self.letters.clone(), port: self.port.clone(), flow: self.flow }
    }
}

impl<M> Mailbox<M> {
    /// Posts `message` and wakes the sink. Whether the sink is still there to read it.
    pub fn post(&self, message: M) -> bool {
        let posted = self.letters.send(message).is_ok();
        self.port.wake(self.flow);
        posted
    }
}
