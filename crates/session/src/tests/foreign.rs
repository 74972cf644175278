//! Connections of other programs are dropped, counted and harmless.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

async fn until(condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, waiting).await.expect("the condition becomes true");
}

async fn still_serves(listener: &mut Listener, server: &Identity) {
    for carriers in [Carriers::Quic, Carriers::Tcp] {
        let client = Client::pinned(carriers, server);
        let mut session = client.connect(listener.local_addr()).await.expect("it listens");
        session.write(&3u32).await.expect("open");
        assert_eq!(listener.accept().await.read::<u32>().await, Ok(Some(3)));
    }
}

#[test]
fn bytes_of_other_programs_on_the_tcp_port_are_dropped_and_counted() {
    run(async {
        let server = Identity::generate();
        let mut listener = listen(LOOPBACKS[0], &server);
        let random: Vec<u8> =
            (0..2000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let cases: [&[u8]; 8] = [
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            b"SSH-2.0-OpenSSH_9.6\r\n",
            &random,
            b"lhdata/2: the first letter of a lane, and more bytes than its preface has",
            b"lane",
            b"lane: a word, but no number of lanes",
            b"lane0123456789abcdef\x02\x02",
            &[0x16, 3, 1, 0xff, 0xff, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
        ];
        for (at, bytes) in cases.iter().enumerate() {
            let mut stream = TcpStream::connect(listener.local_addr()).await.expect("it listens");
            stream.write_all(bytes).await.expect("open");
            stream.shutdown().await.expect("open");
            let _ = stream.read_to_end(&mut Vec::new()).await;
            until(|| listener.dropped().foreign == at as u64 + 1).await;
        }
        still_serves(&mut listener, &server).await;
    });
}

#[test]
fn tls_clients_without_raw_public_keys_or_longhaul_alpn_are_dropped_and_counted() {
    run(async {
        let server = Identity::generate();
        let mut listener = listen(LOOPBACKS[0], &server);
        let me = Identity::generate();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        // Three TLS clients: one without raw public keys, one with another protocol in ALPN, one
        // without ALPN.
        let web = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("it has suites of TLS 1.3")
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        let (mut other, _) = tls::client(&me, tls::Expect::Anyone, true);
        other.alpn_protocols = vec![b"h2".to_vec()];
        let (mut mute, _) = tls::client(&me, tls::Expect::Anyone, true);
        mute.alpn_protocols.clear();
        for (at, config) in [web, other, mute].into_iter().enumerate() {
            let stream = TcpStream::connect(listener.local_addr()).await.expect("it listens");
            let name = rustls::pki_types::ServerName::try_from("localhost").expect("a name");
            let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
            if let Ok(mut stream) = connector.connect(name, stream).await {
                let ended = stream.read(&mut [0]).await;
                assert!(matches!(ended, Ok(0) | Err(_)), "the server sends it nothing");
            }
            until(|| listener.dropped().foreign == at as u64 + 1).await;
        }
        still_serves(&mut listener, &server).await;
    });
}

#[test]
fn silent_and_stalling_connections_keep_nobody_out_and_are_dropped_in_the_end() {
    run(async {
        let server = Identity::generate();
        let mut settings = settings(Carriers::Both);
        settings.handshake = Duration::from_secs(2);
        settings.waiting = 64;
        let address = SocketAddr::new(LOOPBACKS[0], 0);
        let mut listener = Listener::bind(address, &server, &settings).expect("loopback");
        let mut silent = Vec::new();
        for number in 0..200 {
            let to = listener.local_addr();
            let mut stream = TcpStream::connect(to).await.expect("it listens");
            if number % 2 == 1 {
                stream.write_all(&[0x16, 3, 1, 2, 0, 1, 0]).await.expect("open");
            }
            silent.push(stream);
        }
        still_serves(&mut listener, &server).await;
        until(|| listener.dropped().evicted >= 136).await;
        until(|| {
            let dropped = listener.dropped();
            dropped.evicted + dropped.timed_out >= 200
        })
        .await;
        for stream in &mut silent {
            assert_eq!(stream.read(&mut [0]).await.unwrap_or(0), 0, "the server closed it");
        }
    });
}

#[test]
fn quic_clients_with_another_alpn_are_dropped_and_counted() {
    run(async {
        let server = Identity::generate();
        let mut listener = listen(LOOPBACKS[0], &server);
        let (mut config, _) = tls::client(&Identity::generate(), tls::Expect::Anyone, true);
        config.alpn_protocols = vec![b"h3".to_vec()];
        let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(config).expect("a suite");
        let config = quinn::ClientConfig::new(Arc::new(crypto));
        let endpoint = quinn::Endpoint::client((LOOPBACKS[0], 0).into()).expect("a free port");
        let connecting = endpoint.connect_with(config, listener.local_addr(), "localhost");
        assert!(connecting.expect("a valid name").await.is_err(), "it speaks another protocol");
        until(|| listener.dropped().foreign == 1).await;
        still_serves(&mut listener, &server).await;
    });
}

const CROWD: usize = 100;

#[test]
fn a_hundred_clients_from_one_address_are_all_served() {
    run(async {
        let server = Identity::generate();
        let mut listener = listen(LOOPBACKS[0], &server);
        let mut clients = tokio::task::JoinSet::new();
        for _ in 0..CROWD {
            let (client, to) = (Client::pinned(Carriers::Quic, &server), listener.local_addr());
            clients.spawn(async move {
                let mut session = client.connect(to).await.expect("served");
                session.write(&1u32).await.expect("open");
                session
            });
        }
        let mut sessions = Vec::new();
        for _ in 0..CROWD {
            sessions.push(listener.accept().await);
        }
        assert_eq!(clients.join_all().await.len(), sessions.len());
    });
}

#[test]
fn junk_on_the_udp_port_disturbs_no_client() {
    run(async {
        let server = Identity::generate();
        let mut listener = listen(LOOPBACKS[0], &server);
        let socket = UdpSocket::bind((LOOPBACKS[0], 0)).expect("a free port");
        for n in 0..300u32 {
            let length = (n as usize * 37) % 1400;
            let junk: Vec<u8> = (0..length as u32).map(|i| ((i * n * 97) >> 3) as u8).collect();
            socket.send_to(&junk, listener.local_addr()).expect("loopback takes it");
        }
        still_serves(&mut listener, &server).await;
    });
}

#[test]
fn frames_too_long_or_cut_short_or_with_invalid_messages_are_errors() {
    run(async {
        for carriers in [Carriers::Quic, Carriers::Tcp] {
            let (near, mut far) = pair(carriers, LOOPBACKS[0]).await;
            let (mut writer, _reader) = near.split();
            writer.write_raw(&[0x7f, 0xff, 0xff, 0xff, 1, 2, 3]).await;
            let error = far.read::<u32>().await.expect_err("too long");
            assert_eq!(error.kind, Kind::Unreachable);
            assert!(error.what.contains("1048576"), "{error}");

            let (near, mut far) = pair(carriers, LOOPBACKS[0]).await;
            let (mut writer, reader) = near.split();
            writer.write_raw(&[0, 0, 0, 100, 1, 2, 3]).await;
            drop((writer, reader));
            let error = far.read::<u32>().await.expect_err("cut short");
            assert_eq!(error.kind, Kind::Lost);

            let (near, mut far) = pair(carriers, LOOPBACKS[0]).await;
            let (mut writer, _reader) = near.split();
            writer.write_raw(&[0, 0, 0, 2, 0xff, 0xff]).await;
            let error = far.read::<u32>().await.expect_err("no protobuf");
            assert!(error.what.contains("invalid message"), "{error}");
        }
    });
}
