//! The flows of a scenario, run for real.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use super::{command, emulate, scenario, started, until_none_is_left};
use crate::rig::{Child, need};

const FLOWS: &str = r#"
time-limit = "90s"
[topology]
kind = "dumbbell"
left = 2
right = 1
bottleneck = { rate = "80M", delay = "4ms", loss = "0.5%" }
[[host]]
name = "right1"
disk-rate = "1G"
memory = "128MiB"
[[flow]]
name = "rbudp"
from = "left1"
to = "right1"
protocol = "rbudp"
size = "3MB"
rate = "30M"
segment = "1MiB"
settings = { tail-copies = 1 }
[[flow]]
name = "sabul"
from = "left2"
to = "right1"
protocol = "sabul"
size = "1MB"
rate = "10M"
start = "100ms"
[[flow]]
name = "cut"
from = "left2"
to = "right1"
protocol = "rbudp"
rate = "9M"
lasts = "2500ms"
[[flow]]
name = "bulk"
from = "left1"
to = "right1"
tcp = "cubic"
streams = 3
size = "1MB"
[[flow]]
name = "timed"
from = "left2"
to = "right1"
tcp = "newreno"
window = "64KiB"
lasts = "300ms"
[[flow]]
name = "mice"
from = "left2"
to = "right1"
mice = 6
size = "20KB"
arrivals = "poisson"
every = "20ms"
[[flow]]
name = "turns"
from = "left1"
to = "right1"
mice = 3
size = "5KB"
arrivals = "in-turn"
[[flow]]
name = "bursts"
from = "right1"
to = "left1"
udp = "5M"
on = "30ms"
off = "20ms"
lasts = "400ms"
[[flow]]
name = "noise"
from = "right1"
to = "left2"
udp = "1M"
datagram = 500
random = true
on = "30ms"
off = "20ms"
"#;

/// Counts the folders in which the run of process `pid` keeps its objects.
fn scratches(pid: u32) -> usize {
    let prefix = format!("longhaul-emulate-{pid}-");
    let places = [PathBuf::from("/dev/shm"), std::env::temp_dir()];
    let entries = places.iter().filter_map(|place| fs::read_dir(place).ok()).flatten().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix)).count()
}

#[test]
fn every_kind_of_flow_runs_and_reports_its_result() {
    let (_folder, file) = scenario(FLOWS);
    let ended = need!(emulate(&[&file, "--json"]));
    let flows = ended.is(0, &["NOT emulated: host right1: disk-rate"]).events("flow");
    let names: Vec<&str> = flows.iter().filter_map(|flow| flow["flow"].as_str()).collect();
    let all = ["rbudp", "sabul", "cut", "bulk", "timed", "mice", "turns", "bursts", "noise"];
    assert_eq!(names, all, "{ended}");
    for flow in &flows {
        assert_eq!((&flow["finished"], &flow["error"]), (&true.into(), &Value::Null), "{flow}");
        if flow["flow"] != "cut" {
            assert!(flow["delivered_bytes"].as_u64() > Some(0), "{flow}");
            assert!(flow["goodput_bps"].as_u64() > Some(0), "{flow}");
        }
        let object = &flow["object_bytes"];
        assert!(object.is_null() || *object == flow["delivered_bytes"], "{flow}");
    }
    let count = |place: usize, name: &str| flows[place][name].as_u64().unwrap_or_default();
    // 3 MB in blocks of at most 1440 bytes; one packet in 200 is lost on average.
    assert!(count(0, "blocks") > 2_000 && count(0, "sent") > count(0, "blocks"), "{ended}");
    assert!(count(0, "lost") > 0 && count(0, "retransmitted") > 0, "{ended}");
    // `cut` stops after 2.5 s. At 9 Mbit/s it has then sent at most 2.8 MB. Its object is 1 MiB
    // larger than that, so it cannot be complete.
    assert!(count(2, "delivered_bytes") < 2_900_000, "{ended}");
    // `bulk` sends 1 MB in segments of at most 1460 bytes.
    assert!(count(3, "sent") >= 1_000_000 / 1_460, "{ended}");
    let lives = |place: usize| flows[place]["lives_seconds"].as_array().map(Vec::len);
    assert_eq!((lives(5), lives(6)), (Some(6), Some(3)), "{ended}");
    // A mouse (a short TCP connection) takes at least two round trips of 8 ms.
    assert!(flows[5]["lives_seconds"][0].as_f64() > Some(0.016), "a SYN and the data: {ended}");
    // `bursts` sends at 5 Mbit/s during 30 ms of each 50 ms: 150 kB in its 0.4 s.
    assert!(count(7, "delivered_bytes") < 200_000 && count(7, "sent") > 10, "{ended}");
    let truth = ended.summary();
    assert!(truth["valid"].is_boolean() && truth["own_drops"].is_u64(), "{truth}");
    // The bottleneck and a link to each of three hosts, in both directions.
    assert_eq!(truth["links"].as_array().map(Vec::len), Some(8), "{truth}");
    assert_eq!(truth["hosts"].as_array().map(Vec::len), Some(3), "{truth}");
    assert!(truth["hosts"][2]["socket_drops"].is_u64(), "{truth}");
    assert!(truth["awake_cpu_seconds"].as_f64() > Some(0.0), "{truth}");
    assert_eq!(truth["not_emulated"].as_array().map(Vec::len), Some(1), "{truth}");
}

#[test]
fn a_table_shows_the_result_of_each_flow_and_the_status_shows_failures() {
    let text = "time-limit = \"2s\"\n[topology]\nkind = \"pair\"\nlink = { rate = \"5M\" }\n\
        [[flow]]\nname = \"small\"\nfrom = \"a\"\nto = \"b\"\ntcp = \"cubic\"\nsize = \"20KB\"\n\
        [[flow]]\nname = \"large\"\nfrom = \"a\"\nto = \"b\"\ntcp = \"cubic\"\nsize = \"1GB\"\n";
    let (_folder, file) = scenario(text);
    let ended = need!(emulate(&[&file]));
    ended.is(124, &["time limit of 2.0", "a > b: "]);
    let line = |name: &str| {
        let line = ended.stdout.iter().find(|line| line.trim_start().starts_with(name));
        line.unwrap_or_else(|| panic!("no {name} in {ended}")).clone()
    };
    assert!(line("flow").contains("goodput") && line("small").contains("20.00 kB"), "{ended}");
    assert!(line("NOT FINISHED").contains("1.00 GB expected"), "{ended}");

    // Endless flows end when the last of the other flows ends.
    let endless = text.replace("size = \"1GB\"", "");
    let (_folder, file) = scenario(&endless);
    let ended = emulate(&[&file, "--quiet"]).expect("as before");
    assert!(ended.is(0, &[]).stdout.iter().any(|line| line.contains("large")), "{ended}");
}

#[test]
fn a_copy_without_an_end_is_left_out_and_the_other_copy_runs() {
    let flow = "[[flow]]\nfrom = \"a\"\nto = \"b\"\nprotocol = \"rbudp\"\n";
    let text = format!(
        "[topology]\nkind = \"pair\"\nlink = {{ rate = \"50M\" }}\n{flow}name = \"whole\"\n\
         size = \"100KB\"\n{flow}name = \"endless\"\n"
    );
    let (_folder, file) = scenario(&text);
    let ended = need!(emulate(&[&file]));
    ended.is(0, &["NOT emulated: flow endless: a real copy must end"]);
    let shows = |name: &str| ended.stdout.iter().any(|line| line.trim_start().starts_with(name));
    assert!(shows("whole") && !shows("endless"), "{ended}");
}

#[test]
fn a_mouse_that_cannot_connect_ends_with_the_run() {
    let text = "time-limit = \"1s\"\n[topology]\nkind = \"pair\"\n\
        link = { rate = \"5M\", loss = \"100%\" }\n[[flow]]\nname = \"turns\"\nfrom = \"a\"\n\
        to = \"b\"\nmice = 2\nsize = \"5KB\"\narrivals = \"in-turn\"\n";
    let (_folder, file) = scenario(text);
    // If the end of the run did not stop the first mouse, the second mouse would wait two minutes
    // for it.
    need!(emulate(&[&file])).is(124, &["time limit of 1.0"]);
}

#[test]
fn a_flow_that_cannot_run_is_refused_with_the_reason_before_anything_starts() {
    let flow = "[[flow]]\nname = \"odd\"\nfrom = \"a\"\nto = \"b\"\nsize = \"1MB\"\n";
    let pair = "[topology]\nkind = \"pair\"\nlink = { delay = \"1ms\" }\n";
    let wrong = [
        ("protocol = \"rbupd\"", "did you mean 'rbudp'?"),
        ("protocol = \"rbudp\"\nsettings = { no-such = 1 }", "no setting no-such"),
        ("protocol = \"rbudp\"\n#", "need"),
    ];
    for (how, reason) in wrong {
        let size = if how.ends_with('#') { "size = \"900TB\"" } else { "size = \"1MB\"" };
        let flow = flow.replace("size = \"1MB\"", size);
        let (_folder, file) = scenario(&format!("{pair}{flow}{how}\n"));
        let ended = need!(emulate(&[&file]));
        ended.is(2, &[reason]);
        assert!(ended.stdout.is_empty(), "{ended}");
    }
}

#[test]
fn a_signal_ends_the_flows_and_a_kill_leaves_no_object_behind() {
    let text = "[topology]\nkind = \"pair\"\nlink = { rate = \"8M\", delay = \"5ms\" }\n\
        [[flow]]\nname = \"copy\"\nfrom = \"a\"\nto = \"b\"\nprotocol = \"rbudp\"\n\
        size = \"20MB\"\n[[flow]]\nfrom = \"a\"\nto = \"b\"\ntcp = \"cubic\"\n\
        [[flow]]\nfrom = \"a\"\ncommand = \"echo started; sleep 86324\"\n";
    let (_folder, file) = scenario(text);
    let child = need!(started(&[&file]));
    let pid = child.id();
    assert_eq!(scratches(pid), 1);
    child.signal(Signal::INT);
    child.signal(Signal::INT);
    let ended = child.end();
    ended.is(130, &["a > b: "]);
    assert!(ended.stdout.iter().any(|line| line.contains("copy")), "{ended}");
    until_none_is_left(|| scratches(pid));

    let child = need!(started(&[&file]));
    let pid = child.id();
    assert_eq!(scratches(pid), 1);
    child.kill_group();
    child.end();
    until_none_is_left(|| scratches(pid));
}

#[test]
fn ctrl_c_early_in_a_run_leaves_no_file_and_reports_no_success() {
    need!(emulate(&["--", "true"]));
    let (_folder, file) = scenario(FLOWS);
    for millis in (0..600).step_by(60) {
        let child = Child::spawn(&mut command(&[&file]));
        let pid = child.id();
        std::thread::sleep(Duration::from_millis(millis));
        child.signal(Signal::INT);
        let ended = child.end();
        assert!(matches!(ended.status, None | Some(130)), "after {millis} ms: {ended}");
        assert_eq!(scratches(pid), 0, "after {millis} ms: {ended}");
    }
}

#[test]
fn a_killed_server_fails_only_its_own_copy() {
    let kill = "for p in /proc/[0-9]*; do grep -aq '[a]llow' $p/cmdline && kill -9 ${p#/proc/}; \
        done; sleep 0.3; exit 3";
    let text = format!(
        "[topology]\nkind = \"pair\"\nlink = {{ rate = \"8M\" }}\n[[flow]]\nname = \"copy\"\n\
         from = \"a\"\nto = \"b\"\nprotocol = \"rbudp\"\nsize = \"90MB\"\n[[flow]]\n\
         name = \"tcp\"\nfrom = \"a\"\nto = \"b\"\ntcp = \"cubic\"\nsize = \"10KB\"\n[[flow]]\n\
         from = \"b\"\nstart = \"500ms\"\ncommand = \"{kill}\"\n"
    );
    let (_folder, file) = scenario(&text);
    let ended = need!(emulate(&[&file, "--json"]));
    let flows = ended.is(3, &[]).events("flow");
    assert_eq!(flows[0]["finished"], false, "{ended}");
    assert_eq!(flows[1]["finished"], true, "{ended}");
}
