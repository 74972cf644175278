//! Figure 2, Figure 5 and Table 1 of the SABUL paper: SABUL alone on a path, and with the paper's
//! receiver.

use crate::experiment::{Case, Experiment, Figure, Set};
use crate::outcome::CaseFlow;
use crate::plot::{Axis, Origin, Plot, Series};
use crate::quantity::{GOODPUT, LOSS, SHARE};
use crate::scenarios::{Variant, vary};
use crate::table::{Row, Table};

const CAPACITIES: [u64; 3] = [10, 100, 1_000];
const RTTS: [u64; 3] = [1, 10, 100];

/// "Queue size max(BDP, 10 packets)", with packets of 1500 bytes. `capacity` is in Mbit/s, `rtt` in
/// ms.
pub(super) fn queue(capacity: u64, rtt: u64) -> &'static str {
    if capacity * rtt * 125 < 15_000 { "10 packets" } else { "1bdp" }
}

fn grid_case(capacity: u64, rtt: u64) -> String {
    format!("{capacity} Mbit/s, {rtt} ms")
}

pub(super) static FIG2: Experiment = Experiment {
    id: "sabul-fig2",
    title: "SABUL: share of the capacity at several capacities and round-trip times",
    source: "Gu and Grossman, *SABUL: a transport protocol for grid computing* (2003), section 4, \
             Fig. 2",
    setup: "One SABUL flow runs for 20 s, and begins at a tenth of the path's capacity. The paths \
            have 10, 100 and 1000 Mbit/s (Ethernet framing included) and round trips of 1, 10 and \
            100 ms. Packets are lost only in the drop-tail queue, which holds one bandwidth-delay \
            product (at least 10 packets).",
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
    differs: "The paper's text has none of the figure's values. The queue is the paper's, max(BDP, \
              10 packets). Here the share counts only the object's bits, for which framing and \
              headers leave at most 93.6 % of the capacity.",
    learned: "SABUL's steps depend on its rate, not on the round-trip time. Over two orders of \
              magnitude of capacity and of round-trip time its share stays between {least [*]} and \
              {most [*]} %, so the paper's claim, \"independent of bandwidth and network delay\", \
              holds within ten points.\n\n\
              SABUL leaves capacity unused for three reasons: it climbs slowly, framing and \
              headers take 6.4 points, and the first decrease after a new loss stops SABUL for a \
              round trip. A queue of ten packets is enough in the simulator, where SABUL sends \
              its packets evenly. Over real sockets, where packets arrive in clumps, its share is \
              {-most [* | from simulated]} to {-least [* | from simulated]} points lower in the \
              cases that were emulated. On a link without other traffic a fixed rate is better: \
              see [gtp-table2](gtp-table2.md).",
    set: Set::Full,
};

/// Section 5: "Each route had a 1 Gbps link capacity with 110ms RTT"; Table 1.
const ROUTES: [(&str, f64); 3] =
    [("first route", 902.8), ("second route", 902.9), ("third route", 907.1)];
/// The interval, in seconds, in which the flow has reached its rate.
const SETTLED: (f64, f64) = (10.0, 20.0);

pub(super) static FIG5: Experiment = Experiment {
    id: "sabul-fig5",
    title: "SABUL between Chicago and Amsterdam on three parallel routes",
    source: "Gu and Grossman, *SABUL: a transport protocol for grid computing* (2003), section 5, \
             Fig. 5 and Table 1",
    setup: "One SABUL flow runs on each of three separate routes for 20 s, and begins at 900 \
            Mbit/s. Each route has 1 Gbit/s, a round trip of 110 ms and a drop-tail queue of one \
            bandwidth-delay product. Goodputs are means of the second half of the 20 s.",
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
        // All rows are fitted: the initial rate is near the published rates.
        vec![Table::new("", rows).fitted(|_| true)]
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
    differs: "The published goodputs are those of Lambda-FTP with three-way striping from \
              Amsterdam to Chicago (Table 1, section 6). In the paper the application chose the \
              initial rate, which the text does not give; here it is near the paper's result. The \
              three routes have the same parameters, so the simulated rows are equal. Framing and \
              headers leave 936 of 1000 Mbit/s for the object. The paper's 903 to 907 Mbit/s are \
              96 to 97 % of 936, and longhaul has {100 * [first route] / 936} %. \
              [striping](striping.md) fetches one object over three routes, with real sockets.",
    learned: "On a separate route SABUL uses {100 * [first route] / 936} % of the 936 Mbit/s that \
              the route carries. SABUL starts near this limit but does not stay there: it \
              increases its rate until packets are lost, and then reduces its rate by a ninth. The \
              goodputs of separate routes add up. longhaul is {-[all three | difference]} % below \
              the paper.",
    set: Set::Full,
};

/// A way to build a flow's sender and receiver: its name and its settings.
type Ends = (&'static str, fn(Variant) -> Variant);
/// "The receiver has its own protocol buffer to temporally store the received data before it is
/// copied into an application buffer"; "control information is sent … using TCP" (3.2). The paper
/// gives no size for the buffer; the cases have half, one and two bandwidth-delay products.
const ENDS: [Ends; 6] = [
    (PLACED, |flow| flow),
    ("control over TCP", |flow| flow.set("flow.sabul.ordered-control", true)),
    ("in order, buffer 7 MB", |flow| flow.set("flow.sabul.reorder-buffer", "7MB")),
    ("in order, buffer 14 MB", |flow| flow.set("flow.sabul.reorder-buffer", "14MB")),
    ("in order, buffer 28 MB", |flow| flow.set("flow.sabul.reorder-buffer", "28MB")),
    ("in order, buffer 28 MB, control over TCP", |flow| {
        let flow = flow.set("flow.sabul.reorder-buffer", "28MB");
        flow.set("flow.sabul.ordered-control", true)
    }),
];
const PLACED: &str = "as longhaul builds it";
/// Losses in units of 1/100,000, in both directions.
const ENDS_LOSSES: [u64; 3] = [0, 1, 10];
const NOT_BUILT: &str = "a real copy has no reorder buffer, and sends each control message also in \
                         a datagram, so it could run only the case `as longhaul builds it`";

fn ends_case(ends: &str, loss: u64) -> String {
    format!("{ends}, loss {} %", loss as f64 / 1e3)
}

pub(super) static ENDS_EXPERIMENT: Experiment = Experiment {
    id: "sabul-ends",
    title: "SABUL with in-order delivery and control over TCP, as in its paper",
    source: "Gu and Grossman, *SABUL: a transport protocol for grid computing* (2003), section \
             3.2, which has no figure",
    setup: "One flow runs for 20 s over the path of [sabul-fig5](sabul-fig5.md) (1 Gbit/s and a \
            round trip of 110 ms), and begins at 900 Mbit/s. The path loses nothing, or 0.001 or \
            0.01 % of the packets in each direction. In the paper the receiving program gets the \
            data in order from a buffer of the protocol, and acknowledgements and loss reports \
            come back over TCP. `reorder-buffer` is that buffer: a datagram that does not fit is \
            lost. `ordered-control` sends control only on a stream that keeps order, as TCP does: \
            a lost message is sent again after a timeout, and later messages wait for it. longhaul \
            itself (`as longhaul builds it`) writes each datagram to its place, and sends each \
            control message also in a datagram. Goodput counts the data that the program has \
            received; it is the mean over the last 10 s.",
    cases: || {
        let all = ENDS_LOSSES.into_iter().flat_map(|loss| ENDS.map(|ends| (loss, ends)));
        all.map(|(loss, (name, set))| {
            let path = vary("sabul-fig5").set("topology.link.loss", loss as f64 / 1e5);
            Case::simulated(ends_case(name, loss), set(path), NOT_BUILT)
        })
        .collect()
    },
    tables: |outcomes| {
        let table = |loss: u64| {
            let rows = ENDS.iter().flat_map(|(name, _)| {
                let case = ends_case(name, loss);
                let rate = |f: &CaseFlow| f.goodput_between(SETTLED.0, SETTLED.1);
                [
                    Row::new(&*case, GOODPUT, outcomes.first(&case, rate)),
                    Row::new(&*case, LOSS, outcomes.first(&case, CaseFlow::loss)),
                ]
            });
            Table::new(format!("loss {} %", loss as f64 / 1e3), rows.collect())
        };
        ENDS_LOSSES.map(table).into()
    },
    courses: Experiment::NO_COURSES,
    figures: Experiment::NO_FIGURES,
    differs: "The paper publishes no values for in-order delivery and control over TCP. It says of \
              the control connection that its effect \"is so small that it can be ignored\", and \
              that a timeout of TCP makes SABUL less responsive during high congestion. The paper \
              does not give the size of the receiver's buffer.",
    learned: "The paper's claim about control holds here: over TCP the flow has the same goodput \
              without loss and at 0.001 %, and {100 * [control over TCP, loss 0.01 %] / [as \
              longhaul builds it, loss 0.01 %] - 100 | 1} % more at 0.01 %, because a late loss \
              report delays a decrease. In-order delivery needs a large buffer. While one packet \
              is missing, all later data wait for a round trip or more, and SABUL causes losses in \
              the path's queue whenever its rate is too high. On the path without loss, with half \
              a bandwidth-delay product of buffer, {in order, buffer 7 MB, loss 0 % | loss} % of \
              the data are lost, most of them at the full buffer. The goodput is then {in order, \
              buffer 7 MB, loss 0 %} Mbit/s, against {as longhaul builds it, loss 0 %} where each \
              datagram is written to its place. With one bandwidth-delay product the goodput is \
              {in order, buffer 14 MB, loss 0 %} Mbit/s; only with two ({in order, buffer 28 MB, \
              loss 0 %}) does in-order delivery cost no goodput. longhaul needs no such buffer, \
              because it writes a file's blocks in any order.",
    set: Set::Full,
};
