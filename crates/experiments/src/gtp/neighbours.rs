//! Two features that the GTP paper only plans: room for other traffic (section 3.6), and a
//! controller that reacts to delay (section 4.1).

use crate::experiment::{Case, Experiment, Set};
use crate::outcome::{CaseOutcome, Outcomes};
use crate::quantity::{AGGREGATE, GOODPUT, LOSS, Quantity, Unit};
use crate::scenarios::vary;
use crate::table::{Row, Table};

const SENDERS: usize = 3;
/// The interval of measurement in seconds, after both kinds of traffic have settled.
const SETTLED: (f64, f64) = (5.0, 20.0);
const GTP_SHARE: Quantity = Quantity { name: "three GTP flows together", unit: Unit::Rate };
const TCP_GOODPUT: Quantity = Quantity { name: "the TCP flow", unit: Unit::Rate };
/// `receive-share` in per cent.
const SHARES: [u32; 2] = [100, 85];
/// Values of `others`, and their names on the page.
const RULES: [(&str, &str); 2] = [("fair", "others fair"), ("ignored", "others ignored")];

fn beside_case(share: u32, rule: &str) -> String {
    format!("{share} % of the link, {rule}")
}

fn beside_cases() -> impl Iterator<Item = (u32, (&'static str, &'static str))> {
    SHARES.into_iter().flat_map(|share| RULES.map(|rule| (share, rule)))
}

fn settled(flows: &[crate::outcome::CaseFlow]) -> f64 {
    flows.iter().map(|flow| flow.goodput_between(SETTLED.0, SETTLED.1)).sum()
}

fn beside_tables(outcomes: &Outcomes) -> Vec<Table> {
    let rows = beside_cases().flat_map(|(share, (_, rule))| {
        let case = beside_case(share, rule);
        let of = |number: fn(&CaseOutcome) -> f64| outcomes.of(&case, number);
        [
            Row::new(&*case, GTP_SHARE, of(|outcome| settled(&outcome.flows[..SENDERS]))),
            Row::new(&*case, TCP_GOODPUT, of(|outcome| settled(&outcome.flows[SENDERS..]))),
            Row::new(&*case, AGGREGATE, of(|outcome| settled(&outcome.flows))),
        ]
    });
    vec![Table::new("", rows.collect())]
}

pub(super) static BESIDE: Experiment = Experiment {
    id: "gtp-beside",
    title: "Three GTP senders next to one TCP flow: the share that the receiver leaves for others",
    source: "Wu and Chien, *GTP: group transport protocol for lambda-grids* (2004), section 3.6, \
             which names other traffic as future work and has no figure",
    setup: "Three GTP senders with round trips of 25, 50 and 100 ms start at 0 s. One TCP flow \
            (CUBIC, a window that only congestion limits) with a round trip of 20 ms starts at 2 \
            s. All send to one receiver through a switch, whose port has 1 Gbit/s (Ethernet \
            framing included) and a drop-tail queue of 2 MB. The receiver finds its capacity (C_r) \
            by itself. The receiver takes all of the link or 85 % of it (`receive-share`). The \
            receiver measures other traffic and leaves this traffic a max-min fair share (`others` \
            fair), or ignores it (`others` ignored). Goodputs are means from 5 to 20 s of one run \
            with one seed.",
    cases: || {
        let case = |(share, (value, rule)): (u32, (&str, &str))| {
            let variant = vary("gtp-beside")
                .set("flow.gtp.settings.receive-share", format!("{share}%"))
                .set("flow.gtp.settings.others", value);
            Case::both(beside_case(share, rule), variant)
        };
        beside_cases().map(case).collect()
    },
    tables: beside_tables,
    courses: Experiment::NO_COURSES,
    figures: Experiment::NO_FIGURES,
    differs: "The paper publishes no values. Four equal flows would have 234 Mbit/s each of the \
              936 Mbit/s of object data that the link carries in GTP's datagrams. In TCP's \
              segments, which have smaller headers, the link carries 941 Mbit/s.",
    learned: "With all of the link and `others` fair, the TCP flow has {100 % of the link, others \
              fair | the TCP flow} Mbit/s; with `others` ignored it has {100 % of the link, others \
              ignored | the TCP flow}. The fair share would be 234. A fixed share of 85 % leaves \
              15 % of the link, which is 140 Mbit/s. The TCP flow then takes more than this: {85 \
              % of the link, others ignored | the TCP flow} Mbit/s with `others` ignored and {85 \
              % of the link, others fair | the TCP flow} with `others` fair.",
    set: Set::Full,
};

/// Sizes of the queue before the receiver, and their names on the page.
const QUEUES: [(&str, &str); 3] = [("512KB", "512 kB"), ("6MB", "6 MB"), ("25MB", "25 MB")];
/// Values of `delay-control`, and their names on the page.
const SWITCH: [(&str, &str); 2] = [("off", "loss alone"), ("on", "delay-control")];
const GTP_GOODPUT: Quantity = Quantity { name: "GTP", unit: Unit::Rate };
/// The goodput of TCP with a fixed window measures the round-trip time.
const ROUND_TRIP: Quantity = Quantity { name: "TCP with a window of 64 KiB", ..GOODPUT };

fn delay_case(queue: &str, rule: &str) -> String {
    format!("queue of {queue}, {rule}")
}

fn delay_cases()
-> impl Iterator<Item = ((&'static str, &'static str), (&'static str, &'static str))> {
    QUEUES.into_iter().flat_map(|queue| SWITCH.map(|rule| (queue, rule)))
}

pub(super) static DELAY_CONTROL: Experiment = Experiment {
    id: "gtp-delay-control",
    title: "One GTP flow that requests more than the link carries: control by loss and by delay",
    source: "Wu and Chien, *GTP: group transport protocol for lambda-grids* (2004), section 4.1, \
             which mentions control by delay as future work and has no figure",
    setup: "One GTP flow runs for 20 s over 1 Gbit/s (Ethernet framing included) and a round trip \
            of 50 ms. Its receiver is configured with a capacity (C_r) of 1100 Mbit/s of UDP \
            payload; the link carries 957. A TCP flow (NewReno) with a window of 64 KiB runs at \
            the same time. On an empty path it would have 10.5 Mbit/s (64 KiB every 50 ms); a \
            queue or loss reduces its goodput. GTP reacts to loss alone, or (`delay-control`) also \
            to a queue of more than a quarter of the round trip. The drop-tail queue holds 512 kB \
            (4 ms), 6 MB (48 ms) or 25 MB (200 ms).",
    cases: || {
        let case = |((size, queue), (value, rule)): ((&str, &str), (&str, &str))| {
            let variant = vary("gtp-delay-control")
                .set("topology.link.queue", size)
                .set("flow.gtp.settings.delay-control", value);
            Case::both(delay_case(queue, rule), variant)
        };
        delay_cases().map(case).collect()
    },
    tables: |outcomes| {
        let rows = delay_cases().flat_map(|((_, queue), (_, rule))| {
            let case = delay_case(queue, rule);
            let of = |number: fn(&CaseOutcome) -> f64| outcomes.of(&case, number);
            [
                Row::new(&*case, GTP_GOODPUT, of(|outcome| outcome.flows[0].goodput())),
                Row::new(&*case, LOSS, of(|outcome| outcome.flows[0].loss())),
                Row::new(&*case, ROUND_TRIP, of(|outcome| outcome.flows[1].goodput())),
            ]
        });
        vec![Table::new("", rows.collect())]
    },
    courses: Experiment::NO_COURSES,
    figures: Experiment::NO_FIGURES,
    differs: "The paper publishes no values. The controller allows a queue of a quarter of the \
              round trip (12.5 ms here), and treats a longer queue as loss.",
    learned: "Where the queue (512 kB) is shorter than `delay-control` allows, the setting changes \
              nothing. With 6 MB it costs GTP {100 - 100 * [queue of 6 MB, delay-control] / [queue \
              of 6 MB, loss alone]} % of its goodput and raises the TCP flow from {queue of 6 MB, \
              loss alone | TCP with a window of 64 KiB | 1} to {queue of 6 MB, delay-control | TCP \
              with a window of 64 KiB | 1} Mbit/s. With 25 MB it costs GTP {100 - 100 * [queue of \
              25 MB, delay-control] / [queue of 25 MB, loss alone]} % of its goodput, and GTP \
              loses {queue of 25 MB, delay-control | loss | 2} % of its packets instead of {queue \
              of 25 MB, loss alone | loss | 2} %.",
    set: Set::Full,
};
