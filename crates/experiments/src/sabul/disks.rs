//! Table 2 of the SABUL paper: from disk to disk.

use crate::experiment::{Case, Experiment, Set};
use crate::outcome::CaseFlow;
use crate::quantity::GOODPUT;
use crate::scenarios::vary;
use crate::table::{Row, Table};

/// A transfer of Table 2. Rates are in Mbit/s; the delay is one-way.
struct Run {
    ends: &'static str,
    delay: &'static str,
    reads: u32,
    writes: u32,
    published: f64,
}

const fn run(
    ends: &'static str,
    delay: &'static str,
    (reads, writes): (u32, u32),
    published: f64,
) -> Run {
    Run { ends, delay, reads, writes, published }
}

const SITE: &str = "0.2ms";
const CANARIE: &str = "10ms";
const OCEAN: &str = "55ms";

const RUNS: [Run; 7] = [
    run("StarLight to StarLight", SITE, (800, 500), 460.0),
    run("StarLight to Canarie", CANARIE, (800, 550), 500.0),
    run("StarLight to SARA", OCEAN, (800, 800), 560.0),
    run("Canarie to StarLight", CANARIE, (800, 500), 440.0),
    run("Canarie to Canarie", SITE, (800, 550), 500.0),
    run("SARA to StarLight", OCEAN, (900, 500), 440.0),
    run("SARA to SARA", SITE, (900, 800), 600.0),
];

const DISKS: &str = "the result depends on the disks, and emulated files are in memory";

pub(super) static TABLE2: Experiment = Experiment {
    id: "sabul-table2",
    title: "SABUL from disk to disk",
    source: "Gu and Grossman, *SABUL: a transport protocol for grid computing* (2003), section 5, \
             Table 2",
    setup: "SABUL copies 1 GB from disk to disk over 1 Gbit/s (Ethernet framing included), and \
            begins at 900 Mbit/s. The drop-tail queue holds one bandwidth-delay product (at least \
            100 packets). The disks read and write at the rates in the paper's table heading: 800 \
            and 500 Mbit/s at StarLight, 800 and 550 at Canarie, 900 and 800 at SARA. Round trips \
            are 110 ms over the Atlantic and 0.4 ms within a site. The 20 ms between StarLight and \
            Canarie are an assumption; the paper does not give them. The receiver's memory is 512 \
            MiB. The transfer ends when all data are on the disk.",
    cases: || {
        let case = |Run { ends, delay, reads, writes, .. }: &Run| {
            let file = vary("sabul-table2")
                .set("topology.link.delay", delay)
                .set("host.a.disk-rate", format!("{reads}M"))
                .set("host.b.disk-rate", format!("{writes}M"));
            Case::simulated(*ends, file, DISKS)
        };
        RUNS.iter().map(case).collect()
    },
    tables: |outcomes| {
        let row = |Run { ends, published, .. }: &Run| {
            let goodput = outcomes.first(ends, CaseFlow::goodput);
            Row::new(*ends, GOODPUT, goodput).published(*published)
        };
        vec![Table::new("", RUNS.iter().map(row).collect())]
    },
    courses: Experiment::NO_COURSES,
    figures: Experiment::NO_FIGURES,
    differs: "The paper says that the bottleneck is \"the disk IO and the synchronization between \
              network interface and disk\". The model leaves the synchronization out: a complete \
              chunk goes to the disk while the network continues. The paper gives no file sizes, \
              and no round trips for this table.",
    learned: "Where the disk writes 500 or 550 Mbit/s, longhaul's goodput is {[SARA to StarLight] \
              / 5} to {[StarLight to StarLight] / 5 | 1} % of that rate, {SARA to StarLight | \
              difference} to {Canarie to StarLight | difference} % more than the paper, whose \
              flows waited for the disk. Where the disk writes 800 Mbit/s, SABUL is the limit over \
              110 ms ({StarLight to SARA} Mbit/s, {StarLight to SARA | difference} % more than in \
              the paper), and the disk is the limit within a site ({SARA to SARA} Mbit/s, {SARA to \
              SARA | difference} % more).",
    set: Set::Full,
};
