//! The speed of a network interface according to sysfs.
//!
//! Tunnels, veth pairs and bridges also report a speed (often 10 Gbit/s), which limits nothing.
//! Only the speed of a card counts, or of a bond or a VLAN of cards.

use std::fs;
use std::path::Path;

use longhaul_proto::units::Rate;

pub(super) const INTERFACES: &str = "/sys/class/net";
/// Limits of plausible speeds, in Mbit/s. Values outside of them do not come from a card.
const SLOWEST: u64 = 10;
const FASTEST: u64 = 1_600_000;
/// Maximum depth of the search for cards. A VLAN on a bond of cards needs a depth of 2.
const DEPTH: u32 = 3;
/// Bytes of Ethernet's header, check sequence, preamble and gap: 14 + 4 + 8 + 12.
const FRAMING: u32 = 38;

/// Returns the speed of the interface `name` on the wire, from the files in `folder`. `None` if
/// the interface is no card ([`is_card`]), if its speed is not plausible, or if its number is not
/// `index`: then `folder` shows another network namespace.
pub(super) fn speed(folder: &Path, name: &str, index: u32) -> Option<Rate> {
    let file = |file: &str| fs::read_to_string(folder.join(name).join(file)).ok();
    if file("ifindex")?.trim().parse() != Ok(index) || !is_card(folder, name, DEPTH) {
        return None;
    }
    // The speed is -1 or unreadable if the link is down, and on many virtual machines.
    let megabits: u64 = file("speed")?.trim().parse().ok()?;
    (SLOWEST..=FASTEST).contains(&megabits).then(|| Rate::from_mbps(megabits))
}

/// Returns whether the interface `name` is a card, or is made of cards only and is no bridge.
fn is_card(folder: &Path, name: &str, depth: u32) -> bool {
    let own = folder.join(name);
    if own.join("device").exists() {
        return true;
    }
    if depth == 0 || own.join("bridge").exists() {
        return false;
    }
    let Ok(files) = fs::read_dir(own) else { return false };
    let names = files.flatten().map(|file| file.file_name().to_string_lossy().into_owned());
    let parts: Vec<String> =
        names.filter_map(|name| Some(name.strip_prefix("lower_")?.to_owned())).collect();
    !parts.is_empty() && parts.iter().all(|part| is_card(folder, part, depth - 1))
}

/// Returns the UDP payload rate of a card of this speed, in datagrams of `datagram` bytes with
/// `headers` bytes of IP and UDP.
pub(super) fn payload(speed: Rate, datagram: u16, headers: u32) -> Rate {
    let wire = u32::from(datagram) + headers + FRAMING;
    speed.scale(f64::from(datagram) / f64::from(wire))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a folder of interfaces: each with its number, its reported speed, and other entries
    /// of its folder.
    fn interfaces(all: &[(&str, u32, &str, &[&str])]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, index, speed, more) in all {
            let own = folder.path().join(name);
            fs::create_dir(&own).unwrap();
            fs::write(own.join("ifindex"), format!("{index}\n")).unwrap();
            if !speed.is_empty() {
                fs::write(own.join("speed"), format!("{speed}\n")).unwrap();
            }
            more.iter().for_each(|file| fs::create_dir(own.join(file)).unwrap());
        }
        folder
    }

    #[test]
    fn only_cards_have_a_speed() {
        let folder = interfaces(&[
            ("eth0", 2, "1000", &["device"]),
            ("down", 3, "-1", &["device"]),
            ("virtual", 4, "4294967295", &["device"]),
            ("silent", 5, "", &["device"]),
            ("odd", 6, "fast", &["device"]),
            ("veth0", 7, "10000", &[]),
            ("tun0", 8, "10", &[]),
        ]);
        let of = |name: &str, index| speed(folder.path(), name, index);
        assert_eq!(of("eth0", 2), Some(Rate::from_mbps(1000)));
        assert_eq!(of("eth0", 9), None, "it is of another namespace");
        for (name, index) in
            [("down", 3), ("virtual", 4), ("silent", 5), ("odd", 6), ("veth0", 7), ("tun0", 8)]
        {
            assert_eq!(of(name, index), None, "{name}");
        }
        assert_eq!(of("none", 2), None);
    }

    #[test]
    fn a_device_made_only_of_cards_counts_as_a_card_unless_it_is_a_bridge() {
        let folder = interfaces(&[
            ("eth0", 1, "10000", &["device"]),
            ("eth1", 2, "10000", &["device"]),
            ("tap0", 3, "10", &[]),
            ("bond0", 4, "20000", &["bonding", "lower_eth0", "lower_eth1"]),
            ("bond0.7", 5, "20000", &["lower_bond0"]),
            ("br0", 6, "10000", &["bridge", "lower_eth0"]),
            ("mixed", 7, "10000", &["lower_eth0", "lower_tap0"]),
            ("circle", 8, "10000", &["lower_circle"]),
        ]);
        let of = |name: &str, index| speed(folder.path(), name, index);
        assert_eq!(of("bond0", 4), Some(Rate::from_mbps(20_000)));
        assert_eq!(of("bond0.7", 5), Some(Rate::from_mbps(20_000)));
        for (name, index) in [("br0", 6), ("mixed", 7), ("circle", 8)] {
            assert_eq!(of(name, index), None, "{name}");
        }
    }

    #[test]
    fn a_card_of_1_gbit_per_s_carries_957_mbit_per_s_of_payload() {
        let of = |datagram, headers| payload(Rate::from_mbps(1000), datagram, headers).as_bps();
        assert_eq!(of(1472, 28) / 1_000_000, 957);
        assert_eq!(of(1452, 48) / 1_000_000, 944);
        assert_eq!(of(8972, 28) / 1_000_000, 992);
    }
}
