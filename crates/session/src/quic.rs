//! Sessions over QUIC: one connection with bidirectional streams, tuned for low latency under loss.
//!
//! - A loss does not shrink the window below its floor ([`Window`]).
//! - Packets are sent twice while few packets are sent ([`Twice`]).
//! - If the handshake is not complete after 40 ms, a second handshake starts. The client uses the
//!   one that completes first.
//! - Small datagrams (pulses) follow each write. They reveal the loss of the write's last packet
//!   after one round trip. Without them, a timeout would reveal it after three round trips.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac::{HMAC_SHA256, Key};
use aws_lc_rs::rand;
use longhaul_net::socket::request_receive_buffer;
use quinn::crypto::rustls::{HandshakeData, QuicClientConfig, QuicServerConfig};
use quinn::rustls::pki_types::CertificateDer;
use quinn::{
    AckFrequencyConfig, ClientConfig, Connection, ConnectionError, ConnectionId,
    ConnectionIdGenerator, Endpoint, EndpointConfig, IdleTimeout, Runtime, ServerConfig,
    TokioRuntime, TransportConfig, VarInt,
};
use tokio::time::sleep;

use super::below::{Below, Streams};
use super::failure::Failure;
use super::hello::Hello;
use super::id::PeerId;
use super::identity::Identity;
use super::keeper::{Keeper, MUCH, SEND_WINDOW};
use super::line::Delivered;
use super::mux::STREAMS;
use super::tls::{self, Expect};
use super::twice::{Copies, Twice};
use super::window::{BULK, Window};
use super::{Exporter, Facts, RttWatch, Session, Settings, Stream};
use crate::{Error, Kind};

/// Assumed round-trip time before the first measurement. The first flight is repeated after three
/// times this value (with RFC 9002's 333 ms, after a second).
const INITIAL_RTT: Duration = Duration::from_millis(100);

/// How long the first handshake may take before a second one starts.
const REPEAT_AFTER: Duration = Duration::from_millis(40);

/// Limit on unread bytes of one side, until the session is to carry much data.
const UNREAD: u32 = 256 << 10;

/// Limit on unread bytes of each stream if there are several: an unread stream does not block the
/// others.
const UNREAD_EACH: u32 = BULK as u32;
/// Limit on unread bytes of all streams of a client that opens several.
const UNREAD_ALL: u32 = 4 * UNREAD_EACH;

/// Receive buffer of a client in bytes: 67 ms of 1 Gbit/s.
const RECEIVE_BUFFER: usize = 8 << 20;

/// Buffer for unread pulses, in bytes.
const PULSES_IN: usize = 64;
/// Buffer for unsent pulses, in bytes.
const PULSES_OUT: usize = 4 << 10;

/// The announced limit on open streams. The QUIC library allows further streams only when more than
/// an eighth of the limit have ended, so the limit has a reserve of an eighth.
const ANNOUNCED: usize = STREAMS + STREAMS / 8;

/// Limits on queued datagrams of one undecided handshake, and of all, in bytes.
const WAITING: (u64, u64) = (16 << 10, 4 << 20);

/// Maximum number of undecided handshakes.
const MOST_WAITING: usize = 1024;

fn transport(settings: &Settings) -> TransportConfig {
    let mut acks = AckFrequencyConfig::default();
    // Immediate acknowledgements start repairs earlier.
    acks.ack_eliciting_threshold(VarInt::from_u32(0)).reordering_threshold(VarInt::from_u32(1));
    let idle = IdleTimeout::try_from(settings.idle).unwrap_or(VarInt::MAX.into());
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(1))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .max_idle_timeout(Some(idle))
        .stream_receive_window(VarInt::from_u32(if settings.streams { UNREAD_EACH } else { MUCH }))
        .receive_window(VarInt::from_u32(UNREAD))
        .send_window(SEND_WINDOW)
        .initial_rtt(INITIAL_RTT)
        .mtu_discovery_config(None)
        .ack_frequency_config(Some(acks))
        .allow_spin(false)
        .datagram_receive_buffer_size(Some(PULSES_IN))
        .datagram_send_buffer_size(PULSES_OUT)
        .congestion_controller_factory(Arc::new(Window::new()));
    transport
}

fn endpoint(
    socket: UdpSocket,
    config: EndpointConfig,
    server: Option<ServerConfig>,
    copies: Copies,
) -> std::io::Result<Endpoint> {
    let runtime = Arc::new(TokioRuntime);
    let socket = Twice::new(runtime.wrap_udp_socket(socket)?, copies);
    Endpoint::new_with_abstract_socket(config, server, socket, runtime)
}

pub(super) fn client_endpoint(socket: UdpSocket) -> std::io::Result<Endpoint> {
    // A failure is ignored, because a smaller buffer only costs repairs.
    let _ = request_receive_buffer(&socket, RECEIVE_BUFFER);
    endpoint(socket, EndpointConfig::default(), None, Copies::All)
}

pub(super) fn server_endpoint(
    socket: UdpSocket,
    identity: &Identity,
    settings: &Settings,
) -> std::io::Result<Endpoint> {
    let crypto = QuicServerConfig::try_from(tls::server(identity, settings.fast_aes))
        .expect("the provider has the suite of QUIC's first packets");
    let mut config = ServerConfig::with_crypto(Arc::new(crypto));
    config
        .transport_config(Arc::new(transport(settings)))
        .max_incoming(MOST_WAITING)
        .incoming_buffer_size(WAITING.0)
        .incoming_buffer_size_total(WAITING.1);
    let lasting = lasting(identity, socket.local_addr()?);
    endpoint(socket, lasting, Some(config), Copies::Established)
}

/// Uses a reset key that outlives the process, so that a restarted server immediately resets the
/// connections of its predecessor (RFC 9000, section 10.3).
fn lasting(identity: &Identity, local: SocketAddr) -> EndpointConfig {
    let key = Key::new(HMAC_SHA256, &reset_key(identity, local));
    let mut config = EndpointConfig::new(Arc::new(key));
    config.cid_generator(|| Box::new(RandomIds));
    config
}

/// Returns the reset key of a server at `local`. The key depends on `local`, because an attacker
/// could make servers with a common key reset each other's connections (RFC 9000, section 21.11).
fn reset_key(identity: &Identity, local: SocketAddr) -> [u8; 32] {
    *blake3::keyed_hash(&identity.resets, local.to_string().as_bytes()).as_bytes()
}

/// Random connection ids. The QUIC library's default ids contain a hash with a key of the process,
/// so a restarted server would drop its predecessor's packets without a reset.
#[derive(Debug)]
struct RandomIds;

impl RandomIds {
    const LEN: usize = 8;
}

impl ConnectionIdGenerator for RandomIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id = [0; RandomIds::LEN];
        rand::fill(&mut id).expect("the system gives randomness");
        ConnectionId::new(&id)
    }

    fn cid_len(&self) -> usize {
        RandomIds::LEN
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// Opens a session to `remote`.
pub(super) async fn connect(
    endpoint: &Endpoint,
    remote: SocketAddr,
    identity: &Identity,
    expect: Expect,
    settings: &Settings,
) -> Result<Session, Failure> {
    let transport = Arc::new(transport(settings));
    let attempt = || handshake(endpoint, remote, identity, expect, &transport, settings.fast_aes);
    let mut first = std::pin::pin!(attempt());
    let connection = tokio::select! {
        done = &mut first => done?,
        () = sleep(REPEAT_AFTER) => {
            let mut second = std::pin::pin!(attempt());
            let (done, other) = tokio::select! {
                done = &mut first => (done, second),
                done = &mut second => (done, first),
            };
            match done {
                Ok(connection) => connection,
                Err(stranger @ Failure::Stranger(_)) => return Err(stranger),
                Err(_) => other.await?,
            }
        }
    };
    let stream = connection.open_bi().await.map_err(|error| failure(&error))?;
    let mut hello = Hello::new(&settings.versions);
    hello.streams = settings.streams;
    let session = session(connection, stream, hello);
    let session = session.ok_or_else(|| Failure::other("it showed no key"))?;
    if let Some(keeper) = session.keeper().filter(|_| settings.streams) {
        keeper.carry(1, UNREAD_ALL);
    }
    Ok(session)
}

async fn handshake(
    endpoint: &Endpoint,
    remote: SocketAddr,
    identity: &Identity,
    expect: Expect,
    transport: &Arc<TransportConfig>,
    fast_aes: bool,
) -> Result<Connection, Failure> {
    let (crypto, seen) = tls::client(identity, expect, fast_aes);
    let crypto = QuicClientConfig::try_from(crypto)
        .expect("the provider has the suite of QUIC's first packets");
    let mut config = ClientConfig::new(Arc::new(crypto));
    config.transport_config(transport.clone());
    let connecting = endpoint
        .connect_with(config, remote, tls::SERVER_NAME)
        .map_err(|error| Failure::other(error.to_string()))?;
    connecting.await.map_err(|error| match seen.stranger(expect) {
        Some(id) => Failure::Stranger(id),
        None => failure(&error),
    })
}

fn failure(error: &ConnectionError) -> Failure {
    match error {
        ConnectionError::TimedOut => Failure::silent("no answer"),
        other => Failure::other(other.to_string()),
    }
}

/// Returns the session of a connection; `None` if the other side showed no key, or agreed on no
/// known protocol.
fn session(
    connection: Connection,
    stream: (quinn::SendStream, quinn::RecvStream),
    hello: Hello,
) -> Option<Session> {
    let peer = peer(&connection)?;
    let mut secret = [0; 32];
    connection.export_keying_material(&mut secret, tls::EXPORTER_LABEL, b"").ok()?;
    let handshake = connection.handshake_data()?.downcast::<HandshakeData>().ok()?;
    let both_fast_aes = tls::both_fast_aes(handshake.protocol.as_deref())?;
    let facts = Facts {
        remote: connection.remote_address(),
        local_ip: connection.local_ip(),
        carrier: "quic",
        rtt: RttWatch::quic(connection.clone()),
        secret: Exporter::of_secret(&secret),
        exporter: Exporter::of_secret(&secret),
        both_fast_aes,
    };
    let below = Arc::new(Below::new(peer, Streams::Quic(Keeper::new(connection))));
    let (stream, _) = opened(stream);
    Some(Session::new(facts, below, stream, hello))
}

pub(super) fn opened((send, receive): (quinn::SendStream, quinn::RecvStream)) -> (Stream, String) {
    let number = send.id().index().to_string();
    let stopped = send.stopped();
    let delivered: Delivered = Box::pin(async move {
        // An acknowledgement, a stop and a close all end the wait.
        let _ = stopped.await;
    });
    let (out, input) = (Box::new(send), Box::new(receive));
    (Stream { out, input, delivered: Some(delivered) }, number)
}

fn peer(connection: &Connection) -> Option<PeerId> {
    let shown = connection.peer_identity()?;
    tls::peer_id(shown.downcast_ref::<Vec<CertificateDer<'static>>>()?)
}

pub(super) fn carry_many(keeper: &Keeper) {
    keeper.carry(ANNOUNCED, 2 * MUCH);
}

pub(super) async fn accept_stream(
    connection: Connection,
    settings: &Settings,
) -> Result<Session, Error> {
    let gone = |error: ConnectionError| Error::new(Kind::Unreachable, error.to_string());
    let stream = connection.accept_bi().await.map_err(gone)?;
    session(connection, stream, Hello::new(&settings.versions))
        .ok_or_else(|| Error::new(Kind::Unreachable, "a client showed no key"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_have_the_documented_sizes() {
        assert_eq!(WAITING, (16_384, 4_194_304));
        assert_eq!((SEND_WINDOW, RECEIVE_BUFFER, UNREAD_ALL), (1_048_576, 8_388_608, 134_217_728));
        assert_eq!((MUCH, BULK, UNREAD), (4_194_304, 33_554_432, 262_144));
        assert_eq!((ANNOUNCED, PULSES_OUT), (18, 4_096));
    }

    #[test]
    fn servers_of_one_identity_have_different_reset_keys_and_a_restarted_one_keeps_its_key() {
        let identity = Identity::from_bytes(&[7; 32]);
        let key =
            |identity: &Identity, at: &str| reset_key(identity, at.parse().expect("an address"));
        let restarted = Identity::from_bytes(&[7; 32]);
        assert_eq!(key(&identity, "[::]:7717"), key(&restarted, "[::]:7717"));
        for other in ["[::]:7718", "127.0.0.1:7717"] {
            assert_ne!(key(&identity, "[::]:7717"), key(&identity, other));
        }
        assert_ne!(key(&identity, "[::]:1"), key(&Identity::from_bytes(&[8; 32]), "[::]:1"));
    }

    #[test]
    fn connection_ids_are_random_and_last_as_long_as_their_connection() {
        let mut ids = RandomIds;
        let [one, other] = [ids.generate_cid(), ids.generate_cid()];
        assert_ne!(one, other);
        assert_eq!((one.len(), ids.cid_len(), ids.cid_lifetime()), (8, 8, None));
    }
}
