//! `longhaul probe`, and the findings of `doctor`.

use std::ffi::OsString;
use std::sync::atomic::Ordering;

use longhaul_proto::time::Span;
use longhaul_proto::units::{LossRatio, Rate};
use longhaul_testbed::link::{LinkSpec, Loss};
use serde_json::Value;

use super::Relayed;
use super::path::Wan;
use crate::rig::{Child, Ended, Host, Pair, need, words};

fn probe(client: &Host, server: &str, id: &str, args: &[&str]) -> Ended {
    let id = format!("--server-id={id}");
    let mut all: Vec<OsString> = words(&[&"probe", &"--json", &id]);
    all.extend(args.iter().map(OsString::from));
    all.push(format!("lh://{server}").into());
    client.run(all)
}

fn number(value: &Value, name: &str) -> f64 {
    value[name].as_f64().unwrap_or_else(|| panic!("{name} in {value}"))
}

#[test]
fn a_probe_measures_each_of_udp_app_and_tcp_in_both_directions() {
    let pair = Pair::new();
    let args = ["--udp", "--app", "--tcp", "--rate=10M,40M", "--time=200ms"];
    let ended = probe(&pair.client, &pair.server.address, &pair.server.id, &args);
    let summary = ended.summary();
    assert_eq!((number(&summary, "asked"), number(&summary, "answered")), (20.0, 20.0), "{ended}");
    assert!(number(&summary, "rtt_seconds") > 0.0, "{ended}");
    assert!(number(&summary, "rtt_min_seconds") <= number(&summary, "rtt_max_seconds"));
    assert!(number(&summary, "mtu_bytes") >= 1500.0, "{ended}");
    let measured = ended.events("measured");
    for by in ["udp", "app"] {
        for way in ["up", "down"] {
            let runs: Vec<_> =
                measured.iter().filter(|run| run["by"] == by && run["way"] == way).collect();
            assert_eq!(runs.len(), 2, "{by} {way} {ended}");
            for (run, asked) in runs.into_iter().zip([10e6, 40e6]) {
                assert_eq!(number(run, "asked_bps"), asked);
                assert!(number(run, "received") > 0.0, "{ended}");
                assert!(number(run, "received") <= number(run, "sent"), "{ended}");
                assert!(number(run, "received_bps") > 0.0, "{ended}");
            }
        }
    }
    for name in ["udp_up", "udp_down", "app_up", "app_down", "tcp_up", "tcp_down"] {
        assert!(number(&summary, &format!("{name}_bps")) > 0.0, "{name} {ended}");
    }
    // A probe leaves nothing behind.
    assert_eq!(std::fs::read_dir(&pair.there).unwrap().count(), 0);
    probe(&pair.client, &pair.server.address, &pair.server.id, &["--tcp", "--time=50ms"]).summary();
}

#[test]
fn without_json_a_table_is_printed_with_units() {
    let pair = Pair::new();
    let id = format!("--server-id={}", pair.server.id);
    let server = format!("lh://{}", pair.server.address);
    let args: [&str; 5] = ["probe", &id, "--rate=5M", "--time=100ms", &server];
    let ended = pair.client.run(args);
    let said = ended.is(0, &[]).stdout.join("\n");
    for word in
        ["RTT", "20 of 20 came back", "by quic", "udp  up", "udp  down", "tcp  down", "bit/s"]
    {
        assert!(said.contains(word), "{word}: {ended}");
    }
}

#[test]
fn a_client_without_rights_measures_nothing() {
    let pair = Pair::new();
    let stranger = Host::new(&pair.scratch.path().join("stranger"));
    let ended = probe(&stranger, &pair.server.address, &pair.server.id, &["--rate=5M"]);
    ended.is(3, &["not allowed here", &stranger.id]);
    assert!(ended.events("measured").is_empty(), "{ended}");
    // A listed client needs no particular right.
    let reader = Pair::with_rights(":ro", &[]);
    let args = ["--rate=5M", "--time=50ms"];
    probe(&reader.client, &reader.server.address, &reader.server.id, &args).summary();
}

#[test]
fn a_probe_without_udp_names_the_ports_to_open_and_measures_tcp() {
    let rig = Relayed::new(1);
    rig.relay.rules.no_data.store(true, Ordering::Relaxed);
    let (relay, id) = (rig.relay.address(), &rig.pair.server.id);
    let port = format!("open UDP {}", relay.port() + 1);
    for (args, tcp) in [(&["--time=100ms"][..], true), (&["--udp", "--time=100ms"], false)] {
        let ended = probe(&rig.pair.client, &relay.to_string(), id, args);
        let summary = ended.is(3, &[]).last();
        assert_eq!((&summary["event"], &summary["status"]), (&"summary".into(), &3.into()));
        let missing = ended.events("missing");
        assert!(missing[0]["advice"].as_str().is_some_and(|what| what.contains(&port)), "{ended}");
        assert!(summary.get("udp_up_bps").is_none(), "{ended}");
        assert_eq!(summary["tcp_up_bps"].as_u64() > Some(0), tcp, "{ended}");
    }
    let id = format!("--server-id={id}");
    let server = format!("lh://{relay}");
    rig.pair.client.run(["probe", "--udp", &id, &server]).is(3, &[&port, "does not answer"]);
}

#[test]
fn a_probe_without_tcp_shows_the_udp_results_and_the_reason() {
    let rig = Relayed::new(1);
    rig.relay.rules.no_tcp.store(true, Ordering::Relaxed);
    let (relay, id) = (rig.relay.address(), &rig.pair.server.id);
    let args = ["--rate=5M", "--time=100ms"];
    let ended = probe(&rig.pair.client, &relay.to_string(), id, &args);
    let summary = ended.is(3, &[]).last();
    assert_eq!(summary["event"], "summary", "{ended}");
    assert!(number(&summary, "udp_up_bps") > 0.0 && number(&summary, "udp_down_bps") > 0.0);
    assert!(summary.get("tcp_up_bps").is_none(), "{ended}");
    let missing = ended.events("missing");
    let tcp = format!("TCP {} of 127.0.0.1", relay.port());
    assert!(missing[0]["what"].as_str().is_some_and(|what| what.contains(&tcp)), "{ended}");
}

#[test]
fn a_probe_finds_the_rate_the_loss_and_the_round_trip_of_a_path() {
    const MEGABITS: u64 = 20;
    let link = LinkSpec::path(Rate::from_mbps(MEGABITS), Span::from_millis(30));
    let loss = Loss::independent(LossRatio::new(0.1).expect("a share"));
    let wan = need!(Wan::new(link.with_loss(loss), 1500, 1));
    let words = ["probe", "--json", "--accept-new", "--udp", "--rate=5M,60M", "--time=500ms"];
    let command = wan.client.command(words.into_iter().chain(["lh://10.77.0.2"]));
    let ended: Ended = wan.run("a", &command).end();
    let summary = ended.summary();
    assert!((0.03..0.5).contains(&number(&summary, "rtt_seconds")), "{ended}");
    assert_eq!(number(&summary, "mtu_bytes"), 1500.0, "{ended}");
    for way in ["up", "down"] {
        let runs = ended.events("measured");
        let runs: Vec<_> = runs.iter().filter(|run| run["way"] == way).collect();
        // The first run sends about 200 datagrams. The tolerance is more than four standard
        // deviations.
        assert!((0.01..0.19).contains(&number(runs[0], "loss")), "{way} {ended}");
        // The second run sends faster than the path's rate. A loaded machine may send less than
        // requested, so the expected loss depends on the rate sent. `most` is the path's rate, with
        // a tolerance of 20 %.
        let most = MEGABITS as f64 * 1e6 * 1.2;
        let sent = number(runs[1], "sent_bps");
        assert!(number(runs[1], "loss") > 0.9 - most / sent, "{way} {ended}");
        assert!(number(runs[1], "received_bps") < most, "{way} {ended}");
    }
}

fn doctor(pair: &Pair, args: &[&str]) -> Ended {
    let words = ["doctor", "--json"].iter().chain(args);
    let mut command = pair.client.command(words);
    Child::spawn(command.current_dir(&pair.here)).end()
}

fn finding(ended: &Ended, name: &str) -> Value {
    let found = ended.events("finding").into_iter().find(|finding| finding["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {ended}"))
}

#[test]
fn doctor_tests_the_ports_of_a_server_and_names_those_to_open() {
    let rig = Relayed::new(1);
    let server = format!("lh://{}", rig.relay.address());
    let ended = doctor(&rig.pair, &[&server, "--rate=1M"]);
    for name in ["port-control", "port-data", "port-tcp"] {
        assert_eq!(finding(&ended, name)["grade"], "ok", "{name} {ended}");
    }
    rig.relay.rules.no_data.store(true, Ordering::Relaxed);
    let ended = doctor(&rig.pair, &[&server, "--rate=1M"]);
    let data = finding(ended.is(1, &[]), "port-data");
    assert_eq!(data["grade"], "bad", "{ended}");
    let port = format!("{}/udp", rig.relay.address().port() + 1);
    assert!(data["mend"].as_str().is_some_and(|mend| mend.contains(&port)), "{ended}");
    assert_eq!(finding(&ended, "port-control")["grade"], "ok", "{ended}");
}

#[test]
fn doctor_exits_with_1_if_a_finding_is_bad() {
    let pair = Pair::new();
    let ended = doctor(&pair, &["--rate=100000G"]);
    let last = ended.is(1, &[]).last();
    assert_eq!(finding(&ended, "cpu-seal")["grade"], "bad", "{ended}");
    assert!(last["bad"].as_u64() > Some(0) && last["event"] == "summary", "{ended}");
    for name in ["udp-receive", "udp-gso", "udp-gro", "clock", "disk-write", "disk-read", "cpu-aes"]
    {
        let finding = finding(&ended, name);
        let mends = finding["mend"].as_str().is_some_and(|mend| !mend.is_empty());
        assert_eq!(mends, finding["grade"] != "ok", "{finding}");
        assert!(finding["what"].as_str().is_some_and(|what| !what.is_empty()), "{finding}");
    }
    let missing = pair.here.join("missing").display().to_string();
    let ended = doctor(&pair, &["--rate=1k", "--dir", &missing]);
    assert_eq!(finding(ended.is(1, &[]), "disk-write")["grade"], "bad", "{ended}");
    assert_eq!(std::fs::read_dir(&pair.here).unwrap().count(), 0);
    let told = pair.client.command(["doctor", "--rate=1k"]).current_dir(&pair.here).output();
    let told = String::from_utf8_lossy(&told.expect("it runs").stdout).into_owned();
    // Buffer sizes do not depend on the machine's load.
    assert!(told.contains("ok    tcp-send") && told.contains("in flight"), "{told}");
}

#[test]
fn doctor_prints_its_findings_before_the_error_about_a_server_without_an_address() {
    let pair = Pair::new();
    let ended = doctor(&pair, &["lh://no-such-host.invalid", "--rate=1k"]);
    let last = ended.is(3, &["cannot resolve the name no-such-host.invalid"]).last();
    assert!(last["event"] == "error" && last["status"] == 3, "{ended}");
    assert!(!ended.events("finding").is_empty(), "{ended}");
}
