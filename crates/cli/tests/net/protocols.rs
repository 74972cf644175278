//! Every protocol of the registry carries real copies.

use std::path::Path;

use longhaul_proto::time::Span;
use longhaul_proto::units::{LossRatio, Rate};
use longhaul_testbed::link::{LinkSpec, Loss};

use super::cells::{assert_counted, cells, cells_of_datagrams, count, each};
use super::path::Wan;
use super::{WAYS, Way};
use crate::rig::{Pair, assert_same, bytes, need, write};

pub(super) const MTU: u16 = 1500;

/// Creates 40 small files, one of them empty, and two large ones.
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
    each(&cells(), |cell| {
        let pair = Pair::in_memory(&[]);
        plant(&pair.here.join("tree"));
        plant(&pair.there.join("source"));
        // The push has a given rate; the pull searches for its rate.
        let flags = cell.flags(&["-r", "--rate=100M"]);
        let push = pair.copy(&flags, "tree", pair.at("copy")).end();
        let summary = assert_counted(&push, cell);
        assert_eq!(summary["files"], 42, "{push}");
        let pull = pair.copy(&cell.flags(&["-r"]), pair.at("source"), "copy").end();
        let summary = assert_counted(&pull, cell);
        assert_eq!(summary["files"], 42, "{pull}");
        assert_same(&pair.here.join("tree"), &pair.there.join("copy"));
        assert_same(&pair.there.join("source"), &pair.here.join("copy"));
    });
}

/// A path with 100 Mbit/s, a round-trip time of 30 ms, and the loss ratio `loss`.
pub(super) fn link(loss: f64) -> LinkSpec {
    let link = LinkSpec::path(Rate::from_mbps(100), Span::from_millis(30));
    link.with_loss(Loss::independent(LossRatio::new(loss).expect("a share")))
}

#[test]
fn every_protocol_with_datagrams_survives_loss_at_a_fixed_or_searched_rate() {
    each(&cells_of_datagrams(), |cell| {
        let wan = need!(Wan::new(link(0.01), MTU, 3_000_000));
        for way in WAYS {
            for rate in [Some("--rate=80M"), None] {
                let others: Vec<&str> = rate.into_iter().collect();
                let ended = wan.start(way, &cell.flags(&others)).end();
                let summary = assert_counted(&ended, cell);
                assert!(count(&summary, "retransmitted") > 0, "{way:?} {rate:?} {ended}");
                wan.assert_copied(way);
            }
        }
    });
}

#[test]
fn the_settings_of_a_protocol_reach_the_sender_or_receiver_that_uses_them() {
    let pair = Pair::in_memory(&[]);
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
    // One datagram of about 1,500 bytes every millisecond is 12 Mbit/s.
    let delays =
        ["--datagram=1500", "--first-delay=1ms", "--shortest-delay=1ms", "--longest-delay=1ms"];
    // The delays are settings of the sender, `receive-rate` of the receiver.
    for way in WAYS {
        let (rate, ended) = copy(way, "one", &[&["--protocol=sabul-ornl"], &delays[..]].concat());
        assert!((11.5..=12.5).contains(&rate), "{way:?} at {rate} Mbit/s: {ended}");
        let (rate, ended) = copy(way, "other", &["--protocol=gtp", "--receive-rate=8M"]);
        assert!(rate <= 8.1, "{way:?} at {rate} Mbit/s: {ended}");
    }
}
