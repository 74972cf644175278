//! The shared tree, through `longhaul share` and through the library.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use longhaul_share::messages::{
    Answer, Ask, Asked, Begin, Get, Hold, Item, Put, Tell, Told, Watch,
};
use longhaul_transfer::api::blocking::wait;
use longhaul_transfer::api::{Client, Edited, Identity as Key, Share, ShareEvent, Trust};
use serde_json::Value;
use tempfile::TempDir;

use super::liar::{self, block_on, meet};
use crate::rig::{Child, Ended, Host, Pair, Server};

/// A pair whose server keeps a shared tree.
pub(super) struct Sharing {
    pub(super) pair: Pair,
    _folder: TempDir,
}

impl Deref for Sharing {
    type Target = Pair;

    fn deref(&self) -> &Pair {
        &self.pair
    }
}

/// A server with a shared tree. The client has `rights` to this tree.
pub(super) fn pair(rights: &str) -> Sharing {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let file = folder.path().join("tree.redb");
    let args = ["--share", file.to_str().expect("our own name")];
    Sharing { pair: Pair::with_rights(&format!(",{rights}"), &args), _folder: folder }
}

pub(super) fn words(pair: &Pair, verb: &str, key: &str, more: &[&str]) -> Vec<String> {
    let url = pair.at(key).into_string().expect("our own name");
    let id = format!("--server-id={}", pair.server.id);
    let words = ["share", verb, &id, &url].into_iter().chain(more.iter().copied());
    words.map(str::to_owned).collect()
}

pub(super) fn share(pair: &Pair, verb: &str, key: &str, more: &[&str]) -> Ended {
    pair.client.run(words(pair, verb, key, more))
}

fn library(client: &Host, server: &Server) -> Share {
    let identity = Key::load_or_create(&client.config).expect("the client has one");
    let trust = Trust::only(server.id.as_str());
    let client = Client::builder().identity(identity).trust(trust).build().unwrap();
    wait(client.share(format!("lh://{}", server.address)).into_future()).expect("it answers")
}

#[test]
fn values_are_put_read_listed_watched_and_deleted() {
    let mut pair = pair("share=rw");
    share(&pair, "get", "world/a", &[]).is(5, &["the key world/a does not exist"]);
    let ended = pair.pair.server.child().event(|event| event["event"] == "ended");
    assert_eq!(ended["result"], "done", "the command closed the session: {ended}");
    share(&pair, "put", "world/a", &["one"]).is(0, &[]);
    assert_eq!(share(&pair, "get", "world/a", &[]).is(0, &[]).stdout, ["one"]);
    let read = share(&pair, "get", "world/a", &["--json"]).last();
    assert_eq!((&read["key"], &read["value"]), (&"world/a".into(), &"one".into()));
    let version = read["version"].as_u64().expect("a version");
    let if_version = format!("--if-version={version}");
    share(&pair, "put", "world/a", &["two", &if_version]).is(0, &[]);
    share(&pair, "put", "world/a", &["no", &if_version])
        .is(1, &["was not changed: it has version"]);
    share(&pair, "put", "other", &["x", "--if-version=0"]).is(0, &[]);
    assert_eq!(share(&pair, "ls", "", &[]).is(0, &[]).stdout, ["other", "world/a"]);
    // A late watcher first gets all existing values below its prefix.
    let mut watch =
        Child::spawn(&mut pair.client.command(words(&pair, "watch", "world", &["--json"])));
    assert_eq!(watch.event(|event| event["event"] == "snapshot")["values"], 1);
    assert_eq!(watch.event(|event| event["event"] == "value")["value"], "two");
    share(&pair, "put", "other", &["not watched"]).is(0, &[]);
    share(&pair, "put", "world/b", &["three"]).is(0, &[]);
    assert_eq!(watch.event(|event| event["event"] == "value")["key"], "world/b");
    share(&pair, "rm", "world/a", &[]).is(0, &[]);
    assert_eq!(watch.event(|event| event["event"] == "deleted")["key"], "world/a");
    share(&pair, "put", "no//key", &["x"]).is(2, &["single slashes"]);
    let long = "x".repeat((64 << 10) + 1);
    share(&pair, "put", "long", &[&long]).is(2, &["the value is longer than 64 KiB"]);
}

#[test]
fn presence_vanishes_with_the_command_that_holds_it() {
    let pair = pair("share=rw");
    let mut watch = Child::spawn(&mut pair.client.command(words(&pair, "watch", "", &["--json"])));
    watch.event(|event| event["event"] == "snapshot");
    let held = words(&pair, "put", "here/me", &["hello", "--presence"]);
    let mut held = Child::spawn(&mut pair.client.command(held));
    assert_eq!(watch.event(|event| event["event"] == "value")["key"], "here/me");
    let line = held.line().unwrap_or_default();
    assert!(line.starts_with("here/me has version "), "{line}");
    held.signal(rustix::process::Signal::INT);
    assert_eq!(watch.event(|event| event["event"] == "deleted")["key"], "here/me");
}

#[test]
fn two_signals_within_a_fifth_of_a_second_end_the_command_cleanly() {
    let mut pair = pair("share=rw");
    let held = words(&pair, "put", "here/me", &["hello", "--presence"]);
    let mut held = Child::spawn(&mut pair.client.command(held));
    held.line();
    // `timeout` signals its child, and then the child's process group.
    held.signal(rustix::process::Signal::TERM);
    held.signal(rustix::process::Signal::INT);
    held.ended();
    let ended = pair.pair.server.child().event(|event| event["event"] == "ended");
    assert_eq!(ended["result"], "done", "{ended}");
}

#[test]
fn rights_are_by_prefix_and_mode() {
    let reads = pair("share=ro:world");
    share(&reads, "put", "world/a", &["x"]).is(3, &["may not change 'world/a'"]);
    share(&reads, "get", "world/a", &[]).is(5, &["does not exist"]);
    share(&reads, "get", "worlds", &[]).is(3, &["may not read 'worlds'"]);
    share(&reads, "ls", "", &[]).is(3, &["may not watch"]);
    assert_eq!(share(&reads, "ls", "world", &[]).is(0, &[]).stdout, [""; 0]);
    let writes = pair("share=wo:in");
    share(&writes, "put", "in/a", &["x"]).is(0, &[]);
    share(&writes, "put", "out", &["x"]).is(3, &["may not change"]);
    share(&writes, "get", "in/a", &[]).is(3, &["may not read"]);
    share(&writes, "put", "in/a", &["y", "--if-version=0"]).is(1, &["may not be read"]);
    let none = pair("files=rw");
    share(&none, "ls", "", &[]).is(3, &["has no right to share"]);
    share(&none, "get", "a", &[]).is(3, &["has no right to share"]);
    let without = Pair::with_rights(",share=rw", &[]);
    share(&without, "ls", "", &[]).is(3, &["unknown service share"]);
    share(&without, "get", "a", &[]).is(3, &["unknown service share"]);
}

#[test]
fn an_edit_repeated_on_a_new_stream_is_applied_once_even_without_the_right_to_read() {
    let pair = pair("share=wo:w");
    let ask = |asked| Ask { asked: Some(asked) };
    let begin = |first, instance| ask(Asked::Begin(Begin { instance, first, seen: Some(0) }));
    let put = |again| {
        let (key, value) = ("w/a".to_owned(), Some(b"x".to_vec()));
        ask(Asked::Put(Put { id: 3, key, value, version: Some(0), again, ..Put::default() }))
    };
    // This stream ends without a goodbye.
    let lost = block_on(async {
        let mut session = meet(&pair, &pair.client).await;
        session.ask_for("share", 2);
        for ask in [begin(true, 5), put(false)] {
            session.write(&ask).await.expect("it is written");
        }
        session.read::<Tell>().await.expect("it has begun");
        session.read::<Tell>().await.expect("it is made")
    });
    let version = |tell: Option<Tell>| match tell {
        Some(Tell { told: Some(Told::Answer(answer)) }) => (answer.result, answer.version),
        other => panic!("{other:?}"),
    };
    let made = version(lost);
    assert_eq!(made.0, 0);
    let (heard, _) = told(&pair, vec![begin(false, 5), put(true)]);
    assert_eq!(version(heard.last().cloned()), made, "it is the same edit");
    // An edit of another program is a different edit, even if its number is the same.
    let (heard, _) = told(&pair, vec![begin(true, 6), put(false)]);
    assert_eq!(version(heard.last().cloned()), (1, 0));
}

#[test]
fn a_command_ends_with_an_error_if_its_lock_is_lost_with_the_connection() {
    let mut sharing = pair("share=rw");
    let pair = &mut sharing.pair;
    let start = |verb: &str, key: &str, more: &[&str]| {
        Child::spawn(&mut pair.client.command(words(pair, verb, key, more)))
    };
    let mut watch = start("watch", "", &["--json"]);
    watch.event(|event| event["event"] == "snapshot");
    let mut lock = start("put", "lock", &["me", "--presence", "--if-version=0"]);
    let mut open = start("put", "open", &["me", "--presence"]);
    let mut keys: Vec<String> = (0..2)
        .map(|_| watch.event(|event| event["event"] == "value")["key"].as_str().unwrap().to_owned())
        .collect();
    keys.sort();
    assert_eq!(keys, ["lock", "open"]);
    // Kill the server only after both commands have their answer. A command without its answer
    // would send its put again, and hold the key again.
    for (child, key) in [(&mut lock, "lock"), (&mut open, "open")] {
        let line = child.line().unwrap_or_default();
        assert!(line.starts_with(&format!("{key} has version ")), "{line}");
    }
    pair.kill_server();
    pair.start_again();
    let ended = lock.ended();
    ended.is(1, &["the presence of lock is lost"]);
    // The presence of `open`, which has no condition, is restored.
    watch.event(|event| event["event"] == "value" && event["key"] == "open");
    drop(open);
}

/// The edits that the server has acknowledged, by key.
#[derive(Default)]
struct Made {
    edits: Mutex<BTreeMap<String, u64>>,
    more: Condvar,
}

impl Made {
    fn insert(&self, key: String, number: u64) {
        self.edits.lock().unwrap().insert(key, number);
        self.more.notify_all();
    }

    /// Waits for one more edit.
    fn grow(&self) {
        const PATIENCE: Duration = Duration::from_secs(60);
        let edits = self.edits.lock().unwrap();
        let sum = |edits: &BTreeMap<String, u64>| edits.values().sum::<u64>();
        let before = sum(&edits);
        let grown = self.more.wait_timeout_while(edits, PATIENCE, |edits| sum(edits) == before);
        assert!(!grown.unwrap().1.timed_out(), "no edit was acknowledged within {PATIENCE:?}");
    }
}

/// Stops the writers, also when a check fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Writes to 16 keys that only this `writer` changes, until stopped. A value is the number of the
/// edit.
fn load(share: &Share, writer: usize, made: &Made, ends: &AtomicBool) {
    let mut number = 0_u64;
    while !ends.load(Ordering::Relaxed) {
        number += 1;
        let key = format!("load/{writer}/{}", number % 16);
        let edited = wait(share.put(&key, number.to_string().into_bytes()).into_future());
        match edited.expect("it goes on after each kill") {
            Edited::Made(_) => made.insert(key, number),
            other => panic!("nobody else writes {key}: {other:?}"),
        }
    }
}

#[test]
fn nothing_acknowledged_is_lost_when_the_server_is_killed_under_load() {
    let kills: u64 =
        std::env::var("LONGHAUL_SHARE_KILLS").map_or(3, |kills| kills.parse().expect("a number"));
    let mut pair = pair("share=rw");
    let share = library(&pair.client, &pair.server);
    let (made, ends) = (Made::default(), AtomicBool::new(false));
    let mut seed = 0x9e37_79b9_u64;
    // The scope ends the writers before the server ends, because the writers retry while the
    // server is unreachable.
    thread::scope(|scope| {
        for writer in 0..4 {
            let (share, made, ends) = (&share, &made, &ends);
            scope.spawn(move || load(share, writer, made, ends));
        }
        let _ends = Ends(&ends);
        for kill in 0..kills {
            // Waits for at least one edit since the server's start, then for a random time of at
            // most 131 ms.
            made.grow();
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            thread::sleep(Duration::from_micros(seed >> 47));
            let acknowledged = made.edits.lock().unwrap().clone();
            pair.pair.kill_server();
            pair.pair.start_again();
            let now = library(&pair.client, &pair.server);
            let found = wait(now.snapshot("load")).expect("it is there");
            let found: BTreeMap<String, u64> = found
                .into_iter()
                .map(|(key, value)| {
                    let text = String::from_utf8(value.bytes.to_vec()).expect("a number");
                    (key, text.parse().expect("a number"))
                })
                .collect();
            for (key, number) in acknowledged {
                let there = found.get(&key).copied().unwrap_or(0);
                assert!(
                    there >= number,
                    "kill {kill}: {key} is {there}, {number} was acknowledged"
                );
            }
        }
    });
}

#[test]
fn a_watcher_that_falls_behind_gets_a_snapshot_and_never_a_gap() {
    const KEYS: usize = 8;
    const ROUNDS: usize = 100;
    let pair = pair("share=rw");
    let (watcher, writer) =
        (library(&pair.client, &pair.server), library(&pair.client, &pair.server));
    let mut watch = wait(watcher.watch("big")).unwrap();
    assert_eq!(wait(watch.next()).unwrap().unwrap(), ShareEvent::Snapshot(Vec::new()));
    // The changes have 50 MiB, and the tree keeps the last 32 MiB of changes for watchers. The
    // watcher reads nothing meanwhile.
    let mut last = 0;
    for round in 0..ROUNDS * KEYS {
        let value: Arc<[u8]> = vec![round as u8; 64 << 10].into();
        let key = format!("big/{}", round % KEYS);
        let Edited::Made(version) = wait(writer.put(&key, value).into_future()).unwrap() else {
            panic!("nobody else writes");
        };
        last = version;
    }
    let (mut seen, mut newest, mut snapshots) = (BTreeMap::new(), 0, 0);
    while newest < last {
        match wait(watch.next()).expect("it goes on").expect("it goes on") {
            ShareEvent::Snapshot(values) => {
                snapshots += 1;
                let before = newest;
                newest = values.iter().map(|(_, value)| value.version).max().unwrap_or(0);
                assert!(newest >= before);
                seen = values.into_iter().map(|(key, value)| (key, value.version)).collect();
            }
            ShareEvent::Put(key, value) => {
                // No gap: version numbers are consecutive. After an empty snapshot the first number
                // is unknown.
                assert!(newest == 0 || value.version == newest + 1, "{} of {key}", value.version);
                newest = value.version;
                seen.insert(key, newest);
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(snapshots > 0, "the watcher kept up, so the test says nothing");
    assert_eq!(seen.len(), KEYS);
}

#[test]
fn a_watch_above_the_limit_is_refused_and_ends_no_other() {
    let pair = pair("share=rw");
    let share = library(&pair.client, &pair.server);
    let mut watches: Vec<_> = (0..15).map(|_| wait(share.watch("")).unwrap()).collect();
    for watch in &mut watches {
        assert_eq!(wait(watch.next()).unwrap().unwrap(), ShareEvent::Snapshot(Vec::new()));
    }
    let mut more = wait(share.watch("")).unwrap();
    let refused = wait(more.next()).expect("it hears why").unwrap_err();
    assert!(refused.to_string().contains("15 watches"), "{refused}");
    wait(share.put("k", *b"v").into_future()).unwrap();
    for watch in &mut watches {
        assert!(matches!(wait(watch.next()), Some(Ok(ShareEvent::Put(..)))));
    }
    // After the end of a watch, the client may open another one.
    drop(watches.pop());
    let has_room = (0..1000).any(|_| {
        let mut again = wait(share.watch("")).unwrap();
        matches!(wait(again.next()), Some(Ok(ShareEvent::Snapshot(..))))
    });
    assert!(has_room);
}

#[test]
fn a_tree_is_exported_as_lines_and_imported() {
    let (from, to) = (pair("share=rw"), pair("share=rw"));
    share(&from, "put", "a/text", &["ü \"x\""]).is(0, &[]);
    let binary = from.here.join("binary");
    fs::write(&binary, b"\xff\x00\n").unwrap();
    let mut put = from.client.command(words(&from, "put", "a/bytes", &[]));
    assert!(put.stdin(fs::File::open(&binary).unwrap()).status().unwrap().success());
    let lines = share(&from, "export", "", &[]).is(0, &[]).stdout.join("\n");
    assert!(lines.contains("ff000a"), "{lines}");
    let file = from.here.join("lines");
    fs::write(&file, &lines).unwrap();
    let import = |key: &str| {
        let mut import = to.client.command(words(&to, "import", key, &[]));
        import.stdin(fs::File::open(&file).unwrap()).output().unwrap()
    };
    assert!(!import("b").status.success(), "the keys are not below b");
    assert!(import("a").status.success());
    let values = |pair: &Pair| -> Vec<(Value, Value)> {
        let lines = share(pair, "export", "a", &[]).stdout;
        let rows = lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
        rows.map(|row| (row["key"].clone(), row["value_hex"].clone())).collect()
    };
    assert_eq!(values(&from), values(&to));
}

/// Sends `asks`. Returns the server's answers, and the reason if it ends the stream with an error.
fn told(pair: &Pair, asks: Vec<Ask>) -> (Vec<Tell>, Option<String>) {
    block_on(async {
        let mut session = meet(pair, &pair.client).await;
        session.ask_for("share", 2);
        let expected =
            asks.iter().filter(|ask| !matches!(ask.asked, None | Some(Asked::Watch(_)))).count();
        for ask in asks {
            if session.write(&ask).await.is_err() {
                break;
            }
        }
        let mut heard = Vec::new();
        loop {
            match session.read::<Tell>().await {
                Ok(Some(tell)) => heard.push(tell),
                Ok(None) => return (heard, None),
                Err(error) => return (heard, Some(error.what)),
            }
            if heard.len() == expected {
                let _ = session.close(None).await;
                return (heard, None);
            }
        }
    })
}

#[test]
fn a_server_refuses_invalid_values_in_each_message_and_continues() {
    let pair = pair("share=rw:w");
    let ask = |asked| Ask { asked: Some(asked) };
    let begin = || ask(Asked::Begin(Begin::default()));
    let put = |key: &str| Put { id: 1, key: key.to_owned(), ..Put::default() };
    for bad in [
        put(""),
        put("/w/a"),
        put("w//a"),
        put("w/../x"),
        put("w/\u{1b}[2J"),
        put(&format!("w/{}", "x".repeat(512))),
        put("outside"),
        Put { value: Some(vec![0; (64 << 10) + 1]), ..put("w/a") },
        Put { version: Some(1), not_since: Some(1), ..put("w/a") },
    ] {
        let (heard, _) = told(&pair, vec![Ask::default(), begin(), ask(Asked::Put(bad.clone()))]);
        let [Tell { told: Some(Told::Begun(_)) }, Tell { told: Some(Told::Answer(answer)) }] =
            &heard[..]
        else {
            panic!("{heard:?}")
        };
        assert_eq!((answer.id, answer.result), (1, 2), "{bad:?}");
        assert!(!answer.why.is_empty() && !answer.why.contains('\u{1b}'), "{answer:?}");
    }
    for bad in [
        vec![ask(Asked::Put(put("w/a")))],
        vec![ask(Asked::Hold(Hold { key: "w/a".to_owned(), ..Hold::default() }))],
        vec![begin(), begin()],
    ] {
        let (_, last) = told(&pair, bad.clone());
        assert!(last.is_some_and(|last| last.contains("Begin")), "{bad:?}");
    }
    for (key, value) in [("outside", 1), ("w/../a", 1), ("w/a", (64 << 10) + 1)] {
        let hold = Hold { id: 2, key: key.to_owned(), value: vec![0; value], ..Hold::default() };
        let (heard, _) = told(&pair, vec![begin(), ask(Asked::Hold(hold))]);
        let Some(Tell { told: Some(Told::Answer(answer)) }) = heard.last() else {
            panic!("{heard:?}")
        };
        assert_eq!((answer.id, answer.result), (2, 2), "{key}");
    }
    for key in ["", "..", "x", "w//"] {
        let get = Get { id: u64::MAX, key: key.to_owned() };
        let (heard, _) = told(&pair, vec![ask(Asked::Get(get))]);
        let [Tell { told: Some(Told::Answer(answer)) }] = &heard[..] else { panic!("{heard:?}") };
        assert_eq!((answer.id, answer.result), (u64::MAX, 2), "{key}");
    }
    let watch = |prefix: &str| {
        let prefix = prefix.to_owned();
        Watch { prefix, revision: u64::MAX, run: 1, anew: true }
    };
    for (prefix, why) in [("w/..", "not a key"), ("", "may not watch"), ("ww", "may not watch")] {
        let (_, last) = told(&pair, vec![ask(Asked::Watch(watch(prefix)))]);
        assert!(last.as_deref().is_some_and(|last| last.contains(why)), "{prefix}: {last:?}");
    }
    let (_, last) = told(&pair, vec![ask(Asked::Watch(watch("w"))), Ask::default()]);
    assert!(last.is_some_and(|last| last.contains("takes no further message")));
    let (_, last) = told(&pair, vec![Ask::default(), ask(Asked::Watch(watch("w")))]);
    assert!(last.is_some_and(|last| last.contains("a separate stream")));
    share(&pair, "put", "w/a", &["alive"]).is(0, &[]);
}

#[test]
fn a_client_refuses_invalid_answers() {
    let lied = |lies: Vec<Tell>| {
        liar::lied::<Ask, _>("share", lies, |client, id, there| {
            let url = there.into_string().unwrap() + "key";
            client.run(["share", "get", &format!("--server-id={id}"), "--retry-for=0s", &url])
        })
    };
    let answer = |answer| Tell { told: Some(Told::Answer(answer)) };
    let item =
        |key: &str| Item { key: key.to_owned(), value: Some(b"x".to_vec()), ..Item::default() };
    // The client's first read has the number 2.
    let right = Answer { id: 2, item: Some(item("key")), ..Answer::default() };
    let wrong = Answer { item: Some(item("other")), ..right.clone() };
    for lie in [
        vec![answer(wrong)],
        vec![answer(Answer { id: 3, ..right.clone() })],
        vec![answer(Answer { id: 4, ..right.clone() })],
        vec![answer(Answer { item: Some(Item { value: None, ..item("key") }), ..right.clone() })],
        vec![Tell::default()],
        vec![],
    ] {
        let ended = lied(lie.clone());
        assert_ne!(ended.status, Some(0), "{lie:?}: {ended}");
        assert_eq!(ended.stdout, [""; 0], "{lie:?}");
    }
}

#[test]
fn reads_of_the_tree_that_succeed_are_logged_as_done() {
    let mut pair = pair("share=rw").pair;
    share(&pair, "put", "w/a", &["1"]).is(0, &[]);
    for verb in ["ls", "export", "get"] {
        share(&pair, verb, "w/a", &[]).is(0, &[]);
    }
    let mut watch = Child::spawn(&mut pair.client.command(words(&pair, "watch", "w", &["--json"])));
    watch.event(|event| event["event"] == "value");
    watch.signal(rustix::process::Signal::INT);
    watch.ended();
    // Each of the five commands opens one stream. `ls`, `export` and `watch` open a second stream
    // for their watch.
    for _ in 0..8 {
        let ended = pair.server.child().event(|event| event["event"] == "ended");
        assert_eq!(ended["result"], "done", "{ended}");
    }
}

#[test]
fn a_refusal_names_the_right_of_the_client() {
    let pair = pair("share=ro");
    share(&pair, "put", "w/a", &["1"]).is(3, &["may not change 'w/a'; its right is ro:/"]);
}
