//! Paths that drop large datagrams silently.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use super::{Relayed, WAYS};

#[test]
fn a_path_that_drops_large_datagrams_gets_smaller_ones() {
    for (way, longest) in WAYS.into_iter().zip([1300, 600]).chain(WAYS.into_iter().zip([600, 1300]))
    {
        let rig = Relayed::new(3_000_000);
        rig.relay.rules.longest.store(longest, Ordering::Relaxed);
        let (from, to, _) = rig.way(way);
        let ended = rig.pair.cp(&[&from, &to, &"--rate=50M"]);
        let summary = ended.summary();
        assert_eq!(summary["protocol"], "rbudp", "{way:?} {longest} {ended}");
        assert!(ended.events("fallback").is_empty(), "{way:?} {longest} {ended}");
        rig.assert_copied(way);
    }
}

#[test]
fn a_new_datagram_size_limit_starts_a_new_size_search_and_the_copy_continues() {
    for way in WAYS {
        let rig = Relayed::new(30_000_000);
        let (from, to, _) = rig.way(way);
        let mut copy = rig.pair.start(&[&from, &to, &"--rate=100M"]);
        copy.progressed(8_000_000);
        rig.relay.rules.longest.store(1300, Ordering::Relaxed);
        let ended = copy.end();
        let summary = ended.summary();
        assert_eq!(summary["protocol"], "rbudp", "{way:?} {ended}");
        // Incomplete chunks are sent again, so less than the 8 MB of progress may be resumed.
        assert!(ended.taken_up() >= 6_000_000, "{way:?} {ended}");
        assert!(summary["payload_bytes"].as_u64() <= Some(1300), "{way:?} {ended}");
        rig.assert_copied(way);
    }
}

#[test]
fn a_path_that_drops_all_data_for_a_while_keeps_its_datagram_size() {
    for way in WAYS {
        let rig = Relayed::new(30_000_000);
        let (from, to, _) = rig.way(way);
        let mut copy = rig.pair.start(&[&from, &to, &"--rate=100M"]);
        copy.progressed(8_000_000);
        // Reports of at most 300 bytes still pass.
        rig.relay.rules.longest.store(300, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(2500));
        rig.relay.rules.longest.store(usize::MAX, Ordering::Relaxed);
        let ended = copy.end();
        let summary = ended.summary();
        assert_eq!(summary["protocol"], "rbudp", "{way:?} {ended}");
        assert!(ended.events("reconnecting").is_empty(), "{way:?} {ended}");
        assert!(summary["payload_bytes"].as_u64() > Some(1300), "{way:?} {ended}");
        rig.assert_copied(way);
    }
}
