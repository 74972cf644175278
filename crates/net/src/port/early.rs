//! Datagrams that come before their flow is known: kept a moment, within limits.
//!
//! The first data follow the request at once and may arrive before it has been judged. They are
//! held only for addresses with a handshake in progress or done, or for flow ids that such a one
//! announced. An address can be forged, and what comes from it opens flows by itself: all of these
//! together get no more than half of the memory, and each network (an IPv4 address, or an IPv6 /64,
//! of which one host may use every address) no more than two flows' worth, so that there is always
//! room for flows that were announced. What does not fit falls; it came
//! over the path, and is counted for its flow. Nothing of it is looked at.

use std::collections::HashMap;
use std::net::IpAddr;

use longhaul_proto::endpoint::FlowId;
use longhaul_proto::time::{Span, Time};
use longhaul_proto::wire::header::{Header, Kind};

use crate::network::Network;
use crate::socket::Path;

/// Bytes held for one flow, the bookkeeping included.
pub(super) const FLOW_BYTES: usize = 4_000_000;
/// Bytes held for all flows.
pub(super) const TOTAL_BYTES: usize = 64_000_000;
/// Of these, for flows that nobody has announced.
pub(super) const UNANNOUNCED_BYTES: usize = TOTAL_BYTES / 2;
/// Of these, for the flows of one network.
pub(super) const NETWORK_BYTES: usize = 2 * FLOW_BYTES;
/// How long a datagram is held, counted from its flow's first.
pub(super) const KEEP: Span = Span::from_secs(2);
/// How long an address or a flow id is expected after it was named last; how long it is remembered
/// what of a flow has fallen.
pub(super) const EXPECT: Span = Span::from_secs(10);
/// Flow ids that the expected addresses of one network can open by themselves.
const FLOWS_PER_NETWORK: usize = 4;
/// Addresses and flow ids expected at once; handshakes beyond them are not helped.
const MAX_EXPECTED: usize = 4096;
/// Of these addresses, those of one network.
const MAX_EXPECTED_OF_NETWORK: usize = 256;

/// What became of a datagram of an unknown flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EarlyVerdict {
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
    pub(super) at: Time,
}

/// All that was held for one flow.
pub(super) struct HeldFlow {
    from: IpAddr,
    since: Time,
    announced: bool,
    pub(super) bytes: Vec<u8>,
    pub(super) datagrams: Vec<Held>,
    /// Datagrams with data that did not fit, or were held for too long.
    pub(super) fallen: u64,
}

/// What flows that nobody has announced hold.
#[derive(Clone, Copy, Default)]
struct Share {
    /// Those of them that hold something.
    flows: usize,
    bytes: usize,
}

/// Datagrams of flows that are not registered yet.
pub(super) struct EarlyDatagrams {
    addresses: HashMap<IpAddr, Time>,
    announced: HashMap<FlowId, (IpAddr, Time)>,
    flows: HashMap<FlowId, HeldFlow>,
    total: usize,
    /// Of the flows that nobody has announced: all of them, and those of each network.
    unannounced: usize,
    shares: HashMap<Network, Share>,
    /// Nothing expires before this; asked before every sleep, so it is kept.
    expiry: Time,
}

impl Default for EarlyDatagrams {
    fn default() -> EarlyDatagrams {
        EarlyDatagrams {
            addresses: HashMap::new(),
            announced: HashMap::new(),
            flows: HashMap::new(),
            total: 0,
            unannounced: 0,
            shares: HashMap::new(),
            expiry: Time::NEVER,
        }
    }
}

impl EarlyDatagrams {
    /// A handshake with `address` has begun, goes on or is done: hold what comes from it.
    pub(super) fn expect(&mut self, now: Time, address: IpAddr) {
        if self.addresses.contains_key(&address) || self.may_expect(Network::of(address)) {
            self.addresses.insert(address, now + EXPECT);
            self.expire_by(now + EXPECT);
        }
    }

    /// Whether one more address of `network` may be expected.
    fn may_expect(&self, network: Network) -> bool {
        let expected = self.addresses.keys().filter(|known| Network::of(**known) == network);
        self.addresses.len() < MAX_EXPECTED && expected.count() < MAX_EXPECTED_OF_NETWORK
    }

    /// Whether a handshake with `address` goes on, or was done a moment ago.
    pub(super) fn expects(&self, now: Time, address: IpAddr) -> bool {
        self.addresses.get(&address.to_canonical()).is_some_and(|until| now <= *until)
    }

    /// `address` has announced `flow` over a session.
    pub(super) fn announce(&mut self, now: Time, flow: FlowId, address: IpAddr) {
        if self.announced.len() < MAX_EXPECTED || self.announced.contains_key(&flow) {
            self.announced.insert(flow, (address, now + EXPECT));
            self.expire_by(now + EXPECT);
        }
        let Some(held) = self.flows.get_mut(&flow).filter(|held| !held.announced) else { return };
        if held.from != address {
            // Somebody else was there first with what is this one's.
            self.take(flow);
            self.announced.insert(flow, (address, now + EXPECT));
            return;
        }
        // From now on it is nobody's share that it takes.
        held.announced = true;
        let (cost, holds) = (held.cost(), held.holds());
        self.unshare(address, cost, holds);
    }

    /// Takes a datagram of a flow that is not registered.
    pub(super) fn offer(
        &mut self,
        now: Time,
        header: Header,
        path: Path,
        datagram: &[u8],
    ) -> EarlyVerdict {
        let from = path.remote.ip();
        let announced = match self.flows.get(&header.flow) {
            Some(flow) if flow.from != from => return EarlyVerdict::Foreign,
            Some(flow) => flow.announced,
            None => match self.may_open(now, header.flow, from) {
                Ok(announced) => announced,
                Err(refused) => return refused,
            },
        };
        let size = datagram.len() + size_of::<Held>();
        let fits = self.total + size <= TOTAL_BYTES && (announced || self.has_room(from, size));
        if !fits && !announced && !self.flows.contains_key(&header.flow) {
            // Whoever forges an address would else be remembered by each number he makes up.
            return EarlyVerdict::Full;
        }
        let flow = self.flows.entry(header.flow).or_insert_with(|| HeldFlow {
            from,
            since: now,
            announced,
            bytes: Vec::new(),
            datagrams: Vec::new(),
            fallen: 0,
        });
        let since = flow.since;
        if !fits || flow.cost() + size > FLOW_BYTES || now.since(since) > KEEP {
            flow.fallen += u64::from(header.kind == Kind::Data);
            self.expire_by(since + KEEP);
            return EarlyVerdict::Full;
        }
        let is_first = !flow.holds();
        let start = flow.bytes.len();
        flow.bytes.extend_from_slice(datagram);
        flow.datagrams.push(Held { header, path, start, len: datagram.len(), at: now });
        self.total += size;
        if !announced {
            self.unannounced += size;
            let share = self.shares.entry(Network::of(from)).or_default();
            share.bytes += size;
            share.flows += usize::from(is_first);
        }
        self.expire_by(since + KEEP);
        EarlyVerdict::Held
    }

    /// Whether a flow may be opened: as one that was announced, or one that was not.
    fn may_open(&self, now: Time, flow: FlowId, from: IpAddr) -> Result<bool, EarlyVerdict> {
        if let Some((address, until)) = self.announced.get(&flow) {
            let ours = *address == from && now <= *until;
            return if ours { Ok(true) } else { Err(EarlyVerdict::Foreign) };
        }
        if !self.expects(now, from) {
            return Err(EarlyVerdict::Foreign);
        }
        let open = self.shares.get(&Network::of(from)).map_or(0, |share| share.flows);
        if open < FLOWS_PER_NETWORK { Ok(false) } else { Err(EarlyVerdict::Full) }
    }

    /// Whether `size` bytes more fit for flows that nobody has announced.
    fn has_room(&self, from: IpAddr, size: usize) -> bool {
        let its = self.shares.get(&Network::of(from)).map_or(0, |share| share.bytes);
        self.unannounced + size <= UNANNOUNCED_BYTES && its + size <= NETWORK_BYTES
    }

    /// A flow of `address` that nobody had announced takes `bytes` of its share no longer.
    fn unshare(&mut self, address: IpAddr, bytes: usize, held: bool) {
        self.unannounced -= bytes;
        let network = Network::of(address);
        if let Some(share) = self.shares.get_mut(&network) {
            share.bytes -= bytes;
            share.flows -= usize::from(held);
            if share.flows == 0 {
                self.shares.remove(&network);
            }
        }
    }

    /// Gives out what is held for `flow`, which is registered now.
    pub(super) fn take(&mut self, flow: FlowId) -> Option<HeldFlow> {
        self.announced.remove(&flow);
        let held = self.flows.remove(&flow)?;
        self.total -= held.cost();
        if !held.announced {
            self.unshare(held.from, held.cost(), held.holds());
        }
        Some(held)
    }

    /// Lets fall what has been held or expected for too long; tells how many datagrams fell. What
    /// of a flow has fallen is remembered as long as it may still be registered.
    pub(super) fn expire(&mut self, now: Time) -> u64 {
        if now < self.expiry {
            return 0;
        }
        self.addresses.retain(|_, until| now <= *until);
        self.announced.retain(|_, (_, until)| now <= *until);
        let is_late = |flow: &&HeldFlow| flow.holds() && now.since(flow.since) > KEEP;
        let late = self.flows.iter().filter(|(_, flow)| is_late(flow)).map(|(id, _)| *id);
        let mut fallen = 0;
        for id in late.collect::<Vec<_>>() {
            fallen += self.let_fall(id);
        }
        let announced = &self.announced;
        self.flows.retain(|id, flow| now <= flow.since + EXPECT || announced.contains_key(id));
        let due = |flow: &HeldFlow| flow.since + if flow.holds() { KEEP } else { EXPECT };
        let flows = self.flows.values().map(due).filter(|due| *due >= now);
        let addresses = self.addresses.values().copied();
        let announced = self.announced.values().map(|(_, until)| *until);
        let first = flows.chain(addresses).chain(announced).min();
        self.expiry = Time::NEVER;
        if let Some(time) = first {
            self.expire_by(time);
        }
        fallen
    }

    /// Keeps nothing of a flow but the count; how many datagrams fell.
    fn let_fall(&mut self, flow: FlowId) -> u64 {
        let Some(held) = self.flows.get_mut(&flow) else { return 0 };
        let (from, cost, announced) = (held.from, held.cost(), held.announced);
        let datagrams = std::mem::take(&mut held.datagrams);
        held.bytes = Vec::new();
        let is_data = |held: &&Held| held.header.kind == Kind::Data;
        held.fallen += datagrams.iter().filter(is_data).count() as u64;
        self.total -= cost;
        if !announced {
            self.unshare(from, cost, true);
        }
        datagrams.len() as u64
    }

    /// When [`EarlyDatagrams::expire`] may have something to do, if ever.
    pub(super) fn next_expiry(&self) -> Option<Time> {
        (self.expiry != Time::NEVER).then_some(self.expiry)
    }

    /// What is kept up to and with a time falls just after it.
    fn expire_by(&mut self, time: Time) {
        self.expiry = self.expiry.min(time + Span::from_nanos(1));
    }

    /// Bytes held, the bookkeeping included.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.total
    }
}

impl HeldFlow {
    fn cost(&self) -> usize {
        self.bytes.len() + self.datagrams.len() * size_of::<Held>()
    }

    /// Whether anything is held of it.
    fn holds(&self) -> bool {
        !self.datagrams.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_proto::endpoint::PacketNumber;
    use longhaul_proto::wire::header::Kind;
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    const START: Time = Time::from_nanos(1_000_000_000);

    fn address(last: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, last).into()
    }

    fn offer(
        hold: &mut EarlyDatagrams,
        now: Time,
        flow: u32,
        from: u8,
        len: usize,
    ) -> EarlyVerdict {
        offer_from(hold, now, flow, address(from), len)
    }

    fn offer_from(
        hold: &mut EarlyDatagrams,
        now: Time,
        flow: u32,
        from: IpAddr,
        len: usize,
    ) -> EarlyVerdict {
        let header =
            Header { kind: Kind::Data, flow: FlowId(flow), number: PacketNumber(0), block: 0 };
        let path = Path { remote: (from, 9).into(), local: None };
        hold.offer(now, header, path, &vec![0; len])
    }

    #[test]
    fn only_who_is_expected_is_held() {
        let mut hold = EarlyDatagrams::default();
        assert_eq!(offer(&mut hold, START, 1, 1, 100), EarlyVerdict::Foreign);
        hold.expect(START, address(1));
        assert_eq!(offer(&mut hold, START, 1, 1, 100), EarlyVerdict::Held);
        assert_eq!(offer(&mut hold, START, 2, 2, 100), EarlyVerdict::Foreign);
        hold.announce(START, FlowId(3), address(3));
        assert_eq!(offer(&mut hold, START, 3, 3, 100), EarlyVerdict::Held);
        assert_eq!(offer(&mut hold, START, 3, 1, 100), EarlyVerdict::Foreign, "another's flow");
        assert_eq!(hold.take(FlowId(1)).map(|held| held.datagrams.len()), Some(1));
        assert!(hold.take(FlowId(2)).is_none());
    }

    #[test]
    fn an_expectation_ends() {
        let mut hold = EarlyDatagrams::default();
        hold.expect(START, address(1));
        let late = START + EXPECT + Span::from_nanos(1);
        assert_eq!(offer(&mut hold, late, 1, 1, 100), EarlyVerdict::Foreign);
        assert_eq!(hold.next_expiry(), Some(late));
        hold.expire(late);
        assert_eq!(hold.next_expiry(), None);
    }

    #[test]
    fn what_is_held_falls_after_two_seconds() {
        let mut hold = EarlyDatagrams::default();
        hold.expect(START, address(1));
        offer(&mut hold, START, 1, 1, 100);
        assert_eq!(hold.expire(START + KEEP), 0);
        assert_eq!(hold.expire(hold.next_expiry().unwrap()), 1);
        assert_eq!(hold.bytes(), 0);
    }

    #[test]
    fn one_address_opens_few_flows_by_itself() {
        let mut hold = EarlyDatagrams::default();
        hold.expect(START, address(1));
        let held = (0..100).filter(|n| offer(&mut hold, START, *n, 1, 100) == EarlyVerdict::Held);
        assert_eq!(held.count(), FLOWS_PER_NETWORK);
    }

    #[test]
    fn all_addresses_of_an_ipv6_network_together_get_what_one_address_gets() {
        let mut hold = EarlyDatagrams::default();
        let of = |network: u16, host: u16| -> IpAddr {
            Ipv6Addr::new(0x2001, 0xdb8, 0, network, 0, 0, 0, host).into()
        };
        let mut held = 0;
        for host in 0..1_000 {
            hold.expect(START, of(1, host));
            let offered = offer_from(&mut hold, START, u32::from(host), of(1, host), 100);
            held += usize::from(offered == EarlyVerdict::Held);
        }
        assert_eq!((held, hold.addresses.len()), (FLOWS_PER_NETWORK, MAX_EXPECTED_OF_NETWORK));
        hold.expect(START, of(2, 1));
        assert_eq!(offer_from(&mut hold, START, 2_000, of(2, 1), 100), EarlyVerdict::Held);
        // A flow that was announced needs no share, and is nobody's but the one address's.
        hold.announce(START, FlowId(3_000), of(1, 9));
        assert_eq!(offer_from(&mut hold, START, 3_000, of(1, 8), 100), EarlyVerdict::Foreign);
        assert_eq!(offer_from(&mut hold, START, 3_000, of(1, 9), 100), EarlyVerdict::Held);
    }

    /// Offers a flow so much that its own limit is reached; what was held of it.
    fn fill(hold: &mut EarlyDatagrams, flow: u32, from: u8) -> usize {
        let before = hold.bytes();
        for _ in 0..80 {
            offer(hold, START, flow, from, 60_000);
        }
        hold.bytes() - before
    }

    #[test]
    fn however_many_addresses_are_forged_announced_flows_have_their_room() {
        let mut hold = EarlyDatagrams::default();
        hold.expect(START, address(1));
        assert_eq!(offer(&mut hold, START, 1, 1, 100), EarlyVerdict::Held);
        for from in 2..=60 {
            hold.expect(START, address(from));
            let held: usize = (0..6).map(|n| fill(&mut hold, u32::from(from) * 10 + n, from)).sum();
            assert!(held <= NETWORK_BYTES, "{held} bytes of one address");
        }
        assert!(hold.bytes() <= UNANNOUNCED_BYTES);
        for flow in 2_000..2_007 {
            hold.announce(START, FlowId(flow), address(1));
            let held = fill(&mut hold, flow, 1);
            assert!(held > FLOW_BYTES - 70_000, "{held} bytes of {flow}");
        }
        // What was there before, and is announced now, is still there, and has room again.
        assert_eq!(offer(&mut hold, START, 1, 1, 60_000), EarlyVerdict::Full);
        hold.announce(START, FlowId(1), address(1));
        assert_eq!(offer(&mut hold, START, 1, 1, 60_000), EarlyVerdict::Held);
        assert_eq!(
            hold.take(FlowId(1)).map(|held| (held.datagrams.len(), held.fallen)),
            Some((2, 1))
        );
    }

    #[test]
    fn an_address_that_has_opened_its_flows_may_still_have_one_that_it_announces() {
        let mut hold = EarlyDatagrams::default();
        hold.expect(START, address(1));
        for flow in 0..4 {
            offer(&mut hold, START, flow, 1, 100);
        }
        assert_eq!(offer(&mut hold, START, 9, 1, 100), EarlyVerdict::Full);
        hold.announce(START, FlowId(9), address(1));
        assert_eq!(offer(&mut hold, START, 9, 1, 100), EarlyVerdict::Held);
        // Taken or let fall, a flow leaves its place to another.
        hold.take(FlowId(0));
        assert_eq!(offer(&mut hold, START, 10, 1, 100), EarlyVerdict::Held);
        let late = START + KEEP + Span::from_nanos(1);
        hold.expire(late);
        assert_eq!(offer(&mut hold, late, 11, 1, 100), EarlyVerdict::Held);
        assert_eq!((hold.unannounced, hold.shares.len()), (100 + size_of::<Held>(), 1));
    }

    #[test]
    fn data_that_fall_are_counted_for_their_flow_until_it_is_registered_or_given_up() {
        let mut hold = EarlyDatagrams::default();
        hold.announce(START, FlowId(1), address(1));
        fill(&mut hold, 1, 1);
        let held = hold.flows[&FlowId(1)].datagrams.len() as u64;
        assert_eq!(hold.flows[&FlowId(1)].fallen, 80 - held);
        assert_eq!(hold.expire(START + KEEP + Span::from_nanos(1)), held);
        assert_eq!(offer(&mut hold, START + KEEP + KEEP, 1, 1, 100), EarlyVerdict::Full);
        // Nothing of a control message is lost data.
        let header =
            Header { kind: Kind::Control, flow: FlowId(1), number: PacketNumber(0), block: 0 };
        let path = Path { remote: (address(1), 9).into(), local: None };
        hold.offer(START + KEEP + KEEP, header, path, &[0; 100]);
        // Announced again, it is still waited for.
        hold.announce(START + KEEP, FlowId(1), address(1));
        hold.expire(START + EXPECT + Span::from_nanos(1));
        assert_eq!(hold.take(FlowId(1)).map(|held| held.fallen), Some(81));
        fill(&mut hold, 1, 1);
        hold.announce(START, FlowId(2), address(2));
        fill(&mut hold, 2, 2);
        hold.expire(START + EXPECT + Span::from_nanos(1));
        assert!(hold.flows.is_empty() && hold.next_expiry().is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn the_limits_hold(offers in proptest::collection::vec(
            (0u32..40, 1u8..30, 0usize..60_000), 0..3_000))
        {
            let mut hold = EarlyDatagrams::default();
            for n in 1..30 {
                hold.expect(START, address(n));
            }
            let mut bytes = HashMap::new();
            for (flow, from, len) in offers {
                if offer(&mut hold, START, flow, from, len) == EarlyVerdict::Held {
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
