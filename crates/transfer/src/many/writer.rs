//! The writer thread of a copy from replicas (sources that have the same object). It has one
//! destination, one journal (the list of written chunks), and leases of the missing chunks. A lease
//! assigns chunks to a source.
//!
//! The receiving end of each source uses this thread. The hash of each chunk is known before the
//! first chunk arrives, from the version that most sources have. A source that sends other data is
//! named and excluded. A chunk that arrives twice is written once.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use longhaul_net::clock;
use longhaul_proto::fec::Decoder;
use longhaul_proto::time::{Span, Time};
use tokio::sync::mpsc::UnboundedSender;

use super::leases::{Given, Leases};
use crate::control::{Lease, Outcome, Ranges};
use crate::counters::Counters;
use crate::counters::board::Board;
use crate::counters::spent::Spent;
use crate::error::{Error, ErrorKind};
use crate::write::chunk::Content;
use crate::write::destination::{Destination, Incoming, Reporter};
use crate::write::jobs::{Job, JobInbox, Jobs, Join, WriterEvent};
use crate::write::planned;
use crate::write::skip::{tidy, without};
use crate::write::writer::{forged, port_closed};
use longhaul_files::digest::Digest;
use longhaul_files::place::show;
use longhaul_files::{
    CHUNK, ChunkKind, Manifest, Place, Plan, Sink, SinkOptions, Verdict, VirtualObject,
};
use longhaul_text::clipped;

/// Interval between checks for silent sources. A check also updates rates; see [`MEASURE`].
const TICK: Duration = Duration::from_millis(100);
/// A source is silent if nothing has arrived from it for this long and for [`SILENT_RTTS`] round
/// trips. Other sources may take its lease.
const SILENT: Span = Span::from_secs(2);
/// Minimum length of a silence in round trips; see [`SILENT`].
const SILENT_RTTS: u64 = 4;
/// A longer gap between two checks counts as a pause of this host.
const PAUSE: Duration = Duration::from_secs(1);
/// Time over which the rate of a source is measured.
const MEASURE: Duration = Duration::from_secs(1);
/// Weight of the earlier mean in the new mean of the rate.
const KEPT: f64 = 0.5;

/// The source number that stands for the whole copy: a [`Job::Stop`] with this number ends the
/// thread.
pub(crate) const WHOLE: usize = usize::MAX;

/// The version of the object that most sources have.
pub(crate) struct Agreed {
    /// The list of files, without holes: replicas send holes as zeros.
    pub(crate) manifest: Arc<Manifest>,
    /// The hash of each chunk.
    pub(crate) values: Arc<Vec<Digest>>,
    /// Number of sources that have this version.
    pub(crate) sources: usize,
}

#[derive(Clone)]
pub(crate) struct ReplicaLink {
    pub(crate) jobs: Jobs,
    /// BLAKE3 of the manifest that the source sent before the copy, in the survey (the comparison
    /// of the sources).
    pub(crate) manifest: Digest,
}

impl Destination for ReplicaLink {
    /// Adds a source to the copy, once its offer (digest of the manifest, length of the object) has
    /// arrived.
    fn begin(self: Box<Self>, incoming: Incoming, _: Option<&Jobs>) -> Result<Jobs, Error> {
        let ReplicaLink { jobs, manifest } = *self;
        let Incoming { offer, reporter, .. } = incoming;
        jobs.send(Job::Join(Box::new(Join { offer, manifest, reporter })));
        Ok(jobs)
    }
}

pub(crate) enum ReplicaEvent {
    /// Bytes that an earlier run left.
    Resumed(u64),
    /// A source has no lease left, or has a lease again.
    Waits { source: usize, waits: bool },
    /// A source became silent, or sends again.
    Silent { source: usize, silent: bool },
    /// These entries have their final names.
    Named { manifest: Arc<Manifest>, entries: Vec<Range<u64>> },
    /// A file failed on this host.
    EntryFailed { path: Vec<u8>, reason: String },
    /// The object is complete.
    Outcome(Box<Outcome>),
    /// The writer cannot continue.
    Failed(Error),
}

/// Opens the destination and starts the writer thread. The thread ends with the [`Job::Stop`] of
/// [`WHOLE`], or when all senders of jobs are dropped. Then the channel of `events` closes.
pub(crate) fn spawn(
    agreed: Agreed,
    place: &Place,
    options: &SinkOptions,
    board: Arc<Board>,
    events: UnboundedSender<ReplicaEvent>,
) -> Result<Jobs, Error> {
    let (sink, plan) = Sink::open(place, &agreed.manifest, 0, options, board.watch())?;
    board.set_totals(agreed.manifest.bytes(), agreed.manifest.files());
    let (jobs, inbox) = Jobs::new();
    let writer = ReplicaWriter {
        object: VirtualObject::new(&agreed.manifest, 0),
        values: agreed.values,
        expected: agreed.sources,
        sink: Some(sink),
        leases: Leases::default(),
        members: BTreeMap::new(),
        resumed: plan.resumed_bytes,
        board,
        events,
        failures_reported: 0,
        decoder: Decoder::new(),
        spent: Spent::default(),
        outcome: None,
    };
    std::thread::Builder::new()
        .name("write".into())
        .spawn(move || writer.run(&plan, &inbox))
        .map_err(|error| {
            Error::new(ErrorKind::Unfinished, format!("cannot start a writing thread: {error}"))
        })?;
    Ok(jobs)
}

struct ReplicaWriter {
    object: VirtualObject,
    values: Arc<Vec<Digest>>,
    /// Number of sources that have the agreed version.
    expected: usize,
    /// `None` once the object is complete, or after an error.
    sink: Option<Sink>,
    leases: Leases,
    members: BTreeMap<usize, Member>,
    /// Bytes that earlier runs left.
    resumed: u64,
    board: Arc<Board>,
    events: UnboundedSender<ReplicaEvent>,
    failures_reported: usize,
    decoder: Decoder,
    spent: Spent,
    outcome: Option<Outcome>,
}

struct Member {
    reporter: Reporter,
    joined: Time,
    /// The number of the last lease sent to the source.
    last_lease: u32,
    /// The number of the lease that the source's current pass (one transmission of chunks) serves.
    begun_lease: u32,
    waits: bool,
    silent: bool,
    /// Needed chunks received since `measured`.
    received: u64,
    measured: Instant,
    /// The mean rate in chunks a second, once measured.
    rate: Option<f64>,
}

impl Member {
    fn report(&self, event: WriterEvent) {
        // A receiving end sends `Job::Stop` when it ends, so an event that it no longer reads does
        // not matter.
        self.reporter.report(event);
    }

    fn is_silent(&self, now: Time) -> bool {
        let rtt = self.reporter.board.theirs().sender.rtt;
        now.since(self.reporter.board.lived().max(self.joined)) > SILENT.max(rtt * SILENT_RTTS)
    }

    /// Updates and returns the source's mean rate. Returns `None` until [`MEASURE`] has passed
    /// since the last update.
    fn measure(&mut self) -> Option<f64> {
        let passed = self.measured.elapsed();
        if passed < MEASURE {
            return None;
        }
        let brought = std::mem::take(&mut self.received) as f64 / passed.as_secs_f64();
        let rate = self.rate.map_or(brought, |rate| rate * KEPT + brought * (1.0 - KEPT));
        self.measured = Instant::now();
        self.rate = Some(rate);
        self.rate
    }

    /// Restarts the measurement, which must not include time without a lease.
    fn measure_anew(&mut self) {
        self.received = 0;
        self.measured = Instant::now();
    }
}

impl ReplicaWriter {
    fn run(mut self, plan: &Plan, inbox: &JobInbox) {
        self.attempt(|writer| writer.begin(plan));
        let mut looked = Instant::now();
        loop {
            match inbox.recv_timeout(TICK) {
                Ok((WHOLE, Job::Stop)) => return,
                Ok((source, job)) => self.attempt(|writer| writer.take(source, job)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let passed = looked.elapsed();
            if passed >= TICK {
                looked = Instant::now();
                // After a pause of this host every source looks silent.
                if passed < PAUSE {
                    self.look();
                }
            }
            self.attempt(ReplicaWriter::settle);
        }
    }

    /// Does `work`; after an error the writer writes nothing more.
    fn attempt(&mut self, work: impl FnOnce(&mut ReplicaWriter) -> Result<(), Error>) {
        if let Err(error) = work(self) {
            self.sink = None;
            let _ = self.events.send(ReplicaEvent::Failed(error));
        }
    }

    /// Compares partial files with the agreed hashes, and makes the missing chunks available for
    /// leases.
    fn begin(&mut self, plan: &Plan) -> Result<(), Error> {
        let Some(sink) = &mut self.sink else { return Ok(()) };
        for ask in &plan.compare {
            // Small files share chunks, so their own hashes are not known.
            let large = self.object.is_large(ask.entry);
            let first = self.object.chunks_of(ask.entry).start;
            let value = |chunk: u64| self.values.get((first + chunk) as usize).filter(|_| large);
            let same = ask.values.iter().map(|(chunk, there)| value(*chunk) == Some(there));
            let there = sink.compare_result(ask.entry, &same.collect::<Vec<_>>())?;
            let content = |chunk| self.object.chunk_content(chunk) as u64;
            self.resumed += there.into_iter().flatten().map(content).sum::<u64>();
        }
        // All missing chunks are leased, including those that changed after the comparison.
        let _ = sink.take_changed();
        self.leases = Leases::new(sink.missing()).expect(self.expected);
        let files = sink.files_done();
        let resumed = self.resumed;
        self.board
            .update(|Counters { written, .. }| (written.bytes, written.files) = (resumed, files));
        if resumed > 0 {
            let _ = self.events.send(ReplicaEvent::Resumed(resumed));
        }
        Ok(())
    }

    fn take(&mut self, source: usize, job: Job) -> Result<(), Error> {
        match job {
            Job::Join(join) => self.join(source, *join),
            Job::Chunk(arrived) => {
                let arrived = arrived.repaired(&mut self.decoder);
                self.write(source, arrived.chunk, Content::Datagrams(arrived))?;
            }
            Job::Streamed(streamed) => {
                self.write(source, streamed.chunk, Content::Stream(streamed))?;
            }
            Job::BeginPass { lease, .. } => {
                if let Some(member) = self.members.get_mut(&source) {
                    member.begun_lease = lease.min(member.last_lease);
                }
            }
            Job::SourceFailed(failed) => {
                let what = clipped(&format!("{}: {}", show(&failed.path), failed.reason));
                self.exclude(source, what);
            }
            Job::Forged => self.fail(source, forged()),
            Job::PortClosed(why) => self.fail(source, port_closed(&why)),
            Job::Stop => self.leave(source),
            // The hashes are already agreed, and the writes show which chunks have arrived.
            Job::Digests(_) | Job::Compared(_) | Job::AllArrived | Job::Begin(_) => {}
        }
        Ok(())
    }

    /// Adds a source, and sends it a plan with its first lease. The plan lists all chunks outside
    /// the lease as existing, so the source does not send them.
    fn join(&mut self, source: usize, join: Join) {
        let Join { offer, manifest, reporter } = join;
        let member = Member {
            reporter,
            joined: clock::now(),
            last_lease: 0,
            begun_lease: 0,
            waits: false,
            silent: false,
            received: 0,
            measured: Instant::now(),
            rate: None,
        };
        if let Some(outcome) = &self.outcome {
            member.report(WriterEvent::Outcome(Box::new(outcome.clone()), None));
            return;
        }
        self.members.insert(source, member);
        if offer.manifest_digest[..] != manifest[..] || offer.object_len != self.object.len() {
            self.exclude(source, "it has changed since it was surveyed".to_owned());
            return;
        }
        self.leases.join(source);
        let given = self.leases.next(source).unwrap_or_default();
        let all = 0..self.object.chunks();
        let have = without(std::slice::from_ref(&all), &given.chunks);
        let plan = Plan { have, ..Plan::default() };
        let manifest = self.object.manifest();
        let planned = planned::event(manifest, plan, self.object.implied());
        if let Some(member) = self.members.get(&source) {
            member.report(planned);
        }
        self.report_taken(given.taken);
    }

    fn leave(&mut self, source: usize) {
        self.leases.leave(source);
        self.members.remove(&source);
    }

    fn fail(&mut self, source: usize, error: Error) {
        if let Some(member) = self.members.get(&source) {
            member.report(WriterEvent::Failed(error));
        }
        self.leave(source);
    }

    fn exclude(&mut self, source: usize, what: String) {
        self.fail(source, Error::new(ErrorKind::Verification, what));
    }

    fn write(&mut self, source: usize, chunk: u64, content: Content) -> Result<(), Error> {
        let len = self.object.chunk_content(chunk);
        let verdict = self.write_verified(source, chunk, &content, len);
        if content.release(len)
            && let Some(member) = self.members.get(&source)
        {
            member.report(WriterEvent::Drained);
        }
        if verdict? == Some(Verdict::Mismatch) {
            let what = self.place_of(chunk);
            self.exclude(source, format!("it differs from the others in {what}"));
        }
        Ok(())
    }

    /// Verifies and writes a chunk. Returns `None` for a chunk that is not needed, or from a source
    /// that was removed.
    fn write_verified(
        &mut self,
        source: usize,
        chunk: u64,
        content: &Content,
        len: usize,
    ) -> Result<Option<Verdict>, Error> {
        let Some(sink) = self.sink.as_mut().filter(|sink| sink.needs(chunk)) else {
            return Ok(None);
        };
        let Some(member) = self.members.get_mut(&source) else { return Ok(None) };
        let Some(expected) = self.values.get(chunk as usize) else { return Ok(None) };
        let verdict = match content.bytes().get(..len) {
            Some(bytes) => self.spent.on(|| sink.write_chunk(chunk, bytes, expected))?,
            None => Verdict::Mismatch,
        };
        if verdict == Verdict::Mismatch {
            return Ok(Some(verdict));
        }
        member.received += 1;
        member.reporter.board.update(|counters| counters.written.bytes += len as u64);
        let (bytes, files) = (self.resumed + sink.bytes_written(), sink.files_done());
        self.board
            .update(|Counters { written, .. }| (written.bytes, written.files) = (bytes, files));
        self.spent.publish(&self.board);
        let had = self.leases.settle(chunk).into_iter().filter(|had| *had != source);
        let once = || std::iter::once(chunk..chunk + 1).collect();
        self.report_taken(had.map(|had| (had, once())).collect());
        Ok(Some(verdict))
    }

    /// Returns the file or files of a chunk, for error messages.
    fn place_of(&self, chunk: u64) -> String {
        let manifest = self.object.manifest();
        let entries = manifest.entries();
        match self.object.chunk_kind(chunk) {
            Some(ChunkKind::Large { entry, chunk }) => {
                let path = entries.get(entry as usize).map(|_| show(&manifest.path(entry)));
                let (from, path) = (chunk * CHUNK, path.unwrap_or_default());
                format!("{path}, the MiB from byte {from} on")
            }
            _ => {
                let mut paths = self.object.extents(chunk).filter_map(|extent| {
                    entries.get(extent.entry as usize).map(|_| show(&manifest.path(extent.entry)))
                });
                let first = paths.next().unwrap_or_default();
                match paths.last() {
                    Some(last) => format!("one of the files from {first} to {last}"),
                    None => first,
                }
            }
        }
    }

    /// Tells sources which chunks of their leases they need not send: other sources send or have
    /// sent these chunks, or the chunks' files failed or exist already.
    fn report_taken(&self, taken: Vec<(usize, Vec<Range<u64>>)>) {
        for (source, chunks) in taken {
            if let Some(member) = self.members.get(&source) {
                member.report(WriterEvent::Needless(chunks));
            }
        }
    }

    fn look(&mut self) {
        let now = clock::now();
        for (source, member) in &mut self.members {
            let silent = member.is_silent(now);
            if silent != member.silent {
                member.silent = silent;
                member.measure_anew();
                self.leases.set_silent(*source, silent);
                let _ = self.events.send(ReplicaEvent::Silent { source: *source, silent });
            }
            if self.leases.is_idle(*source) || silent || member.last_lease > member.begun_lease {
                member.measure_anew();
            } else if let Some(rate) = member.measure() {
                self.leases.set_rate(*source, rate);
            }
        }
    }

    /// Reports failures, leases chunks to idle sources, and finishes a complete object. Runs after
    /// each job, and after each [`TICK`] without a job.
    fn settle(&mut self) -> Result<(), Error> {
        let Some(sink) = &mut self.sink else { return Ok(()) };
        sink.tick(Instant::now())?;
        if sink.is_complete() {
            sink.sync()?;
        }
        let changed = sink.take_changed().into_iter().filter(|chunk| sink.needs(*chunk));
        changed.for_each(|chunk| self.leases.reopen(chunk));
        let named = sink.take_named();
        for failure in &sink.failures()[self.failures_reported..] {
            let (path, reason) = (failure.path.clone(), failure.reason.clone());
            let _ = self.events.send(ReplicaEvent::EntryFailed { path, reason });
        }
        self.failures_reported = sink.failures().len();
        let needless = tidy(sink.take_needless());
        let is_complete = sink.is_complete();
        self.report_named(named);
        if !needless.is_empty() {
            for chunk in needless.iter().cloned().flatten() {
                self.leases.settle(chunk);
            }
            let all = self.members.keys().map(|source| (*source, needless.clone()));
            self.report_taken(all.collect());
        }
        if is_complete { self.finish() } else { self.lease() }
    }

    fn report_named(&self, named: Vec<u32>) {
        if named.is_empty() {
            return;
        }
        let named = planned::named(self.object.manifest(), named);
        if let WriterEvent::Named { manifest, entries } = named {
            let _ = self.events.send(ReplicaEvent::Named { manifest, entries });
        }
    }

    fn lease(&mut self) -> Result<(), Error> {
        let sources: Vec<usize> = self.members.keys().copied().collect();
        for source in sources {
            let Some(member) = self.members.get_mut(&source) else { continue };
            // The source must begin its last lease before it gets another one, even if the last
            // lease has no chunks left.
            if member.last_lease > member.begun_lease {
                continue;
            }
            let given = self.leases.next(source);
            let waits = given.is_none() && self.leases.is_idle(source);
            if waits != member.waits {
                member.waits = waits;
                let _ = self.events.send(ReplicaEvent::Waits { source, waits });
            }
            if let Some(Given { chunks, taken }) = given {
                member.last_lease += 1;
                member.measure_anew();
                let (number, chunks) = (member.last_lease, Some(Ranges::encode(chunks)));
                member.report(WriterEvent::Lease(Lease { number, chunks }));
                self.report_taken(taken);
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Error> {
        let Some(sink) = self.sink.take() else { return Ok(()) };
        let mut outcome = sink.finish()?;
        self.report_named(std::mem::take(&mut outcome.named));
        let files = outcome.files + outcome.skipped;
        self.board.update(|counters| counters.written.files = files);
        let outcome = planned::outcome(outcome, &BTreeMap::new(), self.resumed);
        // Resumed bytes belong to the whole copy, not to a source.
        let without_resumed = Outcome { resumed_bytes: 0, ..outcome.clone() };
        for member in self.members.values() {
            member.report(WriterEvent::Outcome(Box::new(without_resumed.clone()), None));
        }
        self.outcome = Some(without_resumed);
        let _ = self.events.send(ReplicaEvent::Outcome(Box::new(outcome)));
        Ok(())
    }
}
