//! Destinations that are missing, read-only, full or locked, or that contain mount points.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::rig::{
    Child, Ended, Pair, Server, Skipped, bytes, content, need, remains, side_by_side, skip, write,
};

/// Runs a program in its own mount namespace with extra mounts, such as a read-only folder or a
/// tiny file system.
pub(crate) struct Apart {
    words: Vec<String>,
}

impl Apart {
    /// `mount` is a shell command that runs in the namespace before the program.
    fn with(mount: &str) -> Result<Apart, Skipped> {
        let flag = if rustix::process::geteuid().is_root() { "-m" } else { "-rm" };
        let mut allowed = Command::new("unshare");
        allowed.args([flag, "mount", "-t", "tmpfs", "x", "/mnt"]);
        let script = format!("{mount} && exec \"$@\"");
        let words = ["unshare", flag, "sh", "-ec", &script, "sh"].map(str::to_owned).to_vec();
        let apart = Apart { words };
        match allowed.output() {
            Ok(output) if output.status.success() => Ok(apart),
            _ => Err(skip::forbidden("this user may not mount on this host")),
        }
    }

    fn read_only(path: &Path) -> Result<Apart, Skipped> {
        let path = path.display();
        Apart::with(&format!("mount --bind '{path}' '{path}' && mount -o remount,bind,ro '{path}'"))
    }

    pub(crate) fn tiny(path: &Path, bytes: u64) -> Result<Apart, Skipped> {
        Apart::with(&format!("mount -t tmpfs -o size={bytes} tiny '{}'", path.display()))
    }

    fn words(&self) -> Vec<&str> {
        self.words.iter().map(String::as_str).collect()
    }

    pub(crate) fn serve(&self, pair: &Pair) -> Server {
        let words = Server::words("127.0.0.1:0", &pair.there, &["--allow", &pair.client.id]);
        Server::start_as(&mut pair.host.wrapped(&self.words(), words))
    }

    fn pull(&self, pair: &Pair, flags: &[&str], from: &str, to: &Path) -> Child {
        let id = format!("--server-id={}", pair.server.id);
        let from = pair.at(from);
        let first = ["cp", "--json", &id];
        let words = first.iter().chain(flags).map(OsStr::new);
        let words = words.chain([from.as_os_str(), to.as_os_str()]);
        Child::spawn(&mut pair.client.wrapped(&self.words(), words))
    }
}

fn push(pair: &Pair, server: &Server, flags: &[&str], from: &str) -> Child {
    let id = format!("--server-id={}", server.id);
    pair.copy(&[flags, &[&id]].concat(), from, server.at(""))
}

/// `path` as the process `child` sees it.
pub(crate) fn seen_by(child: &Child, path: &Path) -> PathBuf {
    Path::new(&format!("/proc/{}/root", child.id())).join(path.strip_prefix("/").unwrap())
}

#[test]
fn a_destination_that_is_missing_or_of_the_wrong_kind_is_refused_with_advice() {
    let pair = Pair::new();
    for root in [&pair.here, &pair.there] {
        write(&root.join("file"), b"f");
        write(&root.join("tree/x"), b"x");
    }
    pair.cp(&[&"file", &pair.at("no/where")]).is(5, &["no", "missing", "mkdir -p no"]);
    pair.cp(&[&"file", &pair.at("new/")]).is(5, &["new", "mkdir"]);
    pair.cp(&[&"-r", &"tree", &pair.at("file")]).is(5, &["file", "not a folder"]);
    pair.cp(&[&"-r", &"tree", &"file", &pair.at("new")]).is(5, &["new", "mkdir"]);
    pair.cp(&[&pair.at("file"), &"no/where"]).is(4, &["no", "missing", "mkdir -p no"]);
    pair.cp(&[&"-r", &pair.at("tree"), &"file"]).is(4, &["file", "not a folder"]);
    assert_eq!(content(&pair.here), content(&pair.there));
    assert!(remains(&pair.here).is_empty() && remains(&pair.there).is_empty());
}

#[test]
fn advice_is_quoted_for_a_shell_and_never_says_to_remove_a_device() {
    let pair = Pair::new();
    write(&pair.there.join("file"), b"f");
    write(&pair.here.join("file"), b"f");
    pair.cp(&[&"file", &pair.at("x's dir/")]).is(5, &["mkdir -p 'x'\\''s dir/'"]);
    pair.cp(&[&pair.at("file"), &"a dir/-x/file"]).is(4, &["mkdir -p 'a dir/-x'"]);
    let device = pair.cp(&[&pair.at("file"), &"/dev/null"]);
    device.is(4, &["is a device, socket or pipe", "--receive fake"]);
    assert!(!device.stderr.contains("remove"), "{device}");
}

#[test]
fn a_link_to_an_open_file_descriptor_is_not_replaced() {
    let pair = Pair::new();
    write(&pair.there.join("file"), b"f");
    let log = fs::File::create(pair.here.join("log")).unwrap();
    // /dev/stdout is also such a link.
    std::os::unix::fs::symlink("/proc/self/fd/1", pair.here.join("out")).unwrap();
    let id = format!("--server-id={}", pair.server.id);
    let mut command = pair.client.command(["cp", &id]);
    command.arg(pair.at("file")).arg("out").current_dir(&pair.here).stdout(log);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("out is the system's name"), "{said}");
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(pair.here.join("out").is_symlink());
}

#[test]
fn a_destination_that_cannot_be_written_is_refused_on_either_side() {
    let pair = Pair::new();
    write(&pair.here.join("file"), &bytes(9 << 20, 1));
    write(&pair.there.join("file"), &bytes(9 << 20, 1));
    let apart = need!(Apart::read_only(&pair.there));
    let server = apart.serve(&pair);
    let id = format!("--server-id={}", server.id);
    pair.cp(&[&id, &"file", &server.at("new")]).is(5, &["new", "Read-only file system"]);
    let apart = need!(Apart::read_only(&pair.here));
    let ended = apart.pull(&pair, &[], "file", &pair.here.join("new")).end();
    ended.is(4, &["new", "Read-only file system"]);
    assert_eq!(content(&pair.here), content(&pair.there));
}

#[test]
fn a_file_larger_than_the_free_space_is_refused_on_either_side() {
    let pair = Pair::new();
    write(&pair.here.join("file"), &bytes(20_000_000, 1));
    write(&pair.there.join("file"), &bytes(20_000_000, 1));
    let small = pair.scratch.path().join("small");
    fs::create_dir(&small).unwrap();
    let apart = need!(Apart::tiny(&pair.there, 8 << 20));
    let server = apart.serve(&pair);
    let full: &[&str] = &["not enough space", "MB needed", "free space"];
    push(&pair, &server, &[], "file").end().is(5, full);
    let apart = need!(Apart::tiny(&small, 8 << 20));
    apart.pull(&pair, &[], "file", &small.join("file")).end().is(4, full);
}

/// Fills the file system until `left` bytes are free.
pub(crate) fn fill(folder: &Path, left: u64) {
    let stat = rustix::fs::statvfs(folder).unwrap();
    let free = stat.f_bavail * stat.f_frsize;
    write(&folder.join("filler"), &vec![1; free.saturating_sub(left) as usize]);
}

/// Asserts that the disk was full and that each file under its final name is complete. Then frees
/// space.
fn is_full(ended: &Ended, status: i32, into: &Path, from: &Path) {
    ended.is(status, &["No space left", "free space"]);
    for (path, thing) in content(into) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with('.') || name == "filler" {
            continue;
        }
        if into.join(&path).is_file() {
            assert_eq!(Some(&thing), content(from).get(&path), "{path:?}");
        }
    }
    fs::remove_file(into.join("filler")).unwrap();
}

/// Creates 24 MB of small files. A copy reserves no space for them, so the disk can become full
/// during the copy.
fn small_files(root: &Path) {
    for number in 0..120 {
        write(&root.join(format!("tree/{number:03}")), &bytes(200_000, number));
    }
}

#[test]
fn after_a_full_server_disk_the_same_copy_completes_as_soon_as_space_is_free() {
    let pair = Pair::new();
    small_files(&pair.here);
    let apart = need!(Apart::tiny(&pair.there, 40 << 20));
    let mut server = apart.serve(&pair);
    let there = seen_by(server.child(), &pair.there);
    let mut copy = push(&pair, &server, &["-r", "--rate=60M"], "tree");
    copy.progressed(1);
    // The rest of the tree needs more than these 4 MiB.
    fill(&there, 4 << 20);
    is_full(&copy.end(), 5, &there, &pair.here);
    push(&pair, &server, &["-r"], "tree").end().summary();
    assert_eq!(content(&there.join("tree")), content(&pair.here.join("tree")));
}

#[test]
fn after_a_full_client_disk_the_same_copy_completes_as_soon_as_space_is_free() {
    let pair = Pair::new();
    small_files(&pair.there);
    let small = pair.scratch.path().join("small");
    fs::create_dir(&small).unwrap();
    let apart = need!(Apart::tiny(&small, 40 << 20));
    // This process keeps the mount namespace until the copy has ended.
    let mut keeper = Command::new(&apart.words[0]);
    keeper.args(&apart.words[1..]).args(["sh", "-c", "echo ready; exec sleep 600"]);
    let mut keeper = Child::spawn(keeper.stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert_eq!(keeper.line().as_deref(), Some("ready"));
    let seen = seen_by(&keeper, &small);
    let mut copy = pair.start(&[&"-r", &"--rate=60M", &pair.at("tree"), &seen]);
    copy.progressed(1);
    fill(&seen, 4 << 20);
    is_full(&copy.end(), 4, &seen, &pair.there);
    pair.cp(&[&"-r", &pair.at("tree"), &seen]).summary();
    assert_eq!(content(&seen.join("tree")), content(&pair.there.join("tree")));
}

#[test]
fn the_second_of_two_copies_into_one_file_is_refused() {
    let pair = Pair::new();
    // The file is so large that the first copy is still running when the second one starts.
    const LEN: usize = 30_000_000;
    write(&pair.here.join("file"), &bytes(LEN, 1));
    write(&pair.there.join("source"), &bytes(LEN, 1));
    let mut push = pair.start(&[&"--rate=60M", &"file", &pair.at("to")]);
    let mut pull = pair.start(&[&"--rate=60M", &pair.at("source"), &"to"]);
    push.progressed(1);
    pull.progressed(1);
    pair.cp(&[&"file", &pair.at("to")]).is(5, &["to", "another copy is writing it"]);
    pair.cp(&[&pair.at("source"), &"to"]).is(4, &["to", "another copy is writing it"]);
    push.end().summary();
    pull.end().summary();
    assert!(fs::read(pair.there.join("to")).unwrap() == bytes(LEN, 1));
    assert!(fs::read(pair.here.join("to")).unwrap() == bytes(LEN, 1));
    assert!(remains(&pair.here).is_empty() && remains(&pair.there).is_empty());
}

#[test]
fn the_second_of_two_copies_into_one_tree_is_refused() {
    let pair = Pair::new();
    for root in [&pair.here, &pair.there] {
        for number in 0..200 {
            write(&root.join(format!("tree/{number}")), &bytes(100_000, number));
        }
        write(&root.join("tree/large"), &bytes(10_000_000, 1));
    }
    fs::create_dir(pair.here.join("back")).unwrap();
    fs::create_dir(pair.there.join("on")).unwrap();
    // The tree is copied under its own name, and under a new one.
    side_by_side([("tree", "", "tree"), ("tree", "new", "new")], |(from, to, copy)| {
        let (there, here) = (pair.at(format!("on/{to}")), format!("back/{to}"));
        let from_there = pair.at(from);
        // The rate is so low that the first copy is still running when the second one starts.
        let mut push = pair.start(&[&"-r", &"--rate=40M", &from, &there]);
        let mut pull = pair.start(&[&"-r", &"--rate=40M", &from_there, &here]);
        push.progressed(1);
        pull.progressed(1);
        let is_writing = "another copy is writing it";
        pair.cp(&[&"-r", &from, &there]).is(5, &[copy, is_writing, "another folder"]);
        pair.cp(&[&"-r", &from_there, &here]).is(4, &[copy, is_writing, "another folder"]);
        push.end().summary();
        pull.end().summary();
        for copy in [pair.there.join("on").join(copy), pair.here.join("back").join(copy)] {
            assert_eq!(content(&copy), content(&pair.here.join("tree")));
        }
    });
    assert!(remains(&pair.here).is_empty() && remains(&pair.there).is_empty());
}

#[test]
fn an_entry_of_the_wrong_kind_fails_only_the_files_that_it_blocks_and_events_name_them() {
    let pair = Pair::new();
    for name in ["a", "b", "d/x"] {
        write(&pair.here.join("t").join(name), b"new");
    }
    fs::create_dir_all(pair.there.join("t/a")).unwrap();
    write(&pair.there.join("t/d"), b"no folder");
    let ended = pair.cp(&[&"-r", &"t", &pair.at("")]);
    ended.is(8, &["a", "d", "other side"]);
    let failed = ended.events("file-failed");
    let failed: Vec<_> = failed.iter().map(|event| event["path"].as_str().unwrap()).collect();
    assert!(failed.contains(&"t/a") && failed.contains(&"t/d/x"), "{failed:?}");
    let last = ended.last();
    assert_eq!((&last["event"], &last["status"]), (&"summary".into(), &8.into()));
    assert_eq!(last["verified"], false);
    assert_eq!(fs::read(pair.there.join("t/b")).unwrap(), b"new");
    assert_eq!(fs::read(pair.there.join("t/d")).unwrap(), b"no folder");
}

#[test]
fn delete_enters_no_file_system_that_is_mounted_in_the_destination() {
    let pair = Pair::new();
    write(&pair.here.join("run/a"), b"a");
    // The source also has a folder `shared`; in the destination, a file system is mounted there.
    write(&pair.here.join("run/shared/b"), b"b");
    let to = pair.here.join("to");
    for path in ["other/x", "extra/y", "extra/mounted/z", "shared/x"] {
        write(&to.join(path), b"old");
    }
    let mounted = ["other", "extra/mounted", "shared"];
    let mounts = mounted.map(|name| {
        let path = to.join(name);
        let path = path.display();
        format!("mount -t tmpfs mounted '{path}' && echo kept > '{path}/kept'")
    });
    // The mounts are visible only in this mount namespace.
    let kept = mounted.map(|name| format!("'{}/{name}/kept'", to.display())).join(" ");
    let look = format!("cat {kept} && cat '{}/shared/b'", to.display());
    let mut apart = need!(Apart::with(&mounts.join(" && ")));
    apart.words[4] = format!("{} && \"$@\" && {look}", mounts.join(" && "));
    let words = ["sync", "--json", "--delete", "run/", "to"];
    let mut command = pair.client.wrapped(&apart.words(), words);
    let ended = Child::spawn(command.current_dir(&pair.here)).end();
    ended.is(0, &[]);
    let kept = ended.stdout.iter().filter(|line| *line == "kept").count();
    assert_eq!(kept, 3, "{ended}");
    assert!(ended.stdout.iter().any(|line| line == "b"), "{ended}");
    assert!(!to.join("extra/y").exists() && to.join("extra/mounted/z").exists(), "{ended}");
    assert!(to.join("other/x").exists() && to.join("a").exists(), "{ended}");
}

#[test]
fn delete_leaves_bind_mounts_of_the_same_file_system_with_their_content() {
    let pair = Pair::new();
    write(&pair.here.join("run/a"), b"a");
    write(&pair.here.join("run/shared/b"), b"b");
    let (to, precious) = (pair.here.join("to"), pair.here.join("precious"));
    for path in ["bound/x", "extra/bound/x", "shared/x", "file", "gone"] {
        write(&to.join(path), b"old");
    }
    write(&precious.join("kept"), b"kept");
    let bind = |from: &str, name: &str| {
        format!("mount --bind '{}{from}' '{}/{name}'", precious.display(), to.display())
    };
    let mounts = ["bound", "extra/bound", "shared"].map(|name| bind("", name));
    let mounts = format!("{} && {}", mounts.join(" && "), bind("/kept", "file"));
    // The mounts are visible only in this mount namespace.
    let apart = need!(Apart::with(&mounts));
    let words = ["sync", "--json", "--delete", "run/", "to"];
    let mut command = pair.client.wrapped(&apart.words(), words);
    let ended = Child::spawn(command.current_dir(&pair.here)).end();
    ended.is(0, &[]);
    assert_eq!(fs::read(precious.join("kept")).unwrap(), b"kept", "{ended}");
    assert_eq!(fs::read(to.join("file")).unwrap(), b"old", "{ended}");
    assert!(!to.join("gone").exists() && to.join("a").exists(), "{ended}");
}

#[test]
fn an_error_names_the_file_in_the_destination_folder() {
    let pair = Pair::new();
    write(&pair.here.join("file"), b"content");
    for destination in [pair.here.join("d"), pair.there.join("d")] {
        fs::create_dir_all(destination.join("file")).unwrap();
    }
    let expected = ["cannot write d/file: a folder is in its place"];
    let mut local = pair.client.command(["cp", "file", "d"]);
    Child::spawn(local.current_dir(&pair.here)).end().is(4, &expected);
    pair.cp(&[&"file", &pair.at("d")]).is(5, &expected);
}
