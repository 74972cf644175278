//! Runs the commands of docs/coming-from.md over a real ssh.

use std::fs;
use std::process::Command;

use super::pages::path_with_longhaul;
use super::ssh::Ssh;
use crate::rig::{bytes, need, write};

const PAGE: &str = include_str!("../../../../docs/coming-from.md");
const BINARY: &str = env!("CARGO_BIN_EXE_longhaul");

/// Returns the commands in the second columns of the page's tables, in the order of the page.
fn commands() -> Vec<String> {
    let rows = PAGE.lines().filter(|line| line.starts_with("| `"));
    let second = |row: &str| {
        // A pipe within a command is written `\|`.
        let row = row.replace("\\|", "\u{1}");
        let cell = row.split('|').nth(2).expect("a row has two columns").trim().to_owned();
        cell.trim_matches('`').replace('\u{1}', "|")
    };
    rows.map(second).collect()
}

fn outcome(command: &str) -> Outcome {
    let printing = ["cp -avn", "sync -vn", "longhaul ls", "longhaul cat", "longhaul probe"];
    match command {
        _ if printing.iter().any(|part| command.contains(part)) => Outcome::Printed,
        _ if command.contains("run42.tar") => Outcome::There("run42.tar"),
        _ if command.contains("backup") => Outcome::Here("backup/a.dat"),
        _ if command.contains("b*.dat") => Outcome::Here("b.dat"),
        _ if command.contains("--mkpath") => Outcome::There("x/y/a.dat"),
        _ if command.contains("/new/") => Outcome::There("new/a.dat"),
        _ if command.contains("run42") => Outcome::There("run42/a.dat"),
        _ if command.contains("big.tar") => Outcome::There("big.tar"),
        _ if command.contains("cp -r dtn:/data/run7 archive") => Outcome::There("kept/run7/b.dat"),
        _ if command.contains("kept") => Outcome::There("kept/b.dat"),
        _ if command.contains("run7") => Outcome::Here("run7/b.dat"),
        _ => Outcome::Here("small.txt"),
    }
}

/// The effect that a command of the page must have.
enum Outcome {
    /// The folder of the ssh host has this file.
    There(&'static str),
    /// The local folder has this file.
    Here(&'static str),
    /// The command prints to stdout.
    Printed,
}

#[test]
fn each_command_for_users_of_other_tools_works() {
    let ssh = need!(Ssh::new());
    let (tools, here, there) = (ssh.path("tools"), ssh.path("near"), ssh.path("data"));
    let path = path_with_longhaul(&tools);
    let wrapper =
        format!("#!/bin/sh\nexec /usr/bin/ssh -F '{}' \"$@\"\n", ssh.path("ssh_config").display());
    write(&tools.join("ssh"), wrapper.as_bytes());
    let mut mode = Command::new("chmod");
    assert!(mode.arg("+x").arg(tools.join("ssh")).status().expect("chmod is everywhere").success());
    let config = format!("[host.gate]\nrsh = \"{}\"\n", tools.join("ssh").display());
    write(&ssh.path("far_config/config.toml"), config.as_bytes());
    let all = commands();
    assert!(all.len() > 12, "{all:?}");
    for line in all {
        for folder in [&here, &there] {
            let _ = fs::remove_dir_all(folder);
        }
        write(&here.join("big.tar"), &bytes(300_000, 1));
        write(&here.join("run42/a.dat"), &bytes(50_000, 2));
        write(&here.join("run42/x.tmp"), b"not this");
        write(&here.join("list"), b"a.dat\n");
        write(&there.join("run7/b.dat"), &bytes(50_000, 3));
        write(&there.join("kept/older"), b"another");
        write(&there.join("small.txt"), b"a small text\n");
        let run = line.replace("/data", &there.display().to_string()).replace("dtn", "far");
        // The sshd of this test uses another port than 2222.
        let run = run.replace("archive:", "gate:").replace("ssh -p 2222", "ssh");
        // ssh runs longhaul without the PATH of this test, so --remote-path is needed.
        let is_local = !line.contains("dtn")
            && (line.contains("longhaul cp") || line.contains("longhaul sync"));
        let far = if is_local { " ".into() } else { format!(" --remote-path {BINARY} ") };
        let run = ["cp ", "sync ", "ls ", "cat ", "probe "].iter().fold(run, |run, name| {
            let name = format!("longhaul {name}");
            run.replace(&name, &format!("{}{far}", name.trim_end()))
        });
        let mut command = Command::new("sh");
        command.args(["-c", &run]).env("PATH", &path);
        command.env("LONGHAUL_CONFIG_DIR", &ssh.client.config);
        let output = command.current_dir(&here).output().expect("there is a shell");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {said}");
        match outcome(&line) {
            Outcome::There(name) => assert!(there.join(name).exists(), "{line}: {said}"),
            Outcome::Here(name) => assert!(here.join(name).exists(), "{line}: {said}"),
            Outcome::Printed => assert!(!output.stdout.is_empty(), "{line}: {said}"),
        }
        let excluded = line.contains("--exclude");
        assert!(!excluded || !there.join("run42/x.tmp").exists(), "{line}");
    }
}
