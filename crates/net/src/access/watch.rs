//! What a receiving core is told of the host's access link.

use std::net::IpAddr;
use std::path::Path;

use longhaul_proto::endpoint::Others;
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::{Bytes, Rate};

use super::card::{self, INTERFACES};
use super::count::{self, Counted};
use super::netlink::{self, Interface};
use super::tcp::Flows;

/// How often a look is taken, and how often it is asked how many flows others are.
const LOOK: Span = Span::from_millis(100);
const COUNT_FLOWS: Span = Span::from_secs(1);
/// Headers before a datagram's payload: Ethernet's, UDP's, and IP's of either version.
const ETHERNET: u32 = 14;
const UDP: u32 = 8;
const IPV4: u32 = 20;
const IPV6: u32 = 40;

/// The interfaces by which data come to this host.
#[derive(Debug, Default)]
pub struct Watch {
    links: Vec<Link>,
    others: count::Others,
    flows: Flows,
    /// The next look, the next count of flows, what others had brought at the last, and how many
    /// they were.
    next_look: Time,
    next_count: Time,
    counted: u64,
    number: u32,
    has_told: bool,
}

/// What the card by which data go to `peer` carries of UDP payload in datagrams of `datagram`
/// bytes; nothing where they pass no card, or it tells no speed.
pub fn card_towards(peer: IpAddr, datagram: u16) -> Option<Rate> {
    Link::towards(netlink::route_to(peer).ok()?, peer, datagram)?.card
}

/// An interface.
#[derive(Debug)]
struct Link {
    index: u32,
    /// Bytes of headers of a datagram of ours as the interface counts them.
    header: u32,
    /// What its card takes of UDP payload.
    card: Option<Rate>,
    last: Counted,
}

impl Watch {
    /// Data come from `peer` too, in datagrams of `datagram` bytes. What comes from this host
    /// itself passes no link.
    pub fn add(&mut self, peer: IpAddr, datagram: u16) {
        let Ok(index) = netlink::route_to(peer) else { return };
        if self.links.iter().any(|link| link.index == index) {
            return;
        }
        self.links.extend(Link::towards(index, peer, datagram));
    }

    /// Whether it is time to look again, at a link that is there.
    pub fn is_due(&self, now: Time) -> bool {
        now >= self.next_look && !self.links.is_empty()
    }

    /// Looks. `ours` is told what our own sockets got since the last look; it is asked after the
    /// interfaces were, so that what comes in between does not pass for others'. Nothing where no
    /// counter has moved: some cards bring theirs up to date once a second.
    pub fn look(&mut self, now: Time, ours: impl FnOnce() -> u64) -> Option<Others> {
        self.next_look = now + LOOK;
        let came: Vec<Option<u64>> = self.links.iter_mut().map(Link::look).collect();
        let has_moved = came.iter().any(|came| *came != Some(0));
        if self.has_told && !has_moved {
            return None;
        }
        let bytes = match came.iter().copied().sum::<Option<u64>>() {
            Some(came) => self.others.note(came, ours()),
            // What came meanwhile is not known, of us or of others.
            None => {
                ours();
                self.others.note(0, 0)
            }
        };
        self.has_told = true;
        if now >= self.next_count {
            self.next_count = now + COUNT_FLOWS;
            self.number = self.count_flows(bytes);
        }
        let cards = self.links.iter().map(|link| link.card.map(Rate::as_bps));
        let link = cards.sum::<Option<u64>>().map(Rate::from_bps);
        Some(Others { link, bytes: Bytes::new(bytes), flows: self.number })
    }

    /// How many flows others are, who have brought `bytes` in all.
    fn count_flows(&mut self, bytes: u64) -> u32 {
        let brought = bytes.saturating_sub(std::mem::replace(&mut self.counted, bytes));
        match netlink::connections() {
            Ok(connections) => self.flows.count(&connections, brought),
            Err(_) => 0,
        }
    }
}

impl Link {
    /// The interface `index`, by which `peer` is reached in datagrams of `datagram` bytes; nothing
    /// where that is no link.
    fn towards(index: u32, peer: IpAddr, datagram: u16) -> Option<Link> {
        let interface = netlink::interface(index).ok()?;
        if interface.kind == libc::ARPHRD_LOOPBACK {
            return None;
        }
        let headers = UDP + if peer.to_canonical().is_ipv4() { IPV4 } else { IPV6 };
        let speed = card::speed(Path::new(INTERFACES), &interface.name, index);
        Some(Link {
            index,
            header: headers + if interface.kind == libc::ARPHRD_ETHER { ETHERNET } else { 0 },
            card: speed.map(|speed| card::payload(speed, datagram, headers)),
            last: counted(&interface),
        })
    }

    /// What came since the last look; nothing where that is not known.
    fn look(&mut self) -> Option<u64> {
        let now = counted(&netlink::interface(self.index).ok()?);
        let before = std::mem::replace(&mut self.last, now);
        count::payload(before, now, self.header.into())
    }
}

fn counted(interface: &Interface) -> Counted {
    Counted { bytes: interface.bytes, packets: interface.packets }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn what_comes_from_this_host_itself_is_not_watched() {
        let mut watch = Watch::default();
        watch.add(Ipv4Addr::LOCALHOST.into(), 1472);
        assert!(!watch.is_due(Time::from_nanos(1)));
        assert_eq!(card_towards(Ipv4Addr::LOCALHOST.into(), 1472), None);
    }

    #[test]
    fn an_interface_that_is_gone_says_nothing_and_fails_nothing() {
        let link = Link { index: u32::MAX >> 1, header: 42, card: None, last: Counted::default() };
        let mut watch = Watch { links: vec![link], ..Watch::default() };
        assert!(watch.is_due(Time::ZERO));
        let told = watch.look(Time::ZERO, || 5_000).unwrap();
        assert_eq!((told.link, told.bytes), (None, Bytes::ZERO));
        assert!(!watch.is_due(Time::ZERO) && watch.is_due(Time::ZERO + LOOK));
    }
}
