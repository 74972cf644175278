//! Figures 3, 4, 6 and 7 of the SABUL paper: SABUL with other SABUL flows, and with TCP.

use super::alone::queue;
use crate::experiment::{Case, Experiment, Figure, Set};
use crate::outcome::{CaseFlow, CaseOutcome, fairness};
use crate::plot::{Axis, Origin, Plot, Series};
use crate::quantity::{AGGREGATE, FAIRNESS, GOODPUT, Quantity, Unit};
use crate::scenarios::{Variant, vary};
use crate::table::{Aim, Published, Row, Table, emulated_value};

/// Each flow's round-trip time and initial rate in Mbit/s.
const THREE: [&str; 3] = ["10 ms, from 100", "50 ms, from 300", "100 ms, from 500"];
const CONVERGE: &str = "three flows";
/// Start and end, in seconds, of the period over which goodputs are averaged.
const SETTLED: (f64, f64) = (40.0, 60.0);

/// The largest deviation of a rate from an equal share, in per cent.
const FURTHEST: Quantity = Quantity { name: "furthest from an equal share", unit: Unit::Share };

fn furthest(rates: &[f64]) -> f64 {
    let equal = rates.iter().sum::<f64>() / rates.len() as f64;
    rates.iter().map(|rate| 100.0 * (rate / equal - 1.0).abs()).fold(0.0, f64::max)
}

fn over_time<const N: usize>(title: &str, flows: &[CaseFlow], names: [&str; N]) -> Figure {
    let series = flows.iter().zip(names).map(|(flow, name)| {
        let points = flow.series.iter().map(|sample| (sample.at, sample.goodput));
        Series::new(format!("simulated: {name}"), Origin::Simulated, points)
    });
    let (x, y) = (Axis::linear("time, s"), Axis::linear("goodput, Mbit/s"));
    Figure { name: "", plot: Plot { title: title.into(), x, y, series: series.collect() } }
}

pub(super) static FIG3: Experiment = Experiment {
    id: "sabul-fig3",
    title: "Three SABUL flows of different round trips and initial rates on 1 Gbit/s",
    source: "Gu and Grossman, *SABUL: a transport protocol for grid computing* (2003), section 4, \
             Fig. 3",
    setup: "Three SABUL flows run for 60 s into one receiver of 1 Gbit/s (Ethernet framing \
            included). Their round trips are 10, 50 and 100 ms, and they begin at 100, 300 and 500 \
            Mbit/s; the rows name both. The fairness index is Jain's. The drop-tail queue holds \
            one bandwidth-delay product of the longest path. Goodputs are means of the last 20 s.",
    cases: || vec![Case::both(CONVERGE, vary("sabul-fig3"))],
    tables: |outcomes| {
        let means = |outcome: &CaseOutcome| -> Vec<f64> {
            outcome.flows.iter().map(|f| f.goodput_between(SETTLED.0, SETTLED.1)).collect()
        };
        let mut rows: Vec<Row> = (0..THREE.len())
            .map(|place| {
                let ours = outcomes.of(CONVERGE, |outcome| means(outcome)[place]);
                // "The flows all converge at about 280 Mbps."
                Row::new(THREE[place], GOODPUT, ours).says(Published::About(280.0))
            })
            .collect();
        let even = outcomes.of(CONVERGE, |outcome| fairness(&means(outcome)));
        rows.push(Row::new(CONVERGE, FAIRNESS, even));
        let furthest = outcomes.of(CONVERGE, |outcome| furthest(&means(outcome)));
        rows.push(Row::new(CONVERGE, FURTHEST, furthest).aim(Aim::AtMost(5.0)));
        vec![Table::new("", rows)]
    },
    courses: |outcomes| {
        let flows = outcomes.case(CONVERGE).map(|outcome| &*outcome.flows).unwrap_or_default();
        vec![over_time("Three SABUL flows", flows, THREE)]
    },
    figures: Experiment::NO_FIGURES,
    differs: "The paper does not give round trips, initial rates or the duration; these are \
              longhaul's choice.",
    learned: "Flows to one receiver that start at 100, 300 and 500 Mbit/s, with round trips of 10 \
              to 100 ms, converge. SABUL's increase of the rate does not depend on the round-trip \
              time, and its decrease is a fixed share of the rate. So after 40 s no flow in the \
              simulator is more than {three flows | furthest from an equal share | 1} % from an \
              equal share. Together the simulated flows have {[10 ms, from 100] + [50 ms, from \
              300] + [100 ms, from 500]} of the 936 Mbit/s of object data that the link carries, \
              {100 - 100 * ([10 ms, from 100] + [50 ms, from 300] + [100 ms, from 500]) / 840} % \
              less than three times the paper's 280. Each of them is {-most [* from * | \
              difference]} to {-least [* from * | difference]} % below the paper's.",
    set: Set::Quick,
};

const CAPACITIES: [u64; 2] = [100, 1_000];
const RTTS: [u64; 3] = [1, 10, 100];
const TCP_SHARE: Quantity = Quantity { name: "TCP's share of the sum", unit: Unit::Share };
const TCP: &str = "tcp";
const SABUL: &str = "sabul";

fn grid_case(capacity: u64, rtt: u64) -> String {
    format!("{capacity} Mbit/s, {rtt} ms")
}

fn tcp_share(outcome: &CaseOutcome) -> f64 {
    let of = |name| outcome.flow(name).map_or(0.0, CaseFlow::goodput);
    100.0 * of(TCP) / (of(TCP) + of(SABUL)).max(f64::MIN_POSITIVE)
}

pub(super) static FIG4: Experiment = Experiment {
    id: "sabul-fig4",
    title: "SABUL's friendliness to TCP at several capacities and round-trip times",
    source: "Gu and Grossman, *SABUL: a transport protocol for grid computing* (2003), section 4, \
             Fig. 4",
    setup: "A TCP flow (NewReno with selective acknowledgements, window of one bandwidth-delay \
            product, at least 64 kB) and a SABUL flow share one path for 20 s. The path has a \
            drop-tail queue of one bandwidth-delay product (at least 10 packets). SABUL begins at \
            a tenth of the capacity. The rows name the capacity and the round-trip time.",
    cases: || {
        let all = CAPACITIES.iter().flat_map(|capacity| RTTS.map(|rtt| (*capacity, rtt)));
        all.map(|(capacity, rtt)| {
            // "TCP SACK with the maximum window size set to BDP"; Mbit/s times ms are kbit.
            let window = (capacity * rtt * 1_000 / 8).max(65_535);
            let both = vary("sabul-fig4")
                .set("topology.link.rate", format!("{capacity}M"))
                .set("topology.link.delay", format!("{}us", rtt * 500))
                .set("topology.link.queue", queue(capacity, rtt))
                .set("flow.tcp.window", window)
                .set("flow.sabul.settings.initial-rate", format!("{}M", capacity / 10));
            Case::both(grid_case(capacity, rtt), both)
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
    courses: Experiment::NO_COURSES,
    figures: |outcomes, tables| {
        let mut series = Vec::new();
        for capacity in CAPACITIES {
            let points = |value: &dyn Fn(&str) -> Option<f64>| -> Vec<(f64, f64)> {
                let all = RTTS.iter();
                all.filter_map(|rtt| Some((*rtt as f64, value(&grid_case(capacity, *rtt))?)))
                    .collect()
            };
            let ours = points(&|case| outcomes.of(case, tcp_share));
            let label = format!("simulated: {capacity} Mbit/s");
            series.push(Series::new(label, Origin::Simulated, ours));
            let real = points(&|case| emulated_value(tables, case, TCP_SHARE));
            if !real.is_empty() {
                let label = format!("emulated: {capacity} Mbit/s");
                series.push(Series::new(label, Origin::Emulated, real));
            }
        }
        let (x, y) = (Axis::log("round-trip time, ms"), Axis::linear(&TCP_SHARE.heading()));
        let title = "TCP beside SABUL; 50 % is an equal share".into();
        vec![Figure { name: "", plot: Plot { title, x, y, series } }]
    },
    differs: "The paper describes the figure only in words: \"in low BDP environments, TCP obtains \
              more of the available bandwidth. In high BDP environments … SABUL is able to \
              effectively use\" it.",
    learned: "In the simulator TCP has {100 Mbit/s, 1 ms} % of the goodput where the queue is ten \
              packets, {100 Mbit/s, 10 ms} % where the bandwidth-delay product is 125 kB, and \
              {1000 Mbit/s, 10 ms} to {1000 Mbit/s, 100 ms} % where it is 1 MB or more. With a \
              queue of ten packets SABUL has almost no goodput: it increases its rate only every \
              10 ms, ten of TCP's round trips.",
    set: Set::Full,
};

const LAN: &str = "2 TCP and 2 SABUL";
const LAN_FLOWS: [&str; 4] = ["TCP 1", "TCP 2", "SABUL 1", "SABUL 2"];

pub(super) static FIG6: Experiment = Experiment {
    id: "sabul-fig6",
    title: "Two TCP and two SABUL flows on a local network",
    source: "Gu and Grossman, *SABUL: a transport protocol for grid computing* (2003), section 5, \
             Fig. 6",
    setup: "Two TCP and two SABUL flows run for 20 s from separate hosts to one receiver of 1 \
            Gbit/s, with a round trip of 0.4 ms, through a switch whose port has a queue of 512 \
            kB; SABUL begins at 100 Mbit/s.",
    cases: || vec![Case::both(LAN, vary("sabul-fig6"))],
    tables: |outcomes| {
        let rows = LAN_FLOWS.iter().enumerate().map(|(place, name)| {
            let goodput = outcomes.of(LAN, |outcome| outcome.flows[place].goodput());
            Row::new(*name, GOODPUT, goodput)
        });
        vec![Table::new("", rows.collect())]
    },
    courses: |outcomes| {
        let flows = outcomes.case(LAN).map(|outcome| &*outcome.flows).unwrap_or_default();
        vec![over_time("Two TCP and two SABUL flows", flows, LAN_FLOWS)]
    },
    figures: Experiment::NO_FIGURES,
    differs: "The paper says only that \"TCP obtained slightly higher bandwidth than SABUL\". It \
              does not give the size of the switch's queue. That size matters, because a full \
              queue delays packets by much more than the round trip of 0.4 ms: by 4 ms for 512 kB.",
    learned: "Where the round trip is much shorter than SABUL's interval of 10 ms, SABUL yields to \
              TCP: the two TCP flows have {TCP 1} and {TCP 2} Mbit/s, the SABUL flows {SABUL 1} \
              and {SABUL 2}. In the paper TCP was only slightly ahead. The two SABUL flows do not \
              share evenly in 20 s either. A flow that loses packets first in an interval yields \
              first, so chance decides which of them is ahead, in the simulator and over real \
              sockets. On such a local network use TCP, or a protocol with a configured rate.",
    set: Set::Full,
};

/// The numbers of SABUL flows. The paper: "500 TCP mice", "1 MB of data was transferred in each
/// connection", "between 0 and 9 SABUL background flows".
const BACKGROUND: [usize; 7] = [0, 1, 2, 3, 5, 7, 9];
const MICE: Quantity = Quantity { name: "goodput of the mice", unit: Unit::Rate };
const MICE_NAME: &str = "mice";

fn mice_case(flows: usize) -> String {
    format!("{flows} SABUL flows")
}

fn with_mice(background: usize) -> Variant {
    let mice = vary("sabul-fig7");
    match background {
        0 => mice.only(&[MICE_NAME]),
        flows => {
            // A rate is a whole number of bit/s; a seventh of 900 Mbit/s is not.
            let each = (900e6 / flows as f64).round();
            mice.set("flow.sabul.copies", flows)
                .set("flow.sabul.settings.initial-rate", format!("{each}bit/s"))
        }
    }
}

pub(super) static FIG7: Experiment = Experiment {
    id: "sabul-fig7",
    title: "500 short TCP connections against SABUL in the background",
    source: "Gu and Grossman, *SABUL: a transport protocol for grid computing* (2003), section 5, \
             Fig. 7",
    setup: "500 TCP connections (mice) of 1 MB each start at random times, one every 70 ms on \
            average. The path has 1 Gbit/s, an RTT of 110 ms and a drop-tail queue of one \
            bandwidth-delay product. Up to 9 SABUL flows of 40 s run at the same time and begin at \
            equal shares of 900 Mbit/s. The goodput of the mice counts all of their data, from the \
            first start to the last end.",
    cases: || {
        let mice = |flows| Case::both(mice_case(flows), with_mice(flows));
        BACKGROUND.map(mice).into()
    },
    tables: |outcomes| {
        let rows = BACKGROUND.iter().flat_map(|background| {
            let case = mice_case(*background);
            let flow = outcomes.case(&case).and_then(|outcome| outcome.flow(MICE_NAME));
            let mice = Row::new(&*case, MICE, flow.map(CaseFlow::goodput));
            let others = outcomes.of(&case, |outcome| {
                let own = outcome.flows.iter().filter(|flow| flow.name != MICE_NAME);
                own.map(CaseFlow::goodput).sum()
            });
            [mice, Row::new(&*case, AGGREGATE, others)]
        });
        vec![Table::new("", rows.collect())]
    },
    courses: Experiment::NO_COURSES,
    figures: |outcomes, _| {
        let ours = BACKGROUND.iter().filter_map(|background| {
            let outcome = outcomes.case(&mice_case(*background))?;
            Some((*background as f64, outcome.flow(MICE_NAME)?.goodput()))
        });
        let series = vec![Series::new("simulated", Origin::Simulated, ours)];
        let (x, y) = (Axis::linear("SABUL flows"), Axis::linear(&MICE.heading()));
        let title = "500 mice of 1 MB".into();
        vec![Figure { name: "", plot: Plot { title, x, y, series } }]
    },
    differs: "The paper's text gives none of the figure's values, only the labels of its axes, so \
              this page compares nothing with the figure. The paper does not say how its mice \
              arrived; 1 MB every 70 ms, as here, is an offered load of 114 Mbit/s. The row \
              `aggregate goodput` is SABUL's.",
    learned: "Short connections spend their time in slow start. When other flows fill the \
              queue, short connections suffer losses and delay: the mice lose \
              {100 - 100 * [1 SABUL flows] / [0 SABUL flows]} % of their goodput with one SABUL \
              flow, {100 - 100 * [5 SABUL flows] / [0 SABUL flows]} % with five, and \
              {100 - 100 * [9 SABUL flows] / [0 SABUL flows]} % with nine. SABUL itself \
              takes {[1 SABUL flows | aggregate goodput] / 10} to {[9 SABUL flows | aggregate \
              goodput] / 10} % of the link. Over real sockets the mice have between \
              {most [* | goodput of the mice | from simulated]} % more and {-least [* | goodput of \
              the mice | from simulated]} % less goodput than in the simulator.",
    set: Set::Full,
};
