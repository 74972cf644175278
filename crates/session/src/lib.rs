//! The control plane: an encrypted, ordered stream in each direction between two ends that are
//! identified by keys.
//!
//! There are three carriers: QUIC; TLS 1.3 over TCP if UDP does not pass; and TLS 1.3 over ssh's
//! channel if nothing else passes. Each provides a stream, the other side's key, and secrets that
//! only the two ends know.
//!
//! Modules in reading order:
//! - keys and trust: `id` and `identity` (the keys), `tls` (their proof), [`trust`], [`known`] and
//!   [`allow`] (trust and rights), `strict` and `rewritten` (permissions and updates of the files
//!   that hold trust and rights), `random`.
//! - streams: [`hello`] and [`frame`] (messages), `line` (the two halves of a stream), `export`
//!   (keys for the data), `connection` (additional streams) over `below` and `bytes` (what carries
//!   a stream), `service` (the services of streams).
//! - carriers: `quic` with `keeper`, `window` and `twice`; `stream` with `segments`, `lanes` and
//!   `mux`; [`ssh`] with `child` (the ssh process).
//! - opening sessions: [`mod@connect`] with `race` and `failure`, [`listen`] with `gate` and
//!   `charges`, [`retry`] (reconnecting to a lost server).
//! - waiting: [`when`] (an event that may be absent, as a branch of `select!`).

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
mod charges;
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
mod lanes;
mod line;
#[doc(hidden)]
pub mod listen;
mod mux;
mod quic;
mod race;
mod random;
pub mod retry;
mod rewritten;
mod segments;
mod service;
pub mod ssh;
mod stream;
#[doc(hidden)]
pub mod strict;
mod tls;
pub mod trust;
mod twice;
mod when;
mod window;

pub use connect::connect;
pub use connection::Connection;
pub use error::{Error, Kind};
pub use export::Exporter;
pub use id::{IdError, PeerId};
pub use identity::Identity;
pub use line::{FrameReader, FrameWriter};
pub use listen::{Dropped, Listener};
pub use random::random_u64;
pub use rewritten::Rewriting;
pub use segments::SegmentWatch;
pub use service::{Service, Services};
pub use ssh::{SshSide, SshTarget, accept_over_ssh, connect_ssh};
pub use when::when;

/// Settings of sessions.
#[derive(Clone, Debug)]
pub struct Settings {
    /// A session ends after this long without a sign of life. A copy must survive a dead network
    /// for 20 s, so the default is 30 s.
    pub idle: Duration,
    /// Timeout of a handshake.
    pub handshake: Duration,
    /// How long UDP may be unanswered before TCP is tried too.
    pub tcp_after: Duration,
    /// The carriers to try and to serve.
    pub carriers: Carriers,
    /// The protocol versions offered.
    pub versions: RangeInclusive<u32>,
    /// The UDP socket of a client; `None` opens one. UDP tries only addresses of the socket's
    /// family. The socket serves one session at a time.
    pub socket: Option<Arc<UdpSocket>>,
    /// Whether this host has AES in hardware.
    pub fast_aes: bool,
    /// Whether a client opens more streams than the session's first. Over TCP and ssh a multiplexer
    /// carries the streams, which costs throughput.
    pub streams: bool,
    /// Number of TCP connections of a client's session over TCP, at most 16.
    pub lanes: u8,
    /// At a server: maximum number of clients that have sent no request yet, for UDP and for TCP
    /// separately.
    pub waiting: usize,
}

/// The carriers to try and to serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carriers {
    /// QUIC and TCP; see [`Settings::tcp_after`].
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
            lanes: 1,
            waiting: waiting(getrlimit(Resource::Nofile).current),
        }
    }
}

const WAITING: usize = 1024;
const DESCRIPTORS: u64 = 4;

/// Returns the default of [`Settings::waiting`]: a quarter of the limit on open files, at most
/// [`WAITING`].
fn waiting(descriptors: Option<u64>) -> usize {
    usize::try_from(descriptors.unwrap_or(u64::MAX) / DESCRIPTORS).unwrap_or(WAITING).min(WAITING)
}

/// The round-trip time and the received datagrams of a session. Does not keep the session open.
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

    /// Returns a watch that always gives this value.
    pub fn once(measured: Option<Duration>) -> RttWatch {
        RttWatch(Watched::Once(measured))
    }

    /// Returns QUIC's current smoothed estimate. Over TCP, a client gets an estimate from the start
    /// of the session; otherwise `None`.
    pub fn now(&self) -> Option<Duration> {
        match &self.0 {
            Watched::Quic(connection) => Some(connection.rtt()),
            Watched::Once(measured) => *measured,
        }
    }

    /// Sends a QUIC datagram, which the other side acknowledges if it is reachable. Does nothing
    /// without QUIC.
    pub fn nudge(&self) {
        if let Watched::Quic(connection) = &self.0 {
            let _ = connection.send_datagram(vec![0].into());
        }
    }

    /// Returns the number of the session's UDP datagrams received so far; `None` without UDP.
    pub fn received(&self) -> Option<u64> {
        match &self.0 {
            Watched::Quic(connection) => Some(connection.stats().udp_rx.datagrams),
            Watched::Once(_) => None,
        }
    }
}

/// An encrypted stream in each direction to one peer.
pub struct Session {
    /// The other side's authenticated id.
    pub peer: PeerId,
    /// The other side's validated address; over ssh `0.0.0.0:0`.
    pub remote: SocketAddr,
    /// At a server: the address that the client contacted, if known.
    pub local_ip: Option<IpAddr>,
    /// What carries the session: `quic`, `tls`, `ssh`.
    pub carrier: &'static str,
    /// The round-trip time when the session began; `None` over ssh, and at a server over TCP.
    pub rtt: Option<Duration>,
    /// The UDP port of the data, if the remote side named one.
    pub data_port: Option<u16>,
    /// Over ssh's channel: the ports to open for a direct session.
    pub advice: Option<String>,
    /// Whether both sides have AES in hardware.
    pub both_fast_aes: bool,
    facts: Facts,
    versions: RangeInclusive<u32>,
    writer: FrameWriter,
    reader: FrameReader,
    /// At a server: the client's place among those without a request.
    place: Option<gate::Place>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({} with {} at {})", self.carrier, self.peer, self.remote)
    }
}

/// The common properties of the streams of one connection.
#[derive(Clone)]
struct Facts {
    remote: SocketAddr,
    local_ip: Option<IpAddr>,
    carrier: &'static str,
    rtt: RttWatch,
    secret: Exporter,
    exporter: Exporter,
    both_fast_aes: bool,
}

impl Facts {
    /// Returns the properties of one of several streams, with its own keys.
    fn of_stream(&self, number: &str) -> Facts {
        let secret = self.secret.export(b"stream", number.as_bytes());
        Facts { exporter: Exporter::of_secret(&secret), ..self.clone() }
    }
}

struct Stream {
    out: bytes::Out,
    input: bytes::In,
    delivered: Option<line::Delivered>,
}

impl Session {
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

    /// Returns a session with `peer` over a byte stream within this host. Nothing is encrypted or
    /// authenticated, and the exported keys are not secret.
    pub fn over(
        peer: PeerId,
        input: impl AsyncRead + Send + Unpin + 'static,
        out: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Session {
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let facts = Facts {
            // A port that discards datagrams (RFC 863).
            remote: SocketAddr::new(loopback, 9),
            local_ip: Some(loopback),
            carrier: "tls",
            rtt: RttWatch::once(None),
            secret: Exporter::of_secret(&[0; 32]),
            exporter: Exporter::of_secret(&[0; 32]),
            both_fast_aes: false,
        };
        let below = Arc::new(below::Below::new(peer, below::Streams::One));
        let stream = Stream { out: Box::new(out), input: Box::new(input), delivered: None };
        Session::new(facts, below, stream, hello::Hello::new(&hello::VERSIONS))
    }

    /// Sets the service of this stream, and the version that its messages need. Has no effect after
    /// the first write.
    pub fn ask_for(&mut self, service: &str, needs: u32) {
        self.writer.ask_for(service, needs);
    }

    /// At a server: returns the requested service and version.
    pub fn asked(&self) -> (&str, u32) {
        self.reader.theirs().map_or(("", 0), |hello| (&hello.service, hello.needs))
    }

    /// Returns the connection if it carries several streams, which the client decides
    /// ([`Settings::streams`]); otherwise `None`.
    pub fn connection(&self) -> Option<Connection> {
        Connection::of(self)
    }

    fn keeper(&self) -> Option<&keeper::Keeper> {
        self.writer.line().below.quic.as_ref()
    }

    fn call(&self, name: &str) {
        self.writer.line().below.call(name);
    }

    fn keep_ssh(&self, child: child::Child) {
        self.writer.line().below.keep_ssh(child);
    }

    /// Prepares for much data in one direction; see [`FrameReader::expect_much`].
    pub fn expect_much(&self) {
        self.reader.expect_much();
    }

    /// Prepares to send files or messages of a channel; see [`FrameReader::expect_bulk`].
    pub fn expect_bulk(&self) {
        self.reader.expect_bulk();
    }

    /// Allows a jump to `bytes` in flight over QUIC after one round trip (Careful Resume, RFC
    /// 9959). `bytes` is half of the bandwidth-delay product that an earlier transfer found. Does
    /// nothing without QUIC.
    pub fn resume(&self, bytes: u64) {
        if let Some(keeper) = self.keeper() {
            keeper.resume(bytes);
        }
    }

    /// Returns a key that only the two sides of this session know.
    pub fn export(&self, label: &[u8], context: &[u8]) -> [u8; 32] {
        self.facts.exporter.export(label, context)
    }

    /// Returns the exporter, to keep after [`Session::split`].
    pub fn exporter(&self) -> Exporter {
        self.facts.exporter.clone()
    }

    /// Returns the watch on the round-trip time, to keep after [`Session::split`].
    pub fn rtt(&self) -> RttWatch {
        self.facts.rtt.clone()
    }

    /// Returns the watch on the session's TCP segments, if this side opened the session over TCP;
    /// otherwise `None`. Watches only the first of several [`lanes`](Settings::lanes).
    pub fn segments(&self) -> Option<segments::SegmentWatch> {
        self.writer.line().below.segments()
    }

    /// Returns the two halves. The session lives as long as one of them.
    pub fn split(self) -> (FrameWriter, FrameReader) {
        (self.writer, self.reader)
    }

    /// Sends one message; see [`FrameWriter::write`].
    ///
    /// # Errors
    /// As [`FrameWriter::write`].
    pub async fn write(&mut self, message: &impl Message) -> Result<(), Error> {
        self.writer.write(message).await
    }

    /// Reads the next message; see [`FrameReader::read`].
    ///
    /// # Errors
    /// As [`FrameReader::read`].
    pub async fn read<M: Message + Default>(&mut self) -> Result<Option<M>, Error> {
        self.reader.read().await
    }

    /// Reads the first message of a client.
    ///
    /// # Errors
    /// As [`FrameReader::read`]; or the listener evicts this client for another one.
    pub async fn first<M: Message + Default>(&mut self) -> Result<Option<M>, Error> {
        let place = self.place.take();
        let evicted = when(place.as_ref().map(|place| place.evicted()));
        tokio::select! {
            biased;
            first = self.reader.read() => first,
            () = evicted => Err(Error::new(
                Kind::Unreachable,
                "the server needed the place for another client before a request arrived",
            )),
        }
    }

    /// Ends this stream without a request, and checks that the other side admits this side.
    ///
    /// # Errors
    /// The other side's reason for a refusal, or [`Kind::Lost`].
    pub async fn knock(self) -> Result<(), Error> {
        let (mut writer, mut reader) = self.split();
        // A server that refuses this side may have closed already.
        let _ = writer.finish().await;
        reader.read::<()>().await.map(drop)
    }

    /// Sends the written data, then ends the session; see [`FrameWriter::close`].
    ///
    /// # Errors
    /// As [`FrameWriter::close`].
    pub async fn close(self, why: Option<Error>) -> Result<(), Error> {
        self.writer.close(self.reader, why).await
    }

    /// Says goodbye without waiting for the delivery; see [`FrameWriter::leave`].
    ///
    /// # Errors
    /// As [`FrameWriter::leave`].
    pub async fn leave(self) -> Result<(), Error> {
        self.writer.leave(self.reader).await
    }
}

#[cfg(test)]
mod tests;
