//! A server that is silent for a while.

use rustix::process::Signal;

use super::{Relayed, WAYS, Way};
use crate::rig::side_by_side;

#[test]
fn the_start_and_the_end_of_a_servers_silence_are_reported() {
    side_by_side(WAYS, |way| {
        let mut rig = Relayed::new(12_000_000);
        let (from, to, _) = rig.way(way);
        let mut copy = rig.pair.start(&[&from, &to, &"--rate=20M"]);
        copy.progressed(1_000_000);
        rig.pair.server.child().signal(Signal::STOP);
        let told = copy.event(|event| event["event"] == "silent");
        // The client reports a silence of 3 s.
        assert!(told["seconds"].as_f64() >= Some(2.9), "{told}");
        assert_eq!(told["stopped"], way == Way::Push, "only a client that sends stops");
        rig.pair.server.child().signal(Signal::CONT);
        copy.event(|event| event["event"] == "heard-again");
        let ended = copy.end();
        assert_eq!(ended.summary()["verified"], true, "{ended}");
        rig.assert_copied(way);
    });
}
