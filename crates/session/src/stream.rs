//! Sessions over a byte stream, TCP's or ssh's: TLS 1.3 with the same keys, and what TCP alone
//! needs besides.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_net::socket::tcp_round_trip;
use rustls::pki_types::{CertificateDer, ServerName};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::failure::Failure;
use super::id::PeerId;
use super::identity::Identity;
use super::line::Line;
use super::segments::Counted;
use super::tls::{self, Expect};
use super::{Parts, RttWatch, Session, Settings};
use crate::{Error, Kind};

/// A silent TCP connection is probed this often.
const PROBE: Duration = Duration::from_secs(5);

/// A byte stream that TLS can run over.
pub(super) trait Bytes: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Bytes for T {}

/// What is known of a byte stream before TLS runs over it.
pub(super) struct Under {
    pub(super) remote: SocketAddr,
    pub(super) local_ip: Option<IpAddr>,
    pub(super) carrier: &'static str,
    pub(super) rtt: RttWatch,
    /// The TCP connection, where what it sends is of interest.
    pub(super) tcp: Option<Counted>,
}

/// Makes TCP send small messages at once, and notice a silent path as QUIC does. What the system
/// does not have, it goes without.
pub(super) fn tune(stream: &TcpStream, settings: &Settings) {
    let socket = SockRef::from(stream);
    let _ = socket.set_tcp_nodelay(true);
    let probes = TcpKeepalive::new().with_time(PROBE).with_interval(PROBE);
    let _ = socket.set_tcp_keepalive(&probes);
    #[cfg(target_os = "linux")]
    let _ = socket.set_tcp_user_timeout(Some(settings.idle));
    #[cfg(not(target_os = "linux"))]
    let _ = settings;
}

/// Opens a session to `remote` over TCP.
pub(super) async fn connect(
    remote: SocketAddr,
    identity: &Identity,
    expect: Expect,
    settings: &Settings,
) -> Result<Session, Failure> {
    let begun = Instant::now();
    let stream = TcpStream::connect(remote).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::ConnectionRefused => Failure::Refused,
        _ => Failure::other(error.to_string()),
    })?;
    // Where the kernel does not tell: with what a packet sent again has cost, too.
    let rtt = RttWatch::once(Some(begun.elapsed()));
    tune(&stream, settings);
    let local_ip = stream.local_addr().ok().map(|address| address.ip());
    // Without it nothing is told.
    let tcp = stream.as_fd().try_clone_to_owned().ok().map(Arc::new);
    let under = Under { remote, local_ip, carrier: "tls", rtt, tcp };
    client(stream, under, identity, expect, settings).await
}

/// The client's side of a session over `stream`.
pub(super) async fn client(
    stream: impl Bytes,
    under: Under,
    identity: &Identity,
    expect: Expect,
    settings: &Settings,
) -> Result<Session, Failure> {
    let (config, seen) = tls::client(identity, expect, settings.fast_aes);
    let name = ServerName::try_from(tls::SERVER_NAME).expect("a constant that is a name");
    let connected = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    let stream = connected.map_err(|error| match seen.id() {
        Some(id) if expect != Expect::Only(id) && expect != Expect::Anyone => Failure::Stranger(id),
        _ => Failure::other(format!("TLS: {error}")),
    })?;
    let connection = stream.get_ref().1;
    let peer = shown(connection.peer_certificates()).ok_or_else(no_key)?;
    let both_fast_aes = tls::both_fast_aes(connection.alpn_protocol());
    let both_fast_aes =
        both_fast_aes.ok_or_else(|| Failure::other("it speaks another protocol"))?;
    let mut secret = [0; 32];
    connection
        .export_keying_material(&mut secret, tls::EXPORTER_LABEL, None)
        .map_err(|error| Failure::other(error.to_string()))?;
    let told = under.tcp.as_ref().and_then(|tcp| tcp_round_trip(tcp).ok().flatten());
    let rtt = told.map_or(under.rtt, |rtt| RttWatch::once(Some(rtt)));
    Ok(session(stream, peer, (secret, both_fast_aes), Under { rtt, ..under }, settings))
}

/// The server's side of a session over `stream`; what is no client of ours is an error.
pub(super) async fn server(
    stream: impl Bytes,
    under: Under,
    config: &Arc<rustls::ServerConfig>,
    settings: &Settings,
) -> Result<Session, Error> {
    let failed = |what: String| Error::new(Kind::Unreachable, format!("TLS: {what}"));
    let accepted = TlsAcceptor::from(config.clone()).accept(stream).await;
    let stream = accepted.map_err(|error| failed(error.to_string()))?;
    let connection = stream.get_ref().1;
    let both_fast_aes = tls::both_fast_aes(connection.alpn_protocol());
    let both_fast_aes =
        both_fast_aes.ok_or_else(|| failed("it speaks another protocol".to_owned()))?;
    let peer = shown(connection.peer_certificates())
        .ok_or_else(|| failed("it showed no key".to_owned()))?;
    let mut secret = [0; 32];
    connection
        .export_keying_material(&mut secret, tls::EXPORTER_LABEL, None)
        .map_err(|error| failed(error.to_string()))?;
    Ok(session(stream, peer, (secret, both_fast_aes), under, settings))
}

fn no_key() -> Failure {
    Failure::other("it showed no key")
}

fn shown(presented: Option<&[CertificateDer<'_>]>) -> Option<PeerId> {
    tls::peer_id(presented?)
}

fn session(
    stream: impl Bytes,
    peer: PeerId,
    (secret, both_fast_aes): ([u8; 32], bool),
    under: Under,
    settings: &Settings,
) -> Session {
    let (input, out) = tokio::io::split(stream);
    let parts = Parts {
        remote: under.remote,
        local_ip: under.local_ip,
        carrier: under.carrier,
        rtt: under.rtt,
        secret,
        both_fast_aes,
        out: Box::new(out),
        input: Box::new(input),
        delivered: None,
        line: Line::new(peer, None).over(under.tcp),
    };
    Session::new(parts, settings)
}
