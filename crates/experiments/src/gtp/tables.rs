//! Tables 2 to 5: TCP, RBUDP, SABUL and GTP from one, from three and from two senders.

use crate::experiment::{Case, Experiment, Figure, Set};
use crate::outcome::{CaseFlow, CaseOutcome, Outcomes, fairness};
use crate::plot::{Axis, Origin, Plot, Series};
use crate::quantity::{AGGREGATE, FAIRNESS, GOODPUT, LOSS, TIME};
use crate::scenarios::vary;
use crate::table::{Published, Row, Table};

/// Name on the page, and name of the flows in the scenario. "We assume each flow has no knowledge
/// about others, and starts with the rate of full bandwidth" (footnote 2): RBUDP is configured with
/// the link's rate.
const TCP: (&str, &str) = ("TCP", "tcp");
const RBUDP: (&str, &str) = ("RBUDP", "rbudp");
const SABUL: (&str, &str) = ("SABUL", "sabul");
const GTP: (&str, &str) = ("GTP", "gtp");
const ALL: [(&str, &str); 4] = [TCP, RBUDP, SABUL, GTP];

/// GTP with `gtp-variant = paper`: the paper's timeouts, almost no minimum rate, nothing sent early.
const GTP_PAPER: &str = "GTP by the paper's rules";

/// Each contender alone on the path of `file`, then GTP by the paper's rules.
fn cases(file: &'static str, contenders: [(&str, &str); 4]) -> Vec<Case> {
    let alone = contenders.map(|(name, flow)| Case::both(name, vary(file).only(&[flow])));
    let paper = vary(file).only(&[GTP.1]).set("flow.gtp.settings.gtp-variant", "paper");
    alone.into_iter().chain([Case::both(GTP_PAPER, paper)]).collect()
}

/// Table 2.
pub(super) static TABLE2: Experiment = Experiment {
    id: "gtp-table2",
    title: "One flow from point to point, 1 Gbit/s and 58 ms: TCP, RBUDP, SABUL, GTP",
    source: "Wu and Chien, *GTP: group transport protocol for lambda-grids* (2004), section \
             5.3.2, Table 2",
    setup: "1 GB over 1 Gbit/s (Ethernet framing included) and 58 ms without loss on the line. \
            TCP has a window of 64 kB (\"untuned standard TCP\"); RBUDP is told to send at what \
            1 Gbit/s leaves for UDP payload; SABUL finds its rate, GTP's \
            receiver knows its link's.",
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
              columns, so 1 GB is sent here. Its \"SABUL\" is UDT 1.0, which reacts to delay; \
              here it is SABUL as its own paper describes it. The paper's hosts got 900 of \
              1000 Mbit/s through their cards. Here the line is the only limit, so RBUDP and \
              GTP are faster, and SABUL spends the first seconds in search of its rate. TCP \
              with 64 kB at 58 ms cannot exceed 9.04 Mbit/s; the paper's 4.88 is what a \
              window of 35 kB gives, which the text does not explain.",
    learned: "On a clean circuit of its own a protocol only needs to know the rate. RBUDP and \
              GTP deliver {GTP} to {RBUDP} of the 936 Mbit/s that the line carries, {GTP | \
              difference} to {RBUDP | difference} % more than the paper's hosts could. SABUL \
              has to find the rate by losing packets; it is {100 - 100 * [SABUL] / [GTP]} % \
              behind them and {-[SABUL | difference]} % behind the paper's, which was UDT. \
              All three have {[SABUL] / [TCP]} to {[RBUDP] / [TCP]} times the goodput of TCP \
              without a tuned window, and over real sockets they are within {off [* | goodput \
              | from simulated]} % of the simulated values. By the paper's rules GTP has {GTP \
              by the paper's rules} Mbit/s, the same as by ours. The protocols differ when \
              several flows meet, in the next tables.",
    set: Set::Full,
};

fn lost(case: &str, published: Option<f64>, outcomes: &Outcomes) -> Row {
    let published = published.map(Published::Exact);
    Row { published, ..Row::new(case, LOSS, outcomes.of(case, CaseOutcome::loss)) }
}

fn evenness(outcome: &CaseOutcome) -> f64 {
    fairness(&outcome.sustained())
}

/// Aggregate, loss and fairness of each contender.
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

/// Table 3.
pub(super) static TABLE3: Experiment = Experiment {
    id: "gtp-table3",
    title: "Three parallel flows between the same two hosts, 1 Gbit/s and 58 ms",
    source: "Wu and Chien, *GTP: group transport protocol for lambda-grids* (2004), section \
             5.3.2, Table 3",
    setup: "1 GB in three flows of a third each, started together, from one host to another over \
            1 Gbit/s and 58 ms without loss on the line; otherwise as \
            [gtp-table2](gtp-table2.md). Each RBUDP flow is told the whole link's rate \
            (\"each flow has no knowledge about others\"), and the sending host's card puts out \
            1 Gbit/s. The aggregate is what all flows deliver while all of them run.",
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
    differs: "As for [Table 2](gtp-table2.md): 1 GB, a SABUL that is not UDT, hosts without a \
              limit of their own. The table says \"fair\" of all four; the index beside it is \
              ours. Here a full card holds the programs back, each for its own datagrams, so \
              nothing of RBUDP's excess is lost; the paper's hosts lost 2.1 % somewhere. In \
              the emulation the kernel's token bucket is the card and holds the programs back \
              too. TCP's three windows of 64 kB give what they must, {TCP | difference} % \
              more than the paper's, as in Table 2.",
    learned: "Three senders on one host share its card evenly with any protocol, although \
              they know nothing of each other: the card treats them alike, and it holds its \
              own programs back where a switch would drop. RBUDP, SABUL and GTP are within \
              {[GTP | difference]} % of the paper's rates and lose less, because nothing in \
              the hosts here loses a packet. By the paper's rules GTP has {100 - 100 * [GTP \
              by the paper's rules] / [GTP] | 1} % less than by ours and {GTP by the paper's \
              rules | difference | 1} % more than the paper's.",
    set: Set::Full,
};

const TABLE4_PUBLISHED: [(&str, f64, Option<f64>); 4] = [
    ("TCP", 677.0, None),
    ("RBUDP", 443.0, Some(53.3)),
    ("SABUL", 811.0, Some(8.7)),
    ("GTP", 865.0, Some(0.06)),
];

/// Table 4.
pub(super) static TABLE4: Experiment = Experiment {
    id: "gtp-table4",
    title: "Three senders of 1 Gbit/s each into one receiver of 1 Gbit/s",
    source: "Wu and Chien, *GTP: group transport protocol for lambda-grids* (2004), section \
             5.3.2, Table 4",
    setup: "A third of 1 GB from each of three senders, started together: two at 58 ms, one \
            at 1 ms. Each has 1 Gbit/s of its own up to a switch, whose port to the receiver \
            has 1 Gbit/s and a drop-tail queue of 512 kB. Packets reach the switch up to 24 \
            µs late, in order, as timers send them. TCP has windows of 64 kB, RBUDP the whole \
            link's rate in each flow; SABUL finds its rate, and GTP's receiver knows its \
            link's. The aggregate is what all flows deliver while all of them run.",
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
    differs: "As for [Table 2](gtp-table2.md). The paper's table also has the rows \
              \"Fairness\" (No for TCP, RBUDP and SABUL, Yes for GTP) and \"System \
              stability\" (No for RBUDP and SABUL, Yes for TCP and GTP), without saying how \
              they were measured. Here fairness is Jain's index. TCP and GTP agree with the \
              paper. RBUDP ({RBUDP | fairness index | 3}) and SABUL ({SABUL | fairness index \
              | 3}) do not: here they share evenly while all three flows run. Stability is \
              not measured here.\n\n\
              The paper does not give the near sender's distance; a millisecond is a campus. \
              TCP's aggregate is mostly the near sender's, which has 64 kB on the way for \
              each millisecond; the two far ones have 9 Mbit/s each. With a near sender 0.8 \
              ms away TCP would have the paper's 677 Mbit/s, so the {-[TCP | difference]} % \
              are that distance. RBUDP's goodput depends on what the receiving host makes of \
              three times its link's rate. Here it takes what the link delivers, so RBUDP \
              loses two thirds at the switch but keeps the link full; the paper's lost half \
              and delivered less.\n\n\
              Over real sockets RBUDP loses less and delivers less than in the simulator. Its \
              three senders, the receiver and the emulator share two cores, so all senders \
              together send less than half of what three links would carry. Fewer datagrams \
              meet a full queue, and whenever all three senders wait for a core the queue, \
              which holds a few milliseconds, runs empty. GTP asks for no more than the link \
              carries and is much nearer to the simulator; it loses clumps that late senders \
              make.",
    learned: "Senders that each believe the receiver's link to be theirs throw away most of \
              what they send, at the receiver's own switch port, where no network can help. \
              RBUDP loses {RBUDP | loss} % (53 in the paper), though it fills the link where \
              the paper's overrun hosts did not. SABUL finds its rate by losing {SABUL | loss \
              | 1} % (8.7 in the paper, with no more of the link) and leaves {100 - 100 * \
              [SABUL] / 936} % of the link unused. GTP's receiver decides who sends how much: \
              nothing is lost, shares are equal at any distance, and the link is full to {100 \
              * [GTP] / 936} %, {GTP | difference | 1} % more than in the paper, whose hosts \
              took 900 of 1000 Mbit/s. By the paper's rules it has {100 - 100 * [GTP by the \
              paper's rules] / [GTP] | 1} % less and is as even. Over real sockets on one \
              machine the order is the same, and GTP is ahead of RBUDP in goodput too. TCP is \
              the least fair: an untuned window gives the near sender nearly all that TCP \
              has.",
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

/// Why cases that would exceed the rate of the paper's hosts are not emulated.
const SLOW_SENDERS: &str = "the sending hosts' limit of 614 Mbit/s decides it, and over real \
                            sockets a program has the limits of the machine that it runs on";

/// Goodput and loss of each flow, and the aggregate, of the contender's case with this name.
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

/// Table 5.
pub(super) static TABLE5: Experiment = Experiment {
    id: "gtp-table5",
    title: "Two senders into one receiver, 25 and 50 ms",
    source: "Wu and Chien, *GTP: group transport protocol for lambda-grids* (2004), section \
             5.3.2, Table 5",
    setup: "500 MB from each of two senders, started together, at 25 and 50 ms, through a \
            switch as in [gtp-table4](gtp-table4.md). RBUDP is told the whole link's rate for \
            each flow, and in a second case half of it. Goodputs are measured while both \
            flows run; the aggregate is their sum, as in the paper's table. The second table \
            uses what the paper says of its testbed: hosts that send 614 Mbit/s (the first \
            RBUDP flow received 445 and lost 27.5 %), and a router that itself loses 2.8 % \
            (what GTP lost there), 20 packets together on average (Gilbert's model).",
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
        let mut clean = table("A switch that loses what its queue has no room for", str::to_owned);
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
              Mbit/s from one sender, by its section 5.2). The switch of the first table \
              loses only what its queue cannot hold, and carries what its link carries. The \
              second table takes the paper's word for the loss and for what its hosts could \
              send. That such a router, which forwards at its clock's ticks, loses several \
              packets together is longhaul's assumption, and so is the mean of 20. RBUDP \
              still has {RBUDP, clumps | difference} % more there than in the paper, for a \
              reason that no link here has: the paper's router delivered less the more it was \
              overrun (834 of 879 Mbit/s that came at half rates, 701 of 1028 at whole ones).\n\n\
              The paper's \"SABUL\" is UDT 1.0, which reacts to delay; here it reacts to \
              loss, as SABUL's own paper says.\n\n\
              Over real sockets SABUL's two flows share differently than in the simulator, \
              though their sum is about the same. The flow whose datagrams come while the \
              queue is full loses them, freezes for a round trip and slows down. Hosts that \
              wake late send in clumps, so one flow then has the whole loss and needs seconds \
              to recover. With packets a millisecond late the simulator's shares of SABUL \
              differ as much, and the seed decides which flow is ahead.\n\n\
              RBUDP's two flows differ most: at 50 ms the emulated flow has {-[RBUDP, 50 ms | \
              from simulated]} % less than simulated, at 25 ms {RBUDP, 25 ms | from \
              simulated} % more, and at half rate the flow at 50 ms has {-[RBUDP at half \
              rate, 50 ms | from simulated]} % less. This is an effect of counting, not of \
              the protocol. The simulator counts each block that arrives. A real copy reports \
              what it has verified and written, which is whole chunks of 1 MiB, and a chunk \
              of some 730 blocks is whole only when its last block is there: at a loss of 0.5 \
              % that is one chunk in forty in the first round, at 33 % none. When the flow at \
              25 ms ends, all of its chunks count, and those of the other flow wait for their \
              repairs. The emulated goodputs of RBUDP's single flows are therefore not \
              comparable with the simulated ones; losses are.\n\n\
              GTP's goodput behind the router that loses in clumps is chance, in the \
              simulator as over real sockets. The clumps that a flow meets first decide how \
              soon it takes the loss for the path's own, and so decide the two shares.",
    learned: "RBUDP only has to be told half of the link's rate for each of two flows ({RBUDP \
              at half rate} Mbit/s and no loss, instead of {RBUDP} with half of it lost), \
              which nobody can know in advance. GTP's receiver finds it and comes within {100 \
              - 100 * [GTP] / [RBUDP at half rate] | 1} %, {GTP | difference} % above the \
              paper's. SABUL finds it by loss: half as much again as the paper's with a \
              hundredth of its loss, but a fifth of the link stays empty. Behind a router \
              that loses 2.8 % in clumps RBUDP keeps its rate and loses less than in the \
              paper. GTP recognises a constant loss as the path's own, but late: it keeps \
              {GTP, clumps} Mbit/s, {-[GTP, clumps | difference]} % less than in the paper. \
              SABUL is far below the paper's, {SABUL, clumps} Mbit/s instead of 493, because \
              no rate is low enough to avoid that loss.",
    set: Set::Full,
};
