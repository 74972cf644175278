//! The events of a running transfer.

use std::path::PathBuf;

use longhaul_proto::time::Span;

use super::queue::{Queued, Reader, stream};
use crate::error::public::Error;
use crate::progress::{Notice, Progress};

/// An event of a running transfer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The progress, about ten times a second. Only the latest unread progress is kept.
    Progress(Progress),
    /// A session is open.
    Connected {
        /// The peer's id; over HTTP the server's host name.
        peer: String,
        /// The peer's address.
        address: String,
        /// The carrier of the session: `quic`, `tls`, `ssh`, `https` or `http`.
        carrier: &'static str,
    },
    /// Some of the data exist at the destination already.
    Resumed {
        /// Bytes that need not be sent.
        bytes: u64,
    },
    /// The peer is silent; the network may be down.
    Silent {
        /// The length of the silence so far.
        since: Span,
        /// Whether this side is the sender; a sender pauses until the peer answers.
        sends: bool,
    },
    /// The peer answers again.
    HeardAgain,
    /// The connection was lost; the transfer connects again.
    Reconnecting {
        /// The reason.
        reason: String,
    },
    /// The peer or this host cannot take the transfer now, for example because its memory is full;
    /// the transfer tries again.
    Busy {
        /// The reason.
        reason: String,
    },
    /// UDP does not pass; the data use another carrier.
    Fallback {
        /// The current carrier of the data.
        carrier: String,
        /// Advice for the user: the ports to open, so that UDP passes.
        advice: String,
    },
    /// The transfer tried several numbers of TCP connections.
    Streams {
        /// The number of connections that carry the data, or carried them last.
        count: u32,
        /// Whether `count` is the best of the numbers tried. If not, the transfer ended during the
        /// search.
        found: bool,
    },
    /// A file was copied, or would be (dry run).
    FileDone {
        /// Its path within the copy.
        path: PathBuf,
    },
    /// A folder was created, or would be (dry run).
    FolderDone {
        /// Its path within the copy.
        path: PathBuf,
    },
    /// A symbolic link was created, or would be (dry run).
    LinkDone {
        /// Its path within the copy.
        path: PathBuf,
        /// The link's target.
        target: PathBuf,
    },
    /// A file or link was skipped because the destination already has it.
    FileSkipped {
        /// Its path within the copy.
        path: PathBuf,
    },
    /// A name that the source lacks was removed, or would be (dry run).
    Deleted {
        /// Its path within the copy; the path of a folder ends with a slash.
        path: PathBuf,
    },
    /// A file, folder or link of a tree failed; the transfer continues. Never dropped.
    FileFailed {
        /// Its path within the copy.
        path: PathBuf,
        /// The reason, and the side on which it failed.
        reason: String,
    },
    /// One of several sources failed; the transfer continues with the others. Never dropped.
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
        event: Box<Event>,
    },
    /// Any other message for the user.
    Warning(String),
    /// The reader was too slow: this many events were dropped at this position.
    Lagged(u64),
}

impl Queued for Event {
    fn must_arrive(&self) -> bool {
        match self {
            Event::OfSource { event, .. } => event.must_arrive(),
            event => matches!(event, Event::FileFailed { .. } | Event::SourceFailed { .. }),
        }
    }

    fn is_latest_only(&self) -> bool {
        matches!(self, Event::Progress(_))
    }

    fn lagged(count: u64) -> Event {
        Event::Lagged(count)
    }
}

impl From<Notice> for Event {
    fn from(notice: Notice) -> Event {
        match notice {
            Notice::Connected { peer, address, carrier } => {
                Event::Connected { peer, address, carrier }
            }
            Notice::Resumed { bytes } => Event::Resumed { bytes },
            Notice::Silent { since, sends } => Event::Silent { since, sends },
            Notice::HeardAgain => Event::HeardAgain,
            Notice::Reconnecting { reason } => Event::Reconnecting { reason },
            Notice::Busy { reason } => Event::Busy { reason },
            Notice::Fallback { carrier, advice } => Event::Fallback { carrier, advice },
            Notice::Streams { count, found } => Event::Streams { count, found },
            Notice::File { path } => Event::FileDone { path },
            Notice::Folder { path } => Event::FolderDone { path },
            Notice::Link { path, target } => Event::LinkDone { path, target },
            Notice::Skipped { path } => Event::FileSkipped { path },
            Notice::Deleted { path } => Event::Deleted { path },
            Notice::FileFailed { path, reason } => Event::FileFailed { path, reason },
            Notice::SourceFailed { source, error } => {
                Event::SourceFailed { source, error: error.into() }
            }
            Notice::OfSource { source, notice } => {
                Event::OfSource { source, event: Box::new((*notice).into()) }
            }
            Notice::Warning(text) => Event::Warning(text),
        }
    }
}

stream! {
    /// The events of a transfer, as a `Stream`.
    Events of Event, read by Reader<Event>
}
