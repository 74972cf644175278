//! IPv6 addresses with a zone, `fe80::1%eth0`. A link-local address is complete only with the
//! interface of this host that leads to it (RFC 4007, section 11).

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};

use rustix::net::{AddressFamily, SocketType, netdevice, socket};

use crate::error::Error;

/// Reads an IPv6 address from within brackets, with or without a zone. The zone follows `%`, or
/// `%25` as in a URI (RFC 6874); the returned text has `%`.
///
/// # Errors
/// The mistake in the address.
pub fn read(text: &str) -> Result<String, &'static str> {
    let (address, zone) = split(text);
    let ip = address.parse::<Ipv6Addr>().map_err(|_| "no IPv6 address within the brackets")?;
    let Some(zone) = zone else { return Ok(address.to_owned()) };
    // A lone 25 is an interface number.
    let zone = zone.strip_prefix("25").filter(|zone| !zone.is_empty()).unwrap_or(zone);
    if zone.is_empty() {
        return Err("no interface after the '%'");
    }
    if !ip.is_unicast_link_local() {
        return Err("an interface after an address that is not link-local (fe80::)");
    }
    Ok(format!("{address}%{zone}"))
}

/// Writes an address in the form that [`read`] reads within brackets.
pub fn write(host: &str) -> String {
    match host.split_once('%') {
        // The parser would read "25" as part of the percent sign.
        Some((address, zone)) if zone.starts_with("25") => format!("{address}%25{zone}"),
        _ => host.to_owned(),
    }
}

/// Returns the address in `host` if the address has a zone; `None` for a name, or for an address
/// that needs no zone.
///
/// # Errors
/// A link-local address has no zone, or the zone names an interface that this host does not have.
pub fn address(host: &str, port: u16) -> Result<Option<SocketAddr>, Error> {
    let (address, zone) = split(host);
    let Ok(ip) = address.parse::<Ipv6Addr>() else { return Ok(None) };
    let Some(zone) = zone else {
        if !ip.is_unicast_link_local() {
            return Ok(None);
        }
        let what = format!("the link-local address {ip} needs an interface");
        let advice = format!("write [{ip}%eth0], with the interface of this host that leads to it");
        return Err(Error::new(what).advise(advice));
    };
    let scope = number(zone).ok_or_else(|| {
        let what = format!("this host has no interface {zone}, which {host} names");
        Error::new(what).advise("`ip link` lists its interfaces")
    })?;
    Ok(Some(SocketAddrV6::new(ip, port, 0, scope).into()))
}

fn split(text: &str) -> (&str, Option<&str>) {
    text.split_once('%').map_or((text, None), |(address, zone)| (address, Some(zone)))
}

pub(crate) fn number(zone: &str) -> Option<u32> {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None).ok()?;
    netdevice::name_to_index(&socket, zone).ok().or_else(|| {
        let number = zone.parse().ok()?;
        netdevice::index_to_name(&socket, number).ok()?;
        Some(number)
    })
}

/// Returns the host part of `address`, in the form that [`address`](address()) reads.
pub fn host(address: SocketAddr) -> String {
    match address {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => format!("{}%{}", v6.ip(), v6.scope_id()),
        _ => address.ip().to_string(),
    }
}

/// Returns `address` with another port; host and zone stay.
pub fn at_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

/// Returns an IPv4-mapped IPv6 address as IPv4. Any other address keeps its zone; the flow label of
/// IPv6 is dropped.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) if v6.ip().to_ipv4_mapped().is_none() => {
            SocketAddrV6::new(*v6.ip(), v6.port(), 0, v6.scope_id()).into()
        }
        _ => SocketAddr::new(address.ip().to_canonical(), address.port()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_follows_a_percent_sign_plain_or_encoded_as_in_a_uri() {
        for (text, said) in [
            ("::1", "::1"),
            ("fe80::1%eth0", "fe80::1%eth0"),
            ("fe80::1%25eth0", "fe80::1%eth0"),
            ("fe80::1%3", "fe80::1%3"),
            ("fe80::1%25", "fe80::1%25"),
            ("fe80::1%251", "fe80::1%1"),
            ("fe80::1%2525gbe", "fe80::1%25gbe"),
        ] {
            let read_as = read(text);
            assert_eq!(read_as.as_deref(), Ok(said), "{text}");
            assert_eq!(read(&write(said)).as_deref(), Ok(said));
        }
        for (text, said) in [
            ("host", "no IPv6 address"),
            ("1.2.3.4%eth0", "no IPv6 address"),
            ("fe80::1%", "no interface"),
            ("2001:db8::1%eth0", "not link-local"),
        ] {
            assert!(read(text).unwrap_err().contains(said), "{text}");
        }
    }

    #[test]
    fn an_interface_is_found_by_name_or_number_and_a_missing_one_is_named() {
        let by_name = address("fe80::1%lo", 9).unwrap().unwrap();
        let SocketAddr::V6(v6) = by_name else { panic!("{by_name}") };
        assert!(v6.scope_id() > 0 && v6.port() == 9);
        assert_eq!(address(&host(by_name), 9), Ok(Some(by_name)));
        for unknown in ["fe80::1%nosuch0", "fe80::1%4294967295", "fe80::1%a-name-far-too-long"] {
            let error = address(unknown, 9).unwrap_err();
            let zone = unknown.split_once('%').unwrap().1;
            assert!(error.what.contains(&format!("no interface {zone},")), "{error}");
        }
        assert!(address("fe80::1", 9).unwrap_err().to_string().contains("[fe80::1%eth0]"));
        for other in ["localhost", "::1", "192.0.2.1"] {
            assert_eq!(address(other, 9), Ok(None), "{other}");
        }
    }

    #[test]
    fn host_canonical_and_at_port_keep_the_zone_of_an_address() {
        let zoned: SocketAddr = "[fe80::1%7]:9".parse().unwrap();
        assert_eq!((host(zoned).as_str(), canonical(zoned)), ("fe80::1%7", zoned));
        assert_eq!(at_port(zoned, 8).to_string(), "[fe80::1%7]:8");
        let mapped: SocketAddr = "[::ffff:192.0.2.1]:9".parse().unwrap();
        assert_eq!(canonical(mapped).to_string(), "192.0.2.1:9");
        assert_eq!(host(canonical(mapped)), "192.0.2.1");
    }
}
