//! Replicas that are unreachable or whose disk hangs.

use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use super::many::Star;
use crate::rig::slow::{Hanging, hanging_calls, has_hung};
use crate::rig::{Child, bytes, need};

#[test]
fn a_copy_continues_after_all_replicas_were_away_for_longer_than_stall() {
    let content = bytes(24_000_000, 31);
    let mut star = Star::of_replicas(2, &content);
    // A broken TCP connection is detected immediately.
    let tcp = ["--protocol=tcp", "--streams=1", "--rate=24M"];
    let flags = [&tcp[..], &["--stall=4s", "--retry-for=90s"]].concat();
    let mut copy = star.replicas(&flags, &[0, 1]);
    copy.progressed(1_000_000);
    for server in [0, 1] {
        star.signal(server, Signal::KILL);
    }
    let is_away = |row: serde_json::Value| row["state"] == "retrying" && row["rate_bps"] == 0;
    copy.event(|event| {
        let away = |server| star.row_of(event, server).is_some_and(is_away);
        away(0) && away(1)
    });
    // The pause is longer than the --stall of 4 s.
    thread::sleep(Duration::from_secs(6));
    star.restart(0);
    star.restart(1);
    let ended = copy.end();
    assert_eq!(ended.summary()["verified"], true, "{ended}");
    star.assert_copied("x", &content);
}

/// Whether a source is connecting, for the first time or again.
fn is_not_there(star: &Star, event: &serde_json::Value, server: usize) -> bool {
    let state = star.row(event, server)["state"].clone();
    state == "connecting" || state == "retrying"
}

#[test]
fn a_replica_that_is_down_when_the_copy_starts_joins_after_its_restart() {
    let content = bytes(40_000_000, 32);
    let mut star = Star::of_replicas(3, &content);
    star.signal(2, Signal::KILL);
    let mut copy = star.replicas(&["--rate=16M"], &[0, 1, 2]);
    let begun = copy.progressed(1_000_000);
    assert!(is_not_there(&star, &begun, 2), "{begun}");
    star.restart(2);
    let joined =
        copy.event(|event| star.row_of(event, 2).is_some_and(|row| row["state"] == "receiving"));
    assert_eq!(joined["event"], "progress", "{joined}");
    let ended = copy.end();
    let summary = ended.summary();
    assert_eq!((&summary["verified"], &summary["failed_sources"]), (&true.into(), &0.into()));
    assert!(star.row(&summary, 2)["received_bytes"].as_u64() > Some(0), "{ended}");
    star.assert_copied("x", &content);
}

#[test]
fn a_server_logs_the_comparison_of_replicas_and_its_result() {
    let content = bytes(2_000_000, 35);
    let mut star = Star::of_replicas(2, &content);
    star.replicas(&[], &[0, 1]).end().summary();
    let client = star.client.id.clone();
    for wish in ["compares /x", "compares /x: done,", "reads /x"] {
        let told = star.servers[0].child().complaint(wish);
        assert!(told.contains(&client), "{told}");
    }
    let sources = [(0, "none"), (1, "none")];
    star.start(&["--replicas"], &sources, "y").end().is(5, &["none"]);
    star.servers[1].child().complaint("compares /none: failed,");
}

#[test]
fn an_unreachable_replica_is_reported_and_does_not_fail_the_copy() {
    let content = bytes(3_000_000, 33);
    let mut star = Star::of_replicas(2, &content);
    star.signal(0, Signal::KILL);
    let ended = star.replicas(&[], &[0, 1]).end();
    let summary = ended.summary();
    assert_eq!(summary["failed_sources"], 1, "{ended}");
    assert_eq!(star.row(&summary, 0)["state"], "failed", "{ended}");
    assert!(ended.stderr.contains("will try it again") && ended.stderr.contains("cannot reach"));
    star.assert_copied("x", &content);
    // Without a reachable replica, the copy ends immediately.
    star.signal(1, Signal::KILL);
    star.replicas(&[], &[0, 1]).end().is(3, &["cannot reach"]);
}

#[test]
fn a_replica_frozen_at_the_start_delays_no_copy_and_joins_later() {
    let content = bytes(40_000_000, 34);
    let mut star = Star::of_replicas(3, &content);
    star.signal(0, Signal::STOP);
    let mut copy = star.replicas(&["--rate=16M"], &[0, 1, 2]);
    let begun = copy.progressed(1_000_000);
    assert!(is_not_there(&star, &begun, 0), "{begun}");
    star.signal(0, Signal::CONT);
    copy.event(|event| star.row_of(event, 0).is_some_and(|row| row["state"] == "receiving"));
    let ended = copy.end();
    assert_eq!(ended.summary()["verified"], true, "{ended}");
    star.assert_copied("x", &content);
}

/// Length of the object that three replicas have.
const LENGTH: usize = 24 << 20;

/// Checks that the copy ends although the disk of the first replica hangs.
fn ends_without_the_first(star: &Star, copy: Child, content: &[u8]) {
    let ended = copy.end();
    assert!(has_hung(&star.log()), "no call of the first replica has hung: {ended}");
    let summary = ended.summary();
    assert_eq!(summary["verified"], true, "{ended}");
    let arrived = |server| star.row(&summary, server)["received_bytes"].as_u64().unwrap_or(0);
    assert!(arrived(0) < LENGTH as u64 / 3, "{ended}");
    assert!(arrived(1) > 0 && arrived(2) > 0, "{ended}");
    star.assert_copied("x", content);
}

#[test]
fn a_replica_whose_disk_hangs_in_the_comparison_delays_no_copy() {
    let content = bytes(LENGTH, 36);
    let mut star = Star::of_replicas(3, &content);
    // The first eight reads of each thread succeed: they load libraries, or read eight chunks.
    star.restart_within(0, &need!(hanging_calls("pread64", 9, &star.log())));
    let copy = star.replicas(&["--rate=80M"], &[0, 1, 2]);
    ends_without_the_first(&star, copy, &content);
}

#[test]
fn a_replica_whose_disk_hangs_while_it_sends_leaves_its_chunks_to_the_others() {
    let content = bytes(LENGTH, 37);
    let mut star = Star::of_replicas(3, &content);
    let mut copy = star.replicas(&["--rate=24M"], &[0, 1, 2]);
    copy.event(|event| star.row_of(event, 0).is_some_and(|row| row["received_bytes"] != 0));
    let id = star.servers[0].child().id();
    let _hanging = need!(Hanging::from_now(id, "pread64", &star.log()));
    ends_without_the_first(&star, copy, &content);
}
