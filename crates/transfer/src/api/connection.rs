//! A connection to one host that answers several calls at a time.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use tokio::sync::{mpsc, oneshot};

use super::client::{Client, IntoLocation};
use super::engine::{self, Reporter, Sink};
use super::events::Event;
use super::queue::Queue;
use super::remote_file::RemoteFile;
use crate::error::public::{Error, ErrorKind};
use crate::list::{Named, Order, Peer, serve_orders};
use crate::options::{HostOptions, ReachOptions};
use crate::progress::Cancel;

/// Calls that wait for the engine, and batches of names that wait for a reader.
const WAITING: usize = 4;

/// What its thread is called.
const NAME: &str = "longhaul connection";

impl Client {
    /// A connection to `host`: `lh://host[:port]`, or `host:` over ssh. Its path is ignored. Await
    /// the request.
    pub fn connect(&self, host: impl IntoLocation) -> ConnectRequest {
        let options = host.into_location().map(|location| self.host(location));
        ConnectRequest { client: self.clone(), options, cancel: Cancel::default() }
    }
}

/// A connection to be opened: await it.
#[derive(Clone, Debug)]
#[must_use = "a connection is opened when its request is awaited"]
pub struct ConnectRequest {
    client: Client,
    options: Result<HostOptions, Error>,
    cancel: Cancel,
}

impl ConnectRequest {
    /// How the host is reached.
    pub fn reach(mut self, reach: ReachOptions) -> ConnectRequest {
        if let Ok(options) = &mut self.options {
            options.reach = reach;
        }
        self
    }

    /// Ends the attempt, or the connection and all its calls, when `handle` is cancelled.
    pub fn cancel_with(self, handle: &Cancel) -> ConnectRequest {
        ConnectRequest { cancel: handle.clone(), ..self }
    }

    async fn open(self) -> Result<Connection, Error> {
        let options = self.options?;
        let cancel = self.cancel.child();
        // Nothing reads them: a connection has no events.
        let unread: Sink<Event> = Sink::Queue(Queue::new(1));
        let reporter = Reporter::new(unread, self.client.trust.clone(), cancel.clone());
        let (tell, ready) = oneshot::channel();
        let (orders, ordered) = mpsc::channel(WAITING);
        let mut attempt = Attempt(Some(cancel.clone()));
        engine::start(NAME, move || {
            serve_orders(&options, Arc::new(reporter), &cancel, tell, ordered);
        })?;
        let peer = ready.await.map_err(|_| engine::vanished(NAME))??;
        attempt.0 = None;
        Ok(Connection { orders, peer })
    }
}

impl IntoFuture for ConnectRequest {
    type Output = Result<Connection, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    /// # Errors
    /// The host cannot be reached or is not trusted. A host that does not let this client in says
    /// so to the first call.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.open())
    }
}

/// Ends an attempt to connect for which nobody waits any more.
struct Attempt(Option<Cancel>);

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Some(cancel) = &self.0 {
            cancel.cancel();
        }
    }
}

/// A connection to a host. Calls on it are independent of each other. It closes when the handle and
/// its calls are dropped. A server closes a connection that had no call for a minute: then a call
/// fails with [`ErrorKind::Unfinished`](super::ErrorKind::Unfinished), and a new connection helps.
#[derive(Clone)]
pub struct Connection {
    orders: mpsc::Sender<Order>,
    peer: Peer,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({} by {})", self.peer.id, self.peer.carrier)
    }
}

impl Connection {
    /// The id of the other host, proven, as `lh1:…`.
    pub fn peer(&self) -> &str {
        &self.peer.id
    }

    /// What carries the connection: `quic`, `tls` or `ssh`.
    pub fn carrier(&self) -> &str {
        self.peer.carrier
    }

    /// Lists the names in a folder, or the one file that `path` names. Relative to the root of the
    /// server; over ssh relative to the home folder.
    ///
    /// # Errors
    /// The connection is gone. Why the host does not list comes by [`Listing::next`].
    pub async fn list(&self, path: impl AsRef<Path>) -> Result<Listing, Error> {
        let path = path.as_ref().as_os_str().as_bytes().to_vec();
        let (tell, pieces) = mpsc::channel(WAITING);
        let sent = self.orders.send(Order::List(path, tell)).await;
        sent.map_err(|_| engine::vanished(NAME))?;
        Ok(Listing { pieces, names: Vec::new().into_iter(), is_over: false })
    }

    /// Opens the file at `path` for reads by range. The path is read as by [`Connection::list`].
    ///
    /// # Errors
    /// There is no regular file, it may not be read, or the connection is gone.
    pub async fn open_file(&self, path: impl AsRef<Path>) -> Result<RemoteFile, Error> {
        let path = path.as_ref().as_os_str().as_bytes().to_vec();
        let (tell, opened) = oneshot::channel();
        let sent = self.orders.send(Order::OpenFile(path, tell)).await;
        sent.map_err(|_| engine::vanished(NAME))?;
        let opened = opened.await.map_err(|_| cut_off("the file was open"))?;
        Ok(RemoteFile::new(opened?))
    }
}

/// Names as they come from a host, in no order. Dropping it ends the listing.
pub struct Listing {
    pieces: mpsc::Receiver<Result<Vec<Named>, crate::error::Error>>,
    names: std::vec::IntoIter<Named>,
    is_over: bool,
}

impl fmt::Debug for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listing")
    }
}

impl Listing {
    /// The next name; nothing at the end. An error is the last that comes.
    pub async fn next(&mut self) -> Option<Result<Named, Error>> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }
}

fn cut_off(what: &str) -> Error {
    Error::new(ErrorKind::Cancelled, format!("the connection ended before {what}"))
}

impl Stream for Listing {
    type Item = Result<Named, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(name) = self.names.next() {
                return Poll::Ready(Some(Ok(name)));
            }
            if self.is_over {
                return Poll::Ready(None);
            }
            let piece = std::task::ready!(self.pieces.poll_recv(cx));
            // The last piece has no names; without it the listing was cut off.
            self.is_over = !matches!(&piece, Some(Ok(names)) if !names.is_empty());
            match piece {
                None => return Poll::Ready(Some(Err(cut_off("the listing was complete")))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                Some(Ok(names)) => self.names = names.into_iter(),
            }
        }
    }
}
