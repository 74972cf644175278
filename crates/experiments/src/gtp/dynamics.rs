//! Figures 7 to 12: rates over time as flows join, meet TCP, and share one receiver. Each figure of
//! GTP is made by our rules and by the paper's.

use longhaul_proto::units::Rate;

use crate::experiment::{Case, Experiment, Figure, Set};
use crate::outcome::{CaseOutcome, Outcomes, fairness};
use crate::plot::{Axis, Origin, Plot, Series};
use crate::quantity::{AGGREGATE, FAIRNESS, GOODPUT, LOSS, Quantity, Unit};
use crate::scenarios::{Variant, vary};
use crate::table::{Published, Row, Table};

/// What joined last has found its share after this many seconds.
const SETTLES: f64 = 1.0;

/// The flows' names, by their numbers.
fn flow_name(number: usize) -> String {
    format!("flow {}", number + 1)
}

/// Mean goodput of the first `count` flows between two times.
fn means(outcome: &CaseOutcome, count: usize, from: f64, to: f64) -> Vec<f64> {
    let flows = outcome.flows.iter().take(count);
    flows.map(|flow| flow.goodput_between(from, to)).collect()
}

/// A row for each flow's mean goodput in a phase, one for their sum, one for their fairness.
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

/// A case's flows over time.
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

/// Headings of the two tables of a page.
const OURS: &str = "GTP by our rules";
const PAPERS: &str = "GTP by the paper's rules";
/// What is added to the name of a case by the paper's rules.
const PAPER: &str = "by the paper's rules";

fn by_paper(case: &str) -> String {
    format!("{case}, {PAPER}")
}

/// The `flows` of `variant` by the paper's rules.
fn paper(variant: Variant, flows: &[&str]) -> Variant {
    let set = |variant: Variant, flow: &&str| {
        variant.set(&format!("flow.{flow}.settings.gtp-variant"), "paper")
    };
    flows.iter().fold(variant, set)
}

/// Each of `cases` by our rules, then all of them by the paper's.
fn both_rules(cases: impl Iterator<Item = (String, Variant)> + Clone, flows: &[&str]) -> Vec<Case> {
    let papers = cases.clone().map(|(name, variant)| (by_paper(&name), paper(variant, flows)));
    cases.chain(papers).map(|(name, variant)| Case::both(name, variant)).collect()
}

/// Figure 7.
pub(super) static FIG7: Experiment = Experiment {
    id: "gtp-fig7",
    title: "Four GTP flows of different round trips join one receiver",
    source: "Wu and Chien, *GTP: group transport protocol for lambda-grids* (2004), section \
             5.1.1, Fig. 7",
    setup: "GTP from four senders at 20, 40, 60 and 80 ms, starting at 0, 2, 3 and 4 s, each with \
            1 Gbit/s of its own to a switch, whose port to the receiver has 1 Gbit/s (Ethernet \
            framing included) and a drop-tail queue of 512 kB. Rates are means over the time \
            given; each phase begins a second after the last join.",
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
    differs: "The paper's ns-2 gives rates of packets; ours are of object: 936 Mbit/s is what \
              1 Gbit/s leaves of it. Emulated, each flow is a copy of the real binary, and all of \
              them go to one server, in which one receiver asks them all.",
    learned: "One receiver that says who sends how much makes round-trip times irrelevant for \
              shares: from a second after the last join on, four flows from 20 to 80 ms have \
              {[GTP, 5 to 10 s] / 4 | 1} Mbit/s each, all that the link carries, and in all of the \
              run nothing is lost. The index is 1, no better and no worse than in the paper's \
              simulation.",
    set: Set::Quick,
};

/// Figure 8.
pub(super) static FIG8: Experiment = Experiment {
    id: "gtp-fig8",
    title: "Four TCP flows of different round trips into one receiver",
    source: "Wu and Chien, *GTP: group transport protocol for lambda-grids* (2004), section \
             5.1.1, Fig. 8",
    setup: "As [gtp-fig7](gtp-fig7.md), by TCP (NewReno with selective acknowledgements, windows \
            that congestion alone limits), all starting at 0 s, for 30 s.",
    cases: || vec![Case::both(TCP, vary("gtp-fig8"))],
    tables: |outcomes| {
        // "The fairness index of TCP flows in Figure 8 is only 0.67".
        vec![Table::new("", phase_rows(outcomes, TCP, 4, (0.0, 30.0), Some(0.67)))]
    },
    courses: |outcomes| vec![curves(outcomes, TCP, "Four TCP flows", "")],
    figures: Experiment::NO_FIGURES,
    differs: "The paper does not give its queue, nor how long it measured; with a drop-tail queue \
              TCP's shares hang on both.",
    learned: "TCP's shares follow the round trips: who is near gets more, {TCP, * flow 1} Mbit/s \
              at 20 ms against {TCP, * flow 4} at 80. Ours is worse than the paper's (an index of \
              {TCP, 0 to 30 s | fairness index | 2} for 0.67): the queue of 512 kB is a fraction \
              of the path's product, so the far flows lose before they have climbed, and 30 s are \
              not enough for them to come back.",
    set: Set::Full,
};

/// Figure 9: the text says 200 Mbit/s, the caption 300.
const CAPS: [u64; 2] = [200, 300];

fn capped_case(cap: u64) -> String {
    format!("flow 2 at most {cap} Mbit/s")
}

/// Figure 9.
pub(super) static FIG9: Experiment = Experiment {
    id: "gtp-fig9",
    title: "A GTP sender that cannot take its share leaves the rest to the other",
    source: "Wu and Chien, *GTP: group transport protocol for lambda-grids* (2004), section \
             5.1.1, Fig. 9",
    setup: "Two GTP flows at 20 ms as in [gtp-fig7](gtp-fig7.md), the second starting at 2 s \
            from a host whose card gets out 200 Mbit/s (the paper's text) or 300 Mbit/s (its \
            caption) of UDP payload. Means from 4 to 8 s.",
    cases: || {
        // What a card puts out where programs get `cap` of UDP payload out of it.
        let card = |cap: u64| Rate::from_mbps(cap).scale(1_538.0 / 1_472.0).as_bps();
        let capped = |cap| vary("gtp-fig9").set("host.s2.nic", card(cap));
        both_rules(CAPS.into_iter().map(|cap| (capped_case(cap), capped(cap))), &["*"])
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
        vec![Table::new(OURS, ours.collect()), Table::new(PAPERS, papers.collect())]
    },
    courses: |outcomes| {
        let figure = |cap, name| {
            curves(outcomes, &capped_case(cap), &format!("A sender capped at {cap} Mbit/s"), name)
        };
        vec![figure(200, "200"), figure(300, "300")]
    },
    figures: Experiment::NO_FIGURES,
    differs: "The paper contradicts itself on the cap (its text says 200, its caption 300, and \
              the 700 that the other flow reaches fit the caption), so both are here. The \
              figure shows GTP probing for what flow 2 leaves; ours need not probe, because a \
              sender reports its card's speed when it joins, so this page does not show that \
              ability. The paper's rates are of packets on a link of 1000; of ours framing, \
              headers and tags leave 936 for the object, and the two flows use all of them.",
    learned: "The share that one sender cannot use goes to the other: max-min fairness is not \
              equal shares. A sender tells the receiver what its card puts out when it joins, so \
              from then on flow 1 has all that is left ({* 200 Mbit/s: flow 1 | 1} Mbit/s, or {* \
              300 Mbit/s: flow 1 | 1}), neither better nor worse than in the paper; nothing has to \
              be tried out. Over real sockets, where no card tells its rate, it comes to the same \
              within {off [* | from simulated]} %.",
    set: Set::Full,
};

/// Figure 10: GTP's capacity, as a share of the access link.
const CAPACITIES: [(&str, u32); 2] = [("all of the link", 100), ("85 % of the link", 85)];
/// The first of them, where GTP's sender is as late as a busy host's.
const LATE: &str = "all of the link, GTP's packets up to 2 ms late";
/// Why it is not emulated.
const LATE_BY_ITSELF: &str = "over real sockets packets are late by themselves";
const TCP_FLOWS: usize = 3;
const TCP_SHARE: Quantity = Quantity { name: "three TCP flows together", unit: Unit::Rate };

/// Figure 10.
pub(super) static FIG10: Experiment = Experiment {
    id: "gtp-fig10",
    title: "GTP beside three TCP flows, with all of the access link and with 85 % of it",
    source: "Wu and Chien, *GTP: group transport protocol for lambda-grids* (2004), section \
             5.1.2, Fig. 10",
    setup: "Three TCP flows at 1 ms from 0 s, a GTP flow at 1 ms from 1 s, all into one receiver \
            as in [gtp-fig7](gtp-fig7.md); GTP may use all of the link, or 85 % of it. Once its \
            packets come to the switch up to 2 ms late, in order, as those of a busy host do. \
            Means from 3 to 10 s.",
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
    differs: "The paper's curves are not in its text, only their sense: with all of the link GTP \
              \"does not let most of the TCP traffic through\", with 85 % of it TCP \"could make \
              use of the remaining bandwidth\". What it tells of GTP's rate is a setting, not a \
              measurement, so no published value stands here. 85 % of what the link carries of \
              object are 796, of which GTP has {GTP with 85 % of the link}.\n\n\
              Over real sockets, with all of the link, it is GTP that gives way. The simulator's \
              sender sends each datagram at its time; the real one shares two cores with the other \
              flows, the receiver and the emulator, wakes late, and sends what has become due at \
              once. TCP keeps the switch's queue full: of datagrams that come one by one it takes \
              nearly all, of a clump only the first. GTP takes that loss for a rate that is too \
              high, and TCP fills what it gives up. The last case has this alone, in the \
              simulator: packets up to 2 ms late take GTP from {GTP with all of the link} to {GTP \
              with all of the link, GTP's *} Mbit/s, as far as it falls over real sockets. At 85 % \
              it is within {off [GTP with 85 % of the link | from simulated]} % of the simulator \
              there, too.",
    learned: "A protocol that counts its own flows only must be told what to leave for others. In \
              the simulator, with all of the link, it leaves three TCP flows {beside GTP with all \
              of the link} Mbit/s; told to take 85 %, it does just that, and TCP fills the rest, \
              as in the paper and, within {off [GTP with 85 % of the link | from simulated]} %, \
              over real sockets. Told nothing, GTP on a busy host does worse than the paper's, and \
              TCP better: who sends in clumps into a queue that TCP keeps full is who loses.",
    set: Set::Full,
};

/// Figure 11: from the join to the end, "(from 10s to 33s)".
const TWO_PHASE: (f64, f64) = (10.0, 33.0);

/// Figure 11.
pub(super) static FIG11: Experiment = Experiment {
    id: "gtp-fig11",
    title: "Two flows at 25 and 50 ms, the second joining at 10 s: GTP and TCP",
    source: "Wu and Chien, *GTP: group transport protocol for lambda-grids* (2004), section 5.2, \
             Fig. 11",
    setup: "Two flows into one receiver as in [gtp-fig7](gtp-fig7.md): at 25 ms from 0 s, at 50 \
            ms from 10 s, both until 33 s; by GTP, and by TCP (NewReno \
            with selective acknowledgements, windows that congestion alone limits).",
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
    differs: "The paper's path is a Dummynet router that lost 0.3 % of a full link's packets by \
              itself; ours loses what its queue has no room for.",
    learned: "What joins late is not left behind by GTP (index {GTP, 10 to 33 s | fairness index | \
              3}, over real sockets too, a little better than the paper's 0.99); TCP's late flow \
              climbs by a segment a round trip and has {TCP, * flow 2} Mbit/s of the {TCP, 10 to \
              33 s} on average from its join on (index {TCP, 10 to 33 s | fairness index | 2}, \
              worse than the paper's 0.77, whose router lost packets by itself).",
    set: Set::Full,
};

/// Figure 12: "the number of GTP flows from 1 to 8 (distributed across four senders)", "The RTT
/// between sender and receiver is around 25ms", loss "bounded by 3%".
const MOST_FLOWS: usize = 8;

fn parallel_case(count: usize) -> String {
    format!("{count} flows")
}

/// Figure 12.
pub(super) static FIG12: Experiment = Experiment {
    id: "gtp-fig12",
    title: "One to eight GTP flows from four senders: aggregate and loss",
    source: "Wu and Chien, *GTP: group transport protocol for lambda-grids* (2004), section 5.2, \
             Fig. 12",
    setup: "1 to 8 GTP flows for 5 s from four senders at 25 ms into one receiver as in \
            [gtp-fig7](gtp-fig7.md), all starting at 0 s.",
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
    differs: "The text has no value but the bound on loss. The paper's router and hosts lost \
              packets of themselves.\n\nOver real sockets each flow is a copy with a sender of its \
              own, and all senders, the receiver and the emulator share two cores; the simulator's \
              hosts have cores of their own. What a copy that is cut off has delivered is \
              what it told last, a tenth of a second late: of five seconds that is some per cent.",
    learned: "More flows are not more loss: in the simulator the receiver's sum stays within a per \
              mille from one flow to eight, and nothing is lost, better than the paper's bound of \
              3 %; over real sockets it is {-most [* flows | from simulated]} to {-least [* flows \
              | from simulated]} % below that, for eight senders, the receiver and the emulator \
              have two cores, with {most [* flows | loss | emulated] | 1} % lost at the most. A \
              request for a rate is kept by the sender's clock, so the queue before the receiver \
              never fills. As long as a sender took a turn of its clock for each datagram, which \
              eight of them cannot have on two cores, seven lost every sixth.",
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
