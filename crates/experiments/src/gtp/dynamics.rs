//! Figures 7 to 12 of the GTP paper. Each figure of GTP flows is reproduced with longhaul's rules
//! and with the paper's.

use longhaul_proto::units::Rate;

use crate::experiment::{Case, Experiment, Figure, Set};
use crate::outcome::{CaseOutcome, Outcomes, fairness};
use crate::plot::{Axis, Origin, Plot, Series};
use crate::quantity::{AGGREGATE, FAIRNESS, GOODPUT, LOSS, Quantity, Unit};
use crate::scenarios::{Variant, vary};
use crate::table::{Published, Row, Table};

/// Seconds until a flow that joined has its share.
const SETTLES: f64 = 1.0;

/// The name of a flow on the page; `number` counts from 0.
fn flow_name(number: usize) -> String {
    format!("flow {}", number + 1)
}

/// Mean goodput of each of the first `count` flows between two times.
fn means(outcome: &CaseOutcome, count: usize, from: f64, to: f64) -> Vec<f64> {
    let flows = outcome.flows.iter().take(count);
    flows.map(|flow| flow.goodput_between(from, to)).collect()
}

/// A row for each flow's mean goodput in a phase, one for the sum, one for the fairness index.
fn phase_rows(
    outcomes: &Outcomes,
    case: &str,
    count: usize,
    (from, to): (f64, f64),
    published: Option<f64>,
) -> Vec<Row> {
    let mean = |number: usize| outcomes.of(case, |o| means(o, count, from, to)[number]);
    let name = |what: &str| format!("{case}, {from} to {to} s{what}");
    let mut rows: Vec<Row> = (0..count)
        .map(|number| Row::new(name(&format!(", {}", flow_name(number))), GOODPUT, mean(number)))
        .collect();
    let sum = outcomes.of(case, |o| means(o, count, from, to).iter().sum());
    let even = outcomes.of(case, |o| fairness(&means(o, count, from, to)));
    rows.push(Row::new(name(""), AGGREGATE, sum));
    let published = published.map(Published::Exact);
    rows.push(Row { published, ..Row::new(name(""), FAIRNESS, even) });
    rows
}

fn curves(outcomes: &Outcomes, case: &str, title: &str, name: &'static str) -> Figure {
    let flows = outcomes.case(case).map(|outcome| &*outcome.flows).unwrap_or_default();
    let series = flows.iter().enumerate().map(|(number, flow)| {
        let points = flow.series.iter().map(|sample| (sample.at, sample.goodput));
        let name = if flow.name == "gtp" { GTP.into() } else { flow_name(number) };
        Series::new(format!("simulated: {name}"), Origin::Simulated, points)
    });
    let (x, y) = (Axis::linear("time, s"), Axis::linear("goodput, Mbit/s"));
    Figure { name, plot: Plot { title: title.into(), x, y, series: series.collect() } }
}

const GTP: &str = "GTP";
const TCP: &str = "TCP";

const OURS: &str = "GTP by our rules";
const PAPERS: &str = "GTP by the paper's rules";
/// Suffix of a case's name under the paper's rules.
const PAPER: &str = "by the paper's rules";

fn by_paper(case: &str) -> String {
    format!("{case}, {PAPER}")
}

fn paper(variant: Variant, flows: &[&str]) -> Variant {
    let set = |variant: Variant, flow: &&str| {
        variant.set(&format!("flow.{flow}.settings.gtp-variant"), "paper")
    };
    flows.iter().fold(variant, set)
}

/// The cases under our rules, then under the paper's.
fn both_rules(cases: impl Iterator<Item = (String, Variant)> + Clone, flows: &[&str]) -> Vec<Case> {
    let papers = cases.clone().map(|(name, variant)| (by_paper(&name), paper(variant, flows)));
    cases.chain(papers).map(|(name, variant)| Case::both(name, variant)).collect()
}

pub(super) static FIG7: Experiment = Experiment {
    id: "gtp-fig7",
    title: "Four GTP flows of different round trips join one receiver",
    source: "Wu and Chien, *GTP: group transport protocol for lambda-grids* (2004), section \
             5.1.1, Fig. 7",
    setup: "Four GTP senders with round trips of 20, 40, 60 and 80 ms start at 0, 2, 3 and 4 s. \
            Each has its own link of 1 Gbit/s to a switch, whose port to the receiver has 1 Gbit/s \
            (Ethernet framing included) and a drop-tail queue of 512 kB. Rates are means over the \
            period that the row names; each period begins a second after a join. The fairness \
            index is Jain's. Rows by the paper's rules have `gtp-variant = paper`; rows by our \
            rules have longhaul's changes ([gtp](../docs/protocols/gtp.md)).",
    cases: || both_rules(std::iter::once((GTP.to_owned(), vary("gtp-fig7"))), &["*"]),
    tables: |outcomes| {
        // "Each active flow achieves an identical fair share"; "long term (after flow 4 starts)
        // fairness index is 1".
        let phases = [(1, (1.0, 2.0)), (4, (4.0 + SETTLES, 10.0))];
        let table = |title: &str, case: &str| {
            let rows = phases.into_iter().flat_map(|(count, phase)| {
                phase_rows(outcomes, case, count, phase, (count == 4).then_some(1.0))
            });
            let loss = Row::new(case, LOSS, outcomes.of(case, CaseOutcome::loss));
            Table::new(title, rows.chain([loss]).collect())
        };
        vec![table(OURS, GTP), table(PAPERS, &by_paper(GTP))]
    },
    courses: |outcomes| {
        vec![
            curves(outcomes, GTP, "Four GTP flows join", ""),
            curves(outcomes, &by_paper(GTP), "Four GTP flows join, by the paper's rules", "paper"),
        ]
    },
    figures: Experiment::NO_FIGURES,
    differs: "The paper's ns-2 simulation gives the rate of packets. Here rates count the object's \
              bytes without headers, for which 1 Gbit/s leaves 936 Mbit/s. In the emulation each \
              flow is a copy by the real binary. All copies go to one server, in which one \
              receiver schedules them.",
    learned: "A receiver that sets the rate of each sender makes the shares independent of \
              round-trip times. From one second after the last join, the four flows (20 to 80 ms) \
              have {[GTP, 5 to 10 s] / 4 | 1} Mbit/s each on average, and together fill the link. \
              Nothing is lost in the simulation; over real sockets {GTP | loss | emulated | 2} % \
              is lost. The fairness index is 1, as in the paper's simulation.",
    set: Set::Quick,
};

pub(super) static FIG8: Experiment = Experiment {
    id: "gtp-fig8",
    title: "Four TCP flows of different round trips into one receiver",
    source: "Wu and Chien, *GTP: group transport protocol for lambda-grids* (2004), section \
             5.1.1, Fig. 8",
    setup: "The set-up is that of [gtp-fig7](gtp-fig7.md), but with TCP (NewReno with selective \
            acknowledgements, windows limited only by congestion). All flows start at 0 s and run \
            for 30 s. The fairness index is Jain's.",
    cases: || vec![Case::both(TCP, vary("gtp-fig8"))],
    tables: |outcomes| {
        // "The fairness index of TCP flows in Figure 8 is only 0.67".
        vec![Table::new("", phase_rows(outcomes, TCP, 4, (0.0, 30.0), Some(0.67)))]
    },
    courses: |outcomes| vec![curves(outcomes, TCP, "Four TCP flows", "")],
    figures: Experiment::NO_FIGURES,
    differs: "The paper gives neither the size of the queue nor the duration of the measurement.",
    learned: "TCP's shares depend on the round-trip times: the near flow has {TCP, * flow 1} \
              Mbit/s at 20 ms, the far one {TCP, * flow 4} at 80 ms. The fairness index is worse \
              than the paper's ({TCP, 0 to 30 s | fairness index | 2} instead of 0.67). The queue \
              of 512 kB is a fraction of the bandwidth-delay product, so the far flows lose \
              packets before they reach their share, and 30 s are too short for them to recover.",
    set: Set::Full,
};

/// Figure 9: the text says 200 Mbit/s, the caption 300.
const CAPS: [u64; 2] = [200, 300];

/// Why the case of a slow program is not emulated. Only `--bwlimit` can slow a real copy down, and
/// the copy reports this limit to the receiver.
const SLOW_PROGRAM: &str = "a real copy reports its limit to the receiver when it joins";

fn capped_case(cap: u64) -> String {
    format!("flow 2 at most {cap} Mbit/s")
}

fn unreported_case(cap: u64) -> String {
    format!("flow 2 at most {cap} Mbit/s, which it does not report")
}

pub(super) static FIG9: Experiment = Experiment {
    id: "gtp-fig9",
    title: "A GTP sender that cannot take its share leaves the rest to the other",
    source: "Wu and Chien, *GTP: group transport protocol for lambda-grids* (2004), section \
             5.1.1, Fig. 9",
    setup: "Two GTP flows with a round trip of 20 ms send to one receiver as in \
            [gtp-fig7](gtp-fig7.md). The second starts at 2 s from a host that sends at most 200 \
            Mbit/s (the paper's text) or 300 Mbit/s (its caption) of UDP payload. In the first two \
            tables the limit is the host's card, whose speed a sender reports when it joins. In \
            the last two tables the limit is the sending program, which reports nothing, as in the \
            paper (\"slow disk I/O\"), so the receiver must find the limit. Goodputs are means \
            from 4 to 8 s. Rows by the paper's rules have `gtp-variant = paper`; rows by our rules \
            have longhaul's changes ([gtp](../docs/protocols/gtp.md)).",
    cases: || {
        // The card's rate that gives programs `cap` of UDP payload.
        let card = |cap: u64| Rate::from_mbps(cap).scale(1_538.0 / 1_472.0).as_bps();
        let capped = |cap| vary("gtp-fig9").set("host.s2.nic", card(cap));
        let mut cases =
            both_rules(CAPS.into_iter().map(|cap| (capped_case(cap), capped(cap))), &["*"]);
        for cap in CAPS {
            let slow = vary("gtp-fig9").set("host.s2.nic", Rate::from_mbps(1_000).as_bps());
            let slow = slow.set("host.s2.sends-rate", Rate::from_mbps(cap).as_bps());
            let (name, theirs) = (unreported_case(cap), paper(slow.clone(), &["*"]));
            cases.push(Case::simulated(by_paper(&name), theirs, SLOW_PROGRAM));
            cases.push(Case::simulated(name, slow, SLOW_PROGRAM));
        }
        cases
    },
    tables: |outcomes| {
        let rows = |case: String, cap: u64| {
            let mean = |number: usize| outcomes.of(&case, |o| means(o, 2, 4.0, 8.0)[number]);
            // "Flow 1 increases quickly and reaches 700Mbps, which is the remaining bandwidth."
            let published = (cap == 300).then_some(Published::Exact(700.0));
            [
                Row { published, ..Row::new(format!("{case}: flow 1"), GOODPUT, mean(0)) },
                Row::new(format!("{case}: flow 2"), GOODPUT, mean(1)).published(cap as f64),
            ]
        };
        let ours = CAPS.into_iter().flat_map(|cap| rows(capped_case(cap), cap));
        let papers = CAPS.into_iter().flat_map(|cap| rows(by_paper(&capped_case(cap)), cap));
        let found = CAPS.into_iter().flat_map(|cap| rows(unreported_case(cap), cap));
        let theirs = CAPS.into_iter().flat_map(|cap| rows(by_paper(&unreported_case(cap)), cap));
        vec![
            Table::new(OURS, ours.collect()),
            Table::new(PAPERS, papers.collect()),
            Table::new("GTP by our rules, the limit not reported", found.collect()),
            Table::new("GTP by the paper's rules, the limit not reported", theirs.collect()),
        ]
    },
    courses: |outcomes| {
        let figure = |cap, name| {
            curves(outcomes, &capped_case(cap), &format!("A sender capped at {cap} Mbit/s"), name)
        };
        let found = |case: String, rules: &str, name| {
            let title = format!("A sender that does not report its 300 Mbit/s, {rules}");
            curves(outcomes, &case, &title, name)
        };
        vec![
            figure(200, "200"),
            figure(300, "300"),
            found(unreported_case(300), "by our rules", "found"),
            found(by_paper(&unreported_case(300)), PAPER, "found-paper"),
        ]
    },
    figures: Experiment::NO_FIGURES,
    differs: "The paper contradicts itself on the limit of flow 2: its text says 200 Mbit/s, its \
              caption 300 Mbit/s. The 700 Mbit/s that the other flow reaches fit the caption. This \
              page has both limits. The paper's rates count packets on a link of 1000 Mbit/s; \
              here framing, headers and tags leave 936 Mbit/s for the object, and in the first \
              two tables the two simulated flows use all of it.",
    learned: "If one sender cannot use its share, the other sender gets the rest: max-min fairness \
              does not mean equal shares. If flow 2 reports its card's speed when it joins, flow 1 \
              has all of the rest, {* 200 Mbit/s: flow 1 | 1} or {* 300 Mbit/s: flow 1 | 1} \
              Mbit/s. If flow 2 reports nothing, the receiver finds the limit. By our rules flow 1 \
              then has {* 200 Mbit/s, which it does not report: flow 1 | 1} or {* 300 Mbit/s, \
              which it does not report: flow 1 | 1}: {100 - 100 * [* 200 Mbit/s, which it does not \
              report: flow 1] / [* 200 Mbit/s: flow 1] | 1} and {100 - 100 * [* 300 Mbit/s, which \
              it does not report: flow 1] / [* 300 Mbit/s: flow 1] | 1} % less than with a \
              reported limit, because the receiver repeatedly requests a little more from flow 2 \
              than flow 2 can send. Over real sockets flow 1 and flow 2 are within {off [* | from \
              simulated]} % of the simulated values.",
    set: Set::Full,
};

/// Figure 10: GTP's capacity, as a share of the access link.
const CAPACITIES: [(&str, u32); 2] = [("all of the link", 100), ("85 % of the link", 85)];
/// All of the link, with GTP's packets delayed as by a busy host.
const LATE: &str = "all of the link, GTP's packets up to 2 ms late";
const LATE_BY_ITSELF: &str = "over real sockets packets are late anyway";
const TCP_FLOWS: usize = 3;
const TCP_SHARE: Quantity = Quantity { name: "three TCP flows together", unit: Unit::Rate };

pub(super) static FIG10: Experiment = Experiment {
    id: "gtp-fig10",
    title: "GTP next to three TCP flows, with all of the access link and with 85 % of it",
    source: "Wu and Chien, *GTP: group transport protocol for lambda-grids* (2004), section \
             5.1.2, Fig. 10",
    setup: "Three TCP flows start at 0 s and a GTP flow at 1 s, all with a round trip of 1 ms into \
            one receiver as in [gtp-fig7](gtp-fig7.md). GTP may use all of the link, or 85 % of \
            it. In one more case GTP's packets reach the switch up to 2 ms late, in order, as from \
            a busy host. Goodputs are means from 3 to 10 s. Rows by the paper's rules have \
            `gtp-variant = paper`; rows by our rules have longhaul's changes \
            ([gtp](../docs/protocols/gtp.md)).",
    cases: || {
        let share = |share| format!("{share}%");
        let gtp = |of| vary("gtp-fig10").set("flow.gtp.settings.receive-share", share(of));
        let late = gtp(100).set("link.s4-switch.jitter", "2ms");
        let late = Case::simulated(LATE, late, LATE_BY_ITSELF);
        let punctual = CAPACITIES.into_iter().map(|(name, share)| (name.to_owned(), gtp(share)));
        both_rules(punctual, &["gtp"]).into_iter().chain([late]).collect()
    },
    tables: |outcomes| {
        let rows = |case: &str| {
            let own = outcomes.case(case).and_then(|outcome| outcome.flow("gtp"));
            let own = own.map(|flow| flow.goodput_between(3.0, 10.0));
            let others = outcomes.of(case, |o| means(o, TCP_FLOWS, 3.0, 10.0).iter().sum());
            [
                Row::new(format!("GTP with {case}"), GOODPUT, own),
                Row::new(format!("beside GTP with {case}"), TCP_SHARE, others),
            ]
        };
        let ours = CAPACITIES.iter().chain(&[(LATE, 100)]).flat_map(|(case, _)| rows(case));
        let papers = CAPACITIES.iter().flat_map(|(case, _)| rows(&by_paper(case)));
        vec![Table::new(OURS, ours.collect()), Table::new(PAPERS, papers.collect())]
    },
    courses: |outcomes| {
        vec![
            curves(outcomes, CAPACITIES[0].0, "GTP with all of the link", "100"),
            curves(outcomes, CAPACITIES[1].0, "GTP with 85 % of the link", "85"),
        ]
    },
    figures: Experiment::NO_FIGURES,
    differs: "The paper describes the curves only in words: with all of the link GTP \"does not \
              let most of the TCP traffic through\", with 85 % of it TCP \"could make use of the \
              remaining bandwidth\". The link carries 936 Mbit/s of object data. 85 % of that is \
              796 Mbit/s, and GTP reaches {GTP with 85 % of the link}.\n\n\
              Over real sockets, with all of the link, GTP has less goodput than in the simulator, \
              and TCP has more. The simulator's sender sends each datagram at most 24 µs late. \
              The real sender shares two cores with the other flows, the receiver and the \
              emulator; it wakes late and sends all due datagrams together. TCP keeps the switch's \
              queue full, so most of a burst is lost, and GTP lowers its rate. The last case of \
              the first table shows this effect alone, in the simulator: packets up to 2 ms late \
              reduce GTP from {GTP with all of the link} to {GTP with all of the link, GTP's *} \
              Mbit/s, about the same as over real sockets. With 85 % of the link GTP's goodput \
              over real sockets is within {off [GTP with 85 % of the link | from simulated]} % of \
              the simulated \
              one.",
    learned: "A protocol that counts only its own flows needs a setting for the capacity that it \
              leaves to others. In the simulator GTP with all of the link leaves three TCP flows \
              {beside GTP with all of the link} Mbit/s. With 85 % of the link GTP takes no more \
              than its share, and TCP fills the rest, as in the paper and over real sockets.",
    set: Set::Full,
};

/// Figure 11: from the join to the end, "(from 10s to 33s)".
const TWO_PHASE: (f64, f64) = (10.0, 33.0);

pub(super) static FIG11: Experiment = Experiment {
    id: "gtp-fig11",
    title: "Two flows at 25 and 50 ms, the second joining at 10 s: GTP and TCP",
    source: "Wu and Chien, *GTP: group transport protocol for lambda-grids* (2004), section 5.2, \
             Fig. 11",
    setup: "Two flows send to one receiver as in [gtp-fig7](gtp-fig7.md). One has a round trip of \
            25 ms and starts at 0 s; the other has 50 ms and starts at 10 s. Both end at 33 s. \
            They use GTP or TCP (NewReno with selective acknowledgements, windows limited only by \
            congestion). The fairness index is Jain's. Rows by the paper's rules have `gtp-variant \
            = paper`; the other rows of GTP have longhaul's changes \
            ([gtp](../docs/protocols/gtp.md)).",
    cases: || {
        let alone = |flows: &[&str]| vary("gtp-fig11").only(flows);
        let gtp = (GTP.to_owned(), alone(&["gtp1", "gtp2"]));
        let tcp = Case::both(TCP, alone(&["tcp1", "tcp2"]));
        both_rules(std::iter::once(gtp), &["gtp1", "gtp2"]).into_iter().chain([tcp]).collect()
    },
    tables: |outcomes| {
        let paper = by_paper(GTP);
        let cases = [(GTP, 0.99), (&*paper, 0.99), (TCP, 0.77)];
        let rows = cases
            .into_iter()
            .flat_map(|(case, index)| phase_rows(outcomes, case, 2, TWO_PHASE, Some(index)));
        vec![Table::new("", rows.collect())]
    },
    courses: |outcomes| {
        vec![
            curves(outcomes, GTP, "Two GTP flows", "gtp"),
            curves(outcomes, TCP, "Two TCP flows", "tcp"),
        ]
    },
    figures: Experiment::NO_FIGURES,
    differs: "The paper's path is a Dummynet router that itself lost 0.3 % of the packets \
              when the link was full; the switch here loses only packets that its queue cannot \
              hold.",
    learned: "With GTP a late flow gets its share: the fairness index is {GTP, 10 to 33 s | \
              fairness index | 3} in the simulator and {GTP, 10 to 33 s | fairness index | \
              emulated | 3} over real sockets, a little better than the paper's 0.99. TCP's late \
              flow grows by a segment a round trip. From 10 to 33 s this flow has {TCP, * flow 2} \
              of {TCP, 10 to 33 s} Mbit/s on average. The fairness index is {TCP, 10 to 33 s | \
              fairness index | 2}, worse than the paper's 0.77. One possible reason: the \
              losses in the paper's router also slowed the first flow, and left the late flow a \
              larger share.",
    set: Set::Full,
};

/// Figure 12: "the number of GTP flows from 1 to 8 (distributed across four senders)", "The RTT
/// between sender and receiver is around 25ms", loss "bounded by 3%".
const MOST_FLOWS: usize = 8;

fn parallel_case(count: usize) -> String {
    format!("{count} flows")
}

pub(super) static FIG12: Experiment = Experiment {
    id: "gtp-fig12",
    title: "One to eight GTP flows from four senders: aggregate and loss",
    source: "Wu and Chien, *GTP: group transport protocol for lambda-grids* (2004), section 5.2, \
             Fig. 12",
    setup: "1 to 8 GTP flows run for 5 s from four senders with round trips of 25 ms into one \
            receiver as in [gtp-fig7](gtp-fig7.md). All start at 0 s. The fairness index is \
            Jain's. Rows by the paper's rules have `gtp-variant = paper`; rows by our rules have \
            longhaul's changes ([gtp](../docs/protocols/gtp.md)).",
    cases: || {
        let make = |count: usize| {
            let flows: Vec<String> = (1..=count).map(|flow| format!("gtp{flow}")).collect();
            let flows: Vec<&str> = flows.iter().map(|flow| &**flow).collect();
            (parallel_case(count), vary("gtp-fig12").only(&flows))
        };
        both_rules((1..=MOST_FLOWS).map(make), &["*"])
    },
    tables: |outcomes| {
        let rows = |case: String, count: usize| {
            let even = |outcome: &CaseOutcome| fairness(&means(outcome, count, 1.0, 5.0));
            [
                Row::new(&*case, AGGREGATE, outcomes.of(&case, CaseOutcome::aggregate)),
                Row::new(&*case, LOSS, outcomes.of(&case, CaseOutcome::loss))
                    .says(Published::Below(3.0)),
                Row::new(&*case, FAIRNESS, outcomes.of(&case, even)),
            ]
        };
        let counts = || 1..=MOST_FLOWS;
        let ours = counts().flat_map(|count| rows(parallel_case(count), count));
        let papers = counts().flat_map(|count| rows(by_paper(&parallel_case(count)), count));
        vec![Table::new(OURS, ours.collect()), Table::new(PAPERS, papers.collect())]
    },
    courses: Experiment::NO_COURSES,
    figures: parallel_figures,
    differs: "The paper's text has no value except the bound on loss.\n\n\
              Over real sockets each flow is a copy with its own sender.",
    learned: "In the simulator more flows do not cause more loss: nothing is lost (the paper's \
              bound is 3 %), and the aggregate varies by less than 0.1 % from one flow to \
              eight. Over real sockets the aggregate is {-most [* flows | from simulated]} to \
              {-least [* flows | from simulated]} % lower, because all senders, the receiver and \
              the emulator share two cores; at most {most [* flows | loss | emulated] | 1} % of \
              the datagrams are lost. With the paper's rules almost nothing is lost (at most \
              {most [* flows, by the paper's rules | loss] | 2} %), and the aggregate hardly \
              depends on the number of flows: {1 flows, by the paper's rules} Mbit/s with one \
              flow and {8 flows, by the paper's rules} with eight.",
    set: Set::Full,
};

fn parallel_figures(outcomes: &Outcomes, _: &[Table]) -> Vec<Figure> {
    let figure = |name, quantity: Quantity, of: fn(&CaseOutcome) -> f64| {
        let points = (1..=MOST_FLOWS)
            .filter_map(|count| Some((count as f64, outcomes.of(&parallel_case(count), of)?)));
        let series = vec![Series::new("simulated", Origin::Simulated, points)];
        let (x, y) = (Axis::linear("flows"), Axis::linear(&quantity.heading()));
        let title = format!("GTP from four senders: {}", quantity.name);
        Figure { name, plot: Plot { title, x, y, series } }
    };
    vec![
        figure("aggregate", AGGREGATE, CaseOutcome::aggregate),
        figure("loss", LOSS, CaseOutcome::loss),
    ]
}
