//! QUIC and TLS over TCP provide the same functions.

use std::time::Instant;

use super::*;

const EACH: [(Carriers, &str); 2] = [(Carriers::Quic, "quic"), (Carriers::Tcp, "tls")];

#[test]
fn either_carrier_gives_ids_keys_and_messages_both_ways() {
    run(async {
        for (carriers, name) in EACH {
            for ip in LOOPBACKS {
                let (mut near, mut far) = pair(carriers, ip).await;
                assert_eq!((near.carrier, far.carrier), (name, name));
                assert_eq!(near.remote.ip(), ip);
                assert_eq!(far.remote.ip(), ip);
                assert_eq!(far.local_ip, Some(ip));
                assert!(near.rtt.is_some());
                let key = near.export(b"label", b"context");
                assert_eq!(key, far.export(b"label", b"context"));
                assert_ne!(key, far.export(b"label", b"other"));
                far.write(&7u64).await.expect("open");
                assert_eq!(near.read::<u64>().await, Ok(Some(7)));
                let closing = tokio::spawn(far.close(None));
                assert_eq!(near.read::<u64>().await, Ok(None));
                assert_eq!(near.read::<u64>().await, Ok(None), "an end stays an end");
                near.close(None).await.expect("the other side has ended already");
                closing.await.expect("no panic").expect("delivered");
            }
        }
    });
}

#[test]
fn a_connection_that_took_a_second_to_open_reports_the_round_trip_of_its_path() {
    run(async {
        let server = Identity::generate();
        let settings = settings(Carriers::Tcp);
        // One connection fills the queue: the next one loses its first packet.
        let listener = tokio::net::TcpSocket::new_v4().expect("a socket");
        listener.bind(SocketAddr::new(LOOPBACKS[0], 0)).expect("loopback");
        let listener = listener.listen(0).expect("it listens");
        let to = listener.local_addr().expect("it is bound");
        let _first = tokio::net::TcpStream::connect(to).await.expect("there is room for one");
        let begun = Instant::now();
        let client = Identity::generate();
        let near = stream::connect(to, &client, tls::Expect::Only(server.id()), &settings);
        let far = async {
            let _first = listener.accept().await.expect("the one that fills the queue");
            let (stream, remote) = listener.accept().await.expect("the second");
            let waited = begun.elapsed();
            let config = Arc::new(tls::server(&server, settings.fast_aes));
            let rtt = RttWatch::once(None);
            let under = stream::Under { remote, local_ip: None, carrier: "tls", rtt, tcp: None };
            (stream::server(stream, under, &config, &settings).await, waited)
        };
        // `join!` polls `near` first, so the queue is still full when `near` connects.
        let (near, (far, waited)) = tokio::join!(near, far);
        assert!(waited >= Duration::from_millis(900), "{waited:?}");
        let rtt = near.expect("a session").rtt.expect("it is measured");
        assert!(rtt < waited / 2, "{rtt:?} of {waited:?}");
        drop(far.expect("a session"));
    });
}

#[test]
fn each_side_knows_the_other_by_its_key() {
    run(async {
        for (carriers, _) in EACH {
            let server = Identity::generate();
            let mut listener = listen(LOOPBACKS[0], &server);
            let client = Client::pinned(carriers, &server);
            let mut near = client.connect(listener.local_addr()).await.expect("it listens");
            near.write(&1u32).await.expect("open");
            let far = listener.accept().await;
            assert_eq!(near.peer, server.id());
            assert_eq!(far.peer, client.identity.id());
        }
    });
}

#[test]
fn both_sides_know_whether_both_have_aes_in_hardware() {
    run(async {
        for (carriers, _) in EACH {
            for (near_has, far_has) in [(true, true), (true, false), (false, true), (false, false)]
            {
                let server = Identity::generate();
                let settings = Settings { fast_aes: far_has, ..settings(Carriers::Both) };
                let mut listener =
                    Listener::bind(SocketAddr::new(LOOPBACKS[0], 0), &server, &settings)
                        .expect("loopback can be listened on");
                let mut client = Client::pinned(carriers, &server);
                client.settings.fast_aes = near_has;
                let mut near = client.connect(listener.local_addr()).await.expect("it listens");
                near.write(&1u32).await.expect("open");
                let far = listener.accept().await;
                let known = (near.both_fast_aes, far.both_fast_aes);
                assert_eq!(known, (near_has && far_has, near_has && far_has));
            }
        }
    });
}

#[test]
fn two_sessions_share_no_key() {
    run(async {
        for (carriers, _) in EACH {
            let (one, _far) = pair(carriers, LOOPBACKS[0]).await;
            let (other, _far) = pair(carriers, LOOPBACKS[0]).await;
            assert_ne!(one.export(b"l", b""), other.export(b"l", b""));
        }
    });
}

#[test]
fn large_messages_arrive_before_the_end_even_if_read_late() {
    run(async {
        for (carriers, _) in EACH {
            let (near, far) = pair(carriers, LOOPBACKS[0]).await;
            let (mut writer, unread) = near.split();
            let big = "x".repeat(frame::MAX_FRAME - 16);
            let expected = big.clone();
            let sending = tokio::spawn(async move {
                for _ in 0..3 {
                    writer.write(&big).await.expect("open");
                }
                writer.close(unread, None).await
            });
            let (writer, mut reader) = far.split();
            for _ in 0..3 {
                tokio::task::yield_now().await;
                let came: Option<String> = reader.read().await.expect("a message");
                assert_eq!(came.map(|text| text.len()), Some(expected.len()));
            }
            assert_eq!(reader.read::<String>().await, Ok(None));
            writer.close(reader, None).await.expect("the other side has ended");
            sending.await.expect("no panic").expect("delivered");
        }
    });
}

#[test]
fn delivered_data_can_be_read_after_the_other_side_has_disconnected() {
    run(async {
        for (carriers, _) in EACH {
            let (mut near, mut far) = pair(carriers, LOOPBACKS[0]).await;
            let text = "z".repeat(60_000);
            near.write(&text).await.expect("open");
            let closing = tokio::spawn(near.close(None));
            if carriers == Carriers::Quic {
                closing.await.expect("no panic").expect("delivered");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert_eq!(far.read().await, Ok(Some(text)));
            assert_eq!(far.read::<String>().await, Ok(None));
        }
    });
}

#[test]
fn the_other_side_reads_the_error_at_the_end() {
    run(async {
        for (carriers, _) in EACH {
            let (mut near, mut far) = pair(carriers, LOOPBACKS[0]).await;
            far.write(&1u32).await.expect("open");
            let full = Error::new(Kind::LocalFile, "/data is full").advise("make room");
            let closing = tokio::spawn(async move { far.close(Some(full)).await });
            assert_eq!(near.read::<u32>().await, Ok(Some(1)));
            let error = near.read::<u32>().await.expect_err("an error was given");
            assert_eq!(error.kind, Kind::RemoteFile);
            assert!(
                error.to_string().ends_with("/data is full; on the other host: make room"),
                "{error}"
            );
            drop(near);
            closing.await.expect("no panic").expect("delivered");
        }
    });
}

#[test]
fn a_session_dropped_by_one_side_is_lost_for_the_other() {
    run(async {
        for (carriers, _) in EACH {
            let (near, mut far) = pair(carriers, LOOPBACKS[0]).await;
            let peer = far.peer.to_string();
            drop(near);
            let error = far.read::<u32>().await.expect_err("nobody is there");
            assert_eq!(error.kind, Kind::Lost);
            assert!(error.what.contains(&peer), "{error}");
            assert_eq!(error.what.ends_with("it went away"), carriers == Carriers::Quic, "{error}");
            let (mut near, far) = pair(carriers, LOOPBACKS[0]).await;
            let lost = format!("the session with {} was lost: ", near.remote);
            drop(far);
            let error = near.read::<u32>().await.expect_err("nobody is there");
            assert!(error.what.starts_with(&lost), "the client knows the server's name: {error}");
        }
    });
}

#[test]
fn a_listener_that_shuts_down_tells_idle_clients_over_quic() {
    run(async {
        let server = Identity::generate();
        let mut listener = listen(LOOPBACKS[0], &server);
        let client = Client::pinned(Carriers::Quic, &server);
        let mut near = client.connect(listener.local_addr()).await.expect("it listens");
        near.write(&1u32).await.expect("open");
        let _far = listener.accept().await;
        listener.shut_down().await;
        let error = near.read::<u32>().await.expect_err("the server is away");
        assert_eq!(error.kind, Kind::Lost);
        assert!(error.what.ends_with("was lost: it is shutting down"), "{error}");
    });
}

#[test]
fn a_read_that_is_cancelled_loses_nothing() {
    run(async {
        for (carriers, _) in EACH {
            let (near, far) = pair(carriers, LOOPBACKS[0]).await;
            let (mut writer, _near_reader) = near.split();
            let (_far_writer, mut reader) = far.split();
            let sending = tokio::spawn(async move {
                for at in 0..200u64 {
                    writer.write(&format!("{at} {}", "y".repeat(5000))).await.expect("open");
                }
                writer
            });
            let mut came = 0u64;
            while came < 200 {
                tokio::select! {
                    biased;
                    message = reader.read::<String>() => {
                        let text = message.expect("open").expect("a message");
                        assert!(text.starts_with(&format!("{came} ")), "{came}: {:.20}", text);
                        came += 1;
                    }
                    () = tokio::task::yield_now() => {}
                }
            }
            sending.await.expect("no panic");
        }
    });
}

#[test]
fn a_session_over_several_tcp_connections_works_like_one_over_a_single_connection() {
    run(async {
        let server = Identity::generate();
        let mut listener = listen(LOOPBACKS[0], &server);
        let mut client = Client::pinned(Carriers::Tcp, &server);
        for (lanes, streams) in [(2, false), (16, false), (200, false), (3, true)] {
            (client.settings.lanes, client.settings.streams) = (lanes, streams);
            let mut near = client.connect(listener.local_addr()).await.expect("it listens");
            let content: Vec<u8> = (0..900_000_u32).map(|n| (n % 251) as u8).collect();
            let accepted = async {
                let mut far = listener.accept().await;
                let came = far.read::<Vec<u8>>().await;
                (far, came)
            };
            let (written, (mut far, came)) = tokio::join!(near.write(&content), accepted);
            assert!(written.is_ok() && came == Ok(Some(content.clone())), "{lanes}");
            assert_eq!((near.carrier, far.carrier), ("tls", "tls"));
            assert_eq!(near.export(b"label", b"context"), far.export(b"label", b"context"));
            let (written, came) = tokio::join!(far.write(&content), near.read::<Vec<u8>>());
            assert!(written.is_ok() && came == Ok(Some(content)), "{lanes}");
            let closing = tokio::spawn(far.close(None));
            assert_eq!(near.read::<u64>().await, Ok(None));
            near.close(None).await.expect("the other side has ended already");
            closing.await.expect("no panic").expect("delivered");
        }
    });
}

/// Returns a server that answers only by TCP, and its unread UDP socket.
fn tcp_alone(server: &Identity) -> (UdpSocket, Listener) {
    let (udp, tcp) = listen::bind_both(SocketAddr::new(LOOPBACKS[0], 0)).expect("free ports");
    let unread = udp.try_clone().expect("a second handle");
    let listener = Listener::from_sockets(udp, tcp, server, &settings(Carriers::Tcp));
    (unread, listener.expect("usable"))
}

#[test]
fn udp_is_preferred_and_a_udp_black_hole_leads_to_tcp() {
    run(async {
        let server = Identity::generate();
        let listener = listen(LOOPBACKS[0], &server);
        let client = Client::pinned(Carriers::Both, &server);
        let session = client.connect(listener.local_addr()).await.expect("it listens");
        assert_eq!(session.carrier, "quic");

        let (_unread, mut listener) = tcp_alone(&server);
        let mut session = client.connect(listener.local_addr()).await.expect("TCP listens");
        assert_eq!(session.carrier, "tls");
        session.write(&1u32).await.expect("open");
        assert_eq!(listener.accept().await.carrier, "tls");
    });
}

#[test]
fn tcp_is_not_tried_before_the_wait_for_udp_has_ended() {
    run(async {
        let server = Identity::generate();
        let (_unread, listener) = tcp_alone(&server);
        let mut client = Client::pinned(Carriers::Both, &server);
        client.settings.handshake = Duration::from_millis(300);
        client.settings.tcp_after = LONG;
        let error = client.connect(listener.local_addr()).await.expect_err("TCP is not tried");
        assert!(error.what.ends_with(": no answer"), "{error}");
    });
}

#[test]
fn udp_may_answer_after_tcp_was_refused() {
    run(async {
        let server = Identity::generate();
        let quic_only = settings(Carriers::Quic);
        let to = SocketAddr::new(LOOPBACKS[0], 0);
        let listener = Listener::bind(to, &server, &quic_only).expect("a free port");
        let mut client = Client::pinned(Carriers::Both, &server);
        client.settings.tcp_after = Duration::ZERO;
        let session = client.connect(listener.local_addr()).await.expect("it listens");
        assert_eq!(session.carrier, "quic");
    });
}

#[test]
fn if_nothing_listens_the_error_names_the_attempts_and_the_ports_to_open() {
    run(async {
        let (udp, tcp) = listen::bind_both(SocketAddr::new(LOOPBACKS[0], 0)).expect("free ports");
        let address = udp.local_addr().expect("bound");
        drop((udp, tcp));
        let mut client = Client::pinned(Carriers::Both, &Identity::generate());
        client.settings.handshake = Duration::from_secs(1);
        let error = client.connect(address).await.expect_err("nothing listens");
        let text = error.to_string();
        assert_eq!(error.kind, Kind::Unreachable);
        let port = address.port();
        for part in [
            format!("UDP {address}: no answer"),
            format!("TCP {address}: connection refused"),
            format!("let UDP {port} and UDP {}", u32::from(port) + 1),
            format!("at least TCP {port}"),
        ] {
            assert!(text.contains(&part), "{part} is not in: {text}");
        }
    });
}

#[test]
fn a_given_socket_is_the_one_used() {
    run(async {
        let server = Identity::generate();
        let mut listener = listen(LOOPBACKS[0], &server);
        let mut client = Client::pinned(Carriers::Quic, &server);
        let socket = UdpSocket::bind((LOOPBACKS[0], 0)).expect("a free port");
        let port = socket.local_addr().expect("bound").port();
        client.settings.socket = Some(Arc::new(socket));
        let mut session = client.connect(listener.local_addr()).await.expect("it listens");
        session.write(&1u32).await.expect("open");
        assert_eq!(listener.accept().await.remote.port(), port);
    });
}

#[test]
fn a_server_at_the_unspecified_ipv6_address_serves_ipv4_and_reports_ipv4_addresses() {
    run(async {
        let server = Identity::generate();
        let mut listener = listen(IpAddr::V6(Ipv6Addr::UNSPECIFIED), &server);
        for (carriers, _) in EACH {
            let client = Client::pinned(carriers, &server);
            let to = SocketAddr::new(LOOPBACKS[0], listener.local_addr().port());
            let mut session = client.connect(to).await.expect("it listens");
            session.write(&1u32).await.expect("open");
            let far = listener.accept().await;
            assert_eq!((far.remote.ip(), far.local_ip), (LOOPBACKS[0], Some(LOOPBACKS[0])));
        }
    });
}

#[test]
fn a_restarted_server_ends_the_sessions_of_the_old_one_immediately() {
    run(async {
        let server = Identity::generate();
        let (near, far) = (settings(Carriers::Quic), settings(Carriers::Quic));
        let (udp, tcp) = listen::bind_both((LOOPBACKS[0], 0).into()).expect("a free port");
        let address = udp.local_addr().expect("bound");
        let old = tokio::task::spawn_blocking({
            let (server, udp) = (server.clone(), udp.try_clone().expect("a second handle"));
            move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.expect("a runtime for the test").block_on(async {
                    let listener = Listener::from_sockets(udp, tcp, &server, &far);
                    let mut listener = listener.expect("sockets that work");
                    let mut session = listener.accept().await;
                    let _: Option<u32> = session.read().await.expect("open");
                    // The old server sends no goodbye, as after kill -9.
                    std::mem::forget((listener, session));
                });
            }
        });
        let mut client = Client::pinned(Carriers::Quic, &server);
        client.settings = near;
        let mut session = client.connect(address).await.expect("it listens");
        session.write(&1u32).await.expect("open");
        old.await.expect("the old server ends");
        let (_, tcp) = listen::bind_both((LOOPBACKS[0], 0).into()).expect("a free port");
        let _new = Listener::from_sockets(udp, tcp, &server, &settings(Carriers::Quic));
        let begun = std::time::Instant::now();
        session.write(&2u32).await.expect("it does not know yet");
        assert!(session.read::<u32>().await.is_err());
        assert!(begun.elapsed() < Settings::default().idle / 2);
    });
}

#[test]
fn each_carrier_reports_its_datagrams_or_segments() {
    run(async {
        let (mut near, mut far) = pair(Carriers::Quic, LOOPBACKS[0]).await;
        let before = near.rtt().received().expect("QUIC counts datagrams");
        far.write(&7u64).await.expect("open");
        assert_eq!(near.read::<u64>().await, Ok(Some(7)));
        assert!(near.rtt().received().expect("QUIC counts datagrams") > before);
        assert!(near.segments().is_none());
        let (near, far) = pair(Carriers::Tcp, LOOPBACKS[0]).await;
        assert_eq!(near.rtt().received(), None);
        let sent = near.segments().expect("this end opened it").now().expect("it is open").sent;
        assert!(sent > 0);
        assert!(far.segments().is_none(), "the other end counts");
    });
}

#[test]
fn data_written_before_the_close_arrive_although_this_side_stops_immediately() {
    run(async {
        for (carriers, _) in EACH {
            let server = Identity::generate();
            let mut listener = listen(LOOPBACKS[0], &server);
            let (to, client) = (listener.local_addr(), Client::pinned(carriers, &server));
            let stopped = std::thread::spawn(move || {
                // The runtime's tasks end with the closure.
                run(async {
                    let mut near = client.connect(to).await.expect("a server that listens");
                    near.write(&1u32).await.expect("an open session");
                    near.leave().await.expect("an open session");
                });
            });
            let mut far = listener.accept().await;
            assert_eq!(far.read::<u32>().await, Ok(Some(1)));
            assert_eq!(far.read::<u32>().await, Ok(None));
            stopped.join().expect("no panic");
        }
    });
}
