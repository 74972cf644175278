//! The sending thread of one pass, which is one run over the missing chunks. The core (the
//! protocol's state machine) chooses the blocks; this thread sends their bytes. A coded symbol (of
//! an erasure code) replaces any one missing block of its chunk.
//!
//! The thread is one loop. It reads commands, and seals blocks directly into the batch that one
//! system call sends. Between bursts it waits for the core's next wake-up or a command, whichever
//! comes first.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::Duration;

use longhaul_net::batch::{Batch, MAX_DATAGRAMS};
use longhaul_net::clock;
use longhaul_net::port::PortHandle;
use longhaul_net::port::address::Challenge;
use longhaul_net::port::receipts::Receipts;
use longhaul_net::sealing::seal::Sealer;
use longhaul_net::socket::{Path, SendError, SendOutcome, Socket};
use longhaul_net::wait::{self, Woken};
use longhaul_proto::coded::{Symbol, header_number};
use longhaul_proto::endpoint::{BlockRange, BoxedSender, Event, FlowId, Wake, Why};
use longhaul_proto::layout::{Block, Layout};
use longhaul_proto::receipt::Receipt;
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::{Bytes, Rate};
use longhaul_proto::wire::Control;

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use super::hole::Hole;
use super::outbox::{Outbox, Shadow};
use super::payloads::{Payloads, prepare_code};
use super::questions::Questions;
use super::relay::Relays;
use crate::control::{Compare, Digests, EntryFailed, Message, Relay};
use crate::counters::board::Board;
use crate::counters::{Counters, SenderCounters, span};
use crate::error::{Error, ErrorKind};
use crate::write::skip::blocks_of;
use longhaul_files::Failure;
use longhaul_proto::wire::header::Kind;

/// Interval at which the thread publishes its counters while datagrams flow.
const PUBLISH: Span = Span::from_millis(100);
/// How long digests wait to be grouped before they also go on the reliable stream.
const TOGETHER: Span = Span::from_millis(20);
/// Minimum interval of keep-alive datagrams.
const ALIVE: Span = Span::from_millis(250);

/// If more than one datagram in this many has arrived, the path has probably carried full
/// datagrams. A full chunk has at least 17 blocks, and only its last block can be short.
const SHORT_ONES: u64 = 16;

pub(crate) enum SendCommand {
    Relay(Relay),
    /// The receiver's sealed datagrams come from this path; the flow sends there.
    Peer(Path),
    /// A receiver claims this new path. The receiver must echo the challenge before the flow sends
    /// there.
    Ask(Path, Challenge),
    /// The receiver wants this challenge echoed by datagram on this path, to verify the sender's
    /// address.
    Challenge(Path, Vec<u8>),
    /// These blocks need not be sent.
    Skip(Vec<BlockRange>),
    /// The receiver asks which of its chunks are equal here.
    Compare(Compare),
    /// The capacity of the receiving host's card, in UDP payload.
    PeerCard(Rate),
    /// The receiver takes coded symbols.
    Coded,
    /// The receiving host says, unauthenticated, how much has arrived before the session is open.
    Receipt(Receipt),
    /// The session is open: this many bytes may be sent before the receiver reports.
    Session(Bytes),
    /// So many of the receiver's reports were forged that the AEAD forgery limit is reached.
    Forged,
    Stop,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SenderEvent {
    /// A file of this end failed.
    Failed(Failure),
    /// The receiver's messages arrive, but this end's datagrams do not reach the receiver: they are
    /// too large for the path, or even for this host's link.
    TooLarge {
        /// Whether datagrams of this size did arrive in this pass.
        begun: bool,
    },
    Core(Event),
}

pub(crate) struct SendPass {
    pub(crate) flow: FlowId,
    pub(crate) layout: Layout,
    pub(crate) core: BoxedSender,
    pub(crate) data: Sealer,
    pub(crate) control: Sealer,
    pub(crate) port: PortHandle,
    /// The destination; `None` until the receiver's address is known.
    pub(crate) path: Option<Path>,
    pub(crate) datagram: u16,
    pub(crate) outbox: Outbox,
    pub(crate) board: Arc<Board>,
    /// The counters of earlier passes of the transfer.
    pub(crate) earlier: Counters,
    pub(crate) events: UnboundedSender<SenderEvent>,
    /// Asks the receiver how much has arrived, if the pass begins before the session is open.
    pub(crate) receipts: Option<Receipts>,
}

/// The payloads that a sending thread returns for the next pass.
pub(crate) type Done = oneshot::Receiver<Result<Payloads, Error>>;

pub(crate) fn spawn(
    pass: SendPass,
    payloads: Payloads,
) -> Result<(Sender<SendCommand>, Done), Error> {
    let (commands, inbox) = std::sync::mpsc::channel();
    let (ended, done) = oneshot::channel();
    std::thread::Builder::new()
        .name(format!("send {:08x}", pass.flow.0))
        .spawn(move || {
            // Nobody waits if the transfer was cancelled.
            let _ = ended.send(Sending::new(pass, payloads, inbox).run());
        })
        .map_err(|error| {
            Error::new(ErrorKind::Unfinished, format!("cannot start a sending thread: {error}"))
        })?;
    Ok((commands, done))
}

struct Sending {
    flow: FlowId,
    layout: Layout,
    core: BoxedSender,
    data: Sealer,
    shadow: Shadow,
    relays: Relays,
    socket: Arc<Socket>,
    path: Option<Path>,
    batch: Batch,
    blocks: Vec<Block>,
    payloads: Payloads,
    inbox: Receiver<SendCommand>,
    outbox: Outbox,
    board: Arc<Board>,
    earlier: Counters,
    events: UnboundedSender<SenderEvent>,
    /// Whether digests go on the stream only, because a file has failed.
    ordered: bool,
    /// Digests that are not on the stream yet. They may have been sent by datagram.
    unsure: Digests,
    unsure_since: Time,
    /// When the last keep-alive datagram was sent.
    alive: Time,
    questions: Option<Questions>,
    /// When the first datagram was sent, while the session is not open yet.
    begun: Option<Time>,
    /// Detects that a link of the path drops datagrams of this size.
    hole: Hole,
    hole_reported: bool,
    /// Number of datagrams that the receiver has reported as arrived.
    arrived: u64,
    published: Time,
    paced: Duration,
    granted: Duration,
    busy: Duration,
}

impl Sending {
    fn new(pass: SendPass, mut payloads: Payloads, inbox: Receiver<SendCommand>) -> Sending {
        payloads.rewind();
        let socket = pass.port.socket().clone();
        Sending {
            flow: pass.flow,
            layout: pass.layout,
            core: pass.core,
            data: pass.data,
            shadow: Shadow::new(pass.control, socket.clone(), pass.path),
            relays: Relays::default(),
            socket,
            path: pass.path,
            batch: Batch::new(pass.datagram),
            blocks: Vec::with_capacity(MAX_DATAGRAMS),
            payloads,
            inbox,
            outbox: pass.outbox,
            board: pass.board,
            earlier: pass.earlier,
            events: pass.events,
            ordered: false,
            unsure: Digests::default(),
            unsure_since: Time::ZERO,
            alive: Time::ZERO,
            questions: pass.receipts.map(Questions::new),
            begun: None,
            hole: Hole::new(pass.port, pass.datagram),
            hole_reported: false,
            arrived: 0,
            published: Time::ZERO,
            paced: Duration::ZERO,
            granted: Duration::ZERO,
            busy: Duration::ZERO,
        }
    }

    fn run(mut self) -> Result<Payloads, Error> {
        wait::be_punctual();
        let mut mark = clock::now();
        self.ordered = report_failures(&mut self.payloads, &self.outbox, &self.events);
        loop {
            if !self.take_commands()? {
                break;
            }
            self.send_control();
            if self.send_due()? {
                continue;
            }
            self.send_control();
            let now = clock::now();
            self.busy += clock::duration(now.since(mark));
            let goes_on = self.wait(now)?;
            mark = clock::now();
            if !goes_on {
                break;
            }
        }
        self.make_sure();
        self.publish(clock::now());
        Ok(self.payloads)
    }

    /// Processes the commands in the inbox; returns false once the pass is over.
    fn take_commands(&mut self) -> Result<bool, Error> {
        loop {
            match self.inbox.try_recv() {
                Ok(command) => {
                    if !self.take(command)? {
                        return Ok(false);
                    }
                }
                Err(TryRecvError::Empty) => return Ok(true),
                Err(TryRecvError::Disconnected) => return Ok(false),
            }
        }
    }

    fn take(&mut self, command: SendCommand) -> Result<bool, Error> {
        let now = clock::now();
        match command {
            SendCommand::Relay(relay) => {
                if let Some(control) = self.relays.take(&relay) {
                    self.note_pulse(now, &control);
                    self.core.on_control(now, self.flow, &control);
                }
            }
            SendCommand::Peer(path) => {
                self.path = Some(path);
                self.shadow.set_path(path);
                // The first block may have to wait for a disk. Meanwhile this datagram shows the
                // other end that the path works.
                self.shadow.send_empty();
            }
            SendCommand::Ask(path, challenge) => {
                self.shadow.send_to(path, Kind::Challenge, &challenge);
            }
            SendCommand::Challenge(path, challenge) => {
                self.shadow.send_to(path, Kind::ChallengeAnswer, &challenge);
            }
            SendCommand::Skip(runs) => {
                for run in runs {
                    self.core.skip(now, self.flow, run);
                }
            }
            SendCommand::Compare(ask) => {
                let (compared, same) = self.payloads.compare(&ask)?;
                self.keep_alive(clock::now());
                self.outbox.send(Message::Compared(compared));
                for run in same.into_iter().flat_map(|chunks| blocks_of(&self.layout, chunks)) {
                    self.core.skip(now, self.flow, run);
                }
            }
            SendCommand::PeerCard(card) => self.core.set_peer_card(now, card),
            SendCommand::Coded => self.core.allow_coded(),
            SendCommand::Receipt(receipt) => self.core.on_receipt(now, &receipt),
            SendCommand::Session(grant) => {
                self.questions = None;
                if let Some(begun) = self.begun.take() {
                    self.board.note_first_datagram(begun.as_nanos());
                }
                self.core.raise_grant(now, grant);
            }
            SendCommand::Forged => return Err(crate::write::writer::forged()),
            SendCommand::Stop => return Ok(false),
        }
        Ok(true)
    }

    fn note_pulse(&mut self, now: Time, control: &Control) {
        let Control::Pulse(pulse) = control else { return };
        // Datagrams are missing, so symbols will be needed.
        if pulse.received < pulse.highest && self.core.uses_coded() {
            prepare_code();
        }
        self.arrived = self.arrived.max(pulse.received);
        let (sent, rtt) = (self.core.accounting().sent, self.core.rtt());
        if self.path.is_some_and(|path| self.hole.on_report(now, path, [sent, pulse.received], rtt))
        {
            self.report_hole();
        }
    }

    fn report_hole(&mut self) {
        if !self.hole_reported {
            self.hole_reported = true;
            let begun = self.arrived > self.core.accounting().sent / SHORT_ONES;
            let _ = self.events.send(SenderEvent::TooLarge { begun });
        }
    }

    /// Sends the due blocks; returns whether there were any.
    fn send_due(&mut self) -> Result<bool, Error> {
        let Some(path) = self.path else { return Ok(false) };
        self.blocks.clear();
        let now = clock::now();
        let next = self.data.next_number();
        self.core.poll_transmit(now, next, self.batch.capacity(), &mut self.blocks);
        if self.blocks.is_empty() {
            return Ok(false);
        }
        if self.hole.begin(now) {
            match self.questions {
                // Until the session takes over the flow, the flow may be recalled: its data are
                // sent again in another pass. Its datagrams are then not the start of the data.
                Some(_) => self.begun = Some(now),
                None => self.board.note_first_datagram(now.as_nanos()),
            }
        }
        let blocks = std::mem::take(&mut self.blocks);
        for block in &blocks {
            let number = header_number(&self.layout, *block);
            let payload = match Symbol::of(&self.layout, *block) {
                Some(symbol) => self.payloads.symbol(&self.layout, symbol)?,
                None => self.payloads.payload(&self.layout, *block)?,
            };
            self.batch.push(&mut self.data, Kind::Data, number, payload).map_err(|error| {
                Error::new(ErrorKind::Unfinished, format!("cannot seal a datagram: {error}"))
            })?;
            if self.batch.room() == 0 {
                self.flush(path)?;
            }
        }
        self.blocks = blocks;
        self.flush(path)?;
        self.ask(path);
        self.send_digests(now);
        if now.since(self.published) >= PUBLISH {
            self.publish(now);
        }
        Ok(true)
    }

    fn ask(&mut self, path: Path) {
        if let Some(questions) = &mut self.questions {
            let sent = self.core.accounting().sent;
            questions.ask(clock::now(), sent, &self.socket, path);
        }
    }

    fn flush(&mut self, path: Path) -> Result<(), Error> {
        if self.batch.is_empty() {
            return Ok(());
        }
        match self.batch.send(&self.socket, path) {
            // Datagrams that the kernel refuses for now, for example without a route, count as
            // lost.
            Ok(SendOutcome::Sent | SendOutcome::Lost(_)) => Ok(()),
            Err(SendError::TooLarge) => {
                self.report_hole();
                Ok(())
            }
            Err(SendError::Broken(error)) => {
                let what = format!("sending to {} failed: {error}", path.remote);
                Err(Error::new(ErrorKind::Unfinished, what))
            }
        }
    }

    /// Sends failures first, then digests. Digests go by datagram immediately, and on the stream in
    /// groups.
    ///
    /// Once a file has failed, digests go on the stream only, behind the message of the failure. A
    /// datagram could overtake that message. The receiver would then accept as content the filler
    /// bytes that are sent for the failed file.
    fn send_digests(&mut self, now: Time) {
        let failed = report_failures(&mut self.payloads, &self.outbox, &self.events);
        let digests = self.payloads.take_digests();
        if !digests.is_empty() {
            let message = Digests {
                chunks: digests.iter().map(|(chunk, _)| *chunk).collect(),
                values: digests.iter().flat_map(|(_, digest)| *digest).collect(),
            };
            if self.unsure.chunks.is_empty() {
                self.unsure_since = now;
            }
            self.unsure.chunks.extend(&message.chunks);
            self.unsure.values.extend(&message.values);
            if !self.ordered && !failed {
                self.shadow.send(&Message::Digests(message));
            }
        }
        self.ordered |= failed;
        if self.ordered || now.since(self.unsure_since) >= TOGETHER {
            self.make_sure();
        }
    }

    fn make_sure(&mut self) {
        if !self.unsure.chunks.is_empty() {
            self.outbox.send(Message::Digests(std::mem::take(&mut self.unsure)));
        }
    }

    fn send_control(&mut self) {
        while let Some(outgoing) = self.core.poll_control(clock::now()) {
            self.relays.send(&outgoing, &mut self.shadow, &self.outbox);
        }
        while let Some(event) = self.core.poll_event() {
            self.publish(clock::now());
            let _ = self.events.send(SenderEvent::Core(event));
        }
    }

    /// Waits for the next wake-up or command; returns false once the pass is over.
    fn wait(&mut self, mut now: Time) -> Result<bool, Error> {
        let (due, why) = match self.core.next_wakeup() {
            Wake::Now if self.path.is_some() => return Ok(true),
            Wake::At(due, why) if self.path.is_some() => (due, Some(why)),
            _ => (Time::NEVER, None),
        };
        if why != Some(Why::Pacing) {
            // The receiver may not need the last blocks of the chunk in the buffer, but it needs
            // the chunk's digest.
            self.payloads.finish()?;
            self.send_digests(now);
            now = clock::now();
        }
        if why != Some(Why::Pacing) || now.since(self.published) >= PUBLISH {
            self.publish(now);
        }
        if why != Some(Why::Pacing) || now.since(self.unsure_since) >= TOGETHER {
            self.make_sure();
        }
        self.keep_alive(now);
        let sign = if self.path.is_some() { self.alive + ALIVE } else { Time::NEVER };
        let question = self.questions.as_ref().map_or(Time::NEVER, Questions::due);
        let woken = wait::until(&self.inbox, due.min(sign).min(question));
        let waited = clock::duration(clock::now().since(now));
        if self.core.is_blocked_by_grant() {
            // Before the session is open, the flow waits for the session, not for a grant.
            self.granted += if self.questions.is_none() { waited } else { Duration::ZERO };
        } else if why == Some(Why::Pacing) {
            self.paced += waited;
        }
        match woken {
            Woken::Message(command) => self.take(command),
            Woken::Closed => Ok(false),
            Woken::Due => {
                let now = clock::now();
                if now >= due {
                    self.core.on_timeout(now);
                }
                if let Some(path) = self.path {
                    self.ask(path);
                }
                Ok(true)
            }
        }
    }

    /// Sends a keep-alive datagram if one is due. Without keep-alives the other end would treat a
    /// path without data as closed.
    fn keep_alive(&mut self, now: Time) {
        if now.since(self.alive) >= ALIVE {
            self.alive = now;
            self.shadow.send_empty();
        }
    }

    fn publish(&mut self, now: Time) {
        self.published = now;
        let counts = self.core.accounting();
        let mut sender = self.earlier.sender;
        sender += SenderCounters::of(counts, self.core.rate(), self.core.rtt(), self.core.found());
        let (earlier, (reading, cpu)) = (&self.earlier.times, self.payloads.reading());
        self.board.update(|counters| {
            counters.sender = sender;
            let times = &mut counters.times;
            times.paced = earlier.paced + span(self.paced);
            times.granted = earlier.granted + span(self.granted);
            times.busy = earlier.busy + span(self.busy);
            (times.disk, times.disk_cpu) = (span(reading), span(cpu));
        });
    }
}

/// Reports failed files to both ends; returns whether there were any.
pub(super) fn report_failures(
    payloads: &mut Payloads,
    outbox: &Outbox,
    events: &UnboundedSender<SenderEvent>,
) -> bool {
    let failures = payloads.new_failures();
    for failure in failures {
        report_failure(failure, outbox);
        let _ = events.send(SenderEvent::Failed(failure.clone()));
    }
    !failures.is_empty()
}

pub(crate) fn report_failure(failure: &Failure, outbox: &Outbox) {
    outbox.send(Message::EntryFailed(EntryFailed {
        entry: failure.entry.map_or(u64::MAX, u64::from),
        path: failure.path.clone(),
        reason: failure.reason.clone(),
        at_source: true,
        changed: failure.changed,
    }));
}
