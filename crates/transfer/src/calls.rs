//! A client's connection to one host. The connection carries several calls.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::error::{Error, ErrorKind};
use crate::options::HostOptions;
use crate::progress::{Cancel, Observer, or_cancelled};
use crate::reach::{self, SizeSearch};
use crate::reactor;
use crate::session::{self, Connection, Session, Settings};

pub(crate) struct Calls<R, O> {
    pub(crate) options: HostOptions,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) cancel: Cancel,
    pub(crate) ready: oneshot::Sender<Result<R, Error>>,
    /// Closed once all handles that make calls are dropped.
    pub(crate) orders: mpsc::Receiver<O>,
}

#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) id: String,
    pub(crate) carrier: &'static str,
}

/// Connects; returns the connection, its first stream (unused so far), and the other side.
pub(crate) async fn connected(
    options: &HostOptions,
    observer: &dyn Observer,
) -> Result<(Connection, Session, Peer), Error> {
    let settings = Settings { streams: true, ..Settings::default() };
    let session = reach::open(options, observer, &settings, SizeSearch::No).await?.session;
    let peer = Peer { id: session.peer.to_string(), carrier: session.carrier };
    let connection = session.connection().ok_or_else(|| {
        Error::new(ErrorKind::Unreachable, "the connection carries no further streams")
    })?;
    Ok((connection, session, peer))
}

/// Reconnects a service whose connection was lost.
pub(crate) struct Again {
    options: HostOptions,
    observer: Arc<dyn Observer>,
}

impl Again {
    async fn reach(&self) -> Result<(Connection, Session), Error> {
        let (connection, first, _) = connected(&self.options, &*self.observer).await?;
        Ok((connection, first))
    }

    /// The service decides from the error whether to retry.
    pub(crate) async fn connect(&self) -> Result<(Connection, Session), session::Error> {
        self.reach().await.map_err(|error| session::Error::from(&error))
    }
}

/// Opens a connection, reports on `calls.ready` whether that succeeded, and runs `work` to its end.
/// `what` names the work in error messages. Blocks.
pub(crate) fn keep<O>(
    calls: Calls<(), O>,
    what: &str,
    work: impl AsyncFnOnce((Connection, Session), &Again, mpsc::Receiver<O>, &Cancel),
) {
    let Calls { options, observer, cancel, ready, orders } = calls;
    let again = Again { options, observer };
    let work = async {
        // The caller may have dropped the receiver of `ready`.
        match or_cancelled(again.reach(), &cancel).await {
            Err(error) => drop(ready.send(Err(error))),
            Ok(first) => {
                let _ = ready.send(Ok(()));
                work(first, &again, orders, &cancel).await;
            }
        }
        Ok(())
    };
    // If the work was cancelled, or no runtime could be started, `orders` is closed, and whoever
    // waits for an answer to an order gets an error.
    let _ = reactor::block_on(what, work);
}
