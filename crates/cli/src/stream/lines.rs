//! Output of `longhaul stream`: text on stderr, or JSON lines on stdout.

use longhaul::{StreamEvent, StreamReceived, StreamSent};
use serde_json::json;

use crate::live::{Notes, millis};
use crate::quantity::count;
use crate::{console, exit};

/// Exit status if frames do not match the test pattern.
const WRONG: u8 = 1;

#[derive(Clone, Copy, Debug)]
pub(super) struct Lines {
    pub(super) notes: Notes,
}

impl Lines {
    pub(super) fn new(notes: Notes) -> Lines {
        Lines { notes }
    }

    /// Prints the number of receivers and the repair method; as JSON, also the rate, and the path's
    /// round-trip time, jitter and loss.
    pub(super) fn way(self, sent: &StreamSent) {
        if self.notes.json {
            console::out(json!({
                "event": "way",
                "way": sent.way,
                "receivers": sent.receivers,
                "rate_bps": sent.rate.as_bps(),
                "repairs": sent.repairs,
                "rtt_seconds": sent.rtt.as_secs_f64(),
                "jitter_seconds": sent.jitter.as_secs_f64(),
                "loss": sent.loss.get(),
                "burst": sent.burst,
            }));
        }
        let receivers = count(sent.receivers.into(), "receiver");
        self.notes.note(format_args!("longhaul: {receivers}; {}", sent.way));
    }

    pub(super) fn sending(self, sent: &StreamSent) {
        if self.notes.json {
            console::out(json!({
                "event": "progress",
                "frames": sent.frames,
                "skipped": sent.skipped,
                "unwatched": sent.unwatched,
                "receivers": sent.receivers,
                "sent": sent.datagrams,
                "bytes": sent.bytes.get(),
                "resent": sent.resent,
                "on_time": sent.on_time,
                "missed": sent.missed,
            }));
        }
    }

    pub(super) fn sent(self, sent: &StreamSent) {
        let bound = match (sent.skipped, sent.unwatched) {
            (0, 0) => "the source",
            (skipped, unwatched) if skipped > unwatched => "the sending rate, or a lost connection",
            _ => "the absence of receivers",
        };
        if self.notes.json {
            console::out(json!({
                "event": "summary",
                "status": exit::DONE,
                "frames": sent.frames,
                "skipped": sent.skipped,
                "unwatched": sent.unwatched,
                "sent": sent.datagrams,
                "bytes": sent.bytes.get(),
                "resent": sent.resent,
                "repairs": sent.repairs,
                "most_repairs": sent.most_repairs,
                "rate_bps": sent.rate.as_bps(),
                "rtt_seconds": sent.rtt.as_secs_f64(),
                "jitter_seconds": sent.jitter.as_secs_f64(),
                "loss": sent.loss.get(),
                "burst": sent.burst,
                "way": sent.way,
                "bound_by": bound,
            }));
        }
        self.notes.note(format_args!(
            "longhaul: {} frames, {} skipped, {} that nobody received; {} datagrams, {} of them \
             resent; bound by {bound}\n  way      {}",
            sent.frames, sent.skipped, sent.unwatched, sent.datagrams, sent.resent, sent.way
        ));
    }

    pub(super) fn came(self, event: &StreamEvent) {
        match event {
            StreamEvent::Begun { per_second, deadline } => {
                if self.notes.json {
                    console::out(json!({
                        "event": "begun",
                        "frames_per_second": per_second,
                        "deadline_seconds": deadline.as_secs_f64(),
                    }));
                }
                self.notes.note(format_args!(
                    "longhaul: {per_second} frames a second, each within {deadline}"
                ));
            }
            StreamEvent::Frame(frame) if self.notes.json => {
                console::out(json!({
                    "event": "frame",
                    "number": frame.number,
                    "bytes": frame.bytes.len(),
                    "delay_seconds": frame.delay.as_secs_f64(),
                    "late": frame.is_late,
                    "restored": frame.restored,
                }));
            }
            StreamEvent::Missed { first, last, unread } => {
                if self.notes.json {
                    console::out(json!({
                        "event": "missed",
                        "first": first,
                        "last": last,
                        "unread": unread,
                    }));
                }
                match last - first {
                    0 => self.notes.note(format_args!("longhaul: frame {first} missed")),
                    _ => self.notes.note(format_args!("longhaul: frames {first} to {last} missed")),
                }
            }
            _ => {}
        }
    }

    /// Prints the summary. Returns the exit status.
    pub(super) fn received(self, came: &StreamReceived, wrong: u64) -> u8 {
        let status = if wrong > 0 { WRONG } else { exit::DONE };
        let delivered = came.on_time + came.late;
        let bound = bound(came).or((delivered > 0).then_some("nothing"));
        let seconds = |share| (delivered > 0).then(|| came.delay(share).as_secs_f64());
        if self.notes.json {
            console::out(json!({
                "event": "summary",
                "status": status,
                "on_time": came.on_time,
                "late": came.late,
                "missed": came.missed,
                "overdue": came.overdue,
                "unread": came.unread,
                "withheld": came.withheld,
                "wrong": wrong,
                "received": came.datagrams,
                "restored": came.restored,
                "delay_median_seconds": seconds(0.5),
                "delay_99_seconds": seconds(0.99),
                "delay_999_seconds": seconds(0.999),
                "delay_max_seconds": seconds(1.0),
                "jitter_seconds": came.jitter.as_secs_f64(),
                "spread_seconds": came.spread.as_secs_f64(),
                "loss": came.loss.get(),
                "bound_by": bound,
            }));
        }
        let bound = bound.map_or(String::new(), |bound| format!("; bound by {bound}"));
        self.notes.note(format_args!(
            "longhaul: {} frames on time, {} late, {} missed, {} unread, {} withheld{bound}",
            came.on_time, came.late, came.missed, came.unread, came.withheld,
        ));
        if delivered > 0 {
            let [median, most, nearly_all, longest] =
                [0.5, 0.99, 0.999, 1.0].map(|share| millis(came.delay(share)));
            self.notes.note(format_args!(
                "  delay    {median} median, {most} 99 %, {nearly_all} 99.9 %, {longest} longest; \
                 jitter {}\n  lost     {} datagrams were restored",
                millis(came.jitter),
                came.restored,
            ));
        }
        if wrong > 0 {
            self.notes
                .note(format_args!("longhaul: {wrong} frames are not those of the test pattern"));
        }
        status
    }
}

/// The main reason for late and missing frames, if there are any.
fn bound(came: &StreamReceived) -> Option<&'static str> {
    let lost = came.missed.saturating_sub(came.overdue);
    let causes = [
        (lost, "losses on the path, the sender, or the deadline"),
        (came.overdue, "datagrams that a busy host or a queue delayed"),
        (came.unread, "the reader of the frames"),
        (came.late, "this host, which was too slow to restore and write frames"),
        (came.withheld, "this host, which was silent, or the server, which could not send"),
    ];
    let most = causes.into_iter().max_by_key(|(count, _)| *count);
    most.filter(|(count, _)| *count > 0).map(|(_, cause)| cause)
}
