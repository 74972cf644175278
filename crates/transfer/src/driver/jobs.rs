//! The way to a writing thread.

use std::sync::mpsc::{Receiver, Sender, channel};

use super::writer::Job;

/// What a writing thread is told, and by which of the sources that bring chunks to it.
pub(crate) type Told = (usize, Job);

/// The way of one source to a writing thread. Clones are the same.
#[derive(Clone)]
pub(crate) struct Jobs {
    sender: Sender<Told>,
    source: usize,
}

impl Jobs {
    /// A way for the first source, and where its jobs come out.
    pub(crate) fn new() -> (Jobs, Receiver<Told>) {
        let (sender, inbox) = channel();
        (Jobs { sender, source: 0 }, inbox)
    }

    /// The way of another source to the same thread.
    pub(crate) fn of_source(&self, source: usize) -> Jobs {
        Jobs { sender: self.sender.clone(), source }
    }

    /// Tells the thread; one that has ended has said why.
    pub(crate) fn send(&self, job: Job) {
        let _ = self.sender.send((self.source, job));
    }
}
