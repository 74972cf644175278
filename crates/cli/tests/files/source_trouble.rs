//! Sources that vanish, shrink, grow or change while they are copied.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use crate::rig::{Child, Pair, assert_same, bytes, remains, write};

const SIZE: usize = 10 << 20;

/// Of a file that lost what was to be read next; where it lost less, both its sizes are named.
const SHRANK: &str = "it shrank while it was copied";

type Change = fn(&Path);

/// What can happen to a file, and what is said of it.
const CHANGES: [(&str, Change, &str); 4] = [
    ("vanish", |path| fs::remove_file(path).unwrap(), "No such file"),
    ("shrink", |path| File::options().write(true).open(path).unwrap().set_len(5).unwrap(), SHRANK),
    (
        "grow",
        |path| File::options().append(true).open(path).unwrap().write_all(b"x").unwrap(),
        "it changed while it was copied, from 10485760 to 10485761 bytes",
    ),
    (
        "change",
        |path| File::options().write(true).open(path).unwrap().write_all(&bytes(SIZE, 77)).unwrap(),
        "it was modified while it was copied",
    ),
];

/// A tree whose second file changes while the first one goes across.
fn make(root: &Path, name: &str) {
    write(&root.join(name).join("a"), &bytes(SIZE, 1));
    write(&root.join(name).join("b"), &bytes(SIZE, 2));
    write(&root.join(name).join("c"), b"c");
}

fn trees_survive(pair: &Pair, from: &Path, to: &Path, start: impl Fn(&str, &str) -> Child) {
    let copies: Vec<Child> = CHANGES
        .iter()
        .map(|(name, ..)| {
            make(from, name);
            start(name, "--rate=40M")
        })
        .collect();
    for (mut copy, (name, change, reason)) in copies.into_iter().zip(CHANGES) {
        copy.progressed(1);
        change(&from.join(name).join("b"));
        let ended = copy.end();
        ended.is(8, &["b", reason]);
        let failed = ended.events("file-failed");
        assert_eq!(failed.len(), 1, "{name}: {ended}");
        assert_eq!(failed[0]["path"], format!("{name}/b"), "{ended}");
        assert!(!to.join(name).join("b").exists(), "{name}");
        assert!(fs::read(to.join(name).join("a")).unwrap() == bytes(SIZE, 1), "{name}");
        assert_eq!(fs::read(to.join(name).join("c")).unwrap(), b"c", "{name}");
        // The same command again does what is left to do.
        start(name, "-q").end().is(0, &[]);
    }
    assert_same(from, to);
    assert!(remains(&pair.here).is_empty() && remains(&pair.there).is_empty());
}

#[test]
fn a_file_of_a_tree_that_changes_here_fails_alone() {
    let pair = Pair::new();
    let start = |name: &str, flag: &str| pair.start(&[&"-r", &flag, &name, &pair.at("")]);
    trees_survive(&pair, &pair.here, &pair.there, start);
}

#[test]
fn a_file_of_a_tree_that_changes_there_fails_alone() {
    let pair = Pair::new();
    let start = |name: &str, flag: &str| pair.start(&[&"-r", &flag, &pair.at(name), &"."]);
    trees_survive(&pair, &pair.there, &pair.here, start);
}

fn files_are_named(from: &Path, to: &Path, status: i32, start: impl Fn(&str, &str) -> Child) {
    // A file that is open survives the loss of its name: its content is still the right one.
    let changes = &CHANGES[1..];
    let copies: Vec<Child> = changes
        .iter()
        .map(|(name, ..)| {
            write(&from.join(name), &bytes(SIZE, 3));
            start(name, "--rate=40M")
        })
        .collect();
    for (mut copy, (name, change, reason)) in copies.into_iter().zip(changes) {
        copy.progressed(1);
        change(&from.join(name));
        let ended = copy.end();
        // What has come stays, and the error says where.
        ended.is(status, &[name, reason, "hidden file", ".lh-part"]);
        assert!(!to.join(name).exists(), "{name}");
        assert!(to.join(format!(".{name}.lh-part")).exists(), "{name}");
        start(name, "-q").end().is(0, &[]);
    }
    assert_same(from, to);
}

#[test]
fn a_file_that_vanishes_while_it_is_read_arrives_as_it_was() {
    let pair = Pair::new();
    for (root, name) in [(&pair.here, "push"), (&pair.there, "pull")] {
        write(&root.join(name), &bytes(SIZE, 3));
    }
    let push = pair.start(&[&"--rate=40M", &"push", &pair.at("copy")]);
    let pull = pair.start(&[&"--rate=40M", &pair.at("pull"), &"copy"]);
    let ways = [(push, &pair.here, "push", &pair.there), (pull, &pair.there, "pull", &pair.here)];
    for (mut copy, from, name, to) in ways {
        copy.progressed(1);
        fs::remove_file(from.join(name)).unwrap();
        let ended = copy.end();
        ended.summary();
        assert!(fs::read(to.join("copy")).unwrap() == bytes(SIZE, 3), "{ended}");
    }
    // It is gone: the next run says so, and what stands stays.
    pair.cp(&[&"push", &pair.at("copy")]).is(4, &["push", "No such file"]);
    pair.cp(&[&pair.at("pull"), &"copy"]).is(5, &["pull", "No such file"]);
    assert!(fs::read(pair.there.join("copy")).unwrap() == bytes(SIZE, 3));
}

#[test]
fn a_file_that_changes_here_is_an_error_of_this_side() {
    let pair = Pair::new();
    let start = |name: &str, flag: &str| pair.start(&[&flag, &name, &pair.at("")]);
    files_are_named(&pair.here, &pair.there, 4, start);
}

#[test]
fn a_file_that_changes_there_is_an_error_of_that_side() {
    let pair = Pair::new();
    let start = |name: &str, flag: &str| pair.start(&[&flag, &pair.at(name), &"."]);
    files_are_named(&pair.there, &pair.here, 5, start);
}

#[test]
fn of_several_sources_one_that_is_missing_fails_alone() {
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

#[test]
fn one_file_is_one_file_with_r_too() {
    let pair = Pair::new();
    let (name, change, reason) = CHANGES[1];
    for root in [&pair.here, &pair.there] {
        write(&root.join(name), &bytes(SIZE, 3));
    }
    let push = pair.start(&[&"-r", &"--rate=40M", &name, &pair.at("copy")]);
    let pull = pair.start(&[&"-r", &"--rate=40M", &pair.at(name), &"copy"]);
    for (mut copy, root, status) in [(push, &pair.here, 4), (pull, &pair.there, 5)] {
        copy.progressed(1);
        change(&root.join(name));
        copy.end().is(status, &[name, reason]);
    }
}
