//! A receiving flow, on its port's receive thread. The flow decrypts datagrams directly into their
//! chunks, informs the core (the protocol's state machine) once for each batch of datagrams, and
//! passes complete chunks to the writer. A pass is one transmission of the missing chunks. A symbol
//! (of an erasure code) replaces any one missing block of its chunk.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use longhaul_net::buffers::assembly::Assembly;
use longhaul_net::clock;
use longhaul_net::port::address::{AddressRule, Advice, CHALLENGE_COST};
use longhaul_net::port::place::Placer;
use longhaul_net::port::scatter::{Scatter, ScatterCall};
use longhaul_net::port::{Datagram, Datagrams, FlowSink, PortHandle};
use longhaul_net::sealing::open::{OpenError, Opener};
use longhaul_net::sealing::seal::Sealer;
use longhaul_net::socket::Path;
use longhaul_proto::endpoint::{Arrival, BlockRange, BoxedReceiver, Event, FlowId, Setup, Wake};
use longhaul_proto::layout::Layout;
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::Bytes;
use longhaul_proto::wire::header::Kind;
use prost::Message as _;
use tokio::sync::mpsc;

use super::drain::Drain;
use super::outbox::{Outbox, Shadow};
use super::refusals::Refusals;
use super::relay::Relays;
use crate::control::{Frame, Message, Relay};
use crate::counters::board::Board;
use crate::counters::{Counters, ReceiverCounters, span, thread_time};
use crate::random::random_challenge;
use crate::write::budget::{EARLY_GRANT, MemoryPart};
use crate::write::chunk::{Arrived, Drained};
use crate::write::jobs::{Job, Jobs};

/// Interval of updates of the board, which shows the counters to other threads.
const PUBLISH: Span = Span::from_millis(100);
/// Interval at which a receiver that knows the sender's address announces its own address, until
/// data arrive.
const GREETING: Span = Span::from_millis(25);

pub(crate) enum ReceiveCommand {
    /// A control message from the stream, for the core.
    Relay(Relay),
    /// The receiver does not need these blocks.
    Skip(Vec<BlockRange>),
    /// Send this message by datagram. The message is sent over the stream too, but the datagram may
    /// arrive earlier.
    Ahead(Box<Message>),
    /// The writer has freed memory.
    Drained,
    Close,
}

pub(crate) struct ReceivePass {
    pub(crate) flow: FlowId,
    pub(crate) setup: Setup,
    pub(crate) core: BoxedReceiver,
    pub(crate) data: Opener,
    pub(crate) control: Opener,
    pub(crate) reports: Sealer,
    pub(crate) peer: IpAddr,
    /// The sender's data address, if this end knows it beforehand. The receiver then announces its
    /// own address there.
    pub(crate) contact: Option<std::net::SocketAddr>,
    pub(crate) port: PortHandle,
    pub(crate) memory: Arc<MemoryPart>,
    /// Number of chunks at the start of the object that are kept. All later chunks are counted and
    /// dropped, for a measurement. `None` keeps all chunks.
    pub(crate) kept: Option<u64>,
    pub(crate) outbox: Outbox,
    pub(crate) inlet: mpsc::Sender<Message>,
    pub(crate) writer: Jobs,
    pub(crate) drained: Arc<Drained>,
    pub(crate) board: Arc<Board>,
    pub(crate) earlier: Counters,
    pub(crate) commands: Receiver<ReceiveCommand>,
}

/// The state of the port's thread when a flow first published its counters: the time, the thread's
/// CPU time, and the time that the thread has waited.
#[derive(Clone, Copy)]
struct Began {
    at: Time,
    cpu: Duration,
    idle: Span,
}

pub(crate) struct Receiving {
    flow: FlowId,
    layout: Layout,
    core: BoxedReceiver,
    placer: Placer,
    control: Opener,
    shadow: Shadow,
    relays: Relays,
    address: AddressRule,
    port: PortHandle,
    scratch: Box<[u8]>,
    arrivals: Vec<Arrival>,
    /// The size of a grant (permission to send) in a measurement, which drops the files' data and
    /// needs no memory.
    free_room: Option<Bytes>,
    memory: Arc<MemoryPart>,
    granted: Bytes,
    /// At the last call of [`Receiving::grant`]: the bytes that the writer had freed, and whether
    /// the destination was open.
    drained_before: (Bytes, bool),
    drained: Arc<Drained>,
    drain: Drain,
    outbox: Outbox,
    inlet: mpsc::Sender<Message>,
    writer: Jobs,
    board: Arc<Board>,
    earlier: Counters,
    commands: Receiver<ReceiveCommand>,
    refusals: Refusals,
    /// Datagrams that the port has passed to this flow, or that the flow received itself.
    came: u64,
    /// Datagrams with data that arrived before the port knew this flow, and were dropped.
    early_drops: u64,
    began: Option<Began>,
    next_greeting: Option<Time>,
    published: Time,
    finish_reported: bool,
    closed: bool,
}

impl Receiving {
    pub(crate) fn new(now: Time, mut pass: ReceivePass) -> Receiving {
        pass.core.add_flow(now, &pass.setup);
        let address = match pass.contact {
            Some(contact) => AddressRule::contacted(contact),
            None => AddressRule::waiting(pass.peer),
        };
        let shadow = Shadow::new(pass.reports, pass.port.socket().clone(), address.destination());
        let assembly = Assembly::new(pass.setup.layout, pass.memory.pool());
        let kept = pass.kept.unwrap_or(u64::MAX);
        Receiving {
            flow: pass.flow,
            layout: pass.setup.layout,
            core: pass.core,
            placer: Placer::new(pass.data, assembly, kept),
            control: pass.control,
            shadow,
            relays: Relays::default(),
            next_greeting: address.destination().map(|_| now),
            address,
            refusals: Refusals::new(pass.port.statistics()),
            came: 0,
            early_drops: 0,
            began: None,
            port: pass.port,
            scratch: vec![0; 1 << 16].into_boxed_slice(),
            arrivals: Vec::with_capacity(512),
            free_room: pass.kept.map(|_| pass.setup.layout.object()),
            memory: pass.memory,
            granted: pass.setup.grant,
            drained_before: (Bytes::ZERO, false),
            drained: pass.drained,
            drain: Drain::default(),
            outbox: pass.outbox,
            inlet: pass.inlet,
            writer: pass.writer,
            board: pass.board,
            earlier: pass.earlier,
            commands: pass.commands,
            published: Time::ZERO,
            finish_reported: false,
            closed: false,
        }
    }

    fn on_datagram(&mut self, now: Time, datagram: &Datagram<'_>) {
        let opened = match datagram.header.kind {
            Kind::Data => self.on_block(now, datagram),
            Kind::Control | Kind::Challenge | Kind::ChallengeAnswer => {
                self.on_sealed(now, datagram)
            }
            Kind::Probe | Kind::ProbeAnswer => false,
        };
        if opened {
            self.note_path(now, datagram.path, datagram.bytes.len());
        }
    }

    /// Processes a datagram with a block; returns whether the datagram was genuine.
    fn on_block(&mut self, now: Time, datagram: &Datagram<'_>) -> bool {
        match self.placer.place(now, datagram) {
            Ok(block) => {
                let (number, at) = (datagram.header.number, datagram.at);
                self.arrivals.extend(block.map(|block| Arrival { number, block, at }));
                true
            }
            Err(error) => self.refuse(error),
        }
    }

    fn refuse(&mut self, error: OpenError) -> bool {
        if error == OpenError::Ended && !self.closed {
            self.closed = true;
            self.writer.send(Job::Forged);
        }
        false
    }

    /// Processes a sealed control datagram; returns whether it was genuine.
    fn on_sealed(&mut self, now: Time, datagram: &Datagram<'_>) -> bool {
        let opened = self.control.open(now, &datagram.header, datagram.bytes, &mut self.scratch);
        let len = match opened {
            Ok(len) => len,
            Err(error) => return self.refuse(error),
        };
        self.board.note_received(now);
        let content = &self.scratch[..len];
        match datagram.header.kind {
            Kind::Challenge => {
                let answer = content.to_vec();
                self.shadow.send_to(datagram.path, Kind::ChallengeAnswer, &answer);
            }
            Kind::ChallengeAnswer => {
                if let Ok(echo) = content.try_into()
                    && self.address.on_echo(datagram.path, &echo)
                {
                    self.shadow.set_path(datagram.path);
                }
            }
            _ => match Frame::decode(content).ok().and_then(|frame| frame.message) {
                Some(Message::Relay(relay)) => {
                    if let Some(control) = self.relays.take(&relay) {
                        self.core.on_control(now, self.flow, &control);
                    }
                }
                Some(Message::Digests(digests)) => {
                    self.writer.send(Job::Digests(digests));
                }
                Some(message) => {
                    // If the queue is full, the message still arrives over the stream.
                    let _ = self.inlet.try_send(message);
                }
                None => {}
            },
        }
        true
    }

    fn note_path(&mut self, now: Time, path: Path, len: usize) {
        if self.address.destination().map(|known| known.remote) == Some(path.remote) {
            return;
        }
        let advice = self.address.on_genuine(now, path, len, CHALLENGE_COST, random_challenge);
        match advice {
            Advice::Nothing => {}
            Advice::Adopted => self.shadow.set_path(path),
            Advice::Send(challenge) => self.shadow.send_to(path, Kind::Challenge, &challenge),
        }
    }

    /// Passes the arrivals of one system call to the core; [`Receiving::settle`] follows.
    fn take_arrivals(&mut self, now: Time) {
        if !self.arrivals.is_empty() {
            self.next_greeting = None;
            self.board.note_first_datagram(now.as_nanos());
            self.board.note_received(now);
            self.core.on_datagrams(now, self.flow, &self.arrivals);
        }
    }

    /// After input: passes on complete chunks, raises the grant (the bytes that the sender may send
    /// in all), and sends the core's messages.
    fn settle(&mut self, now: Time) {
        // Publish the counters first, because the transfer may end as soon as the writer gets the
        // last chunk.
        if !self.finish_reported && self.core.is_finished(self.flow) {
            self.publish(now);
        }
        let finished = self.take_events();
        while let Some(whole) = self.placer.assembly().pop_whole() {
            let block = self.layout.block_size();
            self.writer.send(Job::Chunk(Arrived::new(whole, block, self.drained.clone())));
        }
        self.grant(now);
        self.speak(now, finished);
        if now.since(self.published) >= PUBLISH {
            self.publish(now);
        }
    }

    /// Raises the grant to the bytes freed so far plus the bytes that this transfer may hold.
    fn grant(&mut self, now: Time) {
        let state = (self.drained.bytes(), self.drained.is_planned());
        if state == self.drained_before {
            return;
        }
        self.drained_before = state;
        let (drained, planned) = state;
        let room = match (planned, self.free_room) {
            (true, Some(room)) => room,
            (true, None) => self.memory.room(self.granted.saturating_sub(drained)),
            (false, _) => EARLY_GRANT,
        };
        self.drained.set_room(room);
        let rate = self.drain.look(now, drained, self.drained.waiting(), room);
        let grant = drained + room;
        if grant > self.granted {
            self.granted = grant;
            self.core.set_grant(now, self.flow, grant, rate);
        }
    }

    fn receive_by(&mut self, scatter: &mut Scatter, call: &mut ScatterCall<'_>) -> io::Result<()> {
        self.arrivals.clear();
        let opened = self.placer.opener().counts().opened;
        scatter.receive(call, &mut self.placer, &mut self.arrivals)?;
        self.came += call.taken();
        let now = call.at();
        // A genuine datagram that is dropped for lack of memory shows the sender's address too.
        if self.placer.opener().counts().opened > opened {
            self.note_path(now, call.path(), self.layout.block_size() as usize);
        } else if self.placer.opener().is_ended() {
            self.refuse(OpenError::Ended);
        }
        self.take_arrivals(now);
        self.settle(now);
        Ok(())
    }

    /// Completes the chunks in which symbols replace the missing blocks; returns whether the core
    /// has finished.
    fn take_events(&mut self) -> bool {
        let mut finished = false;
        while let Some((_, event)) = self.core.poll_event() {
            match event {
                Event::Finished => finished = true,
                Event::Restored { chunk } => self.placer.restore(chunk),
                _ => {}
            }
        }
        finished
    }

    fn speak(&mut self, now: Time, finished: bool) {
        while let Some(outgoing) = self.core.poll_control(now) {
            self.relays.send(&outgoing, &mut self.shadow, &self.outbox);
        }
        if (finished | self.take_events()) && !self.finish_reported {
            self.finish_reported = true;
            self.publish(now);
            self.board.note_last_block(now);
            self.writer.send(Job::AllArrived);
        }
    }

    fn publish(&mut self, now: Time) {
        self.published = now;
        let port = self.port.statistics();
        let drops = self.refusals.dropped(port, self.came);
        let openers = [self.placer.opener().counts(), self.control.counts()];
        let refused = self.refusals.refused(port, openers);
        let no_room = self.placer.counts().no_room;
        // Use the clock, as the port does for its idle time: `now` may be earlier.
        let (clock, cpu) = (clock::now(), thread_time());
        let began = *self.began.get_or_insert(Began { at: clock, cpu, idle: port.idle });
        let busy = span(cpu.saturating_sub(began.cpu));
        let awake = clock.since(began.at).saturating_sub(port.idle.saturating_sub(began.idle));
        self.core.set_socket_lost(now, self.flow, drops + self.early_drops);
        let Some(counts) = self.core.accounting(self.flow) else { return };
        let mut receiver = self.earlier.receiver;
        receiver += ReceiverCounters {
            socket_lost: drops,
            early_lost: self.early_drops,
            memory_lost: no_room,
            refused,
            ..ReceiverCounters::from(counts)
        };
        let earlier = &self.earlier.times;
        self.board.update(|counters| {
            counters.receiver = receiver;
            counters.times.busy = earlier.busy + busy;
            counters.times.awake = earlier.awake + awake;
        });
    }

    fn read_commands(&mut self, now: Time) {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                ReceiveCommand::Relay(relay) => {
                    if let Some(control) = self.relays.take(&relay) {
                        self.core.on_control(now, self.flow, &control);
                    }
                }
                ReceiveCommand::Skip(runs) => {
                    for run in runs {
                        self.core.skip(now, self.flow, run);
                        self.placer.assembly().skip(run);
                    }
                }
                ReceiveCommand::Ahead(message) => self.shadow.send(&message),
                ReceiveCommand::Drained => {}
                ReceiveCommand::Close => self.closed = true,
            }
        }
    }
}

/// A flow that may be the only flow of its port. As long as no other flow joins, the kernel
/// scatters the payloads directly to their predicted places.
pub(crate) struct Scattered {
    receiving: Receiving,
    scatter: Scatter,
}

impl Scattered {
    pub(crate) fn new(receiving: Receiving) -> Scattered {
        let scatter = Scatter::new(receiving.flow);
        Scattered { receiving, scatter }
    }
}

impl FlowSink for Scattered {
    fn on_batch(&mut self, now: Time, datagrams: &mut Datagrams<'_>) {
        self.receiving.on_batch(now, datagrams);
    }

    fn on_batches_delivered(&mut self, now: Time) {
        self.receiving.on_batches_delivered(now);
    }

    fn on_early_drops(&mut self, count: u64) {
        self.receiving.on_early_drops(count);
    }

    fn receive(&mut self, call: &mut ScatterCall<'_>) -> io::Result<bool> {
        self.receiving.receive_by(&mut self.scatter, call)?;
        Ok(true)
    }

    fn on_wake(&mut self, now: Time) {
        self.receiving.on_wake(now);
    }

    fn next_wakeup(&self) -> Option<Time> {
        self.receiving.next_wakeup()
    }

    fn is_closed(&self) -> bool {
        self.receiving.is_closed()
    }

    fn on_port_closed(&mut self, why: &str) {
        self.receiving.on_port_closed(why);
    }
}

impl FlowSink for Receiving {
    fn on_batch(&mut self, now: Time, datagrams: &mut Datagrams<'_>) {
        self.arrivals.clear();
        self.came += datagrams.len() as u64;
        for datagram in datagrams {
            self.on_datagram(now, &datagram);
        }
        self.take_arrivals(now);
    }

    fn on_batches_delivered(&mut self, now: Time) {
        self.settle(now);
    }

    fn on_early_drops(&mut self, count: u64) {
        self.early_drops = count;
    }

    fn on_wake(&mut self, now: Time) {
        self.read_commands(now);
        if let Some(due) = self.next_greeting
            && now >= due
        {
            self.shadow.send_empty();
            self.next_greeting = Some(now + GREETING);
        }
        if let Wake::At(due, _) = self.core.next_wakeup()
            && now >= due
        {
            self.core.on_timeout(now);
        }
        self.settle(now);
    }

    fn next_wakeup(&self) -> Option<Time> {
        let core = match self.core.next_wakeup() {
            Wake::Now => Some(Time::ZERO),
            Wake::At(due, _) => Some(due),
            Wake::OnInput => None,
        };
        core.into_iter().chain(self.next_greeting).min()
    }

    fn is_closed(&self) -> bool {
        self.closed
    }

    fn on_port_closed(&mut self, why: &str) {
        self.writer.send(Job::PortClosed(why.to_owned()));
    }
}
