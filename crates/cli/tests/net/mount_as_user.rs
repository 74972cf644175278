//! A mount by an ordinary user, through `fusermount3`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use rustix::process::Signal;

use super::http::{has, succeeds};
use super::mount::fuse;
use crate::rig::{Child, Pair, binary, bytes, need, write};

const NOBODY: &str = "setpriv --reuid=65534 --regid=65534 --clear-groups";

#[test]
fn an_ordinary_user_mounts_a_folder_and_not_even_root_may_read_it() {
    need!(fuse());
    need!(has("fusermount3"));
    let pair = Pair::with_rights(":ro", &[]);
    let content = bytes(3_000_000, 1);
    write(&pair.there.join("sub/file"), &content);
    let scratch = pair.scratch.path();
    fs::copy(binary(), scratch.join("longhaul")).expect("there is room for the program");
    fs::set_permissions(scratch, fs::Permissions::from_mode(0o755)).expect("the folder is ours");
    // In some containers only root can open /dev/fuse. So the test mounts its own device with the
    // same numbers (10 and 229) over that path.
    succeeds("mkdir mnt; mknod -m 666 fuse c 10 229; chown -R 65534:65534 client mnt", scratch);
    let here = scratch.display();
    let script =
        format!("mount --bind {here}/fuse /dev/fuse; shift; exec {NOBODY} {here}/longhaul \"$@\"");
    let id = format!("--server-id={}", pair.server.id);
    let url = pair.at("sub").into_string().expect("our own name");
    let at = scratch.join("mnt");
    let words = ["mount", "--json", &id, &url, at.to_str().expect("our own name")];
    let wrapper = ["unshare", "-m", "sh", "-ec", &script, "sh"];
    let mut child = Child::spawn(&mut pair.client.wrapped(&wrapper, words));
    child.event(|event| event["event"] == "mounted");
    let within = |user: &str| -> Output {
        let line = format!("exec nsenter -t {} -m {user} cat {here}/mnt/file", child.id());
        Command::new("sh").args(["-c", &line]).output().expect("there is a shell")
    };
    let read = within(NOBODY);
    let said = String::from_utf8_lossy(&read.stderr);
    assert!(read.status.success() && read.stdout == content, "{said}");
    let refused = within("");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.stdout.is_empty() && said.contains("Permission denied"), "{said}");
    child.signal(Signal::TERM);
    child.end().is(0, &[]);
}
