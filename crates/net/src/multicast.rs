//! Multicast groups (RFC 1112, RFC 4291): a socket that sends to a group and receives from it.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::str::FromStr;

use rustix::net::sockopt::set_ip_multicast_if_with_ifindex;
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};

use crate::access;
use crate::error::Error;
use crate::socket::request_receive_buffer;
use crate::zone;

/// Bytes of receive buffer to request: room for a burst of large messages.
const RECEIVE_BUFFER: usize = 8 << 20;

/// The address and port of a multicast group that is not reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupAddress(SocketAddr);

impl GroupAddress {
    /// Checks an address.
    ///
    /// # Errors
    /// The address is not a multicast address, is reserved, or has the port 0.
    pub fn new(address: SocketAddr) -> Result<GroupAddress, String> {
        let ip = address.ip();
        if !ip.is_multicast() {
            return Err(format!(
                "{ip} is not a multicast address; use one of 239.0.0.0/8 or ff15::"
            ));
        }
        // RFC 5771, section 4: local network control. RFC 4291, section 2.7: permanent groups.
        let is_reserved = match ip {
            IpAddr::V4(ip) => ip.octets()[..3] == [224, 0, 0],
            IpAddr::V6(ip) => ip.octets()[1] & 0x10 == 0,
        };
        if is_reserved {
            return Err(format!("the group {ip} is reserved; use one of 239.0.0.0/8 or ff15::"));
        }
        match address.port() {
            0 => Err(format!("the group {ip} needs a port")),
            port => Ok(GroupAddress(SocketAddr::new(ip, port))),
        }
    }

    /// Returns the address.
    pub fn address(self) -> SocketAddr {
        self.0
    }
}

/// A group, and how a host reaches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// The group's address.
    pub address: GroupAddress,
    /// The number of this host's interface; `None` for the interface that the routing table
    /// selects.
    pub interface: Option<u32>,
    /// How many routers a datagram may pass, plus one.
    pub hops: u8,
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.0.fmt(f)
    }
}

impl FromStr for Group {
    type Err = String;

    /// Reads `239.1.2.3:5000%eth0`, `[ff15::7]:5000` or the like. The interface must exist.
    fn from_str(text: &str) -> Result<Group, String> {
        let (address, interface) = match text.rsplit_once('%') {
            Some((address, name)) => (address, Some(interface(name).map_err(|e| e.to_string())?)),
            None => (text, None),
        };
        let wrong = |_| format!("'{text}' is not a group; write 239.1.2.3:5000 or [ff15::7]:5000");
        let address = GroupAddress::new(address.parse().map_err(wrong)?)?;
        Ok(Group { address, interface, hops: 1 })
    }
}

/// Returns the number of the interface `name` of this host.
///
/// # Errors
/// This host has no such interface.
pub fn interface(name: &str) -> Result<u32, Error> {
    zone::number(name).ok_or_else(|| {
        let what = format!("this host has no interface {name}");
        Error::new(what).advise("`ip link` lists its interfaces")
    })
}

/// Returns the interface through which this host reaches `peer`; `None` if `peer` is a loopback
/// address, or if the interface is unknown.
///
/// # Errors
/// `peer` is another address of this host, so the route leads over the loopback interface, where
/// no group of a network is.
pub fn interface_towards(peer: SocketAddr) -> Result<Option<u32>, Error> {
    let interface = match peer {
        _ if peer.ip().to_canonical().is_loopback() => return Ok(None),
        SocketAddr::V6(peer) if peer.scope_id() != 0 => Some(peer.scope_id()),
        _ => access::interface_towards(peer.ip()),
    };
    if interface.is_some_and(access::is_loopback) {
        let what = format!("the server at {} is this host, so the network is unknown", peer.ip());
        return Err(Error::new(format!("cannot join the multicast group: {what}")));
    }
    Ok(interface)
}

impl Group {
    /// Opens a non-blocking socket that sends to the group and receives all datagrams to the group,
    /// including those that this host sends.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn join(&self) -> Result<UdpSocket, Error> {
        self.open().map_err(|error| {
            let error = Error::new(format!("cannot join the multicast group {self}: {error}"));
            error.advise("name the interface of this host that leads to the group")
        })
    }

    fn open(&self) -> io::Result<UdpSocket> {
        let Group { address: GroupAddress(address), interface, hops } = *self;
        let domain = Domain::for_address(address);
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        // Other programs of this host may receive from the group too.
        socket.set_reuse_address(true)?;
        let number = interface.unwrap_or(0);
        match address.ip() {
            IpAddr::V4(group) => {
                socket.set_multicast_all_v4(false)?;
                socket.set_multicast_loop_v4(true)?;
                socket.set_multicast_ttl_v4(hops.into())?;
                if number > 0 {
                    let any = Ipv4Addr::UNSPECIFIED;
                    set_ip_multicast_if_with_ifindex(&socket, &group, &any, number)?;
                }
                // A socket bound to the group gets nothing that is sent to this host's own address.
                socket.bind(&address.into())?;
                socket.join_multicast_v4_n(&group, &InterfaceIndexOrAddress::Index(number))?;
            }
            IpAddr::V6(group) => {
                socket.set_only_v6(true)?;
                socket.set_multicast_all_v6(false)?;
                socket.set_multicast_loop_v6(true)?;
                socket.set_multicast_hops_v6(hops.into())?;
                if number > 0 {
                    socket.set_multicast_if_v6(number)?;
                }
                socket.bind(&address.into())?;
                socket.join_multicast_v6(&group, number)?;
            }
        }
        socket.set_nonblocking(true)?;
        let socket = UdpSocket::from(socket);
        request_receive_buffer(&socket, RECEIVE_BUFFER)?;
        Ok(socket)
    }
}

#[cfg(test)]
mod tests {
    use longhaul_testbed::{need, skip};

    use super::*;

    #[test]
    fn group_addresses_are_parsed_and_others_refused() {
        let group: Group = "239.1.2.3:5000%lo".parse().unwrap();
        assert_eq!(group.address.0, "239.1.2.3:5000".parse().unwrap());
        assert!(group.interface.is_some() && group.hops == 1);
        let group: Group = "[ff15::7]:5000".parse().unwrap();
        assert_eq!((group.to_string(), group.interface), ("[ff15::7]:5000".to_owned(), None));
        for (wrong, why) in [
            ("239.1.2.3", "is not a group"),
            ("239.1.2.3:5000%nosuch0", "no interface nosuch0"),
            ("10.0.0.1:5000", "not a multicast address"),
            ("[fe80::1]:5000", "not a multicast address"),
            ("224.0.0.1:5000", "is reserved"),
            ("[ff02::1]:5000", "is reserved"),
            ("239.1.2.3:0", "needs a port"),
        ] {
            assert!(wrong.parse::<Group>().unwrap_err().contains(why), "{wrong}");
        }
    }

    #[test]
    fn a_server_at_another_address_of_this_host_shows_no_interface_to_its_group() {
        assert_eq!(interface_towards("127.0.0.1:7717".parse().unwrap()), Ok(None));
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        // No datagram is sent to this address, which belongs to no network.
        need!(socket.connect("192.0.2.1:7717").map_err(skip::forbidden));
        let error = interface_towards(socket.local_addr().unwrap()).unwrap_err();
        assert!(error.what.contains("is this host"), "{error}");
    }

    #[test]
    fn two_sockets_of_one_host_both_receive_what_is_sent_to_a_group() {
        for text in ["239.77.1.2:47811%lo", "[ff15::4d:2]:47812%lo"] {
            let group: Group = text.parse().unwrap();
            let one = need!(group.join().map_err(skip::forbidden));
            let two = group.join().unwrap();
            // A host without IPv6 or without a route to the group refuses.
            need!(one.send_to(b"hello", group.address.0).map_err(skip::forbidden));
            for socket in [one, two] {
                socket.set_nonblocking(false).unwrap();
                let mut bytes = [0; 10];
                assert_eq!(socket.recv(&mut bytes).unwrap(), 5);
            }
        }
    }
}
