//! A server's way in: QUIC on a UDP port and TLS on the TCP port of the same number.
//!
//! Whatever arrives is a handshake under way until it has shown a key and greeted; only then it
//! is a [`Session`]. Everything else is dropped without a word and counted.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use quinn::{Endpoint, Incoming};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::gate::{Gate, Limits};
use super::identity::Identity;
use super::stream::{self, Under};
use super::{RttWatch, Session, Settings, quic, tls};
use crate::error::{Class, Error};

/// Handshakes under way over UDP, and as many over TCP.
const LIMITS: Limits = Limits { all: 1000, one: 64 };

/// With so many handshakes under way over UDP, or so many from one address, a newcomer must first
/// show that it is where it says (a Retry, RFC 9000 section 8.1.2).
const VALIDATE_ABOVE: (usize, usize) = (16, 200);

/// Sessions that wait to be taken.
const WAITING: usize = 64;

/// Tries to find one free port number for UDP and TCP.
const PORT_TRIES: usize = 32;

/// Pause when the system gives no more sockets.
const NO_SOCKETS: Duration = Duration::from_millis(50);

/// What was dropped at the door since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Bytes that are no session's beginning: other programs, or clients that gave up in it.
    pub foreign: u64,
    /// Silent or stalled for longer than a handshake may take.
    pub timed_out: u64,
    /// Made to leave for newcomers.
    pub evicted: u64,
    /// Clients of ours without a common protocol version.
    pub versions: u64,
}

#[derive(Debug, Default)]
struct Counts {
    foreign: AtomicU64,
    timed_out: AtomicU64,
    evicted: AtomicU64,
    versions: AtomicU64,
}

/// Told of each client of ours that was turned away, and why.
type OnRefusal = Box<dyn Fn(SocketAddr, &Error) + Send + Sync>;

/// Told of each address with which a handshake begins.
type OnArrival = Box<dyn Fn(IpAddr) + Send + Sync>;

/// What all tasks of a listener share.
struct Door {
    settings: Settings,
    tls: Arc<rustls::ServerConfig>,
    counts: Counts,
    on_refusal: OnceLock<OnRefusal>,
    on_arrival: OnceLock<OnArrival>,
    sessions: mpsc::Sender<Session>,
}

/// Listens for sessions. Those that were accepted outlive it.
pub struct Listener {
    local: SocketAddr,
    door: Arc<Door>,
    endpoint: Option<Endpoint>,
    sessions: mpsc::Receiver<Session>,
    tasks: Vec<AbortHandle>,
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Listener({})", self.local)
    }
}

impl Listener {
    /// Listens on UDP and TCP at `address`; port 0 takes a number that is free for both, an
    /// unspecified IPv6 address takes IPv4 too. Needs a running tokio runtime.
    ///
    /// # Errors
    /// An address that is not ours, or a port that is taken.
    pub fn bind(
        address: SocketAddr,
        identity: &Identity,
        settings: &Settings,
    ) -> Result<Listener, Error> {
        let (udp, tcp) = bind_both(address).map_err(|error| {
            Error::new(Class::Unreachable, format!("cannot listen on {address}: {error}"))
                .advise("choose another address or port with --listen")
        })?;
        Listener::from_sockets(udp, tcp, identity, settings)
    }

    /// Listens on sockets that were made elsewhere.
    ///
    /// # Errors
    /// The sockets cannot be used.
    pub fn from_sockets(
        udp: UdpSocket,
        tcp: TcpListener,
        identity: &Identity,
        settings: &Settings,
    ) -> Result<Listener, Error> {
        let (sessions, accepted) = mpsc::channel(WAITING);
        let door = Arc::new(Door {
            settings: settings.clone(),
            tls: Arc::new(tls::server(identity, settings.fast_aes)),
            counts: Counts::default(),
            on_refusal: OnceLock::new(),
            on_arrival: OnceLock::new(),
            sessions,
        });
        let unusable =
            |error: io::Error| Error::new(Class::Unreachable, format!("cannot listen: {error}"));
        let local = udp.local_addr().map_err(unusable)?;
        let mut tasks = Vec::new();
        let mut endpoint = None;
        if settings.carriers.quic() {
            let quic = quic::server_endpoint(udp, identity, settings).map_err(unusable)?;
            tasks.push(tokio::spawn(accept_quic(quic.clone(), door.clone())).abort_handle());
            endpoint = Some(quic);
        }
        if settings.carriers.tcp() {
            tcp.set_nonblocking(true).map_err(unusable)?;
            let tcp = tokio::net::TcpListener::from_std(tcp).map_err(unusable)?;
            tasks.push(tokio::spawn(accept_tcp(tcp, door.clone())).abort_handle());
        }
        Ok(Listener { local, door, endpoint, sessions: accepted, tasks })
    }

    /// The address and port of both sockets.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The next session: the client has proven its id and speaks a common version; what it may do
    /// is for the caller to judge. May be cancelled without losing one.
    pub async fn accept(&mut self) -> Session {
        self.sessions.recv().await.expect("this listener holds a sender itself")
    }

    /// What was dropped so far.
    pub fn dropped(&self) -> Dropped {
        let counts = &self.door.counts;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Dropped {
            foreign: read(&counts.foreign),
            timed_out: read(&counts.timed_out),
            evicted: read(&counts.evicted),
            versions: read(&counts.versions),
        }
    }

    /// Calls `tell` for each client without a common version, with its address and what is wrong.
    /// Only the first call counts.
    pub fn on_refusal(&self, tell: impl Fn(SocketAddr, &Error) + Send + Sync + 'static) {
        let _ = self.door.on_refusal.set(Box::new(tell));
    }

    /// Calls `tell` for each address with which a handshake begins: its data may follow at once.
    /// Only the first call counts.
    pub fn on_arrival(&self, tell: impl Fn(IpAddr) + Send + Sync + 'static) {
        let _ = self.door.on_arrival.set(Box::new(tell));
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        if let Some(endpoint) = &self.endpoint {
            endpoint.set_server_config(None);
        }
    }
}

/// A UDP and a TCP socket with one number.
pub(super) fn bind_both(address: SocketAddr) -> io::Result<(UdpSocket, TcpListener)> {
    let mut tries = if address.port() == 0 { PORT_TRIES } else { 1 };
    loop {
        tries -= 1;
        // TCP numbers are scarcer: a closed connection keeps one for a while.
        let tcp = bind(address, Type::STREAM, Protocol::TCP)?;
        let taken = tcp.local_addr()?.as_socket().unwrap_or(address);
        match bind(taken, Type::DGRAM, Protocol::UDP) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries > 0 => {}
            Err(error) => return Err(error),
            Ok(udp) => {
                tcp.listen(LIMITS.all as i32)?;
                return Ok((udp.into(), tcp.into()));
            }
        }
    }
}

fn bind(address: SocketAddr, kind: Type, protocol: Protocol) -> io::Result<Socket> {
    let everywhere = address.is_ipv6() && address.ip().is_unspecified();
    match bind_exactly(address, kind, protocol) {
        // A host without IPv6: its IPv4 is all that was meant. A port that is taken stays so.
        Err(error) if everywhere && error.kind() != io::ErrorKind::AddrInUse => {
            let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()));
            bind_exactly(address, kind, protocol).map_err(|_| error)
        }
        bound => bound,
    }
}

fn bind_exactly(address: SocketAddr, kind: Type, protocol: Protocol) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind, Some(protocol))?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        socket.set_only_v6(false)?;
    }
    if kind == Type::STREAM {
        socket.set_reuse_address(true)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

async fn accept_quic(endpoint: Endpoint, door: Arc<Door>) {
    let gate = Gate::new(LIMITS);
    while let Some(incoming) = endpoint.accept().await {
        let remote = incoming.remote_address();
        let (same, all) = gate.crowd(remote.ip().to_canonical());
        let crowded = same >= VALIDATE_ABOVE.0 || all >= VALIDATE_ABOVE.1;
        if crowded && !incoming.remote_address_validated() {
            // It may try again, from where it is.
            let _ = incoming.retry();
            continue;
        }
        let work = door.clone().quic_arrival(incoming);
        door.admit(&gate, remote, work);
    }
}

async fn accept_tcp(listener: tokio::net::TcpListener, door: Arc<Door>) {
    let gate = Gate::new(LIMITS);
    loop {
        match listener.accept().await {
            Ok((stream, remote)) => {
                let work = door.clone().tcp_arrival(stream, remote);
                door.admit(&gate, remote, work);
            }
            // Out of sockets, or a connection that died in the queue.
            Err(_) => {
                door.counts.evicted.fetch_add(u64::from(gate.evict_oldest()), Ordering::Relaxed);
                sleep(NO_SOCKETS).await;
            }
        }
    }
}

/// What became of something that arrived.
enum Arrival {
    Session(Box<Session>),
    Foreign,
    /// A client of ours that has been dealt with: told that there is no common version, or a
    /// second attempt given up for the first.
    Done,
}

impl Door {
    fn admit(
        self: &Arc<Door>,
        gate: &Gate,
        remote: SocketAddr,
        work: impl Future<Output = Arrival> + Send + 'static,
    ) {
        if let Some(tell) = self.on_arrival.get() {
            tell(remote.ip().to_canonical());
        }
        let (place, left) = gate.enter(remote.ip().to_canonical());
        self.counts.evicted.fetch_add(left as u64, Ordering::Relaxed);
        let door = self.clone();
        tokio::spawn(async move {
            let arrived = tokio::select! {
                arrived = timeout(door.settings.handshake, work) => arrived.ok(),
                // Counted by who made it leave.
                () = place.evicted() => return,
            };
            drop(place);
            door.judge(arrived).await;
        });
    }

    async fn judge(&self, arrived: Option<Arrival>) {
        let count = match arrived {
            // The receiver is gone only when the listener is.
            Some(Arrival::Session(session)) => return drop(self.sessions.send(*session).await),
            Some(Arrival::Done) => return,
            Some(Arrival::Foreign) => &self.counts.foreign,
            None => &self.counts.timed_out,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    async fn quic_arrival(self: Arc<Door>, incoming: Incoming) -> Arrival {
        let Ok(connecting) = incoming.accept() else { return Arrival::Foreign };
        let Ok(connection) = connecting.await else { return Arrival::Foreign };
        match quic::accept_stream(connection, &self.settings).await {
            Ok(session) => self.greeted(session).await,
            Err(_) => Arrival::Done,
        }
    }

    async fn tcp_arrival(self: Arc<Door>, stream: TcpStream, remote: SocketAddr) -> Arrival {
        stream::tune(&stream, &self.settings);
        let local_ip = stream.local_addr().ok().map(|address| address.ip());
        let rtt = RttWatch::once(None);
        let under = Under { remote, local_ip, carrier: "tls", rtt, tcp: None };
        match stream::server(stream, under, &self.tls, &self.settings).await {
            Ok(session) => self.greeted(session).await,
            Err(_) => Arrival::Foreign,
        }
    }

    /// Reads the hello; a client of another version is told so.
    async fn greeted(&self, mut session: Session) -> Arrival {
        let error = match session.reader.greet().await {
            Ok(()) => return Arrival::Session(Box::new(session)),
            Err(error) => error,
        };
        if error.class == Class::Unreachable {
            self.counts.versions.fetch_add(1, Ordering::Relaxed);
            if let Some(tell) = self.on_refusal.get() {
                tell(session.remote, &error);
            }
            // If it does not arrive, the client sees a lost session.
            let _ = session.close(Some(&error)).await;
        }
        Arrival::Done
    }
}
