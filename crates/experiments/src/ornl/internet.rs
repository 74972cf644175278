//! Section 4.1 of the Oak Ridge study: memory to memory between Oak Ridge and Berkeley.

use longhaul_proto::units::{Bytes, Rate};

use super::{Contender, contender, runs, tables};
use crate::experiment::{Case, Experiment, Set};
use crate::paths::with_overhead;
use crate::quantity::{GOODPUT, LOST};
use crate::scenarios::vary;
use crate::table::Row;

/// The limit of the sending host (`capacity`) is the rate of iperf's UDP. The path's loss is the
/// loss of RBUDP's packets.
struct Day {
    capacity: Rate,
    loss: (u64, u64),
    /// The sending rate of RBUDP, derived from its published transfer time minus the time of the
    /// rounds. Also the limit of FOBS and Tsunami.
    rate: Rate,
}

const DAYS: [Day; 2] = [
    Day { capacity: Rate::from_bps(489_000_000), loss: (73, 137_742), rate: Rate::from_mbps(370) },
    Day {
        capacity: Rate::from_bps(420_000_000),
        loss: (4_415, 142_157),
        rate: Rate::from_mbps(335),
    },
];

const NAMES: [&str; 2] = ["best case", "worst case"];

/// Section 4.1: Mbit/s; packets lost, retransmitted, sent, and duplicates.
const CONTENDERS: [Contender; 6] = [
    contender(
        "RBUDP",
        "rbudp",
        [358.28, 73.0, 73.0, 137_742.0, 0.0],
        [310.37, 4_415.0, 4_415.0, 142_157.0, 0.0],
    ),
    contender(
        "FOBS",
        "fobs",
        [317.17, 2_816.0, 6_720.0, 143_147.0, 2_009.0],
        [256.17, 2_170.0, 6_103.0, 142_530.0, 2_057.0],
    ),
    contender(
        "SABUL",
        "sabul",
        [343.49, 15.0, 15.0, 140_015.0, 5.0],
        [151.76, 47_838.0, 44_895.0, 184_895.0, 2_441.0],
    ),
    contender(
        "Tsunami",
        "tsunami",
        [307.23, 55.0, 259.0, 13_361.0, 204.0],
        [243.92, 1_689.0, 1_689.0, 14_963.0, 228.0],
    ),
    contender("UDP", "udp", [489.0, 0.0, 0.0, 145_499.0, 0.0], [420.0, 3.0, 0.0, 142_846.0, 0.0]),
    contender(
        "TCP, 3 streams",
        "tcp",
        [279.7, 6.0, 6.0, 171_303.0, 2.0],
        [229.8, 5.0, 7.0, 145_491.0, 2.0],
    ),
];

pub(super) static INTERNET: Experiment = Experiment {
    id: "ornl-internet",
    title: "Memory to memory from Oak Ridge to Berkeley, on a good day and on a bad day",
    source: "Fowler, *Faster bulk transfer starring: UDP*, Oak Ridge National Laboratory (2003), \
             section 4.1",
    setup: "Each program sends 200 MB over a path with a round trip of 67.5 ms. The study does not \
            describe the path further, so the path's other values are derived from the results of \
            two programs: RBUDP, and iperf with UDP. iperf's UDP lost almost nothing, so the \
            sending host, not a link, limited iperf's rate. The sending host therefore sends at \
            most at iperf's rate: 489 Mbit/s on the good day (best case), and 420 on the bad day \
            (worst case). The path has 1 Gbit/s like the hosts' cards. Towards the receiver each \
            packet is lost independently, with the loss ratio of RBUDP (0.053 % and 3.1 %). Cross \
            traffic, reordering and slow hosts are left out. The study does not give RBUDP's \
            sending rate either; 370 and 335 Mbit/s follow from its published time, minus the time \
            of its rounds. The same rates are the limits of FOBS and Tsunami; SABUL finds its \
            rate. Counts are of datagrams; `lost, as reported` counts a loss each time that it is \
            reported.",
    cases: || {
        let vary = |contender: &Contender, index: usize| {
            let Day { capacity, loss, rate } = &DAYS[index];
            let day = vary("ornl-internet")
                .set("host.a.sends-rate", capacity.as_bps())
                .set("topology.link.loss", loss.0 as f64 / loss.1 as f64);
            match contender.flow {
                // iperf's `M` is 2²⁰ bytes.
                "udp" => {
                    let lasts = Bytes::mebi(200) / *capacity;
                    let udp = day.set("flow.udp.udp", capacity.as_bps());
                    udp.set("flow.udp.lasts", format!("{}ns", lasts.as_nanos()))
                }
                "rbudp" | "fobs" | "tsunami" => {
                    let key = format!("flow.{}.rate", contender.flow);
                    day.set(&key, with_overhead(*rate).as_bps())
                }
                _ => day,
            }
        };
        runs(&CONTENDERS, NAMES, vary, |_, name, variant| Case::both(name, variant))
    },
    tables: |outcomes| {
        // RBUDP's rate and the path's loss are derived from RBUDP's row, the host's rate from
        // UDP's.
        let tables = tables(&CONTENDERS, NAMES, outcomes);
        let is_input = |row: &Row| match row.case.split(',').next() {
            Some("RBUDP") => row.quantity == GOODPUT || row.quantity == LOST,
            Some("UDP") => row.quantity == GOODPUT,
            _ => false,
        };
        tables.into_iter().map(|table| table.fitted(is_input)).collect()
    },
    courses: Experiment::NO_COURSES,
    figures: Experiment::NO_FIGURES,
    differs: "Three values of the study are inputs here, so the rows of these values say nothing \
              about longhaul: RBUDP's goodput (its sending rate was derived from it), RBUDP's lost \
              datagrams (the path's loss), and the goodput of iperf's UDP (the sending host's \
              limit). Tsunami counts datagrams here and blocks of 16 kB in the study.",
    learned: "If three per cent of the packets are lost outside the sender's own queue, a protocol \
              with a given rate loses these three per cent and the time of some round trips: in \
              the simulator RBUDP keeps {100 * [RBUDP, worst case] / 335} % of its configured \
              rate, FOBS {100 * [FOBS, worst case] / 335} %, and Tsunami, which starts slowly, \
              {100 * [Tsunami, worst case] / 335} %. On the good and the bad day, the simulated \
              FOBS is {FOBS, best case | difference} and {FOBS, worst case | difference} % faster \
              than in the study, which does not say what limited FOBS. The simulated Tsunami is \
              {-[Tsunami, best case | difference]} and {-[Tsunami, worst case | difference]} % \
              slower. SABUL treats loss as congestion, but reacts to a moving average of the loss \
              over intervals of 200 ms. The simulated SABUL has {SABUL, best case | difference} \
              and {SABUL, worst case | difference} % more goodput than in the study; here only \
              loss and the rate of the sending host limit it. TCP treats every loss as congestion: \
              it has {TCP*, best case} Mbit/s at five lost packets in ten thousand, and {TCP*, \
              worst case} Mbit/s at three in a hundred. In the study TCP had 280 and 230, so it \
              did not meet this loss.",
    set: Set::Quick,
};
