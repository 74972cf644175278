//! Device settings through rtnetlink. An ioctl for the queue length would need root on the whole
//! machine, and no ioctl limits the rate.

use std::io;

use longhaul_proto::units::Rate;
use rustix::net::{AddressFamily, SocketType};

/// Bytes of `struct nlmsghdr`.
const HEADER: usize = 16;

/// A request: its header, its fixed part, and attributes.
struct Request(Vec<u8>);

impl Request {
    /// A request for `device`, with the rest of the fixed part.
    fn new(kind: u16, flags: libc::c_int, device: i32, rest: &[u8]) -> Request {
        let mut bytes = vec![0; 4];
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(((libc::NLM_F_REQUEST | libc::NLM_F_ACK | flags) as u16).to_ne_bytes());
        bytes.extend([0; 8]); // Sequence number and port: each socket sends one request.
        bytes.extend([0; 4]); // Any family, any type.
        bytes.extend(device.to_ne_bytes());
        bytes.extend(rest);
        Request(bytes)
    }

    fn with(mut self, kind: u16, value: &[u8]) -> Request {
        self.0.extend(attribute(kind, value));
        self
    }

    fn ask(mut self) -> io::Result<()> {
        let len = self.0.len() as u32;
        self.0[..4].copy_from_slice(&len.to_ne_bytes());
        let netlink = rustix::net::socket(AddressFamily::NETLINK, SocketType::RAW, None)?;
        rustix::io::write(&netlink, &self.0)?;
        let mut answer = [0; 1024];
        let len = rustix::io::read(&netlink, &mut answer)?;
        let code = answer[..len].get(HEADER..HEADER + 4);
        let code = code.and_then(|code| code.try_into().ok()).map(i32::from_ne_bytes);
        match code {
            Some(0) => Ok(()),
            Some(error) => Err(io::Error::from_raw_os_error(-error)),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// An attribute: length, kind, value, and padding.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(4 + value.len().next_multiple_of(4));
    bytes.extend((4 + value.len() as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Sets a device's transmit queue, in packets.
pub(super) fn set_queue_length(device: i32, packets: u32) -> io::Result<()> {
    // Changes no flags.
    Request::new(libc::RTM_NEWLINK, 0, device, &[0; 8])
        .with(libc::IFLA_TXQLEN, &packets.to_ne_bytes())
        .ask()
}

/// Limits a device to `rate`, counted from the IP header on, in bursts of at most `burst` bytes
/// (`sch_tbf`, `linux/pkt_sched.h`). At most `room` bytes wait in the queue, and count against
/// their socket's send buffer, so programs have to wait.
pub(super) fn hold_back(device: i32, rate: Rate, burst: u32, room: u32) -> io::Result<()> {
    const TCA_KIND: u16 = 1;
    const TCA_OPTIONS: u16 = 2;
    const TCA_TBF_PARMS: u16 = 1;
    const TCA_TBF_BURST: u16 = 6;
    const TC_H_ROOT: u32 = 0xffff_ffff;
    const TC_LINKLAYER_ETHERNET: u8 = 1;
    // `struct tc_tbf_qopt`: the rate and a zero peak rate (12 bytes each), the room, the burst
    // (`TCA_TBF_BURST` replaces it), and the burst of the peak rate.
    const RATE: usize = 12;
    // No emulation carries more than 34 Gbit/s (2³² bytes/s).
    let bytes_per_second = u32::try_from(rate.as_bps() / 8).unwrap_or(u32::MAX);
    let mut options = [0; 2 * RATE + 12];
    options[1] = TC_LINKLAYER_ETHERNET;
    options[RATE - 4..RATE].copy_from_slice(&bytes_per_second.to_ne_bytes());
    options[2 * RATE..2 * RATE + 4].copy_from_slice(&room.to_ne_bytes());
    let mut nested = attribute(TCA_TBF_PARMS, &options);
    nested.extend(attribute(TCA_TBF_BURST, &burst.to_ne_bytes()));
    let [handle, parent, info] = [0, TC_H_ROOT, 0].map(u32::to_ne_bytes);
    let flags = libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
    Request::new(libc::RTM_NEWQDISC, flags, device, &[handle, parent, info].concat())
        .with(TCA_KIND, b"tbf\0")
        .with(TCA_OPTIONS, &nested)
        .ask()
}
