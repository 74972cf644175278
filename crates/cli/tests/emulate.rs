//! `longhaul emulate` as its user meets it.
#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Output, Stdio};

/// A run of `longhaul emulate`, or nothing (said aloud) where this machine forbids it.
fn emulate(args: &[&str]) -> Option<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    let output = command.arg("emulate").args(args).stdin(Stdio::null()).output().unwrap();
    if output.status.code() == Some(3) {
        let reason = String::from_utf8_lossy(&output.stderr);
        // Not through the harness, which would hide it.
        let _ = writeln!(std::io::stderr(), "SKIPPED: {reason}");
        return None;
    }
    Some(output)
}

#[test]
fn a_commands_output_and_status_pass_through_and_the_end_line_tells_the_truth() {
    let script = "cat /etc/hosts; exit 7";
    let Some(output) = emulate(&["--rate", "1G", "--rtt", "10ms", "--", "sh", "-c", script]) else {
        return;
    };
    assert_eq!(output.status.code(), Some(7));
    let (out, err) = (String::from_utf8(output.stdout), String::from_utf8(output.stderr));
    assert!(out.unwrap().contains("10.77.0.2 b\n"));
    let err = err.unwrap();
    for part in ["a > b: ", "b > a: ", "own drops", "late", "processor"] {
        assert!(err.contains(part), "{part:?} in {err}");
    }
}

#[test]
fn the_last_runs_end_ends_all() {
    let args = ["--run", "b", "sleep 86322", "--run", "a", "exit 5"];
    let Some(output) = emulate(&args) else { return };
    assert_eq!(output.status.code(), Some(5));
}

#[test]
fn what_cannot_be_is_a_usage_error_with_the_reason() {
    let wrong: [(&[&str], &str); 4] = [
        (&["--rate", "1G", "--queue", "100B", "--", "true"], "smaller than a packet"),
        (&["--queue", "1bdp", "--", "true"], "needs --rate"),
        (&["--run", "c", "true"], "no emulated host is named c"),
        (&["--", "/no/such/program"], "/no/such/program"),
    ];
    for (args, reason) in wrong {
        let Some(output) = emulate(args) else { return };
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{err}");
        assert!(err.contains(reason), "{reason:?} in {err}");
    }
}

#[test]
fn a_killed_emulation_takes_its_programs_with_it() {
    if emulate(&["--", "true"]).is_none() {
        return;
    }
    let script = "trap '' TERM INT HUP; echo started; sleep 86323 & sleep 86323; wait";
    let mut child = Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(["emulate", "--", "sh", "-c", script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut String::new()).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    // The pipe ends when the last process that holds it has: this hangs if one is left.
    out.read_to_end(&mut Vec::new()).unwrap();
}
