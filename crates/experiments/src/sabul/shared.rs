//! Figures 3, 4, 6 and 7: SABUL beside others of its kind, and beside TCP.

use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, LossRatio, Rate};
use longhaul_testbed::link::LinkSpec;
use longhaul_testbed::scenario::{
    Amount, Arrivals, Congestion, Flow, Mice, Scenario, Tcp, Traffic,
};

use super::{LINK, sabul};
use crate::experiment::{Case, Experiment, Figure};
use crate::outcome::{FlowOutcome, Outcome, fairness};
use crate::paths::{flow, lossy_pair, placed, recorded, star, tcp};
use crate::plot::{Axis, Origin, Plot, Series};
use crate::quantity::{AGGREGATE, FAIRNESS, GOODPUT, Quantity, Unit};
use crate::table::{Published, Row, Table};

const INTERVAL: Span = Span::from_millis(500);

/// TCP of the paper: "TCP SACK with the maximum window size set to BDP".
fn sack(window: Option<Bytes>) -> Tcp {
    Tcp { congestion: Congestion::NewReno, window, ..Tcp::default() }
}

/// A flow's name, its round-trip time in ms and its initial rate in Mbit/s.
const THREE: [(&str, u64, f64); 3] = [
    ("10 ms, from 100", 10, 100.0),
    ("50 ms, from 300", 50, 300.0),
    ("100 ms, from 500", 100, 500.0),
];
const CONVERGE: &str = "three flows";
const SETTLED: (f64, f64) = (40.0, 60.0);

/// Figure 3.
pub(super) static FIG3: Experiment = Experiment {
    id: "sabul-fig3",
    title: "Three SABUL flows of different round trips and initial rates on 1 Gbit/s",
    source: "Gu and Grossman, *SABUL: a transport protocol for grid computing* (2003), section 4, \
             Fig. 3",
    setup: "Three SABUL flows for 60 s into one receiver of 1 Gbit/s (Ethernet framing included), \
            from 10, 50 and 100 ms, beginning at 100, 300 and 500 Mbit/s, with a drop-tail queue \
            of one bandwidth-delay product of the longest; the means of the last 20 s.",
    cases: || {
        let flows = THREE.iter().enumerate().map(|(from, (name, _, rate))| {
            let flow = sabul(Amount::Lasts(Span::from_secs(60)), *rate)?;
            Some(placed(flow, name, from, 3, Span::ZERO))
        });
        let Some(flows) = flows.collect::<Option<Vec<Flow>>>() else { return Vec::new() };
        let rtts = THREE.map(|(_, millis, _)| Span::from_millis(millis));
        let mut scenario = star(CONVERGE, LINK, &rtts, flows);
        // The paper's queue is not a switch's of its time.
        scenario.network.links[0].link.queue = LinkSpec::path(LINK, rtts[2]).queue;
        vec![Case::simulated(CONVERGE, recorded(scenario, INTERVAL))]
    },
    tables: |outcomes| {
        let means = |outcome: &Outcome| -> Vec<f64> {
            outcome.flows.iter().map(|f| f.goodput_between(SETTLED.0, SETTLED.1)).collect()
        };
        let mut rows: Vec<Row> = (0..THREE.len())
            .map(|place| {
                let ours = outcomes.of(CONVERGE, |outcome| means(outcome)[place]);
                // "The flows all converge at about 280 Mbps."
                Row::new(THREE[place].0, GOODPUT, ours).says(Published::About(280.0))
            })
            .collect();
        let even = outcomes.of(CONVERGE, |outcome| fairness(&means(outcome)));
        rows.push(Row::new(CONVERGE, FAIRNESS, even));
        vec![Table::new("", rows)]
    },
    figures: |outcomes, _| {
        let flows = outcomes.case(CONVERGE).map(|outcome| &*outcome.flows).unwrap_or_default();
        let series = flows.iter().map(|flow| {
            let points = flow.series.iter().map(|sample| (sample.at, sample.goodput));
            Series::new(format!("simulated: {}", flow.name), Origin::Simulated, points)
        });
        let (x, y) = (Axis::linear("time, s"), Axis::linear("goodput, Mbit/s"));
        let title = "Three SABUL flows".into();
        vec![Figure { name: "", plot: Plot { title, x, y, series: series.collect() } }]
    },
    differs: "The paper does not give round trips, initial rates or how long it took; these are \
              ours.",
    learned: "SABUL's decrease brings flows together only as far as they lose alike: who meets \
              the full queue more often gives way more often.",
    quick: true,
};

const CAPACITIES: [u64; 2] = [100, 1_000];
const RTTS: [u64; 3] = [1, 10, 100];
const TCP_SHARE: Quantity = Quantity { name: "TCP's share of the sum", unit: Unit::Share };
const TCP: &str = "tcp";
const SABUL: &str = "sabul";

fn grid_case(capacity: u64, rtt: u64) -> String {
    format!("{capacity} Mbit/s, {rtt} ms")
}

/// A TCP and a SABUL flow side by side.
fn friends(name: &str, rate: Rate, rtt: Span) -> Option<Scenario> {
    let amount = Amount::Lasts(Span::from_secs(20));
    let window = rate.over(rtt).max(Bytes::new(65_535));
    let own = sabul(amount, rate.as_bps() as f64 / 1e7)?;
    let flows = vec![
        placed(tcp(amount, sack(Some(window))), TCP, 0, 1, Span::ZERO),
        placed(own, SABUL, 0, 1, Span::ZERO),
    ];
    Some(lossy_pair(name, rate, rtt, LossRatio::NONE, flows))
}

/// TCP's part of what both delivered, in per cent.
fn tcp_share(outcome: &Outcome) -> f64 {
    let of = |name| outcome.flow(name).map_or(0.0, FlowOutcome::goodput);
    100.0 * of(TCP) / (of(TCP) + of(SABUL)).max(f64::MIN_POSITIVE)
}

/// Figure 4.
pub(super) static FIG4: Experiment = Experiment {
    id: "sabul-fig4",
    title: "SABUL's friendliness to TCP over capacity and round-trip time",
    source: "Gu and Grossman, *SABUL: a transport protocol for grid computing* (2003), section 4, \
             Fig. 4",
    setup: "A TCP flow (NewReno with selective acknowledgements, window of one bandwidth-delay \
            product, at least 64 kB) and a SABUL flow for 20 s on one path with a drop-tail queue \
            of one bandwidth-delay product (at least 100 packets); SABUL begins at a tenth of the \
            capacity.",
    cases: || {
        let all = CAPACITIES.iter().flat_map(|capacity| RTTS.map(|rtt| (*capacity, rtt)));
        all.filter_map(|(capacity, rtt)| {
            let name = grid_case(capacity, rtt);
            let scenario = friends(&name, Rate::from_mbps(capacity), Span::from_millis(rtt))?;
            Some(Case::simulated(name, scenario))
        })
        .collect()
    },
    tables: |outcomes| {
        let all = CAPACITIES.iter().flat_map(|capacity| RTTS.map(|rtt| (*capacity, rtt)));
        let rows = all.map(|(capacity, rtt)| {
            let case = grid_case(capacity, rtt);
            let share = outcomes.of(&case, tcp_share);
            Row::new(case, TCP_SHARE, share)
        });
        vec![Table::new("", rows.collect())]
    },
    figures: Experiment::NO_FIGURES,
    differs: "The text has the figure's sense only: \"in low BDP environments, TCP obtains more of \
              the available bandwidth. In high BDP environments … SABUL is able to effectively \
              use\" it.",
    learned: "Near, TCP's round trips outpace SABUL's clock of 10 ms, and TCP has more; far, it is \
              the other way round.",
    quick: false,
};

const LAN: &str = "2 TCP and 2 SABUL";
const LAN_FLOWS: [(&str, bool); 4] =
    [("TCP 1", true), ("TCP 2", true), ("SABUL 1", false), ("SABUL 2", false)];

/// Figure 6.
pub(super) static FIG6: Experiment = Experiment {
    id: "sabul-fig6",
    title: "Two TCP and two SABUL flows on a local network",
    source: "Gu and Grossman, *SABUL: a transport protocol for grid computing* (2003), section 5, \
             Fig. 6",
    setup: "Four flows for 20 s from hosts of their own into one receiver of 1 Gbit/s, 0.4 ms \
            away, through a switch that holds 512 kB for its port; SABUL begins at 100 Mbit/s.",
    cases: || {
        let amount = Amount::Lasts(Span::from_secs(20));
        let flows = LAN_FLOWS.iter().enumerate().map(|(from, (name, is_tcp))| {
            let flow = if *is_tcp { tcp(amount, sack(None)) } else { sabul(amount, 100.0)? };
            Some(placed(flow, name, from, 4, Span::ZERO))
        });
        let Some(flows) = flows.collect::<Option<Vec<Flow>>>() else { return Vec::new() };
        vec![Case::simulated(LAN, star(LAN, LINK, &[Span::from_micros(400); 4], flows))]
    },
    tables: |outcomes| {
        let rows = LAN_FLOWS.iter().map(|(name, _)| {
            let flow = outcomes.case(LAN).and_then(|outcome| outcome.flow(name));
            Row::new(*name, GOODPUT, flow.map(FlowOutcome::goodput))
        });
        vec![Table::new("", rows.collect())]
    },
    figures: Experiment::NO_FIGURES,
    differs: "The text says only that \"TCP obtained slightly higher bandwidth than SABUL\".",
    learned: "Where the round trip is far below SABUL's clock, SABUL gives way to TCP.",
    quick: false,
};

/// "500 TCP mice", "1 MB of data was transferred in each connection", "between 0 and 9 SABUL
/// background flows".
const BACKGROUND: [usize; 4] = [0, 1, 3, 9];
const MICE: Quantity = Quantity { name: "goodput of the mice", unit: Unit::Rate };
const MICE_NAME: &str = "mice";

fn mice_case(flows: usize) -> String {
    format!("{flows} SABUL flows")
}

fn with_mice(background: usize) -> Option<Scenario> {
    let name = mice_case(background);
    let mice =
        Mice { count: 500, arrivals: Arrivals::Poisson(Span::from_millis(70)), tcp: sack(None) };
    let traffic = Traffic::Mice(mice);
    let mice = flow(Amount::Size(Bytes::new(1_000_000)), traffic);
    let mut flows = vec![placed(mice, MICE_NAME, 0, 1, Span::ZERO)];
    for number in 0..background {
        let share = 900.0 / background as f64;
        let own = sabul(Amount::Lasts(Span::from_secs(40)), share)?;
        flows.push(placed(own, &format!("sabul {number}"), 0, 1, Span::ZERO));
    }
    Some(lossy_pair(&name, LINK, Span::from_millis(110), LossRatio::NONE, flows))
}

/// Figure 7.
pub(super) static FIG7: Experiment = Experiment {
    id: "sabul-fig7",
    title: "500 short TCP connections against SABUL in the background",
    source: "Gu and Grossman, *SABUL: a transport protocol for grid computing* (2003), section 5, \
             Fig. 7",
    setup: "500 TCP connections of 1 MB each, coming at random every 70 ms on average, over 1 \
            Gbit/s and 110 ms with a drop-tail queue of one bandwidth-delay product, beside 0, 1, \
            3 or 9 SABUL flows of 40 s that begin at equal shares of 900 Mbit/s. The mice's \
            goodput is what they delivered from the first start to the last end.",
    cases: || {
        let cases = BACKGROUND.iter().filter_map(|background| {
            Some(Case::simulated(mice_case(*background), with_mice(*background)?))
        });
        cases.collect()
    },
    tables: |outcomes| {
        let rows = BACKGROUND.iter().flat_map(|background| {
            let case = mice_case(*background);
            let flow = outcomes.case(&case).and_then(|outcome| outcome.flow(MICE_NAME));
            let published = match background {
                0 => Some(Published::About(110.0)),
                9 => Some(Published::About(60.0)),
                _ => None,
            };
            let mice = Row::new(&*case, MICE, flow.map(FlowOutcome::goodput));
            let others = outcomes.of(&case, |outcome| {
                let own = outcome.flows.iter().filter(|flow| flow.name != MICE_NAME);
                own.map(FlowOutcome::goodput).sum()
            });
            [Row { published, ..mice }, Row::new(&*case, AGGREGATE, others)]
        });
        vec![Table::new("", rows.collect())]
    },
    figures: |outcomes, _| {
        let published = [(0.0, 110.0), (9.0, 60.0)];
        let ours = BACKGROUND.iter().filter_map(|background| {
            let outcome = outcomes.case(&mice_case(*background))?;
            Some((*background as f64, outcome.flow(MICE_NAME)?.goodput()))
        });
        let series = vec![
            Series::new("published: its ends", Origin::Published, published),
            Series::new("simulated", Origin::Simulated, ours),
        ];
        let (x, y) = (Axis::linear("SABUL flows"), Axis::linear(&MICE.heading()));
        let title = "500 mice of 1 MB".into();
        vec![Figure { name: "", plot: Plot { title, x, y, series } }]
    },
    differs: "How the paper's mice came is not said; at 70 ms apart they offer 114 Mbit/s, about \
              what it measured without SABUL. The row `aggregate goodput` is SABUL's.",
    learned: "Short connections live in slow start, where a queue that others keep full costs them \
              losses and time.",
    quick: false,
};
