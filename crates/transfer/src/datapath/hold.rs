//! Datagrams that come before their flow is known: kept a moment, within limits.
//!
//! The first data follow the request at once and may arrive before it has been judged. They are
//! held only for addresses with a handshake in progress or done, or for flow ids that such a one
//! announced; what does not fit falls, and counts as nobody's loss. Nothing of it is looked at.

use std::collections::HashMap;
use std::net::IpAddr;

use longhaul_proto::endpoint::FlowId;
use longhaul_proto::time::{Span, Time};
use longhaul_proto::wire::header::Header;

use super::socket::Path;

/// Bytes held for one flow, the bookkeeping included.
pub const FLOW_BYTES: usize = 4_000_000;
/// Bytes held for all flows.
pub const TOTAL_BYTES: usize = 64_000_000;
/// How long a datagram is held, counted from its flow's first.
pub const KEEP: Span = Span::from_secs(2);
/// How long an address or a flow id is expected after it was named last.
pub const EXPECT: Span = Span::from_secs(10);
/// Flow ids that one expected address can open by itself.
const FLOWS_PER_ADDRESS: usize = 4;
/// Addresses and flow ids expected at once; handshakes beyond them are not helped.
const MAX_EXPECTED: usize = 4096;

/// What became of a datagram of an unknown flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// Held until its flow is registered.
    Held,
    /// It would have been held, but for the limits.
    Full,
    /// Nobody expects it.
    Foreign,
}

/// A datagram that was held.
pub(super) struct Held {
    pub(super) header: Header,
    pub(super) path: Path,
    pub(super) start: usize,
    pub(super) len: usize,
}

/// All that was held for one flow.
pub(super) struct HeldFlow {
    from: IpAddr,
    since: Time,
    pub(super) bytes: Vec<u8>,
    pub(super) datagrams: Vec<Held>,
}

/// Datagrams of flows that are not registered yet.
pub struct Hold {
    addresses: HashMap<IpAddr, Time>,
    announced: HashMap<FlowId, (IpAddr, Time)>,
    flows: HashMap<FlowId, HeldFlow>,
    total: usize,
    /// Nothing expires before this; asked before every sleep, so it is kept.
    expiry: Time,
}

impl Default for Hold {
    fn default() -> Hold {
        Hold {
            addresses: HashMap::new(),
            announced: HashMap::new(),
            flows: HashMap::new(),
            total: 0,
            expiry: Time::NEVER,
        }
    }
}

impl Hold {
    /// A handshake with `address` has begun, goes on or is done: hold what comes from it.
    pub fn expect(&mut self, now: Time, address: IpAddr) {
        if self.addresses.len() < MAX_EXPECTED || self.addresses.contains_key(&address) {
            self.addresses.insert(address, now + EXPECT);
            self.expire_by(now + EXPECT);
        }
    }

    /// `address` has announced `flow` over a session.
    pub fn announce(&mut self, now: Time, flow: FlowId, address: IpAddr) {
        if self.announced.len() < MAX_EXPECTED || self.announced.contains_key(&flow) {
            self.announced.insert(flow, (address, now + EXPECT));
            self.expire_by(now + EXPECT);
        }
    }

    /// Takes a datagram of a flow that is not registered.
    pub fn offer(&mut self, now: Time, header: Header, path: Path, datagram: &[u8]) -> Offer {
        let from = path.remote.ip();
        if !self.flows.contains_key(&header.flow) {
            match self.may_open(now, header.flow, from) {
                Offer::Held => {}
                refused => return refused,
            }
        }
        let size = datagram.len() + size_of::<Held>();
        if self.total + size > TOTAL_BYTES {
            return Offer::Full;
        }
        let flow = self.flows.entry(header.flow).or_insert_with(|| HeldFlow {
            from,
            since: now,
            bytes: Vec::new(),
            datagrams: Vec::new(),
        });
        if flow.from != from {
            return Offer::Foreign;
        }
        if flow.cost() + size > FLOW_BYTES || now.since(flow.since) > KEEP {
            return Offer::Full;
        }
        let start = flow.bytes.len();
        flow.bytes.extend_from_slice(datagram);
        flow.datagrams.push(Held { header, path, start, len: datagram.len() });
        self.total += size;
        let since = flow.since;
        self.expire_by(since + KEEP);
        Offer::Held
    }

    fn may_open(&self, now: Time, flow: FlowId, from: IpAddr) -> Offer {
        if let Some((address, until)) = self.announced.get(&flow) {
            let ours = *address == from && now <= *until;
            return if ours { Offer::Held } else { Offer::Foreign };
        }
        if self.addresses.get(&from).is_none_or(|until| now > *until) {
            return Offer::Foreign;
        }
        let open = self.flows.values().filter(|flow| flow.from == from).count();
        if open < FLOWS_PER_ADDRESS { Offer::Held } else { Offer::Full }
    }

    /// Gives out what is held for `flow`, which is registered now.
    pub(super) fn take(&mut self, flow: FlowId) -> Option<HeldFlow> {
        self.announced.remove(&flow);
        let held = self.flows.remove(&flow)?;
        self.total -= held.cost();
        Some(held)
    }

    /// Lets fall what has been held or expected for too long; tells how many datagrams fell.
    pub fn expire(&mut self, now: Time) -> u64 {
        if now < self.expiry {
            return 0;
        }
        self.addresses.retain(|_, until| now <= *until);
        self.announced.retain(|_, (_, until)| now <= *until);
        let mut fallen = 0;
        self.flows.retain(|_, flow| {
            let keep = now.since(flow.since) <= KEEP;
            if !keep {
                fallen += flow.datagrams.len() as u64;
                self.total -= flow.cost();
            }
            keep
        });
        let flows = self.flows.values().map(|flow| flow.since + KEEP);
        let addresses = self.addresses.values().copied();
        let announced = self.announced.values().map(|(_, until)| *until);
        let first = flows.chain(addresses).chain(announced).min();
        self.expiry = Time::NEVER;
        if let Some(time) = first {
            self.expire_by(time);
        }
        fallen
    }

    /// When [`Hold::expire`] may have something to do, if ever.
    pub fn next_expiry(&self) -> Option<Time> {
        (self.expiry != Time::NEVER).then_some(self.expiry)
    }

    /// What is kept up to and with a time falls just after it.
    fn expire_by(&mut self, time: Time) {
        self.expiry = self.expiry.min(time + Span::from_nanos(1));
    }

    /// Bytes held, the bookkeeping included.
    pub fn bytes(&self) -> usize {
        self.total
    }
}

impl HeldFlow {
    fn cost(&self) -> usize {
        self.bytes.len() + self.datagrams.len() * size_of::<Held>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_proto::endpoint::PacketNumber;
    use longhaul_proto::wire::header::Kind;
    use proptest::prelude::*;
    use std::net::Ipv4Addr;

    const START: Time = Time::from_nanos(1_000_000_000);

    fn address(last: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, last).into()
    }

    fn offer(hold: &mut Hold, now: Time, flow: u32, from: u8, len: usize) -> Offer {
        let header =
            Header { kind: Kind::Data, flow: FlowId(flow), number: PacketNumber(0), block: 0 };
        let path = Path { remote: (address(from), 9).into(), local: None };
        hold.offer(now, header, path, &vec![0; len])
    }

    #[test]
    fn only_who_is_expected_is_held() {
        let mut hold = Hold::default();
        assert_eq!(offer(&mut hold, START, 1, 1, 100), Offer::Foreign);
        hold.expect(START, address(1));
        assert_eq!(offer(&mut hold, START, 1, 1, 100), Offer::Held);
        assert_eq!(offer(&mut hold, START, 2, 2, 100), Offer::Foreign);
        hold.announce(START, FlowId(3), address(3));
        assert_eq!(offer(&mut hold, START, 3, 3, 100), Offer::Held);
        assert_eq!(offer(&mut hold, START, 3, 1, 100), Offer::Foreign, "another's flow");
        assert_eq!(hold.take(FlowId(1)).map(|held| held.datagrams.len()), Some(1));
        assert!(hold.take(FlowId(2)).is_none());
    }

    #[test]
    fn an_expectation_ends() {
        let mut hold = Hold::default();
        hold.expect(START, address(1));
        let late = START + EXPECT + Span::from_nanos(1);
        assert_eq!(offer(&mut hold, late, 1, 1, 100), Offer::Foreign);
        assert_eq!(hold.next_expiry(), Some(late));
        hold.expire(late);
        assert_eq!(hold.next_expiry(), None);
    }

    #[test]
    fn what_is_held_falls_after_two_seconds() {
        let mut hold = Hold::default();
        hold.expect(START, address(1));
        offer(&mut hold, START, 1, 1, 100);
        assert_eq!(hold.expire(START + KEEP), 0);
        assert_eq!(hold.expire(hold.next_expiry().unwrap()), 1);
        assert_eq!(hold.bytes(), 0);
    }

    #[test]
    fn one_address_opens_few_flows_by_itself() {
        let mut hold = Hold::default();
        hold.expect(START, address(1));
        let held = (0..100).filter(|n| offer(&mut hold, START, *n, 1, 100) == Offer::Held);
        assert_eq!(held.count(), FLOWS_PER_ADDRESS);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn the_limits_hold(offers in proptest::collection::vec(
            (0u32..40, 1u8..30, 0usize..60_000), 0..3_000))
        {
            let mut hold = Hold::default();
            for n in 1..30 {
                hold.expect(START, address(n));
            }
            let mut bytes = HashMap::new();
            for (flow, from, len) in offers {
                if offer(&mut hold, START, flow, from, len) == Offer::Held {
                    *bytes.entry(flow).or_insert(0) += len;
                }
                prop_assert!(hold.bytes() <= TOTAL_BYTES);
            }
            prop_assert!(bytes.values().all(|sum| *sum <= FLOW_BYTES));
            for (flow, sum) in bytes {
                prop_assert_eq!(hold.take(FlowId(flow)).map(|held| held.bytes.len()), Some(sum));
            }
            prop_assert_eq!(hold.bytes(), 0);
        }
    }
}
