//! State updates over paths that lose packets: by TCP, by datagrams, and by datagrams with repairs.

use std::sync::OnceLock;

use longhaul_proto::channel::Code;
use longhaul_proto::time::Span;
use longhaul_proto::units::{LossRatio, Rate};
use longhaul_testbed::link::{GilbertElliott, LinkSpec, Loss};
use longhaul_testbed::sim::updates::{Carrier, UpdatesOutcome, run};

pub use longhaul_testbed::sim::updates::UpdatesRun;

use crate::experiment::{Experiment, Figure, Set};
use crate::plot::{Axis, Origin, Plot, Series};
use crate::quantity::{Quantity, Unit};
use crate::table::{Row, Table};

pub(crate) const ALL: [&Experiment; 1] = [&FEC];

/// Updates a second.
const RATES: [u64; 3] = [10, 100, 1_000];
/// Updates a second of the runs in real time.
const REAL: [u64; 2] = [100, 1_000];
/// Round-trip times, in milliseconds.
const RTTS: [u64; 2] = [100, 300];
/// Mean loss in per cent, and the mean number of packets lost in a row.
const LOSSES: [(u32, u32); 7] = [(0, 1), (1, 1), (3, 1), (5, 1), (1, 3), (3, 3), (5, 3)];
/// The lines of the figure.
const MODES: [(&str, Carrier); 5] = [
    ("reliable (one TCP connection)", Carrier::Tcp),
    ("datagram", Carrier::Datagrams(Code::None)),
    ("datagram, xor:3", Carrier::Datagrams(Code::Xor { group: 3 })),
    ("datagram, rs:4+2", Carrier::Datagrams(Code::ReedSolomon { group: 4, repairs: 2 })),
    ("deadline of 150 ms", Carrier::Deadline(Span::from_millis(150))),
];
/// Independent losses of the figure, in tenths of a per cent.
const STEPS: [u32; 9] = [0, 1, 2, 5, 10, 20, 30, 50, 70];
/// The carriers of the tables, in addition to [`FOLLOWS`].
const CARRIERS: [(&str, Carrier); 5] = [
    ("TCP", Carrier::Tcp),
    ("UDP", Carrier::Datagrams(Code::None)),
    ("XOR 2", Carrier::Datagrams(Code::Xor { group: 2 })),
    ("XOR 3", Carrier::Datagrams(Code::Xor { group: 3 })),
    ("Reed-Solomon 4+2", Carrier::Datagrams(Code::ReedSolomon { group: 4, repairs: 2 })),
];
/// The name of the carrier whose code adapts to the measured losses.
const FOLLOWS: &str = "deadline";
/// Bytes of an update.
const SIZE: usize = 100;
/// Updates of a run.
const COUNT: u32 = 3_000;
/// An update is in time if its delay is at most half a round-trip time plus this.
const GRACE: Span = Span::from_millis(30);

const WITHIN: Quantity = Quantity { name: "in time", unit: Unit::Share };
const WORST: Quantity = Quantity { name: "99 % delay", unit: Unit::Seconds };
const JITTER: Quantity = Quantity { name: "jitter", unit: Unit::Seconds };
const OVERHEAD: Quantity = Quantity { name: "bytes beyond UDP", unit: Unit::Share };

fn losses((loss, burst): (u32, u32)) -> Loss {
    let share = f64::from(loss) / 100.0;
    match burst {
        1 => Loss::Independent(LossRatio::new(share).expect("a share")),
        // The bad state loses every packet, and lasts `burst` packets on average.
        burst => {
            let recovers = 1.0 / f64::from(burst);
            let worsens = share * recovers / (1.0 - share);
            let (good_loss, bad_loss) = (0.0, 1.0);
            Loss::GilbertElliott(GilbertElliott { worsens, recovers, good_loss, bad_loss })
        }
    }
}

fn updates(carrier: Carrier, rate: u64, rtt: u64, loss: Loss) -> UpdatesRun {
    let link = LinkSpec::path(Rate::from_mbps(100), Span::from_millis(rtt)).with_loss(loss);
    let interval = Span::from_micros(1_000_000 / rate);
    UpdatesRun { link, carrier, size: SIZE, interval, count: COUNT, seed: 20 }
}

fn path(rate: u64, rtt: u64, loss: (u32, u32)) -> Vec<(String, UpdatesRun)> {
    let deadline = Carrier::Deadline(Span::from_millis(rtt) / 2 + GRACE);
    let carriers = CARRIERS.into_iter().chain([(FOLLOWS, deadline)]);
    let run = |(name, carrier)| {
        (case_name(name, rate, rtt, loss), updates(carrier, rate, rtt, losses(loss)))
    };
    carriers.map(run).collect()
}

/// Returns the real-time runs of an experiment, with their names. The runs of one inner list run at
/// the same time. Only `quanta-fec` has real-time runs.
pub fn in_real_time(experiment: &Experiment) -> Vec<Vec<(String, UpdatesRun)>> {
    let mut paths = Vec::new();
    for rate in REAL.into_iter().filter(|_| experiment.id == FEC.id) {
        for rtt in RTTS {
            paths.extend(LOSSES.map(|loss| path(rate, rtt, loss)));
        }
    }
    paths
}

fn case_name(name: &str, rate: u64, rtt: u64, (loss, burst): (u32, u32)) -> String {
    let how = match burst {
        1 => String::new(),
        burst => format!(", {burst} in a row"),
    };
    format!("{rate}/s, {rtt} ms, loss {loss} %{how}, {name}")
}

fn rows(
    rate: u64,
    rtt: u64,
    of: &impl Fn(&str, &UpdatesRun) -> Option<UpdatesOutcome>,
) -> Vec<Row> {
    let deadline = Span::from_millis(rtt) / 2 + GRACE;
    let mut rows = Vec::new();
    for loss in LOSSES {
        let outcomes = path(rate, rtt, loss).into_iter().map(|(case, run)| {
            let outcome = of(&case, &run);
            (case, run.carrier, outcome)
        });
        let outcomes: Vec<_> = outcomes.collect();
        let is_plain = |carrier| carrier == Carrier::Datagrams(Code::None);
        let plain = outcomes.iter().find(|(_, carrier, _)| is_plain(*carrier));
        let plain = plain.and_then(|(.., outcome)| Some(outcome.as_ref()?.bytes as f64));
        for (case, _, outcome) in outcomes {
            let some = |value: fn(&UpdatesOutcome) -> f64| outcome.as_ref().map(value);
            let within = outcome.as_ref().map(|outcome| outcome.within(deadline) * 100.0);
            let overhead = outcome.as_ref().zip(plain);
            let overhead = overhead.map(|(outcome, plain)| outcome.bytes as f64 / plain - 1.0);
            rows.extend([
                Row::new(&*case, WITHIN, within),
                Row::new(&*case, WORST, some(|outcome| outcome.delay(0.99).as_secs_f64())),
                Row::new(&*case, JITTER, some(|outcome| outcome.jitter.as_secs_f64())),
                Row::new(&*case, OVERHEAD, overhead.map(|share| share * 100.0)),
            ]);
        }
    }
    rows
}

static TABLES: OnceLock<Vec<Table>> = OnceLock::new();
static FIGURES: OnceLock<Vec<Figure>> = OnceLock::new();

fn tables(of: impl Fn(&str, &UpdatesRun) -> Option<UpdatesOutcome>) -> Vec<Table> {
    let all = RATES.iter().flat_map(|rate| RTTS.iter().map(move |rtt| (*rate, *rtt)));
    let table = |(rate, rtt)| {
        let title = format!("{rate} updates a second over {rtt} ms");
        Table::new(title, rows(rate, rtt, &of))
    };
    all.map(table).collect()
}

/// The 99th percentile of the delay, plotted against the loss, at 100 updates a second and a
/// round-trip time of 100 ms. A line ends where more than 1 % of the updates are lost.
fn figures() -> Vec<Figure> {
    let point = |carrier, permille: u32| {
        let loss = LossRatio::new(f64::from(permille) / 1e3).expect("a share");
        let delay = run(&updates(carrier, 100, 100, Loss::Independent(loss))).delay_of_all(0.99)?;
        Some((f64::from(permille) / 10.0, delay.as_secs_f64() * 1e3))
    };
    let line = |(name, carrier): (&str, Carrier)| {
        let points = STEPS.iter().filter_map(|permille| point(carrier, *permille));
        Series::new(name, Origin::Simulated, points)
    };
    let plot = Plot {
        title: "100 updates a second over 100 ms".to_owned(),
        x: Axis::linear("loss, %"),
        y: Axis::linear("99 % delay, ms"),
        series: MODES.into_iter().map(line).collect(),
    };
    vec![Figure { name: "delay", plot }]
}

pub(crate) static FEC: Experiment = Experiment {
    id: "quanta-fec",
    title: "State updates by TCP, UDP, and UDP with repairs",
    source: "He et al., *Quanta: a toolkit for high performance data delivery over photonic \
             networks* (2003), section 3.2 (`fecClient`, `fecServer`)",
    setup: "A sender sends 3,000 updates of 100 bytes at a fixed rate over 100 Mbit/s. Packets \
            towards the receiver are lost independently, or three in a row on average. An update \
            is in time if it arrives within half a round trip plus 30 ms. The erasure code (XOR of \
            2 or 3 updates, or Reed-Solomon with 2 repairs for 4 updates) works as in `longhaul \
            channel --mode datagram`. Repairs follow each group of updates, 20 ms after its first \
            update at the latest; updates never wait for repairs. TCP sends each update \
            immediately; its loss detection and window are modelled (`testbed::sim::updates`). The \
            row `deadline` is `--mode deadline` with the same time limit: the receiver reports its \
            losses once a second, and the sender chooses the code. Delays count delivered updates \
            only: the `99 % delay` is their 99th percentile, and the jitter is the smoothed \
            difference between the delays of successive updates (RFC 3550). `bytes beyond \
            UDP` is how many more bytes, with all headers, went towards the receiver than in the \
            row `UDP`.\n\n\
            Emulated, at 100 and 1,000 updates a second: a real reflector (the server that \
            forwards the updates) and its subscriber run on one emulated host, and a real sender \
            on the other. TCP is a connection of the kernel. The six cases (TCP to `deadline`) of \
            one rate, round trip and loss run at the same time, each on its own path. A delay \
            begins when an update is due at the sender, and ends when the subscriber prints it. \
            Not emulated: 10 updates a second, which would take 70 minutes (300 s for each of the \
            14 pairs of a round trip and a loss). `longhaul reproduce quanta-fec --how emulate \
            --update` takes 10 minutes.",
    cases: Vec::new,
    tables: |outcomes| match outcomes.updates() {
        real if real.is_empty() => TABLES.get_or_init(|| tables(|_, it| Some(run(it)))).clone(),
        real => tables(|case, _| real.get(case).cloned()),
    },
    courses: Experiment::NO_COURSES,
    figures: |_, _| FIGURES.get_or_init(figures).clone(),
    differs: "The paper gives no numbers for its codes. It sends the repairs as a separate flow; \
              here the repairs follow the updates in the same flow.",
    learned: "In the simulator, at 100 updates a second over 100 ms with 3 % of independent loss, \
              TCP delivers {100/s, 100 ms, loss 3 %, TCP | in time | simulated | 1} % in time, and \
              plain UDP delivers {100/s, 100 ms, loss 3 %, UDP | in time | simulated | 1} %. XOR \
              of 3 delivers {100/s, 100 ms, loss 3 %, XOR 3 | in time | simulated | 1} % for \
              {100/s, 100 ms, loss 3 %, XOR 3 | bytes beyond UDP | simulated | 0} % more bytes \
              than UDP. Reed-Solomon with 2 repairs for 4 updates delivers {100/s, 100 ms, loss 3 \
              %, Reed-Solomon 4+2 | in time | simulated | 1} %. A lost TCP segment delays all \
              updates that follow it within a round trip, so TCP has the lowest share here. If \
              packets are lost three in a row on average, XOR of 3 falls to {100/s, 100 ms, loss 3 \
              %, 3 in a row, XOR 3 | in time | simulated | 1} % and Reed-Solomon to {100/s, 100 \
              ms, loss 3 %, 3 in a row, Reed-Solomon 4+2 | in time | simulated | 1} %: a group is \
              restored only if it loses no more datagrams than it has repairs. A code that follows \
              the losses (the row `deadline`) delivers {100/s, 100 ms, loss 3 %, deadline | in \
              time | simulated | 1} % for {100/s, 100 ms, loss 3 %, deadline | bytes beyond UDP | \
              simulated | 0} % more bytes, and with bursts {100/s, 100 ms, loss 3 %, 3 in a row, \
              deadline | in time | simulated | 1} % for {100/s, 100 ms, loss 3 %, 3 in a row, \
              deadline | bytes beyond UDP | simulated | 0} % more. At 10 updates a second, a group \
              ends (after 20 ms) before the next update is due (after 100 ms). So a group has one \
              update, and each repair is a copy of that update.",
    set: Set::Full,
};
