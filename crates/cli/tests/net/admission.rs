//! A server's limits for clients.

use std::path::Path;

use longhaul_files::LARGE;
use longhaul_transfer::control::list::{List, Listed};
use longhaul_transfer::control::{
    self, Attach, Direction, FilterWire, Frame, Message, Ping, Probe, Request, Survey,
};
use longhaul_transfer::error::{Error, ErrorKind};
use longhaul_transfer::options::Filter;
use longhaul_transfer::session::Session;

use super::liar;
use super::ls::{MANY_UNREAD, create_many};
use crate::rig::{Child, Host, Pair, Server, bytes, peak, write};

fn pattern(glob: String) -> FilterWire {
    FilterWire::from(&Filter::Exclude(glob))
}

/// Every message that may come first. None of them names a path.
fn first_messages() -> Vec<Message> {
    let bad = vec![pattern("[a".into())];
    let pull =
        Request { paths: Vec::new(), filters: bad.clone(), ..liar::request(Direction::Pull, "") };
    vec![
        Message::Request(pull),
        Message::Request(Request { paths: Vec::new(), ..liar::request(Direction::Push, "") }),
        Message::Survey(Survey { filters: bad, ..Survey::default() }),
        Message::Probe(Probe { probe: 1, flow: 2, cipher: "rot13".into() }),
        Message::Attach(Attach { transfer: 1 }),
    ]
}

#[test]
fn a_client_without_rights_is_refused_before_its_request_is_read() {
    let pair = Pair::new();
    let stranger = Host::new(&pair.scratch.path().join("stranger"));
    for message in first_messages() {
        let shown = format!("{message:?}");
        let (heard, ended) = liar::talk_as(&pair, &stranger, [message]);
        let ended = ended.expect(&shown);
        assert_eq!(heard, [], "{shown}");
        assert!(ended.what.contains(&format!("{} is not allowed here", stranger.id)), "{ended}");
    }
}

#[test]
fn an_empty_list_of_paths_does_not_pass_the_check_of_rights() {
    let pair = Pair::with_rights(":wo", &[]);
    let pull = Request { paths: Vec::new(), ..liar::request(Direction::Pull, "") };
    for message in [Message::Request(pull), Message::Survey(Survey::default())] {
        let (_, ended) = liar::talk(&pair, [message]);
        let ended = ended.expect("it is refused");
        assert_eq!(ended.kind, ErrorKind::Usage);
        assert!(ended.what.contains("names no path"), "{ended}");
    }
}

#[test]
fn patterns_of_a_megabyte_are_refused_and_cost_a_server_little_memory() {
    let mut pair = Pair::new();
    write(&pair.there.join("file"), b"f");
    let filters: Vec<FilterWire> =
        (0..9_000).map(|n| pattern(format!("**/{n}/{}", "*x".repeat(50)))).collect();
    let before = peak(pair.server.child().id());
    let pull = Request { filters: filters.clone(), ..liar::request(Direction::Pull, "file") };
    let survey = Survey { paths: vec![b"file".into()], filters, recursive: true };
    for message in [Message::Request(pull), Message::Survey(survey)] {
        let (_, ended) = liar::talk(&pair, [message]);
        let ended = ended.expect("it is refused");
        assert!(ended.what.contains("bytes of patterns; 262144 is the limit"), "{ended}");
    }
    let grown = peak(pair.server.child().id()) - before;
    assert!(grown < 40 << 20, "{grown} bytes");
}

/// Begins copy number `n` of `client`, which sends no data.
async fn begun(pair: &Pair, client: &Host, n: u32) -> Session {
    let mut session = liar::meet(pair, client).await;
    let request = liar::request(Direction::Push, &format!("slow-{n}"));
    let request = Request { transfer: n.into(), flow: 100 + n, ..request };
    session.write(&Frame::from(Message::Request(request))).await.expect("it is open");
    // If the copy has to wait for memory, the server sends a `Wait`; otherwise it answers the ping.
    let ping = Message::Ping(Ping { answer: false });
    session.write(&Frame::from(ping)).await.expect("it is open");
    session.read::<Frame>().await.expect("the server answers");
    session
}

#[test]
fn an_id_that_uses_its_share_of_the_memory_blocks_no_other_id() {
    // Each transfer reserves 32 MiB. So 16 would take the server's whole memory; one id may reserve
    // half.
    const SLOW: u32 = 16;
    let scratch = tempfile::tempdir().expect("a folder for the test");
    let greedy = Host::new(&scratch.path().join("greedy"));
    let pair = Pair::with(&["--allow", &greedy.id]);
    write(&pair.here.join("file"), &bytes(3_000_000, 1));
    let mut copy = pair.cp_command(&[&"--retry-for=0s", &"file", &pair.at("copy")]);
    let ended = liar::block_on(async {
        let mut slow = Vec::new();
        for n in 1..=SLOW {
            slow.push(begun(&pair, &greedy, n).await);
        }
        let copied = tokio::task::spawn_blocking(move || Child::spawn(&mut copy).end()).await;
        drop(slow);
        copied.expect("no panic")
    });
    ended.summary();
    let copied = std::fs::read(pair.there.join("copy")).expect("it was copied");
    assert!(copied == bytes(3_000_000, 1));
}

/// Sends `asked` to the service of this name and version, over a new session.
async fn ask(
    pair: &Pair,
    client: &Host,
    (service, version): (&str, u32),
    asked: &impl prost::Message,
) -> Session {
    let mut session = liar::meet(pair, client).await;
    session.ask_for(service, version);
    session.write(asked).await.expect("it is open");
    session
}

/// Sends many requests, and reads only one message of each answer: data or a sign of life.
async fn ask_much(
    pair: &Pair,
    client: &Host,
    service: (&str, u32),
    asked: &impl prost::Message,
) -> Vec<Session> {
    // So many that the test would exceed its `DEADLINE` if the server waited for the timeout of
    // each unread answer.
    const REQUESTS: usize = 40;
    let mut sessions = Vec::new();
    for _ in 0..REQUESTS {
        sessions.push(ask(pair, client, service, asked).await);
    }
    for session in &mut sessions {
        session.read::<()>().await.expect("it is open").expect("the server answers");
    }
    sessions
}

#[test]
fn unread_surveys_of_one_id_block_no_survey_of_another_id() {
    let scratch = tempfile::tempdir().expect("a folder for the test");
    let greedy = Host::new(&scratch.path().join("greedy"));
    let pair = Pair::in_memory(&["--allow", &greedy.id]);
    create_many(&pair, MANY_UNREAD);
    write(&pair.there.join("file"), b"f");
    let survey = |path: &str| {
        let paths = vec![path.into()];
        Frame::from(Message::Survey(Survey { paths, recursive: true, ..Survey::default() }))
    };
    let service = (control::SERVICE, 1);
    liar::block_on(async {
        let _unread = ask_much(&pair, &greedy, service, &survey("many")).await;
        let mut session = ask(&pair, &pair.client, service, &survey("file")).await;
        let mut done = false;
        while !done {
            let frame = session.read::<Frame>().await.expect("it is open").expect("no end");
            done = matches!(frame.message, Some(Message::Surveyed(piece)) if piece.done);
        }
    });
}

#[test]
fn unread_listings_of_one_id_block_no_listing_of_another_id() {
    let scratch = tempfile::tempdir().expect("a folder for the test");
    let greedy = Host::new(&scratch.path().join("greedy"));
    let pair = Pair::in_memory(&["--allow", &greedy.id]);
    create_many(&pair, MANY_UNREAD);
    let list = |path: &str| List { path: path.into() };
    liar::block_on(async {
        let _unread = ask_much(&pair, &greedy, ("list", 1), &list("many")).await;
        let mut session = ask(&pair, &pair.client, ("list", 1), &list("")).await;
        let mut done = false;
        while !done {
            done = session.read::<Listed>().await.expect("it is open").expect("no end").done;
        }
    });
}

/// Requests a pull of `file`. Returns once the server has offered the file.
async fn pull(pair: &Pair, client: &Host, number: u32) -> Result<Session, Error> {
    let request = liar::request(Direction::Pull, "file");
    let request = Request { transfer: number.into(), flow: 100 + number, ..request };
    let request = Frame::from(Message::Request(request));
    let mut session = ask(pair, client, ("copy", 1), &request).await;
    loop {
        let frame = session.read::<Frame>().await?.expect("no end");
        if matches!(frame.message, Some(Message::Offer(_))) {
            return Ok(session);
        }
    }
}

#[test]
fn the_pulls_of_one_id_are_limited_and_block_no_other_id() {
    const MOST: u32 = 64;
    let scratch = tempfile::tempdir().expect("a folder for the test");
    let greedy = Host::new(&scratch.path().join("greedy"));
    let pair = Pair::with(&["--allow", &greedy.id]);
    write(&pair.there.join("file"), &bytes(3_000_000, 1));
    let mut copy = pair.cp_command(&[&"--retry-for=0s", &pair.at("file"), &"copy"]);
    let copied = liar::block_on(async {
        let mut pulls = Vec::new();
        for number in 1..=MOST {
            pulls.push(pull(&pair, &greedy, number).await.expect("it is below the limit"));
        }
        let Err(refused) = pull(&pair, &greedy, MOST + 1).await else {
            panic!("it is one too many")
        };
        assert!(refused.what.contains("no room for another pull"), "{refused}");
        let copied = tokio::task::spawn_blocking(move || Child::spawn(&mut copy).end()).await;
        let ended = pulls.pop().expect("there are many");
        ended.close(None).await.expect("it is open");
        // The server notices the end a moment later.
        while pull(&pair, &greedy, MOST + 2).await.is_err() {}
        copied.expect("no panic")
    });
    copied.summary();
}

#[test]
fn a_server_whose_memory_is_full_is_busy_and_the_copy_waits_for_it() {
    let pair = Pair::with(&["--memory=32Mi"]);
    write(&pair.here.join("file"), &bytes(3_000_000, 1));
    let mut copy = pair.cp_command(&[&"file", &pair.at("copy")]);
    let ended = liar::block_on(async {
        // The memory suffices for one transfer.
        let slow = begun(&pair, &pair.client, 1).await;
        let waits = tokio::task::spawn_blocking(move || {
            let mut copy = Child::spawn(&mut copy);
            let busy = copy.event(|event| event["event"] == "busy");
            let reason = busy["reason"].as_str().unwrap_or_default();
            assert!(reason.contains("hold") && reason.contains("--memory"), "{busy}");
            copy
        });
        let copy = waits.await.expect("no panic");
        drop(slow);
        tokio::task::spawn_blocking(move || copy.end()).await.expect("no panic")
    });
    ended.summary();
    assert!(ended.events("reconnecting").is_empty(), "{ended}");
}

/// Limits on open files, soft and hard.
fn descriptors(id: u32) -> (String, String) {
    let limits = std::fs::read_to_string(format!("/proc/{id}/limits")).expect("it runs");
    let line = limits.lines().find(|line| line.starts_with("Max open files"));
    let mut words = line.expect("the kernel reports this limit").split_whitespace().skip(3);
    let mut next = || words.next().expect("two limits").to_owned();
    (next(), next())
}

/// A server that may open no more than `most` files, with a soft limit of `soft`.
fn limited(host: &Host, root: &Path, soft: u32, most: u32, allowed: &Host) -> Server {
    let words = Server::words("127.0.0.1:0", root, &["--allow", &allowed.id]);
    let limit = format!("ulimit -Sn {soft} && ulimit -Hn {most} && exec \"$@\"");
    Server::start_as(&mut host.wrapped(&["sh", "-c", &limit, "sh"], words))
}

#[test]
fn a_server_with_few_descriptors_reads_any_number_of_files() {
    // More files than the server may open at a time.
    const FILES: usize = 80;
    let mut pair = Pair::new();
    let content = bytes(1 << 20, 1);
    for n in 0..FILES {
        let path = pair.there.join(format!("tree/{n}"));
        write(&path, &content);
        // A sparse file is copied quickly.
        let file = std::fs::File::options().write(true).open(path).expect("it is ours");
        file.set_len(LARGE).expect("a hole takes no room");
    }
    pair.server = limited(&pair.host, &pair.there, 64, 64, &pair.client);
    let summary = pair.cp(&[&"-r", &pair.at("tree"), &"."]).summary();
    assert_eq!(summary["failed_files"], 0, "{summary}");
    for n in 0..FILES {
        let copied = std::fs::read(pair.here.join(format!("tree/{n}"))).expect("it was copied");
        assert!(copied.len() as u64 == LARGE && copied.starts_with(&content), "{n}");
    }
}

#[test]
fn a_server_may_open_as_many_files_as_the_hard_limit_permits() {
    let scratch = tempfile::tempdir().expect("a folder for the test");
    let host = Host::new(&scratch.path().join("server"));
    let mut server = limited(&host, scratch.path(), 64, 300, &host);
    let (soft, hard) = descriptors(server.child().id());
    assert_eq!((soft.as_str(), hard.as_str()), ("300", "300"));
}
