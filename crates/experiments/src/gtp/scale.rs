//! GTP: one receiver's scheduler with up to a thousand senders.

use longhaul_proto::gtp::{Demand, shares};
use longhaul_proto::units::Rate;

use crate::experiment::{Case, Experiment, Set};
use crate::outcome::{CaseOutcome, fairness};
use crate::paths::{BLOCK, OVERHEAD, payload_ceiling};
use crate::quantity::{AGGREGATE, FAIRNESS, LOSS, Quantity, Unit};
use crate::scenarios::vary;
use crate::table::{Row, Table};

const SENDERS: [usize; 4] = [1, 10, 100, 1_000];
/// The receiver's link in Gbit/s.
const LINKS: [u64; 3] = [1, 10, 100];
/// The interval, in seconds, in which all flows but the late one run and have settled.
const BEFORE: (f64, f64) = (2.0, 3.0);
/// When the late flow starts, in seconds.
const JOIN: f64 = 3.0;
/// When all flows end, in seconds.
const END: f64 = 5.0;
/// The late flow has joined if its rate differs from the others' mean by at most this share.
const NEAR: f64 = 0.1;

const TOO_MANY: &str = "one machine has neither the cores nor the memory for so many hosts, each \
                        with an object that lasts seconds at its link's rate";

const JOINED: Quantity = Quantity { name: "fair after a join within", unit: Unit::Seconds };
const LOOKS: Quantity = Quantity { name: "looks at flows for a decision", unit: Unit::Count };

fn case_name(senders: usize, gigabits: u64) -> String {
    format!("{senders} into {gigabits} Gbit/s")
}

fn all() -> impl Iterator<Item = (usize, u64)> {
    LINKS.into_iter().flat_map(|link| SENDERS.map(|senders| (senders, link)))
}

/// Maximum goodput of all flows together in Mbit/s, limited by their own links or the receiver's.
fn ceiling(senders: usize, gigabits: u64) -> f64 {
    let link = (senders as u64).min(gigabits) * 1_000;
    let object = f64::from(BLOCK) / f64::from(BLOCK + OVERHEAD);
    payload_ceiling(Rate::from_mbps(link)).scale(object).as_bps() as f64 / 1e6
}

/// Goodputs of all flows but the late one, before it joins.
fn before(outcome: &CaseOutcome) -> Vec<f64> {
    let (_, others) = outcome.flows.split_last().expect("the late one is always there");
    others.iter().map(|flow| flow.goodput_between(BEFORE.0, BEFORE.1)).collect()
}

/// Seconds from the join until the late flow's rate stays near the others' mean.
fn joined(outcome: &CaseOutcome) -> Option<f64> {
    let (late, others) = outcome.flows.split_last()?;
    let mean = |at: f64| {
        let at_that_time = others.iter().filter_map(|flow| {
            flow.series.iter().find(|sample| sample.at >= at).map(|sample| sample.goodput)
        });
        at_that_time.sum::<f64>() / others.len() as f64
    };
    let far = |at: f64, goodput: f64| (goodput - mean(at)).abs() > NEAR * mean(at);
    let points = || late.series.iter().filter(|sample| sample.at > JOIN && sample.at <= END);
    let last_far = points().rfind(|sample| far(sample.at, sample.goodput));
    let from = last_far.map_or(JOIN, |sample| sample.at);
    points().any(|sample| sample.at > from).then_some(from - JOIN)
}

/// How many looks at flows (comparisons of two flows, and computations of one share) the scheduler
/// needs for one decision. With N senders, the estimated rates are 1 to N, and the equal share is
/// N / 2.
fn looks(senders: usize) -> f64 {
    let estimate = |n: usize| ((n * 7_919) % senders + 1) as f64;
    let demands: Vec<Demand> =
        (0..senders).map(|n| Demand { estimate: estimate(n), weight: 1.0 }).collect();
    let mut work = 0;
    shares(&demands, senders as f64 * senders as f64 / 2.0, &mut work);
    work as f64
}

pub(super) static SCALE: Experiment = Experiment {
    id: "gtp-scale",
    title: "GTP from one to a thousand senders into 1, 10 and 100 Gbit/s",
    source: "No paper measures this scale; the paper on GTP stops at eight flows",
    setup: "1 to 1000 senders with 1 Gbit/s each (Ethernet framing included) send to one receiver \
            of 1, 10 or 100 Gbit/s. Their round-trip times are 1, 3, 10, 20, 30, 50, 80, 120, 200 \
            and 300 ms, repeated for further senders. These senders start at 0 s. One more sender, \
            with a round trip of 50 ms, joins at 3 s. The switch port before the receiver has a \
            queue of 5 ms. Each sender's card has 1 Gbit/s too, which the sender reports at \
            set-up; the receiver's card is not a limit. The receiver knows the rate of its link, \
            and senders wait for its first request. Aggregate and fairness (Jain's index) are \
            measured from 2 to 3 s, loss over all 5 s. The model is the object data that the links \
            carry in full packets. The rows `fair after a join within` have the time from the join \
            until the late flow's rate, measured every 50 ms, stays within 10 % of the others' \
            mean. A decision computes all shares. A look is one step of a decision: it compares \
            two flows or computes one share. In the table of looks the model is N log2 N for N \
            senders.",
    cases: || {
        let case = |(senders, link): (usize, u64)| {
            let capacity = payload_ceiling(Rate::from_mbps(link * 1_000)).as_bps() / 1_000_000;
            let star = vary("gtp-scale")
                .set("topology.hosts", senders)
                .set("link.hub-r.rate", format!("{link}G"))
                .set("flow.*.settings.receive-rate", format!("{capacity}M"));
            Case::simulated(case_name(senders, link), star, TOO_MANY)
        };
        all().map(case).collect()
    },
    tables: |outcomes| {
        let rows = all().flat_map(|(senders, link)| {
            let case = case_name(senders, link);
            let sum = outcomes.of(&case, |outcome| before(outcome).iter().sum());
            let even = outcomes.of(&case, |outcome| fairness(&before(outcome)));
            let joined = outcomes.case(&case).and_then(joined);
            [
                Row::new(&*case, AGGREGATE, sum).model(ceiling(senders, link)),
                Row::new(&*case, LOSS, outcomes.of(&case, CaseOutcome::loss)),
                Row::new(&*case, FAIRNESS, even),
                Row::new(&*case, JOINED, joined),
            ]
        });
        let work = SENDERS.map(|senders| {
            let size = senders as f64;
            let row = Row::new(format!("{senders} senders"), LOOKS, Some(looks(senders)));
            row.model(size * libm::log2(size))
        });
        vec![
            Table::new("Senders into one receiver", rows.collect()),
            Table::new("Cost of a decision", work.into()),
        ]
    },
    courses: Experiment::NO_COURSES,
    figures: Experiment::NO_FIGURES,
    differs: "The paper publishes nothing for more than eight flows. Its senders wait for the \
              first request, as here; by default longhaul's senders send 64 blocks before that \
              request. [scheduler](scheduler.md) has the processor time of a decision; this page \
              has the number of looks at flows.",
    learned: "The scheduler's work grows as N log N: for a decision among a thousand flows it \
              looks {[1000 senders] / 1000} times at each flow. A receiver that knows its senders' \
              rates fills the limiting links in all twelve cases: the senders' links or its own \
              link. Nothing is lost, and the shares of senders from 1 to 300 ms away are equal \
              (index {least [* | fairness index] | 3}). A join takes at most {1000 into 100 Gbit/s \
              | fair after a join within | 2} s, except where a thousand senders share 1 Gbit/s: \
              there it takes {1000 into 1 Gbit/s | fair after a join within | 2} s.",
    set: Set::Named,
};
