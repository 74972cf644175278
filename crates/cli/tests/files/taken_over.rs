//! Copies that meet an earlier copy, or that wait for the server's memory.

use std::fs::{self, File};

use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use serde_json::Value;

use crate::rig::{Pair, bytes, remains, write};

const LEN: usize = 16_000_000;

#[test]
fn the_same_command_takes_over_the_copy_of_a_silent_client() {
    let pair = Pair::new();
    write(&pair.here.join("file"), &bytes(LEN, 1));
    let copy = || pair.start(&[&"--rate=60M", &"--retry-for=0s", &"file", &pair.at("to")]);
    let mut silent = copy();
    silent.progressed(1);
    silent.signal(Signal::STOP);
    let ended = copy().end();
    assert_eq!(ended.summary()["verified"], true, "{ended}");
    assert!(fs::read(pair.there.join("to")).unwrap() == bytes(LEN, 1));
    // When the first copy runs again, it learns that its session is over.
    silent.signal(Signal::CONT);
    assert_eq!(silent.end().status, Some(1));
    assert!(fs::read(pair.there.join("to")).unwrap() == bytes(LEN, 1));
    assert!(remains(&pair.there).is_empty());
}

/// Bytes that were lost because they arrived before the server accepted the copy.
fn lost_early(summary: &Value) -> u64 {
    let count = |name: &str| summary[name].as_u64().expect("it is a count");
    count("early_lost") * count("payload_bytes")
}

/// Bytes of one second at the rate [`FAST`]. A copy that sends while it waits loses more than that.
const TOO_MUCH: u64 = 20_000_000;
const LARGE: usize = 60_000_000;
const FAST: &str = "--rate=160M";

#[test]
fn a_copy_stops_sending_while_it_waits_to_take_over_another_copy() {
    let pair = Pair::new();
    write(&pair.here.join("file"), &bytes(LARGE, 1));
    let copy = |rate| pair.start(&[&rate, &"--retry-for=0s", &"file", &pair.at("to")]);
    let mut silent = copy("--rate=60M");
    silent.progressed(1);
    silent.signal(Signal::STOP);
    let ended = copy(FAST).end();
    let summary = ended.summary();
    assert!(lost_early(&summary) < TOO_MUCH, "{ended}");
    assert_eq!(summary["protocol"], "rbudp", "{ended}");
    assert!(fs::read(pair.there.join("to")).unwrap() == bytes(LARGE, 1));
}

#[test]
fn a_copy_stops_sending_while_it_waits_for_memory() {
    // The server has memory for one copy.
    let pair = Pair::with(&["--memory=32Mi"]);
    write(&pair.here.join("first"), &bytes(LEN, 1));
    write(&pair.here.join("second"), &bytes(LARGE, 2));
    let mut first = pair.start(&[&"--rate=24M", &"first", &pair.at("one")]);
    first.progressed(1);
    let ended = pair.cp(&[&FAST, &"second", &pair.at("two")]);
    let summary = ended.summary();
    assert!(lost_early(&summary) < TOO_MUCH, "{ended}");
    assert_eq!(summary["protocol"], "rbudp", "{ended}");
    assert!(fs::read(pair.there.join("two")).unwrap() == bytes(LARGE, 2));
    assert_eq!(first.end().summary()["verified"], true);
}

#[test]
fn the_same_command_resumes_immediately_after_each_kill() {
    let pair = Pair::new();
    for number in 0..3 {
        write(&pair.here.join(format!("tree/{number}")), &bytes(LEN, number));
    }
    let mut reported = 0;
    for _ in 0..3 {
        let mut copy = pair.start(&[&"-r", &"--rate=40M", &"tree", &pair.at("")]);
        copy.progressed(reported + 1);
        reported = copy.progressed(reported + 1)["bytes"].as_u64().unwrap();
        copy.kill();
    }
    let ended = pair.cp(&[&"-r", &"tree", &pair.at("")]);
    assert!(ended.summary()["resumed_bytes"].as_u64() > Some(0), "{ended}");
    crate::rig::assert_same(&pair.here.join("tree"), &pair.there.join("tree"));
    assert!(remains(&pair.there).is_empty());
}

#[test]
fn a_copy_waits_for_a_locked_file_and_informs_the_user() {
    let pair = Pair::new();
    write(&pair.here.join("file"), &bytes(LEN, 1));
    // This lock stands for a copy whose client has died, before the server notices the death.
    let other = File::create(pair.there.join(".to.lh-part")).unwrap();
    flock(&other, FlockOperation::NonBlockingLockExclusive).unwrap();
    let mut copy = pair.start(&[&"file", &pair.at("to")]);
    let reported = copy.event(|event| event["event"] == "warning");
    let text = reported["text"].as_str().unwrap();
    assert!(text.contains("another copy is writing") && text.contains("30 s"), "{text}");
    drop(other);
    assert_eq!(copy.end().summary()["verified"], true);
    assert!(fs::read(pair.there.join("to")).unwrap() == bytes(LEN, 1));
}
