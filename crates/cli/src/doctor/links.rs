//! Checks network interfaces: speed and MTU.

use std::fs;
use std::path::Path;

use longhaul_proto::units::Rate;

use super::{Finding, Grade, Want};

const INTERFACES: &str = "/sys/class/net";
/// From this rate on, an MTU of 9000 bytes is recommended: larger packets need less CPU.
const JUMBO: Rate = Rate::from_mbps(5_000);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Link {
    name: String,
    mtu: u32,
    /// The reported speed. Some bridges and tunnels, and most virtual machines, report none.
    speed: Option<Rate>,
    /// Whether the interface is a physical network card, or the card of a virtual machine.
    hardware: bool,
}

impl Link {
    /// Whether the interface carries `rate`. Without a reported speed, hardware counts as fast
    /// enough, and any other interface does not.
    fn carries(&self, rate: Rate) -> bool {
        self.speed.map_or(self.hardware, |speed| speed >= rate)
    }
}

/// Checks each active interface, except the loopback and the members of a bond or bridge.
pub(super) fn look(want: Want) -> Vec<Finding> {
    let Ok(folder) = fs::read_dir(INTERFACES) else { return Vec::new() };
    let mut links: Vec<Link> = folder.flatten().filter_map(|entry| link(&entry.path())).collect();
    links.sort_by(|a, b| a.name.cmp(&b.name));
    if links.is_empty() {
        let what = "no interface but the loopback is up";
        return vec![Finding::new("links", Grade::Bad, what, "sudo ip link set DEVICE up")];
    }
    links.iter().map(|link| judge(want, link, &links)).collect()
}

fn link(folder: &Path) -> Option<Link> {
    let read =
        |file: &str| fs::read_to_string(folder.join(file)).ok().map(|text| text.trim().to_owned());
    let name = folder.file_name()?.to_string_lossy().into_owned();
    // Working tunnels report "unknown".
    let is_up = matches!(read("operstate")?.as_str(), "up" | "unknown");
    if name == "lo" || !is_up || folder.join("master").exists() {
        return None;
    }
    let speed = read("speed").and_then(|text| text.parse::<u64>().ok());
    let speed = speed.filter(|megabits| *megabits > 0).map(Rate::from_mbps);
    let hardware = folder.join("device").exists();
    Some(Link { name, mtu: read("mtu")?.parse().ok()?, speed, hardware })
}

/// Grades one interface. A slow link is bad if the user gave the rate and no other interface is
/// fast enough; otherwise it causes a warning.
fn judge(want: Want, link: &Link, all: &[Link]) -> Finding {
    let Link { name, mtu, speed, .. } = link;
    let slow = speed.is_some_and(|speed| speed < want.rate);
    let small = want.rate >= JUMBO && *mtu < 9000;
    let other = all.iter().find(|other| other.carries(want.rate));
    let grade = match slow {
        true if want.is_asked && other.is_none() => Grade::Bad,
        _ => Grade::unless(!slow && !small, Grade::Warn),
    };
    let speed = speed.map_or("no speed reported".to_owned(), |speed| speed.to_string());
    let what = format!("{name}: {speed}, MTU {mtu} B");
    let mend = match (slow, other) {
        (true, Some(other)) => format!(
            "{name} is slower than {}: check that the route to the other host uses {} \
             (ip route get ADDRESS)",
            want.rate, other.name
        ),
        (true, None) => {
            format!("{name} is slower than {}: use another interface, or a lower --rate", want.rate)
        }
        (false, _) => {
            format!("sudo ip link set {name} mtu 9000   (if the whole path supports it)")
        }
    };
    Finding::new("link", grade, what, mend)
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_proto::time::Span;

    fn link_of(mtu: u32, speed: Option<u64>) -> Link {
        let speed = speed.map(Rate::from_mbps);
        Link { name: "eth0".into(), mtu, speed, hardware: true }
    }

    fn want(megabits: u64, is_asked: bool) -> Want {
        Want { rate: Rate::from_mbps(megabits), rtt: Span::ZERO, is_asked }
    }

    #[test]
    fn a_link_is_judged_by_its_speed_and_packet_size() {
        let grade = |want, link: Link| judge(want, &link, std::slice::from_ref(&link)).grade;
        assert_eq!(grade(want(1_000, true), link_of(1500, Some(1_000))), Grade::Ok);
        assert_eq!(grade(want(1_000, true), link_of(1500, None)), Grade::Ok);
        assert_eq!(grade(want(10_000, true), link_of(1500, Some(25_000))), Grade::Warn);
        assert_eq!(grade(want(10_000, true), link_of(9000, Some(25_000))), Grade::Ok);
        let link = link_of(9000, Some(1_000));
        let slow = judge(want(10_000, true), &link, std::slice::from_ref(&link));
        assert_eq!(slow.grade, Grade::Bad);
        assert!(slow.what.contains("eth0") && slow.what.contains("1.00 Gbit/s"), "{}", slow.what);
    }

    #[test]
    fn a_slow_link_is_bad_only_for_a_requested_rate_without_a_faster_link() {
        let slow = link_of(1500, Some(100));
        let alone = std::slice::from_ref(&slow);
        assert_eq!(judge(want(1_000, false), &slow, alone).grade, Grade::Warn);
        assert_eq!(judge(want(1_000, true), &slow, alone).grade, Grade::Bad);
        assert_eq!(judge(want(100, true), &slow, alone).grade, Grade::Ok);
        for (speed, hardware, grade) in [
            (Some(10_000), false, Grade::Warn),
            (None, true, Grade::Warn),
            // A bridge without a reported speed may have no physical port.
            (None, false, Grade::Bad),
            (Some(999), true, Grade::Bad),
        ] {
            let name = "eth1".into();
            let both = [slow.clone(), Link { name, hardware, ..link_of(1500, speed) }];
            let found = judge(want(1_000, true), &slow, &both);
            assert_eq!(found.grade, grade, "{speed:?} {hardware}");
            let named = found.mend.expect("it is slow").contains("eth1");
            assert_eq!(named, grade == Grade::Warn, "{speed:?} {hardware}");
        }
    }

    #[test]
    fn an_interface_is_read_from_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let eth = folder.path().join("eth7");
        fs::create_dir(&eth).unwrap();
        let write = |file: &str, text: &str| fs::write(eth.join(file), text).unwrap();
        write("operstate", "up\n");
        write("mtu", "1500\n");
        write("speed", "-1\n");
        let expected = Link { name: "eth7".into(), mtu: 1500, speed: None, hardware: false };
        assert_eq!(link(&eth), Some(expected));
        fs::create_dir(eth.join("device")).unwrap();
        write("speed", "100\n");
        let expected = Link { name: "eth7".into(), ..link_of(1500, Some(100)) };
        assert_eq!(link(&eth), Some(expected));
        write("master", "");
        assert_eq!(link(&eth), None, "it is a part of a bond");
        fs::remove_file(eth.join("master")).unwrap();
        write("operstate", "down\n");
        assert_eq!(link(&eth), None);
    }
}
