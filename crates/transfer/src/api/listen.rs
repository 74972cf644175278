//! Parses the address on which a server listens.

use std::net::SocketAddr;

use longhaul_net::zone;

use crate::error::public::{Error, ErrorKind};
use crate::location::DEFAULT_PORT;

/// Parses `ADDRESS:PORT`, `ADDRESS` (the port is 7717), `:PORT` or `PORT` (all addresses). A
/// link-local address needs its interface: `[fe80::1%eth0]:PORT`. `localhost` means 127.0.0.1.
///
/// # Errors
/// [`ErrorKind::Usage`]: the text is not an address, a link-local address has no interface, or this
/// host has no such interface.
pub fn parse(text: &str) -> Result<SocketAddr, Error> {
    let usage = |what: String| Error::new(ErrorKind::Usage, what);
    let expected = || {
        usage(
            "expected an address such as [::]:7717, [fe80::1%eth0]:7717, 192.0.2.1 or :7717".into(),
        )
    };
    let (host, port) = split(text).ok_or_else(expected)?;
    let host = match host.contains('%') {
        true => zone::read(host).map_err(|why| usage(why.into()))?,
        false => host.to_owned(),
    };
    let host = if host == "localhost" { "127.0.0.1".to_owned() } else { host };
    match zone::address(&host, port) {
        Ok(Some(address)) => Ok(address),
        Ok(None) => {
            let ip = host.parse().map_err(|_| expected())?;
            Ok(SocketAddr::new(ip, port))
        }
        Err(error) => Err(usage(error.to_string())),
    }
}

/// Splits into address and port; a port without an address means all addresses.
fn split(text: &str) -> Option<(&str, u16)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        // An IPv6 address alone has more than one colon.
        None => match text.rsplit_once(':') {
            Some(("", _)) => ("::", text),
            None if text.parse::<u16>().is_ok_and(|port| port > 0) => {
                return Some(("::", text.parse().ok()?));
            }
            Some((host, _)) if !host.contains(':') => text.split_at(host.len()),
            _ => (text, ""),
        },
    };
    match port.strip_prefix(':') {
        Some(port) => Some((host, port.parse().ok()?)),
        None => port.is_empty().then_some((host, DEFAULT_PORT)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_or_a_port_alone_is_enough() {
        let text = |listen: &str| {
            parse(listen).map(|address| address.to_string()).map_err(|error| error.to_string())
        };
        assert_eq!(text("127.0.0.1:9").unwrap(), "127.0.0.1:9");
        assert_eq!(text("::1").unwrap(), "[::1]:7717");
        assert_eq!(text("[::]").unwrap(), "[::]:7717");
        assert_eq!(text("[::1]:9").unwrap(), "[::1]:9");
        assert_eq!(text("192.0.2.1").unwrap(), "192.0.2.1:7717");
        assert_eq!(text(":9").unwrap(), "[::]:9");
        assert_eq!(text("7801").unwrap(), "[::]:7801");
        assert_eq!(text("localhost:9").unwrap(), "127.0.0.1:9");
        let zoned = text("[fe80::1%lo]:9").unwrap();
        assert!(zoned.starts_with("[fe80::1%") && zoned.ends_with("]:9"), "{zoned}");
        assert_eq!(text("[fe80::1%25lo]:9").as_ref(), Ok(&zoned));
        assert_eq!(text("fe80::1%lo").unwrap(), zoned.replace("]:9", "]:7717"));
        assert!(text("[fe80::1%nosuch0]:9").unwrap_err().contains("no interface nosuch0"));
        assert!(text("[fe80::1]:9").unwrap_err().contains("[fe80::1%eth0]"));
        for wrong in ["dtn:9", "70000", "", "[]:9", "[::]9", "1.2.3.4:", "[::1:9"] {
            assert!(text(wrong).unwrap_err().contains("[::]:7717"), "{wrong}");
        }
    }
}
