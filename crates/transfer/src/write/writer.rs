//! The writing thread of a receiving transfer: opens the destination when the manifest is known,
//! verifies each chunk against its digest, writes it, and says what stands.
//!
//! It is the only thread that waits for the destination's disk. What waits for it is bounded by
//! what the receiving flow grants, so a slow disk slows the sender and nothing else.

mod at_source;
mod dry_run;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc::UnboundedSender, oneshot};

use self::at_source::AtSource;
use super::ahead;
use super::chunk::{Arrived, Streamed};
use super::claims::Claim;
use super::jobs::{Happened, Job, JobInbox, Jobs};
use super::joint::JointLink;
use super::planned;
use super::withheld::{self, Withheld};
use super::wrong::WrongChunks;
use crate::control::{Compared, Digests, EntryFailed, Offer, PassEnd, Ranges};
use crate::counters::board::Board;
use crate::counters::spent::Spent;
use crate::error::{Class, Error};
use longhaul_files::digest::Digest;
use longhaul_files::{
    Asked, CHUNK, ListMemory, Manifest, Place, Plan, Sink, SinkOptions, Verdict, VirtualObject,
};
use longhaul_text::clipped;

/// How often the destination gets a chance to sync and rename while nothing comes.
const TICK: Duration = Duration::from_millis(250);

/// Where an object goes.
pub(crate) enum Target {
    /// To files.
    Place {
        /// The destination.
        place: Place,
        /// What the manifest may list.
        asked: Arc<Asked>,
        /// How it is written.
        options: SinkOptions,
        /// What is not to be another source's too.
        claim: Option<Claim>,
    },
    /// To files that several sources of the same object bring together.
    Joint(JointLink),
    /// Nowhere: a measurement that writes nothing.
    Nowhere,
}

/// Starts a thread that writes for any number of transfers; it ends when nobody has a way to it.
///
/// # Errors
/// [`Class::Unfinished`] where the system has no thread left.
pub(crate) fn thread() -> Result<Jobs, Error> {
    let (jobs, inbox) = Jobs::new();
    let started = std::thread::Builder::new().name("write".into()).spawn(move || run(&inbox));
    started.map(|_| jobs).map_err(|error| {
        Error::new(Class::Unfinished, format!("cannot start a writing thread: {error}"))
    })
}

/// Begins to write an object, on a thread of its own or one that `shared` leads to; where several
/// sources share one destination, takes part in that. After [`Job::Stop`] it is told when the
/// destination is closed.
///
/// # Errors
/// As [`thread`].
pub(crate) fn begin(
    offer: Offer,
    list: Box<dyn ListMemory>,
    target: Target,
    shared: Option<&Jobs>,
    board: Arc<Board>,
    happened: UnboundedSender<Happened>,
) -> Result<(Jobs, oneshot::Receiver<()>), Error> {
    begin_patient(offer, list, target, shared, board, happened, withheld::PATIENCE)
}

/// The same with so much `patience` for digests that do not come.
pub(crate) fn begin_patient(
    offer: Offer,
    list: Box<dyn ListMemory>,
    target: Target,
    shared: Option<&Jobs>,
    board: Arc<Board>,
    happened: UnboundedSender<Happened>,
    patience: Duration,
) -> Result<(Jobs, oneshot::Receiver<()>), Error> {
    let (ended, done) = oneshot::channel();
    if let Target::Joint(link) = target {
        return Ok((link.join(offer, board, happened), done));
    }
    let jobs = shared.map_or_else(thread, |shared| Ok(shared.of_another()))?;
    jobs.send(Job::Begin(Box::new(Writer {
        offer,
        target: Some(target),
        board,
        happened,
        closed: ended,
        opened: None,
        list,
        manifest: Vec::new(),
        listed: BTreeSet::new(),
        digests: BTreeMap::new(),
        waiting: BTreeMap::new(),
        withheld: Withheld::new(patience),
        early_failures: Vec::new(),
        early_bytes: 0,
        all_arrived: false,
        ended: false,
        pass: 0,
        spent: Spent::default(),
    })));
    Ok((jobs, done))
}

/// Writes for all transfers of a thread.
fn run(inbox: &JobInbox) {
    let mut writers: BTreeMap<usize, Writer> = BTreeMap::new();
    let mut looked = Instant::now();
    loop {
        match inbox.recv_timeout(TICK) {
            Ok((source, Job::Begin(mut writer))) => {
                writer.begin();
                writers.insert(source, *writer);
            }
            Ok((source, Job::Stop)) => writers.remove(&source).map_or((), Writer::close),
            Ok((source, job)) => {
                if let Some(writer) = writers.get_mut(&source) {
                    writer.attempt(|writer| writer.take(job));
                    writer.attempt(Writer::settle);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if looked.elapsed() >= TICK {
            looked = Instant::now();
            writers.values_mut().for_each(|writer| writer.attempt(Writer::settle));
        }
    }
}

/// Reads the list of files that the other side has sent. Its encoding stays charged: a tree's
/// digest is made of that.
fn read_list(encoded: &[u8], memory: &mut dyn ListMemory) -> Result<Manifest, Error> {
    let refused = |error| {
        let what = format!("the other side's list of files is refused: {error}");
        Error::new(Class::Unreachable, what)
    };
    let measured = Manifest::measure(encoded).map_err(refused)?;
    memory.hold(encoded.len() as u64 + measured.bytes())?;
    measured.read().map_err(refused)
}

pub(crate) fn forged() -> Error {
    let what = "so many forged datagrams came that the cipher no longer protects";
    Error::new(Class::Unfinished, what).advise("run the same command again")
}

pub(super) fn port_closed(why: &str) -> Error {
    Error::new(Class::Unfinished, format!("the data port closed: {why}"))
}

/// A chunk's content, whichever way it came.
pub(super) enum Content {
    Datagrams(Arrived),
    Stream(Streamed),
}

impl Content {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Content::Datagrams(arrived) => &arrived.buffer[..arrived.len],
            Content::Stream(streamed) => &streamed.content,
        }
    }

    /// Gives the room of `content` bytes back to what granted it; whether that is to be told.
    pub(super) fn release(self, content: usize) -> bool {
        let Content::Datagrams(arrived) = self else { return false };
        let (granted, drained) = (arrived.granted(content), arrived.drained.clone());
        // Its buffer first: what is granted for it must find that.
        drop(arrived);
        drained.add(granted)
    }
}

/// One object on its way to its destination.
pub(crate) struct Writer {
    offer: Offer,
    target: Option<Target>,
    board: Arc<Board>,
    happened: UnboundedSender<Happened>,
    /// Told when the destination is closed.
    closed: oneshot::Sender<()>,
    opened: Option<Opened>,
    /// What the manifest is charged to, encoded and decoded.
    list: Box<dyn ListMemory>,
    /// The encoded manifest, until all of it has come.
    manifest: Vec<u8>,
    /// The chunks of it that have come.
    listed: BTreeSet<u64>,
    digests: BTreeMap<u64, Digest>,
    /// Chunks that wait for their digest, or for the manifest.
    waiting: BTreeMap<u64, Content>,
    withheld: Withheld,
    /// Files that went wrong at the source before the destination was open.
    early_failures: Vec<AtSource>,
    /// Bytes that these take.
    early_bytes: usize,
    all_arrived: bool,
    ended: bool,
    pass: u32,
    spent: Spent,
}

struct Opened {
    object: VirtualObject,
    /// Nothing in a measurement that writes nothing.
    sink: Option<Sink>,
    /// Entries whose comparison is still awaited: how many answers each wants, and has.
    comparing: BTreeMap<u32, (usize, Vec<bool>)>,
    /// Of a dry run: its plan, until all comparisons are answered.
    unanswered: Option<Plan>,
    /// What was there before this run.
    resumed: u64,
    failed: BTreeSet<u64>,
    wrong: WrongChunks,
    /// Entries of whose failure the source has told, and whether each changed there: it need not be
    /// told back.
    failed_at_source: BTreeMap<u32, bool>,
    failures_told: usize,
    /// Bytes that streams have yet to bring to a measurement that writes nothing.
    left: u64,
}

impl Writer {
    fn begin(&mut self) {
        if self.offer.manifest_len == 0 {
            let encoded = std::mem::take(&mut self.offer.manifest);
            self.attempt(|writer| writer.open(&encoded));
        }
        self.attempt(Writer::settle);
    }

    /// Closes the destination: what it holds is resumable then.
    fn close(self) {
        let Writer { closed, opened, waiting, .. } = self;
        drop((opened, waiting));
        let _ = closed.send(());
    }

    /// After an error there is nothing more to do but to wait for the end.
    fn attempt(&mut self, work: impl FnOnce(&mut Writer) -> Result<(), Error>) {
        if self.ended {
            return;
        }
        if let Err(error) = work(self) {
            self.ended = true;
            self.waiting.clear();
            let _ = self.happened.send(Happened::Failed(error));
        }
    }

    fn take(&mut self, job: Job) -> Result<(), Error> {
        match job {
            Job::Chunk(arrived) => self.take_chunk(arrived.chunk, Content::Datagrams(arrived)),
            Job::Streamed(streamed) => self.take_chunk(streamed.chunk, Content::Stream(streamed)),
            Job::Digests(digests) => self.take_digests(&digests),
            Job::SourceFailed(EntryFailed { entry, reason, changed, .. }) => match entry.try_into()
            {
                Ok(entry) => {
                    let reason = clipped(&reason);
                    self.take_source_failure(AtSource { entry, reason, changed })
                }
                // It is not among those of the manifest.
                Err(_) => Ok(()),
            },
            Job::Compared(compared) => self.take_compared(&compared),
            Job::BeginPass { number, .. } => {
                self.pass = number;
                self.all_arrived = false;
                self.waiting.clear();
                self.digests.clear();
                if let Some(opened) = &mut self.opened {
                    opened.failed.clear();
                }
                Ok(())
            }
            Job::AllArrived => {
                self.all_arrived = true;
                Ok(())
            }
            Job::Forged => Err(forged()),
            Job::PortClosed(why) => Err(port_closed(&why)),
            Job::Join(_) | Job::Begin(_) | Job::Stop => Ok(()),
        }
    }

    fn take_digests(&mut self, digests: &Digests) -> Result<(), Error> {
        let chunks = self.offer.object_len.div_ceil(CHUNK);
        for (chunk, value) in digests.pairs()?.filter(|(chunk, _)| *chunk < chunks) {
            self.digests.insert(chunk, value);
            if let Some(content) = self.waiting.remove(&chunk) {
                self.take_chunk(chunk, content)?;
            }
        }
        let sink = self.opened.as_ref().map(|opened| opened.sink.as_ref());
        let needs = |chunk| sink.is_none_or(|sink| sink.is_some_and(|sink| sink.needs(chunk)));
        ahead::bound(&mut self.digests, needs)
    }

    fn take_chunk(&mut self, chunk: u64, content: Content) -> Result<(), Error> {
        if chunk >= self.offer.object_len.div_ceil(CHUNK) {
            return Ok(());
        }
        if chunk < self.offer.manifest_len.div_ceil(CHUNK) {
            return self.take_manifest(chunk, content);
        }
        match (&self.opened, self.digests.remove(&chunk)) {
            (Some(_), Some(digest)) => self.write(chunk, content, &digest),
            (_, digest) => {
                if let Some(digest) = digest {
                    self.digests.insert(chunk, digest);
                }
                self.waiting.insert(chunk, content);
                if self.opened.is_some() {
                    self.withheld.begin(chunk);
                }
                Ok(())
            }
        }
    }

    /// A chunk of the manifest: when all are there, the destination can be opened.
    fn take_manifest(&mut self, chunk: u64, content: Content) -> Result<(), Error> {
        if self.opened.is_some() {
            return Ok(());
        }
        let rest = self.offer.manifest_len - chunk * CHUNK;
        let len = rest.min(CHUNK) as usize;
        if let Some(part) = content.bytes().get(..len) {
            // The memory for all of it was granted before anything came.
            self.manifest.resize(self.offer.manifest_len as usize, 0);
            self.manifest[(chunk * CHUNK) as usize..][..len].copy_from_slice(part);
            self.listed.insert(chunk);
        }
        if content.release(len) {
            let _ = self.happened.send(Happened::Drained);
        }
        if (self.listed.len() as u64) < self.offer.manifest_len.div_ceil(CHUNK) {
            return Ok(());
        }
        let encoded = std::mem::take(&mut self.manifest);
        self.open(&encoded)?;
        for (chunk, content) in std::mem::take(&mut self.waiting) {
            self.take_chunk(chunk, content)?;
        }
        Ok(())
    }

    /// Opens the destination and plans.
    fn open(&mut self, encoded: &[u8]) -> Result<(), Error> {
        if blake3::hash(encoded).as_bytes()[..] != self.offer.manifest_digest[..] {
            let what = "the manifest that came is not the one that was offered";
            return Err(Error::new(Class::Verification, what));
        }
        let manifest = Arc::new(read_list(encoded, &mut *self.list)?);
        let object = VirtualObject::new(&manifest, self.offer.manifest_len);
        if object.len() != self.offer.object_len {
            let what = format!(
                "the other side offers {} bytes but lists {}",
                self.offer.object_len,
                object.len()
            );
            return Err(Error::new(Class::Unreachable, what));
        }
        self.board.set_totals(manifest.bytes(), manifest.files());
        let dry_run = matches!(
            &self.target,
            Some(Target::Place { options, .. }) if options.dry_run
        );
        let (sink, plan) = match self.target.take() {
            Some(Target::Place { place, asked, options, claim }) => {
                asked.admits(&manifest)?;
                claim.map_or(Ok(()), |claim| claim.take(&manifest))?;
                let prefix = self.offer.manifest_len;
                let watch = self.board.watch();
                let (sink, plan) = Sink::open(&place, &manifest, prefix, &options, watch)?;
                (Some(sink), plan)
            }
            Some(Target::Joint(_) | Target::Nowhere) | None => (None, Plan::default()),
        };
        let asked = plan.compare.iter();
        let comparing = asked.map(|ask| (ask.entry, (ask.values.len(), Vec::new()))).collect();
        let resumed = plan.resumed_bytes;
        let never_sent: u64 = object.implied().iter().map(|range| range.end - range.start).sum();
        let left = object.len().saturating_sub(self.offer.manifest_len + never_sent);
        self.board.update(|status| status.written = resumed);
        let failed = BTreeSet::new();
        self.opened = Some(Opened {
            object,
            sink,
            comparing,
            unanswered: None,
            resumed,
            failed,
            wrong: WrongChunks::default(),
            failed_at_source: BTreeMap::new(),
            failures_told: 0,
            left,
        });
        if dry_run {
            self.begin_dry_run(plan);
            return Ok(());
        }
        self.tell_plan(plan);
        self.take_early_failures();
        Ok(())
    }

    fn tell_plan(&self, plan: Plan) {
        let Some(Opened { object, .. }) = &self.opened else { return };
        let happened = planned::happened(object.manifest(), plan, object.implied());
        let _ = self.happened.send(happened);
    }

    /// Answers come in the order of the questions, perhaps in several messages an entry.
    fn take_compared(&mut self, compared: &Compared) -> Result<(), Error> {
        let Some(opened) = &mut self.opened else { return Ok(()) };
        let Some(sink) = &mut opened.sink else { return Ok(()) };
        let Ok(entry) = u32::try_from(compared.entry) else { return Ok(()) };
        let Some((wanted, answers)) = opened.comparing.get_mut(&entry) else { return Ok(()) };
        answers.extend(&compared.same);
        if answers.len() < *wanted {
            return Ok(());
        }
        let answers = std::mem::take(answers);
        opened.comparing.remove(&entry);
        let needless = sink.compare_result(entry, &answers)?;
        if opened.unanswered.is_some() {
            self.note_answer(entry);
            return Ok(());
        }
        // The source leaves them out: only a further pass brings them.
        let changed = sink.take_changed().into_iter();
        opened.failed.extend(changed.filter(|chunk| sink.needs(*chunk)));
        let there = |range: &Range<u64>| {
            range.clone().map(|chunk| opened.object.chunk_content(chunk) as u64).sum::<u64>()
        };
        opened.resumed += needless.iter().map(there).sum::<u64>();
        let (written, files) = (opened.resumed + sink.bytes_written(), sink.files_done());
        self.board.update(|status| (status.written, status.files) = (written, files));
        let _ = self.happened.send(match opened.object.is_large(entry) {
            true => Happened::Same(needless),
            false => Happened::Needless(needless),
        });
        Ok(())
    }

    fn write(&mut self, chunk: u64, content: Content, digest: &Digest) -> Result<(), Error> {
        let Some(opened) = &mut self.opened else { return Ok(()) };
        let len = opened.object.chunk_content(chunk);
        if let Some(sink) = &mut opened.sink {
            let verdict = match content.bytes().get(..len) {
                Some(bytes) => self.spent.on(|| sink.write_chunk(chunk, bytes, digest))?,
                None => Verdict::Mismatch,
            };
            if verdict == Verdict::Mismatch {
                opened.wrong.note(chunk)?;
                opened.failed.insert(chunk);
            } else {
                opened.wrong.forget(chunk);
                opened.failed.remove(&chunk);
            }
            let (written, files) = (opened.resumed + sink.bytes_written(), sink.files_done());
            self.board.update(|status| (status.written, status.files) = (written, files));
            self.spent.publish(&self.board);
        } else {
            self.board.update(|status| status.written += len as u64);
            // Of datagrams, their flow says when all have come; of streams, nobody else does.
            opened.left = opened.left.saturating_sub(len as u64);
            self.all_arrived |= opened.left == 0;
        }
        if content.release(len) {
            let _ = self.happened.send(Happened::Drained);
        }
        Ok(())
    }

    /// Tells which entries have failed here since it was last told.
    fn tell_failures(&mut self) {
        let Some(opened) = &mut self.opened else { return };
        let Some(sink) = &opened.sink else { return };
        for failure in &sink.failures()[opened.failures_told..] {
            if failure.entry.is_some_and(|entry| opened.failed_at_source.contains_key(&entry)) {
                continue;
            }
            let (path, reason) = (failure.path.clone(), failure.reason.clone());
            let _ = self.happened.send(Happened::EntryFailed { path, reason });
        }
        opened.failures_told = sink.failures().len();
    }

    /// After each job: syncs that are due, failures to tell, and whether the pass is over.
    fn settle(&mut self) -> Result<(), Error> {
        self.withheld.judge(Instant::now(), |chunk| self.waiting.contains_key(&chunk))?;
        let Some(opened) = &mut self.opened else { return Ok(()) };
        if opened.unanswered.is_some() {
            return Ok(());
        }
        let Some(sink) = &mut opened.sink else {
            if self.all_arrived {
                self.ended = true;
                let (bytes, _) = self.board.totals();
                self.board.update(|status| status.written = bytes);
                let _ = self.happened.send(Happened::Outcome(Box::default(), None));
            }
            return Ok(());
        };
        self.spent.on(|| sink.tick(Instant::now()))?;
        if sink.is_complete() {
            // A sync that fails here leaves something to be sent again.
            self.spent.on(|| sink.sync())?;
        }
        let changed = sink.take_changed().into_iter();
        opened.failed.extend(changed.filter(|chunk| sink.needs(*chunk)));
        let named = sink.take_named();
        if !named.is_empty() {
            let manifest = opened.object.manifest();
            let _ = self.happened.send(planned::named(manifest, named));
        }
        self.tell_failures();
        let Some(opened) = &mut self.opened else { return Ok(()) };
        let Some(sink) = &mut opened.sink else { return Ok(()) };
        let needless = sink.take_needless();
        if !needless.is_empty() {
            opened.failed.retain(|chunk| sink.needs(*chunk));
            let _ = self.happened.send(Happened::Needless(needless));
        }
        let left = sink.missing_chunks();
        if !opened.comparing.is_empty() || left > opened.failed.len() as u64 {
            return Ok(());
        }
        if left > 0 {
            if !opened.failed.is_empty() {
                let failed = planned::runs(std::mem::take(&mut opened.failed).into_iter());
                let failed = Some(Ranges::encode(failed));
                let end = PassEnd { number: self.pass, failed, lease: 0 };
                let _ = self.happened.send(Happened::PassEnd(end));
            }
            return Ok(());
        }
        self.ended = true;
        let Some(sink) = opened.sink.take() else { return Ok(()) };
        let (mut outcome, mark) = self.spent.on(|| sink.finish_unheard())?;
        let files = outcome.files + outcome.skipped;
        self.board.update(|status| status.files = files);
        self.spent.publish(&self.board);
        let named = std::mem::take(&mut outcome.named);
        if !named.is_empty() {
            let _ = self.happened.send(planned::named(opened.object.manifest(), named));
        }
        let outcome = planned::outcome(outcome, &opened.failed_at_source, opened.resumed);
        let _ = self.happened.send(Happened::Outcome(Box::new(outcome), mark));
        Ok(())
    }
}
