//! Output of a run: a table of flows, or JSON.

use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::Bytes;
use longhaul_testbed::emu::flows::FlowEnd;
use longhaul_testbed::emu::{Statistics, Verdict};
use serde_json::{Value, json};

use super::play::Played;
use crate::console::bold;
use crate::{link_tally, table};

const HEAD: [&str; 9] =
    ["flow", "by", "delivered", "goodput", "seconds", "sent", "lost", "resent", "waste"];

/// Number of columns with text.
const WORDS: usize = 2;

/// Headings, then a line for each flow. If a flow failed or did not finish, the next line has the
/// reason.
pub(super) fn table(flows: &[FlowEnd]) -> Vec<String> {
    let mut cells: Vec<Vec<String>> = vec![HEAD.map(str::to_owned).to_vec()];
    cells.extend(flows.iter().map(|flow| row(flow).to_vec()));
    let mut lines = Vec::new();
    for (place, line) in table::lines(&cells, WORDS).into_iter().enumerate() {
        lines.push(if place == 0 { bold(&line) } else { line });
        let flow = place.checked_sub(1).map(|place| &flows[place]);
        lines.extend(flow.and_then(trouble).map(|what| format!("    {what}")));
    }
    lines
}

/// Why a flow failed or did not finish.
fn trouble(flow: &FlowEnd) -> Option<String> {
    match (&flow.error, flow.finished, flow.object) {
        (Some(error), ..) => Some(format!("FAILED: {error}")),
        (None, false, Some(object)) => Some(format!("NOT FINISHED: {object} expected")),
        (None, false, None) => Some("NOT FINISHED: the run ended before the flow".into()),
        (None, true, _) => None,
    }
}

fn row(flow: &FlowEnd) -> [String; HEAD.len()] {
    let count = |count: Option<u64>| count.map_or("-".to_owned(), |count| count.to_string());
    [
        flow.name.clone(),
        flow.carrier.clone(),
        flow.delivered.to_string(),
        flow.goodput().to_string(),
        format!("{:.3}", flow.took.as_secs_f64()),
        count(flow.counts.sent),
        count(flow.counts.lost),
        count(flow.counts.retransmitted),
        flow.waste().map_or("-".to_owned(), |waste| format!("{:.2} %", waste * 100.0)),
    ]
}

pub(super) fn flow(flow: &FlowEnd) -> Value {
    let seconds = |spans: &[Span]| spans.iter().map(|span| span.as_secs_f64()).collect::<Vec<_>>();
    let point = |(at, bytes): &(Span, Bytes)| {
        let at = at.as_secs_f64();
        json!({"at_seconds": at, "delivered_bytes": bytes.get()})
    };
    json!({
        "event": "flow",
        "flow": flow.name,
        "by": flow.carrier,
        "from": flow.from,
        "to": flow.to,
        "started_seconds": flow.started.since(Time::ZERO).as_secs_f64(),
        "seconds": flow.took.as_secs_f64(),
        "setup_seconds": flow.setup.as_secs_f64(),
        "finished": flow.finished,
        "error": flow.error,
        "object_bytes": flow.object.map(|object| object.get()),
        "delivered_bytes": flow.delivered.get(),
        "goodput_bps": flow.goodput().as_bps(),
        "waste": flow.waste(),
        "sent": flow.counts.sent,
        "retransmitted": flow.counts.retransmitted,
        "received": flow.counts.received,
        "duplicates": flow.counts.duplicates,
        "lost": flow.counts.lost,
        "reported_lost": flow.counts.reported_lost,
        "blocks": flow.counts.blocks,
        "rounds": flow.counts.rounds,
        "lives_seconds": seconds(&flow.lives),
        "series": flow.series.iter().map(point).collect::<Vec<_>>(),
    })
}

/// The emulator's counters.
pub(super) fn truth(played: &Played, statistics: &Statistics) -> Value {
    let reason = match statistics.verdict() {
        Verdict::Valid => None,
        Verdict::Invalid(reason) => Some(reason),
    };
    let links = statistics.links.iter();
    let links =
        links.map(|link| link_tally::json(&format!("{} > {}", link.from, link.to), &link.tally));
    let hosts = statistics.hosts.iter();
    let hosts = hosts.map(|host| json!({"host": host.host, "socket_drops": host.socket_drops}));
    json!({
        "event": "summary",
        "status": played.status,
        "valid": reason.is_none(),
        "invalid_because": reason,
        "offered": statistics.offered,
        "unrouted": statistics.unrouted,
        "own_drops": statistics.own_drops,
        "burst_drops": statistics.burst_drops,
        "late_p99_seconds": statistics.late.percentile(0.99).as_secs_f64(),
        "late_most_seconds": statistics.late.worst().as_secs_f64(),
        "waited_p99_seconds": statistics.waited.percentile(0.99).as_secs_f64(),
        "waited_most_seconds": statistics.waited.worst().as_secs_f64(),
        "cpu_seconds": statistics.processor.as_secs_f64(),
        "awake_cpu_seconds": statistics.awake.as_secs_f64(),
        "seconds": statistics.elapsed.as_secs_f64(),
        "not_emulated": played.absent,
        "notices": statistics.notices,
        "links": links.collect::<Vec<_>>(),
        "hosts": hosts.collect::<Vec<_>>(),
    })
}
