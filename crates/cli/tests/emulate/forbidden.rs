//! Users and machines without permission to emulate.

use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use super::{emulate, have, piped};
use crate::rig::{Child, Ended, Skipped, need, skip};

#[test]
fn forbidden_emulation_has_its_exit_status_and_reason() {
    let longhaul = env!("CARGO_BIN_EXE_longhaul");
    let no_tun = format!("mount -t tmpfs none /dev/net && exec {longhaul} emulate -- true");
    let none_left = format!(
        "echo 0 > /proc/sys/user/max_net_namespaces && echo 0 > /proc/sys/user/max_user_namespaces \
         && exec {longhaul} emulate -- true"
    );
    for (script, reason) in [(no_tun, "/dev/net/tun"), (none_left, "namespace")] {
        let ended = need!(unshared(&["--map-root-user", "--mount"], &script));
        ended.is(3, &["emulation is not possible here", reason]);
    }
}

#[test]
fn a_device_closed_to_this_user_is_reported_with_the_fix() {
    let is_root = rustix::process::geteuid().is_root();
    need!(skip::unless(is_root, "only root can switch to a user without access to the device"));
    need!(have(&["unshare", "setpriv"]));
    let longhaul = env!("CARGO_BIN_EXE_longhaul");
    // The TUN device has the numbers 10 and 200.
    let device = "mount -t tmpfs none /dev/net && mknod -m 600 /dev/net/tun c 10 200";
    // The program is mounted where the unprivileged user can reach it.
    let program = format!("touch /dev/net/longhaul && mount --bind {longhaul} /dev/net/longhaul");
    let nobody = "setpriv --reuid=65534 --regid=65534 --clear-groups";
    let script =
        format!("{device} && {program} && exec {nobody} /dev/net/longhaul emulate -- true");
    let args = ["--mount", "sh", "-c", &script];
    let ended = Child::spawn(&mut piped(Command::new("unshare"), &args)).end();
    need!(skip::unless(ended.stderr.contains("longhaul emulate"), &ended.stderr));
    ended.is(3, &["emulation is not possible here", "/dev/net/tun", "denied", "chmod 0666"]);
}

#[test]
fn a_demo_without_emulation_reports_the_reason_and_does_the_rest() {
    let longhaul = env!("CARGO_BIN_EXE_longhaul");
    let folder = tempfile::tempdir().expect("a folder can be made");
    let demo = format!("{longhaul} demo --size 20MB --dir {}", folder.path().display());
    let script = format!("mount -t tmpfs none /dev/net && exec {demo}");
    let ended = need!(unshared(&["--map-root-user", "--mount"], &script));
    let said = ended.is(0, &[]).stdout.join("\n");
    for words in ["leaves out the race with TCP; this host cannot emulate a path", "/dev/net/tun"] {
        assert!(said.contains(words), "no {words:?} in {ended}");
    }
    assert!(said.contains("compares them byte by byte") && !said.contains("8 streams"), "{ended}");
    let (_, next) = said.split_once("Try next:").unwrap_or_else(|| panic!("no advice: {ended}"));
    for command in ["longhaul cp -a -P", "longhaul serve --root", "longhaul emulate --rate"] {
        assert!(next.contains(command), "no {command:?} in {ended}");
    }
    assert_eq!(entries(folder.path()), Vec::<PathBuf>::new(), "it cleans up");
}

#[test]
fn an_interrupted_demo_cleans_up() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let dir = folder.path().to_str().expect("plain letters");
    let demo = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    let args = ["demo", "--size", "20MB", "--dir", dir];
    let mut demo = Child::spawn(&mut piped(demo, &args));
    // Waits until the demo prints the command of its copy.
    while demo.line().is_some_and(|line| !line.contains("longhaul cp ")) {}
    assert_ne!(entries(folder.path()), Vec::<PathBuf>::new());
    demo.signal(Signal::INT);
    demo.end().is(130, &[]);
    assert_eq!(entries(folder.path()), Vec::<PathBuf>::new(), "it cleans up");
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("it is there").flatten();
    entries.map(|entry| entry.path()).collect()
}

#[test]
fn without_any_privilege_an_emulation_makes_a_user_namespace() {
    need!(emulate(&["--", "true"]));
    let powerless = "grep -q '^CapEff:[[:space:]]*0*$' /proc/self/status || exit 9";
    let script = format!("{powerless}; exec {} emulate -- id -u", env!("CARGO_BIN_EXE_longhaul"));
    let ended = need!(unshared(&["--map-user=1000", "--map-group=1000"], &script));
    assert_eq!(ended.is(0, &["a > b: "]).stdout, ["0"]);
}

#[test]
fn without_any_privilege_each_of_many_starts_gets_a_user_namespace() {
    // Without the device, a start fails right after it has created its namespaces, so 800 starts
    // are quick.
    let longhaul = env!("CARGO_BIN_EXE_longhaul");
    let start = format!("{longhaul} emulate -- true 2>&1 | grep /dev/net/tun");
    let many = format!("n=800; while [ $n -gt 0 ]; do n=$((n-1)); {start} || exit 9; done");
    let powerless = "unshare --user --map-user=1000 --map-group=1000";
    let script = format!("mount -t tmpfs none /dev/net && exec {powerless} sh -c '{many}'");
    let ended = need!(unshared(&["--map-root-user", "--mount"], &script));
    assert_eq!(ended.is(0, &[]).stdout.len(), 800, "{ended}");
}

fn unshared(flags: &[&str], script: &str) -> Result<Ended, Skipped> {
    let args = [&["--user"], flags, &["sh", "-c", script]].concat();
    let Ok(child) = piped(Command::new("unshare"), &args).spawn() else {
        return Err(skip::forbidden("unshare cannot be started here"));
    };
    let ended = Child::adopt(child).end();
    if ended.status == Some(1) && ended.stderr.contains("unshare") {
        return Err(skip::forbidden(&ended.stderr));
    }
    Ok(ended)
}
