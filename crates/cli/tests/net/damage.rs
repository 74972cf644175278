//! Bytes that change on the path. The receiver drops damaged encrypted datagrams as forged. The
//! digests of the chunks must detect damaged unencrypted data.

use std::sync::atomic::Ordering;

use super::{Relayed, WAYS, Way};
use crate::rig::{assert_same, remains, write};

const LEN: usize = 3_000_000;

#[test]
fn occasional_damage_is_detected_and_repaired() {
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
fn repeated_damage_ends_the_copy_with_exit_status_6() {
    for way in WAYS {
        let rig = Relayed::with(LEN, &["--allow-plain"]);
        rig.relay.rules.damaged.store(usize::MAX, Ordering::Relaxed);
        let (from, to, copy) = rig.way(way);
        let ended = rig.pair.cp(&[&"--cipher=none", &"--rate=100M", &from, &to]);
        ended.is(6, &["chunks failed verification", "4 times", "the memory and the disk"]);
        let last = ended.last();
        assert_eq!((&last["class"], &last["status"]), (&"verification".into(), &6.into()));
        assert!(!copy.exists(), "{way:?} {ended}");
        // The partial files have no damaged data.
        rig.relay.rules.damaged.store(0, Ordering::Relaxed);
        rig.pair.cp(&[&from, &to]).summary();
        rig.assert_copied(way);
        assert!(remains(&rig.pair.here).is_empty() && remains(&rig.pair.there).is_empty());
    }
}

#[test]
fn with_cipher_none_a_trees_file_names_stay_encrypted_and_damaged_data_are_repaired() {
    for way in WAYS {
        let rig = Relayed::with(1, &["--allow-plain"]);
        let (here, there) = (rig.pair.here.join("tree"), rig.pair.there.join("tree"));
        let (root, from, to) = match way {
            Way::Push => (&here, "tree".into(), rig.at("")),
            Way::Pull => (&there, rig.at("tree"), ".".into()),
        };
        for number in 0..400 {
            let name = format!("a-secret-name-that-is-long-enough-to-be-seen-{number:040}");
            write(&root.join(name), &[number as u8; 3000]);
        }
        let tapped = rig.relay.tap_both_ways();
        rig.relay.rules.damaged.store(5, Ordering::Relaxed);
        let ended = rig.pair.cp(&[&"-r", &"--cipher=none", &"--rate=50M", &from, &to]);
        assert_eq!(ended.summary()["cipher"], "none", "{way:?} {ended}");
        assert_eq!(rig.relay.rules.damaged.load(Ordering::Relaxed), 0, "{way:?} {ended}");
        assert_same(&here, &there);
        let datagrams: Vec<Vec<u8>> = tapped.try_iter().collect();
        let shows =
            |what: &[u8]| datagrams.iter().any(|d| d.windows(what.len()).any(|w| w == what));
        assert!(shows(&[7; 100]), "the content must be sent unencrypted");
        assert!(!shows(b"secret-name"), "{way:?}: a name was sent unencrypted");
    }
}
