//! Figure 2, Figure 5 and Table 1: SABUL alone on a path.

use crate::experiment::{Case, Experiment, Figure, Set};
use crate::outcome::CaseFlow;
use crate::plot::{Axis, Origin, Plot, Series};
use crate::quantity::{GOODPUT, SHARE};
use crate::scenarios::vary;
use crate::table::{Row, Table};

const CAPACITIES: [u64; 3] = [10, 100, 1_000];
const RTTS: [u64; 3] = [1, 10, 100];

/// "Queue size max(BDP, 10 packets)": ten of 1500 bytes are more than `capacity` (Mbit/s) carries
/// in `rtt` (ms) where the product is below 15 kB.
pub(super) fn queue(capacity: u64, rtt: u64) -> &'static str {
    if capacity * rtt * 125 < 15_000 { "10 packets" } else { "1bdp" }
}

fn grid_case(capacity: u64, rtt: u64) -> String {
    format!("{capacity} Mbit/s, {rtt} ms")
}

/// Figure 2.
pub(super) static FIG2: Experiment = Experiment {
    id: "sabul-fig2",
    title: "SABUL: share of the capacity over capacity and round-trip time",
    source: "Gu and Grossman, *SABUL: a transport protocol for grid computing* (2003), section 4, \
             Fig. 2",
    setup: "One SABUL flow for 20 s, beginning at a tenth of the capacity, over 10, 100 and 1000 \
            Mbit/s (Ethernet framing included) and 1, 10 and 100 ms, with a drop-tail queue of \
            one bandwidth-delay product (at least 10 packets), without other loss.",
    cases: || {
        let all = CAPACITIES.iter().flat_map(|capacity| RTTS.map(|rtt| (*capacity, rtt)));
        all.map(|(capacity, rtt)| {
            let sabul = vary("sabul-fig2")
                .set("topology.link.rate", format!("{capacity}M"))
                .set("topology.link.delay", format!("{}us", rtt * 500))
                .set("topology.link.queue", queue(capacity, rtt))
                .set("flow.sabul.settings.initial-rate", format!("{}M", capacity / 10));
            Case::both(grid_case(capacity, rtt), sabul)
        })
        .collect()
    },
    tables: |outcomes| {
        let all = CAPACITIES.iter().flat_map(|capacity| RTTS.map(|rtt| (*capacity, rtt)));
        let rows = all.map(|(capacity, rtt)| {
            let case = grid_case(capacity, rtt);
            let share = outcomes.first(&case, |f| f.goodput() * 100.0 / capacity as f64);
            Row::new(case, SHARE, share)
        });
        vec![Table::new("", rows.collect())]
    },
    courses: Experiment::NO_COURSES,
    figures: |outcomes, _| {
        let series = CAPACITIES.iter().map(|capacity| {
            let points = RTTS.iter().filter_map(|rtt| {
                let share = |f: &CaseFlow| f.goodput() * 100.0 / *capacity as f64;
                Some((*rtt as f64, outcomes.first(&grid_case(*capacity, *rtt), share)?))
            });
            Series::new(format!("simulated: {capacity} Mbit/s"), Origin::Simulated, points)
        });
        let (x, y) = (Axis::log("round-trip time, ms"), Axis::linear(&SHARE.heading()));
        let title = "SABUL alone".into();
        vec![Figure { name: "", plot: Plot { title, x, y, series: series.collect() } }]
    },
    differs: "The text has none of the figure's values. The queue is the paper's; its share is \
              perhaps of packets, ours is of object bits, of which framing and headers leave 93.6 \
              %.",
    learned: "SABUL's steps are of the size of its rate, not of its round trips, so over two \
              orders of magnitude of capacity and of distance its share stays between {least [*]} \
              and {most [*]} %: the paper's claim, \"independent of bandwidth and network delay\", \
              holds within ten points. Whether ours is better or worse than its figure cannot be \
              said. What it does not use is the time in which it climbs, framing and headers (6.4 \
              points), and the round trip for which each decrease freezes it: distance costs {[10 \
              Mbit/s, 1 ms] - [10 Mbit/s, 100 ms]} to {[1000 Mbit/s, 1 ms] - [1000 Mbit/s, 100 \
              ms]} points, capacity {[10 Mbit/s, 1 ms] - [1000 Mbit/s, 1 ms]} to {[10 Mbit/s, 10 \
              ms] - [1000 Mbit/s, 10 ms]}. Ten packets of queue are enough for that: in the \
              simulator SABUL sends its packets one by one. Over real sockets, where they come in \
              clumps, it is {-most [* | from simulated]} to {-least [* | from simulated]} points \
              less where the queue is long; where it is ten packets nobody has measured it yet. \
              Alone on a link a fixed rate is better: [gtp-table2](gtp-table2.md).",
    set: Set::Full,
};

/// Section 5: "Each route had a 1 Gbps link capacity with 110ms RTT"; Table 1.
const ROUTES: [(&str, f64); 3] =
    [("first route", 902.8), ("second route", 902.9), ("third route", 907.1)];
/// The flow has climbed to what it holds.
const SETTLED: (f64, f64) = (10.0, 20.0);

/// Figure 5 and Table 1.
pub(super) static FIG5: Experiment = Experiment {
    id: "sabul-fig5",
    title: "SABUL from Chicago to Amsterdam on three parallel routes",
    source: "Gu and Grossman, *SABUL: a transport protocol for grid computing* (2003), section 5, \
             Fig. 5 and Table 1",
    setup: "One SABUL flow on each of three separate routes of 1 Gbit/s and 110 ms with a \
            drop-tail queue of one bandwidth-delay product, for 20 s, beginning at 900 Mbit/s; \
            the mean of the second half.",
    cases: || {
        let route = |(place, (name, _)): (usize, &(&str, f64))| {
            Case::both(*name, vary("sabul-fig5").set("seed", place + 1))
        };
        ROUTES.iter().enumerate().map(route).collect()
    },
    tables: |outcomes| {
        let of = |case: &str| outcomes.first(case, |f| f.goodput_between(SETTLED.0, SETTLED.1));
        let mut rows: Vec<Row> = ROUTES
            .iter()
            .map(|(case, published)| Row::new(*case, GOODPUT, of(case)).published(*published))
            .collect();
        let all: Option<Vec<f64>> = ROUTES.iter().map(|(case, _)| of(case)).collect();
        let sum = all.map(|all| all.iter().sum());
        rows.push(Row::new("all three", GOODPUT, sum).published(2_712.8));
        vec![Table::new("", rows)]
    },
    courses: Experiment::NO_COURSES,
    figures: |outcomes, _| {
        let flow = outcomes.case(ROUTES[0].0).map(|outcome| &*outcome.first().series);
        let points = flow.unwrap_or_default().iter().map(|sample| (sample.at, sample.goodput));
        let series = vec![Series::new("simulated", Origin::Simulated, points)];
        let (x, y) = (Axis::linear("time, s"), Axis::linear("goodput, Mbit/s"));
        let title = "SABUL on one route".into();
        vec![Figure { name: "", plot: Plot { title, x, y, series } }]
    },
    differs: "The application chose the paper's initial rate and does not say which; ours is near \
              what it then had. The routes are alike here, so their rows are. Of 1 Gbit/s 936 \
              Mbit/s are left for the object; the paper's 903 to 907 are 96 to 97 % of that, ours \
              {100 * [first route] / 936} %.",
    learned: "On a route of its own SABUL holds {100 * [first route] / 936} % of what the route \
              carries even if it begins near it, because it climbs until it loses and then gives \
              an eighth back; routes side by side add up. Ours is worse, {-[all three | \
              difference]} % below the paper's, whose hosts or release seldom met a loss.",
    set: Set::Full,
};
