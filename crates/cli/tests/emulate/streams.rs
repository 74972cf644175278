//! Streams and channels across a long path that loses packets.

use std::fs;
use std::process::Command;

use super::{emulate, piped, sshd};
use crate::rig::{Child, Host, bytes, need};

/// The examples of the repository.
const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
const BINARY: &str = env!("CARGO_BIN_EXE_longhaul");

#[test]
fn a_video_of_50_megabits_a_second_crosses_300_ms_with_2_per_cent_of_loss() {
    need!(emulate(&["--", "true"]));
    let folder = tempfile::tempdir().expect("a folder can be made");
    let film = folder.path().join("film.ts");
    // Four seconds, at the rate of ffmpeg's output.
    fs::write(&film, bytes(200 * 125_020, 1)).expect("it can be written");
    let mut script = Command::new(format!("{EXAMPLES}/video.sh"));
    // A deadline that no frame misses, even on a busy host.
    script.env("LONGHAUL", BINARY).env("DEADLINE", "20s");
    let film = film.to_str().expect("plain letters");
    let ended = Child::spawn(&mut piped(script, &[film, "--json"])).end();
    let summary = ended.is(0, &[]).summary();
    let number = |field: &str| summary[field].as_u64().expect("a number");
    let written = number("on_time") + number("late");
    assert_eq!(written + number("missed") + number("unread"), 200, "{ended}");
    // Until losses are measured, frames have repairs for less than 2 %.
    assert!(written > 100 && number("restored") > 100, "{ended}");
    let received = fs::metadata(format!("{film}.received")).expect("it was written");
    assert_eq!(received.len(), written * 125_020, "{ended}");
}

#[test]
fn messages_with_a_deadline_are_repaired_as_the_path_loses_them() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let host = Host::new(&folder.path().join("config"));
    let here = folder.path().display();
    let lines: String = (0..3_000).map(|n| format!("{n}\n")).collect();
    fs::write(folder.path().join("lines"), lines).expect("it can be written");
    let allow = format!("{},channel=rw", host.id);
    let config = format!("export LONGHAUL_CONFIG_DIR={here}/config");
    let serve = format!("{config}; {BINARY} reflect --allow {allow} > {here}/ready");
    let ends = "--mode deadline --deadline 20s --json --accept-new lh://b/x";
    // The sender waits for the subscriber, then sends a line every 1 ms.
    let send = format!(
        "{config}; until grep -q joined {here}/came 2>/dev/null; do sleep 0.05; done; \
         while read line; do echo $line; sleep 0.001; done < {here}/lines | \
         {BINARY} channel send {ends}; echo end | {BINARY} channel send --accept-new lh://b/x"
    );
    let receive = format!(
        "{config}; until [ -s {here}/ready ]; do sleep 0.05; done; \
         {BINARY} channel receive {ends} > {here}/came & \
         until grep -q '\"text\":\"end\"' {here}/came 2>/dev/null; do sleep 0.05; done; \
         kill -INT $!; wait $!; true"
    );
    let path = ["--rate", "100M", "--rtt", "40ms", "--loss", "3%"];
    let runs = ["--run", "b", &serve, "--run", "b", &send, "--run", "a", &receive];
    let ended = need!(emulate(&[&path[..], &runs[..]].concat()));
    let came = fs::read_to_string(folder.path().join("came")).expect("it was written");
    let summary = came.lines().rfind(|line| line.contains("\"summary\""));
    let summary: serde_json::Value =
        serde_json::from_str(summary.unwrap_or_default()).unwrap_or_default();
    let number = |field: &str| summary[field].as_u64().unwrap_or_default();
    // Three of a hundred are lost; most of them are restored.
    assert!(number("restored") > 20, "{summary} {ended}");
    assert!(number("messages") > 2_900 && number("lost") < 50, "{summary} {ended}");
    assert_eq!(number("late"), 0, "{summary} {ended}");
}

#[test]
fn streams_and_channels_meet_over_ssh_across_a_long_path() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let (serve, ready) = need!(sshd(folder.path()));
    let here = folder.path().display();
    let near = |name: &str| format!("export LONGHAUL_CONFIG_DIR={here}/{name}; {ready}");
    let ends = format!("--rsh='ssh -F {here}/ssh_config' --remote-path={BINARY} --json");
    let send = format!(
        "{}; {BINARY} stream send --test-pattern --frames 60 --frame 20000 --fps 30 \
         --deadline 20s --receivers 1 {ends} b:lab/cam && \
         echo hello | {BINARY} channel send {ends} b:lab/log",
        near("a")
    );
    // Both ends of the host b: the stream, and the last message of a room without other clients.
    let receive = format!(
        "{}; {BINARY} stream receive --check {ends} b:lab/cam > {here}/frames; \
         {BINARY} channel receive --count 1 {ends} b:lab/log > {here}/message",
        near("b")
    );
    let path = ["--rate", "100M", "--rtt", "100ms", "--loss", "1%"];
    let runs = ["--run", "b", &serve, "--run", "a", &send, "--run", "b", &receive];
    let ended = need!(emulate(&[&path[..], &runs[..]].concat()));
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).expect("it was written");
    let frames = read("frames");
    let summary = frames.lines().last().expect("a summary");
    let summary: serde_json::Value = serde_json::from_str(summary).expect("JSON");
    assert!(summary["on_time"].as_u64() > Some(50) && summary["wrong"] == 0, "{summary} {ended}");
    assert!(read("message").contains("\"text\":\"hello\""), "{} {ended}", read("message"));
}
