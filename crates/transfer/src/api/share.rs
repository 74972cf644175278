//! The tree of small values that the clients of a server share.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use longhaul_proto::share::{Answer, Change, Entry, Key, KeyError, Prefix, Update, Wish};
use longhaul_share::Unread;
use longhaul_share::client::Order;
use tokio::sync::{mpsc, oneshot};

use super::batches::Batches;
use super::client::{Client, IntoLocation};
use super::host::{HostRequest, Serving};
use super::queue::stream;
use crate::calls::Calls;
use crate::error::public::{Error, ErrorKind};
use crate::options::ReachOptions;
use crate::progress::Cancel;
use crate::session;
use crate::share::serve_share;

const WAITING: usize = 64;
/// Maximum number of batches of a watch's events that wait for a slow reader.
const UNREAD: usize = 4;
const NAME: &str = "longhaul share";

impl Client {
    /// Describes a connection to the shared tree of the server `host`: `lh://host[:port]`. The path
    /// is ignored. Await the request.
    pub fn share(&self, host: impl IntoLocation) -> ShareRequest {
        let host = HostRequest::new(self, host);
        ShareRequest { host, retry_for: Duration::from_secs(300) }
    }
}

/// A request for a shared tree: await it.
#[derive(Clone, Debug)]
#[must_use = "a shared tree is opened when its request is awaited"]
pub struct ShareRequest {
    host: HostRequest,
    retry_for: Duration,
}

impl ShareRequest {
    /// Sets how the host is reached.
    pub fn reach(self, reach: ReachOptions) -> ShareRequest {
        ShareRequest { host: self.host.reach(reach), ..self }
    }

    /// Sets how long to keep retrying a lost connection. By default 5 minutes.
    pub fn retry_for(self, time: Duration) -> ShareRequest {
        ShareRequest { retry_for: time, ..self }
    }

    /// Ends the attempt, or all calls and watches, when `handle` is cancelled.
    pub fn cancel_with(self, handle: &Cancel) -> ShareRequest {
        ShareRequest { host: self.host.cancel_with(handle), ..self }
    }
}

impl IntoFuture for ShareRequest {
    type Output = Result<Share, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    /// # Errors
    /// The host cannot be reached or is not trusted. A host that does not admit this client refuses
    /// the first call.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let serve = move |calls: Calls<(), Order>| serve_share(calls, self.retry_for);
            let ((), orders, serving) = self.host.open(NAME, WAITING, serve).await?;
            Ok(Share { orders, serving })
        })
    }
}

/// The shared tree of a server. Clones use the same connection. After a lost connection the tree
/// reconnects; calls wait meanwhile. An edit whose answer was lost is not applied twice. It returns
/// its true outcome, or [`Edited::Unknown`] if the server has discarded the outcome. An edit that
/// never reached the server is applied only if its key has no value that somebody else has put
/// meanwhile; otherwise it returns [`Edited::Conflict`].
#[derive(Clone)]
pub struct Share {
    orders: mpsc::Sender<Order>,
    serving: Serving,
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Share")
    }
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedValue {
    /// The bytes, at most 64 KiB.
    pub bytes: Arc<[u8]>,
    /// The version: the number of the key's last change. Each change of the tree has a higher
    /// number than all earlier changes, also across restarts.
    pub version: u64,
}

impl SharedValue {
    fn of(entry: Entry) -> SharedValue {
        SharedValue { bytes: entry.value, version: entry.version }
    }
}

/// The outcome of an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Edited {
    /// The edit is on the server's disk, or only in the server's memory for a
    /// [presence](EditRequest::presence). Contains the key's new version; 0 if there was nothing to
    /// delete.
    Made(u64),
    /// The edit was not applied: the condition does not hold, or somebody else put a value at the
    /// key while the connection was lost. Contains the current value if the key exists and this
    /// client may read it.
    Conflict(Option<SharedValue>),
    /// The outcome is unknown: the connection was lost before the answer arrived, and the server
    /// has discarded the outcome meanwhile. Read the key and decide again.
    Unknown,
}

/// An event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShareEvent {
    /// All values, in the order of their keys. A snapshot is the first event. A later snapshot
    /// replaces changes if the watch has fallen behind or the server has restarted.
    Snapshot(Vec<(String, SharedValue)>),
    /// A key has a new value.
    Put(String, SharedValue),
    /// A key was deleted by the change with this number.
    Deleted(String, u64),
}

fn no_key(error: KeyError) -> Error {
    Error::new(ErrorKind::Usage, error.to_string())
}

impl Share {
    async fn ask<T>(
        &self,
        order: impl FnOnce(oneshot::Sender<Result<T, session::Error>>) -> Order,
    ) -> Result<T, Error> {
        let (sender, receiver) = oneshot::channel();
        self.orders.send(order(sender)).await.map_err(|_| ended())?;
        Ok(receiver.await.map_err(|_| ended())??)
    }

    /// Returns the value of `key`; `None` if the key does not exist.
    ///
    /// # Errors
    /// The key is invalid, this client may not read it, or the connection cannot be restored in
    /// time.
    pub async fn get(&self, key: &str) -> Result<Option<SharedValue>, Error> {
        let key = Key::new(key).map_err(no_key)?;
        Ok(self.ask(|sender| Order::Get(key, sender)).await?.map(SharedValue::of))
    }

    /// Describes a write of a value to `key`: await the request.
    pub fn put(&self, key: &str, value: impl Into<Arc<[u8]>>) -> EditRequest {
        EditRequest::new(self, key, Some(value.into()))
    }

    /// Describes the deletion of `key`: await the request.
    pub fn delete(&self, key: &str) -> EditRequest {
        EditRequest::new(self, key, None)
    }

    /// Completes when this client has no [presence](EditRequest::presence) at `key`; immediately if
    /// the client never had one. After a lost connection, a client loses its presence in two cases:
    /// somebody else has put a value at the key; or the presence has vanished and was put with
    /// [`EditRequest::if_version`]. Returns the key's value at that moment, if known. Changes that
    /// somebody else makes while the connection lasts are not reported here; watch the key for
    /// them.
    ///
    /// # Errors
    /// The key is invalid, the server refuses to restore the presence, or the connection cannot be
    /// restored in time.
    pub async fn presence_lost(&self, key: &str) -> Result<Option<SharedValue>, Error> {
        let key = Key::new(key).map_err(no_key)?;
        Ok(self.ask(|sender| Order::Lost(key, sender)).await?.map(SharedValue::of))
    }

    /// Returns the values of `prefix` and of all keys below it at one moment, in the order of the
    /// keys. An empty prefix is the whole tree.
    ///
    /// # Errors
    /// As [`Share::get`].
    pub async fn snapshot(&self, prefix: &str) -> Result<Vec<(String, SharedValue)>, Error> {
        let mut watch = self.watch(prefix).await?;
        match watch.next().await {
            Some(Ok(ShareEvent::Snapshot(entries))) => Ok(entries),
            Some(Err(error)) => Err(error),
            _ => Err(ended()),
        }
    }

    /// Watches `prefix`: the key and all keys below it. An empty prefix is the whole tree. A
    /// connection carries at most 15 watches at a time.
    ///
    /// # Errors
    /// The prefix is invalid, or the connection has ended. The watch reports all other errors.
    pub async fn watch(&self, prefix: &str) -> Result<ShareWatch, Error> {
        let prefix = Prefix::new(prefix).map_err(no_key)?;
        let (sender, batches) = mpsc::channel(UNREAD);
        self.orders.send(Order::Watch(prefix, sender)).await.map_err(|_| ended())?;
        Ok(ShareWatch::over(Batches::new(batches, events)))
    }

    /// Drops this handle, and waits until the connection is closed. The connection closes when the
    /// last handle or watch is dropped. If a program exits without this call, the server may learn
    /// only by a timeout that the connection has ended.
    pub async fn close(self) {
        drop(self.orders);
        self.serving.ended().await;
    }
}

fn ended() -> Error {
    Error::new(ErrorKind::Unfinished, "the connection to the shared tree has ended")
}

/// A request for an edit: await it.
#[derive(Debug)]
#[must_use = "an edit is made when its request is awaited"]
pub struct EditRequest {
    share: Share,
    wish: Result<Wish, Error>,
}

impl EditRequest {
    fn new(share: &Share, key: &str, value: Option<Arc<[u8]>>) -> EditRequest {
        let wish = |key| Wish { key, value, version: None, presence: false };
        EditRequest { share: share.clone(), wish: Key::new(key).map(wish).map_err(no_key) }
    }

    /// Requires that the key has this version; 0 requires that the key does not exist.
    pub fn if_version(mut self, version: u64) -> EditRequest {
        if let Ok(wish) = &mut self.wish {
            wish.version = Some(version);
        }
        self
    }

    /// Makes the value a presence: the server deletes the value when this client closes its
    /// connection to the tree, or 30 s after the last sign of life of a killed client. A presence
    /// is not stored on disk.
    pub fn presence(mut self) -> EditRequest {
        if let Ok(wish) = &mut self.wish {
            wish.presence = true;
        }
        self
    }
}

impl IntoFuture for EditRequest {
    type Output = Result<Edited, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    /// # Errors
    /// The key is invalid, or the server refuses the edit: this client may not change the key, the
    /// tree is full, or the server cannot store the value. If the connection cannot be restored in
    /// time, this is an error too, and it is unknown whether the edit was made.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let wish = self.wish?;
            Ok(match self.share.ask(|sender| Order::Edit(wish, sender)).await? {
                Answer::Made(version) => Edited::Made(version),
                Answer::Conflict(now) => Edited::Conflict(now.map(SharedValue::of)),
                // A refused edit is an error of `ask`, so `Refused` does not occur here.
                Answer::Unknown | Answer::Refused => Edited::Unknown,
            })
        })
    }
}

type Batch = Result<Unread, session::Error>;

stream! {
    /// The events of a watch, in order and without gaps. An error is the last item. Dropping the
    /// value ends the watch.
    ShareWatch of Result<ShareEvent, Error>, read by Batches<Batch, ShareEvent>
}

/// A watch ends only with an error.
fn events(batch: Option<Batch>) -> Result<Option<Vec<ShareEvent>>, Error> {
    let name = |key: Key| key.as_str().to_owned();
    Ok(Some(match batch.ok_or_else(ended)??.take() {
        Update::Snapshot(entries) => {
            let entries = entries.into_iter();
            let entries = entries.map(|(key, entry)| (name(key), SharedValue::of(entry)));
            vec![ShareEvent::Snapshot(entries.collect())]
        }
        Update::Changes(changes) => {
            let event = |change: Change| match change.value {
                Some(bytes) => ShareEvent::Put(
                    name(change.key),
                    SharedValue { bytes, version: change.version },
                ),
                None => ShareEvent::Deleted(name(change.key), change.version),
            };
            changes.into_iter().map(event).collect()
        }
    }))
}
