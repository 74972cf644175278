//! The papers' paths and flows as scenarios.

use longhaul_proto::rbudp;
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::{Bytes, LossRatio, Rate};
use longhaul_testbed::link::{Jitter, LinkSpec, Loss};
use longhaul_testbed::scenario::{
    Amount, Flow, Host, LinkBetween, Network, Record, Scenario, Tcp, Traffic, Transfer,
};

/// All chance of the experiments comes from this seed.
const SEED: u64 = 1;
/// What no experiment reaches: an end for one that would have none.
const TIME_LIMIT: Span = Span::from_secs(3_600);
const MTU: u16 = 1_500;
/// What a switch of the papers' time held for a port.
const PORT: Bytes = Bytes::new(512_000);
/// How exactly a program's timer sends, in packets of a gigabit: without it, two flows of the same
/// rate meet a full queue in the same order for ever, and one of them loses all.
const JITTER: Span = Span::from_micros(24);
/// Bytes of a datagram that are not its block: header and tag.
pub const OVERHEAD: u32 = 32;
/// Bytes of object in a datagram that fills a packet of 1500: less 28 of IP and UDP, and
/// [`OVERHEAD`].
pub const BLOCK: u32 = 1_440;
/// Wire bytes of a full packet: 1500 and Ethernet's 38.
const FRAME: f64 = 1_538.0;

/// Of a link's rate, what is left for UDP payload in full packets: the most that `rate` may ask
/// for.
pub fn payload_ceiling(link: Rate) -> Rate {
    link.scale(f64::from(BLOCK + OVERHEAD) / FRAME)
}

/// The rate of UDP payload that sends `rate` bits of object a second: the papers give theirs
/// without our header and tag.
pub fn with_overhead(rate: Rate) -> Rate {
    rate.scale(f64::from(BLOCK + OVERHEAD) / f64::from(BLOCK))
}

/// Two hosts, `a` and `b`, and a link each way.
pub fn pair(name: &str, forward: LinkSpec, back: LinkSpec, flows: Vec<Flow>) -> Scenario {
    let links = vec![
        LinkBetween { from: 0, to: 1, link: forward },
        LinkBetween { from: 1, to: 0, link: back },
    ];
    let network = Network { routers: Vec::new(), links, routes: Vec::new() };
    scenario(name, vec![Host::new("a"), Host::new("b")], network, flows)
}

/// Two hosts with the same link each way, but loss towards `b` only.
pub fn lossy_pair(
    name: &str,
    rate: Rate,
    rtt: Span,
    loss: LossRatio,
    flows: Vec<Flow>,
) -> Scenario {
    let link = LinkSpec::path(rate, rtt);
    pair(name, link.clone().with_loss(Loss::independent(loss)), link, flows)
}

/// Senders `s1`, `s2`, … and as many receivers `r1`, `r2`, … on either side of one shared link of
/// `rate`, with a drop-tail queue of one round trip; the way to it is ten times as fast. A sender's
/// place is its number less 1, its receiver's that and `pairs`.
pub fn dumbbell(name: &str, rate: Rate, rtt: Span, pairs: usize, flows: Vec<Flow>) -> Scenario {
    let senders = (1..=pairs).map(|n| Host::new(format!("s{n}")));
    let receivers = (1..=pairs).map(|n| Host::new(format!("r{n}")));
    let hosts: Vec<Host> = senders.chain(receivers).collect();
    let (left, right) = (2 * pairs, 2 * pairs + 1);
    let access = LinkSpec { delay: Span::ZERO, ..LinkSpec::path(rate.scale(10.0), rtt) };
    let trunk = LinkSpec::path(rate, rtt);
    let both = |from, to, link: &LinkSpec| {
        [(from, to), (to, from)].map(|(from, to)| LinkBetween { from, to, link: link.clone() })
    };
    let mut links = Vec::from(both(left, right, &trunk));
    for pair in 0..pairs {
        links.extend(both(pair, left, &access));
        links.extend(both(right, pairs + pair, &access));
    }
    let network = Network { routers: vec!["left".into(), "right".into()], links, routes: vec![] };
    scenario(name, hosts, network, flows)
}

/// One receiver, `r`, behind a switch, and senders `s1`, `s2`, …, each with a link of its own to
/// the switch of the same rate as the receiver's and with its own round-trip time. The switch has
/// the queue, drop-tail, of 512 kB. Packets come to it up to 24 µs late, in order.
pub fn star(name: &str, rate: Rate, rtts: &[Span], flows: Vec<Flow>) -> Scenario {
    let access = LinkSpec { queue: PORT, ..LinkSpec::path(rate, Span::ZERO) };
    let receiver = rtts.len();
    let switch = receiver + 1;
    let mut hosts: Vec<Host> = (1..=rtts.len()).map(|n| Host::new(format!("s{n}"))).collect();
    hosts.push(Host::new("r"));
    let mut links = vec![
        LinkBetween { from: switch, to: receiver, link: access.clone() },
        LinkBetween { from: receiver, to: switch, link: access },
    ];
    for (sender, rtt) in rtts.iter().enumerate() {
        let link = LinkSpec::path(rate, *rtt);
        let jitter = Jitter { spread: JITTER, overtakes: false };
        let there = LinkSpec { jitter, ..link.clone() };
        links.push(LinkBetween { from: sender, to: switch, link: there });
        links.push(LinkBetween { from: switch, to: sender, link });
    }
    let network = Network { routers: vec!["switch".into()], links, routes: Vec::new() };
    scenario(name, hosts, network, flows)
}

fn scenario(name: &str, hosts: Vec<Host>, network: Network, flows: Vec<Flow>) -> Scenario {
    Scenario {
        name: name.into(),
        about: String::new(),
        seed: SEED,
        time_limit: TIME_LIMIT,
        mtu: MTU,
        hosts,
        network,
        flows,
        record: Record::default(),
    }
}

/// The same scenario with a time series.
pub fn recorded(scenario: Scenario, interval: Span) -> Scenario {
    Scenario { record: Record { interval: Some(interval) }, ..scenario }
}

/// A flow from the first host to the second, from the start.
pub fn flow(amount: Amount, traffic: Traffic) -> Flow {
    Flow { name: "flow".into(), from: 0, to: 1, start: Time::ZERO, amount, traffic }
}

/// An object that goes by `protocol` as the papers did it: one segment, no copies of tails, at
/// `rate` bits of UDP payload a second.
pub fn transfer(protocol: &str, size: Bytes, rate: Option<Rate>) -> Flow {
    let settings = (protocol == rbudp::ROW.name).then(|| (rbudp::TAIL_COPIES.name.into(), 1.0));
    let transfer = Transfer {
        protocol: protocol.into(),
        rate,
        segment: Some(size),
        settings: settings.into_iter().collect(),
        ..Transfer::default()
    };
    flow(Amount::Size(size), Traffic::Protocol(transfer))
}

/// A TCP flow.
pub fn tcp(amount: Amount, tcp: Tcp) -> Flow {
    flow(amount, Traffic::Tcp(tcp))
}

/// The same flow under another name, between other hosts, and later.
pub fn placed(flow: Flow, name: &str, from: usize, to: usize, start: Span) -> Flow {
    Flow { name: name.into(), from, to, start: Time::ZERO + start, ..flow }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_is_a_valid_scenario() {
        let (rate, rtt) = (Rate::from_mbps(1_000), Span::from_millis(100));
        let size = Bytes::new(1_000_000);
        let rbudp = transfer("rbudp", size, Some(rate));
        let one = lossy_pair("one", rate, rtt, LossRatio::NONE, vec![rbudp.clone()]);
        assert_eq!(one.validate(), Ok(()));
        let tcp = tcp(Amount::Lasts(Span::from_secs(1)), Tcp::default());
        let flows = vec![rbudp, placed(tcp, "tcp", 1, 2, Span::from_secs(1))];
        let two = star("two", rate, &[rtt, rtt / 2], flows);
        assert_eq!(recorded(two, rtt).validate(), Ok(()));
    }

    #[test]
    fn a_full_packet_carries_1440_of_1538_bytes() {
        let link = Rate::from_mbps(1_538);
        assert_eq!(payload_ceiling(link), Rate::from_mbps(1_472));
        assert_eq!(with_overhead(Rate::from_mbps(1_440)), Rate::from_mbps(1_472));
    }
}
