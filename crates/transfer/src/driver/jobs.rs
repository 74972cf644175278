//! The way to a writing thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use super::writer::Job;

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
