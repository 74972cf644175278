//! The destination of a receiving transfer.
//!
//! A [`Destination`] starts the writing of an object: the manifest (the list of entries: files,
//! folders and links) and the content of its files, as one sequence of bytes. Destinations with one
//! source implement [`Open`]: the writing thread collects the manifest and the digests, and the
//! [`Opened`] destination takes chunks with their digests.

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

pub(crate) trait Destination: Send {
    /// Starts to write the `incoming` object: on the existing thread that takes the jobs of
    /// `shared`, or else on a new thread. Returns the sender of jobs to the writing thread.
    fn begin(self: Box<Self>, incoming: Incoming, shared: Option<&Jobs>) -> Result<Jobs, Error>;
}

pub(crate) struct Incoming {
    pub(crate) offer: Offer,
    /// The memory charge for the manifest, encoded and decoded.
    pub(crate) list: Box<dyn ListMemory>,
    pub(crate) reporter: Reporter,
    /// Whether the source could not read a part of its tree, so the manifest lacks names.
    pub(crate) is_incomplete: bool,
    /// Notified when the destination is closed.
    pub(crate) closed: oneshot::Sender<()>,
}

#[derive(Clone)]
pub(crate) struct Reporter {
    pub(crate) board: Arc<Board>,
    pub(crate) events: UnboundedSender<WriterEvent>,
}

impl Reporter {
    pub(crate) fn wrote(&self, bytes: u64, files: u64) {
        self.board.update(|Counters { written, .. }| {
            (written.bytes, written.files) = (bytes, files);
        });
    }

    /// Reports `event`; a closed channel is no error.
    pub(crate) fn report(&self, event: WriterEvent) {
        let _ = self.events.send(event);
    }
}

/// A destination with one source, before the manifest is known.
pub(crate) trait Open: Send + 'static {
    /// Opens the destination for `object`, and reports the plan. `prefix` is the length of the
    /// encoded manifest if the object starts with the manifest, else zero.
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

/// The state of a pass (one transmission of the missing chunks).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PassState {
    pub(super) number: u32,
    /// Whether the flow has received every block.
    pub(super) all_arrived: bool,
}

/// An entry that failed at the source.
pub(crate) struct AtSource {
    pub(super) entry: u32,
    pub(super) reason: String,
    /// Whether the file changed at the source while it was read.
    pub(super) changed: bool,
}

/// An open destination. After an error it is no longer used.
pub(crate) trait Opened: Send {
    /// Returns whether chunk `chunk` is still missing. The digest of any other chunk is dropped.
    fn needs(&self, chunk: u64) -> bool;

    fn take_chunk(&mut self, chunk: u64, content: Content, digest: &Digest) -> Result<(), Error>;

    /// Takes an answer to a comparison of the plan.
    fn take_compared(&mut self, _answer: &Compared) -> Result<(), Error> {
        Ok(())
    }

    /// Marks an entry that failed at the source: its file never gets its final name.
    fn fail_at_source(&mut self, _failed: AtSource) {}

    /// Records that the source could not read a part of its tree: the manifest lacks names that
    /// exist at the source.
    fn source_is_incomplete(&mut self) {}

    fn begin_pass(&mut self) {}

    /// Does pending work, after each job and several times a second. Returns true once everything
    /// is reported.
    fn settle(&mut self, pass: PassState) -> Result<bool, Error>;
}
