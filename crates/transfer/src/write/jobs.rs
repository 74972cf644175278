//! The way to a writing thread: what it is told, and what it tells.

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

/// What the writer is told.
pub(crate) enum Job {
    /// A chunk has come by datagrams.
    Chunk(Arrived),
    /// A chunk has come by stream.
    Streamed(Streamed),
    /// What chunks must hash to.
    Digests(Digests),
    /// A file went wrong at the source.
    SourceFailed(EntryFailed),
    /// Which chunks are the same at the source.
    Compared(Compared),
    /// A pass begins.
    BeginPass {
        /// Its number.
        number: u32,
        /// The lease that it brings.
        lease: u32,
    },
    /// The core has seen every block.
    AllArrived,
    /// The flow was forged at until its cipher no longer protects.
    Forged,
    /// The port has closed under the flow.
    PortClosed(String),
    /// One of several sources of an object takes part.
    Join(Box<Join>),
    /// An object of its own begins.
    Begin(Box<Writer>),
    /// The transfer is over, finished or not.
    Stop,
}

/// A source that takes part in writing one object with others.
pub(crate) struct Join {
    pub(crate) offer: Offer,
    /// BLAKE3 of the manifest that the source has shown before.
    pub(crate) manifest: Digest,
    pub(crate) reporter: Reporter,
}

/// What the writer tells its end.
pub(crate) enum WriterEvent {
    /// The destination is open, and this need not come.
    Planned {
        manifest: Arc<Manifest>,
        slices: Vec<Plan>,
        have: Vec<Range<u64>>,
        implied: Vec<Range<u64>>,
        skipped: Vec<Range<u64>>,
        resumed_bytes: u64,
    },
    /// Before a dry run's plan is known, these slices of it ask what is the same at the source.
    Asks(Vec<Plan>),
    /// These chunks need not come any more, and the source does not know it.
    Needless(Vec<Range<u64>>),
    /// These chunks are the same at the source, which knows it.
    Same(Vec<Range<u64>>),
    /// These entries would be made if it were not for a dry run.
    WouldCopy { manifest: Arc<Manifest>, entries: Vec<Range<u64>> },
    /// These entries of the manifest have got their names, where that is asked for.
    Named { manifest: Arc<Manifest>, entries: Vec<Range<u64>> },
    /// These names that the source lacks were removed, or would be.
    Deleted(Vec<Vec<u8>>),
    /// There is room again.
    Drained,
    /// All chunks but the failed ones are written.
    PassEnd(PassEnd),
    /// The source is to bring these chunks next.
    Lease(Lease),
    /// A file went wrong here.
    EntryFailed { path: Vec<u8>, reason: String },
    /// All stands; with the mark that is to go when that has been heard.
    Outcome(Box<Outcome>, Option<Mark>),
    /// This attempt cannot go on; the next one can.
    Again(String),
    /// It cannot go on.
    Failed(Error),
}

/// What a writing thread is told, and by which of the sources that bring chunks to it.
pub(crate) type SourceJob = (usize, Job);

/// Bytes of digests, answers and failures that wait for the thread at most: ten times what a full
/// memory of chunks needs. Chunks are bounded by what was granted.
const MOST_WAITING: usize = 256 << 20;

/// The way of one source to a writing thread. Clones are the same.
#[derive(Clone)]
pub(crate) struct Jobs {
    sender: Sender<SourceJob>,
    source: usize,
    next: Arc<AtomicUsize>,
    most: usize,
    level: Arc<AtomicUsize>,
    /// This source has told more than fits.
    overflown: Arc<AtomicBool>,
}

/// Where a writing thread is told.
pub(crate) struct JobInbox {
    receiver: Receiver<SourceJob>,
    level: Arc<AtomicUsize>,
}

impl Jobs {
    /// A way for the first source, and where its jobs come out.
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

    /// The way of another source to the same thread.
    pub(crate) fn of_source(&self, source: usize) -> Jobs {
        Jobs { source, overflown: Arc::default(), ..self.clone() }
    }

    /// The way of one more source: what an earlier one still says is not taken for its word.
    pub(crate) fn of_another(&self) -> Jobs {
        self.of_source(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Tells the thread; one that has ended has said why. What no longer fits is not told: the
    /// source is at its end.
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

    /// Whether this source has told more than the thread can have asked for.
    pub(crate) fn is_overflown(&self) -> bool {
        self.overflown.load(Ordering::Relaxed)
    }
}

impl JobInbox {
    /// What the thread is told next, within `time`.
    pub(crate) fn recv_timeout(&self, time: Duration) -> Result<SourceJob, RecvTimeoutError> {
        let told = self.receiver.recv_timeout(time);
        if let Ok((_, job)) = &told {
            self.level.fetch_sub(job.weight(), Ordering::Relaxed);
        }
        told
    }
}

impl Job {
    /// Bytes that the other end can make it take, about.
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
    fn a_source_that_tells_more_than_a_busy_thread_takes_is_at_its_end_and_others_are_not() {
        let (first, inbox) = Jobs::bounded(MOST);
        let second = first.of_another();
        let digests = || {
            let (chunks, values) = (vec![1; 20], vec![7; 640]);
            Job::Digests(Digests { chunks, values })
        };
        // What is taken makes room.
        for _ in 0..MOST / 640 * 2 {
            first.send(digests());
            assert!(inbox.recv_timeout(Duration::ZERO).is_ok());
        }
        assert!(!first.is_overflown());
        for _ in 0..MOST / 640 {
            first.send(digests());
        }
        assert!(first.is_overflown() && !second.is_overflown());
        // What is bounded elsewhere still comes.
        second.send(Job::AllArrived);
        while !matches!(inbox.recv_timeout(Duration::ZERO), Ok((1, Job::AllArrived))) {}
        second.send(digests());
        assert!(!second.is_overflown());
    }
}
