//! The events of `compare --json`, except `error`.

use serde_json::{Map, Value, json};

use super::Setting;
use super::runs::{Counts, Cpu, Run, Shares, Standing};

pub(super) fn run(run: &Run) -> Value {
    let mut value = Map::new();
    let mut put = |name: &str, what: Value| value.insert(name.to_owned(), what);
    put("event", json!("run"));
    put("protocol", json!(run.candidate.to_string()));
    put("turn", json!(run.turn));
    put("seed", json!(run.seed));
    put("error", json!(run.end.as_ref().err()));
    if let Ok(measured) = &run.end {
        put("bytes", json!(measured.bytes.get()));
        put("seconds", json!(measured.took.as_secs_f64()));
        put("goodput_bps", json!(measured.goodput.as_bps()));
        let series: Vec<Value> = measured
            .rates
            .iter()
            .map(|(at, mbps)| json!({"at_seconds": at, "rate_bps": (mbps * 1e6).round() as u64}))
            .collect();
        common(&mut value, measured.counts, measured.cpu, measured.beside_tcp);
        value.insert("series".to_owned(), Value::Array(series));
    }
    Value::Object(value)
}

pub(super) fn summary(setting: &Setting, standings: &[Standing], status: u8) -> Value {
    json!({
        "event": "summary",
        "status": status,
        "title": setting.title,
        "notes": setting.notes,
        "protocols": standings.iter().map(|one| standing(setting, one)).collect::<Vec<_>>(),
    })
}

fn standing(setting: &Setting, standing: &Standing) -> Value {
    let mut value = Map::new();
    value.insert("protocol".to_owned(), json!(standing.candidate.to_string()));
    value.insert("congestion".to_owned(), json!(setting.congestion_of(standing.candidate)));
    value.insert("runs".to_owned(), json!(standing.runs));
    value.insert("failed".to_owned(), json!(standing.failed));
    if let Some(figures) = &standing.figures {
        let goodputs = [
            ("goodput_bps", figures.goodput),
            ("goodput_least_bps", figures.least),
            ("goodput_most_bps", figures.most),
        ];
        value.extend(goodputs.map(|(name, rate)| (name.to_owned(), json!(rate.as_bps()))));
        common(&mut value, figures.counts, figures.cpu, figures.beside_tcp);
    }
    Value::Object(value)
}

/// A field is null if it was not measured.
fn common(
    value: &mut Map<String, Value>,
    counts: Option<Counts>,
    cpu: Option<Cpu>,
    shares: Option<Shares>,
) {
    let of = |get: fn(&Counts) -> Option<f64>| json!(counts.as_ref().and_then(get));
    let names = [
        ("waste", of(|counts| Some(counts.waste))),
        ("retransmitted", of(|counts| Some(counts.retransmitted))),
        ("path_lost", of(|counts| counts.path_lost)),
        ("blocks_lost", of(|counts| counts.blocks_lost)),
        ("reported_lost", of(|counts| counts.reported_lost)),
        ("duplicates", of(|counts| counts.duplicates)),
        ("cpu_here_seconds_per_gb", json!(cpu.map(|cpu| cpu.here))),
        ("cpu_there_seconds_per_gb", json!(cpu.and_then(|cpu| cpu.there))),
        ("beside_tcp_goodput_bps", json!(shares.map(|shares| shares.copy.as_bps()))),
        ("beside_tcp_tcp_bps", json!(shares.map(|shares| shares.tcp.as_bps()))),
        ("beside_tcp_tcp_share", json!(shares.map(|shares| shares.of_tcp()))),
    ];
    value.extend(names.map(|(name, what)| (name.to_owned(), what)));
}
