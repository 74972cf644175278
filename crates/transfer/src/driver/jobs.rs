//! The way to a writing thread: what it is told, and what it tells.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use super::joint::Join;
use super::receive::Arrived;
use super::stream::Streamed;
use super::writer::Writer;
use crate::control::{Compared, Digests, EntryFailed, Outcome, PassEnd, Plan};
use crate::error::Error;
use crate::objects::Manifest;

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

/// What the writer tells its end.
pub(crate) enum Happened {
    /// The destination is open, and this need not come.
    Planned {
        manifest: Arc<Manifest>,
        slices: Vec<Plan>,
        have: Vec<Range<u64>>,
        implied: Vec<Range<u64>>,
        skipped: Vec<Range<u64>>,
        resumed_bytes: u64,
    },
    /// These chunks need not come any more, and the source does not know it.
    Needless(Vec<Range<u64>>),
    /// These chunks are the same at the source, which knows it.
    Same(Vec<Range<u64>>),
    /// These files would be copied if it were not for a dry run.
    WouldCopy(Vec<Vec<u8>>),
    /// These entries of the manifest have got their names, where that is asked for.
    Named { manifest: Arc<Manifest>, entries: Vec<Range<u64>> },
    /// There is room again.
    Drained,
    /// All chunks but the failed ones are written.
    PassEnd(PassEnd),
    /// A file went wrong here.
    EntryFailed { path: Vec<u8>, reason: String },
    /// All stands.
    Outcome(Box<Outcome>),
    /// It cannot go on.
    Failed(Error),
}

/// What a writing thread is told, and by which of the sources that bring chunks to it.
pub(crate) type Told = (usize, Job);

/// The way of one source to a writing thread. Clones are the same.
#[derive(Clone)]
pub(crate) struct Jobs {
    sender: Sender<Told>,
    source: usize,
    next: Arc<AtomicUsize>,
}

impl Jobs {
    /// A way for the first source, and where its jobs come out.
    pub(crate) fn new() -> (Jobs, Receiver<Told>) {
        let (sender, inbox) = channel();
        (Jobs { sender, source: 0, next: Arc::new(AtomicUsize::new(1)) }, inbox)
    }

    /// The way of another source to the same thread.
    pub(crate) fn of_source(&self, source: usize) -> Jobs {
        Jobs { source, ..self.clone() }
    }

    /// The way of one more source: what an earlier one still says is not taken for its word.
    pub(crate) fn of_another(&self) -> Jobs {
        self.of_source(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Tells the thread; one that has ended has said why.
    pub(crate) fn send(&self, job: Job) {
        let _ = self.sender.send((self.source, job));
    }
}
