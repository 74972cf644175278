//! Every protocol of the registry carries real copies: whole, verified, counted, taken up again by
//! another, under its own settings. The cells are the registry's; no protocol has a test of its own
//! but for what only it can be told.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use longhaul_proto::registry::{self, Row};
use longhaul_proto::time::Span;
use longhaul_proto::units::{LossRatio, Rate};
use longhaul_testbed::link::{LinkSpec, Loss};
use rustix::process::Signal;
use serde_json::Value;

use super::path::Wan;
use super::{WAYS, Way};
use crate::rig::{Ended, Pair, assert_same, bytes, remains, write};

const MTU: u16 = 1500;

/// Runs `cell` for every protocol, side by side; each failure names its protocol.
fn each(cell: impl Fn(&'static Row) + Sync) {
    let cell = &cell;
    thread::scope(|scope| {
        let cells = registry::all().iter().map(|row| {
            let named = thread::Builder::new().name(row.name.to_owned());
            (row.name, named.spawn_scoped(scope, move || cell(row)).expect("a thread"))
        });
        let cells: Vec<_> = cells.collect();
        let failed = cells.into_iter().filter_map(|(name, cell)| cell.join().err().map(|_| name));
        let failed: Vec<_> = failed.collect();
        assert!(failed.is_empty(), "{failed:?} failed; each has said why");
    });
}

fn by(row: &Row) -> String {
    format!("--protocol={}", row.name)
}

fn count(summary: &Value, name: &str) -> u64 {
    summary[name].as_u64().unwrap_or_else(|| panic!("{name} is a count: {summary}"))
}

/// The copy was done by `row`'s protocol from beginning to end, and what it counted fits.
#[track_caller]
fn assert_counted(ended: &Ended, row: &Row) -> Value {
    let summary = ended.summary();
    assert_eq!(summary["protocol"], row.name, "{ended}");
    assert_eq!(summary["verified"], true, "{ended}");
    assert!(ended.events("reconnecting").is_empty(), "{ended}");
    assert!(ended.events("fallback").is_empty(), "{ended}");
    let count = |name| count(&summary, name);
    assert_eq!(count("sent"), count("blocks") + count("retransmitted"), "{ended}");
    // What was sent before it was known to be there already need not come.
    let came = count("received") - count("duplicates");
    let early = count("resumed_bytes") > 0;
    assert!(came == count("blocks") || (early && came < count("blocks")), "{ended}");
    // A greedy sender has datagrams on their way when the last block comes.
    assert!(count("sent") >= count("received") + count("path_lost"), "{ended}");
    assert!(count("socket_lost") <= count("path_lost"), "{ended}");
    if !early {
        // No path here doubles what passes.
        assert!(count("duplicates") <= count("retransmitted"), "{ended}");
    }
    summary
}

/// A tree of many small files, some empty, and a few large ones.
fn plant(root: &Path) {
    for number in 0..40_usize {
        let folder = root.join(format!("folder-{}", number % 5));
        write(&folder.join(format!("small-{number}")), &bytes(number * 397, number as u64));
    }
    write(&root.join("large"), &bytes(3_000_000, 1));
    write(&root.join("folder-2/larger"), &bytes(4_194_305, 2));
}

#[test]
fn every_protocol_carries_a_tree_both_ways() {
    each(|row| {
        let pair = Pair::new();
        plant(&pair.here.join("tree"));
        plant(&pair.there.join("source"));
        // One at the rate that it is given, one at the rate that it finds.
        let push = pair.copy(&["-r", &by(row), "--rate=100M"], "tree", pair.at("copy")).end();
        let summary = assert_counted(&push, row);
        assert_eq!(summary["files"], 42, "{push}");
        let pull = pair.copy(&["-r", &by(row)], pair.at("source"), "copy").end();
        let summary = assert_counted(&pull, row);
        assert_eq!(summary["files"], 42, "{pull}");
        assert_same(&pair.here.join("tree"), &pair.there.join("copy"));
        assert_same(&pair.there.join("source"), &pair.here.join("copy"));
    });
}

fn link(loss: f64) -> LinkSpec {
    let link = LinkSpec::path(Rate::from_mbps(100), Span::from_millis(30));
    link.with_loss(Loss::independent(LossRatio::new(loss).expect("a share")))
}

#[test]
fn every_protocol_comes_through_loss_at_a_rate_that_is_given_or_found() {
    each(|row| {
        let Some(wan) = Wan::new(link(0.01), MTU, 3_000_000) else { return };
        for way in WAYS {
            for rate in [Some("--rate=80M"), None] {
                let by = by(row);
                let args: Vec<&str> = [Some(by.as_str()), rate].into_iter().flatten().collect();
                let ended = wan.start(way, &args).end();
                let summary = assert_counted(&ended, row);
                assert!(count(&summary, "retransmitted") > 0, "{way:?} {rate:?} {ended}");
                wan.assert_copied(way);
            }
        }
    });
}

#[test]
fn every_protocol_waits_for_a_network_that_is_gone_and_a_server_that_is_frozen() {
    const AWHILE: Duration = Duration::from_secs(3);
    each(|row| {
        let Some(mut wan) = Wan::new(link(0.0), MTU, 6_000_000) else { return };
        for way in WAYS {
            // It tells once a second how far it is: slow enough to be told half-way on any machine.
            let mut copy = wan.start(way, &[&by(row), "--rate=20M"]);
            // Not every protocol repairs what is lost before all has been sent.
            copy.event(|event| event["sent"].as_u64() >= Some(500));
            match way {
                Way::Push => {
                    wan.set(&LinkSpec { up: false, ..link(0.0) });
                    thread::sleep(AWHILE);
                    wan.set(&link(0.0));
                }
                Way::Pull => {
                    let server = wan.server.as_mut().expect("it was started").child();
                    server.signal(Signal::STOP);
                    thread::sleep(AWHILE);
                    server.signal(Signal::CONT);
                }
            }
            assert_counted(&copy.end(), row);
            wan.assert_copied(way);
        }
    });
}

#[test]
fn a_copy_killed_half_way_is_taken_up_by_another_protocol() {
    let content = bytes(12_000_000, 5);
    each(|row| {
        let rows = registry::all();
        let at = rows.iter().position(|other| other.name == row.name).expect("it is one of them");
        let next = &rows[(at + 1) % rows.len()];
        let pair = Pair::new();
        write(&pair.here.join("object"), &content);
        // It tells once a second how far it is: slow enough to be told half-way on any machine.
        let flags = [&by(row), "--rate=20M", "--segment=1Mi"];
        let mut copy = pair.copy(&flags, "object", pair.at("copy"));
        copy.progressed(2_500_000);
        copy.kill();
        assert!(!pair.there.join("copy").exists(), "it is not whole");
        let ended = pair.copy(&[&by(next), "--rate=100M"], "object", pair.at("copy")).end();
        let summary = assert_counted(&ended, next);
        assert!(count(&summary, "resumed_bytes") >= 1_000_000, "after {}: {ended}", row.name);
        assert!(fs::read(pair.there.join("copy")).expect("it is there") == content);
        assert!(remains(&pair.there).is_empty());
    });
}

#[test]
fn a_protocols_settings_reach_the_end_that_they_are_for() {
    let pair = Pair::new();
    let content = bytes(1_000_000, 4);
    write(&pair.here.join("object"), &content);
    write(&pair.there.join("source"), &content);
    let copy = |way, to: &str, flags: &[&str]| {
        let ended = match way {
            Way::Push => pair.copy(flags, "object", pair.at(to)).end(),
            Way::Pull => pair.copy(flags, pair.at("source"), to).end(),
        };
        (ended.summary()["rate_bps"].as_f64().expect("it is a rate") / 1e6, ended)
    };
    // The sender's: one datagram of some 1,500 bytes every 1,000 microseconds makes 12 Mbit/s.
    let delays =
        ["--datagram=1500", "--first-delay=1000", "--shortest-delay=1000", "--longest-delay=1000"];
    // And the receiver's: what it asks for.
    for way in WAYS {
        let (rate, ended) = copy(way, "one", &[&["--protocol=sabul-ornl"], &delays[..]].concat());
        assert!((11.5..=12.5).contains(&rate), "{way:?} at {rate} Mbit/s: {ended}");
        let (rate, ended) = copy(way, "other", &["--protocol=gtp", "--receive-rate=8"]);
        assert!(rate <= 8.1, "{way:?} at {rate} Mbit/s: {ended}");
    }
}
