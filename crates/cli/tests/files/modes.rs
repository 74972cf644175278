//! Permissions of copied files and folders.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use super::permissions::{NOBODY, bound, pair_of_nobody};
use crate::rig::{
    Child, Ended, Pair, Server, Skipped, bytes, need, remains, side_by_side, words, write,
};

const UMASK_027: [&str; 4] = ["sh", "-c", "umask 027; exec \"$@\"", "sh"];

/// The rate is so low that a test can inspect and kill a copy of [`LARGE`] bytes.
const RATE: &str = "--rate=24M";
const LARGE: usize = 20_000_000;

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap_or_else(|error| panic!("{path:?}: {error}")).mode() & 0o7777
}

/// `cp ARGS` under umask 027, not started yet.
fn masked(pair: &Pair, args: &[&str]) -> Command {
    let id = format!("--server-id={}", pair.server.id);
    let mut words = words(&[&"cp", &"--json", &id]);
    words.extend(args.iter().map(Into::into));
    let mut command = pair.client.wrapped(&UMASK_027, words);
    command.current_dir(&pair.here);
    command
}

fn at(pair: &Pair, path: &str) -> String {
    pair.at(path).into_string().expect("plain letters")
}

/// A source's path and mode, and the mode of its copy without -p under umask 027.
const MODES: [(&str, u32, u32); 11] = [
    ("t/private", 0o600, 0o600),
    ("t/plain", 0o644, 0o640),
    ("t/tool", 0o755, 0o750),
    ("t/fixed", 0o444, 0o440),
    ("t/set-id", 0o6757, 0o750),
    ("t/empty", 0o600, 0o600),
    ("t/large", 0o600, 0o600),
    ("t/cell/key", 0o666, 0o640),
    ("t/shut/file", 0o640, 0o640),
    ("t/cell", 0o700, 0o700),
    ("t/shut", 0o555, 0o550),
];

fn make_modes(root: &Path) {
    for (name, mode, _) in MODES {
        let path = root.join(name);
        if !path.is_dir() {
            let len = if name.ends_with("large") { 9 << 20 } else { 1000 };
            write(&path, &bytes(if name.ends_with("empty") { 0 } else { len }, 1));
        }
        set_mode(&path, mode);
    }
}

#[track_caller]
fn assert_masked(root: &Path) {
    for (name, _, expected) in MODES {
        let found = mode(&root.join(name));
        assert_eq!(found, expected, "{name}: {found:o} and not {expected:o}");
    }
}

/// Lets an ordinary user remove the scratch folder.
fn release(root: &Path) {
    for shut in ["t/shut", "contents/shut"].map(|name| root.join(name)) {
        if shut.exists() {
            set_mode(&shut, 0o755);
        }
    }
}

#[test]
fn without_p_new_files_and_folders_get_the_mode_of_the_source_minus_the_umask() {
    let mut pair = Pair::new();
    let allow = ["--allow", &pair.client.id];
    let served = Server::words("127.0.0.1:0", &pair.there, &allow);
    pair.server = Server::start_as(&mut pair.host.wrapped(&UMASK_027, served));
    make_modes(&pair.here);
    pair.cp(&[&"-r", &"t", &pair.at("")]).summary();
    assert_masked(&pair.there);
    pair.cp(&[&"t/private", &pair.at("alone")]).summary();
    assert_eq!(mode(&pair.there.join("alone")), 0o600);
    set_mode(&pair.here.join("t"), 0o750);
    pair.cp(&[&"-r", &"t/", &pair.at("contents")]).summary();
    assert_eq!(mode(&pair.there.join("contents")), 0o750);
    for root in [&pair.here, &pair.there] {
        release(root);
        fs::remove_dir_all(root.join("t")).unwrap();
    }
    make_modes(&pair.there);
    Child::spawn(&mut masked(&pair, &["-r", &at(&pair, "t"), "."])).end().summary();
    assert_masked(&pair.here);
    set_mode(&pair.there.join("t"), 0o700);
    Child::spawn(&mut masked(&pair, &["-r", &at(&pair, "t/"), "contents"])).end().summary();
    assert_eq!(mode(&pair.here.join("contents")), 0o700);
    Child::spawn(&mut masked(&pair, &[&at(&pair, "t/private"), "alone"])).end().summary();
    assert_eq!(mode(&pair.here.join("alone")), 0o600);
    [&pair.here, &pair.there].into_iter().for_each(|root| release(root));
}

/// Copies into a folder that already has a part of the tree. Kills the copy after a quarter, and
/// runs it again to its end.
fn interrupt(flags: &[&str], [file, folder, old]: [u32; 3]) {
    let pair = Pair::new();
    write(&pair.there.join("t/new/large"), &bytes(LARGE, 1));
    write(&pair.there.join("t/old/small"), b"small");
    for (name, mode) in [("t/new/large", 0o444), ("t/new", 0o555), ("t/old", 0o755)] {
        set_mode(&pair.there.join(name), mode);
    }
    fs::create_dir_all(pair.here.join("t/old")).unwrap();
    set_mode(&pair.here.join("t/old"), 0o711);
    let from = at(&pair, "t");
    let args = [&["-r", RATE, "--retry-for=0s", &from, "."], flags].concat();
    let assert_closed = |when: &str| {
        let folder = mode(&pair.here.join("t/new"));
        assert_eq!(folder & 0o6777, 0o700, "{flags:?} {when}: {folder:o}");
        let partial = mode(&pair.here.join("t/new/.large.lh-part"));
        assert_eq!(partial, 0o600, "{flags:?} {when}: {partial:o}");
        let old = mode(&pair.here.join("t/old"));
        assert_eq!(old, 0o711, "{flags:?} {when}: {old:o}");
    };
    let mut copy = Child::spawn(&mut masked(&pair, &args));
    copy.progressed(LARGE as u64 / 4);
    assert_closed("under way");
    copy.kill();
    assert_closed("after a kill");
    let mut copy = Child::spawn(&mut masked(&pair, &args));
    copy.progressed(LARGE as u64 / 2);
    assert_closed("under way again");
    copy.end().summary();
    let expected = [("t/new/large", file), ("t/new", folder), ("t/old", old)];
    for (name, expected) in expected {
        let found = mode(&pair.here.join(name));
        assert_eq!(found, expected, "{flags:?} {name}: {found:o} and not {expected:o}");
    }
    for root in [&pair.here, &pair.there] {
        set_mode(&root.join("t/new"), 0o755);
    }
    assert!(remains(&pair.here).is_empty());
}

#[test]
fn unfinished_copies_are_private_and_a_resumed_one_ends_with_the_right_modes() {
    let without_p = (&[][..], [0o440, 0o550, 0o711]);
    side_by_side([without_p, (&["-p"], [0o444, 0o555, 0o755])], |(flags, modes)| {
        interrupt(flags, modes);
    });
}

/// Client and server with a tree of read-only files each. If the tests run as root, both run as the
/// user nobody, who owns their folders.
fn read_only(files: &[(&str, usize)]) -> Result<Pair, Skipped> {
    let mut pair = pair_of_nobody()?;
    for (root, other) in [(&pair.here, "here"), (&pair.there, "there")] {
        for (name, len) in files {
            let path = root.join(other).join(name);
            write(&path, &bytes(*len, 1));
            set_mode(&path, 0o444);
        }
        if rustix::process::geteuid().is_root() {
            chown(root, Some(NOBODY), Some(NOBODY)).expect("root may");
        }
    }
    let words = Server::words("127.0.0.1:0", &pair.there, &["--allow", &pair.client.id]);
    pair.server = Server::start_as(bound(&mut pair.host.command(words)));
    Ok(pair)
}

fn cp_as_nobody(pair: &Pair, args: &[&dyn AsRef<std::ffi::OsStr>]) -> Ended {
    Child::spawn(bound(&mut pair.cp_command(args))).end()
}

#[test]
fn an_ordinary_user_copies_read_only_files_with_p_both_ways() {
    let files = [("1", 1000), ("2", 1000), ("empty", 0), ("large", 9 << 20)];
    let pair = need!(read_only(&files));
    cp_as_nobody(&pair, &[&"-rp", &"here", &pair.at("")]).summary();
    cp_as_nobody(&pair, &[&"-rp", &pair.at("there"), &"."]).summary();
    for (name, len) in files {
        for path in [pair.there.join("here").join(name), pair.here.join("there").join(name)] {
            assert_eq!(mode(&path), 0o444, "{path:?}");
            assert_eq!(fs::read(&path).unwrap(), bytes(len, 1), "{path:?}");
        }
    }
}

#[test]
fn a_copy_killed_after_its_file_became_read_only_resumes() {
    let pair = need!(read_only(&[("large", LARGE)]));
    let start = |flag| {
        let from = pair.at("there/large");
        let args: [&dyn AsRef<std::ffi::OsStr>; 5] =
            [&flag, &"--retry-for=0s", &"-p", &from, &"to"];
        Child::spawn(bound(&mut pair.cp_command(&args)))
    };
    let mut copy = start(RATE);
    copy.progressed(LARGE as u64 / 2);
    copy.kill();
    // As if the kill came between the change of the mode and the rename.
    set_mode(&pair.here.join(".to.lh-part"), 0o444);
    let summary = start("--rate=1G").end().summary();
    assert!(summary["resumed_bytes"].as_u64().unwrap() > 0, "{summary}");
    assert_eq!(fs::read(pair.here.join("to")).unwrap(), bytes(LARGE, 1));
    assert_eq!(mode(&pair.here.join("to")), 0o444);
}
