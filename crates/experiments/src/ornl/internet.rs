//! Sections 4.1 and 4.2: between Oak Ridge, Berkeley and Geneva.

use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, LossRatio, Rate};
use longhaul_testbed::link::{LinkSpec, Loss};
use longhaul_testbed::scenario::{Flow, Pace, Scenario};

use super::{Carrier, Columns, FOBS, MEMORY_SIZE, RBUDP, SABUL, TSUNAMI};
use super::{columns, rows};
use crate::experiment::{Case, Experiment};
use crate::paths::pair;
use crate::table::Table;

/// "round-trip min/avg/max/mdev = 67.209/67.490/67.657/0.324 ms".
const RTT: Span = Span::from_micros(67_500);

/// iperf's 200M: 2²⁰ bytes each.
const UDP: Carrier = Carrier::Udp(Bytes::mebi(200));
const TCP: Carrier = Carrier::Tcp { streams: 3, window: None };

/// The hosts' cards.
const LINK: Rate = Rate::from_mbps(1_000);

/// A day's path: what iperf's UDP got out, and the share of RBUDP's packets that it lost.
struct Day {
    name: &'static str,
    capacity: Rate,
    loss: (u64, u64),
    /// RBUDP's sending rate: what its published time leaves after its rounds.
    rate: Rate,
}

const DAYS: [Day; 2] = [
    Day {
        name: "best case",
        capacity: Rate::from_bps(489_000_000),
        loss: (73, 137_742),
        rate: Rate::from_mbps(370),
    },
    Day {
        name: "worst case",
        capacity: Rate::from_bps(420_000_000),
        loss: (4_415, 142_157),
        rate: Rate::from_mbps(335),
    },
];

struct Contender {
    name: &'static str,
    carrier: Carrier,
    published: [Columns; 2],
}

const fn contender(
    name: &'static str,
    carrier: Carrier,
    best: [f64; 5],
    worst: [f64; 5],
) -> Contender {
    Contender { name, carrier, published: [columns(best), columns(worst)] }
}

/// Section 4.1: rate, lost, retransmitted, sent, duplicates.
const CONTENDERS: [Contender; 6] = [
    contender(
        "RBUDP",
        RBUDP,
        [358.28, 73.0, 73.0, 137_742.0, 0.0],
        [310.37, 4_415.0, 4_415.0, 142_157.0, 0.0],
    ),
    contender(
        "FOBS",
        FOBS,
        [317.17, 2_816.0, 6_720.0, 143_147.0, 2_009.0],
        [256.17, 2_170.0, 6_103.0, 142_530.0, 2_057.0],
    ),
    contender(
        "SABUL",
        SABUL,
        [343.49, 15.0, 15.0, 140_015.0, 5.0],
        [151.76, 47_838.0, 44_895.0, 184_895.0, 2_441.0],
    ),
    contender(
        "Tsunami",
        TSUNAMI,
        [307.23, 55.0, 259.0, 13_361.0, 204.0],
        [243.92, 1_689.0, 1_689.0, 14_963.0, 228.0],
    ),
    contender("UDP", UDP, [489.0, 0.0, 0.0, 145_499.0, 0.0], [420.0, 3.0, 0.0, 142_846.0, 0.0]),
    contender(
        "TCP, 3 streams",
        TCP,
        [279.7, 6.0, 7.0, 171_303.0, 2.0],
        [229.8, 5.0, 7.0, 145_491.0, 2.0],
    ),
];

fn path(name: &str, day: &Day, flow: Flow) -> Scenario {
    let link = LinkSpec::path(LINK, RTT);
    let loss = Loss::independent(LossRatio::of(day.loss.0, day.loss.1));
    let mut scenario = pair(name, link.clone().with_loss(loss), link, vec![flow]);
    scenario.hosts[0].sends = Pace { packets: None, rate: Some(day.capacity) };
    scenario
}

fn case_name(contender: &str, day: &Day) -> String {
    format!("{contender}, {}", day.name)
}

/// The memory runs over the internet.
pub(super) static INTERNET: Experiment = Experiment {
    id: "ornl-internet",
    title: "Memory to memory from Oak Ridge to Berkeley, on a good day and on a bad one",
    source: "Fowler, *Faster bulk transfer starring: UDP*, Oak Ridge National Laboratory (2003), \
             section 4.1",
    setup: "200 MB over 67.5 ms. What the study says of the path is what two of its programs saw \
            of it, and that is what is taken for it: a sending host that gets out what iperf's \
            UDP did (489 and 420 Mbit/s, of which nothing was lost, so that no link was the \
            limit), a path of 1 Gbit/s as the hosts' cards, and on the way to the receiver the \
            share of loss that RBUDP met (0.053 % and 3.1 %), each packet for itself. Cross \
            traffic, \
            reordering and slow hosts are not in it. RBUDP's sending rate is not given either: \
            370 and 335 Mbit/s are what its published time leaves after its rounds. FOBS and \
            Tsunami are told the same as the most to send; SABUL finds its rate.",
    cases: || {
        let runs = CONTENDERS.iter().flat_map(|contender| DAYS.iter().map(move |d| (contender, d)));
        runs.filter_map(|(contender, day)| {
            let name = case_name(contender.name, day);
            let rate = if contender.carrier == UDP { day.capacity } else { day.rate };
            let scenario = path(&name, day, contender.carrier.flow(MEMORY_SIZE, rate)?);
            Some(Case::simulated(name, scenario))
        })
        .collect()
    },
    tables: |outcomes| {
        let table = |(index, day): (usize, &Day)| {
            let rows = CONTENDERS.iter().flat_map(|contender| {
                rows(&case_name(contender.name, day), &contender.published[index], outcomes)
            });
            Table::new(day.name, rows.collect())
        };
        DAYS.iter().enumerate().map(table).collect()
    },
    figures: Experiment::NO_FIGURES,
    differs: "RBUDP's goodput follows from what was worked out of it, and says nothing about us; \
              its counts do, and all that the others do. The study ran them one after the other \
              over months: each met another path, iperf's lost nothing on the day on which RBUDP's \
              lost 3 %, so the two rows of UDP and TCP, which lost next to nothing then, are here \
              under a loss that they did not have. Tsunami counts datagrams here, blocks of 16 kB \
              there.",
    learned: "A loss of three per cent that no queue of one's own has made costs a protocol with \
              a given rate three per cent and some round trips. TCP, which takes every loss for \
              its own fault, is left with next to nothing.",
    quick: true,
};
