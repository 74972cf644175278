//! System calls for which neither rustix, socket2 nor quinn-udp has a safe form.
//!
//! - `SO_MEMINFO`: packets that the kernel dropped for lack of receive buffer.
//! - `TCP_INFO`: segments that a connection has sent and resent, acknowledged bytes, and the
//!   round-trip time.
//! - `recvmsg` into many slices, with the segment size of merged datagrams. rustix and socket2 hide
//!   the control message with that size; quinn-udp takes only one slice a message.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::time::Duration;

use crate::zone;

/// `SK_MEMINFO_DROPS` and `SK_MEMINFO_VARS` of linux/sock_diag.h.
const DROPS: usize = 8;
const VARS: usize = 9;

/// Returns the number of packets that the kernel dropped at this socket since it was opened; merged
/// datagrams count as one packet. The number wraps at 2³².
pub(crate) fn socket_drops(socket: impl AsFd) -> io::Result<u32> {
    let mut memory = [0u32; VARS];
    ask(socket, libc::SOL_SOCKET, libc::SO_MEMINFO, &mut memory)?;
    Ok(memory[DROPS])
}

/// Counts of segments of the kernel's TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segments {
    /// Segments with data, including resent ones.
    pub sent: u64,
    /// Resent segments.
    pub retransmitted: u64,
}

impl Segments {
    /// Returns the resent segments as a share of the segments sent for the first time.
    pub fn waste(&self) -> f64 {
        self.retransmitted as f64 / self.sent.saturating_sub(self.retransmitted).max(1) as f64
    }
}

/// Returns the counts of a TCP connection: segments with data, and resent ones.
pub fn tcp_segments(socket: impl AsFd) -> io::Result<Segments> {
    const TOTAL_RETRANS: usize = 25;
    const DATA_SEGS_OUT: usize = 39;
    let [sent, retransmitted] = tcp_info(socket, [DATA_SEGS_OUT, TOTAL_RETRANS])?.map(u64::from);
    Ok(Segments { sent, retransmitted })
}

/// Returns the smoothed round-trip time of a TCP connection, once it is known.
pub fn tcp_round_trip(socket: impl AsFd) -> io::Result<Option<Duration>> {
    const RTT: usize = 17;
    let [micros] = tcp_info(socket, [RTT])?;
    Ok((micros > 0).then(|| Duration::from_micros(micros.into())))
}

/// Returns how many bytes of a TCP connection the other host has acknowledged.
pub fn tcp_acknowledged(socket: impl AsFd) -> io::Result<u64> {
    const BYTES_ACKED: usize = 30;
    let [first, second] = tcp_info(socket, [BYTES_ACKED, BYTES_ACKED + 1])?;
    // The kernel writes one number of 64 bits.
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&first.to_ne_bytes());
    bytes[4..].copy_from_slice(&second.to_ne_bytes());
    Ok(u64::from_ne_bytes(bytes))
}

/// Returns the given 32-bit words of `struct tcp_info` (linux/tcp.h), which only grows at its end.
fn tcp_info<const N: usize>(socket: impl AsFd, which: [usize; N]) -> io::Result<[u32; N]> {
    let mut words = [0u32; 64];
    let reported = ask(socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut words)?;
    if which.iter().any(|word| *word >= reported.len()) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(which.map(|word| reported[word]))
}

/// Reads a socket option into `words`; returns the words that the kernel wrote. If the option is
/// longer than `words`, reads only the option's beginning.
fn ask(
    socket: impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
    words: &mut [u32],
) -> io::Result<&[u32]> {
    let mut len = size_of_val(words) as libc::socklen_t;
    // SAFETY: pointer and length are those of a live slice that the kernel fills up to `len`; any
    // bit pattern is a valid u32.
    let failed = unsafe {
        let fd = socket.as_fd().as_raw_fd();
        libc::getsockopt(fd, level, option, words.as_mut_ptr().cast(), &mut len)
    };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    let reported = (len as usize / size_of::<u32>()).min(words.len());
    Ok(&words[..reported])
}

pub(crate) struct Scattered {
    /// Total bytes, over the slices in their order.
    pub(crate) len: usize,
    /// The size of each merged datagram; the last one may be shorter.
    pub(crate) stride: usize,
    pub(crate) from: SocketAddr,
    /// The local address to which the datagrams were sent.
    pub(crate) to: Option<IpAddr>,
    /// Time since 1970 at which the kernel received the message.
    pub(crate) stamp: Option<Duration>,
}

/// Bytes of a `sockaddr_in6`, which is longer than a `sockaddr_in`.
const NAME_LEN: usize = 28;
const CONTROL_WORDS: usize = 32;

#[repr(align(8))]
struct Name([u8; NAME_LEN]);

/// Receives one message into at most 1024 `slices`; `WouldBlock` if there is no message.
pub(crate) fn receive_scattered(
    socket: impl AsFd,
    slices: &mut [IoSliceMut<'_>],
) -> io::Result<Scattered> {
    let mut name = Name([0; NAME_LEN]);
    let mut control = [0u64; CONTROL_WORDS];
    // SAFETY: all zeros are a valid msghdr. Every pointer in it points to a live buffer, and its
    // length field has that buffer's length; the standard library guarantees that an IoSliceMut is
    // an iovec.
    let (result, control_len) = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_name = ptr::from_mut(&mut name.0).cast();
        message.msg_namelen = NAME_LEN as libc::socklen_t;
        message.msg_iov = slices.as_mut_ptr().cast();
        message.msg_iovlen = slices.len() as _;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        let fd = socket.as_fd().as_raw_fd();
        let result = libc::recvmsg(fd, &mut message, libc::MSG_DONTWAIT);
        (result, message.msg_controllen as usize)
    };
    let len = usize::try_from(result).map_err(|_| io::Error::last_os_error())?;
    let from = parse_name(&name.0)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a datagram without source"))?;
    let mut scattered = Scattered { len, stride: len.max(1), from, to: None, stamp: None };
    let mut bytes = [0; CONTROL_WORDS * 8];
    for (to, word) in bytes.chunks_exact_mut(8).zip(control) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    let mut rest = &bytes[..control_len.min(bytes.len())];
    while let Some((level, kind, payload, next)) = next_control(rest) {
        scattered.note(level, kind, payload);
        rest = next;
    }
    Ok(scattered)
}

impl Scattered {
    fn note(&mut self, level: i32, kind: i32, payload: &[u8]) {
        match (level, kind) {
            (libc::SOL_UDP, libc::UDP_GRO) => {
                if let Some(stride) = payload.first_chunk() {
                    self.stride = usize::try_from(i32::from_ne_bytes(*stride)).unwrap_or(1).max(1);
                }
            }
            // The payload is a timespec.
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                let word = |at: usize| Some(i64::from_ne_bytes(*payload.get(at..)?.first_chunk()?));
                let parts = word(0).zip(word(8));
                let parts = parts.and_then(|(s, ns)| s.try_into().ok().zip(ns.try_into().ok()));
                self.stamp = parts.map(|(seconds, nanos)| Duration::new(seconds, nanos));
            }
            // in_pktinfo: interface, our address, the header's destination.
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                let address = payload.get(8..).and_then(|rest| rest.first_chunk::<4>());
                self.to = address.map(|bytes| Ipv4Addr::from(*bytes).into());
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                self.to = payload.first_chunk::<16>().map(|bytes| Ipv6Addr::from(*bytes).into());
            }
            _ => {}
        }
    }
}

/// Returns the first control message of `bytes`: level, type, payload, and the rest.
fn next_control(bytes: &[u8]) -> Option<(i32, i32, &[u8], &[u8])> {
    const WORD: usize = size_of::<usize>();
    const HEAD: usize = WORD + 8;
    let len = usize::from_ne_bytes(*bytes.first_chunk::<WORD>()?);
    let level = i32::from_ne_bytes(*bytes.get(WORD..)?.first_chunk()?);
    let kind = i32::from_ne_bytes(*bytes.get(WORD + 4..)?.first_chunk()?);
    let payload = bytes.get(HEAD..len)?;
    let next = bytes.get(len.next_multiple_of(WORD)..).unwrap_or_default();
    Some((level, kind, payload, next))
}

fn parse_name(bytes: &[u8; NAME_LEN]) -> Option<SocketAddr> {
    let family = i32::from(u16::from_ne_bytes([bytes[0], bytes[1]]));
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    let address: SocketAddr = match family {
        libc::AF_INET => (Ipv4Addr::from(*bytes[4..].first_chunk::<4>()?), port).into(),
        libc::AF_INET6 => {
            let ip = Ipv6Addr::from(*bytes[8..].first_chunk::<16>()?);
            let scope = u32::from_ne_bytes(*bytes.last_chunk()?);
            SocketAddrV6::new(ip, port, 0, scope).into()
        }
        _ => return None,
    };
    Some(zone::canonical(address))
}
