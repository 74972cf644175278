//! Files and folders that the user may not read or write.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::rig::{Child, Pair, Server, Skipped, assert_same, need, skip, write};

pub(super) const NOBODY: u32 = 65_534;

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
}

/// Makes the command run as the user `nobody` if the tests run as root, because root may read
/// everything.
pub(super) fn bound(command: &mut Command) -> &mut Command {
    match rustix::process::geteuid().is_root() {
        true => command.uid(NOBODY).gid(NOBODY),
        false => command,
    }
}

fn give(folder: &Path, user: u32) {
    let files = fs::read_dir(folder).expect("it is there").map(|file| file.unwrap().path());
    for path in files.chain([folder.to_owned()]) {
        chown(&path, Some(user), Some(user)).expect("root may");
    }
}

/// A pair for programs that run as the user `nobody` if the tests run as root. This user can read
/// the pair's folders and owns the pair's identities.
pub(super) fn pair_of_nobody() -> Result<Pair, Skipped> {
    let pair = Pair::new();
    if !rustix::process::geteuid().is_root() {
        return Ok(pair);
    }
    set_mode(pair.scratch.path(), 0o755);
    give(&pair.client.config, NOBODY);
    give(&pair.host.config, NOBODY);
    let ended = bound(&mut pair.client.command(["id"])).output();
    if !ended.is_ok_and(|ended| ended.status.success()) {
        return Err(skip::forbidden("the user nobody has no access to the program's folder"));
    }
    Ok(pair)
}

/// Creates a tree with an unreadable file, and a folder that cannot be entered.
fn forbidden(root: &Path) {
    for name in ["open", "shut", "cell/inmate"] {
        write(&root.join("tree").join(name), name.as_bytes());
    }
    set_mode(&root.join("tree/shut"), 0);
    set_mode(&root.join("tree/cell"), 0);
}

/// Lets the scratch folder be removed.
fn release(root: &Path) {
    set_mode(&root.join("tree/cell"), 0o755);
}

#[test]
fn files_without_permission_at_the_client_are_named_and_the_rest_is_copied() {
    let pair = need!(pair_of_nobody());
    forbidden(&pair.here);
    let cp = |args: &[&dyn AsRef<std::ffi::OsStr>]| {
        Child::spawn(bound(&mut pair.cp_command(args))).end()
    };
    cp(&[&"tree/shut", &pair.at("")]).is(4, &["tree/shut", "Permission denied"]);
    cp(&[&"-r", &"tree/shut", &pair.at("")]).is(4, &["tree/shut", "Permission denied"]);
    let named = ["tree/shut", "tree/cell", "Permission denied", "(here)"];
    cp(&[&"-rn", &"tree", &pair.at("")]).is(8, &named);
    assert!(!pair.there.join("tree").exists());
    cp(&[&"-r", &"tree", &pair.at("")]).is(8, &named);
    // The second copy has nothing left to do.
    cp(&[&"-r", &"tree", &pair.at("")]).is(8, &named);
    assert_eq!(fs::read(pair.there.join("tree/open")).unwrap(), b"open");
    assert!(!pair.there.join("tree/shut").exists());
    let new = || cp(&[&"-r", &"tree", &pair.at("new")]);
    new().is(8, &named);
    set_mode(&pair.here.join("tree/shut"), 0o644);
    set_mode(&pair.here.join("tree/cell"), 0o755);
    // The same command completes the copy, in the same folder.
    new().summary();
    assert_same(&pair.here.join("tree"), &pair.there.join("new"));
    write(&pair.there.join("file"), b"f");
    set_mode(&pair.here, 0o555);
    cp(&[&pair.at("file"), &"new"]).is(4, &["new", "Permission denied"]);
    assert!(!pair.here.join("new").exists());
    set_mode(&pair.here, 0o755);
    release(&pair.here);
}

#[test]
fn files_without_permission_at_the_server_are_named_and_the_rest_is_copied() {
    let mut pair = need!(pair_of_nobody());
    if rustix::process::geteuid().is_root() {
        // The client runs as root, and refuses a key that another user owns.
        give(&pair.client.config, 0);
    }
    forbidden(&pair.there);
    let words = Server::words("127.0.0.1:0", &pair.there, &["--allow", &pair.client.id]);
    pair.server = Server::start_as(bound(&mut pair.host.command(words)));
    pair.cp(&[&pair.at("tree/shut"), &"."]).is(5, &["tree/shut", "Permission denied"]);
    pair.cp(&[&"-r", &pair.at("tree/shut"), &"."]).is(5, &["tree/shut", "Permission denied"]);
    let named = ["tree/shut", "tree/cell", "Permission denied", "other side"];
    pair.cp(&[&"-rn", &pair.at("tree"), &"."]).is(8, &named);
    assert!(!pair.here.join("tree").exists());
    pair.cp(&[&"-r", &pair.at("tree"), &"."]).is(8, &named);
    pair.cp(&[&"-r", &pair.at("tree"), &"."]).is(8, &named);
    assert_eq!(fs::read(pair.here.join("tree/open")).unwrap(), b"open");
    assert!(!pair.here.join("tree/shut").exists());
    write(&pair.here.join("file"), b"f");
    set_mode(&pair.there, 0o555);
    pair.cp(&[&"file", &pair.at("new")]).is(5, &["new", "Permission denied"]);
    assert!(!pair.there.join("new").exists());
    // A dry run reports the same failures as the copy.
    write(&pair.here.join("more/x"), b"x");
    write(&pair.here.join("tree/open"), b"other");
    write(&pair.here.join("tree/sub/x"), b"x");
    set_mode(&pair.there.join("tree"), 0o555);
    for flags in ["-rn", "-r"] {
        pair.cp(&[&flags, &"file", &pair.at("new")]).is(5, &["new", "Permission denied"]);
        let named = ["tree/open", "tree/sub", "tree/sub/x", "Permission denied", "other side"];
        let ended = pair.cp(&[&flags, &"tree", &pair.at("")]);
        ended.is(8, &named);
        assert!(ended.events("file").is_empty(), "{ended}");
        pair.cp(&[&flags, &"more", &pair.at("")]).is(8, &["more", "Permission denied"]);
        pair.cp(&[&flags, &"more", &pair.at("other")]).is(5, &["other", "Permission denied"]);
    }
    set_mode(&pair.there.join("tree"), 0o755);
    set_mode(&pair.there, 0o755);
    release(&pair.there);
}
