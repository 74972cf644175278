//! Copies between two other hosts, `far` and `gate`. This host starts each copy on `far`, through a
//! real sshd.

use std::fs;
use std::path::PathBuf;

use rustix::process::Signal;

use super::ssh::Ssh;
use crate::rig::{Child, Host, Server, assert_same, bytes, need, wait_until, write};

/// The hosts. `far` reads the ssh command for `gate` from its own configuration file.
fn hosts() -> Result<Ssh, crate::rig::Skipped> {
    let ssh = Ssh::new()?;
    let config = format!("[host.gate]\nrsh = \"ssh -F {}\"\n", ssh.path("ssh_config").display());
    write(&ssh.path("far_config/config.toml"), config.as_bytes());
    Ok(ssh)
}

fn of_gate(ssh: &Ssh, path: &str) -> (String, PathBuf) {
    let path = ssh.path("gate").join(path);
    (format!("gate:{}", path.display()), path)
}

/// Whether `far` runs a copy that this host has started for this test.
fn runs_there(ssh: &Ssh) -> bool {
    let mark = ssh.path("gate").display().to_string();
    let processes = fs::read_dir("/proc").expect("it is there").filter_map(Result::ok);
    processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok()).any(|line| {
        let line = String::from_utf8_lossy(&line);
        let mut words = line.split('\0');
        words.next().is_some_and(|program| program.ends_with("longhaul"))
            && line.contains("--watch-stdin\0")
            && line.contains(&mark)
    })
}

#[test]
fn a_copy_between_two_hosts_shows_its_progress_here() {
    let ssh = need!(hosts());
    let (to, copy) = of_gate(&ssh, "copy");
    let ended = ssh.start("", &["--mkpath", "-v", &ssh.at("source"), &to]).end();
    let summary = ended.summary();
    assert_eq!((&summary["verified"], &summary["copied_files"]), (&true.into(), &1.into()));
    assert!(fs::read(copy).expect("it was copied") == ssh.content);
    let start = &ended.events("start")[0];
    assert_eq!(
        (&start["sources"][0], &start["destination"]),
        (&ssh.at("source").into(), &to.into())
    );
    assert!(!ended.events("progress").is_empty() && ended.events("file").len() == 1, "{ended}");
    ended.is(0, &["longhaul: copied 1 file, 5.00 MB", "verified", "connected to"]);
    let finals = ended.stderr.lines().filter(|line| line.contains("100.0 %")).count();
    assert_eq!(finals, 1, "{ended}");
}

#[test]
fn a_copy_between_two_hosts_applies_flags_filters_and_lists_of_this_host() {
    let ssh = need!(hosts());
    for name in ["run1/a b", "run1/x.tmp", "run1/sub/c", "run2/d"] {
        write(&ssh.path("there").join(name), name.as_bytes());
    }
    write(&ssh.path("globs"), b"*.tmp\n");
    let globs = format!("--exclude-from={}", ssh.path("globs").display());
    let (to, folder) = of_gate(&ssh, "all/");
    let run = |args: &[&str]| ssh.start("", args).end();
    run(&["-a", "--mkpath", &globs, &ssh.at("run*"), &to]).is(0, &["copied 3 files"]);
    assert!(!folder.join("run1/x.tmp").exists());
    assert_same(&ssh.path("there/run2"), &folder.join("run2"));
    write(&ssh.path("list"), b"sub\nx.tmp\n");
    let list = format!("--files-from={}", ssh.path("list").display());
    let (to, folder) = of_gate(&ssh, "some/");
    run(&["-a", "--mkpath", &list, &ssh.at("run1"), &to]).is(0, &["copied 2 files"]);
    assert!(folder.join("sub/c").exists() && !folder.join("a b").exists());
    let dry = run(&["-rn", &ssh.at("run1"), &of_gate(&ssh, "").0]);
    dry.is(0, &["would copy 3 files"]);
    assert!(!ssh.path("gate/run1").exists());
}

#[test]
fn sync_between_two_hosts_deletes_what_the_source_lacks() {
    let ssh = need!(hosts());
    write(&ssh.path("there/run/new"), b"new");
    write(&ssh.path("gate/run/old"), b"old");
    let flags = format!("ssh -F {}", ssh.path("ssh_config").display());
    let longhaul = concat!("--remote-path=", env!("CARGO_BIN_EXE_longhaul"));
    let words = ["sync", "--delete", "-e", &flags, longhaul, &ssh.at("run"), &of_gate(&ssh, "").0];
    ssh.client.run(words).is(0, &["copied 1 file", "deleted  1 name"]);
    assert_same(&ssh.path("there/run"), &ssh.path("gate/run"));
}

#[test]
fn a_copy_between_an_ssh_host_and_a_server_runs_on_the_ssh_host_with_the_ssh_hosts_id() {
    let ssh = need!(hosts());
    let far = Host::new(&ssh.path("far_config"));
    let host = Host::new(&ssh.path("server"));
    fs::create_dir(ssh.path("gate")).expect("there is room for a folder");
    let server = Server::start(&host, &ssh.path("gate"), &["--allow", &far.id]);
    let at = |path: &str| server.at(path).into_string().expect("it is ASCII");
    let unknown = ssh.start("", &[&ssh.at("source"), &at("copy")]).end();
    unknown.is(3, &["on far: ", &server.id, "--accept-new"]);
    for (from, to, copy) in [
        (ssh.at("source"), at("copy"), ssh.path("gate/copy")),
        (at("copy"), ssh.at("back"), ssh.path("there/back")),
    ] {
        let pin = format!("--server-id={}", server.id);
        ssh.start("", &[&pin, &from, &to]).end().summary();
        assert!(fs::read(copy).expect("it was copied") == ssh.content);
    }
}

#[test]
fn ctrl_c_or_a_kill_here_ends_the_copy_on_far_and_the_next_copy_resumes() {
    let ssh = need!(hosts());
    let content = bytes(40_000_000, 31);
    write(&ssh.path("there/source"), &content);
    let (to, copy) = of_gate(&ssh, "copy");
    let flags = ["--mkpath", "--rate=40M", "--segment=1Mi"];
    let start = |ssh: &Ssh| -> Child {
        let mut copy = ssh.start("", &[&flags[..], &[&ssh.at("source"), &to]].concat());
        copy.progressed(3_000_000);
        assert!(runs_there(ssh));
        copy
    };
    let running = start(&ssh);
    running.signal(Signal::INT);
    let ended = running.end();
    ended.is(130, &["interrupted"]);
    assert_eq!(ended.last()["class"], "interrupted", "{ended}");
    wait_until("the copy there has ended", || !runs_there(&ssh));
    start(&ssh).kill();
    wait_until("the copy there has ended with its caller", || !runs_there(&ssh));
    assert!(!copy.exists());
    let ended = ssh.start("", &[&ssh.at("source"), &to]).end();
    let summary = ended.summary();
    assert!(summary["resumed_bytes"].as_u64() > Some(1_000_000), "{ended}");
    assert!(fs::read(copy).expect("it was copied") == content);
}

#[test]
fn errors_name_the_host_that_cannot_be_reached_or_that_fails() {
    let ssh = need!(hosts());
    let (to, _) = of_gate(&ssh, "copy");
    let run = |words: &str, args: &[&str]| ssh.start(words, args).end();
    let ended = run("", &[&ssh.at("source"), "nowhere.invalid:copy"]);
    ended.is(3, &["on far: ssh cannot reach nowhere.invalid", "-e 'ssh -A'"]);
    assert_eq!(ended.last()["class"], "unreachable", "{ended}");
    run("-o Port=1", &[&ssh.at("source"), &to]).is(3, &["ssh cannot reach far"]);
    let missing = "--remote-path=/no/such/longhaul";
    let ended = run("", &[missing, &ssh.at("source"), &to]);
    ended.is(3, &["`/no/such/longhaul` does not run on far", "install longhaul there"]);
    let ended = run("", &[&ssh.at("missing"), &to]);
    ended.is(5, &["on far: ", "missing"]);
}

#[test]
fn an_error_names_the_host_whose_longhaul_is_older() {
    let ssh = need!(hosts());
    let old = ssh.path("old");
    let refusal = "{\"event\":\"error\",\"status\":2,\"class\":\"usage\",\
                   \"what\":\"unexpected argument '--watch-stdin' found\",\"advice\":null}";
    write(
        &old,
        format!("#!/bin/sh\necho \"{}\"\nexit 2\n", refusal.replace('"', "\\\"")).as_bytes(),
    );
    let mut mode = std::process::Command::new("chmod");
    assert!(mode.arg("+x").arg(&old).status().expect("it is everywhere").success());
    let path = format!("--remote-path={}", old.display());
    let ended = ssh.start("", &[&path, &ssh.at("source"), &of_gate(&ssh, "copy").0]).end();
    ended.is(3, &["longhaul on far is older", "same release"]);
}
