//! Streams and channels across a long path that loses packets.

use std::fs;
use std::process::Command;

use super::{emulate, piped};
use crate::rig::{Child, Host, Skipped, bytes, need};

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
const BINARY: &str = env!("CARGO_BIN_EXE_longhaul");

#[test]
fn a_video_of_50_megabits_a_second_crosses_300_ms_with_2_per_cent_of_loss() {
    need!(emulate(&["--", "true"]));
    let folder = tempfile::tempdir().expect("a folder can be made");
    let film = folder.path().join("film.ts");
    // The example reads frames of 125,020 bytes, 50 a second.
    fs::write(&film, bytes(200 * 125_020, 1)).expect("it can be written");
    let mut script = Command::new(format!("{EXAMPLES}/video.sh"));
    // The script's default deadline is 400 ms.
    script.env("LONGHAUL", BINARY).env("WAY", "code");
    let film = film.to_str().expect("plain letters");
    let ended = Child::spawn(&mut piped(script, &[film, "--json"])).end();
    let summary = ended.is(0, &[]).summary();
    let number = |field: &str| summary[field].as_u64().expect("a number");
    let written = number("on_time") + number("late");
    assert_eq!(written + number("missed") + number("unread"), 200, "{ended}");
    // Some frames may be missed before the first loss reports arrive.
    assert!(written > 100 && number("restored") > 100, "{ended}");
    let received = fs::metadata(format!("{film}.received")).expect("it was written");
    assert_eq!(received.len(), written * 125_020, "{ended}");
}

/// Returns the summaries of sender and receiver.
fn stream_by(way: &str) -> Result<(serde_json::Value, serde_json::Value), Skipped> {
    stream_over(
        &["--rate", "100M", "--loss", "2%"],
        &format!("--way {way} --frames 60 --deadline 20s"),
    )
}

/// Frames of 300,000 bytes, 20 a second, with an RTT of 40 ms. Returns the summaries of sender and
/// receiver.
fn stream_over(
    path: &[&str],
    flags: &str,
) -> Result<(serde_json::Value, serde_json::Value), Skipped> {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let host = Host::new(&folder.path().join("config"));
    let here = folder.path().display();
    let config = format!("export LONGHAUL_CONFIG_DIR={here}/config");
    let ready = format!("{config}; until [ -s {here}/ready ]; do sleep 0.05; done");
    let serve = format!("{config}; {BINARY} reflect --allow {},stream=rw > {here}/ready", host.id);
    let send = format!(
        "{ready}; {BINARY} stream send --test-pattern --json --frame 300000 --fps 20 \
         --receivers 1 --accept-new {flags} lh://b/x > {here}/sent"
    );
    let receive = format!(
        "{ready}; {BINARY} stream receive --check --json --accept-new lh://b/x > {here}/came; \
         until grep -q summary {here}/sent; do sleep 0.05; done"
    );
    let rtt = ["--rtt", "40ms"];
    let runs = ["--run", "b", &serve, "--run", "a", &send, "--run", "b", &receive];
    emulate(&[&rtt[..], path, &runs[..]].concat())?.is(0, &[]);
    let summary = |name: &str| {
        let text = fs::read_to_string(folder.path().join(name)).expect("it was written");
        serde_json::from_str(text.lines().last().expect("a summary")).expect("JSON")
    };
    Ok((summary("sent"), summary("came")))
}

#[test]
fn lost_datagrams_of_frames_and_of_payloads_are_sent_again() {
    // `payloads` sends the frames of one deadline as one object (a payload). `auto` takes `repair`,
    // which sends less than `code` on this path.
    for (way, name) in [("payloads", "payloads"), ("auto", "repair")] {
        let (sent, came) = need!(stream_by(way));
        assert!(sent["way"].as_str().is_some_and(|words| words.starts_with(name)), "{sent}");
        let number = |of: &serde_json::Value, field: &str| of[field].as_u64().expect("a number");
        // The path loses about four of the 210 datagrams of a frame. A busy host may miss a few
        // frames.
        assert!(number(&came, "on_time") >= 50, "{way} {sent} {came}");
        assert_eq!((number(&came, "wrong"), number(&came, "restored")), (0, 0), "{way} {came}");
        assert!(number(&sent, "resent") > 100, "{way} {sent}");
    }
}

#[test]
fn repairs_restore_lost_messages_of_a_channel_with_a_deadline() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let host = Host::new(&folder.path().join("config"));
    let here = folder.path().display();
    let lines: String = (0..3_000).map(|n| format!("{n}\n")).collect();
    fs::write(folder.path().join("lines"), lines).expect("it can be written");
    let allow = format!("{},channel=rw", host.id);
    let config = format!("export LONGHAUL_CONFIG_DIR={here}/config");
    let serve = format!("{config}; {BINARY} reflect --allow {allow} > {here}/ready");
    let ends = "--mode deadline --deadline 20s --json --accept-new lh://b/x";
    // The sender pauses 1 ms after each line. The receiver may miss any message, so the script
    // sends `end` until the receiver has it.
    let send = format!(
        "{config}; until grep -q joined {here}/came 2>/dev/null; do sleep 0.05; done; \
         while read line; do echo $line; sleep 0.001; done < {here}/lines | \
         {BINARY} channel send {ends}; until grep -q '\"text\":\"end\"' {here}/came; \
         do echo end | {BINARY} channel send --accept-new lh://b/x; done"
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
    // The path loses about 90 of the 3000 messages.
    assert!(number("restored") > 20, "{summary} {ended}");
    assert!(number("messages") > 2_900 && number("lost") < 50, "{summary} {ended}");
    assert_eq!(number("late"), 0, "{summary} {ended}");
}

#[test]
fn a_rate_above_that_of_the_path_is_lowered_to_what_the_path_carries() {
    // The frames need 48 Mbit/s. Of the deadline of 160 ms, the sender reserves a round trip
    // (40 ms) for the payload (the frames of one deadline) and a round trip for each round of
    // repairs. It plans at least one round. So it would send at 96 Mbit/s or more, which is more
    // than the path carries.
    let flags = "--way payloads --deadline 160ms --frames 240";
    let (sent, came) = need!(stream_over(&["--rate", "80M", "--queue", "1MB"], flags));
    let rate = sent["rate_bps"].as_f64().expect("a number");
    assert!((30e6..80e6).contains(&rate), "{sent} {came}");
}
