//! Killed copies from several replicas of one object.

use rustix::process::Signal;

use super::many::Star;
use crate::rig::{bytes, content, remains};

#[test]
fn a_copy_killed_while_its_sources_are_compared_starts_again() {
    let object = bytes(3_000_000, 41);
    let mut star = Star::of_replicas(2, &object);
    // One source is silent, and the other alone is no majority.
    star.signal(1, Signal::STOP);
    let copy = star.replicas(&[], &[0, 1]);
    star.servers[0].child().complaint("compares /x: done,");
    copy.kill();
    assert!(content(&star.here).is_empty());
    star.signal(1, Signal::CONT);
    let ended = star.replicas(&[], &[0, 1]).end();
    assert_eq!(ended.summary()["verified"], true, "{ended}");
    star.assert_copied("x", &object);
}

#[test]
fn a_copy_killed_at_its_start_or_later_resumes_with_other_sources() {
    const LEN: usize = 6_000_000;
    let object = bytes(LEN, 42);
    // The two sources send 1 MB/s together, and progress comes once a second.
    for (killed_at, least) in [(1, 0), (LEN as u64 * 6 / 10, LEN as u64 / 2)] {
        let star = Star::of_replicas(3, &object);
        let mut copy = star.replicas(&["--rate=4M"], &[0, 1]);
        copy.progressed(killed_at);
        copy.kill();
        // On a busy machine the copy may have ended before the kill.
        let is_whole = star.here.join("x").exists();
        let ended = star.replicas(&[], &[1, 2]).end();
        let resumed = ended.summary()["resumed_bytes"].as_u64();
        assert!(is_whole || resumed >= Some(least), "{killed_at}: {ended}");
        star.assert_copied("x", &object);
        assert!(remains(&star.here).is_empty());
    }
}
