//! The study of Oak Ridge National Laboratory (ORNL), which compares FOBS, RBUDP, SABUL, Tsunami,
//! TCP and UDP. Quoted sentences are from the study.

mod emulated;
mod files;
mod internet;
mod reordering;

use crate::experiment::{Case, Experiment};
use crate::outcome::{CaseFlow, Outcomes};
use crate::quantity::{DUPLICATES, GOODPUT, LOST, Quantity, RETRANSMITTED, SENT};
use crate::scenarios::Variant;
use crate::table::{Published, Row, Table};

pub(crate) const ALL: [&Experiment; 6] = [
    &emulated::MEMORY,
    &emulated::FILE,
    &internet::INTERNET,
    &files::LBL,
    &files::CERN,
    &reordering::REORDERING,
];

/// The study's columns for one run: the rate in Mbit/s, then counts of datagrams; `None` for a
/// missing value.
#[derive(Clone, Copy, Debug, Default)]
struct Columns {
    rate: Option<f64>,
    lost: Option<f64>,
    retransmitted: Option<f64>,
    sent: Option<f64>,
    received: Option<f64>,
    duplicates: Option<f64>,
}

/// Columns for which the study gives rate, lost, retransmitted, sent and duplicates.
const fn columns(values: [f64; 5]) -> Columns {
    let [rate, lost, retransmitted, sent, duplicates] = values;
    Columns {
        rate: Some(rate),
        lost: Some(lost),
        retransmitted: Some(retransmitted),
        sent: Some(sent),
        received: None,
        duplicates: Some(duplicates),
    }
}

/// A program under two conditions: without and with loss, or on a good day and a bad one.
struct Contender {
    /// The program's name on the page.
    name: &'static str,
    /// The program's flow in the scenario.
    flow: &'static str,
    /// The study's values under each condition.
    published: [Columns; 2],
}

const fn contender(
    name: &'static str,
    flow: &'static str,
    first: [f64; 5],
    second: [f64; 5],
) -> Contender {
    Contender { name, flow, published: [columns(first), columns(second)] }
}

fn case_name(contender: &str, condition: &str) -> String {
    format!("{contender}, {condition}")
}

/// Each contender alone under each condition.
fn runs(
    contenders: &[Contender],
    conditions: [&str; 2],
    vary: impl Fn(&Contender, usize) -> Variant,
    case: impl Fn(&Contender, String, Variant) -> Case,
) -> Vec<Case> {
    let mut cases = Vec::new();
    for contender in contenders {
        for (index, condition) in conditions.iter().enumerate() {
            let variant = vary(contender, index).only(&[contender.flow]);
            cases.push(case(contender, case_name(contender.name, condition), variant));
        }
    }
    cases
}

/// A table for each condition, with rows for each contender.
fn tables(contenders: &[Contender], conditions: [&str; 2], outcomes: &Outcomes) -> Vec<Table> {
    let table = |(index, condition): (usize, &str)| {
        let rows = contenders.iter().flat_map(|contender| {
            let case = case_name(contender.name, condition);
            rows(&case, &contender.published[index], outcomes)
        });
        Table::new(condition, rows.collect())
    };
    conditions.into_iter().enumerate().map(table).collect()
}

/// The quantity, the study's value, and our value.
type Column = (Quantity, Option<f64>, fn(&CaseFlow) -> f64);

/// The rows of a run in the study's order: only the quantities that the study gives.
fn rows(case: &str, published: &Columns, outcomes: &Outcomes) -> Vec<Row> {
    let columns: [Column; 6] = [
        (GOODPUT, published.rate, CaseFlow::goodput),
        (LOST, published.lost, |flow| flow.reported_lost.number()),
        (RETRANSMITTED, published.retransmitted, |flow| flow.retransmitted.number()),
        (SENT, published.sent, |flow| flow.sent.number()),
        (crate::quantity::RECEIVED, published.received, |flow| flow.received.number()),
        (DUPLICATES, published.duplicates, |flow| flow.duplicates.number()),
    ];
    let told = columns.into_iter().filter(|(_, published, _)| published.is_some());
    told.map(|(quantity, published, ours)| Row {
        published: published.map(Published::Exact),
        ..Row::new(case, quantity, outcomes.first(case, ours))
    })
    .collect()
}
