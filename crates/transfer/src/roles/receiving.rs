//! Receives the object (the list of files, and their content) in passes over the missing chunks.
//! The *plan* names the chunks that exist already; the *outcome* is the result of the transfer.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_net::clock;
use longhaul_net::port::{Mailbox, PortHandle};
use longhaul_proto::endpoint::{BlockRange, FlowId, Setup};
use longhaul_proto::layout::Layout;
use longhaul_proto::units::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::due::Due;
use super::flows::Flows;
use super::room::{RoomRequest, room_for_chunk};
use super::silence::{Quiet, Silence};
use super::terms::{Terms, layout};
use super::wire::{End, Wire};
use super::{Hooks, TICK, There, Whence, closing, limits, listing};
use crate::control::{
    Card, ChunkPiece, EntryFailed, Frame, Message, Needless, Offer, Outcome, Pass, Pieces, Plan,
    Ranges, Status,
};
use crate::counters::board::Board;
use crate::counters::{Counters, thread_time};
use crate::error::{Error, ErrorKind};
use crate::flow::receive::{ReceiveCommand, ReceivePass, Receiving, Scattered};
use crate::flow::shared_core::SharedCore;
use crate::options::Receive;
use crate::session::{Session, when};
use crate::write::budget::MemoryPart;
use crate::write::chunk::{Drained, Streamed};
use crate::write::destination::{Destination, Incoming, Reporter};
use crate::write::jobs::{Job, Jobs, WriterEvent};
use crate::write::skip::{blocks_of, blocks_within, tidy, without};
use longhaul_files::{CHUNK, ListMemory, Mark};

/// How long a client may take from the request to its offer. A server may take longer, and sends
/// signs of life.
const OFFER: Duration = Duration::from_secs(600);

pub(crate) struct ReceivingRole<'a> {
    pub(crate) wire: &'a mut Wire,
    pub(crate) terms: Terms,
    pub(crate) port: PortHandle,
    /// The sender's data address, if this end contacts it.
    pub(crate) contact: Option<SocketAddr>,
    pub(crate) board: Arc<Board>,
    /// Additional sessions that carry chunks.
    pub(crate) streams: mpsc::UnboundedReceiver<Session>,
    pub(crate) hooks: &'a dyn Hooks,
    /// Whether this end is the client, which decides whether the path lets datagrams through.
    pub(crate) decides: bool,
    pub(crate) memory: Arc<MemoryPart>,
    pub(crate) receive: Receive,
    /// The core (the protocol's state machine) shared by the flows to this host, if there is one.
    pub(crate) core: Option<SharedCore>,
    /// The writing thread, if several sources of the copy share it.
    pub(crate) writer: Option<Jobs>,
}

pub(crate) struct Received {
    pub(crate) outcome: Outcome,
    /// The mark that makes a repeated copy write into the folder that this copy has created;
    /// removed when the client has the outcome.
    pub(crate) mark: Option<Mark>,
}

/// The receiving flow of the current pass.
struct Flow {
    id: FlowId,
    layout: Layout,
    mailbox: Mailbox<ReceiveCommand>,
    drained: Arc<Drained>,
}

struct Running<'a, 'b> {
    end: &'b mut ReceivingRole<'a>,
    jobs: Jobs,
    events: mpsc::UnboundedReceiver<WriterEvent>,
    /// Complete chunks from additional streams.
    pieces: mpsc::Receiver<Result<Streamed, Error>>,
    pieces_end: mpsc::Sender<Result<Streamed, Error>>,
    /// The chunk that arrives on the control stream.
    on_wire: Pieces,
    /// A chunk from the control stream that waits for memory. Meanwhile no message is read.
    waiting: Option<(u64, Vec<u8>)>,
    /// The request for memory for `waiting`, queued behind earlier requests of the other streams.
    room_request: Option<RoomRequest>,
    /// Permits for the memory of chunks from streams.
    room: Arc<Semaphore>,
    object_len: u64,
    manifest_len: u64,
    flow: Option<Flow>,
    number: Option<u32>,
    flows: Flows,
    /// Chunks that need not arrive, once known.
    have: Option<Vec<Range<u64>>>,
    /// Byte ranges of the object that are never sent: padding, and holes of files.
    implied: Vec<Range<u64>>,
    due: Due,
    /// The layout of the last flow. It stays known if streams carry the rest.
    layout: Option<Layout>,
    silence: Silence,
    quiet: Quiet,
    /// Whether messages with names of files have been sent on the control stream.
    names_sent: bool,
    /// CPU time of this thread at the start of the transfer.
    cpu_before: Duration,
}

impl ReceivingRole<'_> {
    pub(crate) async fn run(mut self, destination: Box<dyn Destination>) -> Result<Received, End> {
        if let Some(card) = self.terms.card {
            self.wire.outbox().send(Message::Card(Card { bps: card.as_bps() }));
        }
        let (mut offer, is_incomplete) = self.first_offer().await?;
        // Check the lengths first: `hold` reserves memory for the whole manifest.
        offer.check()?;
        let mut list = Box::new(self.memory.list());
        list.hold(offer.list_len())?;
        listing::hear(self.wire, self.hooks, self.board.watch(), &mut offer).await?;
        let (object_len, manifest_len) = (offer.object_len, offer.manifest_len);
        let (events_end, events) = mpsc::unbounded_channel();
        let (closed, done) = oneshot::channel();
        let reporter = Reporter { board: self.board.clone(), events: events_end };
        let incoming = Incoming { offer, list, reporter, is_incomplete, closed };
        let jobs = destination.begin(incoming, self.writer.as_ref())?;
        jobs.charge_to(self.memory.messages());
        let (pieces_end, pieces) = mpsc::channel(2);
        let room = self.memory.streamed();
        let mut running = Running {
            end: &mut self,
            jobs,
            events,
            pieces,
            pieces_end,
            on_wire: Pieces::new(object_len.div_ceil(CHUNK)),
            waiting: None,
            room_request: None,
            room,
            object_len,
            manifest_len,
            flow: None,
            number: None,
            flows: Flows::default(),
            have: None,
            implied: Vec::new(),
            due: Due::default(),
            layout: None,
            silence: Silence::new(),
            quiet: Quiet::default(),
            names_sent: false,
            cpu_before: thread_time(),
        };
        let result = running.serve().await;
        running.close_flow();
        running.end.board.watch().end();
        running.jobs.send(Job::Stop);
        // Wait until the destination is closed, so that the copy can be resumed.
        let _ = tokio::time::timeout(closing(&result), done).await;
        result
    }

    /// Waits for the offer; the source may first have to walk its files. Also returns whether the
    /// source reported a failure before the offer.
    async fn first_offer(&mut self) -> Result<(Offer, bool), End> {
        let mut is_incomplete = false;
        let mut tick = tokio::time::interval(TICK);
        let began = Instant::now();
        loop {
            let message = tokio::select! {
                message = self.wire.next() => message?,
                _ = tick.tick() => {
                    self.hooks.tick()?;
                    if !self.decides && began.elapsed() > OFFER {
                        return Err(End::Lost("no offer arrived".into()));
                    }
                    continue;
                }
            };
            self.hooks.on_message(&message);
            self.board.note_spoke(clock::now());
            match message {
                Message::Offer(offer) => return Ok((offer, is_incomplete)),
                Message::EntryFailed(failed) => {
                    is_incomplete = true;
                    let failed = EntryFailed { at_source: true, ..failed };
                    self.hooks.entry_failed(&failed.path, &failed.reason, Whence::of(&failed));
                }
                Message::Status(status) => self.board.set_theirs(&status),
                _ => {}
            }
        }
    }
}

fn count_piece(board: &Board, piece: &ChunkPiece) {
    board.update(|counters| counters.written.streamed += piece.bytes.len() as u64);
}

fn lost_writer() -> Error {
    Error::new(ErrorKind::Unfinished, "the writing thread ended early")
}

impl Running<'_, '_> {
    async fn serve(&mut self) -> Result<Received, End> {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                message = self.end.wire.next(), if self.waiting.is_none() => self.take(message?)?,
                event = self.events.recv() => {
                    let event = event.ok_or_else(lost_writer)?;
                    if let Some(received) = self.on_event(event)? {
                        return Ok(received);
                    }
                }
                Some(session) = self.end.streams.recv(), if self.end.terms.protocol.is_none() => {
                    self.read_stream(session);
                }
                Some(chunk) = self.pieces.recv() => {
                    self.take_chunk(chunk?);
                }
                room = when(self.room_request.as_mut()) => self.take_waiting(room),
                _ = tick.tick() => self.tick()?,
            }
        }
    }

    fn tick(&mut self) -> Result<(), End> {
        self.end.board.note_carrying(self.cpu_before);
        let counters = self.end.board.mine();
        if let Some(flow) = &self.flow {
            limits::wanted(&counters.receiver, self.end.terms.protocol, flow.layout.block_size())?;
        }
        self.end.wire.outbox().send(Message::Status(Status::from(&counters)));
        if self.end.decides && self.flow.is_some() {
            self.silence.judge(&self.end.board, self.end.terms.rtt, false)?;
            let (now, lived) = (clock::now(), self.end.board.lived());
            if let Some(since) = self.quiet.look(now, lived, self.end.terms.rtt) {
                self.end.hooks.silence(since);
            }
        }
        if let Some(held) = self.end.board.watch().take_held() {
            self.end.hooks.held(&held);
        }
        if let Some(text) = self.end.board.watch().take_warning() {
            self.end.hooks.warn(text);
        }
        if self.jobs.is_overflown() {
            return Err(End::Lost(
                "more messages from the other side wait for the disk than this host keeps".into(),
            ));
        }
        if self.waiting.is_some() {
            self.end.hooks.deaf();
        }
        self.end.hooks.tick()
    }

    fn take(&mut self, message: Message) -> Result<(), End> {
        self.end.hooks.on_message(&message);
        self.end.board.note_spoke(clock::now());
        self.silence.control_spoke();
        match message {
            Message::Relay(relay) => {
                if let Some(flow) = self.flow.as_ref().filter(|flow| flow.id.0 == relay.flow) {
                    flow.mailbox.post(ReceiveCommand::Relay(relay));
                }
            }
            Message::Pass(pass) if self.number.is_none_or(|last| pass.number > last) => {
                self.begin(&pass)?;
            }
            Message::Digests(digests) => self.job(Job::Digests(digests)),
            Message::Compared(compared) => self.job(Job::Compared(compared)),
            Message::EntryFailed(failed) => {
                let failed = EntryFailed { at_source: true, ..failed };
                self.end.hooks.entry_failed(&failed.path, &failed.reason, Whence::of(&failed));
                self.job(Job::SourceFailed(failed));
            }
            Message::Status(status) => self.end.board.set_theirs(&status),
            Message::ChunkPiece(piece) => {
                limits::piece(self.end.terms.protocol)?;
                count_piece(&self.end.board, &piece);
                self.waiting = self.on_wire.take(piece)?;
                if self.waiting.is_some() {
                    let room = room_for_chunk(self.room.clone(), self.end.board.clone());
                    self.room_request = Some(Box::pin(room));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn job(&self, job: Job) {
        self.jobs.send(job);
    }

    fn take_waiting(&mut self, room: Option<OwnedSemaphorePermit>) {
        self.room_request = None;
        if let Some(room) = room
            && let Some((chunk, content)) = self.waiting.take()
        {
            self.take_chunk(Streamed { chunk, content, room });
        }
    }

    fn take_chunk(&self, streamed: Streamed) {
        let now = clock::now();
        self.end.board.note_first_datagram(now.as_nanos());
        self.end.board.note_last_block(now);
        self.end.board.note_received(now);
        self.job(Job::Streamed(streamed));
    }

    fn begin(&mut self, pass: &Pass) -> Result<(), End> {
        self.close_flow();
        self.number = Some(pass.number);
        self.job(Job::BeginPass { number: pass.number, lease: pass.lease });
        if pass.protocol.is_empty() {
            if self.end.terms.streams == 0 {
                self.end.wire.expect_much();
            }
            return Ok(());
        }
        let end = &self.end;
        let Some(row) = longhaul_proto::registry::find(&pass.protocol) else {
            let what =
                format!("the other side uses protocol {}, which is unknown here", pass.protocol);
            let error = Error::new(ErrorKind::Unreachable, what);
            return Err(error.advise("use the same release of longhaul on both sides").into());
        };
        limits::pass(pass, end.terms.protocol, self.object_len)?;
        let layout = layout(self.object_len, Bytes::new(pass.segment), pass.block)?;
        end.board.note_block(layout.block_size());
        let id = FlowId(pass.flow);
        self.flows.take(id)?;
        let keys = end.terms.keys(id).receiving_end();
        let drained = Arc::new(Drained::default());
        let (mailbox, commands) = end.port.mailbox(id);
        let shared = end.core.as_ref().and_then(|core| {
            core.watch(end.terms.peer, end.terms.datagram);
            core.of_flow(row, id, &end.port)
        });
        let rtt = longhaul_proto::time::Span::from_nanos(pass.rtt_nanos);
        let setup = Setup { rtt: rtt.max(end.terms.rtt), ..end.terms.setup(id, layout) };
        let flow = ReceivePass {
            flow: id,
            setup,
            core: shared.unwrap_or_else(row.receiver),
            data: keys.data.over(rtt.max(end.terms.rtt)),
            control: keys.control.over(rtt.max(end.terms.rtt)),
            reports: keys.reports,
            peer: end.terms.peer,
            contact: end.contact,
            port: end.port.clone(),
            memory: end.memory.clone(),
            // "Fake" RBUDP counts the blocks but does not move them to application memory (Quanta
            // section 4). The manifest must be kept nevertheless.
            kept: (end.receive == Receive::Fake).then(|| self.manifest_len.div_ceil(CHUNK)),
            outbox: end.wire.outbox().clone(),
            inlet: end.wire.inlet(),
            writer: self.jobs.clone(),
            drained: drained.clone(),
            board: end.board.clone(),
            earlier: if pass.number == 0 { Counters::default() } else { end.board.mine() },
            commands,
        };
        let receiving = Receiving::new(clock::now(), flow);
        end.port.register(
            id,
            match end.receive {
                Receive::Scatter => Box::new(Scattered::new(receiving)),
                Receive::Naive | Receive::Fake => Box::new(receiving),
            },
        )?;
        // The padding is known before the manifest has arrived.
        mailbox.post(ReceiveCommand::Skip(blocks_within(&layout, self.padding())));
        self.layout = Some(layout);
        self.flow = Some(Flow { id, layout, mailbox, drained });
        self.send_have();
        Ok(())
    }

    /// Returns the byte range between the end of the manifest and the end of its last chunk. This
    /// padding is never sent.
    fn padding(&self) -> Range<u64> {
        self.manifest_len..self.manifest_len.next_multiple_of(CHUNK)
    }

    fn chunks(&self) -> u64 {
        self.object_len.div_ceil(CHUNK)
    }

    fn note_due(&self) {
        let Some(layout) = &self.layout else { return };
        let implied = [&self.implied[..], &[self.padding()]].concat();
        let due = self.due.blocks(layout, &implied);
        self.end.board.update(|counters| counters.written.due = Some(due));
    }

    /// Tells the flow which chunks need not arrive, once the plan is known.
    fn send_have(&self) {
        let (Some(flow), Some(have)) = (&self.flow, &self.have) else { return };
        let mut runs: Vec<BlockRange> = Vec::new();
        for bytes in &self.implied {
            runs.extend(blocks_within(&flow.layout, bytes.clone()));
        }
        for chunks in have {
            runs.extend(blocks_of(&flow.layout, chunks.clone()));
        }
        flow.mailbox.post(ReceiveCommand::Skip(runs));
        flow.drained.set_planned();
        flow.mailbox.post(ReceiveCommand::Drained);
    }

    fn send_plan(&self, slices: Vec<Plan>) {
        for slice in slices {
            let plan = Plan { takes_coded: true, takes_flight: true, ..slice };
            self.end.wire.outbox().send(Message::Plan(plan));
        }
    }

    fn take_plan(&mut self, have: Vec<Range<u64>>, implied: Vec<Range<u64>>) {
        self.due.add(&without(std::slice::from_ref(&(0..self.chunks())), &have));
        // The manifest also had to arrive.
        let list = 0..self.manifest_len.div_ceil(CHUNK);
        self.due.add(std::slice::from_ref(&list));
        self.have = Some(have);
        self.implied = implied;
        self.send_have();
    }

    fn on_event(&mut self, event: WriterEvent) -> Result<Option<Received>, End> {
        match event {
            WriterEvent::Planned { manifest, slices, have, implied, skipped, resumed_bytes } => {
                let asks = slices.iter().any(|slice| !slice.compare.is_empty());
                // The sender reports these names to its user. The outcome must not overtake the
                // plan, or the sender would end before its report.
                self.names_sent |= !skipped.is_empty();
                self.send_plan(slices);
                let there = There { bytes: resumed_bytes, asks };
                self.end.hooks.planned(&manifest, &skipped, there);
                self.take_plan(have, implied);
            }
            WriterEvent::Asks(slices) => self.send_plan(slices),
            WriterEvent::Needless(chunks) => {
                let chunks = tidy(chunks);
                let ranges = Some(Ranges::encode(chunks.iter().cloned()));
                self.end.wire.outbox().send(Message::Needless(Needless { chunks: ranges }));
                self.skip(chunks);
            }
            WriterEvent::WouldCopy { manifest, entries } => {
                self.end.hooks.would_copy(&manifest, &entries);
            }
            WriterEvent::Named { manifest, entries } => {
                self.names_sent = true;
                self.end.hooks.named(&manifest, &entries);
            }
            WriterEvent::Deleted(paths) => self.deleted(&paths),
            WriterEvent::Same(chunks) => self.skip(chunks),
            WriterEvent::Drained => {
                if let Some(flow) = &self.flow {
                    flow.mailbox.post(ReceiveCommand::Drained);
                }
            }
            WriterEvent::PassEnd(end) => {
                self.await_only(end.failed.as_ref());
                self.send_both_ways(Message::PassEnd(end));
            }
            WriterEvent::Lease(lease) => {
                self.await_only(lease.chunks.as_ref());
                // Only over the stream: a datagram with the lease (the chunks that the sender sends
                // next) could overtake messages of the stream that cancel needless chunks.
                self.end.wire.outbox().send(Message::Lease(lease));
            }
            WriterEvent::EntryFailed { path, reason } => {
                self.end.hooks.entry_failed(&path, &reason, Whence::Destination);
                self.end.wire.outbox().send(Message::EntryFailed(EntryFailed {
                    entry: u64::MAX,
                    path,
                    reason,
                    at_source: false,
                    changed: false,
                }));
            }
            WriterEvent::Outcome(outcome, mark) => {
                let outcome = self.send_outcome(*outcome);
                return Ok(Some(Received { outcome, mark }));
            }
            WriterEvent::Again(why) => return Err(End::Lost(why)),
            WriterEvent::Failed(error) => return Err(End::Fatal(error)),
        }
        Ok(None)
    }

    fn send_outcome(&mut self, mut outcome: Outcome) -> Outcome {
        self.note_due();
        outcome.status = Some(self.end.board.status());
        let last = self.end.board.last_block();
        outcome.since_last_nanos = last.map(|at| clock::now().since(at).as_nanos());
        let message = Message::Outcome(outcome.clone());
        // The sender reads nothing after the outcome. As a datagram, the outcome could overtake
        // messages with names on the control stream.
        match self.names_sent {
            true => self.end.wire.outbox().send(message),
            false => self.send_both_ways(message),
        }
        outcome
    }

    fn deleted(&mut self, paths: &[Vec<u8>]) {
        self.names_sent = true;
        self.end.hooks.deleted(paths);
    }

    /// Expects exactly these chunks from the next pass.
    fn await_only(&mut self, chunks: Option<&Ranges>) {
        let Some(Ok(chunks)) = chunks.map(|chunks| chunks.decode(self.chunks())) else { return };
        self.due.add(&chunks);
        self.have = Some(without(std::slice::from_ref(&(0..self.chunks())), &chunks));
    }

    fn skip(&mut self, chunks: Vec<Range<u64>>) {
        if let Some(flow) = &self.flow {
            let runs = chunks.iter().flat_map(|c| blocks_of(&flow.layout, c.clone()));
            flow.mailbox.post(ReceiveCommand::Skip(runs.collect()));
        }
        self.due.spare(&chunks);
        if let Some(have) = &mut self.have {
            have.extend(chunks);
            *have = tidy(std::mem::take(have));
        }
    }

    fn send_both_ways(&self, message: Message) {
        self.end.wire.outbox().send(message.clone());
        if let Some(flow) = &self.flow {
            flow.mailbox.post(ReceiveCommand::Ahead(Box::new(message)));
        }
    }

    /// Reads chunks from an additional stream.
    fn read_stream(&self, session: Session) {
        let (sink, room) = (self.pieces_end.clone(), self.room.clone());
        let board = self.end.board.clone();
        let chunks = self.chunks();
        tokio::task::spawn_local(async move {
            let mut pieces = Pieces::new(chunks);
            let (_writer, mut reader) = session.split();
            // The permit for a chunk's memory, from the chunk's first piece on.
            let mut permit = None;
            loop {
                let read = tokio::select! {
                    read = reader.read::<Frame>() => read,
                    // The transfer is over; ignore the rest of the stream.
                    () = sink.closed() => return,
                };
                let piece = match read {
                    Ok(Some(Frame { message: Some(Message::ChunkPiece(piece)) })) => piece,
                    Ok(Some(_)) => continue,
                    // The stream has ended. The other side detects whether it was broken.
                    Ok(None) | Err(_) => return,
                };
                count_piece(&board, &piece);
                let room = match permit.take() {
                    Some(room) => room,
                    None => match room_for_chunk(room.clone(), board.clone()).await {
                        Some(room) => room,
                        None => return,
                    },
                };
                let chunk = match pieces.take(piece) {
                    Ok(None) => {
                        permit = Some(room);
                        continue;
                    }
                    Ok(Some((chunk, content))) => Ok(Streamed { chunk, content, room }),
                    Err(error) => Err(error),
                };
                if sink.send(chunk).await.is_err() {
                    return;
                }
            }
        });
    }

    fn close_flow(&mut self) {
        if let Some(flow) = self.flow.take() {
            flow.mailbox.post(ReceiveCommand::Close);
        }
    }
}
