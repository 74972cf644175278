//! Quanta: RBUDP between Chicago and Amsterdam. Quoted sentences are from the paper.

use longhaul_proto::model::{Rbudp, Stream, best};
use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, LossRatio, Rate};

use crate::experiment::{Case, Experiment, Figure, Set};
use crate::outcome::{CaseFlow, Outcomes};
use crate::paths::{BLOCK, with_overhead};
use crate::plot::{Axis, Origin, Plot, Series};
use crate::quantity::{GOODPUT, LOSS, Quantity, ROUNDS, TIME, Unit};
use crate::scenarios::vary;
use crate::table::{Published, Row, Table, emulated_value};

pub(crate) const ALL: [&Experiment; 5] = [&FIG5, &FIG6, &FIG7, &FIRST_VERSION, &STREAMING];

/// Section 4.1: "T_prop for Chicago to Amsterdam is 50ms".
const RTT: Span = Span::from_millis(100);
/// Figures 5 and 6: "Payload is 450MB."
const PAYLOAD: Bytes = Bytes::new(450_000_000);

/// Bits a second of UDP payload for `mbps` of object data.
fn payload_rate(mbps: f64) -> u64 {
    with_overhead(Rate::from_bps_f64(mbps * 1e6)).as_bps()
}

struct Receiver {
    name: &'static str,
    strategy: &'static str,
    /// The program's limit in Mbit/s of object data.
    takes: f64,
}

/// Section 4.2.1: "Iperf measured maximum available bandwidth at 878 Mbps, and app_perf measured
/// maximum possible throughput at 643 Mbps."
const IPERF: f64 = 878.0;
const APP_PERF: f64 = 643.0;
/// Section 4.2: "This optimization can improve the throughput by 10% when the receiving host is
/// slower than the network."
const SCATTER_GAIN: f64 = 10.0;
/// "Fake" RBUDP never moves the data, like iperf; RBUDP with scatter/gather moves the data once,
/// like app_perf; naive RBUDP moves the data twice.
const FIG5_RECEIVERS: [Receiver; 3] = [
    Receiver { name: "fake RBUDP", strategy: "fake", takes: IPERF },
    Receiver { name: SCATTER, strategy: "scatter", takes: APP_PERF },
    Receiver { name: NAIVE, strategy: "naive", takes: APP_PERF / (1.0 + SCATTER_GAIN / 100.0) },
];
const SCATTER: &str = "RBUDP, scatter/gather";
const NAIVE: &str = "RBUDP, naive";
const FIG5_RATES: [u32; 11] = [100, 200, 300, 400, 500, 550, 600, 640, 700, 800, 878];
/// Sending rates in the table of scatter/gather's gain: all exceed the naive receiver's limit.
const FIG5_OVERRUNS: [u32; 4] = [640, 700, 800, 878];
const GAIN: Quantity = Quantity { name: "gain by scatter/gather", unit: Unit::Share };
fn case_name(what: &str, rate: u32) -> String {
    format!("{what} at {rate} Mbit/s")
}

fn blast_rows(
    outcomes: &Outcomes,
    case: &str,
    size: Bytes,
    mbps: f64,
    published: Option<Published>,
) -> Vec<Row> {
    let model = best(size, Rate::from_bps_f64(mbps * 1e6), RTT).as_bps() as f64 / 1e6;
    let goodput = Row::new(case, GOODPUT, outcomes.first(case, CaseFlow::goodput));
    vec![
        Row { published, fitted: published.is_some(), ..goodput.model(model) },
        Row::new(case, LOSS, outcomes.first(case, CaseFlow::loss)),
        Row::new(case, ROUNDS, outcomes.first(case, |flow| flow.rounds.number())),
    ]
}

pub(crate) static FIG5: Experiment = Experiment {
    id: "quanta-fig5",
    title: "RBUDP from a fast host to a slow one: throughput against sending rate",
    source: "He et al., *Quanta: a toolkit for high performance data delivery over photonic \
             networks* (2003), section 4.2.1, Fig. 5",
    setup: "RBUDP sends 450 MB in one segment (all blocks share the same rounds), without coded \
            symbols (`tail-copies` 1), over 1 Gbit/s (Ethernet framing included) and a round trip \
            of 100 ms; the line loses nothing. How much object data a receiving program \
            takes depends on how often it moves the data: 643 Mbit/s if once (RBUDP with \
            scatter/gather, and the paper's test program app_perf), 585 Mbit/s if twice (naive \
            RBUDP), and 878 Mbit/s if never (fake RBUDP, and iperf). The 585 Mbit/s are 9 % less \
            than 643, because the paper's gain by scatter/gather is 10 %. The program's socket \
            buffer holds 1 MiB. Sending rates count object data; longhaul's header and tag add 2.2 \
            %. The model is the paper's equation 4, which ignores loss. Emulated: the binary's own \
            `serve` and `cp --receive`, with files in memory; a link before the receiving host \
            models the program and its buffer.",
    cases: || {
        let receivers = FIG5_RECEIVERS.iter();
        let cases = receivers.flat_map(|receiver| FIG5_RATES.map(|rate| (receiver, rate)));
        cases
            .map(|(receiver, rate)| {
                let name = case_name(receiver.name, rate);
                let takes = payload_rate(receiver.takes);
                let blast = vary("quanta-fig5")
                    .set("flow.blast.rate", payload_rate(rate.into()))
                    .set("flow.blast.receive", receiver.strategy)
                    .set("host.b.receives-rate", takes);
                Case::both(name, blast)
            })
            .collect()
    },
    tables: |outcomes| {
        let table = |receiver: &Receiver| {
            let rows = FIG5_RATES.iter().flat_map(|rate| {
                let case = case_name(receiver.name, *rate);
                // "As the sending rates approach the capacity of the network, Fake RBUDP achieves
                // almost the same throughput as Iperf"; "real RBUDP is able to match the maximum
                // performance of app_perf".
                let told = *rate == 878 && receiver.name != NAIVE;
                let published = told.then_some(Published::About(receiver.takes));
                // A published value is marked as fitted, because it is the receiver's limit.
                blast_rows(outcomes, &case, PAYLOAD, f64::from(*rate), published)
            });
            let Receiver { name, takes, .. } = receiver;
            Table::new(format!("{name}: a program that takes {takes:.0} Mbit/s"), rows.collect())
        };
        let gains = FIG5_OVERRUNS.map(|rate| {
            let of = |name| outcomes.first(&case_name(name, rate), CaseFlow::goodput);
            let gain = of(SCATTER).zip(of(NAIVE)).map(|(with, without)| with / without - 1.0);
            let row = Row::new(case_name(SCATTER, rate), GAIN, gain.map(|gain| 100.0 * gain));
            row.says(Published::About(SCATTER_GAIN)).fitted()
        });
        let gain = Table::new("What scatter/gather gains", gains.into());
        FIG5_RECEIVERS.iter().map(table).chain([gain]).collect()
    },
    courses: Experiment::NO_COURSES,
    figures: |outcomes, _| {
        let flat = |mbps: f64| [(0.0, mbps), (900.0, mbps)];
        let ours = |receiver: &Receiver| {
            let points = FIG5_RATES.iter().filter_map(|rate| {
                let case = case_name(receiver.name, *rate);
                Some((f64::from(*rate), outcomes.first(&case, CaseFlow::goodput)?))
            });
            Series::new(format!("simulated: {}", receiver.name), Origin::Simulated, points)
        };
        let model = (1..=18).map(|step| {
            let rate = Rate::from_mbps(step * 50);
            (rate.as_bps() as f64 / 1e6, best(PAYLOAD, rate, RTT).as_bps() as f64 / 1e6)
        });
        let mut series = vec![
            Series::new("published: iperf", Origin::Published, flat(IPERF)),
            Series::new("published: app_perf", Origin::Published, flat(APP_PERF)),
            Series::new("model, equation 4", Origin::Model, model),
        ];
        series.extend(FIG5_RECEIVERS.iter().map(ours));
        vec![rate_figure("Goodput into a slow receiver", series)]
    },
    differs: "The paper's text gives two of the figure's values, the ends of its curves; the other \
              rows are compared with equation 4. The receiving program is a queue with a fixed \
              service rate; the paper's program ran on a Pentium III that did other work too. The \
              rate of naive RBUDP is derived from the paper's 10 %. So the last table shows how a \
              difference of 10 % affects the protocol, not how large the difference is. After a \
              loss, scatter/gather predicts the places of some payloads in memory wrongly. Moving \
              such payloads costs no extra time here.\n\n\
              At sending rates above the receiver's limit, longhaul's goodput is a little lower \
              than app_perf's. The first round runs into the limit, each round of repairs costs a \
              round trip, and between two rounds the program empties its buffer and waits.",
    learned: "Up to the receiver's limit, RBUDP delivers at the sending rate, and equation 4 \
              predicts the goodput within a fraction of a per cent. Beyond the limit the excess is \
              lost in the receiver's socket, in every round. At a sending rate of 878 Mbit/s \
              longhaul delivers {RBUDP, scatter/gather at 878 Mbit/s} Mbit/s with scatter/gather, \
              {-[RBUDP, scatter/gather at 878 Mbit/s | difference]} % less than the paper because \
              of the repair rounds.\n\n\
              A program that accepts 10 % more data than naive RBUDP, because it moves the data \
              only once, delivers {least [* | gain by scatter/gather]} to {most [* | gain by \
              scatter/gather]} % more. \
              This says nothing about scatter/gather itself: the 10 % are an input of this \
              simulation. On a current host, real copies are 11 to 12 % slower with \
              scatter/gather: 6.59 instead of 7.48 Gbit/s without encryption, and 5.66 instead of \
              6.37 Gbit/s with it ([transfer.md](transfer.md)).\n\n\
              The loss that RBUDP reports here happens in the host, not in the network. longhaul \
              counts it separately (`socket_lost`).",
    set: Set::Full,
};

fn rate_figure(title: &str, series: Vec<Series>) -> Figure {
    let (x, y) = (Axis::linear("sending rate, Mbit/s"), Axis::linear("goodput, Mbit/s"));
    Figure { name: "", plot: Plot { title: title.into(), x, y, series } }
}

/// Figure 6: "The maximum of the sending rate is 725Mbps."
const SENDER_LIMIT: f64 = 725.0;
const FIG6_RATES: [u32; 8] = [100, 200, 300, 400, 500, 600, 700, 878];

pub(crate) static FIG6: Experiment = Experiment {
    id: "quanta-fig6",
    title: "RBUDP from a slow host to a fast one: throughput against sending rate",
    source: "He et al., *Quanta: a toolkit for high performance data delivery over photonic \
             networks* (2003), section 4.2.2, Fig. 6",
    setup: "The set-up is that of [quanta-fig5](quanta-fig5.md), but the sending program sends at \
            most 725 Mbit/s of object data, and the receiving program has no limit. In the \
            emulation `cp --bwlimit` limits the sending program.",
    cases: || {
        let cases = FIG6_RATES.map(|rate| {
            let name = case_name("RBUDP", rate);
            let blast = vary("quanta-fig6").set("flow.blast.rate", payload_rate(rate.into()));
            Case::both(name, blast)
        });
        cases.into()
    },
    tables: |outcomes| {
        let rows = FIG6_RATES.iter().flat_map(|rate| {
            let case = case_name("RBUDP", *rate);
            // "Fake RBUDP is able to reach the maximum performance obtained by iperf; and Real
            // RBUDP … by app_perf"; both coincide with "the maximum of the sending rate".
            let published = (*rate == 878).then_some(Published::About(SENDER_LIMIT));
            let sent = f64::from(*rate).min(SENDER_LIMIT);
            blast_rows(outcomes, &case, PAYLOAD, sent, published)
        });
        vec![Table::new("", rows.collect())]
    },
    courses: Experiment::NO_COURSES,
    figures: |outcomes, _| {
        let points = FIG6_RATES.iter().filter_map(|rate| {
            let case = case_name("RBUDP", *rate);
            Some((f64::from(*rate), outcomes.first(&case, CaseFlow::goodput)?))
        });
        let limit = [(0.0, SENDER_LIMIT), (900.0, SENDER_LIMIT)];
        let model = (1..=18).map(|step| {
            let rate = f64::from(step) * 50.0;
            let sent = Rate::from_bps_f64(rate.min(SENDER_LIMIT) * 1e6);
            (rate, best(PAYLOAD, sent, RTT).as_bps() as f64 / 1e6)
        });
        let series = vec![
            Series::new("published: iperf and app_perf", Origin::Published, limit),
            Series::new("model, equation 4", Origin::Model, model),
            Series::new("simulated: RBUDP", Origin::Simulated, points),
        ];
        vec![rate_figure("Goodput out of a slow sender", series)]
    },
    differs: "The paper's 725 Mbit/s, measured by iperf, include no wait for an answer. RBUDP's \
              goodput includes the round trip in which the receiver reports that everything has \
              arrived. The paper's fake and real RBUDP coincide here, so each sending rate has one \
              case.",
    learned: "A sender that cannot keep up slows itself down and loses nothing. A slow receiver \
              loses a quarter of the datagrams at a sending rate of 878 Mbit/s \
              ([quanta-fig5](quanta-fig5.md)). longhaul is {-[RBUDP at 878 Mbit/s | difference]} % \
              below the paper's limit because of the last round trip.",
    set: Set::Quick,
};

/// Figure 7's two situations: Mbit/s of object data, loss in per cent.
const FIG7_LINES: [(f64, u64); 2] = [(611.0, 0), (682.0, 12)];
const FIG7_MEGABYTES: [u64; 9] = [2, 5, 10, 25, 50, 100, 200, 450, 900];
const LARGEST: &str = "in one segment 900 MB would need four times their size in memory, and the \
                       curves are flat there";

fn fig7_case(mbps: f64, loss: u64, megabytes: u64) -> String {
    format!("{megabytes} MB at {mbps} Mbit/s, loss {loss} %")
}

fn fig7_model(mbps: f64, loss: u64, megabytes: u64) -> Rbudp {
    let rate = Rate::from_bps_f64(mbps * 1e6);
    let size = Bytes::new(megabytes * 1_000_000);
    Rbudp::new(size, rate, RTT, Span::ZERO, LossRatio::of(loss, 100), BLOCK)
}

pub(crate) static FIG7: Experiment = Experiment {
    id: "quanta-fig7",
    title: "RBUDP: throughput against payload size, without loss and with 12 % loss",
    source: "He et al., *Quanta: a toolkit for high performance data delivery over photonic \
             networks* (2003), section 4.2.3, Fig. 7",
    setup: "RBUDP sends payloads of 2 to 900 MB, each in one segment (all blocks share the same \
            rounds), without coded symbols (`tail-copies` 1), over 1 Gbit/s and a round trip of \
            100 ms. It sends at 611 Mbit/s of object data without loss. It sends at 682 Mbit/s in \
            the runs in which each packet towards the receiver is lost with a probability of 12 %, \
            in every round. The model is the paper's equations 1, 2 and 7 with T_ack = 0 (no time \
            to send the list of missing blocks), and equation 6 as longhaul reconstructs it. \
            Emulated: the binary's own `serve` and `cp` with files in memory, up to 450 MB.",
    cases: || {
        let cases = FIG7_LINES.iter().flat_map(|line| FIG7_MEGABYTES.map(|size| (line, size)));
        cases
            .map(|((mbps, loss), megabytes)| {
                let name = fig7_case(*mbps, *loss, megabytes);
                let blast = vary("quanta-fig7")
                    .set("flow.blast.size", megabytes * 1_000_000)
                    .set("flow.blast.rate", payload_rate(*mbps))
                    .set("topology.link.loss", format!("{loss}%"));
                match megabytes <= 450 {
                    true => Case::both(name, blast),
                    false => Case::simulated(name, blast, LARGEST),
                }
            })
            .collect()
    },
    tables: |outcomes| {
        let table = |(mbps, loss): (f64, u64)| {
            let rows = FIG7_MEGABYTES.iter().flat_map(|megabytes| {
                let case = fig7_case(mbps, loss, *megabytes);
                let model = fig7_model(mbps, loss, *megabytes);
                let rounds = outcomes.first(&case, |flow| flow.rounds.number());
                [
                    Row::new(&*case, GOODPUT, outcomes.first(&case, CaseFlow::goodput))
                        .model(model.achievable.as_bps() as f64 / 1e6),
                    Row::new(&*case, ROUNDS, rounds).model(f64::from(model.resends) + 1.0),
                ]
            });
            Table::new(format!("{mbps} Mbit/s, loss {loss} %"), rows.collect())
        };
        FIG7_LINES.map(table).into()
    },
    courses: Experiment::NO_COURSES,
    figures: |outcomes, tables| {
        let mut series = Vec::new();
        for (mbps, loss) in FIG7_LINES {
            let line = format!("{mbps} Mbit/s, loss {loss} %");
            let points = |value: &dyn Fn(u64) -> Option<f64>| -> Vec<(f64, f64)> {
                let sizes = FIG7_MEGABYTES.iter();
                sizes.filter_map(|size| Some((*size as f64, value(*size)?))).collect()
            };
            let model = |size| Some(fig7_model(mbps, loss, size).achievable.as_bps() as f64 / 1e6);
            let ours = |size| outcomes.first(&fig7_case(mbps, loss, size), CaseFlow::goodput);
            let real = |size| emulated_value(tables, &fig7_case(mbps, loss, size), GOODPUT);
            series.push(Series::new(format!("model: {line}"), Origin::Model, points(&model)));
            let label = format!("simulated: {line}");
            series.push(Series::new(label, Origin::Simulated, points(&ours)));
            let real = points(&real);
            if !real.is_empty() {
                series.push(Series::new(format!("emulated: {line}"), Origin::Emulated, real));
            }
        }
        let (x, y) = (Axis::log("payload, MB"), Axis::linear("goodput, Mbit/s"));
        let title = "Goodput against payload".into();
        vec![Figure { name: "", plot: Plot { title, x, y, series } }]
    },
    differs: "The paper's text has none of the figure's values. The paper's loss came from an \
              overrun host. Here each packet is lost independently, with the same chance in every \
              round, as equation 6 assumes.\n\n\
              The paper's text lacks the formula of equation 6. It says that rounds go on \"until \
              the amount of data left is less than 1 packet\". longhaul's reconstruction counts \
              the repair rounds that reduce the whole payload to one packet. The simulated number \
              of rounds is the model's number, or one or two fewer. The emulated number differs \
              from the simulated number by at most 1; this matters where a round trip is a large \
              part of the time.",
    learned: "Round trips limit the throughput of small payloads; the sending rate limits that of \
              large ones. 12 % loss costs the repeated data (12/88 = 13.6 % of the payload) and \
              some round trips: 900 MB have {900 MB at 682 Mbit/s, loss 12 %} Mbit/s at a sending \
              rate of 682 Mbit/s, and 2 MB have {2 MB at 682 Mbit/s, loss 12 %} Mbit/s, against {2 \
              MB at 611 Mbit/s, loss 0 %} Mbit/s at 611 Mbit/s without loss. In the simulation, \
              longhaul is at most {-least [* | \
              goodput | difference]} % below the model, and up to {most [* | goodput | \
              difference]} % above the model where longhaul needs one or two rounds fewer. By \
              default longhaul adds coded symbols to the last rounds (`tail-copies` 2, \
              [coded-repair](coded-repair.md)); this page does not use them.",
    set: Set::Quick,
};

/// Section 4: "we chose a send rate of 5% less than the available network bandwidth predicted by
/// Iperf. Surprisingly this resulted in approximately 33% loss! … When we used a faster computer
/// as the receiver, the loss rate decreased to less than 2%."
const FIRST_VERSION_RATE: f64 = IPERF * 0.95;
const SLOW: &str = "a program that takes 643 Mbit/s";
const FAST: &str = "a program without a limit";

/// Section 4: the loss of RBUDP's first implementation.
pub(crate) static FIRST_VERSION: Experiment = Experiment {
    id: "quanta-first-version",
    title: "RBUDP at 5 % less than iperf's rate: the loss is in the receiving host, not on the \
            path",
    source: "He et al., *Quanta: a toolkit for high performance data delivery over photonic \
             networks* (2003), section 4",
    setup: "RBUDP sends 450 MB at 95 % of iperf's 878 Mbit/s, over 1 Gbit/s and a round trip of \
            100 ms without loss on the line. One receiving program takes 643 Mbit/s (the rate that \
            the paper's test program app_perf measured on the slow host); the other has no limit. \
            The socket buffer holds 1 MiB. `rounds` includes the first one, in which all blocks \
            are sent.",
    cases: || {
        let into = |takes: &str| {
            let blast = vary("quanta-first-version").set("host.b.receives-rate", takes);
            blast.set("flow.blast.rate", payload_rate(FIRST_VERSION_RATE))
        };
        let slow = into(&payload_rate(APP_PERF).to_string());
        vec![Case::both(SLOW, slow), Case::both(FAST, into("1T"))]
    },
    tables: |outcomes| {
        let rows = [(SLOW, Published::About(33.0)), (FAST, Published::Below(2.0))];
        let rows = rows.into_iter().flat_map(|(case, loss)| {
            [
                Row::new(case, LOSS, outcomes.first(case, CaseFlow::loss)).says(loss),
                Row::new(case, GOODPUT, outcomes.first(case, CaseFlow::goodput)),
                Row::new(case, ROUNDS, outcomes.first(case, |flow| flow.rounds.number())),
            ]
        });
        vec![Table::new("", rows.collect())]
    },
    courses: Experiment::NO_COURSES,
    figures: Experiment::NO_FIGURES,
    differs: "The paper reports a loss of 33 % for RBUDP's first implementation, on hosts that it \
              does not name. At a sending rate of 834 Mbit/s this means that the receiving program \
              took 67 %, about 560 Mbit/s. Here the program takes 643 Mbit/s, as app_perf measured \
              later on the slow host of section 4.2, so less is lost. The loss counts all rounds.",
    learned: "iperf measures the rate of a program that discards the data. A sending rate that \
              follows iperf's value overruns a program that keeps the data, and all of the loss is \
              in the host: the line loses nothing in either case. Here {a program that takes 643 \
              Mbit/s} % is lost, against 33 % in the paper, because the program here is faster.",
    set: Set::Quick,
};

/// Section 4.3: "800*600*3 … 20 frames/second, the maximum extra delay introduced will be 0.5
/// seconds, the sending rate needs to be at least 288 Mbps and each payload must encapsulate 10
/// image frames."
const FRAME: Bytes = Bytes::new(800 * 600 * 3);
const FRAMES_A_SECOND: f64 = 20.0;
const DELAY: Span = Span::from_millis(500);
const FRAME_RATE: Quantity = Quantity { name: "frames a second", unit: Unit::Index };
const SEND_RATE: Quantity = Quantity { name: "sending rate needed", unit: Unit::Rate };
const FRAMES: Quantity = Quantity { name: "frames in a payload", unit: Unit::Count };
/// Mbit/s of object data, loss in per mille.
const STREAMS: [(f64, u64); 4] = [(230.4, 0), (288.0, 0), (288.0, 1), (400.0, 1)];

fn stream_case(mbps: f64, per_mille: u64) -> String {
    format!("10 frames at {mbps} Mbit/s, loss {} %", per_mille as f64 / 10.0)
}

fn stream() -> Stream {
    Stream::new(FRAME, FRAMES_A_SECOND, DELAY, RTT).expect("0.5 s is longer than 0.1 s")
}

/// Section 4.3.
pub(crate) static STREAMING: Experiment = Experiment {
    id: "quanta-streaming",
    title: "Video frames within a fixed delay by RBUDP: the sending rate of equation 11",
    source: "He et al., *Quanta: a toolkit for high performance data delivery over photonic \
             networks* (2003), section 4.3",
    setup: "A stream has 20 frames a second of 800 × 600 pixels with 3 bytes each, shown at most \
            0.5 s late, over 1 Gbit/s and a round trip of 100 ms. Equations 8 to 11 give the \
            payload and the sending rate. RBUDP then sends one such payload (10 frames, 14.4 MB) \
            in one segment (all blocks share the same rounds), without coded symbols \
            (`tail-copies` 1). It sends at the frames' own rate of 230.4 Mbit/s, at the rate of \
            equation 11 (288 Mbit/s), and with loss towards the receiver at 288 and at 400 Mbit/s. \
            The payload must arrive, and the sender must know it, within the 0.5 s in which the \
            next payload is gathered.",
    cases: || {
        let cases = STREAMS.map(|(mbps, per_mille)| {
            let name = stream_case(mbps, per_mille);
            let frames = vary("quanta-streaming").set("flow.frames.rate", payload_rate(mbps));
            let loss = per_mille as f64 / 1e3;
            Case::both(name, frames.set("topology.link.loss", loss))
        });
        cases.into()
    },
    tables: |outcomes| {
        let equations = vec![
            Row::new("equation 9", FRAMES, None).published(10.0).model(stream().objects),
            Row::new("equation 11", SEND_RATE, None)
                .published(288.0)
                .model(stream().send_rate.as_bps() as f64 / 1e6),
        ];
        let rows = STREAMS.iter().flat_map(|(mbps, per_mille)| {
            let case = stream_case(*mbps, *per_mille);
            let rate = Rate::from_bps_f64(mbps * 1e6);
            let model = (stream().payload / rate + RTT).as_secs_f64();
            let seconds = outcomes.first(&case, |flow| flow.elapsed.as_secs_f64());
            [
                Row::new(&*case, TIME, seconds).model(model),
                Row::new(&*case, FRAME_RATE, seconds.map(|seconds| stream().objects / seconds))
                    .model(stream().objects / model),
            ]
        });
        vec![
            Table::new("What the equations ask for", equations),
            Table::new("One payload", rows.collect()),
        ]
    },
    courses: Experiment::NO_COURSES,
    figures: Experiment::NO_FIGURES,
    differs: "The model is equation 4, which ignores loss: one lost datagram costs a round trip of \
              0.1 s, a fifth of the delay.",
    learned: "Equation 11 is exact without loss, and leaves no spare time. At its rate a single \
              lost datagram makes a payload late: with loss a payload takes {10 frames at 288 \
              Mbit/s, loss 0.1 % | difference} to {10 frames at 400 Mbit/s, loss 0.1 % | \
              difference} % longer than in the model, because the repair takes a round trip. \
              longhaul needs exactly the paper's 288 Mbit/s. Compared with the simulation, a \
              payload over real sockets takes {-[10 frames at 288 Mbit/s, loss 0 % | from \
              simulated]} % less time without loss, and {10 frames at 400 Mbit/s, loss 0.1 % | \
              from simulated} to {10 frames at 288 Mbit/s, loss 0.1 % | from simulated} % more \
              with loss. On a path that loses packets, a stream needs a rate or a delay that \
              leaves time for one more round trip.",
    set: Set::Quick,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equation_11_gives_the_papers_stream() {
        assert_eq!(stream().send_rate, Rate::from_mbps(288));
        assert_eq!((stream().objects, stream().payload), (10.0, Bytes::new(14_400_000)));
    }
}
