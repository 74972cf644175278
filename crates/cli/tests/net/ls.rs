//! Listings of folders, through `longhaul ls` and through the library.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::atomic::Ordering;

use longhaul_transfer::api::{Client, Connection, Identity as Key, Trust};
use longhaul_transfer::control::list::{List, Listed, ListedName};
use longhaul_transfer::control::{Direction, Frame, Message, Probe, Survey};
use longhaul_transfer::error::{Error, ErrorKind};
use longhaul_transfer::options::ReachOptions;
use serde_json::Value;

use super::liar::{block_on, meet};
use super::{Relayed, channel_of_ssh, liar};
use crate::rig::{Ended, Host, Pair, peak, write, write_private};

fn ls(client: &Host, id: &str, flags: &[&str], path: OsString) -> Ended {
    let id = format!("--server-id={id}");
    let mut words: Vec<OsString> = ["ls", &id].map(OsString::from).into();
    words.extend(flags.iter().map(OsString::from));
    words.push(path);
    client.run(words)
}

fn of_pair(pair: &Pair, flags: &[&str], path: &str) -> Ended {
    ls(&pair.client, &pair.server.id, flags, pair.at(path))
}

#[test]
fn names_are_sorted_and_have_mode_size_and_time_on_request() {
    let pair = Pair::new();
    for name in ["folder/b", "folder/a", "folder/.hidden"] {
        write(&pair.there.join(name), b"1234567");
    }
    let odd = OsString::from_vec(b"folder/odd\xff\n".to_vec());
    write(&pair.there.join(&odd), b"");
    let file = pair.there.join("folder/a");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let then = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    fs::File::options().write(true).open(&file).unwrap().set_modified(then).unwrap();
    let plain = of_pair(&pair, &[], "folder");
    assert_eq!(plain.is(0, &[]).stdout[..3], [".hidden", "a", "b"], "{plain}");
    assert_eq!(plain.stdout.len(), 4, "the odd name has one line: {plain}");
    let long = of_pair(&pair, &["-l"], "folder/");
    assert_eq!(long.is(0, &[]).stdout[1], "-rw-r----- 7 2001-09-09T01:46:40Z a", "{long}");
    let one = of_pair(&pair, &["-l"], "folder/a");
    assert_eq!(one.is(0, &[]).stdout, ["-rw-r----- 7 2001-09-09T01:46:40Z a"]);
    let events = of_pair(&pair, &["--json"], "folder");
    let rows: Vec<Value> =
        events.is(0, &[]).stdout.iter().map(|row| serde_json::from_str(row).unwrap()).collect();
    let (last, rows) = rows.split_last().expect("a summary");
    assert_eq!((&last["event"], &last["names"]), (&"summary".into(), &4.into()));
    assert_eq!(rows.len(), 4);
    let a = rows.iter().find(|row| row["name"] == "a").expect("it is listed");
    assert_eq!((&a["type"], &a["bytes"], &a["mode"]), (&"file".into(), &7.into(), &"0640".into()));
    assert!(rows.iter().any(|row| row["name_hex"] == "6f6464ff0a"), "{events}");
    let root = of_pair(&pair, &[], "");
    assert_eq!(root.is(0, &[]).stdout, ["folder"]);
    let missing = ["cannot list none: No such file or directory; `longhaul ls`"];
    of_pair(&pair, &[], "none").is(5, &missing);
}

#[test]
fn a_listing_stays_within_the_root() {
    let pair = Pair::with_rights(":ro:sub", &[]);
    write(&pair.there.join("secret"), b"s");
    write(&pair.there.join("sub/mine"), b"m");
    symlink("..", pair.there.join("sub/up")).unwrap();
    symlink(&pair.there, pair.there.join("sub/out")).unwrap();
    assert_eq!(of_pair(&pair, &[], "").is(0, &[]).stdout, ["mine", "out", "up"]);
    for path in ["..", "../secret", "up", "up/", "out", "out/secret", "mine/../../secret"] {
        let ended = of_pair(&pair, &[], path);
        assert_ne!(ended.status, Some(0), "{path}: {ended}");
        assert_eq!(ended.stdout, [""; 0], "{path}");
    }
}

#[test]
fn listing_needs_the_right_to_read() {
    let pair = Pair::with_rights(":wo", &[]);
    write(&pair.there.join("file"), b"f");
    let ended = of_pair(&pair, &[], "");
    ended.is(3, &["may not read here"]);
    assert_eq!(ended.stdout, [""; 0]);
    let stranger = Host::new(&pair.scratch.path().join("stranger"));
    let ended = ls(&stranger, &pair.server.id, &["--json"], pair.at(""));
    assert_eq!(ended.status, Some(3), "{ended}");
}

#[test]
fn a_listing_uses_tcp_if_only_tcp_passes() {
    let rig = Relayed::new(10);
    rig.relay.rules.no_data.store(true, Ordering::Relaxed);
    rig.relay.rules.no_control.store(true, Ordering::Relaxed);
    let ended = ls(&rig.pair.client, &rig.pair.server.id, &[], rig.at(""));
    assert_eq!(ended.is(0, &[]).stdout, ["source"]);
}

/// Lists folders through the library, over `carrier`.
fn library(client: &Host, id: &str, host: OsString, carrier: &str) {
    let identity = Key::load_or_create(&client.config).expect("the client has one");
    let client = Client::builder().identity(identity).trust(Trust::only(id)).build().unwrap();
    block_on(async {
        let connection = client.connect(host).await.expect("it answers");
        assert_eq!((connection.carrier(), connection.peer()), (carrier, id));
        lists_twice(&connection).await;
    });
}

#[test]
fn a_connection_lists_folders_after_a_long_pause() {
    let pair = Pair::new();
    write(&pair.there.join("file"), b"f");
    let identity = Key::load_or_create(&pair.client.config).expect("the client has one");
    let trust = Trust::only(pair.server.id.as_str());
    let client = Client::builder().identity(identity).trust(trust).build().unwrap();
    block_on(async {
        let connection = client.connect(pair.at("")).await.expect("it answers");
        // The pause is longer than a server waits for the first request of a stream.
        tokio::time::sleep(std::time::Duration::from_secs(17)).await;
        for _ in 0..2 {
            let mut names = connection.list("").await.unwrap();
            assert_eq!(names.next().await.expect("a name").expect("it is listed").name, b"file");
        }
    });
}

/// Reads the second of two listings first. A third listing fails.
async fn lists_twice(connection: &Connection) {
    let (mut one, mut other) =
        (connection.list("").await.unwrap(), connection.list("many").await.unwrap());
    let mut names = BTreeSet::new();
    while let Some(name) = other.next().await {
        names.insert(name.expect("it is listed").name);
    }
    assert_eq!(names.len(), 3000);
    let first = one.next().await.expect("a name").expect("it is listed");
    assert!([&b"many"[..], b"source"].contains(&&first.name[..]));
    let mut none = connection.list("none").await.unwrap();
    let error = none.next().await.expect("an error").expect_err("nothing is there");
    assert!(error.to_string().contains("cannot list none"), "{error}");
    assert!(none.next().await.is_none());
}

#[test]
fn a_connection_of_the_library_carries_several_listings_over_quic_and_tls() {
    let rig = Relayed::new(10);
    (0..3000).for_each(|n| write(&rig.pair.there.join(format!("many/{n}")), b""));
    let (client, id) = (&rig.pair.client, &rig.pair.server.id);
    library(client, id, rig.at(""), "quic");
    rig.relay.rules.no_control.store(true, Ordering::Relaxed);
    library(client, id, rig.at(""), "tls");
    let stranger = Host::new(&rig.pair.scratch.path().join("stranger"));
    let identity = Key::load_or_create(&stranger.config).unwrap();
    let stranger = Client::builder().identity(identity).trust(Trust::only(id.as_str()));
    let stranger = stranger.build().unwrap();
    let error = block_on(async {
        let connection = stranger.connect(rig.at("")).await?;
        connection.list("").await?.next().await.expect("an error").map(drop)
    });
    let error = error.expect_err("no right");
    assert!(error.to_string().contains("is not allowed here"), "{error}");
}

#[test]
fn a_connection_through_the_channel_of_ssh_carries_several_listings() {
    let scratch = tempfile::tempdir().expect("there is room for a folder");
    let client = Host::new(&scratch.path().join("client"));
    (0..3000).for_each(|n| write(&scratch.path().join(format!("data/many/{n}")), b""));
    write(&scratch.path().join("data/source"), b"s");
    let (command, remote) = channel_of_ssh(scratch.path());
    let ended = client.run(["ls", "-e", &command, &remote, "nowhere.invalid:"]);
    assert_eq!(ended.is(0, &[]).stdout, ["many", "source"]);
    let mut reach = ReachOptions::default();
    reach.ssh_command = vec![command];
    reach.remote_path = env!("CARGO_BIN_EXE_longhaul").to_owned();
    let identity = Key::load_or_create(&client.config).expect("the client has one");
    let client = Client::builder().identity(identity).build().unwrap();
    block_on(async {
        let connection = client.connect("nowhere.invalid:").reach(reach).await.expect("it answers");
        assert_eq!(connection.carrier(), "ssh");
        lists_twice(&connection).await;
    });
}

/// This many names of [`create_many`] take more bytes than a client may leave unread.
pub(super) const MANY_UNREAD: usize = 20_000;

/// Creates a folder `many` with `files` empty files. Each name has 247 bytes.
pub(super) fn create_many(pair: &Pair, files: usize) {
    let (folder, tail) = (pair.there.join("many"), "n".repeat(240));
    fs::create_dir(&folder).unwrap();
    (0..files).for_each(|n| drop(fs::File::create(folder.join(format!("{n:07}{tail}"))).unwrap()));
}

#[test]
fn listing_a_large_folder_takes_little_memory_at_the_server() {
    const MANY: usize = 150_000;
    let mut pair = Pair::in_memory(&[]);
    create_many(&pair, MANY);
    let before = peak(pair.server.child().id());
    let ended = of_pair(&pair, &["--json"], "many");
    assert_eq!(ended.is(0, &[]).stdout.len(), MANY + 1, "and a summary");
    let grown = peak(pair.server.child().id()) - before;
    assert!(grown < 12 << 20, "{grown} bytes for {} of names", MANY * 247);
}

/// Sends `said` to the service, and reads the whole answer. Returns the error that ends the
/// session; `None` if the session ends without an error.
fn ask(pair: &Pair, service: &str, needs: u32, said: &impl prost::Message) -> Option<Error> {
    block_on(async {
        let mut session = meet(pair, &pair.client).await;
        session.ask_for(service, needs);
        session.write(said).await.expect("it is open");
        loop {
            match session.read::<Listed>().await {
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(error) => return Some(error.into()),
            }
        }
    })
}

#[test]
fn a_server_refuses_false_messages_of_a_listing_client_and_continues() {
    let pair = Pair::new();
    write(&pair.there.join("file"), b"f");
    for path in [&b"/../.."[..], b"..", b"nul\0", b"file/", b"file/x", &[b'x'; 5000], b"\xff\xfe"] {
        let error = ask(&pair, "list", 1, &List { path: path.to_vec() });
        if path != b"file/" {
            let error = error.unwrap_or_else(|| panic!("{path:?} was listed"));
            assert!(error.what.contains("cannot list"), "{path:?}: {error}");
        }
    }
    // The message of another service, then versions that the server lacks and unknown services.
    let frame = longhaul_transfer::control::Frame::from(
        longhaul_transfer::control::Message::Request(liar::request(Direction::Pull, "file")),
    );
    ask(&pair, "list", 1, &frame);
    for (service, needs, why) in [
        ("list", 2, "has version 1 here; 2 is needed"),
        ("copy", 99, "is needed"),
        ("", u32::MAX, "is needed"),
        ("share", 0, "unknown service share"),
        ("lists\u{1b}[2J", 1, "unknown service lists"),
    ] {
        let error = ask(&pair, service, needs, &List::default()).expect("it is refused");
        assert_eq!(error.kind, ErrorKind::Unreachable);
        assert!(error.what.contains(why), "{error}");
    }
    assert_eq!(of_pair(&pair, &[], "").is(0, &[]).stdout, ["file"]);
}

/// Lists a folder of a server that answers with `lies` and disconnects.
fn lied(lies: Vec<Listed>) -> Ended {
    liar::lied::<List, _>("list", lies, |client, id, there| ls(client, id, &[], there))
}

#[test]
fn a_client_refuses_invalid_names_and_a_listing_that_ends_early() {
    let name = |name: &[u8]| ListedName { name: name.to_vec(), ..ListedName::default() };
    let whole = |names| Listed { names, done: true };
    assert_eq!(lied(vec![whole(vec![name(b"fine")])]).is(0, &[]).stdout, ["fine"]);
    for bad in [&b""[..], b"..", b"a/b", b"nul\0"] {
        lied(vec![whole(vec![name(bad)])]).is(1, &["an invalid entry"]);
    }
    lied(vec![whole(vec![ListedName { mode: u32::MAX, ..name(b"x") }])])
        .is(1, &["an invalid entry"]);
    lied(vec![whole(vec![ListedName { nanos: u32::MAX, ..name(b"x") }])])
        .is(1, &["an invalid entry"]);
    lied(vec![Listed { names: vec![name(b"x")], done: false }]).is(1, &["ended the listing early"]);
    // Any time can be shown.
    let times = [i64::MIN, i64::MAX].map(|seconds| ListedName { seconds, ..name(b"x") });
    lied(vec![whole(times.to_vec())]).is(0, &[]);
}

#[test]
fn a_right_to_another_service_gives_no_right_to_files() {
    let pair = Pair::with_rights(",stream=ro:/rooms", &[]);
    write(&pair.there.join("file"), b"f");
    of_pair(&pair, &[], "").is(3, &["has no right to files"]);
    pair.cp(&[&pair.at("file"), &"copy"]).is(3, &["has no right to files"]);
    let pair = Pair::with_rights(",files=ro,stream=ro:/rooms", &[]);
    write(&pair.there.join("file"), b"f");
    assert_eq!(of_pair(&pair, &[], "").is(0, &[]).stdout, ["file"]);
    write(&pair.here.join("new"), b"n");
    pair.cp(&[&"new", &pair.at("new")]).is(3, &["may not write here"]);
}

#[test]
fn a_revoked_right_ends_every_request_of_its_client_with_the_reason() {
    let scratch = tempfile::tempdir().expect("there is room for a folder");
    let client = Host::new(&scratch.path().join("client"));
    let file = scratch.path().join("allowed");
    write_private(&file, &format!("{}\n", client.id));
    let mut pair = Pair::in_memory(&["--allow-file", file.to_str().expect("our own name")]);
    write(&pair.there.join("file"), b"f");
    create_many(&pair, MANY_UNREAD);
    let survey = Survey { paths: vec![b"file".to_vec()], ..Survey::default() };
    let probe = Probe { probe: 5, flow: 6, cipher: "aes-128-gcm".to_owned() };
    block_on(async {
        let mut surveys = meet(&pair, &client).await;
        surveys.write(&Frame::from(Message::Survey(survey))).await.unwrap();
        while !matches!(
            surveys.read::<Frame>().await.unwrap().unwrap().message,
            Some(Message::Surveyed(piece)) if piece.done
        ) {}
        let mut probes = meet(&pair, &client).await;
        probes.write(&Frame::from(Message::Probe(probe))).await.unwrap();
        probes.read::<Frame>().await.unwrap().expect("it is answered");
        let mut lists = meet(&pair, &client).await;
        lists.ask_for("list", 1);
        lists.write(&List { path: b"many".to_vec() }).await.unwrap();
        lists.read::<Listed>().await.unwrap().expect("some names");
        fs::write(&file, "# nobody\n").unwrap();
        pair.server.reload();
        for session in [&mut surveys, &mut probes, &mut lists] {
            let error = loop {
                match session.read::<Bytes>().await {
                    Ok(message) => assert!(message.is_some(), "it ended well"),
                    Err(error) => break error,
                }
            };
            assert!(error.what.contains("no longer allowed"), "{error}");
        }
    });
}

/// Every message decodes as this one.
#[derive(Clone, PartialEq, prost::Message)]
struct Bytes {}

#[test]
fn a_pattern_lists_the_names_that_match() {
    let pair = Pair::new();
    for name in ["run1/a", "run2/a", "other", ".run3"] {
        write(&pair.there.join(name), b"12");
    }
    let listed = |path: &str| of_pair(&pair, &[], path);
    assert_eq!(listed("run*").is(0, &[]).stdout, ["run1", "run2"]);
    assert_eq!(listed("*/a").is(0, &[]).stdout, ["run1/a", "run2/a"]);
    assert_eq!(listed(".r*").is(0, &[]).stdout, [".run3"]);
    listed("no*").is(5, &["no name matches the pattern"]);
    let json = of_pair(&pair, &["--json"], "oth??");
    let row: Value = serde_json::from_str(&json.is(0, &[]).stdout[0]).unwrap();
    assert_eq!((&row["name"], &row["bytes"]), (&"other".into(), &2.into()));
}
