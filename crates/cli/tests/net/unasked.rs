//! Valid lists of files that nobody requested, from a hostile server or client. Also a pass that
//! reuses a flow id.

use longhaul_files::manifest::FileTime;
use longhaul_files::{CHUNK, Kind, Listed, Manifest, Shape};
use longhaul_transfer::control::{Direction, Message, Pass, Ping, Request, Surveyed};

use super::liar::{self, LyingServer};
use crate::rig::{Child, Ended, Pair, Server, content, write};

/// Encodes a list of `entries`: `x` is an empty file, `x/` a folder, `x@` a symbolic link.
fn list(shape: Shape, entries: &[&str]) -> Vec<u8> {
    let entry = |text: &&str| {
        let (path, kind) = match text.as_bytes().split_last() {
            Some((b'/', path)) => (path, Kind::Folder),
            Some((b'@', path)) => (path, Kind::Link { target: b"/etc/passwd".as_slice().into() }),
            _ => (text.as_bytes(), file(0)),
        };
        Listed { path: path.into(), kind, mode: 0o755, modified: FileTime::default() }
    };
    Manifest::new(shape, entries.iter().map(entry).collect()).expect("it is sound").encode()
}

fn file(size: u64) -> Kind {
    Kind::file(size)
}

/// Runs `cp WORDS .`.
fn pull(pair: &Pair, id: &str, words: &[&str]) -> Ended {
    let id = format!("--server-id={id}");
    let mut command = pair.client.command(["cp", "--json", "--datagram=1200", &id]);
    command.args(words).arg(".").current_dir(&pair.here);
    Child::spawn(&mut command).end()
}

/// The request, the shape and the entries of the hostile list, and a part of the expected error.
type Lie = (&'static [&'static str], Shape, &'static [&'static str], &'static str);

const LIES: [Lie; 18] = [
    (&["report.pdf"], Shape::File, &[".bashrc"], "file .bashrc"),
    (&["d/report.pdf"], Shape::File, &["report.pdf.exe"], "file report.pdf.exe"),
    (&["report.pdf"], Shape::Contents, &[".ssh/", ".ssh/authorized_keys"], "folder .ssh"),
    (&["report.pdf"], Shape::Named, &[".ssh/", ".ssh/authorized_keys"], "folder .ssh"),
    (&["report.pdf"], Shape::Several, &[".bashrc", "report.pdf"], ".bashrc"),
    (&["report.pdf"], Shape::Named, &["report.pdf/", "report.pdf/x"], "folder report.pdf"),
    (&["report.pdf"], Shape::Named, &["report.pdf@"], "link report.pdf"),
    (&["report.pdf"], Shape::Contents, &[], "empty list"),
    (&["-r", "tree"], Shape::Named, &["other/", "other/x"], "folder other"),
    (&["-r", "tree"], Shape::File, &["other"], "file other"),
    (&["-r", "tree"], Shape::Contents, &["x"], "file x"),
    (&["-r", "tree/"], Shape::Named, &["tree/", "tree/x"], "folder tree"),
    (&["-r", "--exclude=*.key", "tree"], Shape::Named, &["tree/", "tree/x.key"], "tree/x.key"),
    (&["-r", "--exclude=*.key", "tree/"], Shape::Contents, &["x.key"], "file x.key"),
    (&["-rn", "tree"], Shape::Named, &["other/"], "folder other"),
    (&["-p", "report.pdf"], Shape::File, &["\x1b[2J"], "\\u{1b}[2J"),
    (&["a", "b"], Shape::Several, &["a", "b", "c"], "file c"),
    (&["a", "b"], Shape::Several, &["a", "b/"], "folder b"),
];

#[test]
fn a_client_refuses_unrequested_files_before_creating_anything() {
    let pair = Pair::new();
    for (asked, shape, entries, named) in LIES {
        let server = LyingServer::start(move |_| vec![liar::offer(list(shape, entries), 0)]);
        let at = |word: &&str| match word.starts_with('-') {
            true => (*word).to_owned(),
            false => server.at(word),
        };
        let words: Vec<String> = asked.iter().map(at).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let ended = pull(&pair, &server.id, &words);
        ended.is(3, &["the server sent", named]);
        assert!(content(&pair.here).is_empty(), "{asked:?}: {:?}", content(&pair.here));
    }
}

#[test]
fn a_client_accepts_the_files_that_it_requested() {
    let pair = Pair::new();
    for (asked, shape, entries) in [
        (&["report.pdf"][..], Shape::File, &["report.pdf"][..]),
        (&["-r", "tree"], Shape::Named, &["tree/", "tree/x"]),
        (&["-r", "inside/"], Shape::Contents, &["y"]),
    ] {
        let server = LyingServer::start(move |_| vec![liar::offer(list(shape, entries), 0)]);
        let last = server.at(asked[asked.len() - 1]);
        let words = [&asked[..asked.len() - 1], &[last.as_str()]].concat();
        pull(&pair, &server.id, &words).is(0, &[]);
        for entry in entries {
            assert!(pair.here.join(entry).exists(), "{entry}");
        }
    }
}

/// The list of one file of three chunks, `report.pdf`.
fn report() -> Vec<u8> {
    let entry = Listed {
        path: b"report.pdf".as_slice().into(),
        kind: file(3 * CHUNK),
        mode: 0o644,
        modified: FileTime::default(),
    };
    Manifest::new(Shape::File, vec![entry]).expect("it is sound").encode()
}

#[test]
fn a_second_attempt_is_checked_against_the_request() {
    let pair = Pair::new();
    let honest = report();
    let server = LyingServer::answering(move |session, heard| match (session, heard) {
        (0, Message::Request(_)) => Some(vec![liar::offer(honest.clone(), 3 * CHUNK)]),
        // The destination is open; the server closes the session.
        (0, Message::Plan(_)) => None,
        (_, Message::Request(_)) => Some(vec![liar::offer(list(Shape::File, &[".bashrc"]), 0)]),
        _ => Some(Vec::new()),
    });
    let ended = pull(&pair, &server.id, &[&server.at("report.pdf")]);
    ended.is(3, &["the server sent the file .bashrc"]);
    assert_eq!(ended.events("reconnecting").len(), 1, "{ended}");
    assert!(!pair.here.join(".bashrc").exists());
}

/// A hostile answer to a survey, in which a client requests the hashes of the chunks from each
/// source.
fn surveyed(encoded: &[u8]) -> Message {
    Message::Surveyed(Surveyed { manifest: encoded.to_vec(), done: true, ..Surveyed::default() })
}

#[test]
fn a_source_of_replicas_is_checked_against_the_request() {
    let pair = Pair::new();
    let sources = [(); 2].map(|()| {
        LyingServer::answering(|_, heard| match heard {
            Message::Survey(_) => Some(vec![surveyed(&list(Shape::File, &[".bashrc"]))]),
            Message::Request(_) => Some(vec![liar::offer(list(Shape::File, &[".bashrc"]), 0)]),
            _ => Some(Vec::new()),
        })
    });
    let pins = sources.each_ref().map(|one| format!("--server-id={}={}", one.address, one.id));
    let mut command = pair.client.command(["cp", "--json", "--datagram=1200", "--replicas"]);
    command.args(pins).args(sources.each_ref().map(|one| one.at("report.pdf"))).arg(".");
    let ended = Child::spawn(command.current_dir(&pair.here)).end();
    ended.is(3, &["the server sent the file .bashrc"]);
    assert!(content(&pair.here).is_empty(), "{:?}", content(&pair.here));
}

#[test]
fn one_of_several_sources_cannot_deliver_unrequested_files() {
    let pair = Pair::new();
    write(&pair.there.join("honest"), b"h");
    let lie = || vec![liar::offer(list(Shape::File, &[".bashrc"]), 0)];
    let server = LyingServer::start(move |_| lie());
    let pins =
        [(&*pair.server.address, &pair.server.id), (&server.address.to_string(), &server.id)]
            .map(|(host, id)| format!("--server-id={host}={id}"));
    let mut command = pair.client.command(["cp", "--json", "--datagram=1200"]);
    command.args(pins).args([pair.at("honest"), server.at("report.pdf").into()]).arg(".");
    let ended = Child::spawn(command.current_dir(&pair.here)).end();
    ended.is(8, &["the server sent the file .bashrc"]);
    let names: Vec<_> = content(&pair.here).into_keys().collect();
    assert_eq!(names.len(), 1, "{names:?}");
    assert!(pair.here.join("honest").exists());
}

#[test]
fn a_server_refuses_a_tree_or_a_link_of_a_push_that_is_not_recursive() {
    let pair = Pair::new();
    for (shape, entries, named) in [
        (Shape::Named, &["d/", "d/x"][..], "folder d"),
        (Shape::Contents, &["d/", "d/x"], "folder d"),
        (Shape::Contents, &["x"], "file x"),
        (Shape::Several, &["d/", "x"], "folder d"),
        (Shape::Several, &["l@", "x"], "link l"),
        (Shape::Named, &["l@"], "link l"),
    ] {
        let request = Request { recursive: false, ..liar::request(Direction::Push, "") };
        let said = [Message::Request(request), liar::offer(list(shape, entries), 0)];
        let (_, ended) = liar::talk(&pair, said);
        let ended = ended.expect("it is refused");
        assert!(ended.what.contains("the client sent") && ended.what.contains(named), "{ended}");
        assert!(content(&pair.there).is_empty(), "{:?}", content(&pair.there));
    }
    write(&pair.here.join("x"), b"x");
    write(&pair.here.join("y"), b"y");
    pair.cp(&[&"x", &"y", &pair.at("")]).summary();
}

#[test]
fn a_client_with_rights_to_one_folder_creates_nothing_outside_it() {
    let mut pair = Pair::new();
    for folder in ["sub", "beside"] {
        std::fs::create_dir_all(pair.there.join(folder)).expect("the scratch folder is ours");
    }
    let allowed = format!("{}:rw:sub", pair.client.id);
    pair.server = Server::start(&pair.host, &pair.there, &["--allow", &allowed]);
    let inside = |path: &str| path.is_empty() || path == "/" || path == "/beside";
    for path in ["", "/", "..", "../beside", "sub/../..", "/beside", "./../beside/x", "../sub"] {
        for shape in [Shape::File, Shape::Several, Shape::Contents] {
            let request = Message::Request(liar::request(Direction::Push, path));
            let (_, ended) = liar::talk(&pair, [request, liar::offer(list(shape, &["x"]), 0)]);
            assert!(ended.is_some() || inside(path), "{path} {shape:?}");
        }
    }
    let outside: Vec<_> = content(&pair.there)
        .into_keys()
        .filter(|path| !path.starts_with("sub") && path.as_os_str() != "beside")
        .collect();
    assert!(outside.is_empty(), "{outside:?}");
    assert!(pair.there.join("sub/x").exists());
}

#[test]
fn a_client_refuses_a_second_pass_with_the_flow_id_of_the_first() {
    let pair = Pair::new();
    let encoded = report();
    // A pass sends the missing chunks once, with its own flow id.
    for (second, refused) in [(liar::FLOW, true), (liar::FLOW + 1, false)] {
        let offer = liar::offer(encoded.clone(), 3 * CHUNK);
        let pass = |number, flow| {
            let protocol = "rbudp".to_owned();
            Message::Pass(Pass { number, flow, block: 1168, protocol, ..Pass::default() })
        };
        let server = LyingServer::answering(move |_, heard| match heard {
            Message::Request(_) => {
                Some(vec![offer.clone(), pass(0, liar::FLOW), pass(1, second), ping()])
            }
            // The client has accepted the second pass; the server disconnects.
            Message::Ping(_) => None,
            _ => Some(Vec::new()),
        });
        let words = ["--protocol=rbudp", "--retry-for=0s", &server.at("report.pdf")];
        let ended = pull(&pair, &server.id, &words);
        let (status, words) = match refused {
            true => (3, "uses flow id 7 twice"),
            false => (1, "the session with"),
        };
        ended.is(status, &[words]);
    }
}

fn ping() -> Message {
    Message::Ping(Ping { answer: false })
}
