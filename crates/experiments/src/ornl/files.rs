//! Section 4.2: files over the internet, from Berkeley to Oak Ridge and from there to CERN.

use longhaul_proto::units::Rate;

use super::{Columns, Contender, case_name, runs, tables};
use crate::experiment::{Case, Experiment, Figure, Set};
use crate::outcome::{Outcomes, Sample};
use crate::paths::with_overhead;
use crate::plot::{Axis, Origin, Plot, Series};
use crate::quantity::{GOODPUT, LOST};
use crate::scenarios::vary;
use crate::table::Row;

const DAYS: [&str; 2] = ["best case", "worst case"];

/// The study's columns for these runs: rate, lost, packets received, duplicates.
const fn received([rate, lost, received, duplicates]: [f64; 4]) -> Columns {
    Columns {
        rate: Some(rate),
        lost: Some(lost),
        retransmitted: None,
        sent: None,
        received: Some(received),
        duplicates: Some(duplicates),
    }
}

/// Rate, lost, retransmitted, sent, received, duplicates.
const fn all([rate, lost, retransmitted, sent, received, duplicates]: [f64; 6]) -> Columns {
    Columns {
        rate: Some(rate),
        lost: Some(lost),
        retransmitted: Some(retransmitted),
        sent: Some(sent),
        received: Some(received),
        duplicates: Some(duplicates),
    }
}

/// For runs with only a published rate.
const fn rate(rate: f64) -> Columns {
    Columns {
        rate: Some(rate),
        lost: None,
        retransmitted: None,
        sent: None,
        received: None,
        duplicates: None,
    }
}

/// "File transfers to transfer a 214649928 Byte file from LBL to ORNL". The study's GridFTP had
/// three streams on the good day and one on the bad one.
const FROM_LBL: [Contender; 4] = [
    Contender {
        name: "FOBS",
        flow: "fobs",
        published: [
            received([45.01, 2_668.0, 151_624.0, 5_203.0]),
            received([28.52, 3_503.0, 147_787.0, 1_366.0]),
        ],
    },
    Contender {
        name: "SABUL",
        flow: "sabul",
        published: [
            received([52.14, 5_463.0, 178_297.0, 32_077.0]),
            received([37.25, 4_200.0, 216_482.0, 70_262.0]),
        ],
    },
    Contender {
        name: "Tsunami",
        flow: "tsunami",
        published: [received([47.17, 44_400.0, 181_840.0, 35_421.0]), rate(8.2)],
    },
    Contender { name: "GridFTP", flow: "gridftp", published: [rate(33.79), rate(13.12)] },
];

/// Why cases that depend on a slow disk are not emulated.
const SLOW_DISK: &str = "the receiving disk decides it, and files over real sockets lie in memory";

/// The settings of a day on the path from Berkeley: the disk's rate, the sender's, the loss, and
/// the configured rate.
const LBL_DAYS: [(&str, &str, f64, u64); 2] =
    [("55.2M", "489M", 73.0 / 137_742.0, 370), ("32.3M", "420M", 4_415.0 / 142_157.0, 335)];

fn from_lbl() -> Vec<Case> {
    let on = |contender: &Contender, day: usize| {
        let (disk, sends, loss, mbps) = LBL_DAYS[day];
        let path = vary("ornl-lbl")
            .set("host.b.disk-rate", disk)
            .set("host.a.sends-rate", sends)
            .set("topology.link.loss", loss);
        match contender.flow {
            "gridftp" => path.set("flow.gridftp.streams", [3, 1][day]),
            "sabul" => path,
            flow => {
                let rate = with_overhead(Rate::from_mbps(mbps)).as_bps();
                path.set(&format!("flow.{flow}.rate"), rate)
            }
        }
    };
    runs(&FROM_LBL, DAYS, on, |contender, name, variant| match contender.flow {
        "gridftp" => Case::both(name, variant),
        _ => Case::simulated(name, variant, SLOW_DISK),
    })
}

/// Rates of a day's flows over time.
fn over_time(outcomes: &Outcomes, contenders: &[Contender], day: &str) -> Vec<Figure> {
    let figure = |name, title: &str, label: &str, of: fn(&Sample) -> f64| {
        let series = contenders.iter().filter_map(|contender| {
            let outcome = outcomes.case(&case_name(contender.name, day))?;
            let points = outcome.first().series.iter().map(|sample| (sample.at, of(sample)));
            Some(Series::new(format!("simulated: {}", contender.name), Origin::Simulated, points))
        });
        let (x, y) = (Axis::linear("time, s"), Axis::linear(label));
        let title = format!("{title}, {day}");
        Figure { name, plot: Plot { title, x, y, series: series.collect() } }
    };
    vec![
        figure("rate", "Receiving rate", "goodput, Mbit/s", |sample| sample.goodput),
        figure("losses", "Losses as reported", "losses in 0.5 s", |sample| sample.reported_lost),
        figure("duplicates", "Duplicates received", "duplicates in 0.5 s", |sample| {
            sample.duplicates
        }),
    ]
}

/// The files from Berkeley.
pub(super) static LBL: Experiment = Experiment {
    id: "ornl-lbl",
    title: "A file from Berkeley to a slow disk at Oak Ridge: FOBS, SABUL, Tsunami, GridFTP",
    source: "Fowler, *Faster bulk transfer starring: UDP*, Oak Ridge National Laboratory (2003), \
             section 4.2",
    setup: "214,649,928 bytes over the path of [ornl-internet](ornl-internet.md), on its good \
            day and on its bad one, to a disk at the receiving end. The disk's rate is \
            derived from the study's FOBS, which had 45.0 Mbit/s in all and 243.4 \"if not \
            counting the wait for file writes\": 31.1 s of waiting for 215 MB, 55.2 Mbit/s; \
            on the bad day, with the same time on the network, 32.3 Mbit/s. A transfer ends \
            when all data are on the disk. GridFTP is TCP (NewReno with selective \
            acknowledgements) to memory, by three connections on the good day and by one on \
            the bad one.",
    cases: from_lbl,
    tables: |outcomes| {
        // The disk's rate is derived from FOBS.
        let tables = tables(&FROM_LBL, DAYS, outcomes).into_iter();
        let is_input = |row: &Row| row.case.starts_with("FOBS") && row.quantity == GOODPUT;
        tables.map(|table| table.fitted(is_input)).collect()
    },
    courses: Experiment::NO_COURSES,
    figures: |outcomes, _| over_time(outcomes, &FROM_LBL, DAYS[0]),
    differs: "The study says neither how fast the receiving disk was nor what the path lost that \
              day, and the memory runs from which the loss is taken went the other way. Its host \
              at Berkeley read 47.9 Mbit/s from its disk by the study's own test, but FOBS sent at \
              243: the file was in memory, so no reading disk is here. What is worked out from \
              FOBS bounds all: that the disk's rate comes out says nothing about us, the counts \
              do. The study's SABUL wrote 37 Mbit/s on the day from whose FOBS the 32 are worked \
              out. Its Tsunami was stopped by hand on that day (8.2 Mbit/s), which is all of the \
              difference to ours. Our FOBS names what is missing in each acknowledgement, and a \
              repair waits while the disk has left no room, so that some 4,700 drops of the bad \
              day are reported {FOBS, worst case | lost, as reported} times. Datagrams carry 1440 \
              bytes here, so 149,063 are needed (the study: 146,219 to 146,421).",
    learned: "With a disk slower than the path every protocol runs at the disk's rate, within \
              half a per cent. On the good day all of them have {FOBS, best case | 1} Mbit/s. \
              The study's programs had {100 - 100 * [SABUL, best case | published] / [SABUL, \
              best case]} to {100 - 100 * [FOBS, best case | published] / [FOBS, best case]} \
              % less: FOBS waited for each chunk to be written before it sent the next, and \
              the others sent 32,077 and 35,421 duplicates that the host had to take in \
              beside its writing. longhaul's send on while there is memory, and duplicates \
              are 0 (Tsunami) to {FOBS, best case | duplicates} (FOBS) on the good day. For \
              TCP loss is the limit, not the disk: {GridFTP, best case} Mbit/s by three \
              streams, {-[GridFTP, best case | difference]} % less than in the study, and \
              {GridFTP, best case | emulated} over real sockets. On the bad day all have the \
              {FOBS, worst case | 1} Mbit/s that were derived from the study's FOBS, {FOBS, \
              worst case | difference} % more than it and {-[SABUL, worst case | difference]} \
              % less than its SABUL, which found the disk faster. The loss is three per cent \
              then, and one TCP stream is left with {GridFTP, worst case} Mbit/s of the \
              study's 13: that loss was not on its path.",
    set: Set::Full,
};

/// "File transfers to pcgiga at Cern gives a longer RTT".
const TO_CERN: [Contender; 3] = [
    Contender {
        name: "FOBS",
        flow: "fobs",
        published: [
            all([247.78, 78.0, 14_188.0, 160_609.0, 155_792.0, 9_371.0]),
            all([153.03, 23.0, 14_245.0, 160_666.0, 156_133.0, 9_712.0]),
        ],
    },
    Contender {
        name: "SABUL",
        flow: "sabul",
        published: [
            all([250.88, 3.0, 3.0, 146_223.0, 146_222.0, 2.0]),
            all([139.52, 1_708.0, 91_856.0, 238_076.0, 191_202.0, 44_982.0]),
        ],
    },
    Contender {
        name: "Tsunami",
        flow: "tsunami",
        published: [all([270.74, 0.0, 4_980.0, 146_419.0, 146_901.0, 482.0]), rate(4.3)],
    },
];

/// The files to CERN.
pub(super) static CERN: Experiment = Experiment {
    id: "ornl-cern",
    title: "A file from Oak Ridge to CERN, with outages and without: FOBS, SABUL, Tsunami",
    source: "Fowler, *Faster bulk transfer starring: UDP*, Oak Ridge National Laboratory (2003), \
             section 4.2",
    setup: "214,649,928 bytes over a path whose round trip the study does not give; 120 ms \
            are assumed. In the better runs the sending host sends what iperf's UDP did (469 \
            Mbit/s), the path loses what SABUL lost (0.002 %), and the disk takes 275 Mbit/s, \
            a little more than the fastest program delivered. In the worse runs SABUL had \
            four EXP events, in which no report comes and all data in flight are taken for \
            lost. It sent 91,856 packets again for 1,708 reported losses, so the way back \
            failed: here nothing comes back for a second, four times. FOBS and Tsunami are \
            told 300 Mbit/s of object; SABUL finds its rate. The figures show the worse runs.",
    cases: || {
        let file = |_: &Contender, day: usize| vary(["ornl-cern", "ornl-cern-worst"][day]);
        runs(&TO_CERN, DAYS, file, |_, name, variant| Case::simulated(name, variant, SLOW_DISK))
    },
    tables: |outcomes| {
        // The disk's rate is derived from the fastest run, the path's loss from SABUL's.
        let tables = tables(&TO_CERN, DAYS, outcomes).into_iter();
        let is_input = |row: &Row| {
            row.case.ends_with(DAYS[0]) && row.quantity == GOODPUT
                || row.case == case_name("SABUL", DAYS[0]) && row.quantity == LOST
        };
        tables.map(|table| table.fitted(is_input)).collect()
    },
    courses: Experiment::NO_COURSES,
    figures: |outcomes, _| over_time(outcomes, &TO_CERN, DAYS[1]),
    differs: "Round trip, path and disk are assumptions, and of the worse runs only what SABUL's \
              counts tell is known: that its reports went missing, not for how long. What FOBS \
              then sends again is near it ({FOBS, worst case | retransmitted} for 14,245), so a \
              second at a time is near the truth. The study's hosts got 248 to 271 Mbit/s at best \
              and 140 to 153 at worst; that it was a disk that held the better ones is taken from \
              their being as near to each other as three programs are that begin so differently. \
              Its Tsunami was stopped by hand (4.3 Mbit/s). That our worse runs are faster by \
              {FOBS, worst case | difference} % (FOBS) and {SABUL, worst case | difference} % \
              (SABUL) is what else went wrong on that day: four seconds without reports explain \
              what was sent again, but not that the transfers took 11 and 12 s where they took 7 \
              on the better day, and nothing that the study tells says what does. Datagrams carry \
              1440 bytes here.",
    learned: "A missing report costs what the sender does meanwhile. FOBS sends \
              unacknowledged data again, a tenth of the object for nothing; SABUL's EXP timer \
              sends about as much again, a fifth of what it did in the study. Both still \
              deliver what the disk takes, within a hundredth of their good day, where the \
              study's lost 38 and 44 % of it. Tsunami's sender needs reports only for repairs \
              and wastes least: it ends at {Tsunami, worst case} Mbit/s, where the study's \
              program stood still. On the good day the disk makes the protocols alike: faster \
              than the study's by {FOBS, best case | difference} % (FOBS) and {SABUL, best \
              case | difference} % (SABUL), and Tsunami, which starts at a third of its rate, \
              is {-[Tsunami, best case | difference]} % slower.",
    set: Set::Full,
};
