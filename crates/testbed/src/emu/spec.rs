//! What is to be emulated: hosts and the links between them.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::EmulationError;
use crate::link::LinkSpec;
use crate::scenario::LinkBetween;

/// The most hosts: each has a last byte of an address.
pub const MAX_HOSTS: usize = 200;

/// Hosts, and a link for each direction in which two of them can speak.
#[derive(Clone, Debug)]
pub struct EmulationSpec {
    /// The hosts' names; programs on any host can resolve them.
    pub hosts: Vec<String>,
    /// One-way links between hosts. Where none is, packets are dropped and counted.
    pub links: Vec<LinkBetween>,
    /// The largest IP packet on every host's device, at least 1280 for IPv6 to work.
    pub mtu: u16,
    /// Determines every random fate, as far as the programs' own timing does not.
    pub seed: u64,
}

/// Where a host can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostAddresses {
    /// Its IPv4 address, 10.77.0.N.
    pub v4: Ipv4Addr,
    /// Its IPv6 address, fd77::N.
    pub v6: Ipv6Addr,
}

impl HostAddresses {
    /// The addresses of the host at place `index`.
    pub(super) fn of(index: usize) -> HostAddresses {
        let last = u8::try_from(index + 1).expect("checked against MAX_HOSTS");
        HostAddresses {
            v4: Ipv4Addr::new(10, 77, 0, last),
            v6: Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, last.into()),
        }
    }
}

impl EmulationSpec {
    /// Two hosts, `a` and `b`, with `forward` from a to b and `back` from b to a; MTU 1500.
    pub fn pair(forward: LinkSpec, back: LinkSpec) -> EmulationSpec {
        EmulationSpec {
            hosts: vec!["a".into(), "b".into()],
            links: vec![
                LinkBetween { from: 0, to: 1, link: forward },
                LinkBetween { from: 1, to: 0, link: back },
            ],
            mtu: 1500,
            seed: 1,
        }
    }

    pub(super) fn validate(&self) -> Result<(), EmulationError> {
        let error = |what: String| Err(EmulationError::Spec(what));
        let n = self.hosts.len();
        if n == 0 || n > MAX_HOSTS {
            return error(format!("{n} hosts; there can be 1 to {MAX_HOSTS}"));
        }
        for (i, name) in self.hosts.iter().enumerate() {
            let sound = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
            if name.is_empty() || name.len() > 63 || !name.bytes().all(sound) {
                return error(format!("host name {name:?}: letters, digits and - only"));
            }
            if self.hosts[..i].contains(name) {
                return error(format!("two hosts are named {name}"));
            }
        }
        if self.mtu < 576 {
            return error(format!("an MTU of {} bytes; the least is 576", self.mtu));
        }
        for (i, between) in self.links.iter().enumerate() {
            let (from, to) = (between.from, between.to);
            if from >= n || to >= n || from == to {
                return error(format!("a link from host {from} to host {to} of {n}"));
            }
            if self.links[..i].iter().any(|l| (l.from, l.to) == (from, to)) {
                return error(format!("two links from {} to {}", self.hosts[from], self.hosts[to]));
            }
            between.link.validate(self.mtu.into()).map_err(|error| EmulationError::Link {
                from: self.hosts[from].clone(),
                to: self.hosts[to].clone(),
                error,
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emulation_that_cannot_be_is_refused_with_the_reason() {
        let pair = || EmulationSpec::pair(LinkSpec::default(), LinkSpec::default());
        assert!(pair().validate().is_ok());
        let mut doubled = pair();
        doubled.links.extend(pair().links);
        let mut lonely = pair();
        lonely.links[0].to = 7;
        let named = |a: &str, b: &str| EmulationSpec { hosts: vec![a.into(), b.into()], ..pair() };
        let wrong = [
            (EmulationSpec { hosts: vec![], ..pair() }, "0 hosts"),
            (named("a", "a"), "two hosts are named a"),
            (named("a", "b c"), "letters"),
            (EmulationSpec { mtu: 100, ..pair() }, "MTU"),
            (doubled, "two links"),
            (lonely, "host 7"),
        ];
        for (spec, reason) in wrong {
            let error = spec.validate().expect_err(reason).to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
