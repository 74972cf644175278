//! Output of `longhaul channel`.

use std::cell::Cell;
use std::time::{Duration, Instant};

use longhaul::{ChannelEvent, ChannelReceived, ChannelSent};
use serde_json::json;

use crate::live::{Notes, millis};
use crate::quantity::count;
use crate::{console, exit, hex};

/// Minimum interval of a subscriber's progress reports.
const EVERY: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub(super) struct Lines {
    pub(super) notes: Notes,
    reported: Cell<Instant>,
}

impl Lines {
    pub(super) fn new(notes: Notes) -> Lines {
        Lines { notes, reported: Cell::new(Instant::now()) }
    }

    pub(super) fn sending(&self, sent: &ChannelSent) {
        if self.notes.json {
            console::out(sent_line("progress", sent));
        }
    }

    pub(super) fn sent(&self, sent: &ChannelSent) {
        if self.notes.json {
            let mut line = sent_line("summary", sent);
            line["status"] = exit::DONE.into();
            console::out(line);
        }
        self.notes.note(format_args!(
            "longhaul: {}, {} taken, {} replaced, {} dropped, {} late; round trip {}",
            count(sent.messages, "message"),
            sent.taken,
            sent.replaced,
            sent.dropped,
            sent.late,
            millis(sent.rtt)
        ));
    }

    pub(super) fn came(&self, event: &ChannelEvent) {
        match event {
            ChannelEvent::Joined if self.notes.json => console::out(json!({"event": "joined"})),
            ChannelEvent::Lost(lost) => {
                if self.notes.json {
                    console::out(json!({"event": "messages-lost", "count": lost}));
                }
                self.notes.note(format_args!("longhaul: lost {}", count(*lost, "message")));
            }
            ChannelEvent::Message(message) if self.notes.json => {
                let mut line = json!({
                    "event": "message",
                    "key": message.key,
                    "origin": format!("{:016x}", message.origin),
                    "number": message.number,
                    "at_micros": message.at_micros,
                    "bytes": message.bytes.len(),
                    "restored": message.restored,
                });
                match std::str::from_utf8(&message.bytes) {
                    Ok(text) => line["text"] = text.into(),
                    Err(_) => line["hex"] = hex::encode(&message.bytes).into(),
                }
                console::out(line);
            }
            ChannelEvent::Message(message) => {
                console::out_whole(&[&message.bytes[..], b"\n"].concat());
            }
            _ => {}
        }
    }

    pub(super) fn receiving(&self, status: &mut dyn FnMut() -> ChannelReceived) {
        if self.notes.json && self.reported.get().elapsed() >= EVERY {
            self.reported.set(Instant::now());
            console::out(received_line("progress", &status()));
        }
    }

    pub(super) fn received(&self, came: &ChannelReceived) {
        if self.notes.json {
            let mut line = received_line("summary", came);
            line["status"] = exit::DONE.into();
            console::out(line);
        }
        self.notes.note(format_args!(
            "longhaul: {} of {}, {} lost, {} late, {} restored, {} reordered; round trip {}, \
             jitter {}",
            count(came.messages, "message"),
            came.bytes,
            came.lost,
            came.late,
            came.restored,
            came.reordered,
            millis(came.rtt),
            millis(came.jitter)
        ));
    }
}

fn sent_line(event: &str, sent: &ChannelSent) -> serde_json::Value {
    json!({
        "event": event,
        "messages": sent.messages,
        "taken": sent.taken,
        "replaced": sent.replaced,
        "dropped": sent.dropped,
        "late": sent.late,
        "loss": sent.loss(),
        "queue": sent.queue(),
        "bytes": sent.bytes.get(),
        "goodput_bps": sent.goodput.as_bps(),
        "throughput_bps": sent.throughput.as_bps(),
        "rtt_seconds": sent.rtt.as_secs_f64(),
    })
}

fn received_line(event: &str, came: &ChannelReceived) -> serde_json::Value {
    json!({
        "event": event,
        "messages": came.messages,
        "bytes": came.bytes.get(),
        "lost": came.lost,
        "loss": came.loss,
        "late": came.late,
        "restored": came.restored,
        "reordered": came.reordered,
        "queue": came.queue,
        "goodput_bps": came.goodput.as_bps(),
        "throughput_bps": came.throughput.as_bps(),
        "rtt_seconds": came.rtt.as_secs_f64(),
        "jitter_seconds": came.jitter.as_secs_f64(),
    })
}
