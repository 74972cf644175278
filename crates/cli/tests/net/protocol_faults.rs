//! Every fault of a transfer with every protocol: a kill, an outage, an end that freezes, a disk
//! that is slow, datagrams that are forged, reports that lie. One suite over all that a user can
//! choose; what only some carriers can meet (nobody forges a datagram of TCP's streams) is left to
//! those.

use std::fs;
use std::thread;
use std::time::Duration;

use longhaul_testbed::link::LinkSpec;
use rustix::process::Signal;

use super::cells::{Cell, assert_counted, cells, cells_of_datagrams, count, each};
use super::path::Wan;
use super::protocols::{MTU, link};
use super::{WAYS, Way, faults, flood, lying_reports};
use crate::rig::{Child, Pair, bytes, remains, write};

/// An outage or a freeze: longer than any protocol's patience with one message.
const AWHILE: Duration = Duration::from_secs(3);

/// Waits until a copy at 20 Mbit/s, which takes seconds, is well under way.
fn under_way(copy: &mut Child, cell: Cell) {
    // It tells once a second how far it is; not every protocol repairs what is lost before all has
    // been sent.
    match cell.row() {
        Some(_) => copy.event(|event| event["sent"].as_u64() >= Some(500)),
        None => copy.progressed(600_000),
    };
}

#[test]
fn a_network_that_is_gone_for_a_while_is_waited_for() {
    each(&cells(), |cell| {
        let Some(wan) = Wan::new(link(0.0), MTU, 6_000_000) else { return };
        let mut copy = wan.start(Way::Push, &cell.flags(&["--rate=20M"]));
        under_way(&mut copy, cell);
        wan.set(&LinkSpec { up: false, ..link(0.0) });
        thread::sleep(AWHILE);
        wan.set(&link(0.0));
        assert_counted(&copy.end(), cell);
        wan.assert_copied(Way::Push);
    });
}

#[test]
fn an_end_that_is_frozen_for_a_while_is_waited_for() {
    each(&cells(), |cell| {
        let Some(mut wan) = Wan::new(link(0.0), MTU, 6_000_000) else { return };
        let mut copy = wan.start(Way::Pull, &cell.flags(&["--rate=20M"]));
        under_way(&mut copy, cell);
        let server = wan.server.as_mut().expect("it was started").child();
        server.signal(Signal::STOP);
        thread::sleep(AWHILE);
        server.signal(Signal::CONT);
        assert_counted(&copy.end(), cell);
        wan.assert_copied(Way::Pull);
    });
}

#[test]
fn a_copy_killed_half_way_is_taken_up_by_another_protocol() {
    let content = bytes(12_000_000, 5);
    let all = cells();
    each(&all, |cell| {
        let at = all.iter().position(|other| format!("{other:?}") == format!("{cell:?}"));
        let next = all[(at.expect("it is one of them") + 1) % all.len()];
        let pair = Pair::new();
        write(&pair.here.join("object"), &content);
        // It tells once a second how far it is: slow enough to be told half-way on any machine.
        let flags = cell.flags(&["--rate=20M", "--segment=1Mi"]);
        let mut copy = pair.copy(&flags, "object", pair.at("copy"));
        copy.progressed(2_500_000);
        copy.kill();
        assert!(!pair.there.join("copy").exists(), "it is not whole");
        let ended = pair.copy(&next.flags(&["--rate=100M"]), "object", pair.at("copy")).end();
        let summary = assert_counted(&ended, next);
        assert!(count(&summary, "resumed_bytes") >= 1_000_000, "after {cell:?}: {ended}");
        assert!(fs::read(pair.there.join("copy")).expect("it is there") == content);
        assert!(remains(&pair.there).is_empty());
    });
}

#[test]
fn a_disk_slower_than_the_network_bounds_memory_and_loses_nothing_for_want_of_it() {
    // Each write of 1 MiB takes 100 ms more: 10 MB/s below a rate of 50 MB/s.
    let Some(slow) = faults::slow_disk(100) else { return };
    let content = bytes(36_000_000, 6);
    each(&cells(), |cell| {
        let mut pair = Pair::new();
        write(&pair.here.join("object"), &content);
        faults::serve_slowly(&mut pair, &slow, "32Mi");
        let ended = pair.copy(&cell.flags(&["--rate=400M"]), "object", pair.at("copy")).end();
        let summary = assert_counted(&ended, cell);
        assert_eq!(count(&summary, "memory_lost"), 0, "{ended}");
        assert!(fs::read(pair.there.join("copy")).expect("it is there") == content);
        let server = faults::traced(pair.server.child().id());
        let peak = crate::rig::peak(server);
        assert!(peak < 128_000_000, "{peak} bytes: {ended}");
    });
}

#[test]
fn forged_datagrams_change_nothing_and_are_counted() {
    each(&cells_of_datagrams(), |cell| {
        let flags = cell.flags(&["--rate=20M", "--datagram=1400"]);
        flood::copy_through(Way::Push, 8_000_000, &flags, flood::A_FEW);
    });
}

#[test]
fn reports_that_lie_end_nothing_but_their_own_transfer() {
    each(&cells(), |cell| {
        for way in WAYS {
            lying_reports::tell_lies(cell, way);
        }
    });
}
