//! One sender and many receivers, each of which needs the whole object.

use longhaul_proto::units::Rate;

use crate::experiment::{Case, Experiment, Figure, Set};
use crate::outcome::{CaseFlow, CaseOutcome, Outcomes, fairness};
use crate::paths::{BLOCK, OVERHEAD, payload_ceiling};
use crate::plot::{Axis, Origin, Plot, Series};
use crate::quantity::{FAIRNESS, Quantity, Unit, WASTE};
use crate::scenarios::vary;
use crate::table::{Row, Table};

pub(crate) const ALL: [&Experiment; 1] = [&MANY];

const LINK: Rate = Rate::from_mbps(1_000);
/// The total rate of all copies in bits a second of UDP payload: 98 % of what full packets carry
/// over the link.
const CONFIGURED: u64 = 938_000_000;
const MEGABYTES: u64 = 100;
const RECEIVERS: [usize; 3] = [1, 4, 16];
/// The flow that is configured with the whole link's rate.
const BLIND: &str = "blind";
/// The only number of receivers with which [`BLIND`] runs. With one receiver the share is the whole
/// rate anyway; sixteen show nothing new.
const BLIND_TO: usize = 4;
/// The flow whose receivers request the rate of their own links.
const REQUESTED: &str = "gtp";
const OVERRUN: &str = "these senders send several times the link's rate, more than one machine can \
                       emulate";
/// Name, flow in the scenario, whether it is configured with its share of the link.
const CONTENDERS: [(&str, &str, bool); 9] = [
    ("RBUDP, told its share", "rbudp", true),
    ("FOBS, told its share", "fobs", true),
    ("Tsunami, told its share", "tsunami", true),
    ("NETBLT, told its share", "netblt", true),
    ("RBUDP, told the link", BLIND, false),
    ("GTP", REQUESTED, false),
    ("SABUL", "sabul", false),
    ("TCP CUBIC", "cubic", false),
    ("TCP CUBIC, 8 connections", "cubic8", false),
];

const ALL_HAVE_IT: Quantity = Quantity { name: "time until all have it", unit: Unit::Seconds };
const FIRST_HAS_IT: Quantity = Quantity { name: "time until one has it", unit: Unit::Seconds };

fn contenders(receivers: usize) -> impl Iterator<Item = (&'static str, &'static str, bool)> {
    CONTENDERS.into_iter().filter(move |(_, flow, _)| *flow != BLIND || receivers == BLIND_TO)
}

fn case_name(contender: &str, receivers: usize) -> String {
    format!("{contender}, to {receivers}")
}

/// Minimum time in seconds: the link carries the object once per receiver in full packets.
fn least(receivers: usize) -> f64 {
    let object = f64::from(BLOCK) / f64::from(BLOCK + OVERHEAD);
    let bits = (receivers as u64 * MEGABYTES * 8_000_000) as f64;
    bits / payload_ceiling(LINK).scale(object).as_bps() as f64
}

fn first(outcome: &CaseOutcome) -> f64 {
    outcome.flows.iter().map(|flow| flow.elapsed.as_secs_f64()).fold(f64::INFINITY, f64::min)
}

/// Fairness index of the receivers' goodputs.
fn evenness(outcome: &CaseOutcome) -> f64 {
    fairness(&outcome.flows.iter().map(CaseFlow::goodput).collect::<Vec<_>>())
}

/// Data sent beyond the object, in per cent of the object; the mean of all flows.
fn waste(outcome: &CaseOutcome) -> f64 {
    let mean: f64 = outcome.flows.iter().map(CaseFlow::waste).sum();
    mean / outcome.flows.len() as f64
}

fn tables(outcomes: &Outcomes) -> Vec<Table> {
    let table = |receivers: usize| {
        let rows = contenders(receivers).flat_map(|(name, _, _)| {
            let case = case_name(name, receivers);
            let of = |number: fn(&CaseOutcome) -> f64| outcomes.of(&case, number);
            let time = of(|outcome| outcome.span().as_secs_f64());
            let one = Row::new(&*case, ALL_HAVE_IT, time).model(least(receivers));
            let wasted = Row::new(&*case, WASTE, of(waste));
            let several = [
                Row::new(&*case, FIRST_HAS_IT, of(first)),
                Row::new(&*case, FAIRNESS, of(evenness)),
            ];
            let several = several.into_iter().filter(move |_| receivers > 1);
            [one, wasted].into_iter().chain(several)
        });
        let plural = if receivers == 1 { "receiver" } else { "receivers" };
        Table::new(format!("{receivers} {plural}"), rows.collect())
    };
    RECEIVERS.map(table).into()
}

fn figures(outcomes: &Outcomes) -> Vec<Figure> {
    let points = |time: &dyn Fn(usize) -> Option<f64>| -> Vec<(f64, f64)> {
        let all = RECEIVERS.iter();
        all.filter_map(|receivers| Some((*receivers as f64, time(*receivers)?))).collect()
    };
    let model = points(&|receivers| Some(least(receivers)));
    let mut series = vec![Series::new("model: the link alone", Origin::Model, model)];
    series.extend(CONTENDERS.iter().map(|(name, _, _)| {
        let time = |receivers| {
            outcomes.of(&case_name(name, receivers), |outcome| outcome.span().as_secs_f64())
        };
        Series::new(*name, Origin::Simulated, points(&time))
    }));
    let (x, y) = (Axis::linear("receivers"), Axis::linear(&ALL_HAVE_IT.heading()));
    let title = "100 MB to each receiver over 1 Gbit/s".into();
    vec![Figure { name: "", plot: Plot { title, x, y, series } }]
}

pub(crate) static MANY: Experiment = Experiment {
    id: "many-receivers",
    title: "One sender, the same object to 1, 4 and 16 receivers over a link that they share",
    source: "No paper: the papers have one receiver, or several senders",
    setup: "One host sends 100 MB to each of 1, 4 or 16 receivers, one copy per receiver, from \
            memory to memory. All copies start at 0 s. The host has a card of 10 Gbit/s, and all \
            copies share a link of 1 Gbit/s (Ethernet framing included) with a drop-tail queue of \
            50 ms. After the shared link each receiver has its own link of 1 Gbit/s. The round \
            trips of the whole paths are 100, 50, 30 and 10 ms in turn. Packets are lost only in \
            queues. Protocols that take a rate are configured with an equal share (`told its \
            share`) of 938 Mbit/s of UDP payload, 98 % of what full packets carry over the link. \
            Four copies of RBUDP also run with the whole rate each (`told the link`), as if each \
            were alone. GTP's receivers know only their own links. SABUL and TCP find their rates; \
            only congestion limits their windows. The model is the time in which the link sends \
            all objects in full packets. The fairness index is Jain's index of the receivers' \
            goodputs, each from start to end. Waste is data sent beyond the object, as a share of \
            the object.",
    cases: || {
        let all =
            RECEIVERS.iter().flat_map(|count| contenders(*count).map(move |one| (*count, one)));
        all.map(|(receivers, (name, flow, shares))| {
            let name = case_name(name, receivers);
            let star = vary("many-receivers").only(&[flow]).set("topology.hosts", receivers);
            let star = match shares {
                true => star.set(&format!("flow.{flow}.rate"), CONFIGURED / receivers as u64),
                false => star,
            };
            match flow == BLIND || flow == REQUESTED && receivers > 1 {
                true => Case::simulated(name, star, OVERRUN),
                false => Case::both(name, star),
            }
        })
        .collect()
    },
    tables,
    courses: Experiment::NO_COURSES,
    figures: |outcomes, _| figures(outcomes),
    differs: "No paper has this. No sender here knows that it has several receivers: each receiver \
              belongs to a separate copy, which reads the object again. If the sender's card is \
              the shared link, it makes the programs wait, and nothing is lost \
              ([gtp-table3](gtp-table3.md)).",
    learned: "The shared link must carry the object once for each receiver. A protocol that sends \
              at its configured share comes close to this limit. For four receivers the link alone \
              would take {RBUDP, told its share, to 4 | model | 2} s; RBUDP and FOBS take {RBUDP, \
              told its share, to 4 | 2} s and NETBLT {NETBLT, told its share, to 4 | 2} s. For 16 \
              receivers the link alone would take {RBUDP, told its share, to 16 | model | 2} s; \
              these protocols take {RBUDP, told its share, to 16 | 2} to {NETBLT, told its share, \
              to 16 | 2} s. Of these protocols only FOBS wastes anything: one round trip of data \
              for each receiver. With each of these protocols all receivers have the object at \
              nearly the same time. Tsunami takes about a second longer than these protocols, \
              because it starts slowly. If \
              each of four copies of RBUDP sends at the whole link's rate, they take {RBUDP, told \
              the link, to 4 | 2} s instead of {RBUDP, told its share, to 4 | 2}, and send \
              {RBUDP, told the link, to 4 | waste} % of the object needlessly.\n\n\
              A receiver of GTP divides the rate of its own link among its senders; here these \
              links are not the bottleneck. 16 receivers request more than the shared link \
              carries, and {GTP, to 16 | waste} % of the object is sent needlessly; with four \
              receivers {GTP, to 4 | waste} %. SABUL finds its share, with a waste of {SABUL, to 4 \
              | waste} % for four receivers and {SABUL, to 16 | waste} % for 16. The last of these \
              16 has the object {[SABUL, to 16] - [RBUDP, told its share, to 16] | 1} s later than \
              with RBUDP, and the first has it after half of RBUDP's time. TCP serves the near \
              receivers first: of four receivers one has the object after {TCP CUBIC, to 4 | time \
              until one has it | 1} s and the last after {TCP CUBIC, to 4 | 2} s. Eight \
              connections for each receiver help with 16 receivers ({TCP CUBIC, 8 connections, to \
              16 | 1} s instead of {TCP CUBIC, to 16 | 1}), not with four ({TCP CUBIC, 8 \
              connections, to 4 | 1} s instead of {TCP CUBIC, to 4 | 1}).",
    set: Set::Full,
};
