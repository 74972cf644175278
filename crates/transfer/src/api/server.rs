//! The server: serves a folder to the ids in its list of clients.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longhaul_net::multicast::Group;
use longhaul_proto::registry;
use longhaul_proto::share::Key;
use longhaul_proto::units::Bytes;
use tokio::sync::{mpsc, oneshot};

use super::client::{Client, IntoLocation};
use super::engine;
use super::identity::Identity;
use super::listen;
use super::queue::{Queue, Queued, Reader, stream};
use super::stream::Target;
use crate::error::public::{Error, ErrorKind};
use crate::options::{Allow, OwnKey, ServeOptions};
use crate::serve::{self, LinkTo, Order, Ready, ServerEvent};
use crate::server_status::ServerStatus;
use crate::session::{PeerId, allow};
use longhaul_stream::channel::RoomLimits;

const EVENTS: usize = 1024;

/// The rights of one id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    read: bool,
    write: bool,
    folder: Option<PathBuf>,
}

impl Access {
    /// Returns the right to read.
    pub fn read_only() -> Access {
        Access { read: true, write: false, folder: None }
    }

    /// Returns the right to write.
    pub fn write_only() -> Access {
        Access { read: false, write: true, folder: None }
    }

    /// Returns the right to read and write.
    pub fn read_write() -> Access {
        Access { read: true, write: true, folder: None }
    }

    /// Restricts the rights to `folder`, which is relative to the root and must exist.
    #[must_use]
    pub fn below(self, folder: impl Into<PathBuf>) -> Access {
        Access { folder: Some(folder.into()), ..self }
    }

    /// Returns the list entry for `id`.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`]: `id` is invalid, or the folder leads out of the root.
    pub fn of(self, id: &str) -> Result<Allow, Error> {
        let usage = |what| Error::new(ErrorKind::Usage, what);
        let id: PeerId = id.parse().map_err(|why| usage(format!("{id} is not an id: {why}")))?;
        let Access { read, write, folder } = self;
        if let Some(folder) = &folder
            && !allow::is_below_root(folder)
        {
            let what = format!("{} is not a folder below the root", folder.display());
            return Err(usage(what).at(folder));
        }
        let (id, others) = (id.to_string(), Vec::new());
        Ok(Allow { id, read, write, subfolder: folder, others, name: None })
    }
}

impl Queued for ServerEvent {
    /// Clients can cause an unlimited number of events, so any event may be dropped.
    fn must_arrive(&self) -> bool {
        false
    }

    fn is_latest_only(&self) -> bool {
        false
    }

    fn lagged(count: u64) -> ServerEvent {
        ServerEvent::Lagged(count)
    }
}

stream! {
    /// The events of a server, as a `Stream`.
    ServerEvents of ServerEvent, read by Reader<ServerEvent>
}

/// Builds a [`Server`].
#[derive(Debug)]
#[must_use = "a server does nothing before it is started"]
pub struct ServerBuilder {
    pub(super) options: ServeOptions,
    pub(super) error: Option<Error>,
    listen: Option<String>,
    links: Vec<LinkTo>,
}

impl ServerBuilder {
    /// Sets the folder to serve; clients reach nothing outside it. Required, except with
    /// [`ServerBuilder::rooms_only`].
    pub fn root(mut self, folder: impl Into<PathBuf>) -> ServerBuilder {
        self.options.root = folder.into();
        self
    }

    /// Grants `access` to `id`.
    pub fn allow(mut self, id: impl AsRef<str>, access: Access) -> ServerBuilder {
        match access.of(id.as_ref()) {
            Ok(entry) => self.options.allow.push(entry),
            Err(error) => self.error = self.error.or(Some(error)),
        }
        self
    }

    /// Adds all entries of `list`.
    pub fn allow_all(mut self, list: impl IntoIterator<Item = Allow>) -> ServerBuilder {
        self.options.allow.extend(list);
        self
    }

    /// Sets the address and control port (UDP and TCP), in the form that [`listen::parse`] reads;
    /// with port 0 the system chooses the port. By default `[::]:7717`.
    pub fn listen(mut self, address: impl ToString) -> ServerBuilder {
        self.listen = Some(address.to_string());
        self
    }

    /// Sets the UDP port of all data; `None` for the port after the control port.
    pub fn data_port(mut self, port: Option<u16>) -> ServerBuilder {
        self.options.data_port = port;
        self
    }

    /// Refuses all writes of files, regardless of the list.
    pub fn read_only(mut self, on: bool) -> ServerBuilder {
        self.options.read_only = on;
        self
    }

    /// Ends the server after one transfer. A transfer that lost its client does not count, because
    /// the client may resume it.
    pub fn once(mut self, on: bool) -> ServerBuilder {
        self.options.once = on;
        self
    }

    /// Allows unencrypted data for clients that ask for it.
    pub fn allow_plain(mut self, on: bool) -> ServerBuilder {
        self.options.allow_plain = on;
        self
    }

    /// Limits the memory that all transfers (incomplete data, lists of files) and the messages in
    /// rooms use together. By default 512 MiB.
    pub fn memory(mut self, memory: Bytes) -> ServerBuilder {
        self.options.memory = memory;
        self
    }

    /// Offers a tree of small values that clients share (see [`Share`](super::Share)), stored in
    /// `file`, which is created if missing. The list of clients grants rights by `share=`. By
    /// default there is no tree.
    pub fn share(mut self, file: impl Into<PathBuf>) -> ServerBuilder {
        self.options.share = Some(file.into());
        self
    }

    /// Offers only channels, streams, remote procedure calls and the status. Such a server needs no
    /// root, and has no shared tree.
    pub fn rooms_only(mut self) -> ServerBuilder {
        self.options.rooms_only = true;
        self
    }

    /// Sets the limits of rooms, clients and kept messages.
    pub fn room_limits(mut self, limits: RoomLimits) -> ServerBuilder {
        self.options.rooms = limits;
        self
    }

    /// Links a room to the room of the same name at another server, `lh://host[:port]/room`: each
    /// message of one room is also sent to the other. `client` has the identity of this server, and
    /// the servers to trust. The link lasts as long as this server runs.
    pub fn link(mut self, client: &Client, room: impl IntoLocation) -> ServerBuilder {
        match Target::new(client, room.into_location()).link() {
            Ok(link) => self.links.push(link),
            Err(error) => self.error = self.error.or(Some(error)),
        }
        self
    }

    /// Bridges a room to a multicast group of this server's network, such as `239.1.2.3:5000` or
    /// `[ff15::7]:5000`. Append `%eth0` to choose an interface. The server sends the messages of
    /// the room to the group, and the messages of the group to the room. Datagrams pass at most
    /// `hops - 1` routers.
    pub fn multicast(mut self, room: &str, group: &str, hops: u8) -> ServerBuilder {
        let usage = |what: String| Error::new(ErrorKind::Usage, what);
        let room = Key::new(room).map_err(|error| usage(format!("{room} is not a room: {error}")));
        match (room, group.parse::<Group>().map_err(usage)) {
            (Ok(room), Ok(group)) => self.options.groups.push((room, Group { hops, ..group })),
            (Err(error), _) | (_, Err(error)) => self.error = self.error.or(Some(error)),
        }
        self
    }

    /// Opens the ports and serves on separate threads. The server ends after
    /// [`Server::shutdown`], or when the handle is dropped. With [`ServerBuilder::once`] it also
    /// ends after a transfer.
    ///
    /// # Errors
    /// An option is invalid, a port is in use, or a file or folder of the options cannot be used.
    pub async fn start(self) -> Result<Server, Error> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let (mut options, links) = (self.options, self.links);
        if let Some(listen) = &self.listen {
            options.listen = listen::parse(listen)?;
        }
        if options.root.as_os_str().is_empty() && !options.rooms_only {
            return Err(Error::new(ErrorKind::Usage, "a server needs a root folder"));
        }
        let queue = Queue::new(EVENTS);
        let (orders, taken) = mpsc::unbounded_channel();
        let (ready_sender, ready) = oneshot::channel();
        let events = queue.clone();
        let mut done = engine::start("longhaul serve", move || {
            let queue = events.clone();
            let sender = Arc::new(move |event| queue.push(event));
            let is_ready = move |ready| drop(ready_sender.send(ready));
            let served = serve::serve(registry::find, options, links, is_ready, sender, taken);
            events.close();
            served.map_err(Error::from)
        })?;
        match ready.await {
            Ok(ready) => Ok(Server { ready, queue, orders, done: Some(done), result: Ok(()) }),
            Err(_) => {
                let ended = (&mut done).await.unwrap_or_else(|_| Err(engine::vanished("a server")));
                Err(ended.err().unwrap_or_else(|| engine::vanished("a server")))
            }
        }
    }
}

/// A running server. Dropping the handle ends it without waiting: sessions are closed, and their
/// clients can resume later.
pub struct Server {
    ready: Ready,
    queue: Queue<ServerEvent>,
    orders: mpsc::UnboundedSender<Order>,
    done: Option<oneshot::Receiver<Result<(), Error>>>,
    result: Result<(), Error>,
}

impl Server {
    /// Returns a builder for a server with this identity.
    pub fn builder(identity: Identity) -> ServerBuilder {
        let options = ServeOptions { key: OwnKey::Given(identity.0), ..ServeOptions::default() };
        ServerBuilder { options, error: None, listen: None, links: Vec::new() }
    }

    /// Returns the control port's address.
    pub fn address(&self) -> SocketAddr {
        self.ready.address
    }

    /// Returns the UDP port of all data.
    pub fn data_port(&self) -> u16 {
        self.ready.data_port
    }

    /// Returns the server's id, as `lh1:…`.
    pub fn id(&self) -> &str {
        &self.ready.id
    }

    /// Returns the server's events, from the first unread one; a second call ends the first stream.
    pub fn events(&self) -> ServerEvents {
        ServerEvents::over(self.queue.reader())
    }

    /// Returns a handle that controls this server from any thread.
    pub fn control(&self) -> ServerControl {
        ServerControl { orders: self.orders.clone() }
    }

    /// Returns the server's current status; see [`ServerControl::status`].
    ///
    /// # Errors
    /// As [`ServerControl::status`].
    pub async fn status(&self) -> Result<ServerStatus, Error> {
        self.control().status().await
    }

    /// Replaces the list of clients; see [`ServerControl::set_access`].
    ///
    /// # Errors
    /// As [`ServerControl::set_access`].
    pub async fn set_access(&self, list: impl IntoIterator<Item = Allow>) -> Result<(), Error> {
        self.control().set_access(list).await
    }

    /// Refuses new requests, and waits up to `grace` for running requests to end. Then closes all
    /// sessions with the reason that the server is shutting down; clients retry.
    pub async fn shutdown(&mut self, grace: Duration) {
        self.control().shutdown(grace);
        let _ = self.ended().await;
    }

    /// Waits until the server has ended.
    ///
    /// # Errors
    /// The failure that ended the server; with [`ServerBuilder::once`], the failure of the
    /// transfer.
    pub async fn ended(&mut self) -> Result<(), Error> {
        if let Some(done) = &mut self.done {
            self.result = done.await.unwrap_or_else(|_| Err(engine::vanished("a server")));
            self.done = None;
        }
        self.result.clone()
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("ready", &self.ready).finish_non_exhaustive()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.orders.send(Order::Shutdown(Duration::ZERO));
    }
}

/// A handle that controls a server from any thread. Clones control the same server.
#[derive(Clone)]
pub struct ServerControl {
    orders: mpsc::UnboundedSender<Order>,
}

impl ServerControl {
    /// Replaces the list of clients. A running request, such as a transfer, ends if its client has
    /// lost the right to it, or now has a different folder. The client gets this reason.
    ///
    /// # Errors
    /// A folder of the list does not exist, or the list contains an id twice (the old list stays);
    /// or the server has ended.
    pub async fn set_access(&self, list: impl IntoIterator<Item = Allow>) -> Result<(), Error> {
        let (sender, receiver) = oneshot::channel();
        let _ = self.orders.send(Order::Allow(list.into_iter().collect(), sender));
        let ended = |_| Error::new(ErrorKind::Unreachable, "the server has ended");
        Ok(receiver.await.map_err(ended)??)
    }

    /// Returns the server's current status.
    ///
    /// # Errors
    /// The server has ended.
    pub async fn status(&self) -> Result<ServerStatus, Error> {
        let (sender, receiver) = oneshot::channel();
        let _ = self.orders.send(Order::Status(sender));
        receiver.await.map_err(|_| Error::new(ErrorKind::Unreachable, "the server has ended"))
    }

    /// Starts a shutdown like [`Server::shutdown`], without waiting for its end.
    pub fn shutdown(&self, grace: Duration) {
        // The server may have ended already.
        let _ = self.orders.send(Order::Shutdown(grace));
    }
}

impl fmt::Debug for ServerControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerControl")
    }
}
