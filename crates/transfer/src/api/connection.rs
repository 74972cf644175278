//! A connection to one host that serves several calls at the same time.

use std::fmt;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::batches::Batches;
use super::client::{Client, IntoLocation};
use super::engine;
use super::host::{HostRequest, Serving};
use super::queue::stream;
use super::remote_file::{RangeReads, RemoteFile, requested};
use crate::calls::Peer;
use crate::error::public::{Error, ErrorKind};
use crate::file::{Opening, Read};
use crate::list::{Named, Order, serve_orders};
use crate::options::ReachOptions;
use crate::progress::Cancel;
use crate::server_status::ServerStatus;

/// Maximum number of calls that wait for the engine (the thread that runs the calls), and of
/// batches of names that wait for a reader.
const WAITING: usize = 4;

const NAME: &str = "longhaul connection";

impl Client {
    /// Describes a connection to `host`: `lh://host[:port]`, or `host:` over ssh. The path is
    /// ignored. Await the request.
    pub fn connect(&self, host: impl IntoLocation) -> ConnectRequest {
        ConnectRequest(HostRequest::new(self, host))
    }
}

/// A request for a connection: await it.
#[derive(Clone, Debug)]
#[must_use = "a connection is opened when its request is awaited"]
pub struct ConnectRequest(HostRequest);

impl ConnectRequest {
    /// Sets how the host is reached.
    pub fn reach(self, reach: ReachOptions) -> ConnectRequest {
        ConnectRequest(self.0.reach(reach))
    }

    /// Ends the attempt, or the connection and all its calls, when `handle` is cancelled.
    pub fn cancel_with(self, handle: &Cancel) -> ConnectRequest {
        ConnectRequest(self.0.cancel_with(handle))
    }
}

impl IntoFuture for ConnectRequest {
    type Output = Result<Connection, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    /// # Errors
    /// The host cannot be reached or is not trusted. A host that does not admit this client refuses
    /// the first call.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (peer, orders, serving) = self.0.open(NAME, WAITING, serve_orders).await?;
            Ok(Connection { orders, peer, serving })
        })
    }
}

/// A connection to a host. Its calls are independent of each other. The connection closes when all
/// of its handles and calls are dropped. A server closes a connection that had no call for 30 to
/// 60 s; the next call then fails with [`ErrorKind::Unfinished`](super::ErrorKind::Unfinished), and
/// the caller has to connect again.
#[derive(Clone)]
pub struct Connection {
    orders: mpsc::Sender<Order>,
    peer: Peer,
    serving: Serving,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({} by {})", self.peer.id, self.peer.carrier)
    }
}

impl Connection {
    /// Returns the authenticated id of the other host, as `lh1:…`.
    pub fn peer(&self) -> &str {
        &self.peer.id
    }

    /// Returns the carrier of the connection: `quic`, `tls` or `ssh`.
    pub fn carrier(&self) -> &str {
        self.peer.carrier
    }

    /// Lists the names in a folder, or the one file that `path` names. `path` is relative to the
    /// root of the server; over ssh it is relative to the home folder.
    ///
    /// # Errors
    /// The connection was cancelled. All other errors, such as a lost connection or a refusal of
    /// the host, are returned by [`Listing::next`].
    pub async fn list(&self, path: impl AsRef<Path>) -> Result<Listing, Error> {
        let path = path.as_ref().as_os_str().as_bytes().to_vec();
        let (tell, batches) = mpsc::channel(WAITING);
        let sent = self.orders.send(Order::List(path, tell)).await;
        sent.map_err(|_| engine::vanished(NAME))?;
        Ok(Listing::over(Batches::new(batches, names)))
    }

    /// Returns a watch that reports the server's status now, and then at intervals of `every`
    /// (100 ms to 10 s). Needs the right `status`.
    ///
    /// # Errors
    /// The connection was cancelled. All other errors, such as a lost connection or a refusal of
    /// the server, are returned by [`StatusWatch::next`].
    pub async fn watch_status(&self, every: Duration) -> Result<StatusWatch, Error> {
        let (tell, batches) = mpsc::channel(1);
        let sent = self.orders.send(Order::Status(every, tell)).await;
        sent.map_err(|_| engine::vanished(NAME))?;
        Ok(StatusWatch::over(Batches::new(batches, statuses)))
    }

    /// Opens the file at `path` for reads by range. The path is interpreted as by
    /// [`Connection::list`].
    ///
    /// # Errors
    /// `path` is not a regular file or may not be read, too many files are open at the host, or the
    /// connection is lost.
    pub async fn open_file(&self, path: impl AsRef<Path>) -> Result<RemoteFile, Error> {
        self.open_by(path.as_ref(), false, None).await
    }

    /// Opens the file at `path`, and reads ranges of it as [`RemoteFile::read_ranges`] does. One
    /// message requests the file and the ranges, so the first bytes arrive a round trip earlier
    /// than after [`Connection::open_file`].
    ///
    /// # Errors
    /// As [`Connection::open_file`]; [`ErrorKind::Usage`]: a range ends before it begins.
    pub async fn read_file(
        &self,
        path: impl AsRef<Path>,
        ranges: impl IntoIterator<Item = Range<u64>>,
    ) -> Result<(RemoteFile, RangeReads), Error> {
        // The size is not known yet.
        let (mut reads, read) = requested(ranges, u64::MAX)?;
        let file = self.open_by(path.as_ref(), false, Some(read)).await?;
        reads.end_at(file.len());
        Ok((file, reads))
    }

    /// Opens the file at `path` for reads and for changes in place, and creates it if it is
    /// missing. The client needs the right to read and the right to write. As long as the file is
    /// open, other requests to open it for changes fail, if the server's file system has locks. A
    /// copy to the same name replaces the file; calls on the replaced file then fail.
    ///
    /// # Errors
    /// As [`Connection::open_file`]; or the file is locked, or must not be changed in place.
    pub async fn open_file_to_write(&self, path: impl AsRef<Path>) -> Result<RemoteFile, Error> {
        self.open_by(path.as_ref(), true, None).await
    }

    async fn open_by(
        &self,
        path: &Path,
        edit: bool,
        early: Option<Read>,
    ) -> Result<RemoteFile, Error> {
        let path = path.as_os_str().as_bytes().to_vec();
        let what = Opening { path, edit, early };
        let (tell, opened) = oneshot::channel();
        let sent = self.orders.send(Order::OpenFile(what, tell)).await;
        sent.map_err(|_| engine::vanished(NAME))?;
        let opened = opened.await.map_err(|_| cut_off("the file was open"))?;
        Ok(RemoteFile::new(opened?, edit))
    }

    /// Drops this handle, and waits until the connection is closed. The connection is closed when
    /// all handles and their calls are dropped. If a program exits without this call, the server
    /// may learn only by a timeout that the connection has ended.
    pub async fn close(self) {
        drop(self.orders);
        self.serving.ended().await;
    }
}

type Batch = Result<Vec<Named>, crate::error::Error>;

stream! {
    /// The names that a host lists, in no particular order. An error is the last item. Dropping the
    /// value ends the listing.
    Listing of Result<Named, Error>, read by Batches<Batch, Named>
}

type StatusBatch = Result<Vec<ServerStatus>, crate::error::Error>;

stream! {
    /// The status reports of a server. An error is the last item. Dropping the watch ends it.
    StatusWatch of Result<ServerStatus, Error>, read by Batches<StatusBatch, ServerStatus>
}

fn statuses(batch: Option<StatusBatch>) -> Result<Option<Vec<ServerStatus>>, Error> {
    Ok(Some(batch.ok_or_else(|| cut_off("the watch was over"))??))
}

/// The last batch is empty.
fn names(batch: Option<Batch>) -> Result<Option<Vec<Named>>, Error> {
    let names = batch.ok_or_else(|| cut_off("the listing was complete"))??;
    Ok((!names.is_empty()).then_some(names))
}

fn cut_off(what: &str) -> Error {
    Error::new(ErrorKind::Cancelled, format!("the connection ended before {what}"))
}
