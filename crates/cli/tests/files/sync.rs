//! `longhaul sync` and its deletions.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::rig::{Child, Ended, Pair, assert_same, bytes, content, remains, write};

fn start(pair: &Pair, flags: &[&str], from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> Child {
    let mut command = pair.client.command(["sync", "--json"]);
    let (from, to) = (from.as_ref(), to.as_ref());
    if [from, to].iter().any(|place| place.to_string_lossy().starts_with("lh:")) {
        command.arg(format!("--server-id={}", pair.server.id));
    }
    command.args(flags).arg(from).arg(to).current_dir(&pair.here);
    Child::spawn(&mut command)
}

fn sync(pair: &Pair, flags: &[&str], from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> Ended {
    start(pair, flags, from, to).end()
}

fn names(root: &Path) -> Vec<String> {
    content(root).into_keys().map(|path| path.to_string_lossy().into_owned()).collect()
}

/// Creates the source `root/run` with a, d and d/b, and the destination `old/run` with d and six
/// names that the source lacks.
fn trees(root: &Path, old: &Path) {
    write(&root.join("run/a"), &bytes(300_000, 1));
    write(&root.join("run/d/b"), b"b");
    for name in ["gone", "d/gone", "x/y/gone", "keep.tmp"] {
        write(&old.join("run").join(name), b"old");
    }
}

#[test]
fn a_push_a_pull_and_a_local_sync_delete_what_the_source_lacks_and_nothing_outside() {
    let pair = Pair::new();
    let outside = pair.scratch.path().join("outside");
    write(&outside.join("precious"), b"p");
    let local = pair.here.join("local");
    let cases = [
        ("run".into(), pair.at(""), &pair.here, pair.there.clone()),
        (pair.at("from/run/"), "to/run".into(), &pair.there.join("from"), pair.here.join("to")),
        ("run".into(), "local".into(), &pair.here, local),
    ];
    for (from, to, source, old) in cases {
        trees(source, &old);
        symlink(&outside, old.join("run/link")).unwrap();
        write(&old.join("other"), b"beside it");
        let flags = ["--delete", "--exclude=*.tmp"];
        let before = content(&old);
        let plan = sync(&pair, &[&flags[..], &["-n"]].concat(), &from, &to);
        assert_eq!(plan.summary()["deleted"], 6, "{plan}");
        assert_eq!(plan.events("deleted").len(), 6, "{plan}");
        assert_eq!(content(&old), before, "a plan changes nothing");
        let plain = sync(&pair, &[], &from, &to);
        assert_eq!(plain.summary()["deleted"], 0, "{plain}");
        assert!(old.join("run/gone").exists());
        let done = sync(&pair, &[&flags[..], &["-v"]].concat(), &from, &to);
        assert_eq!(done.summary()["deleted"], 6, "{done}");
        assert_eq!(done.events("deleted").len(), 6, "{done}");
        assert!(fs::remove_file(old.join("run/keep.tmp")).is_ok(), "{done}");
        assert_same(&source.join("run"), &old.join("run"));
        let nothing = sync(&pair, &["--delete", "-n"], &from, &to);
        assert!(nothing.events("folder").is_empty(), "nothing is left to do: {nothing}");
        assert!(outside.join("precious").exists() && old.join("other").exists());
        assert!(remains(&old).is_empty());
    }
}

#[test]
fn an_empty_source_and_deletions_beyond_max_delete_are_refused_and_delete_nothing() {
    let pair = Pair::new();
    fs::create_dir_all(pair.here.join("empty/sub")).unwrap();
    fs::create_dir_all(pair.there.join("empty")).unwrap();
    trees(&pair.here, &pair.there);
    write(&pair.here.join("to/x"), b"x");
    let said = "the source has no files";
    sync(&pair, &["--delete"], "empty/", pair.at("run")).is(5, &[said]);
    // The server may be lying about an empty folder.
    sync(&pair, &["--delete"], pair.at("empty/"), "to").is(4, &[said]);
    sync(&pair, &["--delete"], "empty/", "to").is(4, &[said]);
    let limit = ["--delete", "--max-delete=4"];
    sync(&pair, &limit, "run", pair.at("")).is(5, &["more than the limit of 4"]);
    assert!(!pair.there.join("run/a").exists(), "the sync was refused before it copied");
    let left = names(&pair.there);
    assert!(left.contains(&"run/gone".to_owned()) && pair.here.join("to/x").exists());
    let limit = ["--delete", "--max-delete=6"];
    assert_eq!(sync(&pair, &limit, "run", pair.at("")).summary()["deleted"], 6);
}

#[test]
fn a_sync_with_a_failed_file_deletes_nothing() {
    let pair = Pair::new();
    trees(&pair.here, &pair.there);
    // `run/a` is a file in the source and a folder in the destination.
    write(&pair.there.join("run/a/inner"), b"i");
    let failed = sync(&pair, &["--delete"], "run", pair.at(""));
    failed.is(8, &["nothing was deleted"]);
    assert_eq!(failed.last()["deleted"], 0);
    assert!(pair.there.join("run/gone").exists());
}

#[test]
fn a_killed_sync_deletes_nothing_and_the_same_command_completes_it() {
    let pair = Pair::new();
    trees(&pair.here, &pair.there);
    write(&pair.here.join("run/big"), &bytes(30 << 20, 5));
    let mut child = start(&pair, &["--delete", "--rate=40M"], "run", pair.at(""));
    child.progressed(1 << 20);
    child.kill();
    assert!(pair.there.join("run/gone").exists());
    let done = sync(&pair, &["--delete"], "run", pair.at(""));
    assert_eq!(done.summary()["deleted"], 6, "{done}");
    assert_same(&pair.here.join("run"), &pair.there.join("run"));
}

#[test]
fn a_sync_that_reconnects_keeps_files_that_another_copy_finished_meanwhile() {
    for is_push in [true, false] {
        let mut pair = Pair::new();
        let (source, old) = match is_push {
            true => (pair.here.clone(), pair.there.clone()),
            false => (pair.there.clone(), pair.here.join("to")),
        };
        trees(&source, &old);
        write(&source.join("run/big"), &bytes(20 << 20, 5));
        let (from, to) = match is_push {
            true => ("run".into(), pair.at("")),
            false => (pair.at("run"), "to".into()),
        };
        let mut child = start(&pair, &["--delete", "--rate=40M", "--retry-for=90s"], from, to);
        child.progressed(1 << 20);
        pair.kill_server();
        // Imitates the end of another copy.
        write(&old.join("run/new"), b"new");
        pair.start_again();
        let ended = child.end();
        assert_eq!(ended.summary()["deleted"], 6, "{ended}");
        assert!(!ended.events("reconnecting").is_empty(), "{ended}");
        assert!(old.join("run/new").exists() && !old.join("run/gone").exists(), "{ended}");
    }
}

#[test]
fn a_write_only_client_cannot_delete() {
    let pair = Pair::with_rights(":wo", &[]);
    trees(&pair.here, &pair.there);
    sync(&pair, &["--delete"], "run", pair.at("")).is(3, &["may not read here"]);
    assert!(pair.there.join("run/gone").exists());
    sync(&pair, &[], "run", pair.at("")).summary();
}

#[test]
fn sync_refuses_invalid_arguments_and_deletes_nothing() {
    let pair = Pair::new();
    trees(&pair.here, &pair.there);
    write(&pair.here.join("deep/run/a"), b"a");
    sync(&pair, &["--delete"], "run/a", pair.at("")).is(2, &["is not a folder"]);
    sync(&pair, &["--delete", "run"], "run", pair.at("")).is(2, &["one source folder"]);
    sync(&pair, &["--max-delete=3"], "run", pair.at("")).is(2, &["--delete"]);
    sync(&pair, &["--delete", "--max-size=1k"], "run", pair.at("")).is(2, &["size limits"]);
    sync(&pair, &["--delete"], "deep/run/", "deep").is(2, &["would be deleted there"]);
    let words = ["--delete", "--exclude=/run/gone"];
    sync(&pair, &words, "run", pair.at("")).is(2, &["/run/gone", "below the source folder"]);
    symlink("run", pair.there.join("link")).unwrap();
    sync(&pair, &["--delete"], "run/", pair.at("link")).is(5, &["is a link"]);
    assert!(pair.here.join("deep/run/a").exists() && pair.there.join("run/gone").exists());
}
