//! Observes the host's access link for a receiver: the speed of the card, and other traffic (all
//! flows on the link that do not belong to the receiver).

use std::net::IpAddr;
use std::path::Path;

use longhaul_proto::endpoint::Others;
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::{Bytes, Rate};

use super::card::{self, INTERFACES};
use super::count::{self, Counted};
use super::netlink::{self, Interface};
use super::tcp::Flows;

/// Time between two readings of the interfaces' counters.
const LOOK: Span = Span::from_millis(100);
/// Time between two counts of the other flows.
const COUNT_FLOWS: Span = Span::from_secs(1);
/// Bytes of each header before a datagram's payload.
const ETHERNET: u32 = 14;
const UDP: u32 = 8;
const IPV4: u32 = 20;
const IPV6: u32 = 40;

/// The interfaces through which data arrive.
#[derive(Debug, Default)]
pub struct Watch {
    links: Vec<Link>,
    others: count::Others,
    flows: Flows,
    next_look: Time,
    next_count: Time,
    /// Bytes of other traffic at the last count of other flows.
    counted: u64,
    /// The number of other flows that the last count found.
    number: u32,
    /// Whether a reading was returned before.
    has_reported: bool,
}

pub(crate) fn interface_towards(peer: IpAddr) -> Option<u32> {
    netlink::route_to(peer).ok()
}

pub(crate) fn is_loopback(interface: u32) -> bool {
    netlink::interface(interface).is_ok_and(|found| found.kind == libc::ARPHRD_LOOPBACK)
}

/// Returns the UDP payload rate of the card used for `peer`, in datagrams of `datagram` bytes;
/// `None` if there is no card or no known speed.
pub fn card_towards(peer: IpAddr, datagram: u16) -> Option<Rate> {
    Link::towards(netlink::route_to(peer).ok()?, peer, datagram)?.card
}

#[derive(Debug)]
struct Link {
    index: u32,
    /// Header bytes of our datagrams as the interface counts them.
    header: u32,
    /// The card's rate of UDP payload.
    card: Option<Rate>,
    last: Counted,
}

impl Watch {
    /// Adds the interface through which data from `peer` arrive, in datagrams of `datagram` bytes.
    /// Adds nothing if `peer` is this host, or if the interface is unknown or was added before.
    pub fn add(&mut self, peer: IpAddr, datagram: u16) {
        let Ok(index) = netlink::route_to(peer) else { return };
        if self.links.iter().any(|link| link.index == index) {
            return;
        }
        self.links.extend(Link::towards(index, peer, datagram));
    }

    /// Returns whether a reading is due.
    pub fn is_due(&self, now: Time) -> bool {
        now >= self.next_look && !self.links.is_empty()
    }

    /// Takes a reading. `ours` returns the bytes that our sockets received since the last reading.
    /// The interfaces are read before `ours`, so our data that arrive between the two do not count
    /// as other traffic. Returns `None` if no counter has moved since the last reading; the first
    /// reading is never `None`.
    pub fn look(&mut self, now: Time, ours: impl FnOnce() -> u64) -> Option<Others> {
        self.next_look = now + LOOK;
        let came: Vec<Option<u64>> = self.links.iter_mut().map(Link::look).collect();
        let has_moved = came.iter().any(|came| *came != Some(0));
        if self.has_reported && !has_moved {
            return None;
        }
        let bytes = match came.iter().copied().sum::<Option<u64>>() {
            Some(came) => self.others.note(came, ours()),
            // The traffic since the last reading is unknown.
            None => {
                ours();
                self.others.note(0, 0)
            }
        };
        self.has_reported = true;
        if now >= self.next_count {
            self.next_count = now + COUNT_FLOWS;
            self.number = self.count_flows(bytes);
        }
        let cards = self.links.iter().map(|link| link.card.map(Rate::as_bps));
        let link = cards.sum::<Option<u64>>().map(Rate::from_bps);
        Some(Others { link, bytes: Bytes::new(bytes), flows: self.number })
    }

    /// Returns the number of other flows; `bytes` is the total of other traffic so far.
    fn count_flows(&mut self, bytes: u64) -> u32 {
        let brought = bytes.saturating_sub(std::mem::replace(&mut self.counted, bytes));
        match netlink::connections() {
            Ok(connections) => self.flows.count(&connections, brought),
            Err(_) => 0,
        }
    }
}

impl Link {
    /// Returns the interface `index`, used for `peer` in datagrams of `datagram` bytes; `None` for
    /// the loopback interface, and for an unknown one.
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
    fn traffic_from_this_host_to_itself_is_not_watched() {
        let mut watch = Watch::default();
        watch.add(Ipv4Addr::LOCALHOST.into(), 1472);
        assert!(!watch.is_due(Time::from_nanos(1)));
        assert_eq!(card_towards(Ipv4Addr::LOCALHOST.into(), 1472), None);
    }

    #[test]
    fn a_removed_interface_adds_no_bytes_and_causes_no_error() {
        let link = Link { index: u32::MAX >> 1, header: 42, card: None, last: Counted::default() };
        let mut watch = Watch { links: vec![link], ..Watch::default() };
        assert!(watch.is_due(Time::ZERO));
        let reported = watch.look(Time::ZERO, || 5_000).unwrap();
        assert_eq!((reported.link, reported.bytes), (None, Bytes::ZERO));
        assert!(!watch.is_due(Time::ZERO) && watch.is_due(Time::ZERO + LOOK));
    }
}
