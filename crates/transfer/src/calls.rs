//! A client's connection to one host that carries several calls.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::error::{Error, ErrorKind};
use crate::options::HostOptions;
use crate::progress::{Cancel, Observer};
use crate::reach::{self, Look};
use crate::session::{Connection, Session, Settings};

/// The inputs of a connection's thread.
pub(crate) struct Calls<R, O> {
    pub(crate) options: HostOptions,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) cancel: Cancel,
    /// Gets one message: the description of the host, or why it was not reached.
    pub(crate) ready: oneshot::Sender<Result<R, Error>>,
    /// The calls; closes when nobody can make any more.
    pub(crate) orders: mpsc::Receiver<O>,
}

/// The other side of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) id: String,
    pub(crate) carrier: &'static str,
}

/// Connects; returns the connection and its first stream, which is unused so far.
pub(crate) async fn connected(
    options: &HostOptions,
    observer: &dyn Observer,
) -> Result<(Connection, Session, Peer), Error> {
    let settings = Settings { streams: true, ..Settings::default() };
    let session = reach::open(options, observer, &settings, Look::No).await?.session;
    let peer = Peer { id: session.peer.to_string(), carrier: session.carrier };
    let connection = session.connection().ok_or_else(|| {
        Error::new(ErrorKind::Unreachable, "the connection carries no further streams")
    })?;
    Ok((connection, session, peer))
}

/// Does `work` until `cancel` is set.
pub(crate) async fn or_cancelled<T>(
    work: impl Future<Output = Result<T, Error>>,
    cancel: &Cancel,
) -> Result<T, Error> {
    tokio::select! {
        ended = work => ended,
        () = cancel.wished() => Err(Error::new(ErrorKind::Cancelled, "interrupted")),
    }
}
