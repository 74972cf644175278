//! Streams of one connection are independent.

use tokio::time::timeout;

use super::*;

const EACH: [Carriers; 2] = [Carriers::Quic, Carriers::Tcp];

/// Returns a server, and both ends of the first session with it.
async fn open(carriers: Carriers) -> (Listener, Session, Session) {
    let server = Identity::generate();
    let mut listener = listen(LOOPBACKS[0], &server);
    let mut client = Client::pinned(carriers, &server);
    client.settings.streams = true;
    let mut near = client.connect(listener.local_addr()).await.expect("a server that listens");
    near.ask_for("first", 3);
    near.write(&1u32).await.expect("an open session");
    let mut far = listener.accept().await;
    assert_eq!(far.asked(), ("first", 3));
    assert_eq!(far.read::<u32>().await, Ok(Some(1)));
    (listener, near, far)
}

#[test]
fn streams_name_their_services_and_share_neither_messages_nor_keys() {
    run(async {
        for carriers in EACH {
            let (mut listener, mut near, mut far) = open(carriers).await;
            let connection = near.connection().expect("it was asked for");
            let mut keys = vec![(near.export(b"l", b""), far.export(b"l", b""))];
            for number in 2..6u32 {
                let mut mine = connection.open(&format!("service {number}"), number).await.unwrap();
                mine.write(&number).await.unwrap();
                let mut theirs = listener.accept().await;
                assert_eq!(theirs.asked(), (&format!("service {number}")[..], number));
                assert_eq!(theirs.peer, far.peer);
                assert_eq!(theirs.read::<u32>().await, Ok(Some(number)));
                theirs.write(&(number + 100)).await.unwrap();
                assert_eq!(mine.read::<u32>().await, Ok(Some(number + 100)));
                keys.push((mine.export(b"l", b""), theirs.export(b"l", b"")));
                let closing = tokio::spawn(theirs.close(None));
                assert_eq!(mine.read::<u32>().await, Ok(None));
                mine.close(None).await.unwrap();
                closing.await.unwrap().unwrap();
            }
            for (at, (mine, theirs)) in keys.iter().enumerate() {
                assert_eq!(mine, theirs);
                assert!(keys[..at].iter().all(|(other, _)| other != mine));
            }
            far.write(&7u32).await.expect("the first stream outlives the others");
            assert_eq!(near.read::<u32>().await, Ok(Some(7)));
        }
    });
}

#[test]
fn an_unread_stream_does_not_block_others() {
    run(async {
        for carriers in EACH {
            let (mut listener, near, mut far) = open(carriers).await;
            let connection = near.connection().expect("it was asked for");
            let bulk = vec![7u8; 1 << 19];
            let full = async |session: &mut Session| {
                let mut sent = 0;
                while let Ok(written) =
                    timeout(Duration::from_millis(300), session.write(&bulk)).await
                {
                    written.unwrap();
                    sent += 1;
                    assert!(sent < 100, "unread data are bounded");
                }
            };
            // Blocks a stream in each direction: the client does not read `near`, the server does
            // not read `unread`.
            full(&mut far).await;
            let mut unread = connection.open("", 0).await.unwrap();
            unread.write(&1u32).await.unwrap();
            let _far_unread = listener.accept().await;
            full(&mut unread).await;
            let mut mine = connection.open("", 0).await.unwrap();
            mine.write(&1u32).await.unwrap();
            let mut theirs = listener.accept().await;
            assert_eq!(theirs.read::<u32>().await, Ok(Some(1)));
            let (wrote, came) = tokio::join!(mine.write(&bulk), theirs.read::<Vec<u8>>());
            assert_eq!((wrote, came.unwrap().as_ref()), (Ok(()), Some(&bulk)));
            let (wrote, came) = tokio::join!(theirs.write(&bulk), mine.read::<Vec<u8>>());
            assert_eq!((wrote, came.unwrap().as_ref()), (Ok(()), Some(&bulk)));
            drop(near);
        }
    });
}

#[test]
fn a_connection_delivers_all_written_data_and_ends_with_its_last_stream() {
    run(async {
        for carriers in EACH {
            let (mut listener, near, mut far) = open(carriers).await;
            let connection = near.connection().expect("it was asked for");
            let mut last = connection.open("", 0).await.unwrap();
            drop(connection);
            last.write(&vec![1u8; 100_000]).await.unwrap();
            let mut theirs = listener.accept().await;
            near.leave().await.unwrap();
            assert_eq!(far.read::<u32>().await, Ok(None));
            let closing = tokio::spawn(last.close(None));
            let came = theirs.read::<Vec<u8>>().await.unwrap();
            assert_eq!(came.map(|bytes| bytes.len()), Some(100_000));
            assert_eq!(theirs.read::<u32>().await, Ok(None));
            closing.await.unwrap().unwrap();
            let connection = theirs.connection().expect("the client asked for it");
            assert!(timeout(LONG, connection.accept()).await.expect("it ends").is_none());
        }
    });
}

#[test]
fn streams_beyond_the_limit_wait_with_quic_and_fail_with_tcp() {
    run(async {
        let (mut listener, near, _far) = open(Carriers::Quic).await;
        let connection = near.connection().expect("it was asked for");
        let mut streams = Vec::new();
        while let Ok(opened) = timeout(Duration::from_millis(300), connection.open("", 0)).await {
            let mut stream = opened.unwrap();
            stream.write(&1u32).await.unwrap();
            streams.push((stream, listener.accept().await));
        }
        // The client's first stream counts too; QUIC may allow an eighth more.
        let most = streams.len() + 1;
        assert!((mux::STREAMS..=mux::STREAMS * 9 / 8).contains(&most), "{most}");
        // QUIC announces ended streams in groups, so the end of a single stream does not always
        // admit another stream.
        for (stream, theirs) in streams.drain(..3) {
            let closing = tokio::spawn(theirs.close(None));
            stream.close(None).await.unwrap();
            closing.await.unwrap().unwrap();
        }
        connection.open("", 0).await.unwrap();
        let (_listener, near, _far) = self::open(Carriers::Tcp).await;
        let connection = near.connection().expect("it was asked for");
        let mut streams = Vec::new();
        for _ in 1..mux::STREAMS {
            streams.push(connection.open("", 0).await.unwrap());
        }
        assert_eq!(connection.open("", 0).await.unwrap_err().kind, Kind::Lost);
    });
}

#[test]
fn a_connection_for_several_streams_reports_refusals_and_the_lack_of_a_common_version() {
    run(async {
        for carriers in EACH {
            let server = Identity::generate();
            let listener = listen(LOOPBACKS[0], &server);
            listener.admit_by(|_| Err(Error::new(Kind::Unreachable, "nobody is allowed here")));
            let mut client = Client::pinned(carriers, &server);
            client.settings.streams = true;
            let mut near = client.connect(listener.local_addr()).await.unwrap();
            let _ = near.write(&1u32).await;
            let error = near.read::<u32>().await.unwrap_err();
            assert_eq!(error.kind, Kind::Unreachable, "{error}");
            let server_says = format!("{} says: nobody is allowed here", listener.local_addr());
            assert_eq!(error.what, server_says, "the error names the server");

            let other = Settings { versions: 9..=9, ..settings(Carriers::Both) };
            let to = SocketAddr::new(LOOPBACKS[0], 0);
            let listener = Listener::bind(to, &server, &other).unwrap();
            let mut near = client.connect(listener.local_addr()).await.unwrap();
            let _ = near.write(&1u32).await;
            let error = near.read::<u32>().await.unwrap_err();
            assert!(error.what.contains("no common protocol version"), "{error}");
        }
    });
}

#[test]
fn a_further_stream_of_a_client_that_has_lost_its_rights_counts_as_refused() {
    run(async {
        for carriers in EACH {
            let (listener, near, _far) = open(carriers).await;
            listener.admit_by(|_| Err(Error::new(Kind::Unreachable, "nobody is allowed here")));
            let (tell, reports) = std::sync::mpsc::channel();
            listener.on_refusal(move |_, error| tell.send(error.what.clone()).expect("it waits"));
            let connection = near.connection().expect("it was asked for");
            let mut stream = connection.open("second", 1).await.expect("the connection is open");
            let _ = stream.write(&1u32).await;
            let error = stream.read::<u32>().await.expect_err("it has no rights");
            assert!(error.what.ends_with("nobody is allowed here"), "{error}");
            assert_eq!(listener.dropped().unauthorised, 1);
            assert_eq!(reports.try_iter().collect::<Vec<_>>(), ["nobody is allowed here"]);
        }
    });
}

#[test]
fn a_connection_ends_only_when_one_side_drops_it() {
    run(async {
        for carriers in EACH {
            let (_listener, near, far) = open(carriers).await;
            let ours = near.connection().expect("it was asked for");
            let theirs = far.connection().expect("the client asked for it");
            for open in [&ours, &theirs] {
                let ended = timeout(Duration::from_millis(50), open.ended()).await;
                assert!(ended.is_err(), "it ended by itself");
            }
            drop((near, ours));
            timeout(LONG, theirs.ended()).await.expect("it ends");
        }
    });
}

#[test]
fn a_closed_connection_ends_at_the_other_side_although_this_side_stops_immediately() {
    run(async {
        let server = Identity::generate();
        let mut listener = listen(LOOPBACKS[0], &server);
        let (to, mut client) = (listener.local_addr(), Client::pinned(Carriers::Quic, &server));
        client.settings.streams = true;
        let stopped = std::thread::spawn(move || {
            // The runtime's tasks end with the closure.
            run(async {
                let mut near = client.connect(to).await.expect("a server that listens");
                near.write(&1u32).await.expect("an open session");
                let connection = near.connection().expect("it was asked for");
                near.leave().await.expect("an open session");
                connection.close().await;
            });
        });
        let mut far = listener.accept().await;
        assert_eq!(far.read::<u32>().await, Ok(Some(1)));
        let theirs = far.connection().expect("the client asked for it");
        drop(far);
        timeout(Duration::from_secs(5), theirs.ended()).await.expect("the close arrived");
        stopped.join().expect("no panic");
    });
}

/// Runs a client that opens a stream, ends its side if `is_done`, and freezes until the server has
/// sent 8 MiB and ended the stream. Returns the result of the server's `close`, whether another
/// stream can send afterwards, and how many parts of the data the client reads before the end.
async fn end_with_a_frozen_client(is_done: bool) -> (Result<(), Error>, bool, Result<u32, Error>) {
    let server = Identity::generate();
    let mut listener = listen(LOOPBACKS[0], &server);
    let (to, mut client) = (listener.local_addr(), Client::pinned(Carriers::Quic, &server));
    client.settings.streams = true;
    let (thaw, frozen) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let mut parts = 0;
        let mut end = Ok(None);
        run(async {
            let mut near = client.connect(to).await.expect("a server that listens");
            near.write(&1u32).await.expect("an open session");
            let connection = near.connection().expect("it was asked for");
            let (mut writer, mut reader) = connection.open("", 0).await.unwrap().split();
            writer.write(&2u32).await.unwrap();
            if is_done {
                writer.finish().await.unwrap();
            }
            assert_eq!(reader.read::<u32>().await, Ok(Some(3)));
            // While this blocks, the runtime acknowledges nothing.
            assert!(frozen.recv().is_err());
            end = reader.read::<Vec<u8>>().await;
            while let Ok(Some(_)) = end {
                parts += 1;
                end = reader.read::<Vec<u8>>().await;
            }
        });
        end.map(|_| parts)
    });
    let mut other = listener.accept().await;
    assert_eq!(other.read::<u32>().await, Ok(Some(1)));
    let mut bulk = listener.accept().await;
    assert_eq!(bulk.read::<u32>().await, Ok(Some(2)));
    if is_done {
        assert_eq!(bulk.read::<u32>().await, Ok(None));
    }
    bulk.expect_bulk();
    bulk.write(&3u32).await.unwrap();
    let part = vec![7u8; 1 << 19];
    for _ in 0..16 {
        bulk.write(&part).await.unwrap();
    }
    let ended = bulk.close(None).await;
    let sends = timeout(Duration::from_secs(1), other.write(&4u32)).await.is_ok();
    drop(thaw);
    let read = tokio::task::spawn_blocking(|| thread.join().expect("no panic"));
    (ended, sends, read.await.expect("no panic"))
}

#[test]
fn the_server_keeps_no_data_of_a_stream_for_a_client_that_has_ended_its_side() {
    run(async {
        let (ended, sends, read) = end_with_a_frozen_client(true).await;
        assert_eq!(ended.expect_err("the client acknowledged nothing").kind, Kind::Lost);
        assert!(sends, "the data of the ended stream are still in memory");
        assert!(read.is_err(), "{read:?}");
    });
}

#[test]
fn a_client_that_is_slow_gets_all_data_of_a_stream_that_the_server_has_ended() {
    run(async {
        let (ended, _, read) = end_with_a_frozen_client(false).await;
        assert_eq!(ended.expect_err("the wait is over").kind, Kind::Lost);
        assert_eq!(read, Ok(16));
    });
}

#[test]
fn the_send_window_for_files_lasts_as_long_as_a_stream_sends_files() {
    run(async {
        let (_listener, near, _far) = open(Carriers::Quic).await;
        let connection = near.connection().unwrap();
        let window = || near.keeper().unwrap().send_window();
        // The window has 1 MiB at first, 32 MiB while a stream sends files, and otherwise 4 MiB
        // while a stream sends much other data.
        assert_eq!(window(), 1 << 20);
        let (one, two) = (connection.open("", 0).await.unwrap(), connection.open("", 0).await);
        let two = two.unwrap();
        [&one, &one, &two].into_iter().for_each(Session::expect_bulk);
        assert_eq!(window(), 32 << 20);
        let other = connection.open("", 0).await.unwrap();
        other.expect_much();
        drop(one);
        assert_eq!(window(), 32 << 20, "another stream sends files");
        drop(two);
        assert_eq!(window(), 4 << 20);
    });
}
