//! The sending role of a transfer: offers the object (the list of files, and their content), and
//! sends it in passes. A *pass* sends the chunks that are missing when it starts. If the object
//! comes from replicas, a *lease* says which chunks this end has to send.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use longhaul_net::port::PortHandle;
use longhaul_net::socket::Path;
use longhaul_proto::endpoint::{Event, FlowId, Setup};
use longhaul_proto::units::Rate;
use tokio::sync::mpsc;

use super::begin::{self, FlowEnds};
use super::carried::{Carried, ended};
use super::flight::{Adopted, Flight};
use super::flows::Flows;
use super::named::{self, decode};
use super::plan::PlanSoFar;
use super::prepared::Description;
use super::silence::Silence;
use super::terms::{Terms, layout};
use super::wire::{End, Wire};
use super::{Hooks, TICK, There, Whence, closing, listing, lost_thread, ticking};
use crate::control::{Heard, Message, Outcome, Pass, Plan};
use crate::counters::board::Board;
use crate::counters::thread_time;
use crate::error::{Error, ErrorKind};
use crate::flow::payloads::Payloads;
use crate::flow::send::{self, SendCommand, SenderEvent};
use crate::flow::stream;
use crate::random::random_flow;
use crate::session::Session;
use crate::write::skip::{blocks_of, without};
use longhaul_files::watch::Held;
use longhaul_files::{Manifest, VirtualObject};

/// Maximum number of passes that repeat chunks whose verification or sync failed.
const MAX_REPEATS: u32 = 3;
/// How long to wait for the first additional stream. The copy also works without it.
const FIRST_STREAM: Duration = Duration::from_secs(3);
/// How long to wait for each further stream; two round trips if they take longer.
const STRAGGLER: Duration = Duration::from_millis(200);
/// The UDP payload to fall back to if larger datagrams are dropped: every IPv6 path carries it.
const SAFE_DATAGRAM: u16 = 1280 - 40 - 8;
/// The next fallback: every IPv4 host accepts packets of 576 bytes (RFC 791).
const SMALLEST_DATAGRAM: u16 = 576 - 20 - 8;

pub(crate) struct SendingRole<'a> {
    pub(crate) wire: &'a mut Wire,
    pub(crate) terms: Terms,
    pub(crate) port: PortHandle,
    /// Where the data go; `None` until the other end's address is known.
    pub(crate) path: Option<Path>,
    pub(crate) flow: FlowId,
    pub(crate) board: Arc<Board>,
    /// Additional sessions that carry chunks.
    pub(crate) streams: mpsc::UnboundedReceiver<Session>,
    pub(crate) hooks: &'a dyn Hooks,
    /// Whether this end is the client, which decides whether the path lets datagrams through.
    pub(crate) decides: bool,
    /// Whether only the manifest is sent, for the other end's plan.
    pub(crate) dry_run: bool,
    /// Whether the other end already has the manifest, and leases ranges of chunks to this end.
    pub(crate) surveyed: bool,
}

/// The first pass: its payloads, or the flow that already sends them.
pub(crate) enum FirstPass {
    Payloads(Box<Payloads>),
    Flight(Box<Flight>),
}

struct Running<'a, 'b> {
    end: &'b mut SendingRole<'a>,
    manifest: Arc<Manifest>,
    virtual_object: VirtualObject,
    carried: Option<Carried>,
    events: mpsc::UnboundedReceiver<SenderEvent>,
    events_end: mpsc::UnboundedSender<SenderEvent>,
    plan: PlanSoFar,
    number: u32,
    flows: Flows,
    /// The number of the lease that the current pass serves.
    lease: u32,
    /// The number of passes that repeated chunks whose verification or sync failed.
    repeats: u32,
    datagram: u16,
    /// Chunks of the current pass; `None` for all.
    missing: Option<Vec<Range<u64>>>,
    /// The payloads of the next pass, while the other end does not receive yet.
    waiting: Option<Payloads>,
    /// The capacity of the receiving host's card, once reported.
    peer_card: Option<Rate>,
    takes_coded: bool,
    /// Whether the first flight is the current pass, and the other end has not accepted it yet.
    is_flight: bool,
    silence: Silence,
    /// CPU time of this thread at the start of the transfer.
    cpu_before: Duration,
}

impl SendingRole<'_> {
    pub(crate) async fn run(
        mut self,
        description: Description,
        first: FirstPass,
    ) -> Result<Outcome, End> {
        let Description { offer, list, failures, manifest, object: virtual_object } = description;
        // Report failures before the offer: if nothing is missing, the other end may be done after
        // the offer.
        for failure in &failures {
            self.hooks.entry_failed(&failure.path, &failure.reason, Whence::at_source(failure));
            send::report_failure(failure, self.wire.outbox());
        }
        self.wire.outbox().send(Message::Offer(offer));
        let card = match list {
            Some(encoded) => {
                listing::send_list(self.wire, self.hooks, self.board.watch(), &encoded).await?
            }
            None => None,
        };
        let (events_end, events) = mpsc::unbounded_channel();
        let (datagram, takes_coded) = (self.terms.datagram, self.terms.starts_coded());
        let plan = PlanSoFar::new(virtual_object.chunks(), manifest.entries().len() as u64);
        let mut running = Running {
            end: &mut self,
            manifest,
            virtual_object,
            carried: None,
            events,
            events_end,
            plan,
            number: 0,
            flows: Flows::default(),
            lease: 0,
            repeats: 0,
            datagram,
            missing: None,
            waiting: None,
            peer_card: card.and_then(|card| card.speed()),
            takes_coded,
            is_flight: false,
            silence: Silence::new(),
            cpu_before: thread_time(),
        };
        match first {
            FirstPass::Payloads(payloads) => running.begin_pass(*payloads).await?,
            FirstPass::Flight(flight) => running.adopt(*flight)?,
        }
        let result = running.serve().await;
        let _ = tokio::time::timeout(closing(&result), running.stop()).await;
        if result.is_ok() && self.decides {
            self.wire.outbox().send(Message::Heard(Heard {}));
        }
        result
    }
}

impl Running<'_, '_> {
    async fn serve(&mut self) -> Result<Outcome, End> {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        loop {
            let carried = self.carried.as_mut();
            tokio::select! {
                message = self.end.wire.next() => {
                    if let Some(outcome) = self.take(message?).await? {
                        return Ok(outcome);
                    }
                }
                Some(event) = self.events.recv() => self.on_event(event).await?,
                ended = ended(carried) => return Err(ended),
                _ = tick.tick() => self.tick()?,
            }
        }
    }

    async fn take(&mut self, message: Message) -> Result<Option<Outcome>, End> {
        self.end.hooks.on_message(&message);
        self.end.board.note_spoke(longhaul_net::clock::now());
        self.silence.control_spoke();
        let all = self.virtual_object.chunks();
        match message {
            Message::Relay(relay) => {
                if let Some(Carried::Flow { flow, commands, .. }) = &self.carried
                    && flow.0 == relay.flow
                {
                    let _ = commands.send(SendCommand::Relay(relay));
                }
            }
            Message::Card(told) if self.peer_card.is_none() => {
                let Some(card) = told.speed() else { return Ok(None) };
                self.peer_card = Some(card);
                if let Some(Carried::Flow { commands, .. }) = &self.carried {
                    let _ = commands.send(SendCommand::PeerCard(card));
                }
            }
            Message::Plan(plan) => self.hear_plan(plan).await?,
            Message::Needless(needless) => {
                let chunks = decode(needless.chunks.as_ref(), all, "needless chunks")?;
                let new = self.plan.add_needless(chunks);
                self.skip(&new);
            }
            Message::Status(status) => self.end.board.set_theirs(&status),
            Message::Held(held) if self.end.decides => {
                let patience = held.patience();
                self.end.hooks.held(&Held { path: held.path, patience });
            }
            Message::Warning(warning) if self.end.decides => self.end.hooks.warn(warning.text),
            Message::Wait(wait) if self.end.decides => match wait.over {
                false => self.wait().await?,
                true => self.go_on().await?,
            },
            Message::Lease(lease) if lease.number > self.lease => {
                let chunks = decode(lease.chunks.as_ref(), all, "leased chunks")?;
                // Each lease starts a pass and replaces the plan.
                if self.end.surveyed {
                    self.lease = lease.number;
                    self.plan.have.clear();
                    self.go_on_with(chunks).await?;
                }
            }
            Message::PassEnd(end) if end.number == self.number => {
                let failed = decode(end.failed.as_ref(), all, "failed chunks")?;
                if !failed.is_empty() {
                    self.repeat(failed).await?;
                }
            }
            Message::EntryFailed(failed) => {
                self.end.hooks.entry_failed(&failed.path, &failed.reason, Whence::of(&failed));
            }
            Message::Named(_) | Message::DeletedNames(_) if self.end.decides => {
                named::hear(self.end.hooks, &self.manifest, &message)?;
            }
            Message::Outcome(outcome) => {
                // The reports on single entries may not have arrived before the outcome.
                for failed in &outcome.failed {
                    self.end.hooks.entry_failed(&failed.path, &failed.reason, Whence::of(failed));
                }
                return Ok(Some(outcome));
            }
            _ => {}
        }
        Ok(None)
    }

    async fn hear_plan(&mut self, plan: Plan) -> Result<(), End> {
        let is_refused = std::mem::take(&mut self.is_flight) && !plan.takes_flight;
        self.take_plan(plan)?;
        if is_refused { self.pass_again().await } else { Ok(()) }
    }

    fn take_plan(&mut self, plan: Plan) -> Result<(), End> {
        if self.plan.complete {
            return Ok(());
        }
        if plan.takes_coded
            && !std::mem::replace(&mut self.takes_coded, true)
            && let Some(Carried::Flow { commands, .. }) = &self.carried
        {
            let _ = commands.send(SendCommand::Coded);
        }
        let have = decode(plan.have.as_ref(), self.virtual_object.chunks(), "planned chunks")?;
        let entries = self.manifest.entries().len() as u64;
        let skipped = decode(plan.skipped.as_ref(), entries, "skipped entries")?;
        let asked = plan.compare.iter().map(|ask| ask.chunks.len().max(1) as u64).sum();
        self.skip(&have);
        self.plan.add(have, skipped, asked)?;
        for ask in plan.compare {
            match &self.carried {
                Some(Carried::Flow { commands, .. }) => {
                    let _ = commands.send(SendCommand::Compare(ask));
                }
                Some(Carried::Stream(outgoing)) => outgoing.compare(ask),
                None => {}
            }
        }
        if !plan.more {
            self.plan.complete();
            let there = There { bytes: plan.resumed_bytes, asks: self.plan.asks };
            self.end.hooks.planned(&self.manifest, &self.plan.skipped, there);
            if self.end.dry_run {
                self.report_due();
            }
            if let Some(Carried::Stream(outgoing)) = &self.carried {
                outgoing.planned();
            }
        }
        Ok(())
    }

    /// Reports, in a dry run, the entries that a real run would copy.
    fn report_due(&self) {
        let all = 0..self.manifest.entries().len() as u64;
        let due = without(std::slice::from_ref(&all), &self.plan.skipped);
        self.end.hooks.would_copy(&self.manifest, &due);
    }

    fn skip(&self, chunks: &[Range<u64>]) {
        if chunks.is_empty() {
            return;
        }
        match &self.carried {
            Some(Carried::Flow { commands, .. }) => {
                if let Ok(layout) = self.layout() {
                    let runs = chunks.iter().flat_map(|chunks| blocks_of(&layout, chunks.clone()));
                    let _ = commands.send(SendCommand::Skip(runs.collect()));
                }
            }
            Some(Carried::Stream(outgoing)) => outgoing.skip(chunks.to_vec()),
            None => {}
        }
    }

    fn layout(&self) -> Result<longhaul_proto::layout::Layout, Error> {
        let terms = &self.end.terms;
        layout(self.virtual_object.len(), terms.segment, terms.block(self.datagram))
    }

    async fn on_event(&mut self, event: SenderEvent) -> Result<(), End> {
        match event {
            // The path has changed: start again, with a new search for the datagram size.
            SenderEvent::TooLarge { begun: true } => {
                let why = "datagrams of this size no longer pass";
                return Err(End::Lost(why.into()));
            }
            SenderEvent::TooLarge { .. } if self.datagram > SMALLEST_DATAGRAM => {
                self.datagram =
                    if self.datagram > SAFE_DATAGRAM { SAFE_DATAGRAM } else { SMALLEST_DATAGRAM };
                if self.waiting.is_none() {
                    self.pass_again().await?;
                }
            }
            SenderEvent::TooLarge { .. } if self.end.decides => return Err(End::NoDatagrams),
            SenderEvent::Failed(failure) => {
                let whence = Whence::at_source(&failure);
                self.end.hooks.entry_failed(&failure.path, &failure.reason, whence);
            }
            SenderEvent::Core(Event::Silent(since)) => self.end.hooks.silence(Some(since)),
            SenderEvent::Core(Event::Resumed) => self.end.hooks.silence(None),
            // A round or segment has ended, or the rate has changed: send the counters now.
            SenderEvent::Core(_) => {
                self.end.wire.outbox().send(Message::Status(self.end.board.status()));
            }
            SenderEvent::TooLarge { .. } => {}
        }
        Ok(())
    }

    async fn repeat(&mut self, failed: Vec<Range<u64>>) -> Result<(), End> {
        if self.repeats >= MAX_REPEATS {
            let count: u64 = failed.iter().map(|range| range.end - range.start).sum();
            let times = MAX_REPEATS + 1;
            let what = format!(
                "chunks failed verification, or a sync of their files failed, {times} times \
                 ({count} chunks in the last pass)"
            );
            let error = Error::new(ErrorKind::Verification, what);
            return Err(End::Fatal(error.advise("check the memory and the disk of both hosts")));
        }
        self.repeats += 1;
        self.go_on_with(failed).await
    }

    /// Starts another pass with exactly these chunks.
    async fn go_on_with(&mut self, chunks: Vec<Range<u64>>) -> Result<(), End> {
        self.missing = Some(chunks);
        self.pass_again().await
    }

    async fn pass_again(&mut self) -> Result<(), End> {
        let payloads = self.take_payloads().await?;
        self.number += 1;
        self.begin_pass(payloads).await
    }

    /// Stops the pass, because the other end does not receive yet. A pass over streams continues:
    /// the streams accept no data until the other end reads.
    async fn wait(&mut self) -> Result<(), End> {
        if matches!(self.carried, Some(Carried::Flow { .. })) {
            self.waiting = Some(self.take_payloads().await?);
        }
        Ok(())
    }

    /// Replaces the stopped pass by another one, because the other end now receives.
    async fn go_on(&mut self) -> Result<(), End> {
        let Some(payloads) = self.waiting.take() else { return Ok(()) };
        self.number += 1;
        self.begin_pass(payloads).await
    }

    async fn begin_pass(&mut self, payloads: Payloads) -> Result<(), End> {
        let (first, asked) = (self.number == 0, self.end.flow);
        let flow = self.flows.draw(|| if first { asked } else { random_flow() });
        let layout = self.layout()?;
        self.end.board.note_block(layout.block_size());
        self.announce_pass(flow, &layout);
        self.carried = Some(match self.end.terms.protocol {
            Some(row) => {
                let terms = &self.end.terms;
                // Later passes search for their rate anew: the remembered rate may be wrong.
                let remembered = terms.remembered.filter(|_| self.number == 0);
                let card = terms.card;
                let setup = Setup { card, remembered, ..terms.setup(flow, layout) };
                let mut core = (row.sender)(&setup);
                let now = longhaul_net::clock::now();
                if let Some(card) = self.peer_card {
                    core.set_peer_card(now, card);
                }
                if self.takes_coded {
                    core.allow_coded();
                }
                for run in self.not_sent(&layout) {
                    core.skip(now, flow, run);
                }
                let (end, datagram) = (&self.end, self.datagram);
                let ends = FlowEnds {
                    port: end.port.clone(),
                    path: end.path,
                    outbox: end.wire.outbox().clone(),
                    inlet: end.wire.inlet(),
                    board: end.board.clone(),
                    // A first flight that was recalled (because it did not fit the session) has
                    // counted its datagrams too.
                    earlier: end.board.mine(),
                    events: self.events_end.clone(),
                    receipts: None,
                };
                let begun = ends.begin(terms, core, (flow, layout, datagram), payloads)?;
                let (commands, done) = begun;
                Carried::Flow { flow, commands, done, forwarding: None }
            }
            None => {
                let wanted = self.wanted_chunks();
                Carried::Stream(self.begin_stream(payloads, wanted).await?)
            }
        });
        Ok(())
    }

    /// Makes the first flight the first pass.
    fn adopt(&mut self, flight: Flight) -> Result<(), Error> {
        let flow = self.flows.draw(|| flight.flow);
        (self.datagram, self.is_flight) = (flight.terms.datagram, true);
        self.announce_pass(flow, &flight.layout);
        let adopted = flight.adopt(self.end.wire).ok_or_else(lost_thread)?;
        (self.events_end, self.events) = (adopted.events_end, adopted.events);
        let Adopted { commands, done, forwarding, .. } = adopted;
        let forwarding = Some(forwarding);
        self.carried = Some(Carried::Flow { flow, commands, done, forwarding });
        Ok(())
    }

    fn announce_pass(&self, flow: FlowId, layout: &longhaul_proto::layout::Layout) {
        let terms = &self.end.terms;
        self.end.wire.outbox().send(Message::Pass(Pass {
            number: self.number,
            flow: flow.0,
            block: layout.block_size(),
            segment: terms.segment.get(),
            rtt_nanos: terms.rtt.as_nanos(),
            protocol: terms.protocol.map_or("", |row| row.name).to_owned(),
            lease: self.lease,
        }));
    }

    /// Returns the runs of blocks that the current pass need not send, as far as known now.
    fn not_sent(
        &self,
        layout: &longhaul_proto::layout::Layout,
    ) -> Vec<longhaul_proto::endpoint::BlockRange> {
        let mut runs = begin::implied(&self.virtual_object, layout);
        runs.extend(self.plan.have.iter().flat_map(|chunks| blocks_of(layout, chunks.clone())));
        if let Some(missing) = &self.missing {
            let all = 0..self.virtual_object.chunks();
            let others = without(std::slice::from_ref(&all), missing);
            runs.extend(others.into_iter().flat_map(|chunks| blocks_of(layout, chunks)));
        }
        runs
    }

    fn wanted_chunks(&self) -> Vec<Range<u64>> {
        let manifest = self.virtual_object.manifest_chunks();
        let dry_run = self.end.dry_run;
        let chunks = if dry_run { manifest } else { self.virtual_object.chunks() };
        let all = || std::iter::once(0..chunks).filter(|range| !range.is_empty()).collect();
        let wanted: Vec<_> = self.missing.clone().unwrap_or_else(all);
        let holes: Vec<_> = self.virtual_object.hole_chunks().collect();
        without(&without(&wanted, &holes), &self.plan.have)
    }

    async fn begin_stream(
        &mut self,
        payloads: Payloads,
        wanted: Vec<Range<u64>>,
    ) -> Result<stream::Outgoing, Error> {
        let mut sessions = Vec::new();
        let late = longhaul_net::clock::duration(self.end.terms.rtt * 2).max(STRAGGLER);
        let deadline = tokio::time::sleep(FIRST_STREAM);
        tokio::pin!(deadline);
        while self.number == 0 && sessions.len() < self.end.terms.streams as usize {
            tokio::select! {
                Some(session) = self.end.streams.recv() => {
                    // The streams were opened together, so the others should arrive soon.
                    deadline.as_mut().reset(tokio::time::Instant::now() + late);
                    sessions.push(session);
                }
                () = &mut deadline => break,
            }
        }
        let end = &self.end;
        if sessions.is_empty() {
            end.wire.expect_much();
        }
        let (bulk, outbox) = (end.wire.bulk(), end.wire.outbox().clone());
        let planned = self.plan.complete;
        let board = end.board.clone();
        board.update(|counters| counters.sender.rtt = end.terms.rtt);
        let events = self.events_end.clone();
        stream::send(stream::Outgo {
            payloads,
            wanted,
            planned,
            sessions,
            bulk,
            outbox,
            board,
            events,
            // Only the first pass has additional streams.
            trial: (end.terms.try_streams && self.number == 0).then_some(end.terms.rtt),
            cap: end.terms.cap(),
        })
    }

    /// Ends the current pass and returns its payloads. Calls `tick` while a disk blocks the pass.
    async fn take_payloads(&mut self) -> Result<Payloads, End> {
        let stopped = self.stop();
        let payloads = ticking(stopped, || self.tick()).await?;
        Ok(payloads.ok_or_else(lost_thread)?)
    }

    /// Ends the current pass; the future returns its payloads.
    fn stop(&mut self) -> impl Future<Output = Option<Payloads>> + use<> {
        let carried = self.carried.take();
        self.is_flight = false;
        if let Some(Carried::Flow { flow, commands, .. }) = &carried {
            let _ = commands.send(SendCommand::Stop);
            self.end.port.unregister(*flow);
        }
        async move { carried?.payloads().await }
    }

    fn tick(&mut self) -> Result<(), End> {
        self.end.board.note_carrying(self.cpu_before);
        self.end.wire.outbox().send(Message::Status(self.end.board.status()));
        if self.end.decides && matches!(self.carried, Some(Carried::Flow { .. })) {
            // The other end sends keep-alive datagrams at all times.
            self.silence.judge(&self.end.board, self.end.terms.rtt, true)?;
        }
        self.end.hooks.tick()
    }
}
