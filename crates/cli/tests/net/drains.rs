//! Receivers slower than the path.

use super::cells::count;
use super::faults::{serve_slowly, slow_disk};
use crate::rig::slow::slow_calls;
use crate::rig::{Ended, Pair, bytes, need, write};

/// Pushes an object of `len` bytes without `--rate`. The server runs under the command `slow`
/// (strace, which delays system calls) with 32 MiB of memory.
fn push_to(slow: &[String], len: usize) -> Ended {
    let mut pair = Pair::in_memory(&[]);
    let content = bytes(len, 5);
    write(&pair.here.join("object"), &content);
    serve_slowly(&mut pair, slow, "32Mi");
    let ended = pair.cp(&[&"object", &pair.at("copy")]);
    assert!(std::fs::read(pair.there.join("copy")).expect("it was copied") == content);
    ended
}

#[test]
fn a_disk_slower_than_the_path_sets_the_rate_and_the_memory_suffices() {
    // The disk takes at least 200 ms for 1 MiB, so it writes at most 5.2 MB/s.
    let slow = need!(slow_disk(200));
    let ended = push_to(&slow, 60_000_000);
    let summary = ended.summary();
    assert_eq!(summary["bound_by"], "destination-disk", "{ended}");
    assert_eq!(summary["memory_lost"], 0, "{ended}");
    // A few losses are allowed while the sender searches for its rate.
    assert!(count(&summary, "socket_lost") < count(&summary, "blocks") / 20, "{ended}");
}

#[test]
fn a_receiver_that_reads_slower_than_the_path_sets_the_rate_and_the_summary_says_so() {
    // Each call takes 20 ms longer. Datagrams are lost until the sender has found the rate.
    let slow = need!(slow_calls("recvmmsg", 20_000));
    let ended = push_to(&slow, 60_000_000);
    let summary = ended.summary();
    assert_eq!(summary["bound_by"], "receiver-cpu", "{ended}");
    assert_eq!(summary["memory_lost"], 0, "{ended}");
    assert!(count(&summary, "socket_lost") < count(&summary, "blocks") / 5, "{ended}");
}
