//! Queries to the kernel through netlink (RFC 3549).
//!
//! The kernel answers for the network namespace of this process; sysfs shows the namespace in which
//! it was mounted, which may differ. The kernel answers while the query is sent, so nothing here
//! waits.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, netlink, socket_with};

/// Bytes of the header of a message.
const HEADER: usize = 16;
/// Bytes of the header of an attribute.
const ATTRIBUTE: usize = 4;
/// Maximum bytes that one `read` of the kernel's answer returns.
const ANSWER: usize = 32 << 10;
/// Maximum number of reads for a query. Connections that do not fit into these reads are left out.
const MOST_ANSWERS: usize = 64;

const REQUEST: u16 = libc::NLM_F_REQUEST as u16;
const LISTING: u16 = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;

/// `SOCK_DIAG_BY_FAMILY` of linux/sock_diag.h.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// `TCP_ESTABLISHED` of net/tcp_states.h.
const ESTABLISHED: u32 = 1;
/// `INET_DIAG_INFO` of linux/inet_diag.h.
const INET_DIAG_INFO: u16 = 2;
/// Offset of the source address in `struct inet_diag_msg`.
const DIAG_SOURCE: usize = 8;
/// Offset of the destination address in `struct inet_diag_msg`.
const DIAG_DESTINATION: usize = 24;
/// Offset of the cookie in `struct inet_diag_msg`.
const DIAG_COOKIE: usize = 44;
/// Bytes of `struct inet_diag_msg`.
const DIAG_LEN: usize = 72;
/// Offset of the received bytes in `struct tcp_info` (linux/tcp.h), which only grows at its end.
const BYTES_RECEIVED: usize = 128;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) name: String,
    /// The interface's link type: an ARP hardware type (`ARPHRD_…`).
    pub(super) kind: u16,
    /// Received bytes, link headers included.
    pub(super) bytes: u64,
    /// Received packets.
    pub(super) packets: u64,
}

/// An established TCP connection with another host, and the bytes that this host received over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Connection {
    /// The kernel's identifier of the socket.
    pub(super) cookie: [u8; 8],
    pub(super) received: u64,
}

/// Returns the number of the interface through which packets to `address` leave.
pub(super) fn route_to(address: IpAddr) -> io::Result<u32> {
    let (family, bytes) = match address.to_canonical() {
        IpAddr::V4(ip) => (libc::AF_INET, ip.octets().to_vec()),
        IpAddr::V6(ip) => (libc::AF_INET6, ip.octets().to_vec()),
    };
    // struct rtmsg: only the family and the length of the prefix.
    let mut question = vec![family as u8, bytes.len() as u8 * 8];
    question.resize(12, 0);
    put_attribute(&mut question, libc::RTA_DST, &bytes);
    let mut found = None;
    ask(None, libc::RTM_GETROUTE, REQUEST, &question, |body| {
        found = attribute(body.get(12..)?, libc::RTA_OIF).and_then(number);
        Some(())
    })?;
    found.map(u32::from_ne_bytes).ok_or_else(|| io::ErrorKind::NotFound.into())
}

pub(super) fn interface(index: u32) -> io::Result<Interface> {
    // struct ifinfomsg: family, padding, kind, number, flags, change.
    let mut question = vec![0; 16];
    question[4..8].copy_from_slice(&index.to_ne_bytes());
    let mut found = None;
    ask(None, libc::RTM_GETLINK, REQUEST, &question, |body| {
        found = parse_interface(body);
        Some(())
    })?;
    found.ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn parse_interface(body: &[u8]) -> Option<Interface> {
    let kind = u16::from_ne_bytes(number(body.get(2..)?)?);
    let attributes = body.get(16..)?;
    let name = attribute(attributes, libc::IFLA_IFNAME)?;
    let name = name.split(|byte| *byte == 0).next()?;
    // struct rtnl_link_stats64: packets in and out, bytes in and out, …
    let counted = attribute(attributes, libc::IFLA_STATS64)?;
    let count = |at: usize| Some(u64::from_ne_bytes(number(counted.get(at..)?)?));
    let name = String::from_utf8_lossy(name).into_owned();
    Some(Interface { name, kind, packets: count(0)?, bytes: count(16)? })
}

/// Returns the established TCP connections between this host and others, over IPv4 and IPv6.
pub(super) fn connections() -> io::Result<Vec<Connection>> {
    let mut all = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        // struct inet_diag_req_v2: family, protocol, requested extensions, padding, states, socket.
        let mut question = vec![family as u8, libc::IPPROTO_TCP as u8, 1 << (INET_DIAG_INFO - 1)];
        question.resize(4, 0);
        question.extend((1u32 << ESTABLISHED).to_ne_bytes());
        question.resize(56, 0);
        ask(Some(netlink::SOCK_DIAG), SOCK_DIAG_BY_FAMILY, LISTING, &question, |body| {
            all.extend(parse_connection(body));
            None
        })?;
    }
    Ok(all)
}

/// Parses a connection; `None` if it is within this host, or if the message is too short.
fn parse_connection(body: &[u8]) -> Option<Connection> {
    let (source, destination) = (body.get(DIAG_SOURCE..24)?, body.get(DIAG_DESTINATION..40)?);
    // A connection to one of the host's own addresses, such as 127.0.0.1, has that address at both
    // ends.
    if source == destination {
        return None;
    }
    let cookie = number(body.get(DIAG_COOKIE..)?)?;
    let reported = attribute(body.get(DIAG_LEN..)?, INET_DIAG_INFO)?;
    let received = u64::from_ne_bytes(number(reported.get(BYTES_RECEIVED..)?)?);
    Some(Connection { cookie, received })
}

fn number<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    bytes.first_chunk().copied()
}

fn put_attribute(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    message.extend(((ATTRIBUTE + value.len()) as u16).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(value);
    message.resize(message.len().next_multiple_of(4), 0);
}

/// Returns the value of the first attribute of this kind.
fn attribute(mut attributes: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let len = usize::from(u16::from_ne_bytes(number(attributes)?));
        let found = u16::from_ne_bytes(number(attributes.get(2..)?)?);
        let value = attributes.get(ATTRIBUTE..len)?;
        if found == kind {
            return Some(value);
        }
        attributes = attributes.get(len.next_multiple_of(4)..)?;
    }
}

/// Sends a query and passes the body of each answer message to `each`, until `each` returns
/// `Some`.
fn ask(
    protocol: Option<Protocol>,
    kind: u16,
    flags: u16,
    question: &[u8],
    mut each: impl FnMut(&[u8]) -> Option<()>,
) -> io::Result<()> {
    let socket_flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket: OwnedFd =
        socket_with(AddressFamily::NETLINK, SocketType::RAW, socket_flags, protocol)?;
    let mut message = Vec::with_capacity(HEADER + question.len());
    message.extend(((HEADER + question.len()) as u32).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    // Sequence and sender are unused: the socket serves one query.
    message.extend([0; 8]);
    message.extend(question);
    rustix::io::write(&socket, &message)?;
    let mut answer = vec![0; ANSWER];
    for _ in 0..MOST_ANSWERS {
        let len = rustix::io::read(&socket, &mut answer[..])?;
        if read_answer(&answer[..len], &mut each)? {
            return Ok(());
        }
    }
    Ok(())
}

/// Parses the messages that one `read` returned. Returns true if no further `read` is needed: the
/// answer is complete, or `each` returned `Some`.
fn read_answer(mut answer: &[u8], each: &mut impl FnMut(&[u8]) -> Option<()>) -> io::Result<bool> {
    const ERROR: u16 = libc::NLMSG_ERROR as u16;
    const DONE: u16 = libc::NLMSG_DONE as u16;
    let short = || io::Error::from(io::ErrorKind::UnexpectedEof);
    while !answer.is_empty() {
        let len = number(answer).map(u32::from_ne_bytes).ok_or_else(short)? as usize;
        let kind = answer.get(4..).and_then(number).map(u16::from_ne_bytes).ok_or_else(short)?;
        let body = answer.get(HEADER..len).ok_or_else(short)?;
        match kind {
            ERROR => {
                let code = number(body).map(i32::from_ne_bytes).ok_or_else(short)?;
                return match code {
                    0 => Ok(true),
                    code => Err(io::Error::from_raw_os_error(code.saturating_neg())),
                };
            }
            DONE => return Ok(true),
            _ if each(body).is_some() => return Ok(true),
            _ => {}
        }
        answer = answer.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_testbed::{need, skip};
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    #[test]
    fn the_route_to_this_host_is_the_loopback_which_has_counters() {
        let no_netlink = |error| skip::forbidden(format!("no netlink here: {error}"));
        let index = need!(route_to(Ipv4Addr::LOCALHOST.into()).map_err(no_netlink));
        let before = interface(index).unwrap();
        assert_eq!((before.name.as_str(), before.kind), ("lo", libc::ARPHRD_LOOPBACK));
        let socket = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.send_to(&[0; 1000], socket.local_addr().unwrap()).unwrap();
        let after = interface(index).unwrap();
        assert!(after.bytes >= before.bytes + 1028 && after.packets > before.packets);
        assert!(interface(u32::MAX >> 1).is_err());
    }

    #[test]
    fn connections_within_this_host_are_left_out() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut there, _) = listener.accept().unwrap();
        there.write_all(b"12345").unwrap();
        here.read_exact(&mut [0; 5]).unwrap();
        // A sandbox may have no netlink.
        let all = connections().unwrap_or_default();
        assert!(all.iter().all(|connection| connection.received != 5));
    }

    fn of_connection(source: [u8; 4], destination: [u8; 4], received: u64) -> Vec<u8> {
        let mut body = vec![0; DIAG_LEN];
        body[DIAG_SOURCE..][..4].copy_from_slice(&source);
        body[DIAG_DESTINATION..][..4].copy_from_slice(&destination);
        body[DIAG_COOKIE..][..8].copy_from_slice(&[7; 8]);
        let mut reported = vec![0; BYTES_RECEIVED];
        reported.extend(received.to_ne_bytes());
        put_attribute(&mut body, 1, b"odd");
        put_attribute(&mut body, INET_DIAG_INFO, &reported);
        body
    }

    #[test]
    fn received_bytes_of_a_connection_are_parsed_and_truncated_messages_ignored() {
        let body = of_connection([10, 0, 0, 1], [10, 0, 0, 2], 99);
        let expected = Connection { cookie: [7; 8], received: 99 };
        assert_eq!(parse_connection(&body), Some(expected));
        assert_eq!(parse_connection(&of_connection([127, 0, 0, 1], [127, 0, 0, 1], 99)), None);
        for len in 0..body.len() {
            assert_eq!(parse_connection(&body[..len]), None, "{len}");
        }
    }

    #[test]
    fn an_interface_is_parsed_and_truncated_messages_ignored() {
        let mut body = vec![0; 16];
        body[2..4].copy_from_slice(&1u16.to_ne_bytes());
        put_attribute(&mut body, libc::IFLA_IFNAME, b"eth0\0");
        let counted: Vec<u8> = [5u64, 6, 7000, 8000].iter().flat_map(|n| n.to_ne_bytes()).collect();
        put_attribute(&mut body, libc::IFLA_STATS64, &counted);
        let found = Interface { name: "eth0".into(), kind: 1, bytes: 7000, packets: 5 };
        assert_eq!(parse_interface(&body), Some(found));
        for len in 0..body.len() {
            assert_eq!(parse_interface(&body[..len]), None, "{len}");
        }
    }

    #[test]
    fn an_answer_ends_at_its_end_mark_and_errors_of_the_kernel_are_returned() {
        let message = |kind: u16, body: &[u8]| {
            let mut bytes = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
            bytes.extend(kind.to_ne_bytes());
            bytes.resize(HEADER, 0);
            bytes.extend(body);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let mut seen = Vec::new();
        let mut read = |answer: &[u8]| {
            read_answer(answer, &mut |body: &[u8]| {
                seen.push(body.len());
                None
            })
        };
        let two = [message(16, &[1; 5]), message(16, &[2; 8])].concat();
        assert!(matches!(read(&two), Ok(false)));
        assert!(matches!(read(&[two.clone(), message(3, &[0; 4])].concat()), Ok(true)));
        let error = read(&message(2, &(-libc::ENODEV).to_ne_bytes())).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
        assert!(read(&two[..7]).is_err() && read(&two[..20]).is_err());
        // A length of zero does not cause an endless loop.
        assert!(read(&[0; 16]).is_err());
        assert_eq!(seen, [5, 8, 5, 8]);
    }
}
