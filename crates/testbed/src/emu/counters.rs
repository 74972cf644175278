//! The kernel's counters of a host. A file of `/proc/net` describes the namespace in which it was
//! opened.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::sys;

/// Counts frames that a device dropped before the forwarder read them.
pub(super) struct DeviceDrops(Counts);

/// Counts datagrams that the receiving host dropped for lack of room.
pub(super) struct SocketDrops {
    v4: Counts,
    /// `None` on a machine without IPv6.
    v6: Option<Counts>,
}

struct Counts(File);

impl Counts {
    /// Opens a file of the calling thread's namespace.
    fn open(name: &str) -> io::Result<Counts> {
        Ok(Counts(File::open(format!("/proc/thread-self/net/{name}"))?))
    }

    fn text(&self) -> String {
        // Each file is shorter than the buffer.
        let mut text = [0u8; 16_384];
        let len = self.0.read_at(&mut text, 0).unwrap_or(0);
        String::from_utf8_lossy(&text[..len]).into_owned()
    }
}

impl DeviceDrops {
    pub(super) fn open() -> io::Result<DeviceDrops> {
        Counts::open("dev").map(DeviceDrops)
    }

    pub(super) fn read(&self) -> u64 {
        transmit_drops(&self.0.text()).unwrap_or(0)
    }
}

impl SocketDrops {
    pub(super) fn open() -> io::Result<SocketDrops> {
        Ok(SocketDrops { v4: Counts::open("snmp")?, v6: Counts::open("snmp6").ok() })
    }

    /// Number of drops. Datagrams that the kernel coalesced count as one.
    pub(super) fn read(&self) -> u64 {
        let v6 = self.v6.as_ref().map_or(0, |v6| no_room_v6(&v6.text()));
        no_room_v4(&self.v4.text()) + v6
    }
}

/// Counters of datagrams without room: in the socket's buffer, and in UDP's memory.
const NO_ROOM: [&str; 2] = ["RcvbufErrors", "MemErrors"];

/// The TUN device's transmit drops in `/proc/net/dev`.
fn transmit_drops(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(sys::DEVICE))?;
    // After the colon: eight numbers of reception, then bytes, packets, errors, drops.
    line.strip_prefix(':')?.split_whitespace().nth(11)?.parse().ok()
}

/// UDP's counts in `/proc/net/snmp`: a line of names, and one of numbers.
fn no_room_v4(text: &str) -> u64 {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp:"));
    let (names, numbers) = (lines.next().unwrap_or(""), lines.next().unwrap_or(""));
    let counts = names.split_whitespace().zip(numbers.split_whitespace());
    counts.filter(|(name, _)| NO_ROOM.contains(name)).map(|(_, count)| number(count)).sum()
}

/// UDP's counts in `/proc/net/snmp6`: a name and a number in each line.
fn no_room_v6(text: &str) -> u64 {
    let lines = text.lines().filter_map(|line| line.strip_prefix("Udp6")?.split_once('\t'));
    lines.filter(|(name, _)| NO_ROOM.contains(&name.trim())).map(|(_, count)| number(count)).sum()
}

fn number(text: &str) -> u64 {
    text.trim().parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transmit_drops_are_the_twelfth_number_of_the_devices_line() {
        let text = "Inter-|   Receive  |  Transmit\n\
            lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n \
            wan0: 1 2 3 4 5 6 7 8 9 10 11 77 13 14 15 16\n";
        assert_eq!(transmit_drops(text), Some(77));
        assert_eq!(transmit_drops("lo: 1"), None);
        assert_eq!(transmit_drops("wan0: 1 2"), None);
    }

    #[test]
    fn datagrams_without_room_are_the_sum_of_two_udp_counters_in_both_families() {
        let v4 = "Udp: InDatagrams InErrors RcvbufErrors SndbufErrors MemErrors\n\
            Udp: 100 30 20 5 7\n\
            UdpLite: InDatagrams InErrors RcvbufErrors SndbufErrors MemErrors\n\
            UdpLite: 1000 1000 1000 1000 1000\n";
        assert_eq!(no_room_v4(v4), 27);
        assert_eq!(no_room_v4("Udp: RcvbufErrors\n"), 0);
        let v6 = "Udp6InErrors      \t9\nUdp6RcvbufErrors     \t4\nUdp6MemErrors\t2\n\
            UdpLite6RcvbufErrors  \t50\n";
        assert_eq!(no_room_v6(v6), 6);
    }
}
