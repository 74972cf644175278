//! Events of a running copy for its user, and the questions to the user. The object of a copy is
//! the content of all of its files. A block is the payload of one datagram. A coded symbol (of an
//! erasure code) replaces any one lost block of its chunk.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_proto::law::Phase;
use longhaul_proto::time::Span;
use longhaul_proto::units::{LossRatio, Rate};

use crate::error::{Error, ErrorKind};

/// The progress of a copy, reported about ten times a second.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Progress {
    /// Bytes of the object at the destination, including resumed bytes.
    pub bytes: u64,
    /// Bytes of the whole object.
    pub total_bytes: u64,
    /// Files with their final name.
    pub files: u64,
    /// Files of the whole object.
    pub total_files: u64,
    /// Goodput over about the last second.
    pub rate_now: Rate,
    /// Goodput since the start.
    pub rate_average: Rate,
    /// Time from the start of the copy until the first data datagram (over a stream: the first
    /// chunk) is sent or received; `None` before that moment. With several sources the shortest
    /// time.
    pub setup: Option<Span>,
    /// Time left at the current rate, if known.
    pub left: Option<Span>,
    /// Data datagrams sent so far.
    pub sent: u64,
    /// Blocks sent again, and coded symbols; a part of `sent`.
    pub retransmitted: u64,
    /// Blocks found missing so far, once each.
    pub blocks_lost: u64,
    /// Blocks received that were not requested.
    pub refused: u64,
    /// Smoothed round-trip time; with several sources the longest.
    pub rtt: Span,
    /// Bytes that existed before, a part of [`bytes`](Progress::bytes).
    pub resumed_bytes: u64,
    /// The state of the path since the previous progress; with several sources, of all their paths.
    pub path: PathSample,
    /// The sources, if the copy has several.
    pub sources: Vec<SourceRow>,
}

impl Progress {
    /// Adds the counts of another copy that runs in parallel. The sums saturate, because counts
    /// from other ends may have any value.
    pub(crate) fn add(&mut self, part: &Progress) {
        for (sum, more) in [
            (&mut self.bytes, part.bytes),
            (&mut self.total_bytes, part.total_bytes),
            (&mut self.files, part.files),
            (&mut self.total_files, part.total_files),
            (&mut self.sent, part.sent),
            (&mut self.retransmitted, part.retransmitted),
            (&mut self.blocks_lost, part.blocks_lost),
            (&mut self.refused, part.refused),
            (&mut self.resumed_bytes, part.resumed_bytes),
        ] {
            *sum = sum.saturating_add(more);
        }
        self.rtt = self.rtt.max(part.rtt);
        self.path.add(&part.path);
    }
}

/// The state of a copy's path since the previous sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct PathSample {
    /// The sending rate, in UDP payload with headers and tags. Over TCP the rate limit, or zero.
    pub rate: Rate,
    /// The rate at which bytes of blocks arrived, duplicates included.
    pub delivered: Rate,
    /// The rise of the round-trip time above its lowest value; with several sources the largest
    /// rise.
    pub queue: Span,
    /// The fraction of the datagrams that did not arrive; with several sources the largest.
    pub loss: LossRatio,
    /// The state of the rate search; `None` if there is none.
    pub phase: Option<Phase>,
}

impl PathSample {
    fn add(&mut self, part: &PathSample) {
        let sum =
            |one: Rate, other: Rate| Rate::from_bps(one.as_bps().saturating_add(other.as_bps()));
        self.rate = sum(self.rate, part.rate);
        self.delivered = sum(self.delivered, part.delivered);
        self.queue = self.queue.max(part.queue);
        if part.loss > self.loss {
            self.loss = part.loss;
        }
        self.phase = self.phase.max(part.phase);
    }
}

/// One of several sources of a copy.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SourceRow {
    /// The source as the caller named it.
    pub source: String,
    /// The state of the source.
    pub state: SourceState,
    /// Bytes of the object received from the source in this run.
    pub received_bytes: u64,
    /// The rate of `received_bytes` over about the last second.
    pub rate: Rate,
    /// This source's fraction of the rate of all sources, from 0 to 1.
    pub share: f64,
    /// The fraction of the source's blocks whose first transmission was found missing.
    pub loss: LossRatio,
    /// Blocks that the source sent again, and coded symbols.
    pub resent: u64,
    /// Blocks that the source sent without a request.
    pub refused: u64,
    /// Smoothed round-trip time.
    pub rtt: Span,
}

/// The state of one of several sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceState {
    /// The copy is connecting to the source.
    #[default]
    Connecting,
    /// The source reads its object, for the comparison with the other sources.
    Surveying,
    /// The source sends.
    Receiving,
    /// The source has nothing left to send, and waits in case another source fails.
    Waiting,
    /// The source is silent. The other sources may get its chunks.
    Silent,
    /// The source is being retried after a failure.
    Retrying,
    /// The source has sent all of its chunks.
    Done,
    /// The source no longer takes part.
    Failed,
}

impl SourceState {
    /// Returns the name in `--json`.
    pub fn name(self) -> &'static str {
        match self {
            SourceState::Connecting => "connecting",
            SourceState::Surveying => "surveying",
            SourceState::Receiving => "receiving",
            SourceState::Waiting => "waiting",
            SourceState::Silent => "silent",
            SourceState::Retrying => "retrying",
            SourceState::Done => "done",
            SourceState::Failed => "failed",
        }
    }
}

/// An event that is reported once.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// A session is open.
    Connected {
        /// The other side's id; over HTTP the server's host name.
        peer: String,
        /// The other side's address.
        address: String,
        /// The carrier of the session: `quic`, `tls`, `ssh`, `https` or `http`.
        carrier: &'static str,
    },
    /// A part of the object exists at the destination already.
    Resumed {
        /// Bytes that need not be sent.
        bytes: u64,
    },
    /// The other side is silent; the network may be down.
    Silent {
        /// The length of the silence so far.
        since: Span,
        /// Whether this side is the sender; a sender pauses until the other side answers (RFC 8085,
        /// section 3.1.10).
        sends: bool,
    },
    /// The other side answers again, and the copy continues.
    HeardAgain,
    /// The connection was lost; the copy connects again.
    Reconnecting {
        /// The reason.
        reason: String,
    },
    /// The other side or this host cannot take the copy now, for example because its memory is
    /// full; the copy tries again.
    Busy {
        /// The reason.
        reason: String,
    },
    /// UDP datagrams do not arrive, or no longer arrive; another carrier now carries the data.
    Fallback {
        /// The current carrier of the data.
        carrier: String,
        /// Advice for the user: the ports to open, so that UDP passes.
        advice: String,
    },
    /// The transfer tried several numbers of connections.
    Streams {
        /// The number of connections that carry the data, or carried them last.
        count: u32,
        /// Whether `count` is the best of the numbers tried. If not, the copy ended during the
        /// search.
        found: bool,
    },
    /// A file was copied, or would be (dry run).
    File {
        /// Its path within the copy.
        path: PathBuf,
    },
    /// A folder was created, or would be (dry run).
    Folder {
        /// Its path within the copy.
        path: PathBuf,
    },
    /// A symbolic link was created, or would be (dry run).
    Link {
        /// Its path within the copy.
        path: PathBuf,
        /// The link's target.
        target: PathBuf,
    },
    /// A file or link was skipped because an equal one exists.
    Skipped {
        /// Its path within the copy.
        path: PathBuf,
    },
    /// A name that the source lacks was removed, or would be (dry run).
    Deleted {
        /// Its path within the copy; the path of a folder ends with a slash.
        path: PathBuf,
    },
    /// A file, folder or link of a tree failed; the copy continues.
    FileFailed {
        /// Its path within the copy.
        path: PathBuf,
        /// The reason, and the side on which it failed.
        reason: String,
    },
    /// One of several sources no longer takes part; the copy continues with the others.
    SourceFailed {
        /// The source as the caller named it.
        source: String,
        /// The reason.
        error: Error,
    },
    /// An event of one of several sources.
    OfSource {
        /// The source as the caller named it.
        source: String,
        /// The event.
        notice: Box<Notice>,
    },
    /// Any other message for the user.
    Warning(String),
}

/// The user's side of a running copy.
pub trait Observer: Send + Sync {
    /// Reports the progress.
    fn progress(&self, progress: &Progress);

    /// Reports an event.
    fn notice(&self, notice: Notice);

    /// Asks whether to trust a new server that presents `id`. Blocks until answered.
    fn trust_new_server(&self, server: &str, id: &str) -> bool;
}

/// Cancels a copy, or another request that got this handle, from outside. Clones cancel the same
/// requests.
#[derive(Clone, Debug, Default)]
pub struct Cancel {
    wish: Arc<AtomicBool>,
    /// A handle whose cancellation also cancels this one.
    parent: Option<Arc<Cancel>>,
}

impl Cancel {
    /// Cancels the requests that got this handle. A copy notices this within about a tenth of a
    /// second, and then closes its files. The copy can be resumed, unless it writes to a writer or
    /// reads long content from a reader.
    pub fn cancel(&self) {
        self.wish.store(true, Ordering::Relaxed);
    }

    /// Completes after a cancellation. It polls a flag twenty times a second, because a signal
    /// handler can only set a flag.
    pub(crate) async fn wished(&self) {
        let mut tick = tokio::time::interval(std::time::Duration::from_millis(50));
        while !self.is_cancelled() {
            tick.tick().await;
        }
    }

    /// Returns whether this handle or a parent was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.wish.load(Ordering::Relaxed)
            || self.parent.as_ref().is_some_and(|parent| parent.is_cancelled())
    }

    /// Returns a child handle. Cancelling this handle cancels the child; cancelling the child does
    /// not cancel this handle.
    #[must_use]
    pub fn child(&self) -> Cancel {
        Cancel { wish: Arc::default(), parent: Some(Arc::new(self.clone())) }
    }
}

pub(crate) async fn or_cancelled<T>(
    work: impl Future<Output = Result<T, Error>>,
    cancel: &Cancel,
) -> Result<T, Error> {
    tokio::select! {
        ended = work => ended,
        () = cancel.wished() => Err(cancelled()),
    }
}

pub(crate) fn cancelled() -> Error {
    Error::new(ErrorKind::Cancelled, "interrupted")
}

#[cfg(test)]
pub(crate) struct Nobody;

#[cfg(test)]
impl Observer for Nobody {
    fn progress(&self, _: &Progress) {}
    fn notice(&self, _: Notice) {}
    fn trust_new_server(&self, _: &str, _: &str) -> bool {
        true
    }
}
