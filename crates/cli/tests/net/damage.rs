//! Bytes that change on the way. Sealed datagrams that were touched are dropped as forged; data in
//! the clear arrive as they are, and the digests of the chunks must notice.

use std::sync::atomic::Ordering;

use super::{Relayed, WAYS};
use crate::rig::remains;

const LEN: usize = 3_000_000;

#[test]
fn damage_now_and_then_is_noticed_and_repaired() {
    for (way, cipher) in WAYS.into_iter().flat_map(|way| [(way, "none"), (way, "auto")]) {
        let rig = Relayed::with(LEN, &["--allow-plain"]);
        rig.relay.rules.damaged.store(5, Ordering::Relaxed);
        let (from, to, _) = rig.way(way);
        let cipher = format!("--cipher={cipher}");
        let ended = rig.pair.cp(&[&cipher, &"--rate=100M", &from, &to]);
        let summary = ended.summary();
        assert_eq!(rig.relay.rules.damaged.load(Ordering::Relaxed), 0, "{way:?} {ended}");
        assert_eq!(summary["verified"], true, "{way:?} {ended}");
        let number = |name: &str| summary[name].as_u64().expect("it is a count");
        let sent = number("sent") * number("payload_bytes");
        assert!(sent >= LEN as u64 + 4 * number("payload_bytes"), "{way:?} {ended}");
        rig.assert_copied(way);
    }
}

#[test]
fn what_is_damaged_again_and_again_ends_with_a_status_of_its_own() {
    for way in WAYS {
        let rig = Relayed::with(LEN, &["--allow-plain"]);
        rig.relay.rules.damaged.store(usize::MAX, Ordering::Relaxed);
        let (from, to, copy) = rig.way(way);
        let ended = rig.pair.cp(&[&"--cipher=none", &"--rate=100M", &from, &to]);
        ended.is(6, &["came wrong 4 times", "memory or disk"]);
        let last = ended.last();
        assert_eq!((&last["class"], &last["status"]), (&"verification".into(), &6.into()));
        assert!(!copy.exists(), "{way:?} {ended}");
        // Nothing of it was kept as if it were right.
        rig.relay.rules.damaged.store(0, Ordering::Relaxed);
        rig.pair.cp(&[&from, &to]).summary();
        rig.assert_copied(way);
        assert!(remains(&rig.pair.here).is_empty() && remains(&rig.pair.there).is_empty());
    }
}
