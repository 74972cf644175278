//! What a receiving transfer writes to.
//!
//! A [`Destination`] begins to write an object. Those that one source alone writes to implement
//! [`Open`]: the writing thread collects the manifest and the digests, and the [`Opened`]
//! destination takes what has both. Files (also those of a folder in memory), a rehearsal of files
//! and the discarding measurement are of that kind. Replicas write to one object together, by a
//! thread of their own.

use std::sync::Arc;

use tokio::sync::{mpsc::UnboundedSender, oneshot};

use super::chunk::Content;
use super::jobs::{Jobs, WriterEvent};
use super::writer;
use crate::control::{Compared, Offer};
use crate::counters::Counters;
use crate::counters::board::Board;
use crate::error::Error;
use longhaul_files::digest::Digest;
use longhaul_files::{ListMemory, VirtualObject};

/// Where an object goes.
pub(crate) trait Destination: Send {
    /// Begins to write the `incoming` object, on a thread of its own or the one that `shared` leads
    /// to, and returns the way to that thread.
    ///
    /// # Errors
    /// [`ErrorKind::Unfinished`](crate::error::ErrorKind::Unfinished) where the system has no
    /// thread left.
    fn begin(self: Box<Self>, incoming: Incoming, shared: Option<&Jobs>) -> Result<Jobs, Error>;
}

/// An object whose offer has come.
pub(crate) struct Incoming {
    pub(crate) offer: Offer,
    /// What the manifest is charged to, encoded and decoded.
    pub(crate) list: Box<dyn ListMemory>,
    pub(crate) reporter: Reporter,
    /// The source could not read all of its folders.
    pub(crate) is_incomplete: bool,
    /// Told when the destination is closed.
    pub(crate) closed: oneshot::Sender<()>,
}

/// The counters and the receiving end that hear of an object.
#[derive(Clone)]
pub(crate) struct Reporter {
    pub(crate) board: Arc<Board>,
    pub(crate) events: UnboundedSender<WriterEvent>,
}

impl Reporter {
    /// So much of the object is written.
    pub(crate) fn wrote(&self, bytes: u64, files: u64) {
        self.board.update(|Counters { written, .. }| {
            (written.bytes, written.files) = (bytes, files);
        });
    }

    /// Tells the receiving end; one that is gone needs no events.
    pub(crate) fn tell(&self, event: WriterEvent) {
        let _ = self.events.send(event);
    }
}

/// A destination that one source writes to, before the manifest is known.
pub(crate) trait Open: Send + 'static {
    /// Opens the destination for `object`, and tells what need not come. `prefix` is the length of
    /// the encoded manifest if that is the first part of the object, else zero.
    ///
    /// # Errors
    /// The destination does not take this object, or cannot be opened.
    fn open(
        self: Box<Self>,
        object: VirtualObject,
        prefix: u64,
        reporter: Reporter,
    ) -> Result<Box<dyn Opened>, Error>;
}

impl<O: Open> Destination for O {
    fn begin(self: Box<Self>, incoming: Incoming, shared: Option<&Jobs>) -> Result<Jobs, Error> {
        writer::begin(self, incoming, shared)
    }
}

/// The pass that brings chunks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PassState {
    pub(super) number: u32,
    /// The flow has seen every block.
    pub(super) all_arrived: bool,
}

/// An entry that went wrong at the source.
pub(crate) struct AtSource {
    pub(super) entry: u32,
    pub(super) reason: String,
    /// The file changed there while it was read.
    pub(super) changed: bool,
}

/// A destination that is open. After an error nothing more is given to it.
pub(crate) trait Opened: Send {
    /// Whether chunk `chunk` is still to come, so that a digest of it is worth its memory.
    fn needs(&self, chunk: u64) -> bool;

    /// Takes a chunk and the digest that it must have.
    ///
    /// # Errors
    /// The destination cannot take it.
    fn take_chunk(&mut self, chunk: u64, content: Content, digest: &Digest) -> Result<(), Error>;

    /// Takes an answer to a question of the plan.
    ///
    /// # Errors
    /// The destination cannot go on by it.
    fn take_compared(&mut self, _answer: &Compared) -> Result<(), Error> {
        Ok(())
    }

    /// An entry went wrong at the source: its file never gets its name.
    fn fail_at_source(&mut self, _failed: AtSource) {}

    /// The source could not read all of its folders: its list lacks names that it has.
    fn source_is_incomplete(&mut self) {}

    /// A pass begins: it brings again what failed in the last one.
    fn begin_pass(&mut self) {}

    /// Does what is due after each job and several times a second. True once all is told.
    ///
    /// # Errors
    /// The destination cannot go on.
    fn settle(&mut self, pass: PassState) -> Result<bool, Error>;
}
