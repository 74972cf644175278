//! The network of a client, for limits that apply to each network.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// Prefix bits of an IPv6 network: every host may use all addresses of its /64.
const PREFIX: u32 = 64;

/// The part of a client's address that the client cannot choose: an IPv4 address, or an IPv6 /64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Network(IpAddr);

impl Network {
    /// Returns the network of `address`. Link-local addresses share one /64, so each counts as a
    /// separate network.
    pub fn of(address: IpAddr) -> Network {
        Network(match address.to_canonical() {
            IpAddr::V6(ip) if !ip.is_unicast_link_local() => {
                IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() >> (128 - PREFIX) << (128 - PREFIX)))
            }
            ip => ip,
        })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V6(ip) if !ip.is_unicast_link_local() => write!(f, "{ip}/{PREFIX}"),
            ip => write!(f, "{ip}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_one_ipv4_address_or_one_link_local_address_or_one_ipv6_64_prefix() {
        let of = |text: &str| Network::of(text.parse().expect("an address"));
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
        assert_ne!(of("fe80::1"), of("fe80::2"));
        assert_eq!(of("2001:db8:1:2::1").to_string(), "2001:db8:1:2::/64");
        assert_eq!(of("192.0.2.1").to_string(), "192.0.2.1");
    }
}
