//! `--json`: one object a line on stdout, each with its `event`. docs/events.md lists the events
//! and their fields.
//!
//! If a field has a unit, its name ends with the unit, such as `seconds` or `bps` (bits a second).
//! If the path of an entry (file, folder or link) is not UTF-8, its field has replacement
//! characters. A second field, whose name ends in `_hex`, then has all bytes of the path.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use longhaul::accounting::ReceiveCapacity;
use longhaul::units::Phase;
use longhaul::{
    Event, Location, Moved, PathSample, Progress, RoomStatus, Segments, ServedClient, ServerEvent,
    ServerStatus, ServerTotals, SourceRow, StreamStatus, Summary, TransferStatus,
};
use longhaul_gateway::AccessRecord;
use longhaul_proto::units::Rate;
use serde::Serialize;
use serde_json::{Value, json};

use crate::error::Error;
use crate::{exit, hex, report, utc};

pub(crate) fn start(sources: &[Location], destination: &Location, protocol: &str) -> String {
    line(&json!({
        "event": "start",
        "version": env!("CARGO_PKG_VERSION"),
        "sources": sources.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "destination": destination.to_string(),
        "protocol": protocol,
    }))
}

pub(crate) fn progress(progress: &Progress) -> String {
    line(&progress_value(progress))
}

/// A `sample` event: the rates, queue and loss of a copy's path, `at` after the start.
pub(crate) fn sample(progress: &Progress, at: Duration) -> String {
    let PathSample { rate, delivered, queue, loss, phase, .. } = progress.path;
    line(&json!({
        "event": "sample",
        "seconds": at.as_secs_f64(),
        "rate_bps": rate.as_bps(),
        "delivered_bps": delivered.as_bps(),
        "queue_seconds": queue.as_secs_f64(),
        "loss": loss.get(),
        "phase": phase.map(Phase::name),
    }))
}

fn progress_value(progress: &Progress) -> Value {
    json!({
        "event": "progress",
        "bytes": progress.bytes,
        "total_bytes": progress.total_bytes,
        "files": progress.files,
        "total_files": progress.total_files,
        "rate_now_bps": progress.rate_now.as_bps(),
        "rate_average_bps": progress.rate_average.as_bps(),
        "setup_seconds": progress.setup.map(|setup| setup.as_secs_f64()),
        "left_seconds": progress.left.map(|left| left.as_secs_f64()),
        "sent": progress.sent,
        "retransmitted": progress.retransmitted,
        "blocks_lost": progress.blocks_lost,
        "rtt_seconds": progress.rtt.as_secs_f64(),
        "sources": sources(&progress.sources),
    })
}

/// An object for each of several sources.
fn sources(rows: &[SourceRow]) -> Vec<Value> {
    let one = |row: &SourceRow| {
        json!({
            "source": row.source,
            "state": row.state.name(),
            "received_bytes": row.received_bytes,
            "rate_bps": row.rate.as_bps(),
            "share": row.share,
            "loss": row.loss.get(),
            "resent": row.resent,
            "refused": row.refused,
            "rtt_seconds": row.rtt.as_secs_f64(),
        })
    };
    rows.iter().map(one).collect()
}

pub(crate) fn event(event: &Event) -> String {
    line(&event_value(event))
}

fn event_value(event: &Event) -> Value {
    match event {
        Event::Connected { peer, address, carrier } => {
            json!({"event": "connected", "peer": peer, "address": address, "carrier": carrier})
        }
        Event::Resumed { bytes } => json!({"event": "resumed", "bytes": bytes}),
        Event::Silent { since, sends } => {
            json!({"event": "silent", "seconds": since.as_secs_f64(), "stopped": sends})
        }
        Event::HeardAgain => json!({"event": "heard-again"}),
        Event::Reconnecting { reason } => json!({"event": "reconnecting", "reason": reason}),
        Event::Busy { reason } => json!({"event": "busy", "reason": reason}),
        Event::Fallback { carrier, advice } => {
            json!({"event": "fallback", "carrier": carrier, "advice": advice})
        }
        Event::Streams { count, found } => {
            json!({"event": "streams", "count": count, "found": found})
        }
        Event::FileDone { path: file } => of_path("file", file),
        Event::FolderDone { path: folder } => of_path("folder", folder),
        Event::LinkDone { path: link, target } => {
            let mut value = of_path("link", link);
            put_path(&mut value, "target", target);
            value
        }
        Event::FileSkipped { path: file } => of_path("skipped", file),
        Event::Deleted { path: name } => of_path("deleted", name),
        Event::FileFailed { path: file, reason } => {
            let mut value = of_path("file-failed", file);
            value["reason"] = json!(reason);
            value
        }
        Event::SourceFailed { source, error } => {
            let mut value = json!({"event": "source-failed", "source": source});
            put_error(&mut value, &Error::from(error.clone()));
            value
        }
        Event::OfSource { source, event } => {
            let mut value = event_value(event);
            value["source"] = json!(source);
            value
        }
        Event::Warning(text) => json!({"event": "warning", "text": text}),
        Event::Progress(progress) => progress_value(progress),
        Event::Lagged(count) => json!({"event": "lagged", "count": count}),
        // A newer library may have more events.
        other => json!({"event": "other", "text": format!("{other:?}")}),
    }
}

fn of_path(event: &str, path: &Path) -> Value {
    let mut value = json!({"event": event});
    put_path(&mut value, "path", path);
    value
}

/// Sets `field` to the path. If it is not UTF-8, also sets `field` + `_hex` to its bytes, because
/// two such paths may look the same.
pub(crate) fn put_path(value: &mut Value, field: &str, path: &Path) {
    value[field] = json!(path.display().to_string());
    if path.to_str().is_none() {
        value[format!("{field}_hex")] = hex::encode(path.as_os_str().as_bytes()).into();
    }
}

pub(crate) fn summary(summary: &Summary, status: u8) -> String {
    let Summary { sender, receiver, .. } = summary;
    let mut value = json!({
        "event": "summary",
        "status": status,
        "bytes": summary.bytes,
        "files": summary.files,
        "skipped_files": summary.skipped_files,
        "unread_files": summary.unread_files,
        "failed_files": summary.failed_files,
        "failed_sources": summary.failed_sources,
        "seconds": summary.elapsed.as_secs_f64(),
        "setup_seconds": summary.setup.as_secs_f64(),
        "last_block_seconds": summary.last_block.map(|at| at.as_secs_f64()),
        "cpu_seconds": summary.cpu.as_secs_f64(),
        "goodput_bps": summary.goodput.as_bps(),
        "protocol": summary.protocol,
        "rate_bps": summary.rate.as_bps(),
        "remembered_bps": summary.remembered.map(|rate| rate.as_bps()),
        "found": summary.found.map(|found| json!({
            "rate_bps": found.rate.as_bps(),
            "after_seconds": found.after.as_secs_f64(),
            "path_loss": f64::from(found.loss_ppm) / 1e6,
            "shared_seconds": found.shared.map(|shared| shared.as_secs_f64()),
        })),
        "rtt_seconds": summary.rtt.as_secs_f64(),
        "payload_bytes": summary.payload_bytes,
        "blocks": summary.blocks,
        "path_lost": summary.path_lost,
        "blocks_lost": receiver.blocks_lost,
        "reported_lost": sender.reported_lost,
        "socket_lost": summary.socket_lost,
        "memory_lost": summary.memory_lost,
        "early_lost": summary.early_lost,
        "refused_datagrams": summary.refused_datagrams + receiver.refused,
        "retransmitted": sender.retransmitted,
        "sent": sender.sent,
        "received": receiver.received,
        "duplicates": receiver.duplicates,
        "waste": summary.waste,
        "tcp_segments": summary.segments.map(segments),
        "bound_by": summary.bound_by.name(),
        "rounds": sender.rounds,
        "resumed_bytes": summary.resumed_bytes,
        "cipher": summary.cipher,
        "blake3": summary.blake3,
        "verified": summary.verified,
        "receives": summary.receives.map(receives),
        "sources": sources(&summary.sources),
    });
    let made = [
        ("copied_files", summary.copied_files),
        ("copied_bytes", summary.copied_bytes),
        ("links", summary.links),
        ("folders", summary.folders),
        ("deleted", summary.deleted),
        ("coded", sender.coded),
        ("recovered", receiver.recovered),
    ];
    for (name, count) in made {
        value[name] = json!(count);
    }
    value["first_flight"] = json!(summary.first_flight);
    line(&value)
}

/// Counters of the kernel's TCP.
fn segments(Segments { sent, retransmitted }: Segments) -> Value {
    json!({"sent": sent, "retransmitted": retransmitted})
}

/// The receiving host's capacity.
fn receives(capacity: ReceiveCapacity) -> Value {
    json!({
        "rate_bps": capacity.rate.as_bps(),
        "link_bps": capacity.link.as_bps(),
        "from": report::origin(capacity.origin),
        "share": capacity.share,
        "others_bps": capacity.others.map(Rate::as_bps),
    })
}

pub(crate) fn error(error: &Error, status: u8) -> String {
    let mut value = json!({"event": "error", "status": status});
    put_error(&mut value, error);
    line(&value)
}

pub(crate) fn put_error(value: &mut Value, error: &Error) {
    value["class"] = json!(exit::kind_name(error.kind));
    value["what"] = json!(error.what);
    value["advice"] = json!(error.advice);
}

/// Result of a request: `failed` after an error, or if files failed and none was copied; `partial`
/// if only some files failed; otherwise `done`.
pub(crate) fn served_result(moved: &Moved, has_error: bool) -> &'static str {
    match moved {
        _ if has_error => "failed",
        Moved { failed: 0, .. } => "done",
        Moved { files: 0, .. } => "failed",
        _ => "partial",
    }
}

/// The event of a refused HTTP request, with the fields of [`ServerEvent::Refused`].
pub(crate) fn refused(address: std::net::SocketAddr, error: &Error) -> String {
    let mut value = json!({"event": "refused", "address": address.to_string()});
    put_error(&mut value, error);
    value["time"] = json!(utc::now());
    line(&value)
}

/// An event of a server; `None` for an event that only a newer library has.
pub(crate) fn server_event(event: &ServerEvent) -> Option<String> {
    let of = |name: &str, client: &ServedClient| {
        json!({
            "event": name,
            "address": client.address.to_string(),
            "peer": client.id,
            "name": client.name,
            "path": client.path,
            "wish": client.wish,
        })
    };
    let mut value = match event {
        ServerEvent::Refused { address, error } => {
            let mut value = json!({"event": "refused", "address": address.to_string()});
            put_error(&mut value, &Error::from(error.clone()));
            value
        }
        ServerEvent::RefusedMore { count } => json!({"event": "refused-more", "count": count}),
        ServerEvent::Asked(client) => of("asked", client),
        ServerEvent::Ended { client, took, moved, error } => {
            let mut value = of("ended", client);
            let seconds = took.as_secs_f64();
            value["seconds"] = json!(seconds);
            value["bytes"] = json!(moved.bytes);
            value["files"] = json!(moved.files);
            value["failed_files"] = json!(moved.failed);
            // `seconds` is not zero: a request takes more than a nanosecond.
            value["rate_bps"] = json!((moved.bytes as f64 * 8.0 / seconds) as u64);
            value["result"] = json!(served_result(moved, error.is_some()));
            if let Some(error) = error {
                put_error(&mut value, &Error::from(error.clone()));
            }
            value
        }
        ServerEvent::LinkFailed { to, error } => {
            let mut value = json!({"event": "link-failed", "to": to});
            put_error(&mut value, &Error::from(error.clone()));
            value
        }
        ServerEvent::Lagged(count) => json!({"event": "lagged", "count": count}),
        _ => return None,
    };
    value["time"] = json!(utc::now());
    Some(line(&value))
}

/// The server of a status report.
pub(crate) struct ServedAt {
    pub(crate) root: String,
    pub(crate) address: String,
    pub(crate) id: String,
}

pub(crate) fn server_status(status: &ServerStatus, at: Option<&ServedAt>) -> String {
    let transfer = |status: &TransferStatus| {
        json!({
            "number": status.number,
            "address": status.address,
            "peer": status.id,
            "name": status.name,
            "wish": status.wish,
            "receives": status.receives,
            "seconds": status.age.as_secs_f64(),
            "bytes": status.bytes,
            "resumed_bytes": status.resumed_bytes,
            "total_bytes": status.total_bytes,
            "files": status.files,
            "total_files": status.total_files,
            "rate_now_bps": status.rate_now.as_bps(),
            "sending_bps": status.sending_rate.as_bps(),
            "rtt_seconds": status.rtt.as_secs_f64(),
            "queue_seconds": status.queue.as_secs_f64(),
            "streams": status.streams,
            "sent": status.sent,
            "retransmitted": status.retransmitted,
            "received": status.received,
            "path_lost": status.path_lost,
            "socket_lost": status.socket_lost,
            "memory_lost": status.memory_lost,
            "chunk_map": status.chunk_map,
            "bound_by": status.bound_by.name(),
        })
    };
    let stream = |status: &StreamStatus| {
        json!({
            "stream": status.name,
            "sender": status.sender,
            "receivers": status.receivers,
            "frames": status.frames,
            "datagrams": status.datagrams,
        })
    };
    let room = |status: &RoomStatus| {
        json!({
            "room": status.name,
            "senders": status.senders,
            "subscribers": status.subscribers,
            "messages": status.messages,
        })
    };
    let mut value = json!({
        "event": "status",
        "transfers": status.transfers.iter().map(transfer).collect::<Vec<_>>(),
        "streams": status.streams.iter().map(stream).collect::<Vec<_>>(),
        "rooms": status.rooms.iter().map(room).collect::<Vec<_>>(),
        "shared_tree": status.shared_tree.map(|tree| {
            json!({"keys": tree.keys, "changes": tree.changes, "watches": tree.watches})
        }),
        "totals": server_totals(&status.totals),
    });
    if let Some(ServedAt { root, address, id }) = at {
        value["root"] = json!(root);
        value["address"] = json!(address);
        value["id"] = json!(id);
        value["version"] = json!(env!("CARGO_PKG_VERSION"));
    }
    line(&value)
}

fn server_totals(all: &ServerTotals) -> Value {
    json!({
        "done": all.done,
        "partial": all.partial,
        "failed": all.failed,
        "refused_clients": all.refused_clients,
        "received_bytes": all.received_bytes,
        "sent_bytes": all.sent_bytes,
        "received_files": all.received_files,
        "sent_files": all.sent_files,
        "sent": all.sent,
        "retransmitted": all.retransmitted,
        "received": all.received,
        "path_lost": all.path_lost,
        "socket_lost": all.socket_lost,
        "memory_lost": all.memory_lost,
        "room_messages": all.room_messages,
    })
}

/// The event for an HTTP request that has changed the folder, or whose client was disconnected.
pub(crate) fn http(record: &AccessRecord) -> String {
    let mut value = json!({
        "event": "http-write",
        "time": utc::now(),
        "address": record.address.to_string(),
        "name": record.name,
        "method": record.method,
        "path": record.path,
        "destination": record.destination,
        "bytes": record.bytes,
        "http_status": record.status,
    });
    if let Some(left) = &record.left {
        value["left"] = left.as_str().into();
    }
    if let Some(limit) = record.disconnected_after {
        value["event"] = "http-disconnected".into();
        value["after_seconds"] = json!(limit.as_secs_f64());
    }
    line(&value)
}

fn line(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("strings, numbers and lists of them are JSON")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::error::but;
    use crate::report::tests::example;
    use longhaul_proto::endpoint::Origin;

    #[test]
    fn the_summary_is_one_line_and_contains_documented_fields() {
        let text = summary(&example(), 0);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let promised = "bytes files seconds setup_seconds goodput_bps protocol rate_bps \
            rtt_seconds payload_bytes blocks path_lost blocks_lost reported_lost socket_lost \
            retransmitted sent received duplicates waste bound_by rounds resumed_bytes cipher \
            blake3 verified unread_files memory_lost early_lost refused_datagrams sources \
            failed_sources last_block_seconds receives tcp_segments remembered_bps first_flight \
            found";
        for name in promised.split_whitespace() {
            assert!(value.get(name).is_some(), "{name}");
        }
        assert_eq!(value["event"], "summary");
        assert!(!text.contains('\n'));
    }

    #[test]
    fn the_receivers_rate_is_reported_with_its_link_and_origin() {
        let receives = ReceiveCapacity {
            rate: Rate::from_mbps(813),
            link: Rate::from_mbps(957),
            origin: Origin::Card,
            share: 0.85,
            others: Some(Rate::from_mbps(10)),
        };
        let text = summary(&but!(example(), receives: Some(receives)), 0);
        let value: Value = serde_json::from_str(&text).unwrap();
        let expected = json!({
            "rate_bps": 813_000_000, "link_bps": 957_000_000, "from": "card", "share": 0.85,
            "others_bps": 10_000_000,
        });
        assert_eq!(value["receives"], expected);
    }

    #[test]
    fn events_of_a_source_name_the_source() {
        let resumed = Event::Resumed { bytes: 7 };
        let of = Event::OfSource { source: "h1:/a".into(), event: Box::new(resumed) };
        let value: Value = serde_json::from_str(&event(&of)).unwrap();
        assert_eq!((&value["event"], &value["source"]), (&json!("resumed"), &json!("h1:/a")));
    }

    #[test]
    fn two_names_that_are_not_utf8_stay_distinct() {
        let event = |name: &[u8]| -> Value {
            let path = Path::new(std::ffi::OsStr::from_bytes(name)).to_owned();
            serde_json::from_str(&event(&Event::LinkDone { path, target: "t".into() })).unwrap()
        };
        let (one, other) = (event(b"a\xff"), event(b"a\xfe"));
        assert_eq!(one["path"], other["path"]);
        assert_eq!((&one["path_hex"], &other["path_hex"]), (&json!("61ff"), &json!("61fe")));
        assert_eq!((one.get("target_hex"), event(b"a").get("path_hex")), (None, None));
    }

    #[test]
    fn an_error_carries_its_class_and_status() {
        let text = error(&Error::new(ErrorKind::Stalled, "nothing came\nfor 60 s"), 7);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((value["class"].as_str(), value["status"].as_u64()), (Some("stalled"), Some(7)));
        assert!(!text.contains('\n'));
    }
}
