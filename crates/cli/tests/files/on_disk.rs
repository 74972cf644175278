//! Order of writes, syncs and renames in the receiver's system calls: power may fail between any
//! two of them. Some tests count syncs and reads.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use longhaul_testbed::alone;

use crate::rig::{Child, Pair, Skipped, bytes, need, skip, words, write};

/// Runs a test of this file without strace. With `is_required`, `CI_REQUIRE` forbids the skip.
fn run_without_strace(is_required: bool) -> Output {
    let name = "a_large_file_is_synced_before_its_journal_entry_and_its_name";
    let mut test = alone::command(&format!("files::on_disk::{name}"));
    test.env("PATH", "/nonexistent").env("CI_REQUIRE", if is_required { "1" } else { "0" });
    test.output().expect("it can be run")
}

#[test]
fn without_strace_these_tests_skip_with_a_reason_or_fail_if_ci_requires_strace() {
    let skipped = run_without_strace(false);
    alone::assert_passed(&skipped);
    let said = String::from_utf8_lossy(&skipped.stderr).into_owned();
    assert!(said.contains("SKIPPED: strace"), "{said}");
    assert!(!run_without_strace(true).status.success());
}

/// System calls that change, sync, rename or read files.
const CALLS: &str =
    "trace=/sync|^p?write|truncate|chmod|utime|rename|unlink|mkdir|^p?read(v|64|$)|mmap|sendfile";

const MIB: u64 = 1 << 20;

/// A system call; `begun` and `ended` are line numbers of the trace.
#[derive(Debug)]
struct Call {
    thread: String,
    name: String,
    /// The arguments; descriptors include their paths.
    words: String,
    /// The return value; zero if it is not a count.
    result: u64,
    begun: usize,
    ended: usize,
}

impl Call {
    fn is(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.name.starts_with(name))
    }

    fn is_of(&self, path: &str) -> bool {
        self.words.contains(&format!("/{path}>")) || self.words.contains(&format!("\"{path}\""))
    }

    fn changes(&self, name: &str) -> bool {
        self.is(&["pwrite", "write", "ftruncate", "fchmod", "utimens"]) && self.is_of(name)
    }

    fn syncs(&self, name: &str) -> bool {
        self.is(&["syncfs"]) || (self.is(&["fsync", "fdatasync"]) && self.is_of(name))
    }
}

fn calls(trace: &str) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    for (at, line) in trace.lines().enumerate() {
        let Some((thread, rest)) = line.trim_start().split_once(' ') else { continue };
        let rest = rest.trim_start();
        if rest.starts_with("<...") {
            // Only the last call of a thread may be unfinished.
            if let Some(call) = calls.iter_mut().rfind(|call| call.thread == thread) {
                (call.ended, call.result) = (at, result(rest));
            }
        } else if let Some((name, words)) = rest.split_once('(') {
            let [thread, name, words] = [thread, name, words].map(str::to_owned);
            calls.push(Call { thread, name, words, result: result(rest), begun: at, ended: at });
        }
    }
    calls
}

/// The return value of the call, or zero if it is not a count.
fn result(line: &str) -> u64 {
    let reported =
        line.rsplit_once(" = ").and_then(|(_, reported)| reported.split_whitespace().next());
    reported.and_then(|reported| reported.parse().ok()).unwrap_or(0)
}

/// Traces a client that copies the server's `from` into its own folder.
fn traced(pair: &Pair, flags: &[&str], from: &str) -> Result<Vec<Call>, Skipped> {
    traced_copy(pair, flags, &pair.at(from), OsStr::new("."))
}

fn traced_copy(
    pair: &Pair,
    flags: &[&str],
    from: &OsStr,
    to: &OsStr,
) -> Result<Vec<Call>, Skipped> {
    let log = pair.scratch.path().join("trace");
    let log = log.to_str().expect("a scratch folder");
    let strace = ["strace", "-f", "-qq", "-y", "-e", CALLS, "-o", log];
    let tried = Command::new("strace").args(&strace[1..]).arg("true").output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        return Err(skip::uninstalled("strace, which sees the calls, cannot run here"));
    }
    let id = format!("--server-id={}", pair.server.id);
    let mut words = words(&[&"cp", &"--json", &id, &from, &to]);
    words.extend(flags.iter().map(Into::into));
    let mut copy = pair.client.wrapped(&strace, words);
    let ended = Child::spawn(copy.current_dir(&pair.here)).end();
    assert_eq!(ended.summary()["verified"], true, "{ended}");
    Ok(calls(&fs::read_to_string(log).expect("strace wrote it")))
}

#[track_caller]
fn assert_synced_before(call: &Call, name: &str, calls: &[Call]) {
    let earlier = calls.iter().filter(|earlier| earlier.begun < call.begun);
    let changed = earlier.filter(|earlier| earlier.changes(name)).map(|change| change.ended).max();
    let changed = changed.unwrap_or_else(|| panic!("{name} was never written: {calls:#?}"));
    let is_between = |sync: &&Call| sync.begun > changed && sync.ended < call.begun;
    let synced = calls.iter().filter(is_between).any(|sync| sync.syncs(name));
    assert!(synced, "{name} is not on the disk at {call:?}: {calls:#?}");
}

#[track_caller]
fn renaming<'a>(partial: &str, calls: &'a [Call]) -> &'a Call {
    let found = calls.iter().find(|call| call.is(&["rename"]) && call.is_of(partial));
    found.unwrap_or_else(|| panic!("{partial} was not renamed: {calls:#?}"))
}

#[test]
fn a_large_file_is_synced_before_its_journal_entry_and_its_name() {
    let pair = Pair::new();
    write(&pair.there.join("file"), &bytes(10 << 20, 1));
    // At this rate the journal is written several times.
    let calls = need!(traced(&pair, &["--rate=24M"], "file"));
    let (partial, journal) = (".file.lh-part", ".file.lh-journal");
    let journalled: Vec<&Call> = calls.iter().filter(|call| call.changes(journal)).collect();
    assert!(!journalled.is_empty(), "{calls:#?}");
    journalled.iter().for_each(|entry| assert_synced_before(entry, partial, &calls));
    let named = renaming(partial, &calls);
    assert_synced_before(named, partial, &calls);
    let mut after = calls.iter().filter(|call| call.begun > named.ended);
    let folder = after.find(|call| call.is(&["fsync"]) && call.is_of("here"));
    let folder = folder.unwrap_or_else(|| panic!("its folder was not synced: {calls:#?}"));
    let pieces = calls.iter().filter(|call| call.is(&["pwrite"]) && call.is_of(partial));
    assert_eq!(pieces.map(|call| call.result).collect::<Vec<_>>(), [MIB; 10], "{calls:#?}");
    let gone = calls.iter().rfind(|call| call.is(&["unlink"]) && call.is_of(journal));
    assert!(gone.is_some_and(|gone| gone.begun > folder.ended), "{gone:?}: {calls:#?}");
}

fn read(name: &str, calls: &[Call]) -> u64 {
    let reads = calls.iter().filter(|call| call.is(&["read", "pread"]) && call.is_of(name));
    let seen = calls.iter().find(|call| call.is(&["mmap", "sendfile"]) && call.is_of(name));
    assert!(seen.is_none(), "a call that the count misses reads {name}: {seen:?}");
    reads.map(|call| call.result).sum()
}

#[test]
fn the_source_is_read_once_and_written_data_are_not_read_for_verification() {
    const LEN: u64 = 12 * MIB + 345;
    let pair = Pair::new();
    write(&pair.here.join("object"), &bytes(LEN as usize, 1));
    write(&pair.there.join("source"), &bytes(LEN as usize, 2));
    for protocol in ["--protocol=rbudp", "--protocol=tcp"] {
        let to = pair.at(protocol);
        let push = need!(traced_copy(&pair, &[protocol], OsStr::new("object"), &to));
        let back = OsString::from(protocol.trim_start_matches('-'));
        let pull = need!(traced_copy(&pair, &[protocol], &pair.at("source"), &back));
        assert_eq!(read("object", &push), LEN, "{protocol}: {push:#?}");
        let back = back.to_str().expect("plain letters");
        let partial = format!(".{back}.lh-part");
        assert!(pull.iter().any(|call| call.is(&["pwrite"]) && call.is_of(&partial)), "{pull:#?}");
        assert_eq!(read(&partial, &pull) + read(back, &pull), 0, "{protocol}: {pull:#?}");
    }
}

#[test]
fn small_files_are_on_the_disk_before_they_have_their_names_and_the_names_before_the_end() {
    // 100 files share their syncs; in a tree of three, each file has its own.
    for files in [100, 3] {
        let pair = Pair::new();
        for number in 0..files {
            write(&pair.there.join(format!("tree/{number:03}")), &bytes(1000, number));
        }
        let calls = need!(traced(&pair, &["-r"], "tree"));
        for number in 0..files {
            let partial = format!(".{number:03}.lh-small");
            assert_synced_before(renaming(&partial, &calls), &partial, &calls);
        }
        let syncs = calls.iter().filter(|call| call.is(&["sync", "fsync", "fdatasync"])).count();
        assert!(files < 100 || syncs < 30, "{syncs} syncs: {calls:#?}");
        assert_names_synced(&calls);
    }
}

#[track_caller]
fn assert_names_synced(calls: &[Call]) {
    let named = calls.iter().filter(|call| call.is(&["rename", "mkdir"])).map(|call| call.ended);
    let named = named.max().expect("it was given a name");
    let synced = calls.iter().any(|call| call.is(&["syncfs"]) && call.begun > named);
    assert!(synced, "the names are not on the disk: {calls:#?}");
}

#[test]
fn names_of_links_and_empty_files_and_folders_are_synced_after_creation() {
    let made: [fn(&Path); 3] = [
        |root| symlink("nowhere", root.join("link")).unwrap(),
        |root| write(&root.join("empty"), b""),
        |root| fs::create_dir(root.join("folder")).unwrap(),
    ];
    for make in made {
        let pair = Pair::new();
        fs::create_dir(pair.there.join("tree")).unwrap();
        // The folder exists, so only the new name has to be synced.
        fs::create_dir(pair.here.join("tree")).unwrap();
        make(&pair.there.join("tree"));
        let calls = need!(traced(&pair, &["-r"], "tree"));
        assert_names_synced(&calls);
    }
}
