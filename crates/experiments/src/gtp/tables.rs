//! Tables 2 to 5 of the GTP paper: TCP, RBUDP, SABUL and GTP.

use crate::experiment::{Case, Experiment, Figure, Set};
use crate::outcome::{CaseFlow, CaseOutcome, Outcomes, fairness};
use crate::plot::{Axis, Origin, Plot, Series};
use crate::quantity::{AGGREGATE, FAIRNESS, GOODPUT, LOSS, TIME};
use crate::scenarios::vary;
use crate::table::{Published, Row, Table};

/// Name on the page, and name of the flows in the scenario.
const TCP: (&str, &str) = ("TCP", "tcp");
/// "We assume each flow has no knowledge about others, and starts with the rate of full bandwidth"
/// (footnote 2): each flow is configured with the link's rate.
const RBUDP: (&str, &str) = ("RBUDP", "rbudp");
const SABUL: (&str, &str) = ("SABUL", "sabul");
const GTP: (&str, &str) = ("GTP", "gtp");
const ALL: [(&str, &str); 4] = [TCP, RBUDP, SABUL, GTP];

/// GTP with `gtp-variant = paper`.
const GTP_PAPER: &str = "GTP by the paper's rules";

/// Each contender alone, then GTP by the paper's rules.
fn cases(file: &'static str, contenders: [(&str, &str); 4]) -> Vec<Case> {
    let alone = contenders.map(|(name, flow)| Case::both(name, vary(file).only(&[flow])));
    let paper = vary(file).only(&[GTP.1]).set("flow.gtp.settings.gtp-variant", "paper");
    alone.into_iter().chain([Case::both(GTP_PAPER, paper)]).collect()
}

pub(super) static TABLE2: Experiment = Experiment {
    id: "gtp-table2",
    title: "One flow from point to point, 1 Gbit/s and 58 ms: TCP, RBUDP, SABUL, GTP",
    source: "Wu and Chien, *GTP: group transport protocol for lambda-grids* (2004), section \
             5.3.2, Table 2",
    setup: "Each protocol sends 1 GB over 1 Gbit/s (Ethernet framing included) and a round trip of \
            58 ms; the line loses nothing. TCP has a window of 64 kB (\"untuned standard TCP\"); \
            RBUDP sends at the rate that 1 Gbit/s leaves for UDP payload; SABUL finds its rate; \
            GTP's receiver knows the rate of its link. Rows by the paper's rules have `gtp-variant \
            = paper`; the other rows of GTP have longhaul's changes \
            ([gtp](../docs/protocols/gtp.md)).",
    cases: || cases("gtp-table2", ALL),
    tables: |outcomes| {
        let published = [
            ("TCP", 4.88, None, 1639.0),
            ("RBUDP", 881.0, Some(0.07), 9.08),
            ("SABUL", 898.0, Some(0.01), 8.90),
            ("GTP", 896.0, Some(0.02), 8.92),
            (GTP_PAPER, 896.0, Some(0.02), 8.92),
        ];
        let rows = published.into_iter().flat_map(|(case, rate, loss, seconds)| {
            let elapsed = outcomes.first(case, |flow| flow.elapsed.as_secs_f64());
            let goodput = outcomes.first(case, CaseFlow::goodput);
            [
                Row::new(case, GOODPUT, goodput).published(rate),
                lost(case, loss, outcomes),
                Row::new(case, TIME, elapsed).published(seconds),
            ]
        });
        vec![Table::new("", rows.collect())]
    },
    courses: Experiment::NO_COURSES,
    figures: Experiment::NO_FIGURES,
    differs: "The paper says that 10 GB were sent. Its times and rates give 1 GB in all four \
              columns, so 1 GB is sent here. The paper's \"SABUL\" is UDT 1.0, which reacts to \
              delay; here it is SABUL as its own paper describes it. Here the line is the only \
              limit, so RBUDP and GTP are faster than in the paper. TCP with 64 kB at 58 ms cannot \
              exceed 9.04 Mbit/s; the paper has 4.88.",
    learned: "On a dedicated circuit without loss a protocol only needs to know the rate. RBUDP \
              and GTP deliver {GTP} to {RBUDP} of the 936 Mbit/s that the line carries, {GTP | \
              difference} to {RBUDP | difference} % more than in the paper. SABUL finds its rate \
              by losing packets; it is {100 - 100 * [SABUL] / [GTP]} % slower than GTP and \
              {-[SABUL | difference]} % slower than the paper's SABUL, which was UDT. All three \
              have {[SABUL] / [TCP]} to {[RBUDP] / [TCP]} times the goodput of TCP without a tuned \
              window, and over real sockets all three are within {off [* | goodput | from \
              simulated]} % of the simulated values.",
    set: Set::Full,
};

fn lost(case: &str, published: Option<f64>, outcomes: &Outcomes) -> Row {
    let published = published.map(Published::Exact);
    Row { published, ..Row::new(case, LOSS, outcomes.of(case, CaseOutcome::loss)) }
}

fn evenness(outcome: &CaseOutcome) -> f64 {
    fairness(&outcome.sustained())
}

fn group_rows(outcomes: &Outcomes, published: &[(&str, f64, Option<f64>)]) -> Vec<Row> {
    let rows = published.iter().flat_map(|(case, rate, loss)| {
        [
            Row::new(*case, AGGREGATE, outcomes.of(case, CaseOutcome::aggregate)).published(*rate),
            lost(case, *loss, outcomes),
            Row::new(*case, FAIRNESS, outcomes.of(case, evenness)),
        ]
    });
    rows.collect()
}

fn group_figure(
    outcomes: &Outcomes,
    title: &str,
    published: &[(&str, f64, Option<f64>)],
    ours: fn(&CaseOutcome) -> f64,
) -> Vec<Figure> {
    let names = published.iter().map(|(case, _, _)| *case);
    let numbered = || published.iter().enumerate().map(|(x, row)| (x as f64, row));
    let theirs = numbered().map(|(x, row)| (x, row.1));
    let ours = numbered().filter_map(|(x, row)| Some((x, outcomes.of(row.0, ours)?)));
    let series = vec![
        Series::new("published", Origin::Published, theirs),
        Series::new("simulated", Origin::Simulated, ours),
    ];
    let (x, y) = (Axis::names("", names), Axis::linear("aggregate goodput, Mbit/s"));
    vec![Figure { name: "", plot: Plot { title: title.into(), x, y, series } }]
}

const TABLE3_PUBLISHED: [(&str, f64, Option<f64>); 4] = [
    ("TCP", 14.5, None),
    ("RBUDP", 931.0, Some(2.1)),
    ("SABUL", 912.0, Some(0.1)),
    ("GTP", 904.0, Some(0.03)),
];

pub(super) static TABLE3: Experiment = Experiment {
    id: "gtp-table3",
    title: "Three parallel flows between the same two hosts, 1 Gbit/s and 58 ms",
    source: "Wu and Chien, *GTP: group transport protocol for lambda-grids* (2004), section \
             5.3.2, Table 3",
    setup: "Three flows of a third of 1 GB each start together from one host to another over 1 \
            Gbit/s and a round trip of 58 ms, with the settings of [gtp-table2](gtp-table2.md). \
            Rows by the paper's rules have `gtp-variant = paper`. The line loses nothing. Each \
            RBUDP flow is configured with the whole link's rate (\"each flow has no knowledge \
            about others\"), and the sending host's card sends 1 Gbit/s. The aggregate is the \
            goodput of all flows together, while all of them run.",
    cases: || cases("gtp-table3", ALL),
    tables: |outcomes| {
        let mut rows = group_rows(outcomes, &TABLE3_PUBLISHED);
        rows.extend(group_rows(outcomes, &[(GTP_PAPER, 904.0, Some(0.03))]));
        vec![Table::new("", rows)]
    },
    courses: Experiment::NO_COURSES,
    figures: |outcomes, _| {
        group_figure(outcomes, "Three flows, one path", &TABLE3_PUBLISHED, CaseOutcome::aggregate)
    },
    differs: "The differences of [Table 2](gtp-table2.md) apply here too: 1 GB, a SABUL that is \
              not UDT, hosts without a limit of their own. The paper's table calls all four \
              protocols \"fair\"; the fairness index (Jain's) is ours. Here a full card makes each \
              program wait, so none of RBUDP's excess is lost; in the paper 2.1 % was lost. TCP's \
              three windows of 64 kB give {TCP | difference} % more goodput than in the paper.",
    learned: "With RBUDP, SABUL and GTP, three senders on one host share its card evenly, although \
              they do not know of each other; TCP's three windows do not fill it. The card \
              makes programs wait where a switch would drop packets. RBUDP, SABUL and GTP are \
              within {[GTP | difference]} % of the paper's rates and lose less, because the hosts \
              here lose nothing.",
    set: Set::Full,
};

const TABLE4_PUBLISHED: [(&str, f64, Option<f64>); 4] = [
    ("TCP", 677.0, None),
    ("RBUDP", 443.0, Some(53.3)),
    ("SABUL", 811.0, Some(8.7)),
    ("GTP", 865.0, Some(0.06)),
];

pub(super) static TABLE4: Experiment = Experiment {
    id: "gtp-table4",
    title: "Three senders of 1 Gbit/s each into one receiver of 1 Gbit/s",
    source: "Wu and Chien, *GTP: group transport protocol for lambda-grids* (2004), section \
             5.3.2, Table 4",
    setup: "Three senders start together, each with a third of 1 GB: two with a round trip of 58 \
            ms, one of 1 ms. Each has its own link of 1 Gbit/s to a switch, whose port to the \
            receiver has 1 Gbit/s and a drop-tail queue of 512 kB. Packets reach the switch up to \
            24 µs late, in order, as if sent by timers. TCP has windows of 64 kB; each RBUDP flow \
            is configured with the whole link's rate; SABUL finds its rate; GTP's receiver knows \
            the rate of its link. The case \"GTP by the paper's rules\" has `gtp-variant = paper` \
            ([gtp](../docs/protocols/gtp.md)). The aggregate is the goodput of all flows together, \
            while all of them run.",
    cases: || cases("gtp-table4", ALL),
    tables: |outcomes| {
        let mut rows = group_rows(outcomes, &TABLE4_PUBLISHED);
        rows.extend(group_rows(outcomes, &[(GTP_PAPER, 865.0, Some(0.06))]));
        vec![Table::new("", rows)]
    },
    courses: Experiment::NO_COURSES,
    figures: |outcomes, _| {
        group_figure(
            outcomes,
            "Three senders, one receiver",
            &TABLE4_PUBLISHED,
            CaseOutcome::aggregate,
        )
    },
    differs: "The differences of [Table 2](gtp-table2.md) apply here too. The paper's table also \
              has the rows \"Fairness\" (No for TCP, RBUDP and SABUL, Yes for GTP) and \"System \
              stability\" (No for RBUDP and SABUL, Yes for TCP and GTP). The paper does not say \
              how they were measured. Here fairness is Jain's index, and RBUDP ({RBUDP | fairness \
              index | 3}) and SABUL ({SABUL | fairness index | 3}) share evenly while all three \
              flows run. Stability is not measured here.\n\n\
              The paper does not give the near sender's distance; the 1 ms of this page is the \
              round trip of a campus. Most of TCP's aggregate belongs to the near sender, which \
              sends 64 kB each millisecond; the two far senders have 9 Mbit/s each. Here the host \
              takes all that the link delivers, so RBUDP loses two thirds at the switch but keeps \
              the link full; the paper's RBUDP lost half and delivered less.\n\n\
              Over real sockets RBUDP loses less and delivers less than in the simulator. Its \
              three senders, the receiver and the emulator share two cores, so all senders \
              together send less than half of what three links would carry. GTP requests no more \
              than the link carries and is much closer to the simulator; it loses some packets \
              when senders wake late and send in clumps.",
    learned: "If each of several senders sends at the whole rate of the receiver's link, most \
              packets are lost at the switch port before the receiver. RBUDP loses \
              {RBUDP | loss} % (53 in the paper), \
              but fills the link. In the paper it had only 443 Mbit/s, because the \
              receiving host was overrun. SABUL finds its rate by losing {SABUL | loss | 1} % (8.7 \
              in the paper, at nearly the same aggregate) and leaves {100 - 100 * [SABUL] / 936} % \
              of the link's 936 Mbit/s unused. GTP's receiver sets the rate of each sender. In the \
              simulator nothing is lost, the shares at 1 and at 58 ms are equal, and the goodput \
              is {100 * [GTP] / 936} % of what the link carries. This is {GTP | difference | 1} % \
              more than the paper's 865 Mbit/s; the paper's hosts could receive only 900 Mbit/s. \
              TCP is the least fair: with an untuned window the near sender has nearly all of \
              TCP's goodput.",
    set: Set::Full,
};

/// Table 5: "with RTT 25 and 50ms", "RBUDP2 is the case where we manually set the transmission
/// rate for each RBUDP flow to be half of the link bandwidth".
const HALVED: (&str, &str) = ("RBUDP at half rate", "halved");
/// Name, then goodput and loss of each flow, then the aggregate.
type Pair = (&'static str, [(f64, f64); 2], f64);
const TABLE5_PUBLISHED: [Pair; 4] = [
    ("RBUDP", [(445.0, 27.5), (256.0, 38.2)], 701.0),
    ("RBUDP at half rate", [(438.0, 5.2), (396.0, 5.1)], 834.0),
    ("SABUL", [(326.0, 18.9), (167.0, 24.0)], 493.0),
    ("GTP", [(455.0, 2.6), (463.0, 3.1)], 918.0),
];
const TABLE5_FLOWS: [&str; 2] = ["25 ms", "50 ms"];

/// The name of a contender's case behind the router that loses in clumps.
fn clumped(contender: &str) -> String {
    format!("{contender}, clumps")
}

const SLOW_SENDERS: &str = "the result depends on the sending hosts' limit of 614 Mbit/s, which \
                            cannot be set over real sockets";

/// The rows of goodput and loss of each flow, and of the aggregate.
fn pair_rows(outcomes: &Outcomes, published: &Pair, named: fn(&str) -> String) -> Vec<Row> {
    let (contender, flows, aggregate) = published;
    let case = named(contender);
    let mut rows = Vec::new();
    for (place, (name, (rate, loss))) in TABLE5_FLOWS.iter().zip(flows).enumerate() {
        let goodput = outcomes.of(&case, |outcome| outcome.sustained()[place]);
        let lost = outcomes.of(&case, |outcome| outcome.flows[place].loss());
        let label = format!("{case}, {name}");
        rows.push(Row::new(&*label, GOODPUT, goodput).published(*rate));
        rows.push(Row::new(&*label, LOSS, lost).published(*loss));
    }
    let sum = outcomes.of(&case, CaseOutcome::aggregate);
    rows.push(Row::new(case, AGGREGATE, sum).published(*aggregate));
    rows
}

pub(super) static TABLE5: Experiment = Experiment {
    id: "gtp-table5",
    title: "Two senders into one receiver, 25 and 50 ms",
    source: "Wu and Chien, *GTP: group transport protocol for lambda-grids* (2004), section \
             5.3.2, Table 5",
    setup: "Two senders with round trips of 25 and 50 ms start together, with 500 MB each, through \
            a switch as in [gtp-table4](gtp-table4.md). Each RBUDP flow is configured with the \
            whole link's rate, and in a second case with half of it. Goodputs are measured while \
            both flows run; the aggregate is their sum, as in the paper's table. Rows by the \
            paper's rules have `gtp-variant = paper`; the other rows of GTP have longhaul's \
            changes ([gtp](../docs/protocols/gtp.md)). The second table is for slower hosts and a \
            lossy router, with two values derived from the paper's results. Each host sends at \
            most 614 Mbit/s, because the paper's first RBUDP flow received 445 Mbit/s after a \
            loss of 27.5 %. The router itself loses 2.8 % of the packets, the mean of GTP's losses \
            in the paper; it loses 20 packets in a row on average (Gilbert's model).",
    cases: || {
        let contenders = [RBUDP, HALVED, SABUL, GTP];
        let clumped = contenders.map(|(name, flow)| {
            let (name, path) = (clumped(name), vary("gtp-table5-clumps").only(&[flow]));
            match flow {
                "halved" | "gtp" => Case::both(name, path),
                _ => Case::simulated(name, path, SLOW_SENDERS),
            }
        });
        cases("gtp-table5", contenders).into_iter().chain(clumped).collect()
    },
    tables: |outcomes| {
        let table = |title, named: fn(&str) -> String| {
            let rows = TABLE5_PUBLISHED.iter().flat_map(|row| pair_rows(outcomes, row, named));
            Table::new(title, rows.collect())
        };
        let mut clean =
            table("A switch that drops packets only when its queue is full", str::to_owned);
        let (_, flows, aggregate) = TABLE5_PUBLISHED[3];
        clean.rows.extend(pair_rows(outcomes, &(GTP_PAPER, flows, aggregate), str::to_owned));
        vec![
            clean,
            // The senders' limit is derived from RBUDP's first flow, the router's loss from GTP.
            table("A router that loses in clumps, and slow senders", clumped).fitted(|row| {
                row.case == "RBUDP, clumps, 25 ms"
                    || row.case.starts_with("GTP") && row.quantity == LOSS
            }),
        ]
    },
    courses: Experiment::NO_COURSES,
    figures: |outcomes, _| {
        let published = TABLE5_PUBLISHED.map(|(case, _, aggregate)| (case, aggregate, None));
        group_figure(outcomes, "Two senders, one receiver", &published, CaseOutcome::aggregate)
    },
    differs: "The paper's switch is a Dummynet router that itself lost packets (0.3 % at 954 \
              Mbit/s from one sender, by section 5.2). The switch of the first table loses \
              only the packets that its queue cannot hold. The second table uses the loss of the \
              paper's GTP and, for both hosts, the sending rate of the paper's first RBUDP flow. \
              This page assumes that a router that forwards at \
              ticks of its clock loses several packets in a row, 20 on average. Even so RBUDP's \
              aggregate goodput in the second table is {RBUDP, clumps | difference} % above the \
              paper's: the paper's router delivered less when it got more (834 of 879 Mbit/s at \
              half rates, 701 of 1028 at whole rates).\n\n\
              The paper's \"SABUL\" is UDT 1.0, which reacts to delay; here it reacts to loss, as \
              SABUL's own paper says.\n\n\
              Over real sockets SABUL's two flows share differently than in the simulator, \
              although their sum is about the same. Hosts that wake late send in clumps, so one \
              flow can have the whole loss and then needs seconds to recover.\n\n\
              RBUDP's two flows differ most from the simulator: at 50 ms the emulated flow has \
              {-[RBUDP, 50 ms | from simulated]} % less than simulated, at 25 ms {RBUDP, 25 ms | \
              from simulated} % more, and at half rate the flow at 50 ms has {-[RBUDP at half \
              rate, 50 ms | from simulated]} % less. One cause is the way of counting. The \
              simulator counts each block that arrives. A real copy reports the data that it has \
              verified and written, which are whole chunks of 1 MiB. A chunk of some 730 blocks is \
              complete only when its last block has arrived. The emulated goodputs of RBUDP's \
              single flows are therefore not comparable with the simulated ones. At the whole rate \
              the losses differ too.\n\n\
              GTP's goodput behind the router that loses in clumps depends on chance, in the \
              simulator and over real sockets.",
    learned: "RBUDP is best if each of the two flows sends at half of the link's rate: {RBUDP at \
              half rate} Mbit/s and no loss, instead of {RBUDP} Mbit/s with half of the packets \
              lost. But no sender can know this rate in advance. GTP's receiver computes it and \
              comes within {100 - 100 * [GTP] / [RBUDP at half rate] | 1} % of this goodput, {GTP \
              | difference} % above the paper's GTP. SABUL finds its rate from losses: it has \
              {SABUL | difference} % more goodput than in the paper, with a hundredth of the \
              paper's loss, but leaves a fifth of the link unused. Behind a router that loses 2.8 \
              % in clumps RBUDP keeps its rate and loses less than in the paper. GTP recognises a \
              constant loss as a property of the path, but late: it keeps {GTP, clumps} Mbit/s, \
              {-[GTP, clumps | difference]} % less than in the paper. SABUL has {SABUL, clumps} \
              Mbit/s instead of the paper's 493, because no rate is low enough to avoid that \
              loss.",
    set: Set::Full,
};
