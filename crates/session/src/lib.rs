//! The control plane: a sealed, ordered stream each way between two ends that know each other by
//! key.
//!
//! Three carriers give the same things (a stream, the other side's key, secrets that only the two
//! share), and nothing above knows which one it is: QUIC; TLS 1.3 over TCP where UDP does not
//! pass; TLS 1.3 over ssh's own channel where nothing else does.
//!
//! In reading order: `id` and `identity` (who is who), `tls` (how that is proven), [`known`]
//! and [`allow`] (who is trusted), `strict` (who may change that), [`hello`] and [`frame`] (what is
//! said), `line` (the two halves of a stream), `export` (keys for the data), `connection`
//! (further streams) over `below`; the carriers: `quic` with `keeper`, `window` and `twice`,
//! `stream` with `segments` and `mux`, [`ssh`]; the ways in: [`mod@connect`] with `race` and
//! `failure`, and [`listen`] with `gate`; `service` (what streams are for);
//! [`retry`] (a lost server).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use longhaul_net::sealing::keys::has_fast_aes;
use longhaul_net::zone;
use prost::Message;
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncRead, AsyncWrite};

pub mod allow;
mod below;
mod bytes;
mod child;
pub mod connect;
mod connection;
mod error;
mod export;
mod failure;
pub mod frame;
mod gate;
#[doc(hidden)]
pub mod hello;
mod id;
mod identity;
mod keeper;
pub mod known;
mod line;
#[doc(hidden)]
pub mod listen;
mod mux;
mod quic;
mod race;
pub mod retry;
mod rewritten;
mod segments;
mod service;
pub mod ssh;
mod stream;
mod strict;
mod tls;
pub mod trust;
mod twice;
mod window;

pub use connect::connect;
pub use connection::Connection;
pub use error::{Error, Kind};
pub use export::Exporter;
pub use id::{IdError, PeerId};
pub use identity::Identity;
pub use line::{FrameReader, FrameWriter};
pub use listen::{Dropped, Listener};
pub use rewritten::Rewriting;
pub use segments::SegmentWatch;
pub use service::{Service, Services};
pub use ssh::{SshSide, SshTarget, accept_over_ssh, connect_ssh};

/// What sessions are made with; the defaults are right outside tests and unusual networks.
#[derive(Clone, Debug)]
pub struct Settings {
    /// A session ends after this long without a sign of the other side; more than the 20 s for
    /// which a frozen host or a dead network is promised to be survived.
    pub idle: Duration,
    /// How long a handshake may take.
    pub handshake: Duration,
    /// TCP is tried beside UDP after this long without an answer.
    pub tcp_after: Duration,
    /// Which carriers are tried and served.
    pub carriers: Carriers,
    /// The protocol versions offered.
    pub versions: RangeInclusive<u32>,
    /// The socket of a client's QUIC; nothing for a new one on a port of the system's choice.
    /// Only addresses of its family are tried over UDP, and it serves one session at a time.
    pub socket: Option<Arc<UdpSocket>>,
    /// This host has AES in hardware.
    pub fast_aes: bool,
    /// A client opens further streams by [`Session::connection`]. Over TCP and ssh a multiplexer
    /// carries them, which costs throughput: a copy goes without.
    pub streams: bool,
    /// Clients of a server that may be on their way to a first request at the same time, over UDP
    /// and as many over TCP.
    pub waiting: usize,
}

/// Which carriers are tried and served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carriers {
    /// QUIC, and TCP beside it.
    Both,
    /// QUIC alone.
    Quic,
    /// TCP alone.
    Tcp,
}

impl Carriers {
    fn quic(self) -> bool {
        self != Carriers::Tcp
    }

    fn tcp(self) -> bool {
        self != Carriers::Quic
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            idle: Duration::from_secs(30),
            handshake: Duration::from_secs(10),
            tcp_after: Duration::from_millis(250),
            carriers: Carriers::Both,
            versions: hello::VERSIONS,
            socket: None,
            fast_aes: has_fast_aes(),
            streams: false,
            waiting: waiting(getrlimit(Resource::Nofile).current),
        }
    }
}

/// The most clients that wait at a server, and the part of its file descriptors that they may have.
const WAITING: usize = 1024;
const DESCRIPTORS: u64 = 4;

/// How many clients may wait where the process may open so many files.
fn waiting(descriptors: Option<u64>) -> usize {
    usize::try_from(descriptors.unwrap_or(u64::MAX) / DESCRIPTORS).unwrap_or(WAITING).min(WAITING)
}

/// The round-trip time of a session, and whether anything comes. Clones look at the same session
/// and do not keep it open.
#[derive(Clone)]
pub struct RttWatch(Watched);

#[derive(Clone)]
enum Watched {
    Quic(quinn::Connection),
    Once(Option<Duration>),
}

impl fmt::Debug for RttWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RttWatch({:?})", self.now())
    }
}

impl RttWatch {
    fn quic(connection: quinn::Connection) -> RttWatch {
        RttWatch(Watched::Quic(connection))
    }

    fn once(measured: Option<Duration>) -> RttWatch {
        RttWatch(Watched::Once(measured))
    }

    /// QUIC's smoothed estimate now; over TCP the kernel's when the session began; over ssh none.
    pub fn now(&self) -> Option<Duration> {
        match &self.0 {
            Watched::Quic(connection) => Some(connection.rtt()),
            Watched::Once(measured) => *measured,
        }
    }

    /// Has the other side of a QUIC session answer at once, if it hears this.
    pub fn nudge(&self) {
        if let Watched::Quic(connection) = &self.0 {
            // What cannot be sent is as lost: nothing answers.
            let _ = connection.send_datagram(vec![0].into());
        }
    }

    /// UDP datagrams of the session that have come so far; nothing where none carry it.
    pub fn received(&self) -> Option<u64> {
        match &self.0 {
            Watched::Quic(connection) => Some(connection.stats().udp_rx.datagrams),
            Watched::Once(_) => None,
        }
    }
}

/// A sealed stream each way to one peer.
pub struct Session {
    /// The other side's id, proven.
    pub peer: PeerId,
    /// The other side's address, proven by the handshake; over ssh `0.0.0.0:0`.
    pub remote: SocketAddr,
    /// The address of ours that the other side contacted, where the system tells (at a server).
    pub local_ip: Option<IpAddr>,
    /// What carries the session: `quic`, `tls`, `ssh`.
    pub carrier: &'static str,
    /// The round-trip time as the handshake found it.
    pub rtt: Option<Duration>,
    /// The UDP port of the data, where the far side named one (a copy over ssh).
    pub data_port: Option<u16>,
    /// Where ssh had to carry the session: what to open so that it need not.
    pub advice: Option<String>,
    /// Both sides have AES in hardware.
    pub both_fast_aes: bool,
    facts: Facts,
    versions: RangeInclusive<u32>,
    writer: FrameWriter,
    reader: FrameReader,
    /// At a server: the place of a client that has not asked for anything yet.
    place: Option<gate::Place>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({} with {} at {})", self.carrier, self.peer, self.remote)
    }
}

/// What the streams of one connection have in common.
#[derive(Clone)]
struct Facts {
    remote: SocketAddr,
    local_ip: Option<IpAddr>,
    carrier: &'static str,
    rtt: RttWatch,
    /// Of the connection.
    secret: Exporter,
    /// Of one stream.
    exporter: Exporter,
    both_fast_aes: bool,
}

impl Facts {
    /// The same for one of several streams: no two of them share a key.
    fn of_stream(&self, number: &str) -> Facts {
        let secret = self.secret.export(b"stream", number.as_bytes());
        Facts { exporter: Exporter::new(&secret), ..self.clone() }
    }
}

/// One stream of a connection.
struct Stream {
    out: bytes::Out,
    input: bytes::In,
    delivered: Option<line::Delivered>,
}

impl Session {
    /// The session of `stream`, which begins with `hello`.
    fn new(facts: Facts, below: Arc<below::Below>, stream: Stream, hello: hello::Hello) -> Session {
        let peer = below.peer;
        let line = Arc::new(line::Line::new(below));
        Session {
            peer,
            remote: zone::canonical(facts.remote),
            local_ip: facts.local_ip.map(|ip| ip.to_canonical()),
            carrier: facts.carrier,
            rtt: facts.rtt.now(),
            data_port: None,
            advice: None,
            both_fast_aes: facts.both_fast_aes,
            facts,
            versions: hello.min..=hello.max,
            reader: FrameReader::new(stream.input, line.clone(), hello.clone()),
            writer: FrameWriter::new(stream.out, line, stream.delivered, hello),
            place: None,
        }
    }

    /// A session of `peer` on this host over any stream: `input` comes, and `out` goes.
    pub fn over(
        peer: PeerId,
        input: impl AsyncRead + Send + Unpin + 'static,
        out: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Session {
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let facts = Facts {
            // The port of nobody: RFC 863 discards what comes there.
            remote: SocketAddr::new(loopback, 9),
            local_ip: Some(loopback),
            carrier: "tls",
            rtt: RttWatch::once(None),
            secret: Exporter::new(&[0; 32]),
            exporter: Exporter::new(&[0; 32]),
            both_fast_aes: false,
        };
        let below = Arc::new(below::Below::new(peer, below::Streams::One));
        let stream = Stream { out: Box::new(out), input: Box::new(input), delivered: None };
        Session::new(facts, below, stream, hello::Hello::new(&hello::VERSIONS))
    }

    /// Names the service that this stream is for, and the version of it that its messages need.
    /// Has no effect once something was written.
    pub fn ask_for(&mut self, service: &str, needs: u32) {
        self.writer.ask_for(service, needs);
    }

    /// The service that the other side asks for, and the version that it needs. Known at a server.
    pub fn asked(&self) -> (&str, u32) {
        self.reader.theirs().map_or(("", 0), |hello| (&hello.service, hello.needs))
    }

    /// The connection below, where it carries further streams: at a client as
    /// [`Settings::streams`] says, at a server as the client says.
    pub fn connection(&self) -> Option<Connection> {
        Connection::of(self)
    }

    fn keeper(&self) -> Option<&keeper::Keeper> {
        self.writer.line().below.quic.as_ref()
    }

    /// Calls the other side by the name that the user gave.
    fn call(&self, name: &str) {
        self.writer.line().below.call(name);
    }

    fn keep_ssh(&self, child: child::Child) {
        self.writer.line().below.keep_ssh(child);
    }

    /// Much is to come, or to go; see [`FrameReader::expect_much`].
    pub fn expect_much(&self) {
        self.reader.expect_much();
    }

    /// The content of files is to go; see [`FrameReader::expect_bulk`].
    pub fn expect_bulk(&self) {
        self.reader.expect_bulk();
    }

    /// A key that only the two ends of this session know, equal at both for equal arguments.
    pub fn export(&self, label: &[u8], context: &[u8]) -> [u8; 32] {
        self.facts.exporter.export(label, context)
    }

    /// What derives keys, to keep after [`Session::split`].
    pub fn exporter(&self) -> Exporter {
        self.facts.exporter.clone()
    }

    /// The round-trip time as it changes, to keep after [`Session::split`].
    pub fn rtt(&self) -> RttWatch {
        self.facts.rtt.clone()
    }

    /// What tells the segments that TCP has sent of it, where TCP carries it; to keep after
    /// [`Session::split`].
    pub fn segments(&self) -> Option<segments::SegmentWatch> {
        self.writer.line().below.segments()
    }

    /// The two halves. The session lives while one of them does.
    pub fn split(self) -> (FrameWriter, FrameReader) {
        (self.writer, self.reader)
    }

    /// Sends one message; see [`FrameWriter::write`].
    ///
    /// # Errors
    /// As there.
    pub async fn write(&mut self, message: &impl Message) -> Result<(), Error> {
        self.writer.write(message).await
    }

    /// The next message; see [`FrameReader::read`].
    ///
    /// # Errors
    /// As there.
    pub async fn read<M: Message + Default>(&mut self) -> Result<Option<M>, Error> {
        self.reader.read().await
    }

    /// The first message of a client; see [`FrameReader::read`].
    ///
    /// # Errors
    /// As there; and where the listener needs the place of this client for a newcomer.
    pub async fn first<M: Message + Default>(&mut self) -> Result<Option<M>, Error> {
        let place = self.place.take();
        let evicted = async {
            match &place {
                Some(place) => place.evicted().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            first = self.reader.read() => first,
            () = evicted => Err(Error::new(
                Kind::Unreachable,
                "no request came before the place was needed for another client",
            )),
        }
    }

    /// Asks for nothing and hangs up, to hear whether the other side lets this end in. For a client
    /// that keeps the [`Connection`] for later streams.
    ///
    /// # Errors
    /// The other side's reason why not, or the session is lost.
    pub async fn knock(self) -> Result<(), Error> {
        let (mut writer, mut reader) = self.split();
        // A server that does not let this end in may have gone already; its reason is to be read.
        let _ = writer.finish().await;
        reader.read::<()>().await.map(drop)
    }

    /// Delivers what was written, then ends the session; see [`FrameWriter::close`].
    ///
    /// # Errors
    /// As there.
    pub async fn close(self, why: Option<Error>) -> Result<(), Error> {
        self.writer.close(self.reader, why).await
    }
}

#[cfg(test)]
mod tests;
