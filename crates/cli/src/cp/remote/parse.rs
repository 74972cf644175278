//! Parses the events of another host's `--json`. A missing or wrong field gets its default.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use longhaul::accounting::{Origin, ReceiveCapacity};
use longhaul::{BoundBy, Event, Progress, Segments, SourceRow, SourceState, Summary};
use longhaul_proto::law::Found;
use longhaul_proto::time::Span;
use longhaul_proto::units::{LossRatio, Rate};
use serde_json::Value;

use crate::error::{Error, ErrorKind};
use crate::{exit, hex, plain};

/// Parses an event; `None` for an unknown one.
pub(super) fn event(value: &Value) -> Option<Event> {
    let event = one(value)?;
    Some(match value["source"].as_str() {
        Some(source) if !matches!(event, Event::SourceFailed { .. }) => {
            Event::OfSource { source: source.to_owned(), event: Box::new(event) }
        }
        _ => event,
    })
}

fn one(value: &Value) -> Option<Event> {
    let path = path(value, "path");
    Some(match value["event"].as_str()? {
        "progress" => Event::Progress(progress(value)),
        "connected" => Event::Connected {
            peer: text(&value["peer"]),
            address: text(&value["address"]),
            carrier: carrier(&value["carrier"]),
        },
        "resumed" => Event::Resumed { bytes: number(&value["bytes"]) },
        "silent" => {
            let sends = value["stopped"].as_bool().unwrap_or_default();
            Event::Silent { since: span(&value["seconds"]), sends }
        }
        "heard-again" => Event::HeardAgain,
        "reconnecting" => Event::Reconnecting { reason: text(&value["reason"]) },
        "busy" => Event::Busy { reason: text(&value["reason"]) },
        "fallback" => {
            let (carrier, advice) = (text(&value["carrier"]), text(&value["advice"]));
            Event::Fallback { carrier, advice }
        }
        "streams" => {
            let count = u32::try_from(number(&value["count"])).unwrap_or(u32::MAX);
            Event::Streams { count, found: value["found"].as_bool().unwrap_or_default() }
        }
        "file" => Event::FileDone { path },
        "folder" => Event::FolderDone { path },
        "link" => Event::LinkDone { path, target: self::path(value, "target") },
        "skipped" => Event::FileSkipped { path },
        "deleted" => Event::Deleted { path },
        "file-failed" => Event::FileFailed { path, reason: text(&value["reason"]) },
        "source-failed" => {
            let error = error(value);
            let error = longhaul::Error::new(error.kind, error.to_string());
            Event::SourceFailed { source: text(&value["source"]), error }
        }
        "warning" => Event::Warning(text(&value["text"])),
        _ => return None,
    })
}

pub(super) fn error(value: &Value) -> Error {
    let class = value["class"].as_str().unwrap_or_default();
    let kind = ErrorKind::ALL.iter().find(|kind| exit::kind_name(**kind) == class);
    let error = Error::new(kind.copied().unwrap_or(ErrorKind::Unfinished), text(&value["what"]));
    match value["advice"].as_str() {
        Some(advice) => error.advise(plain::text(advice)),
        None => error,
    }
}

fn progress(value: &Value) -> Progress {
    let mut progress = Progress::default();
    for (field, name) in [
        (&mut progress.bytes, "bytes"),
        (&mut progress.total_bytes, "total_bytes"),
        (&mut progress.files, "files"),
        (&mut progress.total_files, "total_files"),
        (&mut progress.sent, "sent"),
        (&mut progress.retransmitted, "retransmitted"),
        (&mut progress.blocks_lost, "blocks_lost"),
    ] {
        *field = number(&value[name]);
    }
    progress.rate_now = rate(&value["rate_now_bps"]);
    progress.rate_average = rate(&value["rate_average_bps"]);
    progress.setup = value["setup_seconds"].is_number().then(|| span(&value["setup_seconds"]));
    progress.left = value["left_seconds"].is_number().then(|| span(&value["left_seconds"]));
    progress.rtt = span(&value["rtt_seconds"]);
    progress.sources = sources(value);
    progress
}

pub(super) fn summary(value: &Value) -> Summary {
    let mut summary = Summary::default();
    for (field, name) in [
        (&mut summary.bytes, "bytes"),
        (&mut summary.files, "files"),
        (&mut summary.copied_files, "copied_files"),
        (&mut summary.copied_bytes, "copied_bytes"),
        (&mut summary.links, "links"),
        (&mut summary.folders, "folders"),
        (&mut summary.deleted, "deleted"),
        (&mut summary.skipped_files, "skipped_files"),
        (&mut summary.unread_files, "unread_files"),
        (&mut summary.failed_files, "failed_files"),
        (&mut summary.failed_sources, "failed_sources"),
        (&mut summary.resumed_bytes, "resumed_bytes"),
        (&mut summary.blocks, "blocks"),
        (&mut summary.path_lost, "path_lost"),
        (&mut summary.socket_lost, "socket_lost"),
        (&mut summary.memory_lost, "memory_lost"),
        (&mut summary.early_lost, "early_lost"),
        (&mut summary.refused_datagrams, "refused_datagrams"),
        (&mut summary.sender.sent, "sent"),
        (&mut summary.sender.retransmitted, "retransmitted"),
        (&mut summary.sender.coded, "coded"),
        (&mut summary.receiver.recovered, "recovered"),
        (&mut summary.receiver.duplicates, "duplicates"),
        (&mut summary.receiver.blocks_lost, "blocks_lost"),
    ] {
        *field = number(&value[name]);
    }
    summary.sender.first = summary.sender.sent.saturating_sub(summary.sender.retransmitted);
    summary.sender.rounds = u32::try_from(number(&value["rounds"])).unwrap_or(u32::MAX);
    summary.payload_bytes = u32::try_from(number(&value["payload_bytes"])).unwrap_or(u32::MAX);
    summary.elapsed = span(&value["seconds"]);
    summary.setup = span(&value["setup_seconds"]);
    summary.rtt = span(&value["rtt_seconds"]);
    summary.goodput = rate(&value["goodput_bps"]);
    summary.rate = rate(&value["rate_bps"]);
    summary.remembered = value["remembered_bps"].as_u64().map(Rate::from_bps);
    summary.first_flight = value["first_flight"].as_bool().unwrap_or_default();
    summary.waste = value["waste"].as_f64().unwrap_or_default();
    summary.verified = value["verified"].as_bool().unwrap_or_default();
    summary.protocol = text(&value["protocol"]);
    summary.cipher = text(&value["cipher"]);
    summary.blake3 = value["blake3"].as_str().map(plain::text);
    summary.bound_by = BoundBy::named(value["bound_by"].as_str().unwrap_or_default());
    summary.receives = receives(&value["receives"]);
    summary.found = found(&value["found"]);
    summary.segments = segments(&value["tcp_segments"]);
    summary.sources = sources(value);
    summary
}

fn found(value: &Value) -> Option<Found> {
    Some(Found {
        rate: Rate::from_bps(value["rate_bps"].as_u64()?),
        after: span(&value["after_seconds"]),
        loss_ppm: (value["path_loss"].as_f64().unwrap_or_default() * 1e6).round() as u32,
        shared: value["shared_seconds"].as_f64().map(Span::from_secs_f64),
        phase: None,
    })
}

fn segments(value: &Value) -> Option<Segments> {
    let sent = value["sent"].as_u64()?;
    Some(Segments { sent, retransmitted: number(&value["retransmitted"]) })
}

fn receives(value: &Value) -> Option<ReceiveCapacity> {
    Some(ReceiveCapacity {
        rate: Rate::from_bps(value["rate_bps"].as_u64()?),
        link: rate(&value["link_bps"]),
        origin: match value["from"].as_str()? {
            "given" => Origin::Given,
            "limit" => Origin::Limit,
            "card" => Origin::Card,
            _ => Origin::Found,
        },
        share: value["share"].as_f64().unwrap_or(1.0),
        others: value["others_bps"].as_u64().map(Rate::from_bps),
    })
}

fn sources(value: &Value) -> Vec<SourceRow> {
    let row = |value: &Value| {
        let mut row = SourceRow::default();
        row.source = text(&value["source"]);
        row.state = state(&value["state"]);
        row.received_bytes = number(&value["received_bytes"]);
        row.rate = rate(&value["rate_bps"]);
        row.share = value["share"].as_f64().unwrap_or_default();
        row.loss = value["loss"].as_f64().and_then(LossRatio::new).unwrap_or_default();
        row.resent = number(&value["resent"]);
        row.refused = number(&value["refused"]);
        row.rtt = span(&value["rtt_seconds"]);
        row
    };
    value["sources"].as_array().into_iter().flatten().map(row).collect()
}

fn state(value: &Value) -> SourceState {
    let all = [
        SourceState::Surveying,
        SourceState::Receiving,
        SourceState::Waiting,
        SourceState::Silent,
        SourceState::Retrying,
        SourceState::Done,
        SourceState::Failed,
    ];
    let named = |state: &SourceState| Some(state.name()) == value.as_str();
    all.into_iter().find(named).unwrap_or_default()
}

fn carrier(value: &Value) -> &'static str {
    let known = ["quic", "tls", "ssh", "https", "http"];
    known.into_iter().find(|name| Some(*name) == value.as_str()).unwrap_or("another way")
}

/// A text with control characters escaped.
fn text(value: &Value) -> String {
    plain::text(value.as_str().unwrap_or_default())
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn rate(value: &Value) -> Rate {
    Rate::from_bps(number(value))
}

fn span(value: &Value) -> Span {
    Span::from_secs_f64(value.as_f64().unwrap_or_default())
}

/// A path, from its bytes if it is not UTF-8.
fn path(value: &Value, field: &str) -> PathBuf {
    let hex = value[format!("{field}_hex")].as_str().and_then(hex::decode);
    match hex {
        Some(bytes) => OsString::from_vec(bytes).into(),
        None => value[field].as_str().unwrap_or_default().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{json, report};

    fn read(line: &str) -> Value {
        serde_json::from_str(line).unwrap()
    }

    fn back(line: &str) -> String {
        event(&read(line)).map_or("nothing".to_owned(), |event| format!("{event:?}"))
    }

    #[test]
    fn each_written_event_parses_to_itself() {
        let path = || PathBuf::from(OsString::from_vec(b"a\xff/b".to_vec()));
        let error = longhaul::Error::new(ErrorKind::Stalled, "nothing");
        let events = [
            Event::Connected { peer: "lh1:x".into(), address: "a:1".into(), carrier: "quic" },
            Event::Connected { peer: "h".into(), address: "h:443".into(), carrier: "https" },
            Event::Resumed { bytes: 7 },
            Event::Silent { since: Span::from_millis(3_500), sends: true },
            Event::HeardAgain,
            Event::Reconnecting { reason: "why".into() },
            Event::Busy { reason: "why".into() },
            Event::Fallback { carrier: "tls".into(), advice: "open".into() },
            Event::Streams { count: 8, found: true },
            Event::FileDone { path: path() },
            Event::FolderDone { path: path() },
            Event::LinkDone { path: path(), target: path() },
            Event::FileSkipped { path: path() },
            Event::Deleted { path: path() },
            Event::FileFailed { path: path(), reason: "full".into() },
            Event::Warning("slow".into()),
        ];
        for event in events {
            let of = Event::OfSource { source: "h".into(), event: Box::new(event.clone()) };
            for event in [event, of] {
                assert_eq!(back(&json::event(&event)), format!("{event:?}"));
            }
        }
        let failed = Event::SourceFailed { source: "h".into(), error };
        let back = super::event(&read(&json::event(&failed))).unwrap();
        assert_eq!(report::event(&back), "h is left out: nothing");
    }

    #[test]
    fn the_printed_summary_is_the_same_on_both_hosts() {
        let mut expected = report::tests::example();
        expected.bound_by = BoundBy::SourceDisk;
        expected.sources = vec![SourceRow::default()];
        let shared = Some(Span::from_secs(3));
        let after = Span::from_millis(200);
        expected.found = Some(Found {
            rate: Rate::from_mbps(900),
            after,
            loss_ppm: 10_001,
            shared,
            phase: None,
        });
        expected.segments = Some(Segments { sent: 9_000, retransmitted: 7 });
        let back = summary(&read(&json::summary(&expected, 0)));
        let lines = |summary: &Summary| report::lines(summary, report::Kind::Copy, true);
        assert_eq!(lines(&back), lines(&expected));
    }

    #[test]
    fn written_progress_parses_to_itself() {
        let mut expected = Progress::default();
        (expected.bytes, expected.total_bytes, expected.files, expected.total_files) = (1, 2, 3, 4);
        (expected.rate_now, expected.rate_average) = (Rate::from_mbps(5), Rate::from_mbps(6));
        expected.left = Some(Span::from_secs(7));
        expected.rtt = Span::from_millis(8);
        assert_eq!(back(&json::progress(&expected)), format!("{:?}", Event::Progress(expected)));
    }

    #[test]
    fn unknown_events_are_ignored_bad_fields_get_defaults_and_control_characters_are_escaped() {
        assert_eq!(back(r#"{"event": "told-later"}"#), "nothing");
        assert_eq!(back(r#"[1, {"event": 5}]"#), "nothing");
        let hostile = r#"{"event": "file", "path": {"a": 1}, "path_hex": "f"}"#;
        assert_eq!(back(hostile), format!("{:?}", Event::FileDone { path: PathBuf::new() }));
        for seconds in ["-1", "1e300", "\"x\"", "null"] {
            let line = format!(r#"{{"seconds": {seconds}, "bytes": -5, "sources": 3}}"#);
            assert_eq!(summary(&read(&line)).bytes, 0);
        }
        let error = error(&read(r#"{"class": "nice", "what": "\u001b[2J"}"#));
        assert_eq!(error.kind, ErrorKind::Unfinished);
        assert!(!error.what.contains('\u{1b}'));
    }
}
