//! A copy over a new path, and over a path that an earlier copy has used.

use longhaul_proto::units::Rate;

use crate::experiment::{Case, Experiment, Set};
use crate::outcome::CaseFlow;
use crate::quantity::{TIME, WASTE};
use crate::scenarios::vary;
use crate::table::{Row, Table};

pub(crate) const ALL: [&Experiment; 1] = [&PATH_MEMORY];

/// The link's rate in Mbit/s, and its loss in per mille.
const PATHS: [(u64, u64); 4] = [(1_000, 0), (1_000, 1), (1_000, 10), (100, 1)];
/// The remembered rate: none, the rate of an earlier copy over 1 Gbit/s, and four times this rate.
const KNOWN: [(&str, Option<u64>); 3] =
    [("new", None), ("930 Mbit/s remembered", Some(930)), ("3720 Mbit/s remembered", Some(3_720))];
const ONE_WAY_MS: [u64; 2] = [15, 50];

fn case_name(megabits: u64, one_way: u64, loss: u64, known: &str) -> String {
    let rtt = 2 * one_way;
    format!("{megabits} Mbit/s, {rtt} ms, loss {} %, {known}", loss as f64 / 10.0)
}

fn all<T>(mut make: impl FnMut(String, u64, u64, u64, Option<u64>) -> T) -> Vec<T> {
    let mut made = Vec::new();
    for one_way in ONE_WAY_MS {
        for (megabits, loss) in PATHS {
            for (known, rate) in KNOWN {
                let name = case_name(megabits, one_way, loss, known);
                made.push(make(name, megabits, one_way, loss, rate));
            }
        }
    }
    made
}

fn case(name: String, megabits: u64, one_way: u64, loss: u64, rate: Option<u64>) -> Case {
    let variant = vary("path-memory")
        .set("topology.link.rate", Rate::from_mbps(megabits).as_bps())
        .set("topology.link.delay", format!("{one_way}ms"))
        .set("topology.link.queue", 2 * one_way * megabits * 125)
        .set("topology.link.loss", loss as f64 / 1e3);
    let variant = match rate {
        None => variant,
        Some(rate) => variant
            .set("flow.copy.remembered", Rate::from_mbps(rate).as_bps())
            .set("flow.copy.remembered-loss", loss as f64 / 1e3),
    };
    Case::simulated(name, variant, "the emulator's copies keep no memory of paths")
}

pub(crate) static PATH_MEMORY: Experiment = Experiment {
    id: "path-memory",
    title: "A copy over a remembered path (RFC 9959)",
    source: "No paper: RFC 9959 (Careful Resume)",
    setup: "RBUDP without a given rate copies 20 MB through a drop-tail queue of one \
            bandwidth-delay product. The rows name the link's rate, the round trip and the loss. \
            The path is new, or it is remembered: an earlier copy is assumed to have found 930 or \
            3720 Mbit/s and the link's loss. A flow over a remembered path sends at half of the \
            remembered rate until the report on its first packet train arrives, for at most one \
            round trip, and then searches as usual; if the train confirms the remembered rate, the \
            search starts near it. The remembered 930 Mbit/s are right for the \
            links of 1 Gbit/s and wrong for the link of 100 Mbit/s; 3720 Mbit/s are wrong for all \
            links. Waste is data sent beyond the object, as a share of the object. Time is \
            measured from the first datagram until the sender knows that everything has arrived.",
    cases: || all(case),
    tables: |outcomes| {
        let mut rows = Vec::new();
        all(|name, _, _, _, _| {
            rows.push(Row::new(
                &*name,
                TIME,
                outcomes.first(&name, |flow| flow.elapsed.as_secs_f64()),
            ));
            rows.push(Row::new(&*name, WASTE, outcomes.first(&name, CaseFlow::waste)));
        });
        vec![Table::new("", rows)]
    },
    courses: Experiment::NO_COURSES,
    figures: |_, _| Vec::new(),
    differs: "No paper has this.",
    learned: "If 930 Mbit/s are remembered, the copy over 1 Gbit/s and 100 ms without loss takes \
              {1000 Mbit/s, 100 ms, loss 0 %, 930 Mbit/s remembered | time | simulated | 2} s \
              instead of {1000 Mbit/s, 100 ms, loss 0 %, new | time | simulated | 2} s. Over a new \
              path, the sender waits a round trip for the report on its first packet train. Over a \
              remembered path, it meanwhile sends at half of the remembered rate, which saves half \
              of that time. \
              With 0.1 % loss the copy takes {1000 Mbit/s, 100 ms, loss 0.1 %, 930 Mbit/s \
              remembered | time | simulated | 2} s instead of {1000 Mbit/s, 100 ms, loss 0.1 %, \
              new | time | simulated | 2} s. Chance can cause this small difference: each value is \
              one run with one seed. If the path has become ten times slower, a remembered rate of \
              930 Mbit/s wastes {100 Mbit/s, 100 ms, loss 0.1 %, 930 Mbit/s remembered | waste | \
              simulated | 1} % of the object over 100 ms and {100 Mbit/s, 30 ms, loss 0.1 %, 930 \
              Mbit/s remembered | waste | simulated | 1} % over 30 ms. The copy then takes {100 \
              Mbit/s, 100 ms, loss 0.1 %, 930 Mbit/s remembered | time | simulated | 2} s instead \
              of {100 Mbit/s, 100 ms, loss 0.1 %, new | time | simulated | 2} s over 100 ms, and \
              {100 Mbit/s, 30 ms, loss 0.1 %, 930 Mbit/s remembered | time | simulated | 2} s \
              instead of {100 Mbit/s, 30 ms, loss 0.1 %, new | time | simulated | 2} s over 30 \
              ms.",
    set: Set::Quick,
};
