//! Early datagrams: datagrams that arrive before their flow is registered. They are kept for up to
//! two seconds.
//!
//! The first data follow the request immediately and may arrive before the server has decided on
//! the request. Early datagrams are kept only for addresses with a handshake in progress or
//! completed, and for flow ids that such an address announced.
//!
//! An address can be forged. So all unannounced flows together get at most half of the memory, and
//! the unannounced flows of one network at most the memory of two flows. Dropped datagrams with
//! data are no losses of the path, so they are counted for their flow, if the flow was announced or
//! has kept a datagram.
//!
//! The client of an early flow may ask how much has arrived; the answer is a receipt
//! ([`receipts`]).
//!
//! [`receipts`]: super::receipts

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use longhaul_proto::early::Collector;
use longhaul_proto::endpoint::FlowId;
use longhaul_proto::receipt::Receipt;
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::Bytes;
use longhaul_proto::wire::header::{Header, Kind};

use crate::network::Network;
use crate::socket::Path;

/// Bytes kept for one flow, including the bookkeeping.
pub(super) const FLOW_BYTES: usize = 8_000_000;
pub(super) const TOTAL_BYTES: usize = 64_000_000;
/// Bytes kept for flows that were not announced, a part of [`TOTAL_BYTES`].
pub(super) const UNANNOUNCED_BYTES: usize = TOTAL_BYTES / 2;
/// Bytes kept for unannounced flows of one network.
pub(super) const NETWORK_BYTES: usize = 2 * FLOW_BYTES;
/// How long a datagram is kept, counted from the first datagram of its flow.
pub(super) const KEEP: Span = Span::from_secs(2);
/// How long an address or a flow id stays expected after its last mention, and how long a flow's
/// count of drops is kept.
pub(super) const EXPECT: Span = Span::from_secs(10);
/// Flow ids that the expected addresses of one network can open without an announcement.
const FLOWS_PER_NETWORK: usize = 4;
/// Maximum number of expected addresses, and of announced flow ids; early datagrams of further
/// handshakes are dropped.
const MAX_EXPECTED: usize = 4096;
const MAX_EXPECTED_OF_NETWORK: usize = 256;
/// Number of ended flows whose late datagrams are dropped.
const ENDED: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EarlyVerdict {
    Held,
    /// Dropped because of the limits.
    Full,
    /// Dropped because its flow has ended.
    Late,
    /// Dropped because neither its flow nor its address is expected, or because the flow id belongs
    /// to another address.
    Foreign,
}

pub(super) struct Held {
    pub(super) header: Header,
    pub(super) path: Path,
    pub(super) start: usize,
    pub(super) len: usize,
    pub(super) at: Time,
}

pub(super) struct HeldFlow {
    from: IpAddr,
    since: Time,
    announced: bool,
    pub(super) bytes: Vec<u8>,
    pub(super) datagrams: Vec<Held>,
    /// Number of dropped datagrams with data: they exceeded the limits or were kept for too long.
    pub(super) data_drops: u64,
    collector: Collector,
}

#[derive(Clone, Copy, Default)]
struct Share {
    flows: usize,
    bytes: usize,
}

pub(super) struct EarlyDatagrams {
    addresses: HashMap<IpAddr, Time>,
    announced: HashMap<FlowId, (IpAddr, Time)>,
    flows: HashMap<FlowId, HeldFlow>,
    /// The flows that ended last. Without this list, their late datagrams would take the place of
    /// an unannounced flow.
    ended: VecDeque<FlowId>,
    total: usize,
    /// Bytes kept for all flows that were not announced.
    unannounced: usize,
    /// Each network's share of the flows that were not announced.
    shares: HashMap<Network, Share>,
    /// Nothing expires before this time.
    expiry: Time,
}

impl Default for EarlyDatagrams {
    fn default() -> EarlyDatagrams {
        EarlyDatagrams {
            addresses: HashMap::new(),
            announced: HashMap::new(),
            flows: HashMap::new(),
            ended: VecDeque::new(),
            total: 0,
            unannounced: 0,
            shares: HashMap::new(),
            expiry: Time::NEVER,
        }
    }
}

impl EarlyDatagrams {
    /// Expects datagrams from `address`, whose handshake is in progress or completed.
    pub(super) fn expect(&mut self, now: Time, address: IpAddr) {
        if self.addresses.contains_key(&address) || self.may_expect(Network::of(address)) {
            self.addresses.insert(address, now + EXPECT);
            self.expire_by(now + EXPECT);
        }
    }

    fn may_expect(&self, network: Network) -> bool {
        let expected = self.addresses.keys().filter(|known| Network::of(**known) == network);
        self.addresses.len() < MAX_EXPECTED && expected.count() < MAX_EXPECTED_OF_NETWORK
    }

    pub(super) fn expects(&self, now: Time, address: IpAddr) -> bool {
        self.addresses.get(&address.to_canonical()).is_some_and(|until| now <= *until)
    }

    pub(super) fn announce(&mut self, now: Time, flow: FlowId, address: IpAddr) {
        if self.flows.get(&flow).is_some_and(|held| !held.announced && held.from != address) {
            // Another address had opened this flow id first.
            self.take(flow);
        }
        if self.announced.len() < MAX_EXPECTED || self.announced.contains_key(&flow) {
            self.announced.insert(flow, (address, now + EXPECT));
            self.expire_by(now + EXPECT);
        }
        let Some(held) = self.flows.get_mut(&flow).filter(|held| !held.announced) else { return };
        // An announced flow does not count against its network's share.
        held.announced = true;
        let (cost, holds) = (held.cost(), held.holds());
        self.unshare(address, cost, holds);
    }

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
            // An entry in `flows` takes memory even without datagrams: a forged address could add
            // any number of made-up flow ids.
            return EarlyVerdict::Full;
        }
        let flow = self.flows.entry(header.flow).or_insert_with(|| HeldFlow {
            from,
            since: now,
            announced,
            bytes: Vec::new(),
            datagrams: Vec::new(),
            data_drops: 0,
            collector: Collector::new(Bytes::new(datagram.len() as u64)),
        });
        if header.kind == Kind::Data {
            flow.collector.note(now, header.number);
        }
        let since = flow.since;
        if !fits || flow.cost() + size > FLOW_BYTES || now.since(since) > KEEP {
            flow.data_drops += u64::from(header.kind == Kind::Data);
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

    /// Returns whether `flow` was announced, or the verdict if `from` may not open it.
    fn may_open(&self, now: Time, flow: FlowId, from: IpAddr) -> Result<bool, EarlyVerdict> {
        if let Some((address, until)) = self.announced.get(&flow) {
            let ours = *address == from && now <= *until;
            return if ours { Ok(true) } else { Err(EarlyVerdict::Foreign) };
        }
        if self.ended.contains(&flow) {
            return Err(EarlyVerdict::Late);
        }
        if !self.expects(now, from) {
            return Err(EarlyVerdict::Foreign);
        }
        let open = self.shares.get(&Network::of(from)).map_or(0, |share| share.flows);
        if open < FLOWS_PER_NETWORK { Ok(false) } else { Err(EarlyVerdict::Full) }
    }

    /// Returns whether `size` more bytes of `from` fit into the memory for flows that were not
    /// announced.
    fn has_room(&self, from: IpAddr, size: usize) -> bool {
        let its = self.shares.get(&Network::of(from)).map_or(0, |share| share.bytes);
        self.unannounced + size <= UNANNOUNCED_BYTES && its + size <= NETWORK_BYTES
    }

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

    /// Returns the receipt for a flow's early datagrams from `from`; `None` for other flows.
    pub(super) fn receipt(&self, flow: FlowId, from: IpAddr) -> Option<Receipt> {
        let held = self.flows.get(&flow).filter(|held| held.from == from)?;
        Some(held.collector.receipt())
    }

    /// Notes that `flow` has ended.
    pub(super) fn end(&mut self, flow: FlowId) {
        if self.ended.len() == ENDED {
            self.ended.pop_front();
        }
        self.ended.push_back(flow);
    }

    pub(super) fn take(&mut self, flow: FlowId) -> Option<HeldFlow> {
        self.announced.remove(&flow);
        let held = self.flows.remove(&flow)?;
        self.total -= held.cost();
        if !held.announced {
            self.unshare(held.from, held.cost(), held.holds());
        }
        Some(held)
    }

    /// Drops datagrams that were kept for too long, and expired expectations; returns the number of
    /// dropped datagrams.
    pub(super) fn expire(&mut self, now: Time) -> u64 {
        if now < self.expiry {
            return 0;
        }
        self.addresses.retain(|_, until| now <= *until);
        self.announced.retain(|_, (_, until)| now <= *until);
        let is_late = |flow: &&HeldFlow| flow.holds() && now.since(flow.since) > KEEP;
        let late = self.flows.iter().filter(|(_, flow)| is_late(flow)).map(|(id, _)| *id);
        let mut dropped = 0;
        for id in late.collect::<Vec<_>>() {
            dropped += self.let_fall(id);
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
        dropped
    }

    /// Drops a flow's datagrams, but keeps the flow and its `data_drops`; returns the number of
    /// dropped datagrams.
    fn let_fall(&mut self, flow: FlowId) -> u64 {
        let Some(held) = self.flows.get_mut(&flow) else { return 0 };
        let (from, cost, announced) = (held.from, held.cost(), held.announced);
        let datagrams = std::mem::take(&mut held.datagrams);
        held.bytes = Vec::new();
        let is_data = |held: &&Held| held.header.kind == Kind::Data;
        held.data_drops += datagrams.iter().filter(is_data).count() as u64;
        self.total -= cost;
        if !announced {
            self.unshare(from, cost, true);
        }
        datagrams.len() as u64
    }

    /// Returns when [`EarlyDatagrams::expire`] may have something to do, if ever.
    pub(super) fn next_expiry(&self) -> Option<Time> {
        (self.expiry != Time::NEVER).then_some(self.expiry)
    }

    fn expire_by(&mut self, time: Time) {
        self.expiry = self.expiry.min(time + Span::from_nanos(1));
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.total
    }
}

impl HeldFlow {
    fn cost(&self) -> usize {
        self.bytes.len() + self.datagrams.len() * size_of::<Held>()
    }

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
    fn announcements_stay_within_the_limit_even_if_another_address_opened_the_flow() {
        let mut hold = EarlyDatagrams::default();
        hold.expect(START, address(1));
        assert_eq!(offer(&mut hold, START, 5_000, 1, 100), EarlyVerdict::Held);
        for flow in 0..MAX_EXPECTED as u32 {
            hold.announce(START, FlowId(flow), address(2));
        }
        hold.announce(START, FlowId(5_000), address(2));
        assert_eq!(hold.announced.len(), MAX_EXPECTED);
        assert!(hold.take(FlowId(5_000)).is_none(), "the wrong address's datagram is dropped");
    }

    #[test]
    fn only_datagrams_of_expected_flows_are_kept() {
        let mut hold = EarlyDatagrams::default();
        assert_eq!(offer(&mut hold, START, 1, 1, 100), EarlyVerdict::Foreign);
        hold.expect(START, address(1));
        assert_eq!(offer(&mut hold, START, 1, 1, 100), EarlyVerdict::Held);
        assert_eq!(offer(&mut hold, START, 2, 2, 100), EarlyVerdict::Foreign);
        hold.announce(START, FlowId(3), address(3));
        assert_eq!(offer(&mut hold, START, 3, 3, 100), EarlyVerdict::Held);
        assert_eq!(
            offer(&mut hold, START, 3, 1, 100),
            EarlyVerdict::Foreign,
            "the flow of another address"
        );
        assert_eq!(hold.take(FlowId(1)).map(|held| held.datagrams.len()), Some(1));
        assert!(hold.take(FlowId(2)).is_none());
    }

    #[test]
    fn an_address_is_no_longer_expected_after_ten_seconds() {
        let mut hold = EarlyDatagrams::default();
        hold.expect(START, address(1));
        let late = START + EXPECT + Span::from_nanos(1);
        assert_eq!(offer(&mut hold, late, 1, 1, 100), EarlyVerdict::Foreign);
        assert_eq!(hold.next_expiry(), Some(late));
        hold.expire(late);
        assert_eq!(hold.next_expiry(), None);
    }

    #[test]
    fn early_datagrams_expire_after_two_seconds() {
        let mut hold = EarlyDatagrams::default();
        hold.expect(START, address(1));
        offer(&mut hold, START, 1, 1, 100);
        assert_eq!(hold.expire(START + KEEP), 0);
        assert_eq!(hold.expire(hold.next_expiry().unwrap()), 1);
        assert_eq!(hold.bytes(), 0);
    }

    #[test]
    fn one_address_can_open_at_most_four_flows_without_announcement() {
        let mut hold = EarlyDatagrams::default();
        hold.expect(START, address(1));
        let held = (0..100).filter(|n| offer(&mut hold, START, *n, 1, 100) == EarlyVerdict::Held);
        assert_eq!(held.count(), FLOWS_PER_NETWORK);
    }

    #[test]
    fn late_datagrams_of_ended_flows_take_no_place_of_a_new_flow() {
        let mut hold = EarlyDatagrams::default();
        hold.expect(START, address(1));
        for flow in 0..=ENDED as u32 {
            hold.end(FlowId(flow));
        }
        assert_eq!(hold.ended.len(), ENDED);
        let late = |flow: &u32| offer(&mut hold, START, *flow, 1, 100) == EarlyVerdict::Late;
        assert_eq!((1..=ENDED as u32).filter(late).count(), ENDED);
        assert_eq!(offer(&mut hold, START, 5_000, 1, 100), EarlyVerdict::Held);
        // An announced flow may have the id of an ended one.
        hold.announce(START, FlowId(7), address(1));
        assert_eq!(offer(&mut hold, START, 7, 1, 100), EarlyVerdict::Held);
    }

    #[test]
    fn all_addresses_of_an_ipv6_network_share_the_limit_of_one_address() {
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
        // An announced flow needs no share of its network.
        hold.announce(START, FlowId(3_000), of(1, 9));
        assert_eq!(offer_from(&mut hold, START, 3_000, of(1, 8), 100), EarlyVerdict::Foreign);
        assert_eq!(offer_from(&mut hold, START, 3_000, of(1, 9), 100), EarlyVerdict::Held);
    }

    /// More datagrams of 60,000 bytes than are kept for one flow.
    const FILLING: usize = FLOW_BYTES / 60_000 + 10;

    fn fill(hold: &mut EarlyDatagrams, flow: u32, from: u8) -> usize {
        let before = hold.bytes();
        for _ in 0..FILLING {
            offer(hold, START, flow, from, 60_000);
        }
        hold.bytes() - before
    }

    #[test]
    fn announced_flows_have_room_despite_many_forged_addresses() {
        let mut hold = EarlyDatagrams::default();
        hold.expect(START, address(1));
        assert_eq!(offer(&mut hold, START, 1, 1, 100), EarlyVerdict::Held);
        for from in 2..=60 {
            hold.expect(START, address(from));
            let held: usize = (0..6).map(|n| fill(&mut hold, u32::from(from) * 10 + n, from)).sum();
            assert!(held <= NETWORK_BYTES, "{held} bytes of one address");
        }
        assert!(hold.bytes() <= UNANNOUNCED_BYTES);
        for flow in 2_000..2_003 {
            hold.announce(START, FlowId(flow), address(1));
            let held = fill(&mut hold, flow, 1);
            assert!(held > FLOW_BYTES - 70_000, "{held} bytes of {flow}");
        }
        // An earlier flow that is announced now keeps its data and has room again.
        assert_eq!(offer(&mut hold, START, 1, 1, 60_000), EarlyVerdict::Full);
        hold.announce(START, FlowId(1), address(1));
        assert_eq!(offer(&mut hold, START, 1, 1, 60_000), EarlyVerdict::Held);
        assert_eq!(
            hold.take(FlowId(1)).map(|held| (held.datagrams.len(), held.data_drops)),
            Some((2, 1))
        );
    }

    #[test]
    fn an_address_at_its_limit_may_still_announce_a_flow() {
        let mut hold = EarlyDatagrams::default();
        hold.expect(START, address(1));
        for flow in 0..4 {
            offer(&mut hold, START, flow, 1, 100);
        }
        assert_eq!(offer(&mut hold, START, 9, 1, 100), EarlyVerdict::Full);
        hold.announce(START, FlowId(9), address(1));
        assert_eq!(offer(&mut hold, START, 9, 1, 100), EarlyVerdict::Held);
        // A flow that is taken or expires makes room for another.
        hold.take(FlowId(0));
        assert_eq!(offer(&mut hold, START, 10, 1, 100), EarlyVerdict::Held);
        let late = START + KEEP + Span::from_nanos(1);
        hold.expire(late);
        assert_eq!(offer(&mut hold, late, 11, 1, 100), EarlyVerdict::Held);
        assert_eq!((hold.unannounced, hold.shares.len()), (100 + size_of::<Held>(), 1));
    }

    #[test]
    fn dropped_data_are_counted_until_their_flow_is_registered_or_expires() {
        let mut hold = EarlyDatagrams::default();
        hold.announce(START, FlowId(1), address(1));
        fill(&mut hold, 1, 1);
        let held = hold.flows[&FlowId(1)].datagrams.len() as u64;
        assert_eq!(hold.flows[&FlowId(1)].data_drops, FILLING as u64 - held);
        assert_eq!(hold.expire(START + KEEP + Span::from_nanos(1)), held);
        assert_eq!(offer(&mut hold, START + KEEP + KEEP, 1, 1, 100), EarlyVerdict::Full);
        // Control messages do not count as lost data.
        let header =
            Header { kind: Kind::Control, flow: FlowId(1), number: PacketNumber(0), block: 0 };
        let path = Path { remote: (address(1), 9).into(), local: None };
        hold.offer(START + KEEP + KEEP, header, path, &[0; 100]);
        // A renewed announcement keeps the flow expected.
        hold.announce(START + KEEP, FlowId(1), address(1));
        hold.expire(START + EXPECT + Span::from_nanos(1));
        assert_eq!(hold.take(FlowId(1)).map(|held| held.data_drops), Some(FILLING as u64 + 1));
        fill(&mut hold, 1, 1);
        hold.announce(START, FlowId(2), address(2));
        fill(&mut hold, 2, 2);
        hold.expire(START + EXPECT + Span::from_nanos(1));
        assert!(hold.flows.is_empty() && hold.next_expiry().is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn kept_bytes_obey_the_flow_and_total_limits(offers in proptest::collection::vec(
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
