//! Clients without rights, clients that make no request, and clients that wait until the listener
//! knows the admitted ids.

use super::*;

fn listener(server: &Identity, client: &Client, settings: &Settings) -> Listener {
    let listener = Listener::bind(SocketAddr::new(LOOPBACKS[0], 0), server, settings);
    let (listener, admitted) = (listener.expect("loopback"), client.identity.id());
    listener.admit_by(move |id| match *id == admitted {
        true => Ok(()),
        false => Err(Error::new(Kind::Unreachable, format!("{id} is not allowed here"))),
    });
    listener
}

/// Sends the bytes `said` as a client without rights. Returns the error that this client gets.
async fn refused(server: &Identity, to: SocketAddr, carriers: Carriers, said: &[u8]) -> Error {
    let session = Client::pinned(carriers, server).connect(to).await.expect("it listens");
    let (mut writer, mut reader) = session.split();
    writer.write_raw(said).await;
    reader.read::<u32>().await.expect_err("it has no rights")
}

#[test]
fn a_client_without_rights_is_refused_for_every_request() {
    run(async {
        let server = Identity::generate();
        let client = Client::pinned(Carriers::Both, &server);
        let mut listener = listener(&server, &client, &settings(Carriers::Both));
        let to = listener.local_addr();
        // Only a hello; a message; too long a message; an incomplete message.
        for said in [&[][..], &[0, 0, 0, 1, 8], &[0x7f; 4], &[0, 0, 1, 0, 8]] {
            for carriers in [Carriers::Quic, Carriers::Tcp] {
                let error = refused(&server, to, carriers, said).await;
                assert!(error.what.contains("is not allowed here"), "{error}");
            }
        }
        assert_eq!(listener.dropped().unauthorised, 8);
        let mut session = client.connect(to).await.expect("it listens");
        session.write(&3u32).await.expect("open");
        let first = listener.accept().await;
        assert_eq!(first.peer, client.identity.id(), "a refused client became a session");
    });
}

#[test]
fn refusals_make_a_network_pause_but_an_allowed_client_of_the_network_gets_in() {
    run(async {
        let server = Identity::generate();
        let client = Client::pinned(Carriers::Quic, &server);
        let mut listener = listener(&server, &client, &settings(Carriers::Both));
        let to = listener.local_addr();
        for _ in 0..2 {
            for _ in 0..15 {
                refused(&server, to, Carriers::Tcp, &[]).await;
            }
            let mut session = client.connect(to).await.expect("nobody has to pause yet");
            session.write(&3u32).await.expect("open");
            listener.accept().await;
        }
        assert_eq!((listener.dropped().unauthorised, listener.dropped().barred), (30, 0));
        // The charge for each refused handshake fades with time. So the network may have to pause
        // only after more than twenty of these handshakes.
        let mut strangers = 0;
        while listener.dropped().barred == 0 {
            let stranger = Client::pinned(Carriers::Tcp, &server);
            let Ok(session) = stranger.connect(to).await else { break };
            let (mut writer, mut reader) = session.split();
            writer.write_raw(&[]).await;
            let _ = reader.read::<u32>().await;
            strangers += 1;
            assert!(strangers < 200, "nobody has to pause");
        }
        assert!(strangers > 20, "{strangers}");
        // A network that has to pause may start one handshake a second. A refused client may have
        // used this handshake, so `client` may have to send its first packet again.
        let mut session = client.connect(to).await.expect("one handshake a second is allowed");
        session.write(&3u32).await.expect("open");
        assert_eq!(listener.accept().await.peer, client.identity.id());
        let barred = listener.dropped().barred;
        for _ in 0..15 {
            refused(&server, to, Carriers::Tcp, &[]).await;
        }
        assert_eq!(listener.dropped().barred, barred, "the charge is cleared");
    });
}

#[test]
fn a_session_without_a_request_gives_up_its_place_to_a_newcomer() {
    run(async {
        const PLACES: usize = 4;
        for carriers in [Carriers::Quic, Carriers::Tcp] {
            let server = Identity::generate();
            let settings = Settings { waiting: PLACES, ..settings(Carriers::Both) };
            let client = Client::pinned(carriers, &server);
            let mut listener = listener(&server, &client, &settings);
            let (mut near, mut far) = (Vec::new(), Vec::new());
            for _ in 0..=PLACES {
                let session = client.connect(listener.local_addr()).await.expect("it listens");
                let (mut writer, reader) = session.split();
                writer.write_raw(&[]).await;
                near.push((writer, reader));
                far.push(listener.accept().await);
            }
            let error = far[0].first::<u32>().await.expect_err("its place was needed");
            assert!(error.what.contains("needed the place for another client"), "{error}");
            near[1].0.write(&5u32).await.expect("open");
            assert_eq!(far[1].first::<u32>().await, Ok(Some(5)));
            assert_eq!(listener.dropped().evicted, 1);
        }
    });
}

#[test]
fn a_client_that_knocks_learns_whether_it_is_admitted() {
    run(async {
        for carriers in [Carriers::Quic, Carriers::Tcp] {
            let server = Identity::generate();
            let mut client = Client::pinned(carriers, &server);
            client.settings.streams = true;
            let mut listener = listener(&server, &client, &settings(Carriers::Both));
            let to = listener.local_addr();
            let near = client.connect(to).await.expect("it listens");
            let _kept = near.connection().expect("it was asked for");
            // A client knocks if it ends its first stream without a request.
            let far = async {
                let mut far = listener.accept().await;
                let came = far.read::<u32>().await;
                far.close(None).await.expect("the other side has ended");
                came
            };
            assert_eq!(tokio::join!(near.knock(), far), (Ok(()), Ok(None)));
            let stranger = Client::pinned(carriers, &server).connect(to).await;
            let error = stranger.expect("it listens").knock().await.expect_err("it has no rights");
            assert!(error.what.contains("is not allowed here"), "{error}");
        }
    });
}

#[test]
fn a_listener_reports_arrivals_and_holds_clients_until_it_knows_the_admitted_ids() {
    run(async {
        let server = Identity::generate();
        let client = Client::pinned(Carriers::Both, &server);
        let mut listener = listener(&server, &client, &settings(Carriers::Both));
        let (arrived, mut arrivals) = tokio::sync::mpsc::unbounded_channel();
        listener.on_arrival(move |ip| {
            let _ = arrived.send(ip);
        });
        listener.hold(true);
        let mut near = client.connect(listener.local_addr()).await.expect("it listens");
        near.write(&1u32).await.expect("open");
        assert_eq!(arrivals.recv().await, Some(LOOPBACKS[0]));
        let held = tokio::time::timeout(Duration::from_millis(50), listener.accept()).await;
        assert!(held.is_err(), "it waits");
        listener.hold(false);
        assert_eq!(listener.accept().await.read::<u32>().await, Ok(Some(1)));
    });
}
