//! The table of results, with one line for each candidate.

use super::Setting;
use super::runs::{Counts, Figures, Standing};
use crate::console::bold;
use crate::table;

pub(super) const COUNTED: &str = "Medians of the successful runs. Lost on the way: datagrams that \
    did not arrive or that the receiver dropped. Found missing: missing blocks, once each. \
    Reported: losses reported to the sender, repeats included.";

struct Column {
    heading: &'static str,
    cell: fn(&Figures) -> Option<String>,
}

const COLUMNS: [Column; 11] = [
    Column { heading: "goodput", cell: |figures| Some(figures.goodput.to_string()) },
    Column {
        heading: "min–max, Mbit/s",
        cell: |figures| {
            let mbps = |rate: longhaul_proto::units::Rate| rate.as_bps() as f64 / 1e6;
            Some(format!("{:.1}–{:.1}", mbps(figures.least), mbps(figures.most)))
        },
    },
    Column {
        heading: "waste",
        cell: |figures| figures.counts.map(|counts| format!("{:.2} %", counts.waste * 100.0)),
    },
    Column { heading: "sent again", cell: |figures| count(figures, |c| Some(c.retransmitted)) },
    Column { heading: "lost on the way", cell: |figures| count(figures, |c| c.path_lost) },
    Column { heading: "found missing", cell: |figures| count(figures, |c| c.blocks_lost) },
    Column { heading: "reported", cell: |figures| count(figures, |c| c.reported_lost) },
    Column { heading: "duplicates", cell: |figures| count(figures, |c| c.duplicates) },
    Column {
        heading: "CPU s/GB here",
        cell: |figures| figures.cpu.map(|cpu| format!("{:.2}", cpu.here)),
    },
    Column {
        heading: "there",
        cell: |figures| figures.cpu.and_then(|cpu| cpu.there).map(|cpu| format!("{cpu:.2}")),
    },
    Column {
        heading: "beside TCP, Mbit/s",
        cell: |figures| {
            figures.beside_tcp.map(|shares| {
                let mbps = |rate: longhaul_proto::units::Rate| rate.as_bps() as f64 / 1e6;
                let share = shares.of_tcp() * 100.0;
                format!("{:.1} + {:.1} ({share:.0} %)", mbps(shares.copy), mbps(shares.tcp))
            })
        },
    },
];

fn count(figures: &Figures, get: fn(&Counts) -> Option<f64>) -> Option<String> {
    figures.counts.as_ref().and_then(get).map(|count| format!("{count:.0}"))
}

/// The cells with headings first, without empty columns.
pub(super) fn cells(setting: &Setting, standings: &[Standing]) -> Vec<Vec<String>> {
    let cell = |column: &Column, standing: &Standing| {
        standing.figures.as_ref().and_then(|figures| (column.cell)(figures))
    };
    let filled: Vec<&Column> = COLUMNS
        .iter()
        .filter(|column| standings.iter().any(|standing| cell(column, standing).is_some()))
        .collect();
    let headings = filled.iter().map(|column| column.heading.to_owned());
    let mut rows =
        vec![["protocol".to_owned(), "runs".to_owned()].into_iter().chain(headings).collect()];
    for standing in standings {
        let runs = match standing.failed {
            0 => standing.runs.to_string(),
            failed => format!("{} of {}", standing.runs - failed, standing.runs),
        };
        let values =
            filled.iter().map(|column| cell(column, standing).unwrap_or_else(|| "-".to_owned()));
        rows.push([setting.name(standing.candidate), runs].into_iter().chain(values).collect());
    }
    rows
}

pub(super) fn lines(setting: &Setting, standings: &[Standing]) -> Vec<String> {
    let mut lines = vec![bold(&setting.title)];
    lines.extend(table::lines(&cells(setting, standings), 1));
    lines.push(format!("  {COUNTED}"));
    lines.extend(setting.notes.iter().map(|note| format!("  {note}.")));
    lines
}

#[cfg(test)]
mod tests {
    use super::super::candidate::Candidate;
    use super::super::runs::{standings, tests::example};
    use super::*;
    use longhaul_experiments::plot::Origin;

    #[test]
    fn the_table_omits_empty_columns_and_shows_failures_and_the_congestion_control() {
        let runs = [example("rbudp", 1, Some(8)), example("rbudp", 2, None)];
        let named = ["rbudp", "tcp:1"].map(|name| Candidate::parse(name).unwrap());
        let setting = Setting {
            title: String::new(),
            notes: Vec::new(),
            rates: "",
            origin: Origin::Emulated,
            congestion: Some("cubic".to_owned()),
        };
        let cells = cells(&setting, &standings(&named, &runs));
        assert!(!cells[0].iter().any(|heading| heading.contains("CPU")));
        assert_eq!(cells[1][..4], ["rbudp", "1 of 2", "8.00 Mbit/s", "8.0–8.0"]);
        assert_eq!(cells[1].last().unwrap(), "8.0 + 1.0 (11 %)");
        assert_eq!(cells[2][..3], ["tcp:1 (cubic)", "0", "-"]);
        assert!(cells.iter().all(|row| row.len() == cells[0].len()));
    }
}
