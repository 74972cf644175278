//! Copies from several hosts in parallel, and from replicas of one object.

use std::ffi::OsString;
use std::fs::{self, File, FileTimes};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::faults::slow_down;
use super::relay::Relay;
use crate::rig::slow::as_words;
use crate::rig::{Child, Ended, Host, Server, bytes, need, scratch, skip, write};

/// A client, and several servers with a folder each.
pub(super) struct Star {
    pub(super) client: Host,
    pub(super) here: PathBuf,
    pub(super) servers: Vec<Server>,
    pub(super) roots: Vec<PathBuf>,
    hosts: Vec<Host>,
    // This is the last field, so that the folder is removed after the servers have ended.
    _scratch: TempDir,
}

impl Star {
    pub(super) fn new(count: usize) -> Star {
        Star::with(count, &[])
    }

    fn with(count: usize, args: &[&str]) -> Star {
        let scratch = scratch();
        let client = Host::new(&scratch.path().join("client"));
        let here = scratch.path().join("here");
        fs::create_dir(&here).expect("the scratch folder is ours");
        let (mut servers, mut roots, mut hosts) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..count {
            let root = scratch.path().join(format!("root{number}"));
            fs::create_dir(&root).expect("the scratch folder is ours");
            let host = Host::new(&scratch.path().join(format!("server{number}")));
            let args = [&["--allow", &client.id], args].concat();
            servers.push(Server::start(&host, &root, &args));
            roots.push(root);
            hosts.push(host);
        }
        Star { client, here, servers, roots, hosts, _scratch: scratch }
    }

    pub(super) fn log(&self) -> PathBuf {
        self.here.with_extension("log")
    }

    pub(super) fn restart(&mut self, server: usize) {
        let address = self.servers[server].address.clone();
        let words = Server::words(&address, &self.roots[server], &["--allow", &self.client.id]);
        self.servers[server] = Server::start_as(&mut self.hosts[server].command(words));
    }

    /// Kills a server and starts it again on its old port. The command `within` runs the server.
    pub(super) fn restart_within(&mut self, server: usize, within: &[String]) {
        self.signal(server, Signal::KILL);
        let address = self.servers[server].address.clone();
        let words = Server::words(&address, &self.roots[server], &["--allow", &self.client.id]);
        let mut command = self.hosts[server].wrapped(&as_words(within), words);
        self.servers[server] = Server::start_as(&mut command);
    }

    /// Servers that all have the file `x` with this content.
    pub(super) fn of_replicas(count: usize, content: &[u8]) -> Star {
        let star = Star::new(count);
        star.roots.iter().for_each(|root| write(&root.join("x"), content));
        star
    }

    /// Starts a copy. Sources are (server, path).
    pub(super) fn start(
        &self,
        flags: &[&str],
        sources: &[(usize, &str)],
        destination: &str,
    ) -> Child {
        let at = sources.iter().map(|(server, path)| self.servers[*server].at(path));
        self.start_at(flags, at.collect(), destination)
    }

    fn start_at(&self, flags: &[&str], at: Vec<OsString>, destination: &str) -> Child {
        let mut words: Vec<OsString> = ["cp", "--json", "--accept-new"].map(Into::into).to_vec();
        words.extend(flags.iter().map(OsString::from));
        words.extend(at);
        words.push(destination.into());
        Child::spawn(self.client.command(words).current_dir(&self.here))
    }

    pub(super) fn client_in_here(&self, words: Vec<OsString>) -> Ended {
        Child::spawn(self.client.command(words).current_dir(&self.here)).end()
    }

    /// Starts `cp --replicas` of `x` from these servers.
    pub(super) fn replicas(&self, flags: &[&str], servers: &[usize]) -> Child {
        let sources: Vec<(usize, &str)> = servers.iter().map(|server| (*server, "x")).collect();
        self.start(&[&["--replicas"], flags].concat(), &sources, "x")
    }

    #[track_caller]
    pub(super) fn assert_copied(&self, name: &str, content: &[u8]) {
        let copy = fs::read(self.here.join(name)).expect("it was copied");
        assert!(copy == content, "{name} differs");
    }

    pub(super) fn signal(&mut self, server: usize, signal: Signal) {
        self.servers[server].child().signal(signal);
    }

    pub(super) fn row(&self, event: &Value, server: usize) -> Value {
        let address = &self.servers[server].address;
        self.row_of(event, server).unwrap_or_else(|| panic!("no row of {address} in {event}"))
    }

    pub(super) fn row_of(&self, event: &Value, server: usize) -> Option<Value> {
        let address = &self.servers[server].address;
        let of = |row: &&Value| row["source"].as_str().is_some_and(|s| s.contains(&**address));
        event["sources"].as_array()?.iter().find(of).cloned()
    }
}

fn texts(ended: &Ended, event: &str, field: &str) -> Vec<String> {
    let events = ended.events(event);
    events.iter().filter_map(|event| event[field].as_str().map(str::to_owned)).collect()
}

#[test]
fn files_of_several_hosts_are_copied_in_parallel_and_the_output_has_a_row_for_each_host() {
    let star = Star::new(3);
    let contents = [bytes(6_000_000, 1), bytes(9_000_000, 2), bytes(2_000_000, 3)];
    for (number, (root, content)) in star.roots.iter().zip(&contents).enumerate() {
        write(&root.join(format!("part{number}")), content);
    }
    write(&star.roots[2].join("tree/inner"), b"small");
    let weight = format!("--weight={}=2", star.servers[1].address);
    let sources = [(0, "part0"), (1, "part1"), (2, "part2"), (2, "tree")];
    let ended = star.start(&["-r", "--receive-share=90%", &weight], &sources, ".").end();
    let summary = ended.summary();
    assert_eq!(summary["protocol"], "gtp", "{ended}");
    assert_eq!((&summary["files"], &summary["bytes"]), (&4.into(), &17_000_005.into()), "{ended}");
    for (number, content) in contents.iter().enumerate() {
        star.assert_copied(&format!("part{number}"), content);
    }
    star.assert_copied("tree/inner", b"small");
    let row = star.row(&summary, 1);
    assert_eq!(row["state"], "done", "{ended}");
    assert_eq!(row["received_bytes"], 9_000_000, "{ended}");
    for field in ["rate_bps", "share", "loss", "resent"] {
        assert!(row[field].is_number(), "{field} in {ended}");
    }
    // Progress events have a row for each host; the third host has two of the sources.
    let progress = ended.events("progress");
    assert!(progress.iter().all(|event| event["sources"].as_array().is_some_and(|r| r.len() == 3)));
}

#[test]
fn a_source_that_fails_does_not_stop_the_others_and_is_named() {
    let star = Star::new(3);
    let content = bytes(3_000_000, 4);
    write(&star.roots[0].join("a"), &content);
    write(&star.roots[2].join("c"), &content);
    let ended = star.start(&[], &[(0, "a"), (1, "missing"), (2, "c")], ".").end();
    ended.is(8, &["missing", "1 of 3 sources"]);
    star.assert_copied("a", &content);
    star.assert_copied("c", &content);
    let failed = texts(&ended, "source-failed", "source");
    assert!(failed.len() == 1 && failed[0].contains("missing"), "{ended}");
    assert_eq!(star.row(&ended.last(), 1)["state"], "failed", "{ended}");
    // If all sources fail, the exit status is that of the first error.
    star.start(&[], &[(0, "none"), (1, "missing")], ".").end().is(5, &["none", "missing"]);
}

#[test]
fn two_sources_with_the_same_name_are_refused_and_a_clash_in_a_folder_is_reported() {
    let star = Star::new(2);
    for (root, seed) in star.roots.iter().zip([1, 2]) {
        write(&root.join("x"), &bytes(100, seed));
        write(&root.join("tree/same"), &bytes(100, seed));
        write(&root.join(format!("tree/own{seed}")), b"own");
    }
    let ended = star.start(&[], &[(0, "x"), (1, "x")], ".").end();
    ended.is(2, &["have the same name, x", "--replicas"]);
    assert!(!star.here.join("x").exists());
    // The client learns the contents of folders only during the copy.
    let ended = star.start(&["-r"], &[(0, "tree/"), (1, "tree/")], ".").end();
    ended.is(8, &["both have same"]);
    let there = |name: &str| star.here.join(name).exists();
    assert!(there("same") && there("own1") != there("own2"), "{ended}");
}

#[test]
fn a_copy_of_three_replicas_survives_the_kill_of_two() {
    let content = bytes(30_000_000, 5);
    let mut star = Star::of_replicas(3, &content);
    let mut copy = star.replicas(&["--rate=30M"], &[0, 1, 2]);
    copy.progressed(3_000_000);
    star.signal(0, Signal::KILL);
    star.signal(2, Signal::KILL);
    let ended = copy.end();
    let summary = ended.summary();
    assert_eq!(summary["verified"], true, "{ended}");
    let warnings = texts(&ended, "warning", "text");
    for killed in [0, 2] {
        let address = &star.servers[killed].address;
        assert!(warnings.iter().any(|text| text.contains(address)), "{address}: {ended}");
    }
    let digest = blake3::hash(&content).to_hex().to_string();
    assert_eq!(summary["blake3"], digest, "{ended}");
    star.assert_copied("x", &content);
    // The surviving source has sent more than its third (10 MB).
    let brought = star.row(&summary, 1)["received_bytes"].as_u64();
    assert!(brought > Some(12_000_000), "{ended}");
}

#[test]
fn a_frozen_replica_loses_its_chunks_and_joins_again_when_it_continues() {
    let content = bytes(24_000_000, 6);
    let mut star = Star::of_replicas(3, &content);
    let mut copy = star.replicas(&["--rate=16M"], &[0, 1, 2]);
    copy.progressed(1_000_000);
    star.signal(0, Signal::STOP);
    star.signal(1, Signal::STOP);
    let warned = |event: &Value, what: &str, star: &Star| {
        let text = event["text"].as_str().unwrap_or_default();
        text.contains(what) && text.contains(&star.servers[0].address)
    };
    copy.event(|event| warned(event, "is silent; its chunks", &star));
    star.signal(0, Signal::CONT);
    copy.event(|event| warned(event, "is back", &star));
    let ended = copy.end();
    let summary = ended.summary();
    assert_eq!(summary["verified"], true, "{ended}");
    // Replica 1 stays frozen.
    let state = star.row(&summary, 1)["state"].clone();
    assert!(state == "silent" || state == "retrying", "{ended}");
    assert_eq!(summary["failed_sources"], 1, "{ended}");
    assert!(ended.stderr.contains("1 of 3 sources"), "{ended}");
    star.assert_copied("x", &content);
    star.signal(1, Signal::CONT);
}

#[test]
fn a_replica_that_slows_down_is_named_and_the_others_deliver_the_rest() {
    let content = bytes(260_000_000, 13);
    let mut star = Star::of_replicas(3, &content);
    let over = AtomicBool::new(false);
    let (id, stop) = (star.servers[0].child().id(), &over);
    let ended = thread::scope(|scope| {
        let mut copy = star.replicas(&["--rate=60M"], &[0, 1, 2]);
        // Waits until the source's usual rate is known.
        copy.progressed(60_000_000);
        let (on, off) = (Duration::from_millis(15), Duration::from_millis(285));
        scope.spawn(move || slow_down(id, on, off, stop));
        let ended = copy.end();
        over.store(true, Ordering::Relaxed);
        ended
    });
    let summary = ended.summary();
    star.assert_copied("x", &content);
    let brought = |server| star.row(&summary, server)["received_bytes"].as_u64();
    assert!(brought(0) < brought(1) && brought(0) < brought(2), "{ended}");
    // The warning requires that the other sources keep their rate.
    let is_between = |event: &&Value| {
        event["bytes"].as_u64().is_some_and(|at| (70_000_000..220_000_000).contains(&at))
    };
    let progress = ended.events("progress");
    let rates = progress.iter().filter(is_between).map(|event| event["rate_now_bps"].as_f64());
    let rates: Vec<Option<f64>> = rates.collect();
    // Few progress events mean that the disk hung; low rates mean that the machine is busy.
    let is_idle = rates.len() >= 5 && rates.iter().all(|rate| *rate >= Some(100e6));
    let busy = "this machine is too busy for 60 Mbit/s from each source: all sources are slow";
    need!(skip::unless(is_idle, busy));
    let warnings = texts(&ended, "warning", "text");
    let address = &star.servers[0].address;
    let is_told = |text: &String| text.contains("has become slow") && text.contains(address);
    assert!(warnings.iter().any(is_told), "{ended}");
}

#[test]
fn if_the_path_to_a_replica_is_cut_the_other_replica_delivers_its_chunks() {
    let content = bytes(24_000_000, 14);
    let star = Star::of_replicas(2, &content);
    let relay = Relay::new(&star.servers[0]);
    let at = vec![format!("lh://{}/x", relay.address()).into(), star.servers[1].at("x")];
    let mut copy = star.start_at(&["--replicas", "--rate=24M"], at, "x");
    copy.progressed(1_000_000);
    let cut = |cut| {
        relay.rules.no_data.store(cut, Ordering::Relaxed);
        relay.rules.no_control.store(cut, Ordering::Relaxed);
    };
    cut(true);
    let told = |event: &Value, what| event["text"].as_str().is_some_and(|t| t.contains(what));
    // The relay cuts only UDP. If the session was made over TCP, the data use TCP too, and the copy
    // reports `fallback`.
    copy.event(|event| told(event, "is silent; its chunks") || event["event"] == "fallback");
    cut(false);
    let ended = copy.end();
    assert_eq!(ended.summary()["verified"], true, "{ended}");
    star.assert_copied("x", &content);
}

#[test]
fn a_replica_that_differs_from_two_others_is_left_out_and_a_tie_of_two_is_refused() {
    let content = bytes(5_000_000, 7);
    let star = Star::of_replicas(3, &content);
    let other = File::options().write(true).open(star.roots[1].join("x")).expect("it is ours");
    other.write_all_at(b"!", 4_000_000).expect("it is ours");
    let ended = star.replicas(&[], &[0, 1, 2]).end();
    assert_eq!(ended.summary()["verified"], true, "{ended}");
    star.assert_copied("x", &content);
    let failed = ended.events("source-failed");
    let named = failed[0]["source"].as_str().is_some_and(|s| s.contains(&star.servers[1].address));
    assert!(named && failed.len() == 1, "{ended}");
    assert!(failed[0]["what"].as_str().is_some_and(|w| w.contains("1 of 5 MiB")), "{ended}");
    assert_eq!(ended.summary()["failed_sources"], 1, "{ended}");
    assert!(ended.stderr.contains("1 of 3 sources") && ended.stderr.contains("the whole object"));
    fs::remove_file(star.here.join("x")).expect("it was copied");
    let ended = star.replicas(&[], &[0, 1]).end();
    ended.is(5, &["no majority", "byte 3145728"]);
    assert!(!star.here.join("x").exists(), "{ended}");
}

#[test]
fn a_source_with_wrong_bytes_is_named_and_the_others_are_copied() {
    let star = Star::with(3, &["--allow-plain"]);
    let content = bytes(3_000_000, 15);
    for (root, name) in star.roots.iter().zip(["a", "b", "c"]) {
        write(&root.join(name), &content);
    }
    let relay = Relay::new(&star.servers[1]);
    relay.rules.damaged.store(usize::MAX, Ordering::Relaxed);
    let wrong = format!("lh://{}/b", relay.address());
    let at = vec![star.servers[0].at("a"), wrong.into(), star.servers[2].at("c")];
    let ended = star.start_at(&["--cipher=none", "--rate=100M"], at, ".").end();
    ended.is(8, &["chunks failed verification", "4 times", "1 of 3 sources"]);
    let failed = texts(&ended, "source-failed", "source");
    let address = relay.address().to_string();
    assert!(failed.len() == 1 && failed[0].contains(&address), "{ended}");
    star.assert_copied("a", &content);
    star.assert_copied("c", &content);
    assert!(!star.here.join("b").exists(), "{ended}");
}

/// Overwrites a file and restores its modification time.
fn forge(path: &std::path::Path, offset: u64, content: &[u8]) {
    let file = File::options().write(true).open(path).expect("it is ours");
    let modified = file.metadata().and_then(|m| m.modified()).expect("it has a time");
    file.write_all_at(content, offset).expect("it is ours");
    file.set_times(FileTimes::new().set_modified(modified)).expect("it is ours");
}

#[test]
fn a_replica_that_changes_is_named_and_the_others_deliver_its_part() {
    let content = bytes(20_000_000, 8);
    let star = Star::of_replicas(3, &content);
    let mut copy = star.replicas(&["--rate=16M"], &[0, 1, 2]);
    copy.progressed(1_000_000);
    forge(&star.roots[1].join("x"), 0, &bytes(20_000_000, 9));
    let ended = copy.end();
    assert_eq!(ended.summary()["verified"], true, "{ended}");
    star.assert_copied("x", &content);
    let failed = texts(&ended, "source-failed", "source");
    assert!(failed.len() == 1 && failed[0].contains(&star.servers[1].address), "{ended}");
    // The error names the place of the difference, or says that the file changed.
    let what = texts(&ended, "source-failed", "what").concat();
    assert!(what.contains("from byte") || what.contains("modified"), "{ended}");
}

#[test]
fn a_killed_copy_of_replicas_resumes_with_other_replicas() {
    let content = bytes(24_000_000, 10);
    let star = Star::of_replicas(3, &content);
    let mut copy = star.replicas(&["--rate=24M"], &[0, 1]);
    copy.progressed(6_000_000);
    copy.kill();
    assert!(!star.here.join("x").exists());
    let ended = star.replicas(&[], &[1, 2]).end();
    let resumed = ended.summary()["resumed_bytes"].as_u64();
    assert!(resumed >= Some(1_000_000), "{ended}");
    star.assert_copied("x", &content);
    // All chunks are already there.
    let ended = star.replicas(&["-r"], &[0, 2]).end();
    assert_eq!(ended.summary()["verified"], true, "{ended}");
}

#[test]
fn empty_files_and_files_with_fewer_chunks_than_replicas_are_copied() {
    let star = Star::new(3);
    for root in &star.roots {
        for path in ["empty", "none/a", "none/b", "ends/a", "ends/z"] {
            write(&root.join(path), b"");
        }
        write(&root.join("ends/m"), b"one chunk");
        write(&root.join("exact"), &bytes(2 << 20, 12));
    }
    let copied = |path: &str, files: u64, size: u64| {
        let sources = [0, 1, 2].map(|server| (server, path));
        let ended = star.start(&["--replicas", "-r"], &sources, path).end();
        let summary = ended.summary();
        let is = (&summary["files"], &summary["bytes"], &summary["verified"]);
        assert_eq!(is, (&files.into(), &size.into(), &true.into()), "{path}: {ended}");
    };
    copied("empty", 1, 0);
    copied("none", 2, 0);
    copied("ends", 3, 9);
    copied("exact", 1, 2 << 20);
    for path in ["empty", "none/a", "none/b", "ends/a", "ends/z"] {
        star.assert_copied(path, b"");
    }
    star.assert_copied("ends/m", b"one chunk");
    star.assert_copied("exact", &bytes(2 << 20, 12));
}

#[test]
fn empty_files_and_folders_may_be_among_several_sources() {
    let star = Star::new(3);
    write(&star.roots[0].join("first"), b"");
    fs::create_dir(star.roots[1].join("folder")).expect("the scratch folder is ours");
    write(&star.roots[2].join("last"), &bytes(3_000_000, 13));
    fs::create_dir(star.here.join("all")).expect("the scratch folder is ours");
    let sources = [(0, "first"), (1, "folder"), (2, "last")];
    let ended = star.start(&["-r"], &sources, "all").end();
    let summary = ended.summary();
    assert_eq!((&summary["files"], &summary["bytes"]), (&2.into(), &3_000_000.into()), "{ended}");
    star.assert_copied("all/first", b"");
    star.assert_copied("all/last", &bytes(3_000_000, 13));
    assert!(star.here.join("all/folder").is_dir());
}

#[test]
fn trees_of_many_files_can_be_replicas() {
    let star = Star::new(3);
    for root in &star.roots {
        for number in 0..300u64 {
            write(&root.join(format!("tree/{}/f{number}", number % 7)), &bytes(20_000, number));
        }
        write(&root.join("tree/large"), &bytes(9_000_000, 11));
    }
    let sources = [(0, "tree"), (1, "tree"), (2, "tree")];
    let ended = star.start(&["--replicas", "-r"], &sources, "copy").end();
    assert_eq!(ended.summary()["files"], 301, "{ended}");
    for number in 0..300u64 {
        star.assert_copied(&format!("copy/{}/f{number}", number % 7), &bytes(20_000, number));
    }
    star.assert_copied("copy/large", &bytes(9_000_000, 11));
}
