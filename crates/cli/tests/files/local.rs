//! Copies within one host.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use rustix::process::Signal;

use crate::rig::slow::{HANGS, as_words, failing_calls, slow_calls, traced};
use crate::rig::{
    Child, Ended, Host, assert_same_attributes, binary, bytes, content, need, remains, send_signal,
    skip, write,
};

struct Here {
    client: Host,
    folder: TempDir,
}

impl Here {
    fn new() -> Here {
        let folder = tempfile::tempdir().expect("there is room for a folder");
        let client = Host::new(&folder.path().join("client"));
        fs::create_dir(folder.path().join("files")).unwrap();
        Here { client, folder }
    }

    fn at(&self, path: &str) -> std::path::PathBuf {
        self.folder.path().join("files").join(path)
    }

    fn cp(&self, args: &[&str]) -> Ended {
        let mut command = self.client.command(["cp", "--json"]);
        command.args(args).current_dir(self.at(""));
        Child::spawn(&mut command).end()
    }

    /// Starts a copy as a child of the command `wrapper`.
    fn start_in(&self, wrapper: &[String], args: &[&str]) -> Child {
        let words = ["cp", "--json"].iter().chain(args);
        let mut command = self.client.wrapped(&as_words(wrapper), words);
        Child::spawn(command.current_dir(self.at("")))
    }
}

fn names(root: &Path) -> Vec<String> {
    content(root).into_keys().map(|path| path.to_string_lossy().into_owned()).collect()
}

#[test]
fn a_local_copy_of_a_tree_is_verified_and_a_second_one_skips_all_files() {
    let here = Here::new();
    write(&here.at("t/large"), &bytes(20 << 20, 1));
    write(&here.at("t/d/small"), b"s");
    write(&here.at("t/empty"), b"");
    symlink("d/small", here.at("t/link")).unwrap();
    let summary = here.cp(&["-a", "t", "new"]).summary();
    assert_eq!((&summary["protocol"], &summary["verified"]), (&"local".into(), &true.into()));
    assert_eq!((&summary["files"], &summary["bytes"]), (&3.into(), &((20 << 20) + 1).into()));
    assert_same_attributes(&here.at("t"), &here.at("new"));
    assert!(remains(&here.at("")).is_empty());
    // This copy goes into an existing folder, as with the cp of coreutils.
    here.cp(&["-a", "t", "new"]).summary();
    assert!(here.at("new/t/d/small").is_file());
    let again = here.cp(&["-avv", "t/", "new"]);
    assert_eq!(again.summary()["skipped_files"], 3, "{again}");
    assert_eq!(again.events("skipped").len(), 4, "{again}");
}

#[test]
fn a_partial_file_is_compared_and_not_written_again() {
    let here = Here::new();
    let whole = bytes(20 << 20, 1);
    write(&here.at("big"), &whole);
    write(&here.at("to/.big.lh-part"), &whole[..10 << 20]);
    let summary = here.cp(&["big", "to"]).summary();
    assert_eq!(summary["resumed_bytes"], 10 << 20);
    assert!(fs::read(here.at("to/big")).unwrap() == whole);
    assert!(remains(&here.at("to")).is_empty());
}

#[test]
fn the_partial_file_of_another_user_is_kept() {
    let is_root = rustix::process::geteuid().is_root();
    need!(skip::unless(is_root, "only root can create files of two users"));
    let here = Here::new();
    write(&here.at("a"), &bytes(20 << 20, 1));
    write(&here.at(".b.lh-part"), b"theirs");
    let scratch = here.folder.path();
    fs::copy(binary(), scratch.join("longhaul")).expect("there is room for the program");
    for open in [scratch, &here.at("")] {
        fs::set_permissions(open, fs::Permissions::from_mode(0o777)).expect("it is ours");
    }
    let theirs = fs::Permissions::from_mode(0o600);
    fs::set_permissions(here.at(".b.lh-part"), theirs).expect("it is ours");
    let mut copy = Command::new("setpriv");
    copy.args(["--reuid=65534", "--regid=65534", "--clear-groups", "../longhaul", "cp", "a", "b"]);
    copy.env("LONGHAUL_CONFIG_DIR", scratch.join("theirs")).current_dir(here.at(""));
    let ended = Child::spawn(copy.stdout(Stdio::piped()).stderr(Stdio::piped())).end();
    ended.is(4, &["b: ", "user 0 has a partial file of it"]);
    assert_eq!(fs::read(here.at(".b.lh-part")).unwrap(), b"theirs");
    assert!(!here.at("b").exists());
}

#[test]
fn a_local_copy_handles_checksums_filters_file_lists_and_missing_folders() {
    let here = Here::new();
    write(&here.at("t/x.dat"), b"x");
    write(&here.at("t/y.tmp"), b"y");
    here.cp(&["-r", "--exclude=*.tmp", "--mkpath", "t", "a/b/t"]).summary();
    assert_eq!(names(&here.at("a/b/t")), ["x.dat"]);
    // The content differs, but size and time are equal.
    let time = fs::metadata(here.at("t/x.dat")).unwrap().modified().unwrap();
    fs::write(here.at("a/b/t/x.dat"), b"!").unwrap();
    let file = fs::File::options().write(true).open(here.at("a/b/t/x.dat")).unwrap();
    file.set_modified(time).unwrap();
    here.cp(&["-r", "--exclude=*.tmp", "t/", "a/b/t"]).summary();
    assert_eq!(fs::read(here.at("a/b/t/x.dat")).unwrap(), b"!");
    here.cp(&["-rc", "--exclude=*.tmp", "t/", "a/b/t"]).summary();
    assert_eq!(fs::read(here.at("a/b/t/x.dat")).unwrap(), b"x");
    write(&here.at("list"), b"y.tmp\nmissing\n");
    here.cp(&["--files-from=list", "t", "listed"]).is(8, &["missing", "1 file FAILED"]);
    assert_eq!(names(&here.at("listed")), ["y.tmp"]);
    write(&here.at("t/missing"), b"found");
    here.cp(&["--files-from=list", "t", "listed"]).summary();
    assert_eq!(names(&here.at("listed")), ["missing", "y.tmp"]);
    here.cp(&["missing", "other"]).is(4, &["cannot read missing"]);
}

#[test]
fn a_local_dry_run_names_the_files_and_creates_nothing() {
    let here = Here::new();
    write(&here.at("t/x"), b"x");
    write(&here.at("t/y"), b"y");
    let dry = here.cp(&["-rvn", "t", "new"]);
    assert_eq!(dry.summary()["copied_files"], 2, "{dry}");
    assert_eq!(dry.events("file").len(), 2, "{dry}");
    assert!(!here.at("new").exists());
}

#[test]
fn a_copy_onto_or_into_itself_is_refused_and_changes_nothing() {
    let here = Here::new();
    write(&here.at("t/d/x"), b"x");
    write(&here.at("file"), b"f");
    symlink("t", here.at("to t")).unwrap();
    let before = names(&here.at(""));
    for words in [
        ["file", "file"],
        ["file", "."],
        ["./file", "t/../file"],
        ["t", "."],
        ["t", "t"],
        ["t", "t/new"],
        ["t/", "t/d/new/deep"],
        ["t", "to t/d"],
        [".", "t"],
    ] {
        let ended = here.cp(&["-r", "--mkpath", words[0], words[1]]);
        ended.is(2, &["onto or into itself"]);
        assert_eq!(names(&here.at("")), before, "{words:?}");
    }
    here.cp(&["-r", "t/d", "."]).summary();
    assert!(here.at("d/x").is_file());
}

#[test]
fn a_local_copy_warns_about_a_rate_and_refuses_a_pipe() {
    let here = Here::new();
    write(&here.at("file"), b"f");
    here.cp(&["--bwlimit=1M", "file", "other"]).is(0, &["only to a network"]);
    here.cp(&["-", "other"]).is(2, &["only files and folders"]);
    assert_eq!(fs::read(here.at("other")).unwrap(), b"f");
}

#[test]
fn a_local_copy_on_a_hanging_disk_ends_after_the_stall_timeout_or_at_a_signal() {
    let here = Here::new();
    write(&here.at("t/big"), &bytes(20 << 20, 1));
    // The disk hangs while the source is walked, before the first chunk, or at a chunk.
    for call in ["getdents64", "ftruncate", "pwrite64"] {
        let hangs = need!(slow_calls(call, HANGS));
        let mut copy = here.start_in(&hangs, &["-r", "--stall=2s", "t", "new"]);
        let last = copy.event(|event| event["event"] == "error");
        assert_eq!((&last["status"], &last["class"]), (&7.into(), &"stalled".into()), "{last}");
        assert!(last["what"].as_str().is_some_and(|text| text.contains("2 s")), "{last}");
    }
    let hangs = need!(slow_calls("getdents64", HANGS));
    let mut copy = here.start_in(&hangs, &["-r", "--stall=600s", "t", "new"]);
    copy.event(|event| event["event"] == "progress");
    send_signal(traced(copy.id()), Signal::INT);
    let last = copy.event(|event| event["event"] == "error");
    assert_eq!((&last["status"], &last["class"]), (&130.into(), &"interrupted".into()), "{last}");
}

#[test]
fn a_slow_disk_does_not_stall_a_local_copy() {
    let here = Here::new();
    write(&here.at("big"), &bytes(12 << 20, 1));
    // Each of the twelve chunks takes 0.3 s.
    let slow = need!(slow_calls("pwrite64", 300_000));
    let ended = here.start_in(&slow, &["--stall=2s", "big", "new"]).end();
    assert!(ended.summary()["seconds"].as_f64() > Some(2.0), "{ended}");
    assert!(fs::read(here.at("new")).unwrap() == bytes(12 << 20, 1));
}

#[test]
fn a_killed_local_copy_resumes_from_the_written_data() {
    let here = Here::new();
    let whole = bytes(40 << 20, 1);
    write(&here.at("t/big"), &whole);
    write(&here.at("t/small"), b"s");
    // Each of the 40 chunks takes 0.1 s, so the copy can be killed before its end.
    let slow = need!(slow_calls("pwrite64", 100_000));
    let mut copy = here.start_in(&slow, &["-r", "t", "new"]);
    copy.progressed(8 << 20);
    send_signal(traced(copy.id()), Signal::KILL);
    drop(copy.end());
    assert!(!here.at("new/big").exists());
    let summary = here.cp(&["-r", "t", "new"]).summary();
    assert!(summary["resumed_bytes"].as_u64() >= Some(8 << 20), "{summary}");
    assert!(fs::read(here.at("new/big")).unwrap() == whole);
    assert!(remains(&here.at("")).is_empty());
}

#[test]
fn a_local_copy_whose_last_sync_fails_reports_failure() {
    let here = Here::new();
    write(&here.at("t/small"), b"s");
    write(&here.at("t/empty"), b"");
    write(&here.at("big"), &bytes(10 << 20, 1));
    let fails = need!(failing_calls("fsync,fdatasync,syncfs"));
    let single = here.start_in(&fails, &["big", "new"]).end();
    single.is(4, &["cannot sync new", "Input/output error", "check the device"]);
    assert!(!here.at("new").exists());
    // The folders can be synced, the small files cannot.
    let fails = need!(failing_calls("syncfs"));
    let tree = here.start_in(&fails, &["-r", "t", "tree"]).end();
    assert_ne!(tree.status, Some(0), "{tree}");
    assert!(tree.to_string().contains("sync"), "{tree}");
    // A further run completes each copy.
    here.cp(&["big", "new"]).summary();
    here.cp(&["-r", "t/", "tree"]).summary();
    assert_eq!(names(&here.at("tree")), ["empty", "small"]);
}
