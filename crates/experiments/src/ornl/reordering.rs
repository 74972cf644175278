//! Section 6 of the Oak Ridge study: "That would seem to indicate that packets may not be received
//! in strict order but more study needs to be done on this problem."

use crate::experiment::{Case, Experiment, Figure, Set};
use crate::outcome::CaseFlow;
use crate::plot::{Axis, Origin, Plot, Series};
use crate::quantity::{DUPLICATES, GOODPUT, LOST};
use crate::scenarios::{Variant, vary};
use crate::table::{Row, Table};

/// Name, and flow in the scenario.
const CONTENDERS: [(&str, &str); 6] = [
    ("RBUDP", "rbudp"),
    ("FOBS", "fobs"),
    ("SABUL of the study", "release"),
    ("SABUL", "sabul"),
    ("Tsunami", "tsunami"),
    ("Tsunami without patience", "hasty"),
];
/// Shares of packets that are held back, in per cent.
const SHARES: [f64; 4] = [0.0, 0.1, 1.0, 5.0];
const SWEPT: &str = "two cases of each protocol (no reordering, and 1 % by 1 ms) are enough to \
                     check the simulated values";
/// How long packets are held back, in ms.
const BY: [f64; 3] = [0.1, 1.0, 5.0];

fn case_name(contender: &str, share: f64, by: f64) -> String {
    match share > 0.0 {
        true => format!("{contender}, {share} % by {by} ms"),
        false => format!("{contender}, none"),
    }
}

/// Every degree of reordering: the share of packets that are held back (in per cent), and their
/// delay (in ms). The first is no reordering.
fn degrees() -> impl Iterator<Item = (f64, f64)> {
    let some = SHARES.into_iter().filter(|share| *share > 0.0);
    let some = some.flat_map(|share| BY.into_iter().map(move |by| (share, by)));
    [(0.0, 0.0)].into_iter().chain(some)
}

fn variant(flow: &str, share: f64, by: f64) -> Variant {
    vary("ornl-reorder")
        .only(&[flow])
        .set("topology.link.reorder", share / 100.0)
        .set("topology.link.reorder-by", format!("{}us", by * 1e3))
}

pub(super) static REORDERING: Experiment = Experiment {
    id: "ornl-reorder",
    title: "Do SABUL and Tsunami report reordered packets as lost?",
    source: "Fowler, *Faster bulk transfer starring: UDP*, Oak Ridge National Laboratory (2003), \
             section 6: an open question",
    setup: "This page repeats the memory runs of [ornl-memory](ornl-memory.md) (200 MB over 100 \
            Mbit/s and a round trip of 70.6 ms) without any loss. Counts are of datagrams; `lost, \
            as reported` counts a packet each time that it is reported as lost. 0, 0.1, 1 or 5 % \
            of the packets in each direction are delayed by 0.1, 1 or 5 ms. At 100 Mbit/s packets \
            are 0.12 ms apart, so later packets overtake those that are delayed by 1 or 5 ms. \
            \"SABUL of the study\" is the release that the study ran. \"Tsunami without patience\" \
            requests each gap that it finds, without a wait (`grace` 0).",
    cases: || {
        let runs = CONTENDERS.iter().flat_map(|c| degrees().map(move |degree| (c, degree)));
        runs.map(|((name, flow), (share, by))| {
            let (case, variant) = (case_name(name, share, by), variant(flow, share, by));
            // No reordering and one degree are also emulated, to check the simulated values.
            match share == 0.0 || (share, by) == (1.0, 1.0) {
                true => Case::both(case, variant),
                false => Case::simulated(case, variant, SWEPT),
            }
        })
        .collect()
    },
    tables: |outcomes| {
        let table = |(contender, _): &(&str, &str)| {
            let rows = degrees().flat_map(|(share, by)| {
                let case = case_name(contender, share, by);
                let of = |number: fn(&CaseFlow) -> f64| outcomes.first(&case, number);
                [
                    Row::new(&*case, GOODPUT, of(CaseFlow::goodput)),
                    Row::new(&*case, LOST, of(|flow| flow.reported_lost.number())),
                    Row::new(&*case, DUPLICATES, of(|flow| flow.duplicates.number())),
                ]
            });
            Table::new(*contender, rows.collect())
        };
        CONTENDERS.iter().map(table).collect()
    },
    courses: Experiment::NO_COURSES,
    figures: |outcomes, _| {
        let by = 1.0;
        let series = CONTENDERS.iter().map(|(name, _)| {
            let points = SHARES.iter().filter_map(|share| {
                let case = case_name(name, *share, by);
                Some((*share, outcomes.first(&case, |flow| flow.reported_lost.number())?))
            });
            Series::new(*name, Origin::Simulated, points)
        });
        let series = series.filter(|series| !series.points.is_empty()).collect();
        let x = Axis::linear("packets held back for 1 ms, %");
        let y = Axis::linear("losses reported");
        let title = "Losses reported although no packet is lost, 100.00 Mbit/s".into();
        vec![Figure { name: "", plot: Plot { title, x, y, series } }]
    },
    differs: "The study could not reorder packets; it asked for this experiment.",
    learned: "For SABUL the answer is yes: it reports a gap as soon as it sees one, so it treats \
              an overtaken packet as lost. In the simulator, if one packet in a thousand is \
              delayed by a millisecond, the release that the study ran reports {SABUL of the \
              study, 0.1 % by 1 ms | lost, as reported} of 139,000 packets as lost, and keeps \
              almost all of its goodput. If one in a hundred is delayed, it reports {SABUL of the \
              study, 1 % by 1 ms | lost, as reported} and loses two thirds of its goodput. SABUL \
              as its authors describe it falls from {SABUL, none} to {SABUL, 0.1 % by 1 ms} Mbit/s \
              at one in a thousand. So reordering can explain reports without drops. It does not \
              explain the study's tens of thousands of reports at 87 Mbit/s: no simulated run of \
              SABUL has more than {most [SABUL* | lost, as reported]}.\n\n\
              longhaul's Tsunami requests a packet only if it has not arrived within a quarter of \
              a round trip (17.6 ms), longer than any delay here. The original tool has no such \
              wait. Without it, longhaul's Tsunami reports at most {most [Tsunami without \
              patience, * | lost, as reported]} losses, because it looks for gaps only three times \
              a second. So reordering by up to 5 ms does not explain the losses that the study's \
              Tsunami reported. RBUDP reports at the end of a round, and reports at most {most \
              [RBUDP, * | lost, as reported]} packets as lost. FOBS reports after every 64 \
              packets, and reports at most {most [FOBS, * | lost, as reported]} packets as lost. \
              Neither RBUDP nor FOBS loses a thousandth of its goodput.\n\n\
              Over real sockets, with one packet in a hundred delayed by a millisecond, only SABUL \
              loses goodput, as in the simulator: SABUL has {SABUL, 1 % by 1 ms | emulated} \
              Mbit/s, and the study's release has {SABUL of the study, 1 % by 1 ms | emulated}.",
    set: Set::Full,
};
