//! Pipes (copies of content of unknown length).

use std::fs;
use std::io::Write;
use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::thread;

use longhaul_files::manifest::FileTime;
use longhaul_files::{Kind, Listed, Manifest, Shape};
use longhaul_transfer::control::pipe::{Extent, Pipe, PipeEnd, Piped};
use longhaul_transfer::control::{Direction, Frame, Message, Request};
use longhaul_transfer::error::{Error, ErrorKind};
use longhaul_transfer::session::Session;

use super::Relayed;
use super::liar::{self, block_on, meet};
use crate::rig::{Child, Ended, Host, Pair, bytes, content, remains, wait_until, write};

/// Pipes `sent` to `there`, with 8 MiB of memory.
fn piped(client: &Host, id: &str, there: std::ffi::OsString, sent: Vec<u8>) -> Ended {
    let mut command = client.command(["cp", &format!("--server-id={id}"), "--memory=8Mi", "-"]);
    command.arg(there).stdin(Stdio::piped());
    let mut child = command.spawn().expect("the binary runs");
    let mut stdin = child.stdin.take().expect("it is a pipe");
    // A refused copy need not read its input.
    let writer = thread::spawn(move || drop(stdin.write_all(&sent)));
    let ended = Child::adopt(child).end();
    writer.join().expect("no panic");
    ended
}

#[test]
fn a_large_pipe_is_copied_if_data_datagrams_or_all_of_udp_is_blocked() {
    let rig = Relayed::new(10);
    let sent = bytes((9 << 20) + 7, 3);
    for blocked in [&rig.relay.rules.no_data, &rig.relay.rules.no_control] {
        blocked.store(true, Ordering::Relaxed);
        let ended = piped(&rig.pair.client, &rig.pair.server.id, rig.at("x"), sent.clone());
        ended.is(0, &["verified"]);
        assert!(fs::read(rig.pair.there.join("x")).expect("it is there") == sent);
        fs::remove_file(rig.pair.there.join("x")).expect("it is there");
    }
}

/// A pipe that a hostile client has opened.
async fn opened(pair: &Pair, path: &str, pipe: u64) -> Session {
    let mut session = meet(pair, &pair.client).await;
    session.ask_for("pipe", 1);
    let said = Pipe { path: path.as_bytes().to_vec(), pipe };
    session.write(&said).await.expect("it listens");
    let answer = session.read::<Piped>().await.expect("it begins");
    assert_eq!(answer, Some(Piped { done: false }));
    session
}

/// Reads until the server refuses; returns the server's error.
async fn refusal(session: &mut Session) -> Error {
    loop {
        match session.read::<Frame>().await {
            Ok(message) => assert!(message.is_some(), "it ended well"),
            Err(error) => return error.into(),
        }
    }
}

#[test]
fn a_server_refuses_false_messages_about_a_pipe_and_leaves_no_file() {
    let pair = Pair::new();
    fs::create_dir(pair.there.join("folder")).expect("a new folder");
    write(&pair.scratch.path().join("outside"), b"outside");
    for path in [
        &b""[..],
        b".",
        b"..",
        b"../outside",
        b"/../outside",
        b"folder",
        b"new/",
        b"none/x",
        b".x.lh-part",
        b"nul\0",
        &[b'x'; 5000],
    ] {
        let error = block_on(async {
            let mut session = meet(&pair, &pair.client).await;
            session.ask_for("pipe", 1);
            session.write(&Pipe { path: path.to_vec(), pipe: 1 }).await.expect("it listens");
            refusal(&mut session).await
        });
        assert_ne!(error.kind, ErrorKind::Stalled, "{path:?}: {error}");
    }
    let digest = |content: &[u8]| blake3::hash(content).as_bytes().to_vec();
    for (total, digest) in [
        (0, digest(b"")),
        (1, digest(b"x")),
        (u64::MAX, vec![0; 32]),
        (0, Vec::new()),
        (0, vec![0; 33]),
        (1 << 20, vec![0; 100_000]),
    ] {
        let error = block_on(async {
            let mut session = opened(&pair, "x", 1).await;
            session.write(&PipeEnd { total, digest }).await.expect("it listens");
            refusal(&mut session).await
        });
        assert!([ErrorKind::Verification, ErrorKind::Usage].contains(&error.kind), "{error}");
    }
    wait_until("nothing is left", || {
        remains(&pair.there).is_empty() && !pair.there.join("x").exists()
    });
    let kept = fs::read(pair.scratch.path().join("outside")).expect("it is there");
    assert_eq!(kept, b"outside");
    let ended = piped(&pair.client, &pair.server.id, pair.at("x"), bytes(6 << 20, 1));
    ended.is(0, &["verified"]);
}

/// A list of one file of `size` bytes.
fn list(size: u64, holes: Box<[std::ops::Range<u64>]>) -> Vec<u8> {
    let kind = Kind::File { size, sparse: !holes.is_empty(), holes };
    let (path, modified) = (b"x"[..].into(), FileTime::default());
    let listed = Listed { path, kind, mode: 0o644, modified };
    Manifest::new(Shape::File, vec![listed]).expect("it is sound").encode()
}

/// Requests to push a part (a piece of a pipe's content, sent as a file) at `offset` of the pipe,
/// then sends `said`. Returns the error with which the server refuses.
fn part(pair: &Pair, pipe: u64, offset: u64, said: Vec<Message>) -> Error {
    let request = liar::request(Direction::Push, "x");
    let request = Request { extent: Some(Extent { pipe, offset }), ..request };
    let first = Message::Request(request);
    let (_, error) = liar::talk(pair, std::iter::once(first).chain(said));
    error.expect("it is refused")
}

#[test]
fn a_server_refuses_parts_of_unknown_pipes_invalid_parts_and_duplicate_pipes() {
    let pair = Pair::new();
    assert!(part(&pair, 7, 0, Vec::new()).what.contains("belongs to no open pipe"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime for the test");
    // The pipe stays open while its runtime exists.
    let mut pipe = runtime.block_on(opened(&pair, "x", 7));
    let mut said = vec![
        part(&pair, 8, 0, Vec::new()),
        part(&pair, 7, 1, Vec::new()),
        part(&pair, 7, u64::MAX, Vec::new()),
        part(&pair, 7, 1 << 51, Vec::new()),
    ];
    let (path, kind, modified) = (b"x"[..].into(), Kind::Folder, FileTime::default());
    let tree = Listed { path, kind, mode: 0o755, modified };
    let tree = Manifest::new(Shape::Named, vec![tree]).expect("it is sound").encode();
    let (hole, large) = (std::iter::once(0..1).collect(), (1 << 30) + 1);
    for (list, len) in [
        (list(0, Box::default()), 0),
        (list(large, Box::default()), large),
        (list(2 << 20, hole), 2 << 20),
        (tree, 0),
    ] {
        said.push(part(&pair, 7, 0, vec![liar::offer(list, len)]));
    }
    let extent = Some(Extent { pipe: 7, offset: 0 });
    let pull = Request { extent: extent.clone(), ..liar::request(Direction::Pull, "x") };
    let push = Request { extent, ..liar::request(Direction::Push, "x") };
    let dry = Request { dry_run: true, ..push.clone() };
    let fake = Request { receive: "fake".to_owned(), ..push };
    for request in [pull, dry, fake] {
        let (_, error) = liar::talk(&pair, [Message::Request(request)]);
        said.push(error.expect("it is refused"));
    }
    assert!(said.iter().all(|error| error.kind == ErrorKind::Usage), "{said:#?}");
    runtime.block_on(async {
        // The open pipe's number with another path, then its path with another number.
        for (path, number) in [("y", 7), ("x", 9)] {
            let mut again = meet(&pair, &pair.client).await;
            again.ask_for("pipe", 1);
            let said = Pipe { path: path.into(), pipe: number };
            again.write(&said).await.expect("it listens");
            let error = refusal(&mut again).await;
            let why =
                if number == 7 { "already has a pipe of this number" } else { "wait for the end" };
            assert!(format!("{} {:?}", error.what, error.advice).contains(why), "{error}");
        }
        let end = PipeEnd { total: 0, digest: vec![0; 32] };
        pipe.write(&end).await.expect("it listens");
        assert_eq!(refusal(&mut pipe).await.kind, ErrorKind::Verification);
    });
    assert!(part(&pair, 7, 0, Vec::new()).what.contains("belongs to no open pipe"), "it is over");
    wait_until("nothing is left", || content(&pair.there).is_empty());
}

#[test]
fn a_client_may_have_at_most_sixteen_pipes() {
    let pair = Pair::new();
    block_on(async {
        let mut open = Vec::new();
        for number in 0..16 {
            open.push(opened(&pair, &format!("x{number}"), number).await);
        }
        let mut more = meet(&pair, &pair.client).await;
        more.ask_for("pipe", 1);
        more.write(&Pipe { path: b"more".to_vec(), pipe: 16 }).await.expect("it listens");
        let error = refusal(&mut more).await;
        assert!(error.what.contains("which is the limit"), "{error}");
        for pipe in open {
            pipe.leave().await.expect("the server is there");
        }
    });
    let is_empty = || fs::read_dir(&pair.there).is_ok_and(|mut names| names.next().is_none());
    wait_until("nothing is left", is_empty);
}

/// Pipes to a server that answers with `lies` and disconnects.
fn lied(lies: Vec<Piped>) -> Ended {
    liar::lied::<Pipe, _>("pipe", lies, |client, id, there| {
        piped(client, id, there, bytes(6 << 20, 1))
    })
}

#[test]
fn a_client_fails_if_its_server_ends_a_pipe_too_early() {
    lied(vec![Piped { done: true }]).is(1, &["sent an unexpected answer"]);
    lied(vec![]).is(1, &["the server ended the pipe"]);
    lied(vec![Piped { done: false }]).is(1, &["the server ended the pipe"]);
    lied(vec![Piped { done: false }, Piped { done: true }]).is(1, &["ended the pipe too early"]);
}
