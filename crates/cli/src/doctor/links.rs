//! Network interfaces: their speed and the packets they take.

use std::fs;
use std::path::Path;

use longhaul_proto::units::Rate;

use super::{Finding, Grade, Want};

const INTERFACES: &str = "/sys/class/net";
/// From here on packets of 1500 bytes cost a core more than larger ones.
const JUMBO: Rate = Rate::from_mbps(5_000);

/// An interface that is up.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Link {
    name: String,
    mtu: u32,
    /// Nothing where the device has none: bridges, tunnels, most virtual machines.
    speed: Option<Rate>,
}

/// Looks at each interface but the loopback.
pub(super) fn look(want: Want) -> Vec<Finding> {
    let Ok(folder) = fs::read_dir(INTERFACES) else { return Vec::new() };
    let mut links: Vec<Link> = folder.flatten().filter_map(|entry| link(&entry.path())).collect();
    links.sort_by(|a, b| a.name.cmp(&b.name));
    if links.is_empty() {
        let what = "no interface but the loopback is up";
        return vec![Finding::new("links", Grade::Bad, what, "sudo ip link set DEVICE up")];
    }
    links.iter().map(|link| judge(want, link)).collect()
}

fn link(folder: &Path) -> Option<Link> {
    let read =
        |file: &str| fs::read_to_string(folder.join(file)).ok().map(|text| text.trim().to_owned());
    let name = folder.file_name()?.to_string_lossy().into_owned();
    // Tunnels say "unknown" while they work.
    let is_up = matches!(read("operstate")?.as_str(), "up" | "unknown");
    if name == "lo" || !is_up {
        return None;
    }
    let speed = read("speed").and_then(|text| text.parse::<u64>().ok());
    let speed = speed.filter(|megabits| *megabits > 0).map(Rate::from_mbps);
    Some(Link { name, mtu: read("mtu")?.parse().ok()?, speed })
}

fn judge(want: Want, link: &Link) -> Finding {
    let Link { name, mtu, speed } = link;
    let slow = speed.is_some_and(|speed| speed < want.rate);
    let small = want.rate >= JUMBO && *mtu < 9000;
    let speed = speed.map_or("no speed told".to_owned(), |speed| speed.to_string());
    let what = format!("{name}: {speed}, MTU {mtu} B");
    let grade = if slow { Grade::Bad } else { Grade::unless(!small, Grade::Warn) };
    let mend = match slow {
        true => format!("{name} is slower than {}: use another, or ask for less", want.rate),
        false => format!("sudo ip link set {name} mtu 9000   (where all of the path takes it)"),
    };
    Finding::new("link", grade, what, mend)
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_proto::time::Span;

    #[test]
    fn a_link_is_judged_by_its_speed_and_its_packets() {
        let want = |megabits| Want { rate: Rate::from_mbps(megabits), rtt: Span::ZERO };
        let link = |mtu, speed: Option<u64>| Link {
            name: "eth0".into(),
            mtu,
            speed: speed.map(Rate::from_mbps),
        };
        assert_eq!(judge(want(1_000), &link(1500, Some(1_000))).grade, Grade::Ok);
        assert_eq!(judge(want(1_000), &link(1500, None)).grade, Grade::Ok);
        assert_eq!(judge(want(10_000), &link(1500, Some(25_000))).grade, Grade::Warn);
        assert_eq!(judge(want(10_000), &link(9000, Some(25_000))).grade, Grade::Ok);
        let slow = judge(want(10_000), &link(9000, Some(1_000)));
        assert_eq!(slow.grade, Grade::Bad);
        assert!(slow.what.contains("eth0") && slow.what.contains("1.00 Gbit/s"), "{}", slow.what);
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
        let expected = Link { name: "eth7".into(), mtu: 1500, speed: None };
        assert_eq!(link(&eth), Some(expected));
        write("operstate", "down\n");
        assert_eq!(link(&eth), None);
    }
}
