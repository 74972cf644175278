//! The connection below a session's streams.

use std::io;
use std::sync::{Arc, OnceLock};

use super::child::Child;
use super::id::PeerId;
use super::keeper::Keeper;
use super::mux::Mux;
use super::segments::{Counted, SegmentWatch};
use crate::{Error, Kind};

/// A connection. The streams and the [`Connection`](super::Connection) handles keep it open.
pub(super) struct Below {
    pub(super) peer: PeerId,
    pub(super) quic: Option<Keeper>,
    pub(super) mux: Option<Mux>,
    /// The first TCP connection, if this side opened it.
    tcp: Option<Counted>,
    /// The ssh process that carries the connection, or that started the other side.
    ssh: OnceLock<Child>,
    name: Name,
}

/// The other side's name in error messages; shared by clones.
pub(super) type Name = Arc<OnceLock<String>>;

/// How a connection carries streams.
pub(super) enum Streams {
    /// The whole connection is one stream.
    One,
    /// QUIC carries one or several streams.
    Quic(Keeper),
    /// Several streams over TCP or ssh.
    Mux(Mux),
}

impl Below {
    pub(super) fn new(peer: PeerId, streams: Streams) -> Below {
        let (quic, mux) = match streams {
            Streams::One => (None, None),
            Streams::Quic(keeper) => (Some(keeper), None),
            Streams::Mux(mux) => (None, Some(mux)),
        };
        Below { peer, quic, mux, tcp: None, ssh: OnceLock::new(), name: Name::default() }
    }

    pub(super) fn over(self, tcp: Option<Counted>, name: Name) -> Below {
        Below { tcp, name, ..self }
    }

    pub(super) fn segments(&self) -> Option<SegmentWatch> {
        self.tcp.as_ref().map(SegmentWatch::new)
    }

    /// Keeps `child` running while the connection exists. Only the first call counts.
    pub(super) fn keep_ssh(&self, child: Child) {
        let _ = self.ssh.set(child);
    }

    /// Sets the other side's name. Only the first call counts.
    pub(super) fn call(&self, name: &str) {
        let _ = self.name.set(name.to_owned());
    }

    /// Returns the other side's name, or else its id.
    pub(super) fn shown(&self) -> String {
        self.name.get().cloned().unwrap_or_else(|| self.peer.to_string())
    }

    /// Returns the other side's refusal, or else that the session was lost.
    pub(super) fn lost(&self, error: &io::Error) -> Error {
        if let Some(refused) = self.mux.as_ref().and_then(Mux::refusal) {
            return refused;
        }
        let reason = self.quic.as_ref().and_then(Keeper::close_reason);
        let reason = reason.unwrap_or_else(|| error.to_string());
        Error::new(Kind::Lost, format!("the session with {} was lost: {reason}", self.shown()))
    }

    /// Drops a reference. The drop of the last one ends the connection: a multiplexer first sends
    /// all written data; QUIC discards unsent data.
    pub(super) async fn release(this: Arc<Below>) {
        if let Some(last) = Arc::into_inner(this) {
            match (&last.quic, &last.mux) {
                (Some(keeper), _) => keeper.close().await,
                (_, Some(mux)) => mux.close().await,
                (None, None) => {}
            }
        }
    }
}
