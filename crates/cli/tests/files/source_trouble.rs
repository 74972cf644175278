//! Sources that vanish, shrink, grow or change while they are copied.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use crate::rig::{Child, Pair, assert_same, bytes, remains, side_by_side, write};

const SIZE: usize = 20 << 20;
const RATE: &str = "--rate=60M";

type Change = fn(&Path);

const CHANGES: [(&str, Change); 4] = [
    ("shrink", |path| File::options().write(true).open(path).unwrap().set_len(5).unwrap()),
    ("grow", |path| File::options().append(true).open(path).unwrap().write_all(b"x").unwrap()),
    ("change", |path| overwrite(path, 77)),
    ("change-behind-its-time", |path| change_behind_its_time(path, 78)),
];

/// Overwrites a file in place, so open handles see the new content.
fn overwrite(path: &Path, seed: u64) {
    File::options().write(true).open(path).unwrap().write_all(&bytes(SIZE, seed)).unwrap();
}

/// Like [`overwrite`], but keeps the modification time.
fn change_behind_its_time(path: &Path, seed: u64) {
    let then = fs::metadata(path).unwrap().modified().unwrap();
    overwrite(path, seed);
    File::options().write(true).open(path).unwrap().set_modified(then).unwrap();
}

/// Waits until a copy reports that it copies the new version of a file.
fn copies_again(copy: &mut Child) {
    copy.event(|event| {
        let text = event["text"].as_str().unwrap_or_default();
        event["event"] == "warning" && text.contains("changed while being copied")
    });
}

/// Waits until the copy has sent more than `sent` datagrams; returns how many it has sent in all.
fn sends(copy: &mut Child, sent: u64) -> u64 {
    let sent_by = |event: &serde_json::Value| event["sent"].as_u64().unwrap_or(0);
    let is_more = |event: &serde_json::Value| event["event"] == "progress" && sent_by(event) > sent;
    sent_by(&copy.event(is_more))
}

/// Creates a tree of three files. The caller changes `b` while the copy sends `a`.
fn make(root: &Path, name: &str) {
    write(&root.join(name).join("a"), &bytes(SIZE, 1));
    write(&root.join(name).join("b"), &bytes(SIZE, 2));
    write(&root.join(name).join("c"), b"c");
}

fn trees_survive(pair: &Pair, from: &Path, to: &Path, start: impl Fn(&str) -> Child) {
    let begin = |(name, change): (&str, Change)| {
        make(from, name);
        let mut copy = start(name);
        copy.progressed(1);
        change(&from.join(name).join("b"));
        (copy, name.to_owned())
    };
    for (mut copy, name) in CHANGES.map(begin) {
        copies_again(&mut copy);
        let ended = copy.end();
        assert_eq!(ended.summary()["verified"], true, "{name}: {ended}");
        assert!(ended.events("file-failed").is_empty(), "{name}: {ended}");
    }
    assert_same(from, to);
    assert!(remains(&pair.here).is_empty() && remains(&pair.there).is_empty());
}

fn trees_lose_one(from: &Path, to: &Path, start: impl Fn(&str) -> Child) {
    make(from, "vanish");
    let mut copy = start("vanish");
    copy.progressed(1);
    fs::remove_file(from.join("vanish/b")).unwrap();
    let ended = copy.end();
    ended.is(8, &["b", "No such file"]);
    let failed = ended.events("file-failed");
    assert_eq!(failed.len(), 1, "{ended}");
    assert_eq!(failed[0]["path"], "vanish/b", "{ended}");
    assert_same(from, to);
}

#[test]
fn a_vanished_file_of_a_tree_is_the_only_failure() {
    let pair = Pair::new();
    trees_lose_one(&pair.here, &pair.there, |name| {
        pair.start(&[&"-r", &RATE, &name, &pair.at("")])
    });
    let pair = Pair::new();
    trees_lose_one(&pair.there, &pair.here, |name| {
        pair.start(&[&"-r", &RATE, &pair.at(name), &"."])
    });
}

#[test]
fn a_file_that_changes_while_its_local_tree_is_copied_arrives_in_its_new_version() {
    let pair = Pair::new();
    let start = |name: &str| pair.start(&[&"-r", &RATE, &name, &pair.at("")]);
    trees_survive(&pair, &pair.here, &pair.there, start);
}

#[test]
fn a_file_that_changes_while_its_remote_tree_is_copied_arrives_in_its_new_version() {
    let pair = Pair::new();
    let start = |name: &str| pair.start(&[&"-r", &RATE, &pair.at(name), &"."]);
    trees_survive(&pair, &pair.there, &pair.here, start);
}

fn files_arrive(from: &Path, to: &Path, start: impl Fn(&str) -> Child) {
    let begin = |(name, change): (&str, Change)| {
        write(&from.join(name), &bytes(SIZE, 3));
        let mut copy = start(name);
        copy.progressed(SIZE as u64 / 8);
        change(&from.join(name));
        (copy, name.to_owned())
    };
    for (mut copy, name) in CHANGES.map(begin) {
        copies_again(&mut copy);
        let ended = copy.end();
        assert_eq!(ended.summary()["verified"], true, "{name}: {ended}");
    }
    assert_same(from, to);
    assert!(remains(to).is_empty());
}

#[test]
fn a_local_file_that_changes_while_it_is_read_arrives_in_its_new_version() {
    let pair = Pair::new();
    files_arrive(&pair.here, &pair.there, |name| pair.start(&[&RATE, &name, &pair.at("")]));
}

#[test]
fn a_remote_file_that_changes_while_it_is_read_arrives_in_its_new_version() {
    let pair = Pair::new();
    files_arrive(&pair.there, &pair.here, |name| pair.start(&[&RATE, &pair.at(name), &"."]));
}

#[test]
fn a_file_whose_permissions_change_while_it_is_read_is_compared_and_resumed() {
    let pair = Pair::new();
    let path = pair.here.join("file");
    write(&path, &bytes(SIZE, 3));
    let mut copy = pair.start(&[&RATE, &"file", &pair.at("")]);
    copy.progressed(SIZE as u64 / 4);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(&path, mode).unwrap();
    copies_again(&mut copy);
    let ended = copy.end();
    assert!(ended.taken_up() >= SIZE as u64 / 8, "{ended}");
    assert_eq!(ended.summary()["verified"], true, "{ended}");
    assert_same(&pair.here, &pair.there);
}

fn keep_changing(copy: &mut Child, path: &Path) {
    sends(copy, 0);
    for seed in [21, 22] {
        overwrite(path, seed);
        copies_again(copy);
        // 50 more datagrams show that this attempt reads the file.
        let sent = sends(copy, 0);
        sends(copy, sent + 50);
    }
    overwrite(path, 23);
}

#[test]
fn a_file_that_changes_in_each_attempt_fails_and_stays_resumable() {
    let pair = Pair::new();
    for (root, name) in [(&pair.here, "push"), (&pair.there, "pull")] {
        write(&root.join(name), &bytes(SIZE, 3));
    }
    let start = |name: &str| match name {
        "push" => pair.start(&[&RATE, &name, &pair.at("")]),
        _ => pair.start(&[&"-r", &RATE, &pair.at(name), &"."]),
    };
    let ways = [(&pair.here, "push", 4), (&pair.there, "pull", 5)];
    side_by_side(ways, |(from, name, status)| {
        let mut copy = start(name);
        keep_changing(&mut copy, &from.join(name));
        let ended = copy.end();
        ended.is(status, &[name, "while it was copied, in each of 3 attempts", ".lh-part"]);
        start(name).end().summary();
    });
    for (name, from, to) in [("push", &pair.here, &pair.there), ("pull", &pair.there, &pair.here)] {
        assert!(fs::read(to.join(name)).unwrap() == fs::read(from.join(name)).unwrap(), "{name}");
    }
}

#[test]
fn a_file_deleted_during_its_read_arrives_complete() {
    let pair = Pair::new();
    for (root, name) in [(&pair.here, "push"), (&pair.there, "pull")] {
        write(&root.join(name), &bytes(SIZE, 3));
    }
    let push = pair.start(&[&RATE, &"push", &pair.at("copy")]);
    let pull = pair.start(&[&RATE, &pair.at("pull"), &"copy"]);
    let ways = [(push, &pair.here, "push", &pair.there), (pull, &pair.there, "pull", &pair.here)];
    for (mut copy, from, name, to) in ways {
        copy.progressed(1);
        fs::remove_file(from.join(name)).unwrap();
        let ended = copy.end();
        ended.summary();
        assert!(fs::read(to.join("copy")).unwrap() == bytes(SIZE, 3), "{ended}");
    }
    // The next run reports the missing source, and existing files stay.
    pair.cp(&[&"push", &pair.at("copy")]).is(4, &["push", "No such file"]);
    pair.cp(&[&pair.at("pull"), &"copy"]).is(5, &["pull", "No such file"]);
    assert!(fs::read(pair.there.join("copy")).unwrap() == bytes(SIZE, 3));
}

#[test]
fn a_missing_source_does_not_stop_the_others() {
    let pair = Pair::new();
    let names = ["a", "missing", "c"];
    for root in [&pair.here, &pair.there] {
        for name in [names[0], names[2]] {
            write(&root.join(name), name.as_bytes());
        }
    }
    for root in [&pair.here, &pair.there] {
        fs::create_dir(root.join("dir")).unwrap();
    }
    let far = names.map(|name| pair.at(name));
    let push = pair.cp(&[&"a", &"missing", &"c", &pair.at("dir/")]);
    let pull = pair.cp(&[&far[0], &far[1], &far[2], &"dir/"]);
    for (ended, root) in [(push, &pair.there), (pull, &pair.here)] {
        ended.is(8, &["missing", "No such file"]);
        assert_eq!(ended.events("file-failed").len(), 1, "{ended}");
        for name in [names[0], names[2]] {
            assert_eq!(fs::read(root.join("dir").join(name)).unwrap(), name.as_bytes());
        }
    }
    pair.cp(&[&"missing", &"neither", &pair.at("dir/")]).is(4, &["missing", "No such file"]);
}
