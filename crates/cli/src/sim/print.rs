//! Output of a run: table, JSON or CSV.

use longhaul_proto::time::{Span, Time};
use longhaul_testbed::sim::{Accounts, FlowOutcome, LinkOutcome, Point};
use serde_json::{Map, Value, json};

use super::Run;
use crate::console::bold;
use crate::{link_tally, table};

const HEAD: [&str; 9] =
    ["flow", "by", "goodput", "waste", "lost", "reported", "duplicates", "finished", "known"];

/// Number of columns with text, at the left.
const WORDS: usize = 2;

pub(super) fn title(run: &Run) -> String {
    let settings = run.settings.iter().filter(|(key, _)| key != "seed");
    let set: String = settings.map(|(key, value)| format!(", {key} {value}")).collect();
    format!("{}, seed {}{set}", run.outcome.scenario, run.outcome.seed)
}

/// Title, headings, and one line for each flow.
pub(super) fn table(run: &Run) -> Vec<String> {
    let mut cells: Vec<Vec<String>> = vec![HEAD.map(str::to_owned).to_vec()];
    cells.extend(run.outcome.flows.iter().map(|flow| row(flow).to_vec()));
    let title = bold(&title(run));
    std::iter::once(title).chain(table::lines(&cells, WORDS)).collect()
}

fn row(flow: &FlowOutcome) -> [String; HEAD.len()] {
    let time = |time: Option<Time>| {
        time.map_or("-".to_owned(), |time| time.since(flow.started).to_string())
    };
    let accounts = &flow.accounts;
    [
        flow.name.clone(),
        flow.carrier.clone(),
        flow.goodput.to_string(),
        format!("{:.2} %", flow.waste * 100.0),
        (accounts.dropped + accounts.socket_lost).to_string(),
        accounts.reported_lost.to_string(),
        accounts.duplicates.to_string(),
        time(flow.finished),
        time(flow.known),
    ]
}

fn counts(accounts: &Accounts) -> [(&'static str, u64); 19] {
    let a = accounts;
    [
        ("sent", a.sent),
        ("first", a.first),
        ("retransmitted", a.retransmitted),
        ("received", a.received),
        ("distinct", a.distinct),
        ("duplicates", a.duplicates),
        ("path_lost", a.path_lost),
        ("blocks_lost", a.blocks_lost),
        ("reported_lost", a.reported_lost),
        ("dropped", a.dropped),
        ("queue_full", a.queue_full),
        ("socket_lost", a.socket_lost),
        ("copied", a.copied),
        ("replayed", a.replayed),
        ("corrupted", a.corrupted),
        ("in_flight", a.in_flight),
        ("rounds", a.rounds.into()),
        ("timeouts", a.timeouts),
        ("controls", a.controls),
    ]
}

fn seconds(span: Span) -> f64 {
    span.as_secs_f64()
}

fn since_start(time: Time) -> f64 {
    seconds(time.since(Time::ZERO))
}

/// A flow, without its series and the lifetimes of its connections.
fn flow(flow: &FlowOutcome) -> Vec<(&'static str, Value)> {
    let mut values = vec![
        ("flow", json!(flow.name)),
        ("by", json!(flow.carrier)),
        ("from", json!(flow.from)),
        ("to", json!(flow.to)),
        ("rtt_seconds", json!(seconds(flow.rtt))),
        ("started_seconds", json!(since_start(flow.started))),
        ("finished_seconds", json!(flow.finished.map(since_start))),
        ("known_seconds", json!(flow.known.map(since_start))),
        ("object_bytes", json!(flow.object.map(|object| object.get()))),
        ("delivered_bytes", json!(flow.delivered.get())),
        ("goodput_bps", json!(flow.goodput.as_bps())),
        ("waste", json!(flow.waste)),
        ("stall_seconds", json!(seconds(flow.stall))),
    ];
    values.extend(counts(&flow.accounts).map(|(name, count)| (name, json!(count))));
    values
}

fn point(point: &Point) -> Value {
    json!({
        "at_seconds": since_start(point.at),
        "received_bytes": point.received.get(),
        "delivered_bytes": point.delivered.get(),
        "reported_lost": point.reported_lost,
        "duplicates": point.duplicates,
        "rate_bps": point.rate.as_bps(),
    })
}

fn link(link: &LinkOutcome) -> Value {
    let mut value = link_tally::json(&link.name, &link.tally);
    value["queue_max_bytes"] = link.queue_max.get().into();
    value
}

pub(super) fn json(run: &Run) -> Value {
    let outcome = &run.outcome;
    let settings = run.settings.iter().map(|(key, value)| (key.clone(), json!(value)));
    let flows = outcome.flows.iter().map(|one| {
        let mut values: Map<String, Value> =
            flow(one).into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let lives: Vec<f64> = one.lives.iter().map(|life| seconds(*life)).collect();
        values.insert("lives_seconds".into(), json!(lives));
        values.insert("series".into(), one.series.iter().map(point).collect());
        Value::Object(values)
    });
    json!({
        "event": "run",
        "scenario": outcome.scenario,
        "seed": outcome.seed,
        "settings": settings.collect::<Map<String, Value>>(),
        "ended_seconds": since_start(outcome.ended),
        "timed_out": outcome.timed_out,
        "events": outcome.events,
        "packets": outcome.packets,
        "flows": flows.collect::<Vec<Value>>(),
        "links": outcome.links.iter().map(link).collect::<Vec<Value>>(),
    })
}

/// A line of column names, then one line for each flow of each run.
pub(super) fn csv(runs: &[Run]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for run in runs {
        for one in &run.outcome.flows {
            let seed = (String::from("seed"), json!(run.outcome.seed));
            let settings = run.settings.iter().filter(|(key, _)| key != "seed");
            let settings = settings.map(|(key, value)| (key.clone(), json!(value)));
            let values = flow(one).into_iter().map(|(name, value)| (name.to_owned(), value));
            let all: Vec<(String, Value)> =
                core::iter::once(seed).chain(settings).chain(values).collect();
            let join = |cells: Vec<String>| cells.join(",");
            if lines.is_empty() {
                lines.push(join(all.iter().map(|(name, _)| cell(&json!(name))).collect()));
            }
            lines.push(join(all.iter().map(|(_, value)| cell(value)).collect()));
        }
    }
    lines
}

/// Formats a value for CSV (RFC 4180); null is empty.
fn cell(value: &Value) -> String {
    let text = match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_quoted_only_if_necessary() {
        assert_eq!(cell(&json!("mice, tcp \"cubic\"")), "\"mice, tcp \"\"cubic\"\"\"");
        assert_eq!(cell(&json!("a\rb")), "\"a\rb\"");
        assert_eq!(
            (cell(&json!("tcp")), cell(&json!(0.5)), cell(&Value::Null)),
            ("tcp".into(), "0.5".into(), String::new())
        );
    }
}
