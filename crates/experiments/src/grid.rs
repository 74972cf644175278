//! Simulation against emulation: the same RBUDP over the same paths, in virtual and in real time.

use longhaul_proto::units::{Bytes, Rate};

use crate::experiment::{Case, Experiment, Figure, Set};
use crate::outcome::CaseFlow;
use crate::paths::payload_ceiling;
use crate::plot::{Axis, Origin, Plot, Series};
use crate::quantity::GOODPUT;
use crate::scenarios::{Variant, vary};
use crate::table::{Row, Table, emulated_value};

/// The experiments of our own.
pub(crate) const ALL: [&Experiment; 1] = [&GRID];

/// A link, and an object that takes some seconds on it.
const LINKS: [(&str, Rate, Bytes); 2] = [
    ("100 Mbit/s", Rate::from_mbps(100), Bytes::new(40_000_000)),
    ("1 Gbit/s", Rate::from_mbps(1_000), Bytes::new(1_000_000_000)),
];
const RTTS: [u64; 2] = [10, 100];
/// In per mille.
const LOSSES: [u64; 4] = [0, 1, 10, 50];
/// Of what the link carries, what is sent: room for control and for the emulator's clock.
const SHARE: f64 = 0.95;

fn case_name(link: &str, rtt: u64, loss: u64) -> String {
    format!("{link}, {rtt} ms, loss {} %", loss as f64 / 10.0)
}

fn variant(link: Rate, size: Bytes, rtt: u64, loss: u64) -> Variant {
    vary("sim-vs-emulator")
        .set("topology.link.rate", link.as_bps())
        .set("topology.link.delay", format!("{}us", rtt * 500))
        .set("topology.link.loss", loss as f64 / 1e3)
        .set("flow.copy.size", size.get())
        .set("flow.copy.rate", payload_ceiling(link).scale(SHARE).as_bps())
}

fn all<T>(make: impl Fn(String, Rate, Bytes, u64, u64) -> T) -> Vec<T> {
    let mut made = Vec::new();
    for (name, link, size) in LINKS {
        for rtt in RTTS {
            for loss in LOSSES {
                made.push(make(case_name(name, rtt, loss), link, size, rtt, loss));
            }
        }
    }
    made
}

/// The grid.
pub(crate) static GRID: Experiment = Experiment {
    id: "sim-vs-emulator",
    title: "RBUDP by simulation and over real sockets: the same paths, the same goodput",
    source: "No paper: a check of the simulator and the emulator against each other",
    setup: "RBUDP as a user has it (default segments, tails twice) at 95 % of the UDP payload that \
            the link carries: 40 MB over 100 Mbit/s, 1 GB over 1 Gbit/s; loss towards the \
            receiver, each packet for itself. Simulated: the core alone, in virtual time. \
            Emulated: the same core in the real binary, with its session, files, hashes and \
            sealed datagrams, over the emulator; timed from the first datagram to the end of the \
            command. `longhaul reproduce sim-vs-emulator --how emulate --update` on a machine \
            that does nothing else makes the emulated column.",
    cases: || all(|name, link, size, rtt, loss| Case::both(name, variant(link, size, rtt, loss))),
    tables: |outcomes| {
        let rows = all(|name, _, _, _, _| {
            let goodput = outcomes.first(&name, CaseFlow::goodput);
            Row::new(name, GOODPUT, goodput)
        });
        vec![Table::new("", rows)]
    },
    courses: Experiment::NO_COURSES,
    figures: |outcomes, tables| {
        let points = |value: &dyn Fn(&str) -> Option<f64>| -> Vec<(f64, f64)> {
            let values =
                all(|name, link, _, _, _| Some(value(&name)? * 1e8 / link.as_bps() as f64));
            let numbered = values.into_iter().enumerate();
            numbered.filter_map(|(x, y)| Some((x as f64, y?))).collect()
        };
        let ours = points(&|case| outcomes.first(case, CaseFlow::goodput));
        let real = points(&|case| emulated_value(tables, case, GOODPUT));
        let mut series = vec![Series::new("simulated", Origin::Simulated, ours)];
        if !real.is_empty() {
            series.push(Series::new("emulated", Origin::Emulated, real));
        }
        let x = Axis::linear("row of the table");
        let y = Axis::linear("goodput, % of the link's rate");
        let title = "Simulated and emulated goodput".into();
        vec![Figure { name: "", plot: Plot { title, x, y, series } }]
    },
    differs: "Nothing was published. What the emulated copy does and the simulated one does not: \
              it reads and hashes the file, seals each datagram, compares digests, and says \
              goodbye; after the last block that costs about a round trip. Where both ends and \
              the emulator share two cores, start and end of a copy cost some hundredths of a \
              second more than the model's, which is why the object at 1 Gbit/s is 1 GB.",
    learned: "The column `from simulated` is what a simulated value of these pages is worth on \
              real sockets: within 1 %, over the whole grid. Emulated copies are slower by {-least \
              [* | from simulated] | 1} % at most, for what a copy does beside sending, and faster \
              by {most [* | from simulated] | 1} % at most, where other packets were lost.",
    set: Set::Quick,
};

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{results, table};

    /// What a simulated value may be off real sockets, in per cent.
    const MOST_OFF: f64 = 3.0;

    #[test]
    fn the_simulator_agrees_with_real_sockets_over_the_whole_grid() {
        let folder = results::find(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
        let page = results::read(&folder, &GRID.file()).unwrap().unwrap();
        let rows = table::cells(&page);
        assert_eq!(rows.len(), 16, "rates, round trips and losses");
        for row in rows {
            let off = row.get("from simulated").trim_end_matches(" %");
            let close = off.parse::<f64>().is_ok_and(|off| off.abs() <= MOST_OFF);
            assert!(close, "{}: {off} %", row.get("case"));
        }
    }
}
