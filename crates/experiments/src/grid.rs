//! Simulation against emulation of the same protocols over the same paths.

use longhaul_proto::units::{Bytes, Rate};

use crate::experiment::{Case, Experiment, Figure, Set};
use crate::outcome::CaseFlow;
use crate::paths::payload_ceiling;
use crate::plot::{Axis, Origin, Plot, Series};
use crate::quantity::GOODPUT;
use crate::scenarios::{Variant, vary};
use crate::table::{Row, Table, emulated_value};

pub(crate) const ALL: [&Experiment; 1] = [&GRID];

/// A protocol: its name, its flow in the scenario, and its paths.
struct Contender {
    name: &'static str,
    flow: &'static str,
    /// Round-trip times, in milliseconds.
    rtts: &'static [u64],
    /// Losses, in units of 1/100,000.
    losses: &'static [u64],
}

const fn at_100_ms(name: &'static str, flow: &'static str, losses: &'static [u64]) -> Contender {
    Contender { name, flow, rtts: &[100], losses }
}

/// RBUDP runs on all paths, the other protocols only on the long ones, without loss and with 1 %.
/// SABUL runs with 0.001 % instead of 1 %: it treats all loss as congestion, and would need minutes
/// even at 0.1 %.
const CONTENDERS: [Contender; 7] = [
    Contender { rtts: &[10, 100], ..at_100_ms("RBUDP", "rbudp", &[0, 100, 1_000, 5_000]) },
    at_100_ms("FOBS, greedy", "fobs", &[0, 1_000]),
    at_100_ms("FOBS with its table", "table", &[0, 1_000]),
    at_100_ms("SABUL", "sabul", &[0, 1]),
    at_100_ms("Tsunami", "tsunami", &[0, 1_000]),
    at_100_ms("NETBLT", "netblt", &[0, 1_000]),
    at_100_ms(GTP, "gtp", &[0, 1_000]),
];
const GTP: &str = "GTP";
/// A link, and an object that takes some seconds on it.
const LINKS: [(&str, Rate, Bytes); 2] = [
    ("100 Mbit/s", Rate::from_mbps(100), Bytes::new(40_000_000)),
    ("1 Gbit/s", Rate::from_mbps(1_000), Bytes::new(1_000_000_000)),
];
/// The sending rate as a share of the UDP payload that the link carries. The rest is for control
/// messages and for inaccuracy of the emulator's clock.
const SHARE: f64 = 0.95;

fn case_name(contender: &Contender, link: &str, rtt: u64, loss: u64) -> String {
    format!("{}, {link}, {rtt} ms, loss {} %", contender.name, loss as f64 / 1e3)
}

fn variant(contender: &Contender, link: Rate, size: Bytes, rtt: u64, loss: u64) -> Variant {
    let of = |key: &str| format!("flow.{}.{key}", contender.flow);
    let rate = payload_ceiling(link).scale(SHARE).as_bps();
    let copy = vary("sim-vs-emulator")
        .only(&[contender.flow])
        .set("topology.link.rate", link.as_bps())
        .set("topology.link.delay", format!("{}us", rtt * 500))
        .set("topology.link.loss", loss as f64 / 1e5)
        .set(&of("size"), size.get())
        .set(&of("rate"), rate);
    match contender.name {
        GTP => copy.set(&of("settings.receive-rate"), format!("{rate}bit/s")),
        _ => copy,
    }
}

fn of_contender<T>(
    contender: &Contender,
    make: impl Fn(String, Rate, Bytes, u64, u64) -> T,
) -> Vec<T> {
    let mut made = Vec::new();
    for (name, link, size) in LINKS {
        for rtt in contender.rtts {
            for loss in contender.losses {
                made.push(make(case_name(contender, name, *rtt, *loss), link, size, *rtt, *loss));
            }
        }
    }
    made
}

/// Returns each row's position and its goodput, in per cent of the link's rate.
fn points(value: impl Fn(&str) -> Option<f64>) -> Vec<(f64, f64)> {
    let rows = CONTENDERS.iter().flat_map(|contender| {
        of_contender(contender, |name, link, _, _, _| {
            Some(value(&name)? * 1e8 / link.as_bps() as f64)
        })
    });
    rows.enumerate().filter_map(|(x, y)| Some((x as f64, y?))).collect()
}

pub(crate) static GRID: Experiment = Experiment {
    id: "sim-vs-emulator",
    title: "Every protocol simulated and over real sockets, on the same paths",
    source: "No paper: a check of the simulator and the emulator against each other",
    setup: "Each protocol runs with its defaults (default segments, `tail-copies` 2), alone on its \
            path, and sends at 95 % of the UDP payload that the link carries. For SABUL this rate \
            is the maximum, for GTP it is the receiver's rate. Objects have 40 MB over 100 Mbit/s \
            and 1 GB over 1 Gbit/s. Packets towards the receiver are lost independently of each \
            other. The rows name the link's rate, the round trip and the loss. Greedy FOBS ignores \
            loss; FOBS with its table lowers its rate at loss. Simulated: the protocol's code \
            alone, in virtual time. Emulated: the same code in the real binary, with its session, \
            files, hashes and encrypted datagrams, over the emulator; timed from the first \
            datagram to the end of the command. `longhaul reproduce sim-vs-emulator --how emulate \
            --update` on an otherwise idle machine writes the emulated column.",
    cases: || {
        let cases = CONTENDERS.iter().flat_map(|contender| {
            of_contender(contender, |name, link, size, rtt, loss| {
                Case::both(name, variant(contender, link, size, rtt, loss))
            })
        });
        cases.collect()
    },
    tables: |outcomes| {
        let table = |contender: &Contender| {
            let rows = of_contender(contender, |name, _, _, _, _| {
                let goodput = outcomes.first(&name, CaseFlow::goodput);
                Row::new(name, GOODPUT, goodput)
            });
            Table::new(contender.name, rows)
        };
        CONTENDERS.iter().map(table).collect()
    },
    courses: Experiment::NO_COURSES,
    figures: |outcomes, tables| {
        let ours = points(|case| outcomes.first(case, CaseFlow::goodput));
        let real = points(|case| emulated_value(tables, case, GOODPUT));
        let mut series = vec![Series::new("simulated", Origin::Simulated, ours)];
        if !real.is_empty() {
            series.push(Series::new("emulated", Origin::Emulated, real));
        }
        let x = Axis::linear("row of the tables");
        let y = Axis::linear("goodput, % of the link's rate");
        let title = "Simulated and emulated goodput".into();
        vec![Figure { name: "", plot: Plot { title, x, y, series } }]
    },
    differs: "No paper has this. The emulated copy does work that the simulated one does not: it \
              reads and hashes the file, encrypts each datagram, compares digests and closes the \
              session. The work after the last block takes about a round trip. Both ends and the \
              emulator share two cores, so start and end of a copy take some hundredths of a \
              second longer than in the simulator.",
    learned: "The column `from simulated` shows how far values over real sockets differ from \
              simulated ones, for a protocol that is alone on its path. In all rows, real \
              copies by RBUDP are slower by {-least [RBUDP, * | from simulated] | 1} % at most, \
              because a copy also does other work than sending. None is faster by more than {most \
              [RBUDP, * | from simulated] | 1} %. Chance decides which packets are lost. On \
              the paths of 100 ms FOBS is within {off [FOBS*, 100 ms, * | from simulated] | 1} %, \
              SABUL within {off [SABUL, * | from simulated] | 1}, Tsunami within {off [Tsunami, * \
              | from simulated] | 1}, NETBLT within {off [NETBLT, * | from simulated] | 1} and GTP \
              within {off [GTP, * | from simulated] | 1}. Each value is one run.\n\n\
              Some other pages have larger differences:\n\n\
              - Senders, receiver and emulator share two cores, so senders wake late and send in \
              clumps into a full queue: [gtp-fig10](gtp-fig10.md), [gtp-fig12](gtp-fig12.md), \
              [gtp-table4](gtp-table4.md).\n\
              - Chance decides which of two flows loses first ([sabul-fig6](sabul-fig6.md), SABUL \
              in [gtp-table5](gtp-table5.md)), which packets are lost \
              ([quanta-fig7](quanta-fig7.md)), or when the cross traffic sends \
              ([fobs-table2](fobs-table2.md)).\n\
              - A real send buffer is larger than the simulated one: \
              [ornl-memory](ornl-memory.md), [ornl-file](ornl-file.md).\n\
              - The kernel's TCP waits a fifth of a millisecond more than the simulator's in each \
              round trip: [gtp-fig1](gtp-fig1.md).\n\
              - A real copy counts whole chunks while it runs, and the simulator counts blocks: \
              RBUDP's two flows in [gtp-table5](gtp-table5.md).",
    set: Set::Full,
};

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{results, table};

    /// The allowed difference between simulated and emulated values, in per cent.
    const MOST_OFF: f64 = 3.0;

    #[test]
    fn the_simulator_agrees_with_real_sockets_over_the_whole_grid() {
        let folder = results::find(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
        let page = results::read(&folder, &GRID.file()).unwrap().unwrap();
        let rows = table::cells(&page);
        // RBUDP has 2 links × 2 round trips × 4 losses, each of the others 2 links × 2 losses.
        assert_eq!(rows.len(), 16 + 6 * 4, "protocols, rates, round trips and losses");
        for row in rows {
            let (case, off) = (row.get("case"), row.get("from simulated").trim_end_matches(" %"));
            if off.is_empty() && !case.starts_with("RBUDP") {
                continue; // The page marks this row as not measured.
            }
            let close = off.parse::<f64>().is_ok_and(|off| off.abs() <= MOST_OFF);
            assert!(close, "{case}: {off} %");
        }
    }
}
