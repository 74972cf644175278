//! What a running copy tells its user, and asks.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_proto::time::Span;
use longhaul_proto::units::{LossRatio, Rate};

use crate::error::Error;

/// How far a copy is; told about ten times a second.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Progress {
    /// Bytes of the object that are there, resumed ones included.
    pub bytes: u64,
    /// Bytes of the object in all.
    pub total_bytes: u64,
    /// Files that are there under their names.
    pub files: u64,
    /// Files in all.
    pub total_files: u64,
    /// Goodput over the last second.
    pub rate_now: Rate,
    /// Goodput since the start.
    pub rate_average: Rate,
    /// From the call to the first data datagram, once it has gone; of several sources the first.
    pub setup: Option<Span>,
    /// Time left at the present rate, if it can be told.
    pub left: Option<Span>,
    /// Data datagrams sent so far.
    pub sent: u64,
    /// Of these, blocks sent again.
    pub retransmitted: u64,
    /// Blocks found missing so far, once each.
    pub blocks_lost: u64,
    /// Blocks that came and that nobody had asked for.
    pub refused: u64,
    /// Smoothed round-trip time; of several sources the longest.
    pub rtt: Span,
    /// Of [`bytes`](Progress::bytes), those that were there before.
    pub resumed_bytes: u64,
    /// Where the copy has several sources, each of them.
    pub sources: Vec<SourceRow>,
}

impl Progress {
    /// Adds the counts of a part that runs beside others; those of other ends may be of any size.
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
    }
}

/// One of several sources of a copy.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SourceRow {
    /// As it was named.
    pub source: String,
    /// What it does.
    pub state: SourceState,
    /// Bytes of the object that this run has got from it.
    pub received_bytes: u64,
    /// The same over the last second.
    pub rate: Rate,
    /// Its part of all sources' rate, from 0 to 1.
    pub share: f64,
    /// Blocks found missing, of those that it sent for the first time.
    pub loss: LossRatio,
    /// Blocks that it sent again.
    pub resent: u64,
    /// Blocks that it sent and that nobody had asked for.
    pub refused: u64,
    /// Smoothed round-trip time.
    pub rtt: Span,
}

/// What one of several sources does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceState {
    /// It is being reached.
    #[default]
    Connecting,
    /// It reads what it has, to be compared with the others.
    Surveying,
    /// It sends.
    Receiving,
    /// It has brought what it was asked for, and waits in case that another one fails.
    Waiting,
    /// It gives no sign of life; others bring what it was to bring.
    Silent,
    /// It was lost, and is being reached again.
    Retrying,
    /// It has brought what it had to.
    Done,
    /// It takes no more part.
    Failed,
}

impl SourceState {
    /// The name in `--json`.
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

/// Something to tell once, as it happens.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// A session stands: with whom, how (`quic`, `tls`, `ssh`), and the cipher of the data.
    Connected {
        /// The other side's id.
        peer: String,
        /// The other side's address.
        address: String,
        /// What carries the session.
        carrier: &'static str,
    },
    /// Part of the object was there from an earlier run.
    Resumed {
        /// Bytes that need not be sent.
        bytes: u64,
    },
    /// Nothing comes from the other side any more; the network may be out.
    Silent {
        /// For how long already.
        since: Span,
        /// This side sends, and has stopped until it hears something (RFC 8085, section 3.1.10).
        sends: bool,
    },
    /// Something came again, and the copy goes on.
    HeardAgain,
    /// The connection was lost and is being taken up again.
    Reconnecting {
        /// Why it was lost.
        reason: String,
    },
    /// UDP does not pass, or no longer; the data go another way now.
    Fallback {
        /// What carries the data now.
        carrier: String,
        /// What to open so that UDP passes.
        advice: String,
    },
    /// Numbers of connections were tried.
    Streams {
        /// How many carry the data, or carried it when the copy was over.
        count: u32,
        /// That is the best of those tried; else the copy was over before it was found.
        found: bool,
    },
    /// A file was copied, or would be (dry run).
    File {
        /// Its path within the copy.
        path: PathBuf,
    },
    /// A folder was made, or would be (dry run).
    Folder {
        /// Its path within the copy.
        path: PathBuf,
    },
    /// A symbolic link was made, or would be (dry run).
    Link {
        /// Its path within the copy.
        path: PathBuf,
        /// What it leads to.
        target: PathBuf,
    },
    /// A file or link was left out because it is there and equal.
    Skipped {
        /// Its path within the copy.
        path: PathBuf,
    },
    /// A name that the source lacks was removed, or would be (dry run).
    Deleted {
        /// Its path within the copy; that of a folder ends with a slash.
        path: PathBuf,
    },
    /// A file of a tree failed; the others go on.
    FileFailed {
        /// Its path within the copy.
        path: PathBuf,
        /// What went wrong, and on which side.
        reason: String,
    },
    /// One of several sources takes no more part; the others go on.
    SourceFailed {
        /// As it was named.
        source: String,
        /// Why.
        error: Error,
    },
    /// What one of several sources has to tell.
    OfSource {
        /// As it was named.
        source: String,
        /// What it is.
        notice: Box<Notice>,
    },
    /// Anything else that the user should read.
    Warning(String),
}

/// The user's side of a running copy. Called from the copy's own threads.
pub trait Observer: Send + Sync {
    /// How far the copy is.
    fn progress(&self, progress: &Progress);

    /// Something happened.
    fn notice(&self, notice: Notice);

    /// A server that has never been seen presents `id`: is it the right one? Blocks until answered.
    fn trust_new_server(&self, server: &str, id: &str) -> bool;
}

/// Ends a copy from outside. Clones share the wish.
#[derive(Clone, Debug, Default)]
pub struct Cancel {
    wish: Arc<AtomicBool>,
    /// Whose wish counts here, too.
    parent: Option<Arc<Cancel>>,
}

impl Cancel {
    /// Wishes the end; the copy stops within a tenth of a second, resumable.
    pub fn cancel(&self) {
        self.wish.store(true, Ordering::Relaxed);
    }

    /// Resolves once the end is wished. The wish comes from a signal, which may do no more than
    /// set a flag; so this looks twenty times a second.
    pub(crate) async fn wished(&self) {
        let mut tick = tokio::time::interval(std::time::Duration::from_millis(50));
        while !self.is_cancelled() {
            tick.tick().await;
        }
    }

    /// Whether the end is wished.
    pub fn is_cancelled(&self) -> bool {
        self.wish.load(Ordering::Relaxed)
            || self.parent.as_ref().is_some_and(|parent| parent.is_cancelled())
    }

    /// Returns a handle that is cancelled with this one, but not the other way round.
    #[must_use]
    pub fn child(&self) -> Cancel {
        Cancel { wish: Arc::default(), parent: Some(Arc::new(self.clone())) }
    }
}

/// Somebody who trusts everybody and wants to know nothing.
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
