//! The channels of a writing thread: jobs (chunks of 1 MiB, and messages about them) to the thread,
//! and events from the thread.
//!
//! An entry is a file, folder or link of the manifest (the list of files). The plan says which
//! chunks need not be sent. A pass is one transmission of the missing chunks.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::budget::MessageCharge;
use super::chunk::{Arrived, Streamed};
use super::destination::Reporter;
use super::writer::Writer;
use crate::control::{Compared, Digests, EntryFailed, Lease, Offer, Outcome, PassEnd, Plan};
use crate::error::Error;
use longhaul_files::{Digest, Manifest, Mark};

pub(crate) enum Job {
    /// A chunk from datagrams.
    Chunk(Arrived),
    /// A chunk from a stream.
    Streamed(Streamed),
    Digests(Digests),
    SourceFailed(EntryFailed),
    /// The source's answer to a comparison: which chunks are equal there.
    Compared(Compared),
    BeginPass {
        number: u32,
        /// The number of the lease (a set of chunks assigned to one of several sources) that the
        /// pass sends.
        lease: u32,
    },
    /// The flow's core (the protocol's state machine) has received every block.
    AllArrived,
    /// The flow has reached the AEAD forgery limit.
    Forged,
    PortClosed(String),
    /// Another source joins a copy from several sources.
    Join(Box<Join>),
    /// Starts to write an object; later jobs of the same source belong to this object.
    Begin(Box<Writer>),
    /// The transfer is over, finished or not.
    Stop,
}

pub(crate) struct Join {
    pub(crate) offer: Offer,
    /// BLAKE3 of the manifest that the source sent before the copy, in its survey.
    pub(crate) manifest: Digest,
    pub(crate) reporter: Reporter,
}

pub(crate) enum WriterEvent {
    /// The destination is open, with this plan.
    Planned {
        manifest: Arc<Manifest>,
        /// The plan, as messages for the source.
        slices: Vec<Plan>,
        /// Chunks that need not be sent.
        have: Vec<Range<u64>>,
        /// Byte ranges of the object that are never sent: padding, and holes of files.
        implied: Vec<Range<u64>>,
        /// Numbers of entries that need no copy: equal files and links, and folders that exist.
        skipped: Vec<Range<u64>>,
        resumed_bytes: u64,
    },
    /// Slices of a dry run's plan that ask for comparisons, before the rest of the plan is known.
    Asks(Vec<Plan>),
    /// These chunks are no longer needed; the source has to be told.
    Needless(Vec<Range<u64>>),
    /// These chunks are equal at the source. The source has compared them, so it need not be told.
    Same(Vec<Range<u64>>),
    /// A dry run would create these entries.
    WouldCopy { manifest: Arc<Manifest>, entries: Vec<Range<u64>> },
    /// If names were requested: these entries of the manifest have their final names.
    Named { manifest: Arc<Manifest>, entries: Vec<Range<u64>> },
    /// These names, which the source lacks, were removed; in a dry run: would be removed.
    Deleted(Vec<Vec<u8>>),
    /// Memory was freed.
    Drained,
    /// All chunks are written, except the failed chunks.
    PassEnd(PassEnd),
    /// The source has to send these chunks next.
    Lease(Lease),
    /// A file failed here.
    EntryFailed { path: Vec<u8>, reason: String },
    /// The object is complete. If this copy created a folder, a mark lies next to that folder until
    /// the client has the outcome. While the mark exists, a repeated copy writes into the folder.
    Outcome(Box<Outcome>, Option<Mark>),
    /// This attempt cannot continue; the next one can.
    Again(String),
    /// The copy cannot continue.
    Failed(Error),
}

/// A job, and the index of the source that sent it.
pub(crate) type SourceJob = (usize, Job);

/// Maximum bytes of digests, answers and failures that may wait for the thread. Chunks do not
/// count: grants limit chunks from datagrams, and permits limit chunks from streams.
const MOST_WAITING: usize = 256 << 20;

/// The sender of one source to a writing thread. Clones send for the same source.
#[derive(Clone)]
pub(crate) struct Jobs {
    sender: Sender<SourceJob>,
    source: usize,
    next: Arc<AtomicUsize>,
    most: usize,
    level: Arc<Level>,
    /// Whether a job of this source was dropped because it did not fit.
    overflown: Arc<AtomicBool>,
}

pub(crate) struct JobInbox {
    receiver: Receiver<SourceJob>,
    level: Arc<Level>,
}

/// The number of bytes that wait for a thread, and the memory account that is charged for them.
#[derive(Default)]
struct Level(Mutex<(usize, Option<MessageCharge>)>);

impl Level {
    /// Counts `more` bytes if they fit into `most` and into the memory; returns whether they do.
    fn add(&self, more: usize, most: usize) -> bool {
        let mut level = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (bytes, charge) = &mut *level;
        let all = *bytes + more;
        let fits = all <= most && charge.as_mut().is_none_or(|charge| charge.set(all));
        if fits {
            *bytes = all;
        }
        fits
    }

    fn remove(&self, less: usize) {
        let mut level = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (bytes, charge) = &mut *level;
        *bytes -= less;
        if let Some(charge) = charge {
            charge.set(*bytes);
        }
    }
}

impl Jobs {
    pub(crate) fn new() -> (Jobs, JobInbox) {
        Jobs::bounded(MOST_WAITING)
    }

    fn bounded(most: usize) -> (Jobs, JobInbox) {
        let (sender, receiver) = channel();
        let level = Arc::<Level>::default();
        let inbox = JobInbox { receiver, level: level.clone() };
        let next = Arc::new(AtomicUsize::new(1));
        (Jobs { sender, source: 0, next, most, level, overflown: Arc::default() }, inbox)
    }

    pub(crate) fn of_source(&self, source: usize) -> Jobs {
        Jobs { source, overflown: Arc::default(), ..self.clone() }
    }

    /// Returns a sender with a new source number. Late jobs of an earlier source then do not count
    /// as jobs of this sender.
    pub(crate) fn of_another(&self) -> Jobs {
        self.of_source(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Charges waiting jobs to the memory of the transfer. All sources share the first `charge`;
    /// later charges are dropped.
    pub(crate) fn charge_to(&self, charge: MessageCharge) {
        let mut level = self.level.0.lock().unwrap_or_else(PoisonError::into_inner);
        level.1.get_or_insert(charge);
    }

    /// Sends a job. Drops the job if the thread has ended (the thread has reported the reason), or
    /// if the job does not fit; see [`Jobs::is_overflown`].
    pub(crate) fn send(&self, job: Job) {
        let weight = job.weight();
        if weight > 0 && !self.level.add(weight, self.most) {
            self.overflown.store(true, Ordering::Relaxed);
            return;
        }
        let _ = self.sender.send((self.source, job));
    }

    pub(crate) fn is_overflown(&self) -> bool {
        self.overflown.load(Ordering::Relaxed)
    }
}

impl JobInbox {
    pub(crate) fn recv_timeout(&self, time: Duration) -> Result<SourceJob, RecvTimeoutError> {
        let told = self.receiver.recv_timeout(time);
        if let Ok((_, job)) = &told {
            match job.weight() {
                0 => {}
                weight => self.level.remove(weight),
            }
        }
        told
    }
}

impl Job {
    /// Returns the approximate memory, in bytes, of digests, of the source's answer to a comparison
    /// and of a failure at the source; zero for other jobs.
    fn weight(&self) -> usize {
        let inner = match self {
            Job::Digests(digests) => 8 * digests.chunks.len() + digests.values.len(),
            Job::Compared(compared) => compared.same.len(),
            Job::SourceFailed(failed) => failed.path.len() + failed.reason.len(),
            _ => return 0,
        };
        size_of::<SourceJob>() + inner
    }
}

#[cfg(test)]
mod tests {
    use longhaul_proto::units::Bytes;

    use super::*;
    use crate::write::budget::Budget;

    const MOST: usize = 64_000;

    #[test]
    fn jobs_that_flood_a_busy_thread_are_dropped_and_only_their_source_is_overflown() {
        let (first, inbox) = Jobs::bounded(MOST);
        let second = first.of_another();
        let digests = || {
            let (chunks, values) = (vec![1; 20], vec![7; 640]);
            Job::Digests(Digests { chunks, values })
        };
        // A job has more than 800 bytes, so fewer than 80 fit. This loop sends 200 jobs, and
        // receives each before it sends the next.
        for _ in 0..MOST / 640 * 2 {
            first.send(digests());
            assert!(inbox.recv_timeout(Duration::ZERO).is_ok());
        }
        assert!(!first.is_overflown());
        for _ in 0..MOST / 640 {
            first.send(digests());
        }
        assert!(first.is_overflown() && !second.is_overflown());
        // Jobs that do not count towards the limit still pass.
        second.send(Job::AllArrived);
        while !matches!(inbox.recv_timeout(Duration::ZERO), Ok((1, Job::AllArrived))) {}
        second.send(digests());
        assert!(!second.is_overflown());
    }

    #[test]
    fn digests_that_wait_for_a_slow_disk_are_charged_to_the_memory() {
        let budget = Budget::new(Bytes::mebi(512)).unwrap();
        let is_free = |mebi: usize| budget.messages().set(mebi << 20);
        let (jobs, inbox) = Jobs::new();
        jobs.charge_to(budget.messages());
        let digests = || Job::Digests(Digests { chunks: Vec::new(), values: vec![7; 1 << 20] });
        for _ in 0..10 {
            jobs.send(digests());
        }
        assert!(is_free(502) && !is_free(503));
        // Another transfer takes all but 1 MiB of the rest.
        let mut other = budget.messages();
        assert!(other.set(501 << 20));
        jobs.send(digests());
        assert!(!jobs.is_overflown());
        jobs.send(digests());
        assert!(jobs.is_overflown(), "there is no memory for it");
        drop(other);
        for left in (0..11).rev() {
            assert!(inbox.recv_timeout(Duration::ZERO).is_ok());
            assert!(is_free(512 - left) && (left == 0 || !is_free(513 - left)));
        }
        assert!(inbox.recv_timeout(Duration::ZERO).is_err(), "a job that does not fit is dropped");
    }
}
