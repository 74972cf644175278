//! Killed copies, resumed by the same command.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::Value;

use crate::rig::{Child, IMPATIENT, Pair, Server, bytes, need, remains, side_by_side, skip, write};

/// Size of the object, so large that the copy takes seconds.
const SIZE: usize = 100_000_000;
/// Kill after this many bytes: twice the data that a kill may cost.
const KILL_AT: u64 = 2 * LOST;
/// 15 MB/s: the last progress event before a kill, at most 1 s old, is then at most 15 MB behind.
const RATE: &str = "--rate=120M";
/// Limit of the data that a kill may cost: about 2 s of the copy. The sink syncs every second.
const LOST: u64 = 32_000_000;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Push,
    Pull,
}

struct Case {
    pair: Pair,
    way: Way,
}

impl Case {
    fn new(way: Way, size: usize) -> Case {
        let pair = Pair::new();
        let from = if way == Way::Push { &pair.here } else { &pair.there };
        write(&from.join("file"), &bytes(size, 1));
        Case { pair, way }
    }

    fn start(&self, flag: &str) -> Child {
        self.start_with(&[flag, "--retry-for=0s"])
    }

    fn start_with(&self, flags: &[&str]) -> Child {
        match self.way {
            Way::Push => self.pair.copy(flags, "file", self.pair.at("to")),
            Way::Pull => self.pair.copy(flags, self.pair.at("file"), "to"),
        }
    }

    fn into(&self) -> &Path {
        if self.way == Way::Push { &self.pair.there } else { &self.pair.here }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.into().join(name)
    }

    /// Kills the client or the server of a slow copy; returns the progress reported before the
    /// kill.
    fn kill_under_way(&mut self, the_client: bool) -> u64 {
        let mut copy = self.start_with(&[RATE, "--retry-for=0s", IMPATIENT]);
        let reported = copy.progressed(KILL_AT)["bytes"].as_u64().unwrap();
        if the_client {
            copy.kill();
        } else {
            self.pair.server.child().signal(Signal::KILL);
            copy.end().is(7, &["same command"]);
            self.pair.restart(&[]);
        }
        self.is_whole_or_missing();
        reported
    }

    /// The final name is free, or has the complete file if the kill came too late.
    fn is_whole_or_missing(&self) {
        let there = fs::read(self.file("to")).ok();
        assert!(there.is_none_or(|there| there == bytes(SIZE, 1)));
    }

    /// Runs the copy to its end.
    fn finish(&self) -> Value {
        let summary = self.start("--retry-for=5m").end().summary();
        assert!(fs::read(self.file("to")).unwrap() == bytes(SIZE, 1));
        assert_eq!(remains(self.into()), Vec::<PathBuf>::new());
        summary
    }
}

fn a_kill_costs_little(way: Way, the_client: bool) {
    let mut case = Case::new(way, SIZE);
    let reported = case.kill_under_way(the_client);
    let summary = case.finish();
    let resumed = summary["resumed_bytes"].as_u64().unwrap();
    assert!(
        resumed > 0 && resumed + LOST >= reported,
        "{reported} arrived, {resumed} resumed: {summary}"
    );
    let moved = summary["blocks"].as_u64().unwrap() * summary["payload_bytes"].as_u64().unwrap();
    assert!(moved + reported <= SIZE as u64 + LOST, "{reported} arrived, {moved} moved: {summary}");
    assert_eq!(summary["bytes"], SIZE);
}

#[test]
fn a_push_resumes_after_its_client_is_killed() {
    a_kill_costs_little(Way::Push, true);
}

#[test]
fn a_push_resumes_after_its_server_is_killed() {
    a_kill_costs_little(Way::Push, false);
}

#[test]
fn a_pull_resumes_after_its_client_is_killed() {
    a_kill_costs_little(Way::Pull, true);
}

#[test]
fn a_pull_resumes_after_its_server_is_killed() {
    a_kill_costs_little(Way::Pull, false);
}

#[test]
fn a_lost_or_damaged_journal_is_rebuilt_from_existing_data() {
    let damages: [fn(&Path); 3] = [
        |journal| fs::remove_file(journal).unwrap(),
        |journal| {
            let mut content = fs::read(journal).unwrap();
            let middle = content.len() / 2;
            content[middle] ^= 1;
            fs::write(journal, content).unwrap();
        },
        |journal| fs::write(journal, b"nonsense").unwrap(),
    ];
    let damage_one = |damage: fn(&Path)| {
        let case = Case::new(Way::Push, SIZE);
        let journal = case.file(".to.lh-journal");
        let mut copy = case.start(RATE);
        let reported = copy.event(|event| {
            event["bytes"].as_u64() >= Some(KILL_AT) && event["event"] == "progress"
        });
        let reported = reported["bytes"].as_u64().unwrap();
        copy.kill();
        assert!(journal.exists());
        damage(&journal);
        let summary = case.finish();
        let number = |name: &str| summary[name].as_u64().unwrap();
        let moved = number("blocks") * number("payload_bytes");
        assert!(
            moved + reported <= SIZE as u64 + LOST,
            "{reported} arrived, {moved} moved: {summary}"
        );
        assert!(number("resumed_bytes") > 0, "{summary}");
    };
    side_by_side(damages, damage_one);
}

#[test]
fn wrong_data_in_a_partial_file_are_never_accepted() {
    let mut case = Case::new(Way::Push, SIZE);
    case.kill_under_way(true);
    let partial = case.file(".to.lh-part");
    let mut content = fs::read(&partial).unwrap();
    content[1_000_000] ^= 1;
    fs::write(&partial, content).unwrap();
    fs::remove_file(case.file(".to.lh-journal")).unwrap();
    case.finish();
}

#[test]
fn ctrl_c_ends_cleanly_and_the_same_command_resumes() {
    side_by_side([Way::Push, Way::Pull], |way| {
        let case = Case::new(way, SIZE);
        let mut copy = case.start(RATE);
        let reported = copy.progressed(KILL_AT)["bytes"].as_u64().unwrap();
        copy.signal(Signal::INT);
        let ended = copy.end();
        ended.is(130, &["run the same command again to resume", "interrupted"]);
        let last = ended.last();
        assert_eq!((&last["event"], &last["class"]), (&"error".into(), &"interrupted".into()));
        case.is_whole_or_missing();
        let resumed = case.finish()["resumed_bytes"].as_u64().unwrap();
        assert!(resumed + LOST >= reported, "{way:?}: {reported} arrived, {resumed} resumed");
    });
}

#[test]
fn ctrl_c_between_two_retries_ends_immediately_with_advice() {
    for way in [Way::Push, Way::Pull] {
        let mut case = Case::new(way, SIZE);
        // A TCP connection reports a killed peer immediately.
        let flags = [RATE, "--protocol=tcp"];
        let mut copy = match way {
            Way::Push => case.pair.copy(&flags, "file", case.pair.at("to")),
            Way::Pull => case.pair.copy(&flags, case.pair.at("file"), "to"),
        };
        copy.progressed(1);
        case.pair.server.child().signal(Signal::KILL);
        copy.event(|event| event["event"] == "reconnecting");
        // Without Ctrl-C the copy would retry for five minutes.
        copy.signal(Signal::INT);
        let ended = copy.end();
        ended.is(130, &["run the same command again to resume", "interrupted"]);
        assert_eq!(ended.last()["class"], "interrupted", "{ended}");
        case.is_whole_or_missing();
    }
}

#[test]
fn the_second_ctrl_c_ends_immediately() {
    for way in [Way::Push, Way::Pull] {
        let mut case = Case::new(way, SIZE);
        let mut copy = case.start(RATE);
        copy.progressed(1);
        // The frozen server cannot answer the goodbye, so the clean end waits.
        case.pair.server.child().signal(Signal::STOP);
        copy.signal(Signal::INT);
        copy.complaint("press Ctrl-C again to stop immediately");
        // The program counts signals within 200 ms as one.
        std::thread::sleep(std::time::Duration::from_millis(250));
        copy.signal(Signal::INT);
        let ended = copy.end();
        assert!(ended.is(130, &[]).events("error").is_empty(), "not an immediate end: {ended}");
        case.pair.server.child().signal(Signal::CONT);
        case.is_whole_or_missing();
    }
}

#[test]
fn a_killed_copy_of_a_tree_keeps_its_complete_files() {
    let pair = Pair::new();
    for number in 0..300 {
        write(&pair.here.join(format!("tree/{number:03}")), &bytes(100_000, number));
    }
    let mut copy = pair.start(&[&"-r", &"--rate=80M", &"tree/", &pair.at("new")]);
    let reported =
        copy.event(|event| event["files"].as_u64() > Some(20))["files"].as_u64().unwrap();
    copy.kill();
    let summary = pair.cp(&[&"-r", &"tree/", &pair.at("new")]).summary();
    assert!(summary["skipped_files"].as_u64().unwrap() >= reported, "{reported}: {summary}");
    crate::rig::assert_same(&pair.here.join("tree"), &pair.there.join("new"));
    assert!(remains(&pair.there).is_empty());
}

#[test]
fn a_source_changed_between_runs_is_detected_and_unchanged_data_are_not_sent_again() {
    let mut case = Case::new(Way::Push, SIZE);
    let reported = case.kill_under_way(true);
    let path = case.pair.here.join("file");
    let mut content = bytes(SIZE, 1);
    content[0] ^= 1;
    fs::write(&path, &content).unwrap();
    let summary = case.start("--retry-for=5m").end().summary();
    assert!(fs::read(case.file("to")).unwrap() == content);
    let number = |name: &str| summary[name].as_u64().unwrap();
    let moved = number("blocks") * number("payload_bytes");
    assert!(moved + reported <= SIZE as u64 + LOST, "{reported} arrived, {moved} moved: {summary}");
}

#[test]
fn blocks_of_a_changed_source_are_waste_not_loss() {
    const LEN: usize = 50_000_000;
    const CHUNK: u64 = 1 << 20;
    side_by_side([Way::Push, Way::Pull], |way| {
        let case = Case::new(way, LEN);
        let mut copy = case.start("--rate=60M");
        copy.progressed(15_000_000);
        copy.kill();
        let from = if way == Way::Push { &case.pair.here } else { &case.pair.there };
        let mut content = bytes(LEN, 1);
        content[0] ^= 1;
        fs::write(from.join("file"), &content).unwrap();
        let summary = case.start("--rate=200M").end().summary();
        assert!(fs::read(case.file("to")).unwrap() == content);
        let number = |name: &str| summary[name].as_u64().unwrap();
        // Blocks of the old content must not count as lost.
        assert!(number("blocks_lost") <= number("path_lost"), "{way:?}: {summary}");
        let (blocks, payload) = (number("blocks"), number("payload_bytes"));
        let due = LEN as u64 - number("resumed_bytes");
        assert!(due < LEN as u64 && blocks * payload >= due, "{way:?}: {summary}");
        // The last block of each chunk may be short.
        let most = due.div_ceil(CHUNK) * CHUNK.div_ceil(payload);
        assert!(blocks <= most, "{way:?}, at most {most}: {summary}");
        let waste = (number("sent") - blocks) as f64 / blocks as f64;
        assert!((summary["waste"].as_f64().unwrap() - waste).abs() < 1e-9, "{way:?}: {summary}");
    });
}

const FILES_AND_TREES: [(Way, &[&str]); 4] =
    [(Way::Push, &[]), (Way::Pull, &[]), (Way::Push, &["-r"]), (Way::Pull, &["-r"])];

/// Kills a copy's client. Changes the first byte of the source, but not the source's size and time.
/// Then copies again, with the additional flags `more`.
fn changes_behind_its_time(way: Way, flags: &[&str], more: &[&str]) {
    const LEN: usize = 30_000_000;
    // A journal of this many bytes has at least five chunks: its header has 40 bytes, a chunk 48.
    const SOME_CHUNKS: u64 = 300;
    let pair = Pair::new();
    let (from, into) = match way {
        Way::Push => (&pair.here, &pair.there),
        Way::Pull => (&pair.there, &pair.here),
    };
    let source = from.join("tree/file");
    write(&source, &bytes(LEN, 1));
    let named = if flags.contains(&"-r") { "tree" } else { "tree/file" };
    let copy = |more: &[&str]| {
        let flags = [flags, more].concat();
        match way {
            Way::Push => pair.copy(&flags, named, pair.at("to")),
            Way::Pull => pair.copy(&flags, pair.at(named), "to"),
        }
    };
    let to = if named == "tree" { into.join("to/file") } else { into.join("to") };
    let mut first = copy(&["--rate=16M"]);
    // The next run resumes the chunks in the journal.
    let journal = to.with_file_name(format!(".{}.lh-journal", to.file_name().unwrap().display()));
    first.event(|_| fs::metadata(&journal).is_ok_and(|it| it.len() >= SOME_CHUNKS));
    first.kill();
    assert!(!to.exists(), "{way:?} {flags:?}: it was finished before it was killed");
    let then = fs::metadata(&source).unwrap().modified().unwrap();
    let mut content = bytes(LEN, 1);
    content[0] ^= 1;
    fs::write(&source, &content).unwrap();
    fs::File::options().write(true).open(&source).unwrap().set_modified(then).unwrap();
    // At this rate the receiver's list of existing chunks arrives before the sender has completed a
    // chunk.
    let ended = copy(&[more, &["--rate=40M"]].concat()).end();
    let summary = ended.summary();
    assert!(fs::read(to).unwrap() == content, "{way:?} {flags:?}: {ended}");
    assert_eq!(summary["verified"], true, "{ended}");
    let there = summary["resumed_bytes"].as_u64().unwrap();
    assert!(there > 0, "{way:?} {flags:?}: {ended}");
    let reported: Vec<u64> = ended.events("resumed").iter().map(found).collect();
    assert_eq!(reported, [there], "{way:?} {flags:?}: {ended}");
    assert_eq!(remains(into), Vec::<PathBuf>::new());
}

#[test]
fn checksum_detects_a_change_with_equal_size_and_time() {
    side_by_side(FILES_AND_TREES, |(way, flags)| {
        changes_behind_its_time(way, flags, &["--checksum"]);
    });
}

#[test]
fn a_source_that_changed_with_equal_size_and_time_is_not_mixed_with_older_data() {
    side_by_side(FILES_AND_TREES, |(way, flags)| changes_behind_its_time(way, flags, &[]));
}

#[test]
fn the_copied_data_are_kept_if_an_equal_file_replaces_the_source() {
    let mut case = Case::new(Way::Push, SIZE);
    let reported = case.kill_under_way(true);
    let path = case.pair.here.join("file");
    let then = fs::metadata(&path).unwrap().modified().unwrap();
    fs::write(case.pair.here.join("moved"), bytes(SIZE, 1)).unwrap();
    fs::rename(case.pair.here.join("moved"), &path).unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_modified(then).unwrap();
    let summary = case.start("--retry-for=5m").end().summary();
    assert!(fs::read(case.file("to")).unwrap() == bytes(SIZE, 1));
    let there = summary["resumed_bytes"].as_u64().unwrap();
    assert!(there + LOST >= reported, "{reported} arrived, {there} resumed: {summary}");
}

/// Returns the bytes that a run found at its start, from its event `resumed`.
fn found(event: &Value) -> u64 {
    event["bytes"].as_u64().unwrap()
}

#[test]
fn a_killed_copy_resumes_with_another_cipher_protocol_and_direction() {
    let mut case = Case::new(Way::Push, SIZE);
    let pair = &mut case.pair;
    let half_way = |pair: &Pair, flags: &[&str], at: u64| {
        let mut copy = pair.copy(flags, "file", pair.at("to"));
        let reported = copy.progressed(at)["bytes"].as_u64().unwrap();
        (copy.kill(), reported)
    };
    let (_, first) = half_way(pair, &[RATE, "--cipher=aes-128-gcm"], KILL_AT / 2);
    let flags = [RATE, "--cipher=chacha20-poly1305", "--protocol=sabul"];
    let (ended, second) = half_way(pair, &flags, first.max(KILL_AT));
    let there = ended.events("resumed").first().map_or(0, found);
    assert!(there > 0 && there + LOST >= first, "{first} arrived, {there} resumed: {ended}");
    // The receiving host now runs `cp`, and the sending host serves. The old server is ended first,
    // because it may still hold the lock of the file.
    pair.server.child().signal(Signal::KILL);
    pair.server.child().ended();
    let server = Server::start(&pair.client, &pair.here, &["--allow", &pair.host.id]);
    let id = format!("--server-id={}", server.id);
    let mut command = pair.host.command(["cp", "--json", &id, "--cipher=chacha20-poly1305"]);
    command.arg(server.at("file")).arg("to").current_dir(&pair.there);
    let ended = Child::spawn(&mut command).end();
    let there = ended.summary()["resumed_bytes"].as_u64().unwrap();
    assert!(there > 0 && there + LOST >= second, "{second} arrived, {there} resumed: {ended}");
    assert!(fs::read(case.file("to")).unwrap() == bytes(SIZE, 1));
    assert_eq!(remains(Case::into(&case)), Vec::<PathBuf>::new());
}

#[test]
fn space_for_a_whole_file_is_reserved_before_its_data_arrive() {
    use std::os::unix::fs::MetadataExt;
    const LEN: u64 = 40_000_000;
    let case = Case::new(Way::Push, LEN as usize);
    let probe = case.file("probe");
    let file = fs::File::create(&probe).unwrap();
    let keep = rustix::fs::FallocateFlags::KEEP_SIZE;
    let reserved = rustix::fs::fallocate(&file, keep, 0, LEN).is_ok();
    let reserved = reserved && file.metadata().unwrap().blocks() * 512 >= LEN;
    need!(skip::unless(reserved, "this file system reserves no room"));
    fs::remove_file(&probe).unwrap();
    let mut copy = case.start("--rate=40M");
    let reported = copy.progressed(1)["bytes"].as_u64().unwrap();
    let partial = fs::metadata(case.file(".to.lh-part")).unwrap();
    copy.kill();
    assert!(reported < LEN / 2, "{reported} of {LEN} had come");
    assert!(partial.blocks() * 512 >= LEN, "{} bytes are reserved", partial.blocks() * 512);
}
