//! The fallback to parallel TCP where UDP does not pass, or stops passing.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_proto::time::Span;
use longhaul_proto::units::{LossRatio, Rate};
use longhaul_testbed::link::{LinkSpec, Loss};
use serde_json::Value;

use super::path::Wan;
use super::{Relayed, WAYS, Way};
use crate::rig::{IMPATIENT, Pair, assert_same, bytes, need, side_by_side, write};

#[test]
fn a_copy_falls_back_to_tcp_with_a_warning_if_its_data_port_is_blocked() {
    for way in WAYS {
        let rig = Relayed::new(6_000_000);
        rig.relay.rules.no_data.store(true, Ordering::Relaxed);
        let (from, to, _) = rig.way(way);
        let late = Lateness::measure();
        let ended = rig.pair.cp(&[&from, &to, &"--rate=200M"]);
        let summary = ended.summary();
        assert_ended_soon(&summary, late);
        assert_eq!(summary["protocol"], "tcp", "{way:?} {ended}");
        let fallback = ended.events("fallback");
        assert_eq!(fallback.len(), 1, "{way:?} {ended}");
        let advice = fallback[0]["advice"].as_str().unwrap_or_default();
        let port = (rig.relay.address().port() + 1).to_string();
        assert!(advice.contains(&port), "{way:?} {advice}");
        rig.assert_copied(way);
    }
}

#[test]
fn a_copy_whose_data_port_is_blocked_midway_continues_over_tcp() {
    side_by_side(WAYS, |way| {
        let rig = Relayed::new(40_000_000);
        let (from, to, _) = rig.way(way);
        let mut copy = rig.pair.start(&[&from, &to, &"--rate=100M"]);
        copy.progressed(10_000_000);
        rig.relay.rules.no_data.store(true, Ordering::Relaxed);
        copy.event(|event| event["event"] == "fallback");
        let ended = copy.end();
        let summary = ended.summary();
        // Incomplete chunks of the 10 MB are sent again.
        assert!(ended.taken_up() >= 8_000_000, "{way:?} {ended}");
        assert_eq!(summary["protocol"], "tcp", "{way:?} {ended}");
        rig.assert_copied(way);
    });
}

#[test]
fn control_and_data_use_tcp_if_only_tcp_passes() {
    for way in WAYS {
        let rig = Relayed::new(6_000_000);
        rig.relay.rules.no_data.store(true, Ordering::Relaxed);
        rig.relay.rules.no_control.store(true, Ordering::Relaxed);
        let (from, to, _) = rig.way(way);
        let late = Lateness::measure();
        let ended = rig.pair.cp(&[&from, &to]);
        let summary = ended.summary();
        assert_ended_soon(&summary, late);
        assert_eq!(summary["protocol"], "tcp", "{way:?} {ended}");
        let connected = ended.events("connected");
        assert!(connected.iter().all(|event| event["carrier"] == "tls"), "{way:?} {ended}");
        assert_eq!(ended.events("fallback").len(), 1, "{way:?} {ended}");
        rig.assert_copied(way);
    }
}

#[test]
fn a_nat_that_changes_the_ports_during_a_copy_does_not_disturb_it() {
    side_by_side(WAYS, |way| {
        let rig = Relayed::new(10_000_000);
        let (from, to, _) = rig.way(way);
        let mut copy = rig.pair.start(&[&from, &to, &"--rate=30M"]);
        copy.progressed(1_000_000);
        rig.relay.rules.rebound.fetch_add(1, Ordering::Relaxed);
        let ended = copy.end();
        assert_eq!(ended.summary()["protocol"], "rbudp", "{way:?} {ended}");
        assert!(ended.events("reconnecting").is_empty(), "{way:?} {ended}");
        rig.assert_copied(way);
    });
}

#[test]
fn a_copy_continues_when_the_client_gets_another_address() {
    side_by_side(WAYS, |way| {
        let rig = Relayed::new(10_000_000);
        let (from, to, _) = rig.way(way);
        let mut copy = rig.pair.start(&[&from, &to, &"--rate=30M"]);
        copy.progressed(1_000_000);
        rig.relay.rules.address.store(2, Ordering::Relaxed);
        rig.relay.rules.rebound.fetch_add(1, Ordering::Relaxed);
        let ended = copy.end();
        assert_eq!(ended.summary()["protocol"], "rbudp", "{way:?} {ended}");
        assert!(ended.events("reconnecting").is_empty(), "{way:?} {ended}");
        assert!(ended.events("fallback").is_empty(), "{way:?} {ended}");
        rig.assert_copied(way);
    });
}

#[test]
fn a_tree_with_a_long_manifest_is_copied_by_tcp() {
    let rig = Relayed::new(1);
    for n in 0..600 {
        write(&rig.pair.here.join(format!("tree/a-file-with-a-rather-long-name-{n:040}")), &[7; 9]);
    }
    rig.pair.cp(&[&"-r", &"tree", &rig.at(""), &"--protocol=tcp"]).is(0, &[]);
    assert_same(&rig.pair.here.join("tree"), &rig.pair.there.join("tree"));
}

/// The minimum time of a copy at 16 Mbit/s, minus 5 % for a burst at the start.
fn least_seconds(bytes: usize) -> f64 {
    bytes as f64 * 8.0 / 16e6 * 0.95
}

#[test]
fn tcp_obeys_rate_and_bwlimit_and_after_a_fallback_it_still_obeys_bwlimit() {
    side_by_side(WAYS, |way| {
        let rig = Relayed::new(5_000_000);
        let (from, to, copy) = rig.way(way);
        let least = least_seconds(rig.content.len());
        let caps: [&[&str]; 3] =
            [&["--rate=16M"], &["--bwlimit=16M"], &["--rate=500M", "--bwlimit=16M"]];
        for (number, cap) in caps.into_iter().enumerate() {
            // In the third case the copy starts with UDP, and its data port is blocked.
            let blocked = number == 2;
            rig.relay.rules.no_data.store(blocked, Ordering::Relaxed);
            let protocol = if blocked { "--protocol=rbudp" } else { "--protocol=tcp" };
            let ended = rig.pair.copy(&[&[protocol], cap].concat(), &from, &to).end();
            let summary = ended.summary();
            assert_eq!(summary["protocol"], "tcp", "{way:?} {ended}");
            assert!(summary["seconds"].as_f64() >= Some(least), "{way:?} {cap:?} {ended}");
            rig.assert_copied(way);
            std::fs::remove_file(&copy).expect("it was copied");
        }
    });
}

#[test]
fn a_limit_below_the_rate_applies_to_datagrams() {
    side_by_side(WAYS, |way| {
        let rig = Relayed::new(5_000_000);
        let (from, to, _) = rig.way(way);
        let ended = rig.pair.cp(&[&"--rate=500M", &"--bwlimit=16M", &from, &to]);
        let summary = ended.summary();
        assert_eq!(summary["protocol"], "rbudp", "{way:?} {ended}");
        let seconds = summary["seconds"].as_f64();
        assert!(seconds >= Some(least_seconds(rig.content.len())), "{way:?} {ended}");
        assert_eq!(summary["bound_by"], "rate", "{way:?} {ended}");
        rig.assert_copied(way);
    });
}

/// The relay drops the server's answers until data have passed. A client that waited for an answer
/// would never send data.
#[test]
fn the_first_data_leave_with_the_request_without_waiting_for_an_answer() {
    let rig = Relayed::new(2_000_000);
    let (from, to, _) = rig.way(Way::Push);
    let muted = &rig.relay.rules.mute_server;
    for flags in [&["--rate=50M", "--datagram=1200"][..], &["--rate=50M"]] {
        muted.store(true, Ordering::Relaxed);
        let ended = rig.pair.copy(flags, &from, &to).end();
        assert!(!muted.load(Ordering::Relaxed), "no data came: {ended}");
        assert_eq!(ended.summary()["protocol"], "rbudp", "{ended}");
        assert!(ended.events("fallback").is_empty(), "{ended}");
        rig.assert_copied(Way::Push);
        std::fs::remove_file(rig.pair.there.join("copy")).expect("it is ours");
    }
}

/// When the data arrive, the server knows the client's address, but no request.
#[test]
fn data_that_arrive_during_the_handshake_are_kept() {
    const BEFORE: usize = 100;
    let rig = Relayed::new(2_000_000);
    let (from, to, _) = rig.way(Way::Push);
    rig.relay.rules.data_first.store(BEFORE, Ordering::Relaxed);
    let ended = rig.pair.cp(&[&"--rate=20M", &"--datagram=1200", &from, &to]);
    let summary = ended.summary();
    assert_eq!(summary["protocol"], "rbudp", "{ended}");
    // Loopback loses nothing, so missing datagrams were dropped at the server.
    let count = |name: &str| summary[name].as_u64().expect("it is a count");
    assert!(count("path_lost") < BEFORE as u64 / 2, "{ended}");
    assert!(count("path_lost") <= count("early_lost") + count("socket_lost"), "{ended}");
    rig.assert_copied(Way::Push);
}

/// Adds up by how much a thread that sleeps 10 ms at a time wakes up late. The first 10 ms of each
/// delay do not count.
struct Lateness {
    over: Arc<AtomicBool>,
    thread: thread::JoinHandle<Duration>,
}

impl Lateness {
    fn measure() -> Lateness {
        const NAP: Duration = Duration::from_millis(10);
        let over = Arc::new(AtomicBool::new(false));
        let is_over = over.clone();
        let thread = thread::spawn(move || {
            let mut late = Duration::ZERO;
            while !is_over.load(Ordering::Relaxed) {
                let began = Instant::now();
                thread::sleep(NAP);
                late += began.elapsed().saturating_sub(NAP * 2);
            }
            late
        });
        Lateness { over, thread }
    }

    fn end(self) -> Duration {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().expect("it only sleeps")
    }
}

/// A limit in seconds. On an idle machine the switch to TCP takes 3 s. A copy that waits for the
/// timeout of the session takes 30 s.
const SOON: f64 = 12.0;

/// Checks that the copy took less than [`SOON`], without this machine's lateness.
#[track_caller]
fn assert_ended_soon(summary: &Value, late: Lateness) {
    let took = summary["seconds"].as_f64().expect("it is a number") - late.end().as_secs_f64();
    assert!(took < SOON, "{took} s: {summary}");
}

/// Blocks UDP on the data port during a copy; with `all_of_it`, also on the control port. Returns
/// the seconds until the copy continues over TCP, minus this machine's lateness.
fn seconds_to_tcp(way: Way, all_of_it: bool) -> f64 {
    let rig = Relayed::new(20_000_000);
    let (from, to, _) = rig.way(way);
    let mut copy = rig.pair.start(&[&from, &to, &"--rate=60M"]);
    copy.progressed(5_000_000);
    let (late, cut) = (Lateness::measure(), Instant::now());
    rig.relay.rules.no_data.store(true, Ordering::Relaxed);
    rig.relay.rules.no_control.store(all_of_it, Ordering::Relaxed);
    let reported = copy.event(|event| event["event"] == "fallback");
    assert!(
        reported["carrier"].as_str().is_some_and(|carrier| carrier.contains("TCP")),
        "{reported}"
    );
    copy.event(|event| event["event"] == "resumed");
    let (took, late) = (cut.elapsed(), late.end());
    let ended = copy.end();
    assert_eq!(ended.summary()["protocol"], "tcp", "{way:?} {ended}");
    assert_eq!(ended.events("fallback").len(), 1, "{way:?} {ended}");
    assert!(ended.events("reconnecting").is_empty(), "{way:?} {ended}");
    rig.assert_copied(way);
    took.saturating_sub(late).as_secs_f64()
}

#[test]
fn tcp_takes_over_soon_when_udp_stops() {
    for way in WAYS {
        for all_of_it in [false, true] {
            let seconds = seconds_to_tcp(way, all_of_it);
            assert!(seconds < SOON, "{way:?} {all_of_it}: {seconds} s");
        }
    }
}

#[test]
fn tcp_can_be_requested() {
    let rig = Relayed::new(6_000_000);
    let (from, to, _) = rig.way(Way::Pull);
    let ended = rig.pair.cp(&[&from, &to, &"--protocol=tcp", &"--streams=3"]);
    assert_eq!(ended.summary()["protocol"], "tcp", "{ended}");
    assert!(ended.events("fallback").is_empty(), "{ended}");
    rig.assert_copied(Way::Pull);
}

#[test]
fn a_lost_stream_is_detected_although_the_kernel_has_accepted_its_last_chunk() {
    side_by_side(WAYS, |way| {
        // The object has one chunk for each stream.
        let rig = Relayed::new(2 << 20);
        rig.relay.rules.swallow.store(true, Ordering::Relaxed);
        let (from, to, _) = rig.way(way);
        let ended = rig.pair.cp(&[&from, &to, &"--protocol=tcp", &"--streams=2", &IMPATIENT]);
        assert_eq!(ended.summary()["verified"], true, "{way:?} {ended}");
        assert_eq!(ended.events("reconnecting").len(), 1, "{way:?} {ended}");
        rig.assert_copied(way);
    });
}

/// Sets Reno for TCP on `host`. Reno treats every loss as congestion (RFC 5681).
fn slow_down_at_each_loss(wan: &Wan, host: &str) {
    let mut set = Command::new("sh");
    set.args(["-c", "echo reno > /proc/sys/net/ipv4/tcp_congestion_control"]);
    wan.run(host, &set).end().is(0, &[]);
}

#[test]
fn the_best_number_of_connections_on_a_lossy_path_is_found_during_the_copy() {
    // By the square-root law each connection gets 1.22 · 1448 · 8 bits / (30 ms · √0.01), about 5
    // Mbit/s.
    let link = LinkSpec::path(Rate::from_mbps(100), Span::from_millis(30));
    let loss = Loss::independent(LossRatio::new(0.01).expect("a share"));
    let link = link.with_loss(loss);
    let copy = |way| {
        // The object is large enough for a long search.
        let wan = need!(Wan::new(link.clone(), 1500, 150_000_000));
        for host in ["a", "b"] {
            slow_down_at_each_loss(&wan, host);
        }
        let mut copy = wan.start(way, &["--protocol=tcp", "--streams=auto"]);
        let found = copy.event(|event| event["event"] == "streams");
        assert_eq!(found["found"], true, "{way:?} {found}");
        assert!(found["count"].as_u64() >= Some(4), "{way:?} {found}");
        drop(copy.kill());
    };
    side_by_side(WAYS, copy);
}

#[test]
fn a_copy_too_short_to_find_the_best_number_of_connections_reports_one_number() {
    let pair = Pair::new();
    write(&pair.here.join("object"), &bytes(5_000_000, 3));
    let ended = pair.cp(&[&"--protocol=tcp", &"--streams=auto", &"object", &pair.at("copy")]);
    assert_eq!(ended.summary()["verified"], true, "{ended}");
    let reported = ended.events("streams");
    assert_eq!(reported.len(), 1, "{ended}");
    assert!(reported[0]["count"].as_u64() >= Some(1), "{ended}");
}
