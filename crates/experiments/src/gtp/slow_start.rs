//! Figure 1: what slow start costs TCP.

use super::UNTUNED;
use crate::experiment::{Case, Experiment, Figure, Set};
use crate::outcome::CaseFlow;
use crate::plot::{Axis, Origin, Plot, Series};
use crate::quantity::GOODPUT;
use crate::scenarios::vary;
use crate::table::{Row, Table, emulated_value};

/// Figure 1: "100MB data transmission across a 1Gbps link", "from 0.5 ms to 60ms".
const FIG1_RTTS: [f64; 8] = [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 60.0];
const FIG1_WINDOWS: [(&str, Option<u32>); 2] =
    [("no limit of the window", None), ("window 64 kB", Some(UNTUNED))];

fn fig1_case(window: &str, millis: f64) -> String {
    format!("RTT {millis} ms, {window}")
}

/// Figure 1.
pub(super) static FIG1: Experiment = Experiment {
    id: "gtp-fig1",
    title: "TCP: 100 MB over 1 Gbit/s, throughput against round-trip time",
    source: "Wu and Chien, *GTP: group transport protocol for lambda-grids* (2004), section 1, \
             Fig. 1",
    setup: "100 MB by one TCP connection (NewReno with selective acknowledgements, first window \
            10 segments) over 1 Gbit/s with a drop-tail queue of one bandwidth-delay product (at \
            least 100 packets), without other loss; once with nothing but congestion to limit the \
            window, once with the 64 kB of a host that nobody tuned. Emulated: the kernel's TCP, \
            with its own window, of the kind that the line below the table names first.",
    cases: || {
        let cases = FIG1_WINDOWS.iter().flat_map(|window| FIG1_RTTS.map(|rtt| (window, rtt)));
        cases
            .map(|((name, window), millis)| {
                let case = fig1_case(name, millis);
                let tcp =
                    vary("gtp-fig1").set("topology.link.delay", format!("{}ms", millis / 2.0));
                let tcp = match window {
                    Some(window) => tcp.set("flow.tcp.window", window),
                    None => tcp,
                };
                Case::both(case, tcp)
            })
            .collect()
    },
    tables: |outcomes| {
        let table = |(name, _): (&str, Option<u32>)| {
            let rows = FIG1_RTTS.iter().map(|millis| {
                let case = fig1_case(name, *millis);
                let ours = outcomes.first(&case, CaseFlow::goodput);
                Row::new(case, GOODPUT, ours)
            });
            Table::new(name, rows.collect())
        };
        FIG1_WINDOWS.map(table).into()
    },
    courses: Experiment::NO_COURSES,
    figures: |outcomes, tables| {
        let mut series = Vec::new();
        for (name, _) in FIG1_WINDOWS {
            let points = |value: &dyn Fn(&str) -> Option<f64>| -> Vec<(f64, f64)> {
                let rtts = FIG1_RTTS.iter();
                rtts.filter_map(|rtt| Some((*rtt, value(&fig1_case(name, *rtt))?))).collect()
            };
            let ours = points(&|case| outcomes.first(case, CaseFlow::goodput));
            let real = points(&|case| emulated_value(tables, case, GOODPUT));
            series.push(Series::new(format!("simulated: {name}"), Origin::Simulated, ours));
            if !real.is_empty() {
                series.push(Series::new(format!("emulated: {name}"), Origin::Emulated, real));
            }
        }
        let (x, y) = (Axis::log("round-trip time, ms"), Axis::linear("goodput, Mbit/s"));
        let title = "TCP's goodput for 100 MB".into();
        vec![Figure { name: "", plot: Plot { title, x, y, series } }]
    },
    differs: "The text gives none of the figure's values, only that TCP takes long to reach the \
              full rate where the round-trip time is large. The paper does not say how large its \
              windows were; both ends of the possible are here.\n\n\
              With a window of 64 kB and a round trip of a millisecond or less the kernel's TCP \
              has less than the simulator's, about a quarter less where that is half a \
              millisecond. Its round trips take about a fifth of a millisecond more than the \
              link's, however long that is: packets and acknowledgements wait for the emulator's \
              next look and for the hosts' programs to be woken ([emulator.md](emulator.md) has \
              how long). Of a long round trip that is next to nothing. Where congestion alone \
              limits the window the same waits take little of a long round trip, for they are \
              filled with data, and up to a quarter of one of 1 or 2 ms: there slow start is over \
              in a few round trips, and each is longer than the link's.",
    learned: "With a window that congestion alone limits, TCP loses to slow start: at long round \
              trips a large part of 100 MB is gone before the rate is reached, and what slow start \
              overshoots must be sent again. With an untuned window it is over from a millisecond \
              on: window over round-trip time is all that there can be. The paper's curve falls \
              the same way; how far ours is above or below it cannot be said, for its values are \
              not in the text.",
    set: Set::Quick,
};
