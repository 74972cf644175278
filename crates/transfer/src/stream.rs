//! The client's side of streams: the connections for `longhaul_stream`.

use std::sync::Arc;
use std::time::Duration;

use longhaul_proto::share::Key;
use longhaul_stream::send::{Source, Status, Wish};
use longhaul_stream::{Link, receive, send};
use longhaul_text::CallOption;
use tokio::sync::{mpsc, oneshot, watch};

use crate::error::{Error, ErrorKind};
use crate::options::HostOptions;
use crate::progress::{Cancel, Observer};
use crate::progress::{cancelled, or_cancelled};
use crate::random::random_flow;
use crate::reach::{self, Reached, SizeSearch};
use crate::reactor;
use crate::session::{self, random_u64};

/// Connects to a server, and connects again after each lost connection.
pub(crate) struct Connector {
    pub(crate) options: HostOptions,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) cancel: Cancel,
    pub(crate) retry_for: Duration,
}

impl Connector {
    pub(crate) async fn connect(&self) -> Result<Link, Error> {
        let reached =
            reach::open_rooms(&self.options, &*self.observer, SizeSearch::DuringHandshake).await?;
        let Reached { session, data: port, contact, datagram } = reached;
        if session.carrier == "ssh" {
            let what = "streams and channels cannot go through the ssh connection";
            let error = Error::new(ErrorKind::Unreachable, what);
            let ports = CallOption::Ports;
            let advice = "open two ports in the remote host's firewall, and give them as";
            return Err(error.advise(format!("{advice} {ports}")));
        }
        Ok(Link { session, port, contact, flow: random_flow(), datagram })
    }

    pub(crate) async fn again(&self) -> Result<Link, session::Error> {
        self.connect().await.map_err(|error| session::Error::from(&error))
    }

    /// Connects, then calls `make`, which returns a part for the program and a part for the
    /// connection. Sends the program's part or the error on `ready`; returns the connection and its
    /// part.
    pub(crate) async fn begin<P, C>(
        &self,
        ready: oneshot::Sender<Result<P, Error>>,
        make: impl FnOnce(&Link) -> Result<(P, C), Error>,
    ) -> Result<(Link, C), Error> {
        let begun = or_cancelled(self.connect(), &self.cancel).await;
        let begun =
            begun.and_then(|link| make(&link).map(|(part, control)| (part, (link, control))));
        let (answer, kept) = match begun {
            Ok((part, kept)) => (Ok(part), Ok(kept)),
            Err(error) => (Err(error.clone()), Err(error)),
        };
        // The program may have given up.
        let _ = ready.send(answer);
        kept
    }
}

pub(crate) type Sending = (Source, watch::Receiver<Status>);

/// Sends a stream until `finished` returns the number of its frames, and the server has received
/// this number.
pub(crate) fn send_stream(
    connector: &Connector,
    wish: Wish,
    ready: oneshot::Sender<Result<Sending, Error>>,
    finished: impl Future<Output = u32>,
) -> Result<Status, Error> {
    let work = async {
        let make = |link: &Link| {
            let (source, control, status) = send::new(wish, random_u64(), link)?;
            Ok(((source, status), control))
        };
        let (first, control) = connector.begin(ready, make).await?;
        let again = async || connector.again().await;
        // A cancelled source may still count its frames, but the stream is not complete.
        let finished = async {
            let frames = finished.await;
            if connector.cancel.is_cancelled() { std::future::pending().await } else { frames }
        };
        let cancelled = async {
            connector.cancel.wished().await;
            session::Error::from(&cancelled())
        };
        Ok(control.run(first, again, connector.retry_for, finished, cancelled).await?)
    };
    reactor::block_on("the stream", work)
}

pub(crate) type Receiving = (mpsc::Receiver<receive::Item>, receive::Board);

/// Receives the stream `name` until it ends.
pub(crate) fn receive_stream(
    connector: &Connector,
    name: Key,
    ready: oneshot::Sender<Result<Receiving, Error>>,
) -> Result<(), Error> {
    let work = async {
        let make = |_: &Link| {
            let (items, control, board) = receive::new(name)?;
            Ok(((items, board), control))
        };
        let (first, control) = connector.begin(ready, make).await?;
        let again = async || connector.again().await;
        control.run(first, again, connector.retry_for, connector.cancel.wished()).await?;
        // A cancelled receiver has already told the server that it leaves.
        if connector.cancel.is_cancelled() { Err(cancelled()) } else { Ok(()) }
    };
    reactor::block_on("the stream", work)
}
