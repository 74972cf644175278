//! An emulated host: a network namespace with a TUN device.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;

use longhaul_proto::units::Rate;
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketType};
use rustix::thread::{CapabilitySet, LinkNameSpaceType, UnshareFlags};

use super::counters::{DeviceDrops, SocketDrops};
use super::spec::HostAddresses;
use super::{EmulationError, netlink, sys};
use crate::link::ETHERNET_FRAMING;

/// Maximum number of frames in a device's queue; further frames are dropped and counted.
const DEVICE_QUEUE: u32 = 2_048;

/// The maximum size of a TCP buffer is raised to this many bytes. The machine's own maximum, often
/// 4 MiB, would limit TCP's rate over a long path.
const TCP_BUFFER: u64 = 64 << 20;

/// The largest burst of a card in bytes: a super-packet with all its headers.
const CARD_BURST: u32 = 72_000;

/// Maximum bytes that wait for a card: more than the programs' socket buffers hold.
const CARD_ROOM: u32 = 512 << 20;

pub(super) struct Host {
    pub(super) name: String,
    pub(super) addresses: HostAddresses,
    pub(super) namespace: OwnedFd,
    pub(super) socket_drops: SocketDrops,
    /// Limitations of this machine, in sentences.
    pub(super) notices: Vec<String>,
}

pub(super) struct Port {
    pub(super) tun: OwnedFd,
    drops: DeviceDrops,
}

/// Creates a host. `card` is the rate of its network card; `None` for no limit. The host's
/// namespace lives while the returned descriptors are open.
pub(super) fn make(
    name: &str,
    addresses: HostAddresses,
    mtu: u16,
    card: Option<Rate>,
) -> Result<(Host, Port), EmulationError> {
    let made = in_new_thread(|| {
        sys::unshare(UnshareFlags::NEWNET).map_err(forbidden("a network namespace"))?;
        let (tun, offload) = open_tun()?;
        let mut notices = Vec::new();
        if offload == sys::Offload::TcpOnly {
            notices.push(NO_USO.to_owned());
        }
        let set_up = configure(addresses, mtu);
        let device = set_up.map_err(EmulationError::system("set up a host's devices"))?;
        if let Some(Err(error)) = card.map(|rate| hold_back(device, rate, mtu)) {
            notices.push(format!(
                "programs are not limited to their card's rate ({error}; the kernel needs \
                 sch_tbf): cards drop the excess"
            ));
        }
        if let Err(error) = widen_tcp(TCP_BUFFER) {
            let kept = ["tcp_rmem", "tcp_wmem"].map(|name| tcp_buffer(name).unwrap_or_default());
            notices.push(format!(
                "TCP on the hosts keeps this machine's limits (tcp_rmem {}, tcp_wmem {}): {error}; \
                 these limits may reduce TCP's rate",
                kept[0].trim(),
                kept[1].trim()
            ));
        }
        let namespace = rustix::fs::open(
            "/proc/thread-self/ns/net",
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(io::Error::from)
        .map_err(EmulationError::system("open a host's namespace"))?;
        let unread = || EmulationError::system("read a host's counters");
        let drops = DeviceDrops::open().map_err(unread())?;
        let socket_drops = SocketDrops::open().map_err(unread())?;
        Ok((namespace, socket_drops, notices, Port { tun, drops }))
    });
    let (namespace, socket_drops, notices, port) = made?;
    Ok((Host { name: name.to_owned(), addresses, namespace, socket_drops, notices }, port))
}

/// Runs `work` in a new thread, so that `work` can change the namespaces of this thread alone.
fn in_new_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| match scope.spawn(work).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

fn forbidden(what: &'static str) -> impl FnOnce(io::Error) -> EmulationError {
    move |error| {
        EmulationError::Forbidden(format!(
            "making {what} failed: {error}; run as root, or where the kernel lets every user \
             create user namespaces"
        ))
    }
}

fn open_tun() -> Result<(OwnedFd, sys::Offload), EmulationError> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let tun = rustix::fs::open("/dev/net/tun", flags, Mode::empty()).map_err(|error| {
        EmulationError::Forbidden(format!(
            "opening /dev/net/tun failed: {error}; it must exist (modprobe tun) and be open to \
             this user (chmod 0666 /dev/net/tun, as udev does)"
        ))
    })?;
    let offload = sys::make_tun(tun.as_fd()).map_err(forbidden("a TUN device with TSO"))?;
    Ok((tun, offload))
}

const NO_USO: &str = "this kernel passes no UDP super-packets through a TUN device (6.2 and later \
    do): UDP goes packet by packet, which costs more processor time";

/// The namespace's TCP buffer limit: minimum, default, maximum.
fn tcp_buffer(name: &str) -> io::Result<String> {
    std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}"))
}

/// Raises the maximum sizes of the namespace's TCP buffers to `most` bytes, if they are lower.
pub(super) fn widen_tcp(most: u64) -> io::Result<()> {
    for name in ["tcp_rmem", "tcp_wmem"] {
        if let Some(wider) = widened(&tcp_buffer(name)?, most) {
            std::fs::write(format!("/proc/sys/net/ipv4/{name}"), wider)?;
        }
    }
    Ok(())
}

/// The limit with its maximum raised to `most`; `None` if the maximum is high enough or unreadable.
fn widened(limit: &str, most: u64) -> Option<String> {
    let mut numbers = limit.split_whitespace();
    let (least, first) = (numbers.next()?, numbers.next()?);
    let before: u64 = numbers.next()?.parse().ok()?;
    (before < most).then(|| format!("{least} {first} {most}"))
}

/// Configures the namespace's devices; returns the card's interface index.
fn configure(addresses: HostAddresses, mtu: u16) -> io::Result<i32> {
    let v4 = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    sys::set_mtu(v4.as_fd(), sys::DEVICE, mtu.into())?;
    let device = sys::index_of(v4.as_fd(), sys::DEVICE)?;
    netlink::set_queue_length(device, DEVICE_QUEUE)?;
    sys::set_ipv4(v4.as_fd(), sys::DEVICE, addresses.v4, Ipv4Addr::new(255, 255, 255, 0))?;
    sys::set_up(v4.as_fd(), "lo")?;
    sys::set_up(v4.as_fd(), sys::DEVICE)?;
    // With an MTU below 1280 bytes, or without IPv6, a device has only IPv4.
    if mtu >= 1280
        && let Ok(v6) = rustix::net::socket(AddressFamily::INET6, SocketType::DGRAM, None)
    {
        sys::set_ipv6(v6.as_fd(), sys::DEVICE, addresses.v6, 64)?;
    }
    Ok(device)
}

/// Limits the namespace's programs to the `rate` of the card. The kernel counts from the IP header
/// on; the rate includes Ethernet framing.
fn hold_back(device: i32, rate: Rate, mtu: u16) -> io::Result<()> {
    let packet = f64::from(mtu);
    let rate = rate.scale(packet / (packet + f64::from(ETHERNET_FRAMING)));
    netlink::hold_back(device, rate, CARD_BURST, CARD_ROOM)
}

/// Whether this process may emulate with its present privileges; changes nothing.
///
/// # Errors
/// The reason why not.
pub fn available() -> Result<(), String> {
    let tried = in_new_thread(|| {
        sys::unshare(UnshareFlags::NEWNET | UnshareFlags::NEWNS)
            .map_err(forbidden("a namespace"))?;
        open_tun().map(drop)
    });
    tried.map_err(|error| error.to_string())
}

/// If the process may not create network namespaces, makes the process root of a new user
/// namespace, in which it may create them. The kernel allows this only before the process starts
/// threads.
pub(super) fn become_root_if_needed() -> Result<(), EmulationError> {
    // Do not test this by creating a namespace in a new thread: after the join the kernel might
    // still count the thread, and refuse the user namespace.
    let may = rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN));
    if may {
        return Ok(());
    }
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    sys::unshare(UnshareFlags::NEWUSER).map_err(forbidden("a user namespace"))?;
    let map = |file: &'static str, text: String| {
        std::fs::write(file, text).map_err(EmulationError::system("map the user to root"))
    };
    map("/proc/self/setgroups", "deny".into())?;
    map("/proc/self/uid_map", format!("0 {} 1", user.as_raw()))?;
    map("/proc/self/gid_map", format!("0 {} 1", group.as_raw()))
}

impl Host {
    /// Runs `work` in a new thread within this host. Threads and sockets that `work` creates belong
    /// to the host.
    pub(super) fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        in_new_thread(|| {
            let kind = Some(LinkNameSpaceType::Network);
            rustix::thread::move_into_link_name_space(self.namespace.as_fd(), kind)?;
            Ok(work())
        })
    }
}

impl Port {
    pub(super) fn drops(&self) -> u64 {
        self.drops.read()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tcp_buffer_limit_is_raised_and_never_lowered() {
        let wider = widened("4096\t16384\t4194304\n", 1 << 26);
        assert_eq!(wider.as_deref(), Some("4096 16384 67108864"));
        assert_eq!(widened("4096 16384 67108864", 1 << 26), None);
        assert_eq!(widened("4096 16384 268435456", 1 << 26), None);
        assert_eq!(widened("odd", 1 << 26), None);
    }
}
