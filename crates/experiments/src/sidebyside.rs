//! All protocols on one long fat path, compared with TCP.

use longhaul_proto::units::Rate;

use crate::experiment::{Case, Experiment, Figure, Set};
use crate::outcome::{CaseFlow, Outcomes};
use crate::paths::payload_ceiling;
use crate::plot::{Axis, Origin, Plot, Series};
use crate::quantity::{GOODPUT, Quantity, Unit, WASTE};
use crate::scenarios::vary;
use crate::table::{Aim, Row, Table};

pub(crate) const ALL: [&Experiment; 1] = [&COMPARE];

const LINK: Rate = Rate::from_mbps(1_000);
/// The round-trip time in seconds.
const RTT: f64 = 0.1;
/// The name on the page, and the flow of the scenario file.
const CONTENDERS: [(&str, &str); 12] = [
    ("RBUDP", "rbudp"),
    ("FOBS, greedy", FOBS),
    ("FOBS with its table", "table"),
    ("SABUL", SABUL),
    ("Tsunami", TSUNAMI),
    ("NETBLT", "netblt"),
    ("GTP", "gtp"),
    ("TCP CUBIC", "cubic"),
    ("TCP CUBIC, 8 connections", "cubic8"),
    ("TCP NewReno", "newreno"),
    ("TCP BBR", "bbr"),
    ("TCP BBR, 8 connections", "bbr8"),
];
const NO_MODEL: &str = "this page measures only the kernel's own BBR";
const FOBS: &str = "fobs";
const SABUL: &str = "sabul";
const TSUNAMI: &str = "tsunami";
/// Sizes of the object, in MB.
const SIZES: [u64; 2] = [300, 3_000];
/// Losses, in per mille.
const LOSSES: [u64; 4] = [0, 1, 10, 50];
/// Goodput as a share of C·(1 − L): the link's capacity for UDP payload, minus the lost share.
const SHARE: Quantity = Quantity { name: "goodput of C·(1 − L)", unit: Unit::Share };

fn condition(megabytes: u64, loss: u64) -> String {
    format!("{megabytes} MB, loss {} %", loss as f64 / 10.0)
}

fn case_name(contender: &str, megabytes: u64, loss: u64) -> String {
    format!("{contender}, {}", condition(megabytes, loss))
}

fn conditions() -> impl Iterator<Item = (u64, u64)> {
    SIZES.into_iter().flat_map(|size| LOSSES.map(|loss| (size, loss)))
}

/// The link's capacity for UDP payload in full packets, in Mbit/s.
fn capacity() -> f64 {
    payload_ceiling(LINK).as_bps() as f64 / 1e6
}

/// The aims for large objects: the share of the available capacity, and the waste.
fn aims(flow: &str, megabytes: u64, loss: u64) -> (Option<Aim>, Option<Aim>) {
    let share = loss as f64 / 1e3;
    // Data sent again because of loss, in per cent of the object.
    let repaired = 100.0 * share / (1.0 - share);
    // Data that a sender without pauses sends in the last round trip, in per cent of the object.
    let round = 100.0 * capacity() * RTT / (megabytes as f64 * 8.0);
    match flow {
        _ if megabytes < 3_000 => (None, None),
        FOBS => (Some(Aim::AtLeast(90.0)), Some(Aim::AtMost(repaired + round + 1.5))),
        SABUL if loss == 0 => (Some(Aim::AtLeast(88.0)), None),
        TSUNAMI => (Some(Aim::AtLeast(85.0)), Some(Aim::AtMost(repaired + 3.0))),
        _ => (None, None),
    }
}

fn share(outcomes: &Outcomes, case: &str, loss: u64) -> Option<f64> {
    let possible = capacity() * (1.0 - loss as f64 / 1e3);
    outcomes.first(case, |flow| 100.0 * flow.goodput() / possible)
}

fn tables(outcomes: &Outcomes) -> Vec<Table> {
    let table = |(size, loss): (u64, u64)| {
        let rows = CONTENDERS.iter().flat_map(|(name, flow)| {
            let case = case_name(name, size, loss);
            let (least, most) = aims(flow, size, loss);
            let waste = outcomes.first(&case, CaseFlow::waste);
            [
                Row::new(&*case, GOODPUT, outcomes.first(&case, CaseFlow::goodput)),
                Row { aim: least, ..Row::new(&*case, SHARE, share(outcomes, &case, loss)) },
                Row { aim: most, ..Row::new(&*case, WASTE, waste) },
            ]
        });
        Table::new(condition(size, loss), rows.collect())
    };
    conditions().map(table).collect()
}

fn is_bbr(flow: &str) -> bool {
    flow.starts_with("bbr")
}

fn figures(outcomes: &Outcomes) -> Vec<Figure> {
    let figure = |size: u64, name| {
        let simulated = CONTENDERS.iter().filter(|(_, flow)| !is_bbr(flow));
        let series = simulated.map(|(contender, _)| {
            let points = LOSSES.iter().enumerate().filter_map(|(place, loss)| {
                let case = case_name(contender, size, *loss);
                Some((place as f64, share(outcomes, &case, *loss)?))
            });
            Series::new(*contender, Origin::Simulated, points)
        });
        let names = LOSSES.map(|loss| format!("{} %", loss as f64 / 10.0));
        let x = Axis::names("loss", names.iter().map(|name| &**name));
        let y = Axis::linear(&SHARE.heading());
        let title = format!("{size} MB over 1 Gbit/s and 100 ms");
        Figure { name, plot: Plot { title, x, y, series: series.collect() } }
    };
    vec![figure(SIZES[0], "300"), figure(SIZES[1], "3000")]
}

pub(crate) static COMPARE: Experiment = Experiment {
    id: "compare-1g",
    title: "Every protocol over 1 Gbit/s and 100 ms, at four losses, compared with TCP",
    source: "No paper: the papers leave open which protocol to choose",
    setup: "Each protocol sends 300 MB and 3 GB, from memory to memory, over 1 Gbit/s (Ethernet \
            framing included) and a round trip of 100 ms. The path has a drop-tail queue of one \
            bandwidth-delay product, and loses 0, 0.1, 1 or 5 % of the packets towards the \
            receiver, independently. The protocols have their default settings. Greedy FOBS \
            ignores loss; FOBS with its table lowers its rate at loss. RBUDP, FOBS, Tsunami and \
            NETBLT send at 938 Mbit/s of UDP payload, SABUL at most at that rate, and GTP's \
            receiver is configured with 957 Mbit/s. C is 957 Mbit/s, the link's UDP payload in \
            full packets, and L is the share of packets that the path loses. Header and tag take \
            2.2 % of C, so a goodput is at most 97.8 % of C. Waste is data sent beyond the object, \
            as a share of the object. Only congestion control limits TCP's windows. `longhaul \
            reproduce compare-1g` runs this experiment (`reproduce all` does not). With `--how \
            emulate --update` it also runs over real sockets, with the kernel's TCP.",
    cases: || {
        let all =
            conditions().flat_map(|condition| CONTENDERS.map(|contender| (condition, contender)));
        all.map(|((size, loss), (name, flow))| {
            let file = if is_bbr(flow) { "compare-1g-bbr" } else { "compare-1g" };
            let copy = vary(file)
                .only(&[flow])
                .set(&format!("flow.{flow}.size"), format!("{size}MB"))
                .set("topology.link.loss", loss as f64 / 1e3);
            let name = case_name(name, size, loss);
            match is_bbr(flow) {
                true => Case::emulated(name, copy, NO_MODEL),
                false => Case::both(name, copy),
            }
        })
        .collect()
    },
    tables,
    courses: Experiment::NO_COURSES,
    figures: |outcomes, _| figures(outcomes),
    differs: "No paper has this. Simulated TCP is the simulator's model \
              ([tcp-model](tcp-model.md)). BBR's rows are only emulated, with the kernel's BBR; \
              compare them with CUBIC's emulated values, where the tables have them. On the same \
              path [transfer](transfer.md) measures BBR with a window of 64 MiB: one connection \
              has 832 Mbit/s without loss and 459 at 5 %, eight have 838 and 732.",
    learned: "The values of this paragraph are simulated. With a given rate, RBUDP, greedy FOBS \
              and NETBLT are within two per cent of each other without loss. With 3 GB, RBUDP and \
              greedy FOBS keep their rate at all four losses: at 5 % RBUDP has {RBUDP, 3000 MB, \
              loss 5 % | goodput of C·(1 − L)} % of the capacity after loss; the maximum is 97.8. \
              Their cost differs: RBUDP repeats little \
              more than the lost data; greedy FOBS sends one round trip of data more, and two with \
              loss. This extra data is {[FOBS, greedy, 300 MB, loss 0 % | waste] - [RBUDP, 300 MB, \
              loss 0 % | waste]} to {[FOBS, greedy, 300 MB, loss 5 % | waste] - [RBUDP, 300 MB, \
              loss 5 % | waste]} % of 300 MB and less than 1 % of 3 GB. At 5 % FOBS with its table \
              stays {[FOBS, greedy, 3000 MB, loss 5 % | goodput of C·(1 − L)] - [FOBS with its \
              table, 3000 MB, loss 5 % | goodput of C·(1 − L)]} points below greedy FOBS, because \
              it slows down on loss. Tsunami needs seconds to reach its rate, so it has {least \
              [Tsunami, 300 MB, * | goodput of C·(1 − L)]} to {most [Tsunami, 300 MB, * | goodput \
              of C·(1 − L)]} % of the capacity after loss for the small object and {least \
              [Tsunami, 3000 MB, * | goodput of C·(1 − L)]} to {most [Tsunami, 3000 MB, * | \
              goodput of C·(1 − L)]} % for the large one. GTP is the fastest protocol for 3 GB \
              without loss, and recognises the path's own loss: at 5 % it has {GTP, 300 MB, loss 5 \
              % | goodput of C·(1 − L)} % of the capacity after loss for the small object and \
              {GTP, 3000 MB, loss 5 % | goodput of C·(1 − L)} for the large one. At one lost \
              packet in a thousand, SABUL, CUBIC and NewReno, which treat any loss as congestion, \
              have at most 5 % of the capacity after loss.\n\n\
              All aims for 3 GB are met in the simulator and in every valid emulated run. Over \
              real sockets, RBUDP, greedy FOBS and NETBLT with a given rate are within 1 % of the \
              simulated values for 3 GB at all four losses; FOBS with its table and Tsunami, which \
              slow down on loss, are {-[Tsunami, 3000 MB, loss 5 % | goodput | from simulated]} to \
              {-[FOBS with its table, 3000 MB, loss 5 % | goodput | from simulated]} % below their \
              simulated values at 5 %. The kernel's BBR has {TCP BBR, 3000 MB, loss 0.1 % | \
              emulated} Mbit/s for 3 GB at 0.1 % and {TCP BBR, 3000 MB, loss 5 % | emulated} at 5 \
              %.",
    set: Set::Named,
};
