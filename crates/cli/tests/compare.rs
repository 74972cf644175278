//! `longhaul compare` from the user's point of view.

use std::fs;

use serde_json::Value;

use crate::rig::{Pair, Terminal, content};
use crate::usage::longhaul;

const WAN: &str = r#"
[topology]
kind = "pair"
link = { rate = "50M", delay = "5ms", loss = "1%" }
[[flow]]
name = "copy"
from = "a"
to = "b"
protocol = "rbudp"
size = "5MB"
settings = { tail-copies = 1 }
"#;

fn events(stdout: &str) -> Vec<Value> {
    stdout.lines().map(|line| serde_json::from_str(line).expect("a line is an object")).collect()
}

fn each<'e>(events: &'e [Value], kind: &str, name: &str) -> Vec<&'e Value> {
    events.iter().filter(|event| event["event"] == kind).map(|event| &event[name]).collect()
}

#[test]
fn protocols_take_turns_on_a_scenario_and_each_also_runs_beside_tcp() {
    let folder = tempfile::tempdir().expect("a folder");
    let (wan, page) = (folder.path().join("wan.toml"), folder.path().join("wan.html"));
    fs::write(&wan, WAN).expect("room for it");
    let (wan, page) = (wan.to_str().expect("UTF-8"), page.to_str().expect("UTF-8"));
    let words = ["compare", "--scenario", wan, "--protocols", "sabul,tcp:2", "--repeat", "2"];
    let run = longhaul(&[&words[..], &["--json", "--html", page]].concat());
    assert_eq!((run.status, run.stderr.as_str()), (0, ""), "{}", run.stdout);
    let events = events(&run.stdout);
    assert_eq!(each(&events, "run", "protocol"), ["sabul", "tcp:2", "sabul", "tcp:2"]);
    assert_eq!(each(&events, "run", "seed"), [1, 1, 2, 2]);
    for event in &events[..4] {
        let number = |name: &str| event[name].as_f64().unwrap_or_else(|| panic!("{name}: {event}"));
        assert!(number("path_lost") > 0.0, "of about 3500 packets, one in a hundred is lost");
        assert!(number("goodput_bps") < 50e6);
        let share = number("beside_tcp_tcp_share");
        assert!(share > 0.0 && share < 1.0, "{share}");
        assert!(event["cpu_here_seconds_per_gb"].is_null());
        assert!(event["series"].as_array().is_some_and(|series| !series.is_empty()));
    }
    let last = events.last().expect("a summary");
    assert_eq!((&last["event"], &last["status"]), (&"summary".into(), &0.into()));
    assert_eq!(last["protocols"].as_array().map(Vec::len), Some(2));
    let congestion = [0, 1].map(|number| last["protocols"][number]["congestion"].clone());
    assert_eq!(congestion, [Value::Null, "cubic".into()]);
    let page = fs::read_to_string(page).expect("it was written");
    assert!(page.contains("tcp:2 (cubic)") && page.contains("</svg>"));
    assert_eq!(longhaul(&words).stdout, longhaul(&words).stdout, "a seed determines the table");
}

#[test]
fn a_comparison_leaves_an_object_on_the_host_only_with_the_write_flag() {
    let pair = Pair::new();
    let id = format!("--server-id={}", pair.server.id);
    let (host, file) = (pair.server.at(""), pair.server.at("object"));
    let common = ["compare", "--json", &id, "--protocols", "rbudp,tcp:2", "--size", "3MB"];
    let compared = |more: &[&str], host: &std::ffi::OsStr| {
        let mut words: Vec<&std::ffi::OsStr> = Vec::new();
        words.extend(common.iter().chain(more).map(std::ffi::OsStr::new));
        words.push(host);
        let ended = pair.client.run(words);
        ended.is(0, &[]);
        events(&ended.stdout.join("\n"))
    };
    let before = content(&pair.there);
    let page = pair.scratch.path().join("host.html");
    let html = format!("--html={}", page.display());
    let measured = compared(&["--repeat=2", "--rate=200M", &html], &host);
    let page = fs::read_to_string(page).expect("it was written");
    assert!(page.contains("rbudp") && page.contains("tcp:2") && page.contains("</svg>"));
    assert_eq!(each(&measured, "run", "protocol"), ["rbudp", "tcp:2", "rbudp", "tcp:2"]);
    assert!(each(&measured, "run", "bytes").iter().all(|bytes| **bytes == 3_000_000));
    let last = measured.last().expect("a summary");
    let (rbudp, tcp) = (&last["protocols"][0], &last["protocols"][1]);
    for told in ["waste", "retransmitted"] {
        assert!(rbudp[told].is_number() && tcp[told].is_number(), "{told}: {last}");
    }
    for lost in ["path_lost", "blocks_lost", "reported_lost", "duplicates"] {
        let told = (rbudp[lost].is_number(), tcp[lost].is_null());
        assert_eq!(told, (true, true), "the kernel does not report {lost}: {last}");
    }
    assert!(rbudp["beside_tcp_tcp_share"].is_null(), "--beside-tcp was not given: {last}");
    assert!(rbudp["cpu_here_seconds_per_gb"].as_f64() > Some(0.0));
    assert!(rbudp["cpu_there_seconds_per_gb"].as_f64() > Some(0.0));
    assert_eq!(content(&pair.there), before, "without --write a comparison writes nothing");
    let written = compared(&["--repeat=1", "--write", "--beside-tcp"], &file);
    assert_eq!(each(&written, "run", "error"), [&Value::Null; 2]);
    for run in written.iter().filter(|event| event["event"] == "run") {
        let rate = |name: &str| run[name].as_u64().unwrap_or_else(|| panic!("{name}: {run}"));
        let both = rate("beside_tcp_goodput_bps") + rate("beside_tcp_tcp_bps");
        assert!(both > 0, "the measurement ends with the flow that ends first: {run}");
        let share = run["beside_tcp_tcp_share"].as_f64();
        assert!(share.is_some_and(|share| (0.0..=1.0).contains(&share)), "{run}");
    }
    let left = fs::metadata(pair.there.join("object")).expect("the last object stays");
    assert_eq!(left.len(), 3_000_000);
}

#[test]
fn the_progress_bar_of_a_comparison_is_removed_after_a_run() {
    let pair = Pair::new();
    let id = format!("--server-id={}", pair.server.id);
    let words = ["compare", &id, "--protocols=rbudp", "--size=3MB", "--repeat=1", "--rate=10M"];
    let mut command = pair.client.command(words);
    command.arg(pair.server.at(""));
    let (ended, text) = Terminal::start(command).end();
    assert_eq!(ended, Some(0), "{text}");
    let (_, after) = text.rsplit_once("of 3.00 MB").expect("the bar was drawn");
    // This escape sequence erases a line of the terminal.
    assert!(after.contains("\x1b[2K"), "{text:?}");
}

#[test]
fn an_invalid_comparison_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let scenario = |name: &str, text: String| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("room for it");
        path.to_str().expect("UTF-8").to_owned()
    };
    let endless = scenario("a.toml", WAN.replace("size = \"5MB\"", "lasts = \"1s\""));
    let udp = WAN.replace("protocol = \"rbudp\"\nsize = \"5MB\"", "udp = \"1M\"\nlasts = \"1s\"");
    let udp = scenario("b.toml", udp.replace("settings = { tail-copies = 1 }", ""));
    let none = scenario("c.toml", WAN.split("[[flow]]").next().unwrap_or_default().to_owned());
    let real = scenario("d.toml", WAN.to_owned());
    let cases: [(&[&str], &str); 13] = [
        (&[], "required"),
        (&["./here"], "not a host"),
        (&["h:", "--scenario", "x"], "cannot be used with"),
        (&["h:", "--seed=1"], "cannot be used with"),
        (&["--scenario=x", "--write"], "cannot be used with"),
        (&["--scenario=x", "--beside-tcp"], "cannot be used with"),
        (&["h:", "--protocols=ftp"], "rbudp"),
        (&["h:", "--protocols=tcp,tcp:8"], "twice"),
        (&["h:", "--size=0"], "--size 0"),
        (&["--scenario", &real, "--protocols=tcp:auto"], "real path"),
        (&["--scenario", &endless], "--size"),
        (&["--scenario", &udp], "is not a copy"),
        (&["--scenario", &none], "has no flow"),
    ];
    for (words, expected) in cases {
        let run = longhaul(&[&["compare"], words].concat());
        assert_eq!((run.status, run.stdout.as_str()), (2, ""), "{words:?}: {}", run.stderr);
        assert!(run.stderr.contains(expected), "no '{expected}' in: {}", run.stderr);
    }
}
