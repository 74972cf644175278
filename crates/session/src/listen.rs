//! Accepts sessions at a server: QUIC on a UDP port and TLS on the TCP port of the same number.
//!
//! A client becomes a [`Session`] once it has shown a key, is admitted and has sent its hello (its
//! first message). The listener refuses a client without rights before it reads the hello. A
//! network (an IPv4 address, or an IPv6 /64) with many refused clients or unfinished handshakes has
//! to pause. Connections of other programs are dropped silently and counted.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use longhaul_net::clock;
use longhaul_net::network::Network;
use quinn::{Endpoint, Incoming};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::charges::Charges;
use super::connection::{Connection, Idle};
use super::gate::{Gate, Place};
use super::id::PeerId;
use super::identity::Identity;
use super::keeper::SHUTTING_DOWN;
use super::lanes::Meeting;
use super::{Session, Settings, quic, stream, tls};
use crate::{Error, Kind};
use longhaul_text::CallOption;

/// Maximum number of connections in the kernel's queue.
const BACKLOG: i32 = 1024;

/// Limit on refusals in progress. Beyond it, one refusal ends before its client has received the
/// reason: the oldest refusal of the network that has the most refusals.
const STRANGERS: usize = 32;

/// Handshakes in progress over UDP: of one network, and in total. From either number on, a new
/// client must first validate its address (a Retry, RFC 9000 section 8.1.2).
const VALIDATE_ABOVE: (usize, usize) = (16, 200);

/// Interval at which a connection is checked for open streams. If two checks in a row find none,
/// the connection is closed.
const IDLE: Duration = Duration::from_secs(30);

/// Maximum number of accepted sessions that wait for [`Listener::accept`].
const WAITING: usize = 64;

/// Attempts to find one free port number for UDP and TCP.
const PORT_TRIES: usize = 32;

/// How long to keep the closed QUIC connections of a server that shuts down: to send the last
/// packets, and to repeat one that was lost over a path with a short round-trip time.
const FAREWELL: Duration = Duration::from_millis(100);

/// Pause when the system gives no more sockets.
const NO_SOCKETS: Duration = Duration::from_millis(50);

/// Dropped connections since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Connections of other programs, or of clients that gave up.
    pub foreign: u64,
    /// Clients whose handshake took too long.
    pub timed_out: u64,
    /// Clients that were dropped to make room for new clients.
    pub evicted: u64,
    /// Clients with an invalid first message, or without a common protocol version.
    pub versions: u64,
    /// Sessions that longhaul clients without any right here tried to open.
    pub unauthorised: u64,
    /// Handshakes of networks that have to pause.
    pub barred: u64,
}

#[derive(Debug, Default)]
struct Counts {
    foreign: AtomicU64,
    timed_out: AtomicU64,
    evicted: AtomicU64,
    versions: AtomicU64,
    unauthorised: AtomicU64,
    barred: AtomicU64,
}

type OnRefusal = Box<dyn Fn(SocketAddr, &Error) + Send + Sync>;

type OnArrival = Box<dyn Fn(IpAddr) + Send + Sync>;

/// Decides whether an id has any right.
type Admission = Box<dyn Fn(&PeerId) -> Result<(), Error> + Send + Sync>;

/// The state that the tasks of a listener share.
struct Door {
    settings: Settings,
    tls: Arc<rustls::ServerConfig>,
    counts: Counts,
    on_refusal: OnceLock<OnRefusal>,
    on_arrival: OnceLock<OnArrival>,
    admission: OnceLock<Admission>,
    holds: watch::Sender<bool>,
    charges: Mutex<Charges>,
    strangers: Gate,
    meeting: Arc<Meeting>,
    sessions: mpsc::Sender<Session>,
}

/// Listens for sessions. Accepted sessions outlive the listener.
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
    /// Listens on UDP and TCP at `address`. Port 0 chooses a number that is free for both. An
    /// unspecified IPv6 address includes IPv4. Needs a running tokio runtime.
    ///
    /// # Errors
    /// The address is not of this host, or the port is in use or not permitted.
    pub fn bind(
        address: SocketAddr,
        identity: &Identity,
        settings: &Settings,
    ) -> Result<Listener, Error> {
        let (udp, tcp) = bind_both(address).map_err(|error| {
            Error::new(Kind::Unreachable, format!("cannot listen on {address}: {error}"))
                .advise(format!("choose another address or port as {}", CallOption::Listen))
        })?;
        Listener::from_sockets(udp, tcp, identity, settings)
    }

    /// Listens on existing sockets.
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
        let door = Arc::new(Door::new(identity, settings, sessions));
        let unusable =
            |error: io::Error| Error::new(Kind::Unreachable, format!("cannot listen: {error}"));
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

    /// Returns the address and port of both sockets.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Returns the next session that is admitted and has a common protocol version. The caller
    /// checks which rights the client has. Cancel-safe.
    pub async fn accept(&mut self) -> Session {
        self.sessions.recv().await.expect("this listener holds a sender itself")
    }

    /// Reads the hello of a client that arrived over another carrier (ssh). [`Listener::accept`]
    /// returns the client's additional streams.
    pub(super) async fn carried(&self, mut session: Session) -> Result<Session, Error> {
        let greeted = timeout(self.door.settings.handshake, session.reader.greet()).await;
        let late = || Error::new(Kind::Lost, "no first message arrived in time");
        match greeted.unwrap_or_else(|_| Err(late())) {
            Ok(()) => {}
            Err(error) => {
                let _ = session.close(Some(error.clone())).await;
                return Err(error);
            }
        }
        match timeout(self.door.settings.handshake, self.door.clone().carried(session)).await {
            Ok(Arrival::Session(session)) => Ok(*session),
            Ok(_) => Err(Error::new(Kind::Lost, "the client opened no first stream")),
            Err(_) => Err(late()),
        }
    }

    /// Closes all QUIC connections that this listener accepted, with the reason that this server is
    /// shutting down. Waits at most 100 ms until the packets are sent. The system closes
    /// connections over TCP when they are dropped.
    pub async fn shut_down(&self) {
        if let Some(endpoint) = &self.endpoint {
            endpoint.close(SHUTTING_DOWN, b"");
            let _ = timeout(FAREWELL, endpoint.wait_idle()).await;
        }
    }

    /// Returns the counts of dropped connections.
    pub fn dropped(&self) -> Dropped {
        let counts = &self.door.counts;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Dropped {
            foreign: read(&counts.foreign),
            timed_out: read(&counts.timed_out),
            evicted: read(&counts.evicted),
            versions: read(&counts.versions),
            unauthorised: read(&counts.unauthorised),
            barred: read(&counts.barred),
        }
    }

    /// From now on admits only ids for which `judge` returns `Ok`; others get its error. Only the
    /// first call counts.
    pub fn admit_by(&self, judge: impl Fn(&PeerId) -> Result<(), Error> + Send + Sync + 'static) {
        let _ = self.door.admission.set(Box::new(judge));
    }

    /// With `true`, new clients wait for a call with `false`, at most until their timeout. For a
    /// server that does not know yet which ids to admit.
    pub(crate) fn hold(&self, holds: bool) {
        self.door.holds.send_replace(holds);
    }

    /// Calls `tell` with the address of each client that is not admitted or has no common version,
    /// and once more if a refusal makes the client's network pause. Only the first call counts.
    pub fn on_refusal(&self, tell: impl Fn(SocketAddr, &Error) + Send + Sync + 'static) {
        let _ = self.door.on_refusal.set(Box::new(tell));
    }

    /// Calls `tell` for each address that starts a handshake. Only the first call counts.
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

/// Opens UDP and TCP sockets with the same port number.
pub(super) fn bind_both(address: SocketAddr) -> io::Result<(UdpSocket, TcpListener)> {
    // TCP chooses the number, because a closed connection keeps its TCP port for a while.
    let (tcp, udp) = one_number(
        address,
        || {
            let tcp = bind(address, |at| bind_exactly(at, Type::STREAM, Protocol::TCP))?;
            let taken = tcp.local_addr()?.as_socket().unwrap_or(address);
            Ok((tcp, taken))
        },
        |taken| bind(taken, |at| bind_exactly(at, Type::DGRAM, Protocol::UDP)),
    )?;
    tcp.listen(BACKLOG)?;
    Ok((udp.into(), tcp.into()))
}

/// Binds the same port number with `first` and `second`. For port 0, tries other numbers if
/// `second` finds the number in use.
fn one_number<T, U>(
    address: SocketAddr,
    mut first: impl FnMut() -> io::Result<(T, SocketAddr)>,
    mut second: impl FnMut(SocketAddr) -> io::Result<U>,
) -> io::Result<(T, U)> {
    let mut tries = if address.port() == 0 { PORT_TRIES } else { 1 };
    loop {
        tries -= 1;
        let (one, taken) = first()?;
        match second(taken) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries > 0 => {}
            other => return Ok((one, other?)),
        }
    }
}

/// Binds `address` with `exactly`; if that fails, unspecified IPv4 instead of unspecified IPv6.
fn bind<T>(address: SocketAddr, exactly: impl Fn(SocketAddr) -> io::Result<T>) -> io::Result<T> {
    let everywhere = address.is_ipv6() && address.ip().is_unspecified();
    match exactly(address) {
        // On a host without IPv6 use IPv4 only. A port in use remains an error.
        Err(error) if everywhere && error.kind() != io::ErrorKind::AddrInUse => {
            exactly((Ipv4Addr::UNSPECIFIED, address.port()).into()).map_err(|_| error)
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

/// Returns whether a client must validate its address. Its network has `same` handshakes in
/// progress, all networks `all`.
fn must_validate((same, all): (usize, usize), is_validated: bool) -> bool {
    !is_validated && (same >= VALIDATE_ABOVE.0 || all >= VALIDATE_ABOVE.1)
}

async fn accept_quic(endpoint: Endpoint, door: Arc<Door>) {
    let gate = Gate::new(door.settings.waiting);
    while let Some(incoming) = endpoint.accept().await {
        let remote = incoming.remote_address();
        let network = Network::of(remote.ip());
        if door.is_barred(network) {
            // A client retries by itself; a refusal would end its attempt.
            incoming.ignore();
            continue;
        }
        let is_validated = incoming.remote_address_validated();
        if must_validate(gate.crowd(network), is_validated) {
            let _ = incoming.retry();
            continue;
        }
        let work = door.clone().quic_arrival(incoming);
        door.begin(&gate, remote, is_validated, work);
    }
}

async fn accept_tcp(listener: tokio::net::TcpListener, door: Arc<Door>) {
    let gate = Gate::new(door.settings.waiting);
    loop {
        match listener.accept().await {
            Ok((_, remote)) if door.is_barred(Network::of(remote.ip())) => {}
            Ok((stream, remote)) => {
                let work = door.clone().tcp_arrival(stream, remote);
                door.begin(&gate, remote, true, work);
            }
            // No sockets left, or a connection that was closed in the queue.
            Err(_) => {
                door.counts.evicted.fetch_add(u64::from(gate.evict()), Ordering::Relaxed);
                sleep(NO_SOCKETS).await;
            }
        }
    }
}

enum Arrival {
    Session(Box<Session>),
    Foreign,
    /// A connection of a longhaul client that needs no further work.
    Done,
}

/// Admits or refuses a session without a listener; `None` if refused or without a common version.
pub async fn judge_alone(
    session: Session,
    judge: impl Fn(&PeerId) -> Result<(), Error> + Send + Sync + 'static,
) -> Option<Session> {
    let (sessions, _) = mpsc::channel(1);
    let door = Door::new(&Identity::generate(), &Settings::default(), sessions);
    let _ = door.admission.set(Box::new(judge));
    match Arc::new(door).greeted(session).await {
        Arrival::Session(session) => Some(*session),
        Arrival::Foreign | Arrival::Done => None,
    }
}

impl Door {
    fn new(identity: &Identity, settings: &Settings, sessions: mpsc::Sender<Session>) -> Door {
        Door {
            settings: settings.clone(),
            tls: Arc::new(tls::server(identity, settings.fast_aes)),
            counts: Counts::default(),
            on_refusal: OnceLock::new(),
            on_arrival: OnceLock::new(),
            admission: OnceLock::new(),
            holds: watch::Sender::new(false),
            charges: Mutex::new(Charges::new()),
            strangers: Gate::new(STRANGERS),
            meeting: Arc::default(),
            sessions,
        }
    }

    fn begin(
        self: &Arc<Door>,
        gate: &Gate,
        remote: SocketAddr,
        is_validated: bool,
        work: impl Future<Output = Arrival> + Send + 'static,
    ) {
        if let Some(tell) = self.on_arrival.get() {
            tell(remote.ip().to_canonical());
        }
        let (place, left) = gate.enter(Network::of(remote.ip()));
        self.counts.evicted.fetch_add(left as u64, Ordering::Relaxed);
        let door = self.clone();
        tokio::spawn(async move {
            let arrived = tokio::select! {
                arrived = timeout(door.settings.handshake, work) => arrived.ok(),
                () = place.evicted() => return,
            };
            // A packet with a forged address must not make the network of that address pause.
            let charged = is_validated.then(|| Network::of(remote.ip()));
            door.end(arrived, place, charged).await;
        });
    }

    /// Passes on a session. Counts an early end of a handshake, and charges it to `charged`.
    async fn end(&self, arrived: Option<Arrival>, place: Place, charged: Option<Network>) {
        let count = match arrived {
            Some(Arrival::Session(mut session)) => {
                // Keep the place until the first request.
                session.place = Some(place);
                // The send fails only without a listener.
                return drop(self.sessions.send(*session).await);
            }
            Some(Arrival::Done) => return,
            Some(Arrival::Foreign) => &self.counts.foreign,
            None => &self.counts.timed_out,
        };
        count.fetch_add(1, Ordering::Relaxed);
        if let Some(network) = charged {
            self.charges().add_stopped(clock::now(), network);
        }
    }

    fn charges(&self) -> MutexGuard<'_, Charges> {
        self.charges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a handshake of `network` must be dropped, and counts the dropped ones.
    fn is_barred(&self, network: Network) -> bool {
        let is_barred = self.charges().is_barred(clock::now(), network);
        self.counts.barred.fetch_add(is_barred.into(), Ordering::Relaxed);
        is_barred
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
        match stream::accept(stream, remote, &self.meeting, &self.tls, &self.settings).await {
            Ok(Some(session)) => self.greeted(session).await,
            Ok(None) => Arrival::Done,
            Err(_) => Arrival::Foreign,
        }
    }

    /// Judges a client that has proven its id, and reads its hello. Informs a refused client.
    async fn greeted(self: &Arc<Door>, mut session: Session) -> Arrival {
        let network = Network::of(session.remote.ip());
        let _ = self.holds.subscribe().wait_for(|holds| !holds).await;
        if let Some(Err(error)) = self.admission.get().map(|judge| judge(&session.peer)) {
            self.turn_away(session, network, error).await;
            return Arrival::Done;
        }
        // Other clients must not make the network of an admitted client pause.
        self.charges().forgive(network);
        let error = match session.reader.greet().await {
            Ok(()) => return self.clone().carried(session).await,
            Err(error) => error,
        };
        if error.kind == Kind::Unreachable {
            self.counts.versions.fetch_add(1, Ordering::Relaxed);
            self.report_refusal(session.remote, &error);
            let _ = session.close(Some(error)).await;
        }
        Arrival::Done
    }

    /// Returns a client's session, or the session of its first stream.
    async fn carried(self: Arc<Door>, session: Session) -> Arrival {
        if !session.reader.theirs().is_some_and(|hello| hello.streams) {
            return Arrival::Session(Box::new(session));
        }
        let session = match session.keeper() {
            Some(keeper) => {
                quic::carry_many(keeper);
                session
            }
            None => {
                let Ok(mut session) = stream::multiplexed(session).await else {
                    return Arrival::Done;
                };
                if session.reader.greet().await.is_err() {
                    return Arrival::Done;
                }
                session
            }
        };
        if let Some(connection) = session.connection() {
            tokio::spawn(self.further(connection, IDLE));
        }
        Arrival::Session(Box::new(session))
    }

    /// Accepts the additional streams of a connection until it ends, or two checks in a row find it
    /// idle.
    async fn further(self: Arc<Door>, connection: Connection, interval: Duration) {
        let mut idle = Idle::default();
        loop {
            let session = match timeout(interval, connection.accept()).await {
                Ok(Some(session)) => session,
                Ok(None) => return,
                Err(_) if idle.is_over(connection.is_idle()) => return,
                Err(_) => continue,
            };
            idle = Idle::default();
            tokio::spawn(self.clone().further_stream(session));
        }
    }

    /// Judges a client again (its rights may have changed), then reads the stream's hello.
    async fn further_stream(self: Arc<Door>, mut session: Session) {
        if let Some(Err(error)) = self.admission.get().map(|judge| judge(&session.peer)) {
            self.count_unauthorised(&session, &error);
            let _ = session.close(Some(error)).await;
            return;
        }
        if let Ok(Ok(())) = timeout(self.settings.handshake, session.reader.greet()).await {
            let _ = self.sessions.send(session).await;
        }
    }

    fn count_unauthorised(&self, session: &Session, error: &Error) {
        self.counts.unauthorised.fetch_add(1, Ordering::Relaxed);
        self.report_refusal(session.remote, error);
    }

    async fn turn_away(&self, session: Session, network: Network, error: Error) {
        self.count_unauthorised(&session, &error);
        let pauses = self.charges().add_unauthorised(clock::now(), network);
        if let Some(pause) = pauses {
            let what = format!("too many clients without rights from {network}");
            let error = Error::new(Kind::Unreachable, what)
                .advise(format!("its new clients wait up to {:.0} s", pause.as_secs_f64()));
            self.report_refusal(session.remote, &error);
        }
        let (place, _) = self.strangers.enter(network);
        tokio::select! {
            _ = session.close(Some(error)) => {}
            () = place.evicted() => {}
        }
    }

    fn report_refusal(&self, address: SocketAddr, error: &Error) {
        if let Some(tell) = self.on_refusal.get() {
            tell(address, error);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::RttWatch;
    use crate::stream::Under;
    use crate::tests::{LOOPBACKS, run};

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    fn in_use() -> io::Error {
        io::ErrorKind::AddrInUse.into()
    }

    /// Binds two sockets; the second finds its number in use `taken` times. Returns the attempts
    /// and the success.
    fn tries(wanted: &str, taken: usize) -> (usize, bool) {
        let tried = RefCell::new(0);
        let first = || {
            *tried.borrow_mut() += 1;
            Ok(((), ([127, 0, 0, 1], *tried.borrow() as u16).into()))
        };
        let second = |at: SocketAddr| match usize::from(at.port()) > taken {
            true => Ok(at.port()),
            false => Err(in_use()),
        };
        let found = one_number(address(wanted), first, second);
        (tried.into_inner(), found.is_ok_and(|(_, port)| usize::from(port) == taken + 1))
    }

    #[test]
    fn port_0_tries_32_ports_and_a_given_port_is_tried_once() {
        assert_eq!(tries("127.0.0.1:0", 0), (1, true));
        assert_eq!(tries("127.0.0.1:0", 31), (32, true));
        assert_eq!(tries("127.0.0.1:0", 32), (32, false));
        assert_eq!(tries("127.0.0.1:7717", 1), (1, false));
        let denied = |_| Err::<(), _>(io::ErrorKind::PermissionDenied.into());
        let mut tried = 0;
        let first = || {
            tried += 1;
            Ok(((), address("127.0.0.1:1")))
        };
        let error = one_number(address("127.0.0.1:0"), first, denied).expect_err("it is denied");
        assert_eq!((error.kind(), tried), (io::ErrorKind::PermissionDenied, 1));
    }

    /// Returns the address that `bind` chooses while `refused` fails with `kind`.
    fn bound(wanted: &str, refused: &str, kind: io::ErrorKind) -> Result<String, io::ErrorKind> {
        let exactly = |at: SocketAddr| match at == address(refused) {
            true => Err(kind.into()),
            false => Ok(at.to_string()),
        };
        bind(address(wanted), exactly).map_err(|error| error.kind())
    }

    #[test]
    fn a_host_without_ipv6_listens_on_ipv4_and_a_port_in_use_remains_an_error() {
        use io::ErrorKind::{AddrInUse, AddrNotAvailable};
        let all = "[::]:7717";
        assert_eq!(bound(all, "[::1]:1", AddrInUse), Ok(all.to_owned()));
        assert_eq!(bound(all, all, AddrNotAvailable), Ok("0.0.0.0:7717".to_owned()));
        assert_eq!(bound(all, all, AddrInUse), Err(AddrInUse));
        for exact in ["[::1]:7717", "0.0.0.0:7717"] {
            assert_eq!(bound(exact, exact, AddrNotAvailable), Err(AddrNotAvailable));
        }
        let never = |at: SocketAddr| {
            let kind = if at.is_ipv6() { AddrNotAvailable } else { AddrInUse };
            Err::<(), _>(kind.into())
        };
        let error = bind(address(all), never).expect_err("neither is there");
        assert_eq!(error.kind(), AddrNotAvailable, "the error is that of the requested address");
    }

    #[test]
    fn a_client_must_validate_its_address_from_16_handshakes_of_its_network_or_200_in_all() {
        assert!(!must_validate((15, 199), false));
        assert!(must_validate((16, 16), false) && must_validate((0, 200), false));
        assert!(!must_validate((16, 200), true), "the client has validated its address");
    }

    #[test]
    fn a_network_over_its_limit_begins_one_handshake_and_is_barred_from_the_next() {
        let door = door();
        let [network, other] = [1, 2].map(|last| Network::of(IpAddr::from([192, 0, last, 1])));
        // Twenty handshakes are free. Three more exceed them, although charges fade.
        for _ in 0..20 {
            door.charges().add_unauthorised(clock::now(), network);
            assert!(!door.is_barred(network));
        }
        for _ in 0..3 {
            door.charges().add_unauthorised(clock::now(), network);
        }
        assert_eq!([door.is_barred(network), door.is_barred(network)], [false, true]);
        assert!(!door.is_barred(other));
        assert_eq!(door.counts.barred.load(Ordering::Relaxed), 1);
        door.charges().forgive(network);
        assert!(!door.is_barred(network));
    }

    #[test]
    fn a_network_whose_handshakes_stop_early_has_to_pause_if_its_address_is_validated() {
        run(async {
            let (door, gate) = (door(), Gate::new(1));
            let network = Network::of(IpAddr::from([192, 0, 2, 1]));
            let stop = async |count, charged| {
                for number in 0..count {
                    let arrived = (number % 2 == 0).then_some(Arrival::Foreign);
                    door.end(arrived, gate.enter(network).0, charged).await;
                }
            };
            stop(1000, None).await;
            stop(100, Some(network)).await;
            assert!(!door.is_barred(network), "a hundred are free");
            stop(100, Some(network)).await;
            assert_eq!([door.is_barred(network), door.is_barred(network)], [false, true]);
            door.charges().forgive(network);
            assert!(!door.is_barred(network));
        });
    }

    #[test]
    fn a_tcp_port_can_be_used_again_and_a_udp_port_has_one_socket() {
        let any = address("0.0.0.0:0");
        let options = [(Type::STREAM, Protocol::TCP), (Type::DGRAM, Protocol::UDP)]
            .map(|(kind, protocol)| bind_exactly(any, kind, protocol)?.reuse_address());
        assert!(matches!(options, [Ok(true), Ok(false)]), "{options:?}");
        let six = bind_exactly(address("[::]:0"), Type::DGRAM, Protocol::UDP).expect("IPv6");
        assert!(!six.only_v6().expect("an option"));
    }

    fn door() -> Arc<Door> {
        let (sessions, _) = mpsc::channel(1);
        Arc::new(Door::new(&Identity::generate(), &Settings::default(), sessions))
    }

    /// Returns both ends of a connection's first stream, without a listener.
    async fn first_stream() -> (Session, Session) {
        let (near, far) = tokio::io::duplex(1 << 16);
        let under = || {
            let rtt = RttWatch::once(None);
            Under { remote: address("192.0.2.1:9"), local_ip: None, carrier: "tls", rtt, tcp: None }
        };
        let settings = Settings { streams: true, ..Settings::default() };
        let [client, server] = [Identity::generate(), Identity::generate()];
        let config = Arc::new(tls::server(&server, settings.fast_aes));
        let near = async {
            let expect = tls::Expect::Only(server.id());
            let near = stream::client(near, under(), &client, expect, &settings).await;
            let mut near = near.expect("the server answers");
            near.write(&1u32).await.expect("open");
            near
        };
        let far = async {
            let mut far = stream::server(far, under(), &config, &settings).await.expect("a client");
            far.reader.greet().await.expect("it greets");
            stream::multiplexed(far).await.expect("its first stream")
        };
        tokio::join!(near, far)
    }

    #[test]
    fn a_connection_is_given_up_only_when_it_has_no_stream() {
        run(async {
            let (_near, far) = first_stream().await;
            let connection = far.connection().expect("it carries several streams");
            let interval = Duration::from_millis(1);
            let serving = door().further(connection.clone(), interval);
            let ended = timeout(Duration::from_millis(30), serving).await;
            assert!(ended.is_err(), "one stream is open");
            drop(far);
            door().further(connection, interval).await;
        });
    }

    #[test]
    fn a_session_without_a_listener_is_admitted_or_refused_with_a_reason() {
        run(async {
            for is_allowed in [true, false] {
                let (near, far) = tokio::io::duplex(4096);
                let [mut near, far] = [near, far].map(|end| {
                    let (input, out) = tokio::io::split(end);
                    Session::over(PeerId([3; 32]), input, out)
                });
                near.write(&1u32).await.expect("open");
                let judge = move |id: &PeerId| match is_allowed && *id == PeerId([3; 32]) {
                    true => Ok(()),
                    false => Err(Error::new(Kind::Unreachable, "not here")),
                };
                let heard = async {
                    let heard = near.read::<u32>().await;
                    drop(near);
                    heard
                };
                if is_allowed {
                    let mut session = judge_alone(far, judge).await.expect("it is admitted");
                    assert_eq!(session.read::<u32>().await, Ok(Some(1)));
                } else {
                    let (session, heard) = tokio::join!(judge_alone(far, judge), heard);
                    assert!(session.is_none());
                    assert!(heard.expect_err("a reason").what.ends_with("not here"));
                }
            }
        });
    }

    #[test]
    fn a_dropped_listener_frees_its_port_and_keeps_its_sessions() {
        run(async {
            let server = Identity::generate();
            let settings = Settings::default();
            let mut listener = Listener::bind((LOOPBACKS[0], 0).into(), &server, &settings)
                .expect("loopback can be listened on");
            let to = listener.local_addr();
            assert_eq!(format!("{listener:?}"), format!("Listener({to})"));
            let (client, expect) = (Identity::generate(), tls::Expect::Only(server.id()));
            let near = stream::connect(to, &client, expect, &settings).await;
            let mut near = near.expect("it listens");
            near.write(&1u32).await.expect("open");
            let mut far = listener.accept().await;
            drop(listener);
            while TcpStream::connect(to).await.is_ok() {}
            assert_eq!(far.read::<u32>().await, Ok(Some(1)));
        });
    }
}
