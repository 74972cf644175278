//! Handshakes that never end, and QUIC clients other than longhaul.

use std::collections::BTreeSet;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use quinn::ConnectionError;
use quinn::crypto::rustls::QuicClientConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::{ClientConfig, RootCertStore};

use crate::rig::{DEADLINE, Pair, bytes, write};

/// Number of handshakes that begin and stall.
const STALLED: usize = 6;

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    socket.set_read_timeout(Some(DEADLINE)).expect("a socket's option");
    socket
}

/// First packets of `count` handshakes by real clients, which are then killed.
fn first_packets(pair: &Pair, count: usize) -> Vec<Vec<u8>> {
    let mute = socket();
    let to = format!("lh://{}/", mute.local_addr().expect("bound"));
    let clients: Vec<_> = (0..count).map(|_| pair.start(&[&"file", &to])).collect();
    let (mut packets, mut connections) = (Vec::new(), BTreeSet::new());
    let mut buffer = [0; 2000];
    while packets.len() < count {
        let len = mute.recv(&mut buffer).expect("a client tries");
        // The destination connection id, by which a server distinguishes handshakes (RFC 9000
        // section 17.2).
        let id = 6..6 + usize::from(buffer[5]);
        if connections.insert(buffer[id].to_vec()) {
            packets.push(buffer[..len].to_vec());
        }
    }
    drop(clients);
    packets
}

#[test]
fn stalled_handshakes_do_not_block_other_clients() {
    let pair = Pair::new();
    write(&pair.here.join("file"), &bytes(3_000_000, 1));
    let stalled: Vec<UdpSocket> = first_packets(&pair, STALLED)
        .into_iter()
        .map(|packet| {
            let socket = socket();
            socket.send_to(&packet, &pair.server.address).expect("loopback takes it");
            // After its answer, the server waits for the rest of the handshake.
            socket.recv(&mut [0; 2000]).expect("the server answers a genuine first packet");
            socket
        })
        .collect();
    pair.cp(&[&"file", &pair.at("")]).summary();
    pair.cp(&[&pair.at("file"), &"back"]).summary();
    assert!(fs::read(pair.here.join("back")).unwrap() == bytes(3_000_000, 1));
    drop(stalled);
}

/// The server's answer to a client that offers the ALPN name `protocol` but has no longhaul key.
fn refusal(server: SocketAddr, protocol: &[u8]) -> ConnectionError {
    let mut tls = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider has suites of TLS 1.3")
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    tls.alpn_protocols = vec![protocol.to_vec()];
    let crypto = QuicClientConfig::try_from(tls).expect("a suite of QUIC's first packets");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let endpoint = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).expect("a port");
        let config = quinn::ClientConfig::new(Arc::new(crypto));
        let connecting = endpoint.connect_with(config, server, "localhost").expect("a name");
        connecting.await.expect_err("it is no client of longhaul's")
    })
}

#[test]
fn foreign_quic_clients_get_an_error_and_the_server_continues() {
    let pair = Pair::new();
    let server: SocketAddr = pair.server.address.parse().expect("a server's address");
    for protocol in [b"h3".as_slice(), b"longhaul/1"] {
        let refusal = refusal(server, protocol);
        assert!(matches!(refusal, ConnectionError::ConnectionClosed(_)), "{refusal}");
    }
    // This version is reserved for version negotiation (RFC 9000 section 15).
    let mut unknown = vec![0; 1200];
    unknown[..6].copy_from_slice(&[0xc0, 0x0a, 0x1a, 0x2a, 0x3a, 8]);
    let socket = socket();
    socket.send_to(&unknown, server).expect("loopback takes it");
    let mut answer = [0; 2000];
    let len = socket.recv(&mut answer).expect("a version is proposed");
    assert!(len > 7 && answer[0] & 0x80 != 0 && answer[1..5] == [0; 4], "{:?}", &answer[..len]);
    write(&pair.here.join("file"), b"f");
    pair.cp(&[&"file", &pair.at("")]).summary();
}
