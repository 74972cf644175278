//! Trust, refusals by either side, and the errors on both sides.

use super::*;
use crate::known::{KnownServers, server_name};

#[test]
fn a_server_with_another_id_than_the_pinned_one_is_refused_and_the_error_names_both() {
    run(async {
        for carriers in [Carriers::Quic, Carriers::Tcp] {
            let server = Identity::generate();
            let listener = listen(LOOPBACKS[0], &server);
            let pinned = Identity::generate();
            let client = Client::pinned(carriers, &pinned);
            let error = client.connect(listener.local_addr()).await.expect_err("another id");
            assert_eq!(error.kind, Kind::Unreachable);
            for id in [server.id(), pinned.id()] {
                assert!(error.what.contains(&id.to_string()), "{error}");
            }
        }
    });
}

#[test]
fn a_pin_that_is_no_id_is_a_usage_error() {
    run(async {
        let mut client = Client::new(Carriers::Both);
        client.trust = client.trust.only("lh1:typo".into());
        let error = client.connect("127.0.0.1:9".parse().expect("one")).await.expect_err("typo");
        assert_eq!(error.kind, Kind::Usage);
    });
}

#[test]
fn a_new_server_needs_one_confirmation() {
    run(async {
        for carriers in [Carriers::Quic, Carriers::Tcp] {
            let server = Identity::generate();
            let listener = listen(LOOPBACKS[0], &server);
            let client = Client::new(carriers);
            let user = User::who(true);
            for _ in 0..2 {
                let session = client.connect_as(&user, listener.local_addr()).await;
                assert_eq!(session.expect("trusted").peer, server.id());
            }
            let name = server_name("127.0.0.1", listener.local_addr().port());
            assert_eq!(user.asked(), [format!("{name} {}", server.id())]);
        }
    });
}

#[test]
fn a_new_server_that_the_user_does_not_accept_is_not_remembered() {
    run(async {
        let mut listener = listen(LOOPBACKS[0], &Identity::generate());
        let client = Client::new(Carriers::Both);
        let user = User::who(false);
        let error = client.connect_as(&user, listener.local_addr()).await.expect_err("refused");
        assert_eq!((error.kind, user.asked().len()), (Kind::Unreachable, 1));
        assert!(!KnownServers::new(client.folder.path()).path().exists());
        let no_session = tokio::time::timeout(Duration::from_millis(50), listener.accept()).await;
        assert!(no_session.is_err(), "the client sent no message");
    });
}

#[test]
fn accept_new_remembers_without_asking() {
    run(async {
        let server = Identity::generate();
        let listener = listen(LOOPBACKS[0], &server);
        let mut client = Client::new(Carriers::Both);
        client.trust.accept_new = true;
        let user = User::who(false);
        client.connect_as(&user, listener.local_addr()).await.expect("accepted");
        assert!(user.asked().is_empty());
        let name = server_name("127.0.0.1", listener.local_addr().port());
        let known = KnownServers::new(client.folder.path()).find(&name).expect("readable");
        assert_eq!(known.map(|known| known.id), Some(server.id()));
    });
}

#[test]
fn a_changed_key_is_refused_with_a_warning_even_with_accept_new() {
    run(async {
        let listener = listen(LOOPBACKS[0], &Identity::generate());
        let mut client = Client::new(Carriers::Both);
        client.trust.accept_new = true;
        let name = server_name("127.0.0.1", listener.local_addr().port());
        let before = Identity::generate().id();
        KnownServers::new(client.folder.path()).remember(&name, before).expect("writable");
        let user = User::who(true);
        let error = client.connect_as(&user, listener.local_addr()).await.expect_err("changed");
        assert_eq!(error.kind, Kind::Unreachable);
        for part in ["HAS CHANGED", "known_servers line 2", &before.to_string()] {
            assert!(error.what.contains(part), "{part} is not in {error}");
        }
        assert!(user.asked().is_empty());
    });
}

#[test]
fn both_sides_report_versions_without_overlap() {
    run(async {
        for carriers in [Carriers::Quic, Carriers::Tcp] {
            let server = Identity::generate();
            let listener = listen(LOOPBACKS[0], &server);
            let told = Arc::new(Mutex::new(String::new()));
            let telling = told.clone();
            listener.on_refusal(move |_, error| {
                *telling.lock().expect("no panic") = error.to_string();
            });
            let mut client = Client::pinned(carriers, &server);
            client.settings.versions = 7..=9;
            let mut session = client.connect(listener.local_addr()).await.expect("it listens");
            session.write(&1u32).await.expect("open");
            let error = session.read::<u32>().await.expect_err("no common version");
            assert_eq!(error.kind, Kind::Unreachable);
            let heard = told.lock().expect("no panic").clone();
            for text in [error.to_string(), heard] {
                assert!(text.contains("version 2") && text.contains("versions 7 to 9"), "{text}");
            }
            assert_eq!(listener.dropped().versions, 1);
        }
    });
}

#[test]
fn the_reason_of_a_refusal_reaches_the_client() {
    run(async {
        for carriers in [Carriers::Quic, Carriers::Tcp] {
            let (mut near, far) = pair(carriers, LOOPBACKS[0]).await;
            let error = Error::new(Kind::Unreachable, "your id is not allowed here");
            let closing = tokio::spawn(async move { far.close(Some(error)).await });
            let heard = near.read::<u32>().await.expect_err("turned away");
            assert!(heard.what.contains("not allowed here"), "{heard}");
            drop(near);
            closing.await.expect("no panic").expect("delivered");
        }
    });
}

#[test]
fn the_listener_returns_a_session_only_after_the_clients_hello() {
    run(async {
        let server = Identity::generate();
        let mut listener = listen(LOOPBACKS[0], &server);
        let client = Client::pinned(Carriers::Both, &server);
        let mut session = client.connect(listener.local_addr()).await.expect("it listens");
        let waited = tokio::time::timeout(Duration::from_millis(50), listener.accept()).await;
        assert!(waited.is_err(), "the client has not sent its Hello");
        session.write(&5u32).await.expect("open");
        let mut far = listener.accept().await;
        assert_eq!(far.read::<u32>().await, Ok(Some(5)), "the Hello and the message arrived");
    });
}

#[test]
fn look_returns_the_id_of_the_server_or_an_error_if_nobody_answers() {
    run(async {
        for carriers in [Carriers::Quic, Carriers::Tcp] {
            let server = Identity::generate();
            let listener = listen(LOOPBACKS[0], &server);
            let (client, to) = (Client::new(carriers), listener.local_addr());
            let found = connect::look(&[to], &client.identity, &client.settings).await;
            assert_eq!(found, Ok(server.id()));
        }
        let (udp, tcp) = listen::bind_both(SocketAddr::new(LOOPBACKS[0], 0)).expect("free ports");
        let to = udp.local_addr().expect("bound");
        drop((udp, tcp));
        let client = Client::new(Carriers::Tcp);
        let error = connect::look(&[to], &client.identity, &client.settings).await;
        assert!(error.expect_err("nobody").ends_with("connection refused"));
    });
}
