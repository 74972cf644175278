//! A client or server that is killed on a lossy path, and the same command again.
//!
//! A kill costs the bytes that both runs deliver, minus the length of the object. The emulated path
//! counts the bytes of the first run until the kill; the summary counts those of the second.

use rustix::process::Signal;

use super::Way;
use super::path::Wan;
use super::wan::{End, MTU, link};
use crate::rig::{IMPATIENT, need};

/// Length of the object: after [`KILL_AT`] bytes, the copy still takes seconds.
const LEN: u64 = 200_000_000;
const KILL_AT: u64 = KILL_COSTS * 3 / 2;
/// The most data that a kill may cost: the larger of 64 MB and one second of data (30 MB at
/// [`RATE`]).
const KILL_COSTS: u64 = 64_000_000;
const RATE: &str = "--rate=240M";

/// Bytes of a datagram that are not content: IP, UDP, our header and tag.
const HEADERS: u64 = 20 + 8 + 16 + 16;

#[derive(Clone, Copy, Debug)]
struct Case {
    way: Way,
    killed: End,
    protocol: &'static str,
}

const CASES: [Case; 5] = [
    Case { way: Way::Push, killed: End::Client, protocol: "rbudp" },
    Case { way: Way::Push, killed: End::Server, protocol: "rbudp" },
    Case { way: Way::Pull, killed: End::Client, protocol: "rbudp" },
    Case { way: Way::Pull, killed: End::Server, protocol: "rbudp" },
    // FOBS resends all unacknowledged blocks in turn. It must do so within one segment of the
    // object at a time. Within the whole object, nearly every chunk (1 MiB) would have a gap at
    // the kill, and a chunk with a gap is sent again whole.
    Case { way: Way::Push, killed: End::Client, protocol: "fobs" },
];

#[test]
fn a_kill_of_the_client_on_a_lossy_path_costs_at_most_64_mb() {
    kill_each(End::Client);
}

#[test]
fn a_kill_of_the_server_on_a_lossy_path_costs_at_most_64_mb() {
    kill_each(End::Server);
}

fn kill_each(end: End) {
    for case in CASES.into_iter().filter(|case| case.killed == end) {
        let wan = need!(Wan::new(link(1000, 60, 0.01), MTU, LEN as usize));
        kill(case, wan);
    }
}

fn kill(case: Case, mut wan: Wan) {
    let Case { way, killed, protocol } = case;
    let protocol_flag = format!("--protocol={protocol}");
    let flags = [&protocol_flag, RATE, "--retry-for=0s", IMPATIENT];
    let mut copy = wan.start(way, &flags);
    copy.progressed(KILL_AT);
    let first = content_passed(&wan, way);
    match killed {
        End::Client => drop(copy.kill()),
        End::Server => {
            wan.server.as_mut().expect("it was started").child().signal(Signal::KILL);
            copy.end().is(7, &["same command"]);
            wan.serve();
        }
    }
    assert!(!wan.copy(way).exists());
    let ended = wan.start(way, &flags).end();
    let summary = ended.summary();
    assert_eq!(summary["protocol"], protocol, "{case:?} {ended}");
    let count = |name: &str| summary[name].as_u64().expect("it is a count");
    let second = count("received") * count("payload_bytes");
    assert!(first >= KILL_AT, "{case:?}: {first} passed");
    let both = first + second;
    assert!(both <= LEN + KILL_COSTS, "{case:?}: {first} and {second} of {LEN} passed: {ended}");
    wan.assert_copied(way);
}

/// Content that has reached the receiving host; control messages are negligible.
fn content_passed(wan: &Wan, way: Way) -> u64 {
    let (from, to) = if way == Way::Push { ("a", "b") } else { ("b", "a") };
    let statistics = wan.emulation.statistics().expect("it runs");
    let tally = statistics.link(from, to).expect("the link exists");
    tally.arrives_bytes.get() - tally.arrives * HEADERS
}
