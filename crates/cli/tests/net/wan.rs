//! Copies over emulated paths: loss, reordering, outages, freezes, packet sizes.

use std::process::Command;
use std::thread;
use std::time::Duration;

use longhaul_proto::time::Span;
use longhaul_proto::units::{LossRatio, Rate};
use longhaul_testbed::link::{LinkSpec, Loss, Reorder};
use rustix::process::Signal;

use super::path::Wan;
use super::{WAYS, Way};
use crate::rig::{Child, Skipped, need};

pub(super) const MTU: u16 = 1500;

pub(super) fn link(megabits: u64, millis: u64, loss: f64) -> LinkSpec {
    let link = LinkSpec::path(Rate::from_mbps(megabits), Span::from_millis(millis));
    link.with_loss(Loss::independent(LossRatio::new(loss).expect("a share")))
}

fn rough(loss: f64) -> LinkSpec {
    let reorder = Reorder { share: 0.02, by: Span::from_millis(3) };
    LinkSpec { reorder, duplicate: 0.01, corrupt: 0.002, ..link(200, 20, loss) }
}

#[test]
fn an_object_arrives_whole_despite_loss_reordering_duplicates_and_damage() {
    let wan = need!(Wan::new(rough(0.0), MTU, 5_000_000));
    for loss in [0.0, 0.01, 0.05, 0.12] {
        wan.set(&rough(loss));
        // The push has several segments, the pull has one.
        for (way, segment) in [(Way::Push, "--segment=1Mi"), (Way::Pull, "--segment=0")] {
            let ended = wan.start(way, &["--rate=100M", segment]).end();
            let summary = ended.summary();
            assert_eq!(summary["protocol"], "rbudp", "{loss} {way:?} {ended}");
            assert!(ended.events("reconnecting").is_empty(), "{loss} {way:?} {ended}");
            let count = |name: &str| summary[name].as_u64().expect("it is a count");
            assert!(count("sent") >= count("blocks"), "{ended}");
            assert_eq!(count("sent"), count("blocks") + count("retransmitted"), "{ended}");
            wan.assert_copied(way);
        }
    }
}

#[test]
fn reported_path_loss_matches_the_networks_drops() {
    const LOSS: f64 = 0.05;
    let wan = need!(Wan::new(link(100, 20, LOSS), MTU, 8_000_000));
    for (way, from, to) in [(Way::Push, "a", "b"), (Way::Pull, "b", "a")] {
        let tally = || {
            let statistics = wan.emulation.statistics().expect("it runs");
            let tally = statistics.link(from, to).expect("the link exists");
            let dropped = tally.dropped() + statistics.own_drops;
            [tally.offered, dropped].map(|count| count as f64)
        };
        let before = tally();
        let ended = wan.start(way, &["--protocol=rbudp", "--rate=80M"]).end();
        let after = tally();
        let summary = ended.summary();
        let count = |name: &str| summary[name].as_f64().expect("it is a count");
        let [offered, dropped] = [after[0] - before[0], after[1] - before[1]];
        let others = ["socket_lost", "memory_lost", "early_lost"].map(count);
        let path_lost = count("path_lost") - others.iter().sum::<f64>();
        // `dropped` includes about `control` control packets. `beside` is the upper limit of their
        // number: `control` plus five standard deviations plus ten packets.
        let control = LOSS * (offered - count("sent"));
        let beside = control + 5.0 * control.sqrt() + 10.0;
        assert!(path_lost <= dropped, "{way:?}: {path_lost} of {dropped}: {ended}");
        assert!(path_lost + beside >= dropped, "{way:?}: {path_lost} of {dropped}: {ended}");
        // The tolerance is small compared with the losses.
        assert!(beside < path_lost / 3.0, "{way:?}: {offered} packets: {ended}");
        wan.assert_copied(way);
    }
}

#[test]
fn coded_symbols_replace_lost_blocks() {
    let wan = need!(Wan::new(link(100, 40, 0.05), MTU, 5_000_000));
    for way in WAYS {
        let ended = wan.start(way, &["--rate=90M"]).end();
        let summary = ended.summary();
        let count = |name: &str| summary[name].as_u64().expect("it is a count");
        // A busy machine loses more than the link.
        let most = (count("blocks") / 10).max(2 * count("blocks_lost"));
        assert!(count("coded") > 0 && count("coded") <= most, "{way:?}: {ended}");
        assert!(count("recovered") > 0, "{way:?}: {ended}");
        assert_eq!(count("received"), count("blocks") + count("duplicates"), "{way:?}: {ended}");
        wan.assert_copied(way);
    }
    let plain = wan.start(Way::Push, &["--rate=90M", "--tail-copies=1"]).end().summary();
    assert_eq!((plain["coded"].as_u64(), plain["recovered"].as_u64()), (Some(0), Some(0)));
}

#[test]
fn each_sample_has_both_rates_and_the_loss_and_the_phase() {
    let wan = need!(Wan::new(link(20, 20, 0.05), MTU, 5_000_000));
    for way in WAYS {
        let ended = wan.start(way, &["--series", "--no-path-memory"]).end();
        let samples = ended.events("sample");
        let all = |name: &str| -> Vec<f64> {
            samples.iter().map(|sample| sample[name].as_f64().expect("a number")).collect()
        };
        assert!(all("seconds").is_sorted(), "{way:?}: {ended}");
        let most = |name| all(name).into_iter().fold(0.0, f64::max);
        assert!(most("rate_bps") > 5e6, "{way:?}: {ended}");
        assert!(most("delivered_bps") > 2e6, "{way:?}: {ended}");
        let loss = most("loss");
        assert!(loss > 0.0 && loss <= 1.0, "{way:?}: {ended}");
        assert!(samples.iter().any(|sample| sample["phase"] == "alone"), "{way:?}: {ended}");
        wan.assert_copied(way);
    }
    let without = wan.start(Way::Push, &["--rate=15M"]).end();
    assert!(without.events("sample").is_empty(), "{without}");
    let told = wan.start(Way::Push, &["--rate=15M", "--series"]).end();
    assert!(told.events("sample").iter().all(|sample| sample["phase"].is_null()), "{told}");
}

#[test]
fn a_copy_wastes_little_more_than_the_loss_and_a_killed_one_resumes() {
    const LOSS: f64 = 0.01;
    let wan = need!(Wan::new(link(100, 40, LOSS), MTU, 24_000_000));
    let args = ["--protocol=rbudp", "--rate=94M", "--segment=2Mi"];
    let ended = wan.start(Way::Push, &args).end();
    let summary = ended.summary();
    let number = |name: &str| summary[name].as_f64().expect("it is a number");
    // A machine that does not run the emulator in time loses more than the link.
    let lost = number("path_lost") / number("blocks");
    assert!(number("waste") <= lost + 0.01, "{ended}");
    wan.assert_copied(Way::Push);

    let mut copy = wan.start(Way::Push, &args);
    copy.progressed(5_000_000);
    copy.kill();
    assert!(!wan.copy(Way::Push).exists());
    let ended = wan.start(Way::Push, &args).end();
    assert!(ended.summary()["resumed_bytes"].as_u64() >= Some(1_000_000), "{ended}");
    wan.assert_copied(Way::Push);
}

#[test]
fn skipped_files_are_reported_even_if_the_outcome_of_the_copy_overtakes_the_plan() {
    // The plan lists the files to skip. A lost packet delays the plan, and a datagram may bring
    // the outcome of the copy first.
    let wan = need!(Wan::new(link(100, 40, 0.2), MTU, 1000));
    let args = ["--protocol=rbudp", "--rate=80M"];
    wan.start(Way::Push, &args).end().is(0, &[]);
    for _ in 0..12 {
        let ended = wan.start(Way::Push, &["--protocol=rbudp", "--rate=80M", "-vv"]).end();
        assert_eq!(ended.events("skipped").len(), 1, "{ended}");
        assert_eq!(ended.summary()["skipped_files"], 1, "{ended}");
    }
}

#[test]
fn a_copy_over_tcp_streams_reports_that_a_narrow_path_limits_it() {
    let wan = need!(Wan::new(link(40, 20, 0.0), MTU, 6_000_000));
    for way in WAYS {
        let ended = wan.start(way, &["--protocol=tcp", "--streams=4"]).end();
        let summary = ended.summary();
        assert_eq!(summary["bound_by"], "path", "{way:?} {ended}");
        assert!(summary["rtt_seconds"].as_f64() > Some(0.01), "{way:?} {ended}");
        wan.assert_copied(way);
    }
}

#[test]
fn a_copy_survives_an_outage_of_5_seconds() {
    gone_for(Duration::from_secs(5), Way::Pull);
}

#[test]
fn an_outage_or_freeze_of_20_seconds_loses_no_session() {
    const LONG: Duration = Duration::from_secs(20);
    thread::scope(|scope| {
        scope.spawn(|| gone_for(LONG, Way::Push));
        for way in WAYS {
            scope.spawn(move || frozen_for(LONG, way, End::Server));
            scope.spawn(move || frozen_for(LONG, way, End::Client));
        }
    });
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum End {
    Client,
    Server,
}

fn gone_for(time: Duration, way: Way) {
    let path = link(100, 20, 0.001);
    let wan = need!(Wan::new(path.clone(), MTU, 20_000_000));
    let mut copy = wan.start(way, &["--rate=30M"]);
    copy.progressed(2_000_000);
    wan.set(&LinkSpec { up: false, ..path.clone() });
    thread::sleep(time);
    wan.set(&path);
    assert_undisturbed(&wan, copy, way);
}

fn frozen_for(time: Duration, way: Way, end: End) {
    let mut wan = need!(Wan::new(link(100, 20, 0.0), MTU, 20_000_000));
    let mut copy = wan.start(way, &["--rate=30M"]);
    copy.progressed(2_000_000);
    let server = wan.server.as_mut().expect("it was started").child();
    let frozen = if end == End::Server { server } else { &mut copy };
    frozen.signal(Signal::STOP);
    thread::sleep(time);
    frozen.signal(Signal::CONT);
    assert_undisturbed(&wan, copy, way);
}

fn assert_undisturbed(wan: &Wan, copy: Child, way: Way) {
    let ended = copy.end();
    assert_eq!(ended.summary()["protocol"], "rbudp", "{way:?} {ended}");
    assert!(ended.events("reconnecting").is_empty(), "{way:?} {ended}");
    wan.assert_copied(way);
}

#[test]
fn packet_sizes_of_576_1280_and_9000_bytes_are_found_and_used() {
    // The largest UDP payload is the MTU minus 28 bytes of IP and UDP headers.
    for (mtu, most) in [(576, 548), (1280, 1252), (9000, 8972)] {
        let wan = need!(Wan::new(link(200, 10, 0.0), mtu, 3_000_000));
        // A client probes the packet size only if it knows the server's id. The first copy does
        // not know the id yet, later copies do.
        let ended = wan.start(Way::Push, &["--rate=80M"]).end();
        assert_eq!(ended.summary()["protocol"], "rbudp", "{mtu} {ended}");
        wan.assert_copied(Way::Push);
        for way in WAYS {
            let ended = wan.start(way, &["--rate=80M"]).end();
            let summary = ended.summary();
            let payload = summary["payload_bytes"].as_u64().expect("it is a size");
            assert_eq!(summary["protocol"], "rbudp", "{mtu} {way:?} {ended}");
            assert!(payload <= most && payload > most * 3 / 4, "{mtu} {way:?} {ended}");
            wan.assert_copied(way);
        }
    }
}

#[test]
fn a_datagram_size_that_does_not_pass_is_reduced() {
    let wan = need!(Wan::new(link(200, 10, 0.0), MTU, 3_000_000));
    for way in WAYS {
        let ended = wan.start(way, &["--rate=80M", "--datagram=4000"]).end();
        let payload = ended.summary()["payload_bytes"].as_u64().expect("it is a size");
        assert!(payload <= 1472, "{way:?} {ended}");
        wan.assert_copied(way);
    }
}

#[test]
fn a_block_larger_than_any_packet_goes_in_fragments() {
    for mtu in [MTU, 9000] {
        let wan = need!(Wan::new(link(200, 10, 0.001), mtu, 3_000_000));
        for way in WAYS {
            let args = ["--protocol=tsunami", "--rate=80M", "--datagram=32800"];
            let ended = wan.start(way, &args).end();
            let summary = ended.summary();
            // The ORNL study has blocks of 32,768 bytes. `--datagram` also counts the 32 bytes of
            // longhaul's header and tag.
            assert_eq!(summary["payload_bytes"], 32_768, "{mtu} {way:?} {ended}");
            assert_eq!(summary["protocol"], "tsunami", "{mtu} {way:?} {ended}");
            assert!(ended.events("fallback").is_empty(), "{mtu} {way:?} {ended}");
            wan.assert_copied(way);
        }
    }
}

#[test]
fn smaller_packets_pass_a_path_that_drops_large_ones() {
    for (way, hole) in [(Way::Push, 1400), (Way::Pull, 1280)] {
        let narrow = LinkSpec { swallow_above: Some(hole), ..link(200, 20, 0.0) };
        let wan = need!(Wan::new(narrow, 9000, 3_000_000));
        // The first copy does not know the server's id yet, so it does not probe the packet size.
        for use_of in ["first", "second"] {
            let ended = wan.start(way, &["--rate=80M"]).end();
            let summary = ended.summary();
            let of = format!("{hole} {way:?} {use_of}");
            assert_eq!(summary["protocol"], "rbudp", "{of} {ended}");
            assert!(summary["payload_bytes"].as_u64() <= Some(u64::from(hole)), "{of} {ended}");
            assert!(ended.events("fallback").is_empty(), "{of} {ended}");
            // The short last block of a chunk passes, so the path is not judged blocked.
            assert!(ended.events("reconnecting").is_empty(), "{of} {ended}");
            wan.assert_copied(way);
        }
    }
}

#[test]
fn smaller_packets_pass_an_ipv6_path_that_drops_large_ones() {
    let narrow = LinkSpec { swallow_above: Some(1300), ..link(200, 20, 0.005) };
    let wan = need!(Wan::over_v6(narrow, 9000, 3_000_000));
    for way in WAYS {
        let ended = wan.start(way, &["--rate=80M"]).end();
        let summary = ended.summary();
        assert_eq!(summary["protocol"], "rbudp", "{way:?} {ended}");
        assert!(summary["payload_bytes"].as_u64() <= Some(1300 - 40 - 8), "{way:?} {ended}");
        let address = ended.events("connected")[0]["address"].to_string();
        assert!(address.contains("[fd77::2]"), "{address}");
        wan.assert_copied(way);
    }
}

#[test]
fn a_name_with_two_addresses_reaches_a_server_that_has_only_one_of_them() {
    type Begin = fn(LinkSpec, u16, usize) -> Result<Wan, Skipped>;
    for (begin, family) in [(Wan::new as Begin, "10.77.0.2"), (Wan::over_v6, "[fd77::2]")] {
        let wan = need!(begin(link(200, 5, 0.0), MTU, 1_000_000));
        let both = wan.run("a", Command::new("getent").args(["ahosts", "b"])).end();
        for address in ["10.77.0.2", "fd77::2"] {
            assert!(both.stdout.iter().any(|line| line.starts_with(address)), "{both}");
        }
        for way in WAYS {
            let ended = wan.start_at("b:7717", way, &["--rate=80M"]).end();
            let summary = ended.summary();
            assert_eq!(summary["protocol"], "rbudp", "{family} {way:?} {ended}");
            let address = ended.events("connected")[0]["address"].to_string();
            assert!(address.contains(family), "{way:?} {ended}");
            wan.assert_copied(way);
        }
    }
}

#[test]
fn a_copy_over_ipv6_uses_tcp_if_datagrams_are_blocked() {
    let wan = need!(Wan::over_v6(link(200, 20, 0.0), MTU, 3_000_000));
    for way in WAYS {
        // No server listens on this data port.
        let ended = wan.start(way, &["--rate=80M", "--data-port=9"]).end();
        let summary = ended.summary();
        assert_eq!(summary["protocol"], "tcp", "{way:?} {ended}");
        // The given rate also limits TCP.
        assert_eq!(summary["rate_bps"], 80_000_000, "{way:?} {ended}");
        assert_eq!(ended.events("fallback").len(), 1, "{way:?} {ended}");
        wan.assert_copied(way);
    }
}
