//! The channels to and from a writing thread.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use super::chunk::{Arrived, Streamed};
use super::destination::Reporter;
use super::writer::Writer;
use crate::control::{Compared, Digests, EntryFailed, Lease, Offer, Outcome, PassEnd, Plan};
use crate::error::Error;
use longhaul_files::{Digest, Manifest, Mark};

/// A job for the writer.
pub(crate) enum Job {
    /// A chunk from datagrams.
    Chunk(Arrived),
    /// A chunk from a stream.
    Streamed(Streamed),
    /// The expected digests of chunks.
    Digests(Digests),
    /// A file failed at the source.
    SourceFailed(EntryFailed),
    /// The answer which chunks are equal at the source.
    Compared(Compared),
    /// A pass starts.
    BeginPass {
        /// Its number.
        number: u32,
        /// The lease that it serves.
        lease: u32,
    },
    /// The core has received every block.
    AllArrived,
    /// The flow has reached the AEAD forgery limit.
    Forged,
    /// The flow's port was closed.
    PortClosed(String),
    /// A source joins the copy of an object from replicas.
    Join(Box<Join>),
    /// A separate object starts.
    Begin(Box<Writer>),
    /// The transfer is over, finished or not.
    Stop,
}

/// A source that joins the copy of one object from replicas.
pub(crate) struct Join {
    pub(crate) offer: Offer,
    /// BLAKE3 of the manifest in the source's survey.
    pub(crate) manifest: Digest,
    pub(crate) reporter: Reporter,
}

/// An event of the writer for its end.
pub(crate) enum WriterEvent {
    /// The destination is open, with this plan.
    Planned {
        manifest: Arc<Manifest>,
        slices: Vec<Plan>,
        have: Vec<Range<u64>>,
        implied: Vec<Range<u64>>,
        skipped: Vec<Range<u64>>,
        resumed_bytes: u64,
    },
    /// Slices of a dry run's plan with comparisons, before the rest is known.
    Asks(Vec<Plan>),
    /// These chunks are no longer needed, and the source does not know it.
    Needless(Vec<Range<u64>>),
    /// These chunks are equal at the source, which knows it.
    Same(Vec<Range<u64>>),
    /// A dry run would create these entries.
    WouldCopy { manifest: Arc<Manifest>, entries: Vec<Range<u64>> },
    /// These entries of the manifest have their final names, if names were requested.
    Named { manifest: Arc<Manifest>, entries: Vec<Range<u64>> },
    /// These names that the source lacks were removed, or would be.
    Deleted(Vec<Vec<u8>>),
    /// Memory was freed.
    Drained,
    /// All chunks but the failed ones are written.
    PassEnd(PassEnd),
    /// The source has to send these chunks next.
    Lease(Lease),
    /// A file failed here.
    EntryFailed { path: Vec<u8>, reason: String },
    /// The object is complete. The mark is removed after the other end has confirmed.
    Outcome(Box<Outcome>, Option<Mark>),
    /// This attempt cannot continue; the next one can.
    Again(String),
    /// The copy cannot continue.
    Failed(Error),
}

/// A job, and the index of the source that sent it.
pub(crate) type SourceJob = (usize, Job);

/// Most bytes of digests, answers and failures that may wait for the thread: ten times what a full
/// memory of chunks needs. Chunks are bounded by the grants.
const MOST_WAITING: usize = 256 << 20;

/// The sender of one source to a writing thread. Clones are the same source.
#[derive(Clone)]
pub(crate) struct Jobs {
    sender: Sender<SourceJob>,
    source: usize,
    next: Arc<AtomicUsize>,
    most: usize,
    level: Arc<AtomicUsize>,
    /// This source has sent more than fits.
    overflown: Arc<AtomicBool>,
}

/// The receiver of a writing thread.
pub(crate) struct JobInbox {
    receiver: Receiver<SourceJob>,
    level: Arc<AtomicUsize>,
}

impl Jobs {
    /// Returns a sender for the first source, and the receiver.
    pub(crate) fn new() -> (Jobs, JobInbox) {
        Jobs::bounded(MOST_WAITING)
    }

    fn bounded(most: usize) -> (Jobs, JobInbox) {
        let (sender, receiver) = channel();
        let level = Arc::<AtomicUsize>::default();
        let inbox = JobInbox { receiver, level: level.clone() };
        let next = Arc::new(AtomicUsize::new(1));
        (Jobs { sender, source: 0, next, most, level, overflown: Arc::default() }, inbox)
    }

    /// Returns a sender for another source to the same thread.
    pub(crate) fn of_source(&self, source: usize) -> Jobs {
        Jobs { source, overflown: Arc::default(), ..self.clone() }
    }

    /// Returns a sender with a new source number, so that late jobs of an earlier source are not
    /// taken for its own.
    pub(crate) fn of_another(&self) -> Jobs {
        self.of_source(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Sends a job. A thread that has ended has reported the reason already. A job that does not
    /// fit is dropped, and the source ends.
    pub(crate) fn send(&self, job: Job) {
        let weight = job.weight();
        let before = self.level.fetch_add(weight, Ordering::Relaxed);
        if weight > 0 && before + weight > self.most {
            self.overflown.store(true, Ordering::Relaxed);
            self.level.fetch_sub(weight, Ordering::Relaxed);
            return;
        }
        let _ = self.sender.send((self.source, job));
    }

    /// Returns whether this source has sent more than the thread can have requested.
    pub(crate) fn is_overflown(&self) -> bool {
        self.overflown.load(Ordering::Relaxed)
    }
}

impl JobInbox {
    /// Returns the next job within `time`.
    pub(crate) fn recv_timeout(&self, time: Duration) -> Result<SourceJob, RecvTimeoutError> {
        let told = self.receiver.recv_timeout(time);
        if let Ok((_, job)) = &told {
            self.level.fetch_sub(job.weight(), Ordering::Relaxed);
        }
        told
    }
}

impl Job {
    /// Returns the approximate memory of a job that the other end controls, in bytes.
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
    use super::*;

    const MOST: usize = 64_000;

    #[test]
    fn a_source_that_floods_a_busy_thread_is_dropped_and_others_are_not() {
        let (first, inbox) = Jobs::bounded(MOST);
        let second = first.of_another();
        let digests = || {
            let (chunks, values) = (vec![1; 20], vec![7; 640]);
            Job::Digests(Digests { chunks, values })
        };
        // Received jobs make room.
        for _ in 0..MOST / 640 * 2 {
            first.send(digests());
            assert!(inbox.recv_timeout(Duration::ZERO).is_ok());
        }
        assert!(!first.is_overflown());
        for _ in 0..MOST / 640 {
            first.send(digests());
        }
        assert!(first.is_overflown() && !second.is_overflown());
        // Jobs with another limit still pass.
        second.send(Job::AllArrived);
        while !matches!(inbox.recv_timeout(Duration::ZERO), Ok((1, Job::AllArrived))) {}
        second.send(digests());
        assert!(!second.is_overflown());
    }
}
