//! Every fault with every protocol. Faults that only datagrams can have are skipped for TCP.

use std::fs;
use std::thread;
use std::time::Duration;

use longhaul_testbed::link::LinkSpec;
use rustix::process::Signal;

use super::cells::{Cell, assert_counted, cells, cells_of_datagrams, count, each};
use super::path::Wan;
use super::protocols::{MTU, link};
use super::wan::End;
use super::{WAYS, Way, faults, flood, lying_reports};
use crate::rig::{Child, IMPATIENT, Pair, bytes, need, remains, side_by_side, write};

/// A freeze so long that in every protocol a first retransmission timeout expires on this path.
const AWHILE: Duration = Duration::from_secs(3);
const LONG: Duration = Duration::from_secs(20);

const ENDS: [End; 2] = [End::Client, End::Server];

/// Waits for 500 sent datagrams, or over TCP for 600 kB.
fn under_way(copy: &mut Child, cell: Cell) {
    // Some protocols repair losses only after they have sent everything, so progress comes late.
    match cell.row() {
        Some(_) => copy.event(|event| event["sent"].as_u64() >= Some(500)),
        None => copy.progressed(600_000),
    };
}

#[test]
fn a_copy_survives_an_outage() {
    each(&cells(), |cell| side_by_side(WAYS, |way| interrupt(cell, way)));
}

fn interrupt(cell: Cell, way: Way) {
    let wan = need!(Wan::new(link(0.0), MTU, 6_000_000));
    let mut copy = wan.start(way, &cell.flags(&["--rate=10M"]));
    under_way(&mut copy, cell);
    wan.set(&LinkSpec { up: false, ..link(0.0) });
    thread::sleep(LONG);
    wan.set(&link(0.0));
    let ended = copy.end();
    match cell.row() {
        Some(_) => assert_counted(&ended, cell),
        // The kernel may give up the TCP connection; a new one resumes the copy.
        None => ended.summary(),
    };
    wan.assert_copied(way);
}

#[test]
fn a_copy_waits_for_a_client_or_server_that_is_frozen_for_a_while() {
    each(&cells(), |cell| {
        for way in WAYS {
            ENDS.into_iter().for_each(|end| freeze(cell, way, end));
        }
    });
}

fn freeze(cell: Cell, way: Way, end: End) {
    let mut wan = need!(Wan::new(link(0.0), MTU, 6_000_000));
    let mut copy = wan.start(way, &cell.flags(&["--rate=20M"]));
    under_way(&mut copy, cell);
    let frozen = match end {
        End::Client => &copy,
        End::Server => &*wan.server.as_mut().expect("it was started").child(),
    };
    frozen.signal(Signal::STOP);
    thread::sleep(AWHILE);
    frozen.signal(Signal::CONT);
    assert_counted(&copy.end(), cell);
    wan.assert_copied(way);
}

#[test]
fn a_killed_copy_resumes_with_another_protocol() {
    let (content, all) = (bytes(12_000_000, 5), cells());
    each(&all, |cell| {
        let at = all.iter().position(|other| format!("{other:?}") == format!("{cell:?}"));
        let next = all[(at.expect("it is one of them") + 1) % all.len()];
        side_by_side(WAYS, |way| {
            ENDS.into_iter().for_each(|end| kill([cell, next], way, end, &content));
        });
    });
}

/// Kills `end` of a copy; the next protocol resumes it.
fn kill([cell, next]: [Cell; 2], way: Way, end: End, content: &[u8]) {
    let mut pair = Pair::in_memory(&[]);
    let (from, to) = match way {
        Way::Push => (pair.here.join("object"), pair.there.join("copy")),
        Way::Pull => (pair.there.join("object"), pair.here.join("copy")),
    };
    write(&from, content);
    let start = |pair: &Pair, flags: &[String]| match way {
        Way::Push => pair.copy(flags, "object", pair.at("copy")),
        Way::Pull => pair.copy(flags, pair.at("object"), "copy"),
    };
    // At this rate the copy takes 12 s, so about 9 s are left after 2.5 MB.
    let flags = cell.flags(&["--rate=8M", "--segment=1Mi", "--retry-for=0s", IMPATIENT]);
    let mut copy = start(&pair, &flags);
    copy.progressed(2_500_000);
    match end {
        End::Client => drop(copy.kill()),
        End::Server => {
            pair.server.child().signal(Signal::KILL);
            pair.server.child().ended();
            // With TCP the client notices the broken connection immediately (status 1). With
            // datagrams it notices only silence, when its time limit expires (status 7).
            copy.end().is(if cell.row().is_some() { 7 } else { 1 }, &["same command"]);
            pair.restart(&[]);
        }
    }
    assert!(!to.exists(), "it is not whole");
    let ended = start(&pair, &next.flags(&["--rate=100M"])).end();
    let summary = assert_counted(&ended, next);
    let resumed = count(&summary, "resumed_bytes");
    assert!(resumed >= 1_000_000, "after {cell:?}, {way:?}, {end:?}: {ended}");
    assert!(fs::read(&to).expect("it is there") == content);
    assert!(remains(to.parent().expect("it is in a folder")).is_empty());
}

#[test]
fn a_slow_disk_costs_bounded_memory_and_no_datagram_is_lost_for_want_of_memory() {
    // Each write of 1 MiB takes at least 100 ms, so the disk writes at most 10.5 MB/s.
    let slow = need!(faults::slow_disk(100));
    let content = bytes(36_000_000, 6);
    each(&cells(), |cell| {
        let mut pair = Pair::in_memory(&[]);
        write(&pair.here.join("object"), &content);
        faults::serve_slowly(&mut pair, &slow, "32Mi");
        let ended = pair.copy(&cell.flags(&["--rate=400M"]), "object", pair.at("copy")).end();
        let summary = assert_counted(&ended, cell);
        assert_eq!(count(&summary, "memory_lost"), 0, "{ended}");
        assert!(fs::read(pair.there.join("copy")).expect("it is there") == content);
        let server = crate::rig::slow::traced(pair.server.child().id());
        let peak = crate::rig::peak(server);
        // The peak is the limit of 32 MiB, plus at most 94 MB for the program itself.
        assert!(peak < 128_000_000, "{peak} bytes: {ended}");
    });
}

#[test]
fn forged_datagrams_at_sender_or_receiver_change_nothing_and_are_counted_at_the_receiver() {
    each(&cells_of_datagrams(), |cell| {
        let flags = cell.flags(&["--rate=20M", "--datagram=1400"]);
        for way in WAYS {
            for at in [flood::At::Receiver, flood::At::Sender] {
                flood::copy_through(way, at, 4_000_000, &flags, flood::A_FEW);
            }
        }
    });
}

#[test]
fn false_reports_and_plans_end_only_their_own_transfer() {
    each(&cells(), |cell| {
        for way in WAYS {
            lying_reports::tell_lies(cell, way);
        }
    });
}
