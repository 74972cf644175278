//! Sessions over TCP or ssh: TLS 1.3 with the same keys as QUIC, and the TCP socket options.

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

use super::below::{Below, Name, Streams};
use super::connection::Connection;
use super::failure::Failure;
use super::frame;
use super::hello::Hello;
use super::id::PeerId;
use super::identity::Identity;
use super::lanes::{self, Meeting, Preface};
use super::line::{FrameReader, Line};
use super::mux::Mux;
use super::segments::Counted;
use super::tls::{self, Expect};
use super::{Exporter, Facts, RttWatch, Session, Settings, Stream};
use crate::{Error, Kind};

/// Interval of probes on a silent TCP connection.
const PROBE: Duration = Duration::from_secs(5);

pub(super) trait Bytes: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Bytes for T {}

pub(super) struct Under {
    pub(super) remote: SocketAddr,
    pub(super) local_ip: Option<IpAddr>,
    pub(super) carrier: &'static str,
    pub(super) rtt: RttWatch,
    /// The TCP connection, if its segments are counted.
    pub(super) tcp: Option<Counted>,
}

/// Makes TCP send small messages immediately and detect a silent path, where the system can.
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
    // For kernels that report no RTT.
    let rtt = RttWatch::once(Some(begun.elapsed()));
    tune(&stream, settings);
    let local_ip = stream.local_addr().ok().map(|address| address.ip());
    let tcp = stream.as_fd().try_clone_to_owned().ok().map(Arc::new);
    let under = Under { remote, local_ip, carrier: "tls", rtt, tcp };
    if settings.lanes <= 1 {
        return client(stream, under, identity, expect, settings).await;
    }
    let tune = |stream: &TcpStream| tune(stream, settings);
    let lanes = lanes::connect(stream, remote, settings.lanes, tune).await;
    let lanes = lanes.map_err(|error| Failure::other(error.to_string()))?;
    client(lanes, under, identity, expect, settings).await
}

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
    let stream = connected.map_err(|error| match seen.stranger(expect) {
        Some(id) => Failure::Stranger(id),
        None => Failure::other(format!("TLS: {error}")),
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
    let rtt = under.tcp.as_ref().and_then(|tcp| tcp_round_trip(tcp).ok().flatten());
    let rtt = rtt.map_or(under.rtt, |rtt| RttWatch::once(Some(rtt)));
    let (facts, tcp) = Under { rtt, ..under }.facts(&secret, both_fast_aes);
    let hello = Hello::new(&settings.versions);
    if !settings.streams {
        let below = Below::new(peer, Streams::One).over(tcp, Name::default());
        return Ok(session(stream, facts, below, hello));
    }
    let lost = |error: std::io::Error| Failure::other(error.to_string());
    let name = Name::default();
    let greeting = Below::new(peer, Streams::One).over(None, name.clone());
    // The multiplexer sends the hello.
    let (input, out) = tokio::io::split(stream);
    let line = Arc::new(Line::new(Arc::new(greeting)));
    let reader = FrameReader::new(Box::new(input), line, hello.clone());
    let mut first = Vec::new();
    frame::encode(&Hello { streams: true, ..hello }, &mut first).expect("a hello is short");
    let mux = Mux::client(reader.welcomed(), Box::new(out), &first).await.map_err(lost)?;
    let below = Arc::new(Below::new(peer, Streams::Mux(mux)).over(tcp, name));
    let connection = Connection::over(below, facts, settings.versions.clone());
    connection.open("", 0).await.map_err(|error| Failure::other(error.what))
}

/// Returns the session over a TCP connection. Several TCP connections (lanes) may carry one
/// session: then one call returns the session, and the calls for the other lanes return `None`.
pub(super) async fn accept(
    mut stream: TcpStream,
    remote: SocketAddr,
    meeting: &Arc<Meeting>,
    config: &Arc<rustls::ServerConfig>,
    settings: &Settings,
) -> Result<Option<Session>, Error> {
    tune(&stream, settings);
    let local_ip = stream.local_addr().ok().map(|address| address.ip());
    let rtt = RttWatch::once(None);
    let under = Under { remote, local_ip, carrier: "tls", rtt, tcp: None };
    let failed = |error: std::io::Error| Error::new(Kind::Unreachable, format!("TCP: {error}"));
    let Some(preface) = Preface::read(&mut stream).await.map_err(failed)? else {
        return server(stream, under, config, settings).await.map(Some);
    };
    let ip = remote.ip().to_canonical();
    match meeting.join(stream, preface, ip).await.map_err(failed)? {
        Some(lanes) => server(lanes, under, config, settings).await.map(Some),
        None => Ok(None),
    }
}

/// Returns the server's session; fails if the client is not longhaul.
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
    let (facts, tcp) = under.facts(&secret, both_fast_aes);
    let below = Below::new(peer, Streams::One).over(tcp, Name::default());
    Ok(session(stream, facts, below, Hello::new(&settings.versions)))
}

fn no_key() -> Failure {
    Failure::other("it showed no key")
}

fn shown(presented: Option<&[CertificateDer<'_>]>) -> Option<PeerId> {
    tls::peer_id(presented?)
}

fn session(stream: impl Bytes, facts: Facts, below: Below, hello: Hello) -> Session {
    let (input, out) = tokio::io::split(stream);
    let stream = Stream { out: Box::new(out), input: Box::new(input), delivered: None };
    Session::new(facts, Arc::new(below), stream, hello)
}

/// Waits for the first stream of a client that opens several streams; returns that stream.
pub(super) async fn multiplexed(session: Session) -> Result<Session, Error> {
    let Session { facts, versions, mut writer, reader, .. } = session;
    let peer = writer.line().below.peer;
    // Tells the client that it is admitted.
    writer.write(&()).await?;
    let mux = Mux::server(reader.into_input(), writer.into_out().await?);
    let below = Below::new(peer, Streams::Mux(mux));
    let mut first = Connection::over(Arc::new(below), facts, versions).accept().await;
    let gone = || Error::new(Kind::Lost, "the client opened no stream");
    first.take().ok_or_else(gone)
}

impl Under {
    fn facts(self, secret: &[u8; 32], both_fast_aes: bool) -> (Facts, Option<Counted>) {
        let facts = Facts {
            remote: self.remote,
            local_ip: self.local_ip,
            carrier: self.carrier,
            rtt: self.rtt,
            secret: Exporter::of_secret(secret),
            exporter: Exporter::of_secret(secret),
            both_fast_aes,
        };
        (facts, self.tcp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{LOOPBACKS, run};

    #[test]
    fn tcp_sends_small_messages_immediately_and_probes_a_silent_path() {
        run(async {
            let listener = tokio::net::TcpListener::bind((LOOPBACKS[0], 0)).await.unwrap();
            let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let idle = Duration::from_secs(17);
            tune(&stream, &Settings { idle, ..Settings::default() });
            let socket = SockRef::from(&stream);
            assert!(socket.tcp_nodelay().unwrap() && socket.keepalive().unwrap());
            assert_eq!(socket.tcp_keepalive_time().unwrap(), PROBE);
            assert_eq!(socket.tcp_keepalive_interval().unwrap(), PROBE);
            #[cfg(target_os = "linux")]
            assert_eq!(socket.tcp_user_timeout().unwrap(), Some(idle));
        });
    }
}
