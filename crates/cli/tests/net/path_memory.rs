//! Remembered rates of paths (RFC 9959).

use std::process::Command;

use serde_json::Value;

use super::path::Wan;
use super::wan::{MTU, link};
use super::{WAYS, Way};
use crate::rig::{binary, need};

/// The output of `longhaul path` on the client's host.
fn path(wan: &Wan, words: &[&str]) -> Vec<String> {
    let mut command = wan.client.command(["path"]);
    command.args(words);
    let ended = wan.run("a", &command).end();
    assert_eq!(ended.status, Some(0), "{ended}");
    ended.stdout
}

#[test]
fn a_copy_starts_from_the_rate_that_an_earlier_copy_over_the_path_remembered() {
    let wan = need!(Wan::new(link(100, 40, 0.001), MTU, 8_000_000));
    let copy = |way, words: &[&str]| {
        let summary = wan.start(way, words).end().summary();
        wan.assert_copied(way);
        summary
    };
    for way in WAYS {
        let first = copy(way, &["--no-path-memory"]);
        assert_eq!(first["remembered_bps"], Value::Null, "{way:?}: {first}");
        assert!(path(&wan, &["list"]).is_empty(), "{way:?}: nothing is kept");

        let second = copy(way, &[]);
        assert_eq!(second["remembered_bps"], Value::Null, "{way:?}: {second}");
        let listed = path(&wan, &["list", "--json"]);
        assert_eq!(listed.len(), 1, "{listed:?}");
        let known: Value = serde_json::from_str(&listed[0]).expect("an event");
        assert_eq!(known["event"], "known-path", "{known}");
        assert_eq!(known["network"], "10.77.0.0/24");
        assert_eq!(known["own_address"], "10.77.0.1");
        assert_eq!(known["receives"], way == Way::Pull, "{known}");
        assert_eq!(known["rate_bps"], second["found"]["rate_bps"], "{way:?}: {second}");
        assert_eq!(second["first_flight"], false, "{way:?}: {second}");

        let third = copy(way, &[]);
        assert_eq!(third["first_flight"], way == Way::Push, "{way:?}: {third}");
        assert_eq!(third["remembered_bps"], known["rate_bps"], "{way:?}: {third}");
        let told = copy(way, &["--rate=50M"]);
        assert_eq!(told["remembered_bps"], Value::Null, "{way:?}: a fixed rate needs no memory");
        assert_eq!(path(&wan, &["forget", "10.77.0.99"]), ["1 path forgotten"]);
    }
}

#[test]
fn a_copy_completes_despite_a_remembered_rate_that_is_far_too_high() {
    let wan = need!(Wan::new(link(10, 40, 0.0), MTU, 4_000_000));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a date");
    // Network, own address, rate in bit/s, round trip in ns, loss, time in s; then the direction.
    let known = format!("10.77.0.0/24 10.77.0.1 10000000000 40000000 0 {}", now.as_secs());
    // The direction is `in` (to this host) or `out` (to the server). A number after it allows a
    // first flight (data that a push sends before its session is open), and is the UDP payload of
    // that flight's datagrams in bytes. Datagrams with 8,000 bytes do not pass.
    let cases = [
        (Way::Pull, "in", false),
        (Way::Push, "out", false),
        (Way::Push, "out 1452", true),
        (Way::Push, "out 8000", false),
    ];
    for (way, words, first_flight) in cases {
        let line = format!("{known} {words}\n");
        std::fs::write(wan.client.config.join("paths"), &line).expect("the folder is there");
        let summary = wan.start(way, &[] as &[&str]).end().summary();
        assert_eq!(summary["remembered_bps"], 10_000_000_000_u64, "{words}: {summary}");
        assert_eq!(summary["first_flight"], first_flight, "{words}: {summary}");
        wan.assert_copied(way);
    }
}

#[test]
fn a_read_completes_despite_a_remembered_rate_that_is_far_too_high() {
    let wan = need!(Wan::new(link(10, 40, 0.0), MTU, 2_000_000));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a date");
    // Network, own address, rate in bit/s, round trip in ns, loss, time in s, direction.
    let line = format!("10.77.0.0/24 10.77.0.1 10000000000 40000000 0 {} in\n", now.as_secs());
    std::fs::write(wan.client.config.join("paths"), &line).expect("the folder is there");
    let server = wan.server.as_ref().expect("it was started");
    let (longhaul, id) = (binary(), &server.id);
    let longhaul = longhaul.to_str().expect("our own name");
    let read = format!("{longhaul} cat --server-id={id} lh://{}/source > read", server.address);
    let mut command = Command::new("sh");
    command.args(["-c", &read]).env("LONGHAUL_CONFIG_DIR", &wan.client.config);
    wan.run("a", command.current_dir(&wan.here)).end().is(0, &[]);
    assert!(std::fs::read(wan.here.join("read")).expect("it was read") == wan.content);
}

#[test]
fn a_broken_file_of_paths_causes_a_warning_and_does_not_fail_the_copy() {
    let wan = need!(Wan::new(link(100, 10, 0.0), MTU, 4_000_000));
    let file = wan.client.config.join("paths");
    std::fs::write(&file, "nonsense\n").expect("the folder is there");
    let ended = wan.start(Way::Push, &[] as &[&str]).end();
    let warnings = ended.events("warning");
    let text = warnings.iter().filter_map(|warning| warning["text"].as_str());
    assert!(text.into_iter().any(|text| text.contains("paths line 1")), "{ended}");
    wan.assert_copied(Way::Push);
}
