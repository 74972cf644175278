//! Figure 1 of the GTP paper: the cost of TCP's slow start.

use super::UNTUNED;
use crate::experiment::{Case, Experiment, Figure, Set};
use crate::outcome::CaseFlow;
use crate::plot::{Axis, Origin, Plot, Series};
use crate::quantity::GOODPUT;
use crate::scenarios::vary;
use crate::table::{Row, Table, emulated_value};

/// Round-trip times in ms. Figure 1: "100MB data transmission across a 1Gbps link", "from 0.5 ms to
/// 60ms".
const FIG1_RTTS: [f64; 8] = [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 60.0];
const FIG1_WINDOWS: [(&str, Option<u32>); 2] =
    [("no limit of the window", None), ("window 64 kB", Some(UNTUNED))];

fn fig1_case(window: &str, millis: f64) -> String {
    format!("RTT {millis} ms, {window}")
}

pub(super) static FIG1: Experiment = Experiment {
    id: "gtp-fig1",
    title: "TCP: 100 MB over 1 Gbit/s, throughput against round-trip time",
    source: "Wu and Chien, *GTP: group transport protocol for lambda-grids* (2004), section 1, \
             Fig. 1",
    setup: "One TCP connection (NewReno with selective acknowledgements, first window 10 segments) \
            sends 100 MB over 1 Gbit/s with a drop-tail queue of one bandwidth-delay product (at \
            least 100 packets), without other loss. In the first table only congestion limits the \
            window; in the second the window has the 64 kB of an untuned host. The emulated values \
            are those of the kernel's TCP, which chooses its own window in the first table. In \
            the lines below the tables, the first name after \"TCP:\" is the congestion control \
            that the kernel used.",
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
    differs: "The paper's text gives none of the figure's values. The paper does not give its \
              windows, so this page has two extremes: a window that only congestion limits, and an \
              untuned window.\n\n\
              With a window of 64 kB and a round trip of a millisecond or less the kernel's TCP is \
              slower than the simulator's, by about a quarter at half a millisecond. Each round \
              trip of the kernel's TCP takes about a fifth of a millisecond longer than the \
              link's, because packets and acknowledgements wait for the emulator and for the \
              hosts' programs to wake ([emulator.md](emulator.md) has the times).",
    learned: "Where only congestion limits the window, slow start takes a large part of the time \
              at long round trips. With an untuned window the limit is one window per round trip, \
              if a round trip takes a millisecond or more.",
    set: Set::Quick,
};
