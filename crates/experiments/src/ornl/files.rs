//! Section 4.2 of the Oak Ridge study: files over the internet.

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

/// The columns of a run for which the study gives rate, lost, packets received and duplicates.
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

/// The columns of a run for which the study gives all of them.
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

/// The columns of a run for which the study gives only the rate.
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

/// "File transfers to transfer a 214649928 Byte file from LBL to ORNL".
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

const SLOW_DISK: &str = "the result depends on the receiving disk, and emulated files are in \
                         memory";

/// The settings of a day: rate of the receiving disk, limit of the sending host, loss, and the
/// configured rate of FOBS and Tsunami in Mbit/s of object data.
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

/// Goodput, reported losses and duplicates of a day's flows.
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

pub(super) static LBL: Experiment = Experiment {
    id: "ornl-lbl",
    title: "A file from Berkeley to a slow disk at Oak Ridge: FOBS, SABUL, Tsunami, GridFTP",
    source: "Fowler, *Faster bulk transfer starring: UDP*, Oak Ridge National Laboratory (2003), \
             section 4.2",
    setup: "A file of 214,649,928 bytes is copied over the path of \
            [ornl-internet](ornl-internet.md), on its good day (best case) and on its bad day \
            (worst case), to a disk at the receiving end. The disk's rate is derived from the \
            study's FOBS, which had 45.0 Mbit/s overall and 243.4 \"if not counting the wait for \
            file writes\". So the copy took 38.2 s, of which 7.1 s were not waits, and FOBS waited \
            31.1 s for the writes of 215 MB: 55.2 Mbit/s. The same calculation for the bad day, \
            with the same 7.1 s, gives 32.3 Mbit/s. A transfer by FOBS, SABUL or Tsunami ends when \
            all data are on the disk. Counts are of datagrams; `lost, as reported` counts a loss \
            each time that it is reported. GridFTP is TCP (NewReno with selective \
            acknowledgements) to memory, not to the disk, over three connections on the good day \
            and one on the bad day.",
    cases: from_lbl,
    tables: |outcomes| {
        // The disk's rate is derived from FOBS, so FOBS's goodput is an input.
        let tables = tables(&FROM_LBL, DAYS, outcomes).into_iter();
        let is_input = |row: &Row| row.case.starts_with("FOBS") && row.quantity == GOODPUT;
        tables.map(|table| table.fitted(is_input)).collect()
    },
    courses: Experiment::NO_COURSES,
    figures: |outcomes, _| over_time(outcomes, &FROM_LBL, DAYS[0]),
    differs: "The study gives neither the speed of the receiving disk nor the path's loss on these \
              days. The reading disk is left out, because the study's FOBS sent faster than that \
              disk reads. The rate of the receiving disk is derived from FOBS and limits FOBS, \
              SABUL and Tsunami, so their goodputs say nothing about longhaul; their counts do. \
              The study's Tsunami was stopped by hand on the bad day (8.2 Mbit/s), so its goodput \
              cannot be compared. Our FOBS lists the missing packets in each acknowledgement, and \
              a repair waits while the receiver has no room, so about 4,700 drops of the bad day \
              are reported {FOBS, worst case | lost, as reported} times. Datagrams carry 1440 \
              bytes here, so 149,063 are needed (the study: 146,220 to 146,421).",
    learned: "If the disk is slower than the path, FOBS, SABUL and Tsunami run at the disk's rate, \
              within half a per cent. On the good day FOBS, SABUL and Tsunami have {FOBS, best \
              case | 1} Mbit/s each. The study's programs had {100 - 100 * [SABUL, best case | \
              published] / [SABUL, best case]} to {100 - 100 * [FOBS, best case | published] / \
              [FOBS, best case]} % less: FOBS waited for each chunk to be written before it sent \
              the next. The hosts of SABUL and Tsunami received 32,077 and 35,421 duplicates while \
              they wrote. longhaul's protocols continue to send while the receiver has memory, and \
              duplicates are 0 (Tsunami) to {FOBS, best case | duplicates} (FOBS) on the good day. \
              TCP writes to memory here, and loss limits it: three streams have {GridFTP, best \
              case} Mbit/s, {-[GridFTP, best case | difference]} % less than in the study, and \
              {GridFTP, best case | emulated} Mbit/s over real sockets. On the bad day FOBS, SABUL \
              and Tsunami have the {FOBS, worst case | 1} Mbit/s that are derived from the study's \
              FOBS. This is {FOBS, worst case | difference} % more than the study's FOBS had \
              overall, and {-[SABUL, worst case | difference]} % less than its SABUL. The loss is \
              three per cent on this day, and one TCP stream has {GridFTP, worst case} Mbit/s, \
              against 13 in the study: so the study's TCP did not meet this loss.",
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

pub(super) static CERN: Experiment = Experiment {
    id: "ornl-cern",
    title: "A file from Oak Ridge to CERN, with and without outages: FOBS, SABUL, Tsunami",
    source: "Fowler, *Faster bulk transfer starring: UDP*, Oak Ridge National Laboratory (2003), \
             section 4.2",
    setup: "A file of 214,649,928 bytes is copied over a path with an assumed round trip of 120 \
            ms; the study does not give it. Three values are from the study's better runs (best \
            case), and apply to all runs here. The sending host is limited to the rate of iperf's \
            UDP (469 Mbit/s). The path loses as much as SABUL lost (0.002 %). The disk takes 275 \
            Mbit/s, a little more than the fastest program delivered. In the study's worse runs \
            (worst case) SABUL had four EXP events: no report arrived in time, so the sender \
            treated all data in flight as lost. SABUL sent 91,856 packets again for 1,708 reported \
            losses, so the reverse path must have failed. In our worse runs the reverse path fails \
            four times, for a second each. FOBS and Tsunami are configured with 300 Mbit/s of \
            object data; SABUL finds its rate. Counts are of datagrams; `lost, as reported` counts \
            a loss each time that it is reported. The figures show the worse runs.",
    cases: || {
        let file = |_: &Contender, day: usize| vary(["ornl-cern", "ornl-cern-worst"][day]);
        runs(&TO_CERN, DAYS, file, |_, name, variant| Case::simulated(name, variant, SLOW_DISK))
    },
    tables: |outcomes| {
        // The disk's rate is derived from the better runs, the path's loss from SABUL's losses
        // there.
        let tables = tables(&TO_CERN, DAYS, outcomes).into_iter();
        let is_input = |row: &Row| {
            row.case.ends_with(DAYS[0]) && row.quantity == GOODPUT
                || row.case == case_name("SABUL", DAYS[0]) && row.quantity == LOST
        };
        tables.map(|table| table.fitted(is_input)).collect()
    },
    courses: Experiment::NO_COURSES,
    figures: |outcomes, _| over_time(outcomes, &TO_CERN, DAYS[1]),
    differs: "Round trip, path and disk are assumptions. The study's counts of the worse runs show \
              that SABUL's reports were lost, but not for how long. FOBS's retransmissions are \
              near the study's ({FOBS, worst case | retransmitted} instead of 14,245), so outages \
              of a second are plausible. The study's programs had 248 to 271 Mbit/s in the better \
              runs; FOBS had 153 and SABUL 140 in the worse ones. The study's Tsunami was stopped \
              by hand (4.3 Mbit/s). Our worse runs are faster than the study's by {FOBS, worst \
              case | difference} % (FOBS) and {SABUL, worst case | difference} % (SABUL). The \
              study does not give the reason. Datagrams carry 1440 bytes here, so 149,063 are \
              needed (the study: 146,220 to 146,421).",
    learned: "The cost of missing reports depends on what the sender does without them. FOBS sends \
              unacknowledged data again; a tenth of the object is sent needlessly. SABUL's EXP \
              timer repeats about as much, a fifth of what SABUL repeated in the study. Both still \
              deliver at the disk's rate, within 1 % of the better runs; in the study they lost 38 \
              and 44 % of their goodput. Tsunami's sender needs reports only for repairs: it has \
              {Tsunami, worst case} Mbit/s, where the study's program was stopped at 4.3. In the \
              better runs the disk limits FOBS and SABUL: FOBS is {FOBS, best case | difference} % \
              and SABUL {SABUL, best case | difference} % faster than in the study. Tsunami starts \
              at a third of its rate, and is {-[Tsunami, best case | difference]} % slower \
              than in the study.",
    set: Set::Full,
};
