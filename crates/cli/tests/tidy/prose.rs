//! What the pages of experiments say below their tables follows from these tables.
//!
//! A number of the prose is one of the page's tables, rounded as it is written, or of what the page
//! says that was run, or of a page that its sentence names. What is worked out from the tables is
//! worked out again ([`worked_out`]); what a paper says beside its tables, and what is
//! arithmetic on settings, is named ([`CONSTANTS`]).

use std::fs;

use super::figures::{is_rounded, numbers, written};
use super::root;
use super::worked_out::worked_out;

const PROSE: &str = "## What differs from the paper, and why\n";
/// Units that tables have; other numbers are compared without one.
const UNITS: [&str; 4] = ["%", "points", "Mbit/s", "s"];
/// After these, a number is a name.
const NAMED: [&str; 6] = ["section ", "sections ", "equation ", "Fig. ", "Table ", "Figure "];

/// Pages, and what of their prose is in no table: what the papers say elsewhere, and arithmetic on
/// settings that no run can change.
const CONSTANTS: [(&str, &[&str]); 24] = [
    (
        "fobs-fig1",
        &["39,063 packets", "5 kB, or 39 kB", "72 packets", "every 180 on", "91.3 %", "11 packets"],
    ),
    ("fobs-table1", &["1.8 times TCP"]),
    ("gtp-fig10", &["object are 796"]),
    ("gtp-fig11", &["0.3 % of a full link's packets"]),
    ("gtp-fig9", &["link of 1000", "936 for the object"]),
    ("gtp-scale", &["64 blocks"]),
    ("gtp-table2", &["900 of 1000 Mbit/s", "9.04 Mbit/s", "35 kB", "936 Mbit/s"]),
    ("gtp-table4", &["9 Mbit/s each", "0.8 ms away", "900 of 1000 Mbit/s"]),
    ("gtp-table5", &["0.3 % at 954 Mbit/s", "834 of 879 Mbit/s", "701 of 1028"]),
    ("ornl-cern", &["1440 bytes"]),
    (
        "ornl-file",
        &["100 MiB", "79.9 Mbit/s", "1616 times", "20 ms", "1440 bytes", "146,219 to 146,421"],
    ),
    ("ornl-internet", &["16 kB"]),
    ("ornl-lbl", &["47.9 Mbit/s", "4,700 drops", "1440 bytes", "146,219 to 146,421"]),
    (
        "ornl-memory",
        &[
            "1440 bytes",
            "RBUDP 1452, FOBS 1466, SABUL 1468",
            "110 to 118 µs",
            "102 to 109 Mbit/s",
            "86 Mbit/s",
        ],
    ),
    ("ornl-reorder", &["139,000 packets", "87 Mbit/s", "17.6 ms", "10,000 packets"]),
    ("quanta-fig7", &["13.6 % of the payload"]),
    ("quanta-first-version", &["560 Mbit/s"]),
    ("quanta-streaming", &["0.1 s, a fifth"]),
    ("sabul-fig2", &["93.6 %", "6.4 points"]),
    ("sabul-fig3", &["after 40 s", "936 Mbit/s"]),
    ("sabul-fig5", &["936 Mbit/s"]),
    ("sabul-fig6", &["4 ms", "10 ms"]),
    ("sabul-fig7", &["114 Mbit/s"]),
    ("sabul-tcp", &["600 to 671 Mbit/s"]),
];

/// A number that prose may have.
struct Known {
    value: f64,
    unit: String,
    /// It is a setting: its unit may stand elsewhere in the sentence.
    setting: bool,
}

/// The tables of a page.
pub(super) struct Cells {
    /// Each row, its cells under the headings of its table.
    rows: Vec<Vec<(String, String)>>,
}

impl Cells {
    fn read(page: &str) -> Cells {
        let cells = |line: &str| -> Vec<String> {
            line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
        };
        let (mut rows, mut headings) = (Vec::new(), Vec::new());
        for line in page.lines() {
            if !line.starts_with('|') {
                headings.clear();
            } else if headings.is_empty() {
                headings = cells(line);
            } else if !line.starts_with("| ---") {
                rows.push(headings.iter().cloned().zip(cells(line)).collect());
            }
        }
        Cells { rows }
    }

    /// The number of a case and a quantity in this column.
    pub(super) fn value(&self, case: &str, what: &str, column: &str) -> f64 {
        let of = |row: &[(String, String)], heading: &str| -> String {
            let cell = row.iter().find(|(name, _)| name == heading);
            cell.map(|(_, cell)| cell.clone()).unwrap_or_default()
        };
        let row = self.rows.iter().find(|row| of(row, "case") == case && of(row, "what") == what);
        let cell = row.map(|row| of(row, column)).unwrap_or_default();
        let number = numbers(&cell).first().map(|(value, _)| *value);
        number.unwrap_or_else(|| panic!("no row {case} | {what} with {column}"))
    }

    /// Every number of every row, with its unit.
    fn known(&self) -> Vec<Known> {
        let mut known = Vec::new();
        for row in &self.rows {
            let what = row.iter().find(|(heading, _)| heading == "what");
            let unit =
                what.and_then(|(_, what)| what.rsplit_once(", ")).map_or("", |(_, unit)| unit);
            for (heading, cell) in row {
                let own = match &**heading {
                    "what" | "aim met" | "run" => continue,
                    "published" | "model" | "aim" | "simulated" | "emulated" => Some(unit),
                    _ => None,
                };
                let with_units = quantities(cell).into_iter();
                known.extend(with_units.map(|(number, _, found)| Known {
                    value: number.0,
                    unit: own.unwrap_or(found).to_owned(),
                    setting: false,
                }));
            }
        }
        known
    }
}

/// The unit that a text begins with.
fn unit(text: &str) -> &'static str {
    let text = text.strip_prefix(' ').unwrap_or(text);
    let begins = |unit: &&&str| {
        let rest = text.strip_prefix(**unit);
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
    };
    UNITS.iter().find(begins).copied().unwrap_or_default()
}

/// The numbers of a text (value and decimals) with what stands around each, and its unit; that of
/// `12 to 14 %` is said once.
pub(super) fn quantities(text: &str) -> Vec<((f64, usize), &str, &'static str)> {
    let all = written(text);
    let mut found: Vec<((f64, usize), &str, &'static str)> = Vec::new();
    for (place, number) in all.iter().enumerate().rev() {
        let (before, after) = (&text[..number.at.start], &text[number.at.end..]);
        if NAMED.iter().any(|name| before.ends_with(name)) {
            continue;
        }
        let mut own = unit(after);
        let next = all.get(place + 1).map(|next| &text[number.at.end..next.at.start]);
        if own.is_empty() && matches!(next, Some(" to " | " and " | " or ")) {
            own = found.last().map_or("", |(_, _, unit)| unit);
        }
        let end = after.char_indices().nth(25).map_or(text.len(), |(at, _)| number.at.end + at);
        found.push(((number.value, number.decimals), &text[number.at.start..end], own));
    }
    found.reverse();
    found
}

/// The part of a page between two headings.
fn between<'p>(page: &'p str, from: &str, to: &str) -> &'p str {
    let rest = after(page, from);
    &rest[..rest.find(to).unwrap_or(rest.len())]
}

/// The part of a page after a heading.
fn after<'p>(page: &'p str, from: &str) -> &'p str {
    page.find(from).map_or("", |at| &page[at + from.len()..])
}

/// The names of the pages beside it that a text links.
fn linked(text: &str) -> Vec<&str> {
    let links = text.split("](").skip(1).filter_map(|link| link.split(')').next());
    links.filter(|link| link.ends_with(".md") && !link.contains('/')).collect()
}

/// A text without what is no prose: the targets of links, and code.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    for (place, piece) in text.split('`').enumerate() {
        if place % 2 == 0 {
            plain += piece;
        }
    }
    let mut parts = plain.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once(')').map_or("", |(_, rest)| rest))
}

fn settings(page: &str) -> Vec<Known> {
    let run = plain(between(page, "## What is run\n", "\nScenario:"));
    let found = quantities(&run).into_iter();
    let known = found.map(|((value, _), _, unit)| (value, unit.to_owned()));
    known.map(|(value, unit)| Known { value, unit, setting: true }).collect()
}

/// What of the prose of the page `name` does not follow from it; `other` reads the pages beside it.
fn unfounded(name: &str, page: &str, other: impl Fn(&str) -> String) -> Vec<String> {
    let cells = Cells::read(between(page, "## Results\n", PROSE));
    let mut known = cells.known();
    known.extend(settings(page));
    for link in linked(between(page, "## What is run\n", "\nScenario:")) {
        known.extend(settings(&other(link)));
    }
    let mut prose = after(page, PROSE).to_owned();
    let mut wrong = Vec::new();
    for constant in CONSTANTS.iter().filter(|(of, _)| *of == name).flat_map(|(_, all)| *all) {
        if !prose.contains(constant) {
            wrong.push(format!("{name}: no longer says '{constant}'"));
        }
        prose = prose.replace(constant, "…");
    }
    let told: Vec<_> = plain(&prose).split(". ").flat_map(owned_quantities).collect();
    for (unit, value) in worked_out(name, &cells) {
        if !told.iter().any(|(number, _, own)| is_rounded(value, *number) && *own == unit) {
            wrong.push(format!("{name}: does not say {value:.2} {unit}, which is worked out"));
        }
        known.push(Known { value, unit: unit.to_owned(), setting: false });
    }
    for sentence in prose.split(". ") {
        let elsewhere: Vec<f64> = linked(sentence)
            .into_iter()
            .flat_map(|link| numbers(&other(link)))
            .map(|(value, _)| value)
            .collect();
        for (number, around, unit) in owned_quantities(&plain(sentence)) {
            let fits = |known: &Known| {
                let same = unit.is_empty() || unit == known.unit;
                (same || known.setting && known.unit.is_empty()) && is_rounded(known.value, number)
            };
            let there = elsewhere.iter().any(|value| is_rounded(*value, number));
            if !there && !known.iter().any(fits) {
                wrong.push(format!("{name}: '{around}' is in no table of the page"));
            }
        }
    }
    wrong
}

fn owned_quantities(text: &str) -> Vec<((f64, usize), String, &'static str)> {
    let found = quantities(text).into_iter();
    found.map(|(number, around, unit)| (number, around.to_owned(), unit)).collect()
}

/// What an experiment's page says, as values with their units; nothing of other pages.
pub(super) fn said(page: &str) -> Option<Vec<(f64, String)>> {
    page.contains(PROSE).then(|| {
        let tables = Cells::read(between(page, "## Results\n", PROSE)).known().into_iter();
        let settings = settings(page).into_iter();
        let known = tables.chain(settings).map(|known| (known.value, known.unit));
        let prose = plain(after(page, PROSE));
        let told = quantities(&prose).into_iter();
        known.chain(told.map(|((value, _), _, unit)| (value, unit.to_owned()))).collect()
    })
}

/// The pages of experiments: names and texts.
fn pages() -> Vec<(String, String)> {
    let all = super::files("results", "md").into_iter();
    let named = all.filter_map(|file| {
        let name = file.path.strip_prefix("results/")?.strip_suffix(".md")?.to_owned();
        Some((name, file.text))
    });
    named.filter(|(_, text)| text.contains(PROSE)).collect()
}

fn beside(name: &str) -> String {
    fs::read_to_string(root().join("results").join(name)).unwrap_or_default()
}

#[test]
fn each_number_below_the_tables_follows_from_them() {
    let pages = pages();
    assert!(pages.len() > 25, "only {} pages were found", pages.len());
    let named = CONSTANTS.iter().all(|(name, _)| pages.iter().any(|(page, _)| page == name));
    assert!(named, "a page of the exceptions is not there");
    super::none(
        pages.iter().flat_map(|(name, text)| unfounded(name, text, beside)).collect(),
        "numbers of results/ that do not follow from their pages; the texts are in \
         crates/experiments/src",
    );
}

#[test]
fn a_page_with_published_values_says_where_ours_is_better_or_worse() {
    let silent = pages().into_iter().filter(|(_, text)| {
        let learned = after(text, "## What we learn\n");
        text.contains("| published |") && !["better", "worse"].iter().any(|w| learned.contains(w))
    });
    super::none(silent.map(|(name, _)| name).collect(), "pages without a word on better or worse");
}

#[test]
fn a_stale_number_is_told_from_one_of_the_table() {
    let page = "## What is run\n\n40 MB over 26 ms.\n\nScenario: x\n\n## Results\n\n\
        | case | what | published | simulated | difference |\n\
        | --- | --- | ---: | ---: | ---: |\n\
        | FOBS, loss 3 % | goodput, Mbit/s | 76 | 85.19 | +12.1 % |\n\n";
    let told = |prose: &str| {
        let page = format!("{page}{PROSE}\n{prose}\n\n## What we learn\n\nNothing.\n");
        unfounded("x", &page, |name| format!("{name} has 17"))
    };
    let right = "85.2 Mbit/s of 40 MB, 12 % more than 76 (section 9, `tail-copies 5`).";
    assert_eq!(told(right), [""; 0]);
    assert_eq!(told("It is 17 in [y](y.md)."), [""; 0]);
    for stale in ["12 Mbit/s", "85.1 Mbit/s", "11 to 12 %", "85 %", "41 MB", "17. See [y](y.md)"] {
        assert_eq!(told(stale).len(), 1, "{stale}: {:?}", told(stale));
    }
}
