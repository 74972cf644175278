//! Section 4.3 of the Oak Ridge study: "Tests using a LAN, a private network and NISTNET".

use super::{Columns, Contender, case_name, columns, contender, rows, runs, tables};
use crate::experiment::{Case, Experiment, Figure, Set};
use crate::outcome::{CaseFlow, Outcomes, Sample};
use crate::plot::{Axis, Origin, Plot, Series};
use crate::quantity::GOODPUT;
use crate::scenarios::{Variant, vary};
use crate::table::{Published, Row, Table, emulated_value};

const LOSSES: [&str; 2] = ["loss 0", "loss 0.0107 %"];
/// Loss ratios of the two conditions. The study's second is "--drop 0.0107", in per cent.
const SHARES: [&str; 2] = ["0", "0.0107%"];

/// Section 4.3.1: rate in Mbit/s; datagrams lost, retransmitted, sent; duplicates.
const CONTENDERS: [Contender; 6] = [
    contender(
        "TCP, 3 streams",
        "tcp",
        [78.8, 7.0, 7.0, 150_571.0, 0.0],
        [44.9, 20.0, 20.0, 159_662.0, 0.0],
    ),
    contender("UDP", "udp", [90.5, 0.0, 0.0, 153_849.0, 0.0], [90.4, 17.0, 0.0, 153_849.0, 0.0]),
    contender(
        "FOBS",
        "fobs",
        [80.8, 1.0, 143.0, 136_570.0, 142.0],
        [79.3, 16.0, 1_215.0, 137_642.0, 1_199.0],
    ),
    contender(
        "RBUDP",
        "rbudp",
        [89.9, 0.0, 0.0, 137_742.0, 0.0],
        [87.5, 15.0, 15.0, 137_727.0, 0.0],
    ),
    contender(
        "SABUL",
        "sabul",
        [87.1, 37_480.0, 17_843.0, 157_823.0, 2_832.0],
        [83.5, 47_744.0, 14_172.0, 154_172.0, 4_230.0],
    ),
    contender(
        "Tsunami",
        "tsunami",
        [83.1, 0.0, 1.0, 13_103.0, 1.0],
        [82.5, 18.0, 18.0, 13_151.0, 49.0],
    ),
];

/// Contender, case name, key, value. "The desired sending rate started out at 86 Mbs" (FOBS), "the
/// rate was set to 80 Mbs" (Tsunami), both of object data: with header and tag, a flow's rate is
/// 1472/1440 of that. Linux 2.4's queue before a card holds 100 full frames of 1518 bytes.
const AS_STUDIED: [(&str, &str, &str, &str); 3] = [
    ("FOBS", "FOBS at 86 Mbit/s", "flow.fobs.rate", "87911111"),
    ("SABUL", "SABUL, a card that drops", "host.a.nic-queue", "151800"),
    ("Tsunami", "Tsunami at 80 Mbit/s", "flow.tsunami.rate", "81777778"),
];

/// Two simulated send buffers; a real copy's is between them. A copy asks the kernel for 4 MiB. The
/// kernel doubles this, but also counts its overhead for each packet.
const SEND_BUFFERS: [&str; 2] = ["4MiB", "8MiB"];
const SEND_BUFFER_IS_THERE: &str = "a real copy's send buffer is between these two sizes";

fn with_send_buffer(buffer: &str) -> (String, Variant) {
    let path = vary("ornl-memory").only(&["sabul"]).set("topology.link.loss", SHARES[1]);
    let name = format!("SABUL, a send buffer of {}", buffer.replace("MiB", " MiB"));
    (case_name(&name, LOSSES[1]), path.set("host.a.send-buffer", buffer))
}

/// Contender, index in [`LOSSES`], case and variant.
fn as_studied() -> Vec<(&'static Contender, usize, String, Variant)> {
    let all = AS_STUDIED.iter().flat_map(|studied| [(studied, 0), (studied, 1)]);
    let run = |((of, name, key, value), index): (&(&str, &str, &str, &str), usize)| {
        let contender = CONTENDERS.iter().find(|contender| contender.name == *of)?;
        let path = vary("ornl-memory").only(&[contender.flow]);
        let run = path.set("topology.link.loss", SHARES[index]).set(key, *value);
        Some((contender, index, case_name(name, LOSSES[index]), run))
    };
    all.filter_map(run).collect()
}

pub(super) static MEMORY: Experiment = Experiment {
    id: "ornl-memory",
    title: "Memory to memory over 100 Mbit/s and 70.6 ms: TCP, UDP, FOBS, RBUDP, SABUL, Tsunami",
    source: "Fowler, *Faster bulk transfer starring: UDP*, Oak Ridge National Laboratory (2003), \
             section 4.3.1",
    setup: "Each program sends 200 MB over 100 Mbit/s (Ethernet framing included) and a round trip \
            of 70.6 ms. Counts are of datagrams; `lost, as reported` counts a loss each time that \
            it is reported. The path's queue holds 100 packets, as Linux 2.4's queue before a \
            card. In each direction a packet is lost with a probability of 0 or of 0.0107 %. TCP \
            is NewReno with selective acknowledgements; three connections share the object. Their \
            windows of 344 kB, 1,032 kB in all, hold the bandwidth-delay product (882 kB) and \
            the queue's 100 packets (150 kB). UDP sends 90.5 Mbit/s for 20 s, like the study's \
            iperf. RBUDP sends at iperf's measured UDP rate, because the study does not give \
            RBUDP's rate. The same rate is the limit of FOBS (`fobs-table`, whose rate falls with \
            loss) and Tsunami. SABUL is the release that the study measured (`sabul-ornl`), and \
            finds a rate by itself. The card makes its host wait: a program sends only when its \
            socket's buffer has room. The third table uses settings of the study instead. FOBS \
            sends at 86 Mbit/s and Tsunami at 80 (section 4.3.3 of the study). SABUL's card drops \
            packets when more than 100 (151.8 kB) are waiting, as happens if a program's socket \
            buffer is larger than the card's queue. In the fourth table SABUL has a send buffer of \
            4 or 8 MiB; a real copy's is between them.",
    cases: || {
        let vary = |_: &Contender, index: usize| {
            vary("ornl-memory").set("topology.link.loss", SHARES[index])
        };
        let ours = runs(&CONTENDERS, LOSSES, vary, |_, name, variant| Case::both(name, variant));
        let studied = as_studied().into_iter().map(|(_, _, name, run)| Case::both(name, run));
        let buffered = SEND_BUFFERS.map(with_send_buffer);
        let buffered = buffered.map(|(name, run)| Case::simulated(name, run, SEND_BUFFER_IS_THERE));
        ours.into_iter().chain(studied).chain(buffered).collect()
    },
    tables: |outcomes| {
        let studied = as_studied().into_iter().flat_map(|(contender, index, case, _)| {
            rows(&case, &contender.published[index], outcomes)
        });
        let studied = Table::new("With settings of the study", studied.collect());
        let sabul = CONTENDERS.iter().filter(|contender| contender.flow == "sabul");
        let each = sabul.flat_map(|sabul| SEND_BUFFERS.map(|buffer| (sabul, buffer)));
        let buffered = each.flat_map(|(sabul, buffer)| {
            rows(&with_send_buffer(buffer).0, &sabul.published[1], outcomes)
        });
        let buffered = Table::new("With the send buffer of a real copy", buffered.collect());
        tables(&CONTENDERS, LOSSES, outcomes).into_iter().chain([studied, buffered]).collect()
    },
    courses: Experiment::NO_COURSES,
    figures: memory_figures,
    differs: "Our datagrams carry 1440 bytes of object (the study's RBUDP 1452, FOBS 1466, SABUL \
              1468), so 200 MB need 138,889 datagrams; the study's Tsunami counts blocks of 16 kB, \
              about 12 packets each, ours counts datagrams. The study does not give its TCP \
              windows; ours are stated above. iperf's UDP rates include neither Ethernet nor IP \
              headers, as here.\n\n\
              The sending host has a card of 100 Mbit/s, which makes programs wait; a path alone \
              would drop the excess. Probing beyond the card's rate therefore costs SABUL and TCP \
              nothing here, and SABUL settles at the card's rate. The study's SABUL settled at a \
              delay of 110 to 118 µs between packets, which is 102 to 109 Mbit/s, and reported \
              {SABUL, loss 0 | lost, as reported | published} losses; according to the study, many \
              occur at the beginning, when the sending rate is high. The third table has the other \
              extreme, a card that drops: SABUL begins with a packet every 10 µs, twelve times \
              the card's rate, reports {SABUL, a card that drops, loss 0 | lost, as reported} \
              losses and has a goodput of {SABUL, a card that drops, loss 0} Mbit/s.\n\n\
              With loss, TCP and SABUL have different results over real sockets and in the \
              simulator. TCP's goodput depends on when its few losses occur: with eight of twenty \
              seeds the simulated goodput is above the emulated one. SABUL is {-[SABUL, loss \
              0.0107 % | from simulated]} % slower over real sockets because of the send buffer. A \
              real copy asks the kernel for 4 MiB; the kernel doubles that to 8 MiB, but counts \
              its own overhead too. This SABUL has no window and starts far above the card's rate, \
              so it keeps the buffer full. A repair then waits behind a third to two thirds of a \
              second of data, and the receiver reports the loss again every 20 ms until the repair \
              comes. Enough reports raise the averaged loss above the limit of 0.1 %, and SABUL \
              slows down. The last table shows this in the simulator: {SABUL, a send buffer of 4 \
              MiB, *} and {SABUL, a send buffer of 8 MiB, *} Mbit/s after {SABUL, a send buffer of \
              4 MiB, * | lost, as reported} and {SABUL, a send buffer of 8 MiB, * | lost, as \
              reported} reports, and the real copy is between them with {SABUL, loss 0.0107 % | \
              emulated} Mbit/s after {SABUL, loss 0.0107 % | lost, as reported | emulated}. The \
              other tables use Linux's default of 208 KiB.\n\n\
              Over real sockets some counts are not available: the kernel's TCP counts segments \
              sent and retransmitted, but not reported losses or duplicates; plain UDP counts \
              missing datagrams, but cannot detect duplicates.\n\n\
              The study counts a loss each time it is reported. Our FOBS lists a missing packet in \
              each acknowledgement until the packet arrives, so 16 drops become {FOBS, loss 0.0107 \
              % | lost, as reported} reports. The study's SABUL reported tens of thousands of \
              losses while 15 to 20 packets were dropped. The study suspects reordering, which \
              [ornl-reorder](ornl-reorder.md) tests.",
    learned: "On an otherwise empty path RBUDP with a known rate delivers that rate without \
              unnecessary repeats: at a loss of one in ten thousand it repairs exactly the dropped \
              packets, at the cost of one round trip. The same loss ratio costs TCP {100 - 100 * \
              [TCP, 3 streams, loss 0.0107 %] / [TCP, 3 streams, loss 0]} % of its rate here and \
              43 % in the study.\n\n\
              FOBS is {FOBS, loss 0 | difference} to {FOBS, loss 0.0107 % | difference} % faster \
              than in the study. In the study's file run the desired rate of FOBS was constant at \
              86 Mbit/s; with this rate FOBS is {FOBS at 86 Mbit/s, loss 0 | difference} to {FOBS \
              at 86 Mbit/s, loss 0.0107 % | difference} % faster. Tsunami is within {off [Tsunami, \
              * | goodput | difference]} % of the study. At 80 Mbit/s, as in the study's file run, \
              Tsunami is {-[Tsunami at 80 Mbit/s, loss 0.0107 % | difference]} to {-[Tsunami at 80 \
              Mbit/s, loss 0 | difference]} % slower. SABUL is {SABUL, loss 0 | difference} to \
              {SABUL, loss 0.0107 % | difference} % faster where the card makes it wait, and \
              {-[SABUL, a card that drops, loss 0 | difference]} to {-[SABUL, a card that drops, \
              loss 0.0107 % | difference]} % slower where the card drops packets. TCP is {TCP, 3 \
              streams, loss 0.0107 % | difference} to {TCP, 3 streams, loss 0 | difference} % \
              faster, because its windows hold the bandwidth-delay product and the path's queue. \
              RBUDP and UDP, which have a fixed rate, are within {off [RBUDP, * | goodput | \
              difference]} % of the study.",
    set: Set::Quick,
};

fn memory_figures(outcomes: &Outcomes, tables: &[Table]) -> Vec<Figure> {
    let mut series = Vec::new();
    for (index, loss) in LOSSES.iter().enumerate() {
        let numbered = || CONTENDERS.iter().enumerate();
        let theirs = numbered()
            .filter_map(|(x, contender)| Some((x as f64, contender.published[index].rate?)));
        let case = |contender: &Contender| case_name(contender.name, loss);
        let ours = numbered().filter_map(|(x, contender)| {
            Some((x as f64, outcomes.first(&case(contender), CaseFlow::goodput)?))
        });
        let real: Vec<(f64, f64)> = numbered()
            .filter_map(|(x, contender)| {
                Some((x as f64, emulated_value(tables, &case(contender), GOODPUT)?))
            })
            .collect();
        series.push(Series::new(format!("published, {loss}"), Origin::Published, theirs));
        series.push(Series::new(format!("simulated, {loss}"), Origin::Simulated, ours));
        if !real.is_empty() {
            series.push(Series::new(format!("emulated, {loss}"), Origin::Emulated, real));
        }
    }
    let names = CONTENDERS.iter().map(|contender| contender.name);
    let (x, y) = (Axis::names("", names), Axis::linear("goodput, Mbit/s"));
    vec![Figure { name: "", plot: Plot { title: "200 MB, memory to memory".into(), x, y, series } }]
}

/// One run of the study in full, and the lowest and the highest goodput of all its runs.
struct FileContender {
    name: &'static str,
    flow: &'static str,
    published: Columns,
    repeats: (f64, f64),
}

/// Section 4.3.2: the run in full; section 4.3.3: the repeats.
const FILE_CONTENDERS: [FileContender; 3] = [
    FileContender {
        name: "FOBS",
        flow: "fobs",
        published: Columns {
            received: Some(150_537.0),
            ..columns([71.4, 17.0, 4_754.0, 151_175.0, 4_116.0])
        },
        repeats: (71.4, 72.1),
    },
    FileContender {
        name: "SABUL",
        flow: "sabul",
        published: Columns {
            received: Some(148_317.0),
            ..columns([87.2, 11_544.0, 19_911.0, 166_131.0, 2_097.0])
        },
        repeats: (30.9, 87.4),
    },
    FileContender {
        name: "Tsunami",
        flow: "tsunami",
        published: Columns {
            received: Some(176_184.0),
            ..columns([33.2, 181_210.0, 207_317.0, 354_961.0, 29_765.0])
        },
        repeats: (18.7, 84.1),
    },
];
/// Number of runs of each contender, each with its own seed.
const REPEATS: u64 = 4;
const REPEATED: &str = "a seed does not determine an emulated run, so only one seed is emulated";

fn studied_file(of: &str, key: &str, value: &str) -> Option<(&'static FileContender, Variant)> {
    let contender = FILE_CONTENDERS.iter().find(|contender| contender.name == of)?;
    Some((contender, vary("ornl-file").only(&[contender.flow]).set(key, value)))
}

fn repeat_name(contender: &str, repeat: u64) -> String {
    if repeat == 0 { contender.to_owned() } else { format!("{contender}, run {}", repeat + 1) }
}

pub(super) static FILE: Experiment = Experiment {
    id: "ornl-file",
    title: "A file over 100 Mbit/s, 70.6 ms and 0.0107 % loss: FOBS, SABUL, Tsunami, four runs \
            each",
    source: "Fowler, *Faster bulk transfer starring: UDP*, Oak Ridge National Laboratory (2003), \
             sections 4.3.2 and 4.3.3, Fig. 1 to 3",
    setup: "A file of 214,649,928 bytes is copied over the path of [ornl-memory](ornl-memory.md) \
            with its loss, once with each of four seeds. The first table compares the counts of \
            the first run with the study's. Counts are of datagrams; `lost, as reported` counts a \
            loss each time that it is reported. The figures show the first run in steps of half a \
            second. The last table has one run for each of the study's settings that \
            [ornl-memory](ornl-memory.md) describes.",
    cases: || {
        let runs = FILE_CONTENDERS.iter().flat_map(|c| (0..REPEATS).map(move |run| (c, run)));
        let ours = runs.map(|(contender, repeat)| {
            let name = repeat_name(contender.name, repeat);
            let file = vary("ornl-file").only(&[contender.flow]).set("seed", repeat + 1);
            match repeat {
                0 => Case::both(name, file),
                _ => Case::simulated(name, file, REPEATED),
            }
        });
        let studied = AS_STUDIED.iter().filter_map(|(of, name, key, value)| {
            Some(Case::both(*name, studied_file(of, key, value)?.1))
        });
        ours.chain(studied).collect()
    },
    tables: |outcomes| {
        let first =
            FILE_CONTENDERS.iter().flat_map(|c| rows(c.name, &c.published, outcomes)).collect();
        let repeats = FILE_CONTENDERS.iter().flat_map(|contender| {
            let runs = (0..REPEATS).filter_map(|run| {
                outcomes.first(&repeat_name(contender.name, run), CaseFlow::goodput)
            });
            // If a run is missing, the slowest and the fastest are unknown.
            let runs: Vec<f64> = runs.collect();
            let runs = if runs.len() as u64 == REPEATS { runs } else { Vec::new() };
            let (low, high) = contender.repeats;
            let row = |which: &str, value: Option<f64>, published: f64| {
                let name = format!("{}, {which} of {REPEATS} runs", contender.name);
                Row::new(name, GOODPUT, value).says(Published::Exact(published))
            };
            [
                row("slowest", runs.iter().copied().reduce(f64::min), low),
                row("fastest", runs.iter().copied().reduce(f64::max), high),
            ]
        });
        let studied = AS_STUDIED.iter().flat_map(|(of, name, ..)| {
            let contender = FILE_CONTENDERS.iter().find(|contender| contender.name == *of);
            contender.map_or(Vec::new(), |contender| rows(name, &contender.published, outcomes))
        });
        vec![
            Table::new("One run", first),
            Table::new("All runs", repeats.collect()),
            Table::new("With settings of the study", studied.collect()),
        ]
    },
    courses: Experiment::NO_COURSES,
    figures: |outcomes, _| {
        let figure = |name, title: &str, label: &str, of: fn(&Sample) -> f64| {
            let series = FILE_CONTENDERS.iter().filter_map(|contender| {
                let flow = outcomes.case(contender.name)?.first();
                let points = flow.series.iter().map(|sample| (sample.at, of(sample)));
                Some(Series::new(contender.name, Origin::Simulated, points))
            });
            let (x, y) = (Axis::linear("time, s"), Axis::linear(label));
            let series = series.collect();
            Figure { name, plot: Plot { title: title.into(), x, y, series } }
        };
        vec![
            figure("losses", "Losses as reported (Fig. 1)", "losses in 0.5 s", |s| s.reported_lost),
            figure("duplicates", "Duplicates received (Fig. 2)", "duplicates in 0.5 s", |s| {
                s.duplicates
            }),
            figure("rate", "Receiving rate (Fig. 3)", "goodput, Mbit/s", |s| s.goodput),
        ]
    },
    differs: "The study's disks are left out, because neither disk is the limit at these rates. \
              The study's FOBS waited until each chunk of 100 MiB was written, and sent data again \
              meanwhile (the study: 79.9 Mbit/s without that wait). The study's Tsunami requested \
              the same blocks repeatedly, and sent the last one 1616 times. Datagrams carry \
              1440 bytes here, so 149,063 are needed (the study: 146,220 to 146,421).",
    learned: "Many of the study's results describe its programs, not the protocols. Here the \
              protocols repeat few packets beyond those that the path dropped. Tsunami repeats \
              {Tsunami | retransmitted} packets (the study's Tsunami 207,317), and in all four \
              runs is at least as fast as in the study's best run. FOBS sends four datagrams in a \
              thousand too many, and has {FOBS, fastest * | difference} % more goodput than the \
              study's best run. SABUL repeats {SABUL | retransmitted} packets (the study's \
              SABUL 19,911); it is {SABUL, fastest * | difference} % faster than the study's \
              best run, and three times as fast as the worst. If the card drops packets instead of \
              making the host wait, SABUL has only {SABUL, a card that drops} Mbit/s, with {SABUL, \
              a card that drops | lost, as reported} reported losses. With the study's rates FOBS \
              is {FOBS at 86 Mbit/s | difference} % faster than in the study, and Tsunami has \
              {Tsunami at 80 Mbit/s} Mbit/s, more than in three of the study's four runs.\n\n\
              Over real sockets FOBS and Tsunami have the simulated goodput. SABUL is {-[SABUL | \
              from simulated] | 1} % below it, with five times as many reported losses, and a \
              little slower than the study's better runs. The cause is the send buffer of a real \
              copy, as [ornl-memory](ornl-memory.md) shows.",
    set: Set::Full,
};
