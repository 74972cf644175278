//! A port: one UDP socket, one receive thread, many flows.
//!
//! The thread sleeps until a datagram, a flow's wake-up or a command arrives. It calls the
//! [`FlowSink`] of each flow with all datagrams of this flow from one system call. Sinks live on
//! the thread and must not block it. A sink that sends keeps the [`Socket`] (not the port, which
//! owns the sink).

pub mod address;
mod answers;
mod early;
pub mod mtu;
pub mod place;
pub mod receipts;
mod receive;
pub mod scatter;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;

use longhaul_proto::endpoint::FlowId;
use longhaul_proto::time::{Span, Time};
use longhaul_proto::wire::header::Header;
use rustix::event::{EventfdFlags, eventfd};

use crate::error::Error;
use crate::port::receive::ReceiveLoop;
use crate::port::scatter::ScatterCall;
use crate::socket::{Message, Path, Socket};

/// A received datagram of a flow. Its header is parsed; nothing is authenticated yet.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// The header.
    pub header: Header,
    /// The datagram's source, and the local address that it was sent to.
    pub path: Path,
    /// The whole datagram with its header.
    pub bytes: &'a [u8],
    /// The datagram's arrival time at this host.
    pub at: Time,
}

/// The consumer of a flow's datagrams. Called on the receive thread only.
pub trait FlowSink: Send {
    /// Handles datagrams of the flow in the order of arrival: all from one system call, or all
    /// early datagrams (those that arrived before the flow was registered). Datagrams left in the
    /// iterator are dropped.
    fn on_batch(&mut self, now: Time, datagrams: &mut Datagrams<'_>);

    /// Called after each [`FlowSink::on_batch`], when all flows have received the datagrams of one
    /// system call. Sinks that share a state machine run its timers here.
    fn on_batches_delivered(&mut self, _now: Time) {}

    /// Reports the number of datagrams with data that arrived before the flow was registered and
    /// were dropped by the limits of size and age. Called at most once, before the early datagrams
    /// are delivered.
    fn on_early_drops(&mut self, _count: u64) {}

    /// Called at the time of [`FlowSink::next_wakeup`], after [`PortHandle::wake`], and after
    /// registration (before any early datagrams are delivered).
    fn on_wake(&mut self, now: Time);

    /// Receives directly into the destination of the payloads, if the sink can
    /// ([`Scatter`](crate::port::scatter::Scatter)). Called when data wait and this is the port's
    /// only flow. After `true`, datagrams in the call's spill (a buffer for leftovers) arrive
    /// through [`FlowSink::on_batch`]. `false` leaves the receiving to the port.
    ///
    /// # Errors
    /// The socket's error; `WouldBlock` if no data wait.
    fn receive(&mut self, _call: &mut ScatterCall<'_>) -> io::Result<bool> {
        Ok(false)
    }

    /// Returns when to call [`FlowSink::on_wake`], if at all.
    fn next_wakeup(&self) -> Option<Time>;

    /// Returns whether the flow has ended by itself; the port then removes it.
    fn is_closed(&self) -> bool {
        false
    }

    /// Reports that the port closed before the flow ended, or that this sink's code panicked; no
    /// further calls follow.
    fn on_port_closed(&mut self, why: &str);
}

/// The datagrams of one call of [`FlowSink::on_batch`].
pub struct Datagrams<'a> {
    messages: &'a [Message<'a>],
    slots: std::slice::Iter<'a, Slot>,
}

/// A datagram's header, and the place of its bytes: `start` and `len` within message `message`.
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

/// Counters of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStatistics {
    /// Datagrams received, of any kind.
    pub received: u64,
    /// Messages received: trains of datagrams merged by the kernel, or single datagrams.
    pub trains: u64,
    /// Bytes received.
    pub bytes: u64,
    /// Datagrams that are not longhaul's, or that belong to flows that nobody expects.
    pub foreign: u64,
    /// Datagrams kept for flows that were not registered yet.
    pub held: u64,
    /// Early datagrams dropped by the limits of size and age.
    pub dropped: u64,
    /// Path-MTU probes answered.
    pub probes: u64,
    /// Messages dropped by the kernel for lack of receive buffer, wrapping at 2³².
    pub kernel_drops: u64,
    /// How long the receive thread has waited for work.
    pub idle: Span,
}

impl PortStatistics {
    /// Estimates the datagrams that the kernel dropped since `before`. The kernel counts messages;
    /// each is assumed to have as many datagrams as the average message received meanwhile.
    pub fn dropped_since(&self, before: &PortStatistics) -> f64 {
        // The kernel's counter wraps.
        let drops = self.kernel_drops.wrapping_sub(before.kernel_drops) & u64::from(u32::MAX);
        let received = self.received.saturating_sub(before.received);
        let trains = self.trains.saturating_sub(before.trains);
        drops as f64 * (received as f64 / trains.max(1) as f64).max(1.0)
    }
}

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

pub(super) enum PortCommand {
    Register(FlowId, Box<dyn FlowSink>),
    Unregister(FlowId),
    Wake(FlowId),
    Expect(IpAddr),
    Announce(FlowId, IpAddr),
    Close,
}

pub(super) struct Shared {
    pub(super) socket: Arc<Socket>,
    /// Written after every command, so that the write ends the thread's wait.
    pub(super) bell: OwnedFd,
    pub(super) counters: Counters,
    /// Flow ids in use; the sinks themselves live on the thread.
    flows: Mutex<HashSet<FlowId>>,
    /// Why the receive thread has ended, once it has.
    closed: OnceLock<String>,
}

impl Shared {
    fn flows(&self) -> MutexGuard<'_, HashSet<FlowId>> {
        // No code panics while it holds the lock.
        self.flows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn forget(&self, flow: FlowId) {
        self.flows().remove(&flow);
    }

    /// Closes the port: no more flows are registered.
    pub(super) fn close(&self, why: &str) {
        let _flows = self.flows();
        // Only the receive thread sets this, once.
        let _ = self.closed.set(why.to_owned());
    }
}

/// One UDP socket and its receive thread. Dropping it ends the thread and all its flows.
pub struct Port {
    handle: PortHandle,
    thread: Option<JoinHandle<()>>,
}

/// A handle to a port's thread; does not keep the port alive.
#[derive(Clone)]
pub struct PortHandle {
    shared: Arc<Shared>,
    commands: Sender<PortCommand>,
}

impl Port {
    /// Binds `address` and starts the receive thread.
    ///
    /// # Errors
    /// The address cannot be bound, or the system has no thread or descriptor left.
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
    /// The system has no thread or descriptor left.
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
            closed: OnceLock::new(),
        });
        let (commands, inbox): (_, Receiver<PortCommand>) = mpsc::channel();
        let receive = ReceiveLoop::new(shared.clone(), inbox);
        let thread = std::thread::Builder::new()
            .name(format!("receive {}", address.port()))
            .spawn(move || receive.run())
            .map_err(failed)?;
        Ok(Port { handle: PortHandle { shared, commands }, thread: Some(thread) })
    }

    /// Returns a handle for other threads and for sinks.
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
        self.handle.send_command(PortCommand::Close);
        if let Some(thread) = self.thread.take() {
            // A sink that owned the port would make the thread join itself.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

impl PortHandle {
    /// Returns the socket, for sending and for its address and buffer size.
    pub fn socket(&self) -> &Arc<Socket> {
        &self.shared.socket
    }

    /// Registers `sink` for `flow`; the flow's early datagrams are delivered immediately.
    ///
    /// # Errors
    /// The flow id is in use here, or the port has closed.
    pub fn register(&self, flow: FlowId, sink: Box<dyn FlowSink>) -> Result<(), Error> {
        let refused = |why: &str| {
            let address = self.shared.socket.local_addr();
            Err(Error::new(format!("UDP {address}: {why}")))
        };
        // The thread takes the same lock to close the port. Without the lock, a sink could be
        // registered just after the thread has read its last command.
        let mut flows = self.shared.flows();
        if let Some(why) = self.shared.closed.get() {
            return refused(&format!("the port has closed: {why}"));
        }
        if !flows.insert(flow) {
            return refused("the flow id is in use");
        }
        self.send_command(PortCommand::Register(flow, sink));
        Ok(())
    }

    /// Removes `flow`; its sink is dropped on the receive thread.
    pub fn unregister(&self, flow: FlowId) {
        self.send_command(PortCommand::Unregister(flow));
    }

    /// Makes the thread call the flow's [`FlowSink::on_wake`] soon.
    pub fn wake(&self, flow: FlowId) {
        self.send_command(PortCommand::Wake(flow));
    }

    /// Expects data from `address`, with which a handshake is in progress or completed: early
    /// datagrams from `address` are kept for up to two seconds, until their flow is registered. The
    /// port forgets the address after ten seconds, so repeat the call as long as the client stays.
    pub fn expect(&self, address: IpAddr) {
        self.send_command(PortCommand::Expect(address.to_canonical()));
    }

    /// Expects `flow`, which the client at `address` announced over its session: early datagrams of
    /// `flow` from `address` are kept for up to two seconds, also if `address` is not expected.
    pub fn announce(&self, flow: FlowId, address: IpAddr) {
        self.send_command(PortCommand::Announce(flow, address.to_canonical()));
    }

    /// Creates a mailbox for the sink of `flow`. A posted message waits in the returned receiver,
    /// and the sink is woken.
    pub fn mailbox<M>(&self, flow: FlowId) -> (Mailbox<M>, Receiver<M>) {
        let (messages, receiver) = mpsc::channel();
        (Mailbox { messages, port: self.clone(), flow }, receiver)
    }

    /// Returns the counters so far.
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

    /// Returns whether the receive thread has ended.
    pub fn is_closed(&self) -> bool {
        self.shared.closed.get().is_some()
    }

    fn send_command(&self, command: PortCommand) {
        // A thread that has ended needs no commands.
        if self.commands.send(command).is_ok() {
            let _ = rustix::io::write(&self.shared.bell, &1u64.to_ne_bytes());
        }
    }
}

/// Posts messages of type `M` to a flow's sink.
pub struct Mailbox<M> {
    messages: Sender<M>,
    port: PortHandle,
    flow: FlowId,
}

impl<M> Clone for Mailbox<M> {
    fn clone(&self) -> Mailbox<M> {
        Mailbox { messages: self.messages.clone(), port: self.port.clone(), flow: self.flow }
    }
}

impl<M> Mailbox<M> {
    /// Posts `message` and wakes the sink; returns whether the receiver still exists.
    pub fn post(&self, message: M) -> bool {
        let posted = self.messages.send(message).is_ok();
        self.port.wake(self.flow);
        posted
    }
}
