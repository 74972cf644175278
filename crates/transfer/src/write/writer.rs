//! The writing thread of a receiving transfer. It collects the manifest (the list of files) and the
//! digests, and opens the destination when the manifest is known. Then it passes each chunk with
//! its expected digest to the destination.
//!
//! The receiver limits the data that wait for this thread. So a slow disk slows the sender, but
//! does not fill the memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::ahead;
use super::chunk::Content;
use super::destination::{AtSource, Incoming, Open, Opened, PassState, Reporter};
use super::jobs::{Job, JobInbox, Jobs, WriterEvent};
use super::missing_digests::{self, MissingDigests};
use crate::control::{Digests, EntryFailed, Offer};
use crate::error::{Error, ErrorKind};
use longhaul_files::digest::Digest;
use longhaul_files::{CHUNK, ListMemory, Manifest, VirtualObject};
use longhaul_proto::fec::Decoder;
use longhaul_text::clipped;

/// Interval at which every destination does its pending work, such as syncs and renames, even if
/// nothing arrives for it.
const TICK: Duration = Duration::from_millis(250);

/// Maximum bytes of failures kept until the destination is open.
const MOST_EARLY_FAILURES: usize = 64 << 20;

/// Starts a thread that writes for any number of transfers. The thread ends when all its [`Jobs`]
/// are dropped.
///
/// # Errors
/// [`ErrorKind::Unfinished`] if the system cannot start a thread.
pub(crate) fn thread() -> Result<Jobs, Error> {
    let (jobs, inbox) = Jobs::new();
    let started = std::thread::Builder::new().name("write".into()).spawn(move || run(&inbox));
    started.map(|_| jobs).map_err(|error| {
        Error::new(ErrorKind::Unfinished, format!("cannot start a writing thread: {error}"))
    })
}

/// Starts to write an object, on its own thread or on the thread of `shared`. After [`Job::Stop`]
/// the writer closes the destination, then notifies `incoming.closed`.
///
/// # Errors
/// As [`thread`].
pub(super) fn begin(
    destination: Box<dyn Open>,
    incoming: Incoming,
    shared: Option<&Jobs>,
) -> Result<Jobs, Error> {
    begin_patient(destination, incoming, shared, missing_digests::PATIENCE)
}

/// As [`begin`], with the timeout `patience` for missing digests.
pub(crate) fn begin_patient(
    destination: Box<dyn Open>,
    incoming: Incoming,
    shared: Option<&Jobs>,
    patience: Duration,
) -> Result<Jobs, Error> {
    let Incoming { offer, list, reporter, is_incomplete, closed } = incoming;
    let jobs = shared.map_or_else(thread, |shared| Ok(shared.of_another()))?;
    jobs.send(Job::Begin(Box::new(Writer {
        offer,
        destination: Some(destination),
        reporter,
        is_incomplete,
        closed,
        opened: None,
        list,
        manifest: Vec::new(),
        listed: BTreeSet::new(),
        digests: BTreeMap::new(),
        waiting: BTreeMap::new(),
        missing_digests: MissingDigests::new(patience),
        decoder: Decoder::new(),
        early_failures: Vec::new(),
        early_bytes: 0,
        ended: false,
        pass: PassState::default(),
    })));
    Ok(jobs)
}

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

/// Maximum bits that a destination keeps for each chunk, even for chunks in holes: in its set of
/// missing chunks, in two sets of a large file, and in another set during the plan.
const BITS: u64 = 4;

/// Decodes the list of files from the other side, and charges the memory of the encoded and the
/// decoded list, and of the plan for `chunks` chunks. The charge for the encoded list stays,
/// because the digest of a tree encodes the list again at the end.
fn read_list(encoded: &[u8], chunks: u64, memory: &mut dyn ListMemory) -> Result<Manifest, Error> {
    let refused = |error| {
        let what = format!("the other side's list of files is refused: {error}");
        Error::new(ErrorKind::Unreachable, what)
    };
    let measured = Manifest::measure(encoded).map_err(refused)?;
    memory.hold(encoded.len() as u64 + measured.bytes() + chunks * BITS / 8)?;
    measured.read().map_err(refused)
}

pub(crate) fn forged() -> Error {
    let what = "too many forged datagrams: the AEAD forgery limit is reached";
    Error::new(ErrorKind::Unfinished, what).advise("run the same command again")
}

pub(crate) fn port_closed(why: &str) -> Error {
    Error::new(ErrorKind::Unfinished, format!("the data port closed: {why}"))
}

pub(crate) struct Writer {
    offer: Offer,
    /// The destination before it is opened; `None` after an attempt to open it.
    destination: Option<Box<dyn Open>>,
    reporter: Reporter,
    /// Whether the source could not read a part of its tree, so the manifest lacks names.
    is_incomplete: bool,
    /// Notified when the destination is closed.
    closed: oneshot::Sender<()>,
    opened: Option<Box<dyn Opened>>,
    /// The memory charge for the manifest, encoded and decoded.
    list: Box<dyn ListMemory>,
    /// The encoded manifest, until it is complete.
    manifest: Vec<u8>,
    /// The chunks of the manifest that have arrived.
    listed: BTreeSet<u64>,
    digests: BTreeMap<u64, Digest>,
    /// Chunks that wait for their digest or for the manifest.
    waiting: BTreeMap<u64, Content>,
    missing_digests: MissingDigests,
    decoder: Decoder,
    /// Files that failed at the source before the destination was open.
    early_failures: Vec<AtSource>,
    early_bytes: usize,
    ended: bool,
    pass: PassState,
}

impl Writer {
    fn begin(&mut self) {
        if self.offer.manifest_len == 0 {
            let encoded = std::mem::take(&mut self.offer.manifest);
            self.attempt(|writer| writer.open(&encoded));
        }
        self.attempt(Writer::settle);
    }

    /// Closes the destination, so that the copy can be resumed.
    fn close(self) {
        let Writer { closed, opened, waiting, .. } = self;
        drop((opened, waiting));
        let _ = closed.send(());
    }

    /// Runs `work`. Does nothing if the writer has ended or failed: it then only waits for
    /// [`Job::Stop`].
    fn attempt(&mut self, work: impl FnOnce(&mut Writer) -> Result<(), Error>) {
        if self.ended {
            return;
        }
        if let Err(error) = work(self) {
            self.ended = true;
            self.waiting.clear();
            self.reporter.report(WriterEvent::Failed(error));
        }
    }

    fn take(&mut self, job: Job) -> Result<(), Error> {
        match job {
            Job::Chunk(arrived) => {
                let arrived = arrived.repaired(&mut self.decoder);
                self.take_chunk(arrived.chunk, Content::Datagrams(arrived))
            }
            Job::Streamed(streamed) => self.take_chunk(streamed.chunk, Content::Stream(streamed)),
            Job::Digests(digests) => self.take_digests(&digests),
            Job::SourceFailed(EntryFailed { entry, reason, changed, .. }) => match entry.try_into()
            {
                Ok(entry) => {
                    let reason = clipped(&reason);
                    self.take_source_failure(AtSource { entry, reason, changed })
                }
                // No manifest has an entry with this number.
                Err(_) => Ok(()),
            },
            Job::Compared(compared) => match &mut self.opened {
                Some(opened) => opened.take_compared(&compared),
                None => Ok(()),
            },
            Job::BeginPass { number, .. } => {
                self.pass = PassState { number, all_arrived: false };
                self.waiting.clear();
                self.digests.clear();
                if let Some(opened) = &mut self.opened {
                    opened.begin_pass();
                }
                Ok(())
            }
            Job::AllArrived => {
                self.pass.all_arrived = true;
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
        let opened = self.opened.as_ref();
        ahead::bound(&mut self.digests, |chunk| opened.is_none_or(|opened| opened.needs(chunk)))
    }

    fn take_chunk(&mut self, chunk: u64, content: Content) -> Result<(), Error> {
        if chunk >= self.offer.object_len.div_ceil(CHUNK) {
            return Ok(());
        }
        if chunk < self.offer.manifest_len.div_ceil(CHUNK) {
            return self.take_manifest(chunk, content);
        }
        match (&mut self.opened, self.digests.remove(&chunk)) {
            (Some(opened), Some(digest)) => opened.take_chunk(chunk, content, &digest),
            (_, digest) => {
                if let Some(digest) = digest {
                    self.digests.insert(chunk, digest);
                }
                let again = self.waiting.insert(chunk, content).is_some();
                if self.opened.is_some() && !again {
                    self.missing_digests.begin(chunk);
                }
                Ok(())
            }
        }
    }

    /// Takes a chunk of the manifest. Opens the destination when the manifest is complete.
    fn take_manifest(&mut self, chunk: u64, content: Content) -> Result<(), Error> {
        if self.opened.is_some() {
            return Ok(());
        }
        let rest = self.offer.manifest_len - chunk * CHUNK;
        let len = rest.min(CHUNK) as usize;
        if let Some(part) = content.bytes().get(..len) {
            // The memory for the whole manifest was charged before.
            self.manifest.resize(self.offer.manifest_len as usize, 0);
            self.manifest[(chunk * CHUNK) as usize..][..len].copy_from_slice(part);
            self.listed.insert(chunk);
        }
        if content.release(len) {
            self.reporter.report(WriterEvent::Drained);
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

    /// Checks the manifest, and opens the destination, which plans the writes.
    fn open(&mut self, encoded: &[u8]) -> Result<(), Error> {
        if blake3::hash(encoded).as_bytes()[..] != self.offer.manifest_digest[..] {
            let what = "the received manifest differs from the offered one";
            return Err(Error::new(ErrorKind::Verification, what));
        }
        let chunks = self.offer.object_len.div_ceil(CHUNK);
        let manifest = Arc::new(read_list(encoded, chunks, &mut *self.list)?);
        let object = VirtualObject::new(&manifest, self.offer.manifest_len);
        if object.len() != self.offer.object_len {
            let what = format!(
                "the other side offers {} bytes but lists {}",
                self.offer.object_len,
                object.len()
            );
            return Err(Error::new(ErrorKind::Unreachable, what));
        }
        self.reporter.board.set_totals(manifest.bytes(), manifest.files());
        let Some(destination) = self.destination.take() else { return Ok(()) };
        let prefix = self.offer.manifest_len;
        let mut opened = destination.open(object, prefix, self.reporter.clone())?;
        if self.is_incomplete {
            opened.source_is_incomplete();
        }
        for failed in std::mem::take(&mut self.early_failures) {
            opened.fail_at_source(failed);
        }
        self.opened = Some(opened);
        Ok(())
    }

    /// Passes a failure at the source to the destination, or keeps it until the destination is
    /// open.
    fn take_source_failure(&mut self, failed: AtSource) -> Result<(), Error> {
        if let Some(opened) = &mut self.opened {
            opened.fail_at_source(failed);
            return Ok(());
        }
        self.early_bytes += size_of::<AtSource>() + failed.reason.len();
        if self.early_bytes > MOST_EARLY_FAILURES {
            let what = "before its list of files, the other side reports more failed files than \
                        this host keeps";
            return Err(Error::new(ErrorKind::Unfinished, what).advise("copy in several parts"));
        }
        self.early_failures.push(failed);
        Ok(())
    }

    /// Does pending work at the destination. The writer ends when the destination has reported all
    /// results.
    fn settle(&mut self) -> Result<(), Error> {
        self.missing_digests.judge(Instant::now(), |chunk| self.waiting.contains_key(&chunk))?;
        if let Some(opened) = &mut self.opened {
            self.ended = opened.settle(self.pass)?;
        }
        Ok(())
    }
}
