//! Reads a copy's events: lines of JSON.

use longhaul_proto::time::Span;
use longhaul_proto::units::Bytes;
use serde_json::Value;

use super::end::{FlowCounts, FlowEnd};

#[derive(Default)]
pub(super) struct CopyEvents {
    summary: Option<Value>,
    error: Option<String>,
    series: Vec<(Span, Bytes)>,
    /// The last report's counters.
    so_far: FlowCounts,
    /// The time that the session's setup took.
    setup: Span,
}

impl CopyEvents {
    /// Processes a line that the copy has written at the time `at` after its start.
    pub(super) fn take(&mut self, line: &str, at: Span) {
        let event: Value = serde_json::from_str(line).unwrap_or_default();
        match event["event"].as_str() {
            Some("summary") => self.summary = Some(event),
            Some("error") => self.error = event["what"].as_str().map(str::to_owned),
            Some("progress") => {
                let bytes = event["bytes"].as_u64().unwrap_or_default();
                self.series.push((at, Bytes::new(bytes)));
                self.setup = span(&event, "setup_seconds");
                self.so_far = FlowCounts {
                    sent: event["sent"].as_u64(),
                    retransmitted: event["retransmitted"].as_u64(),
                    lost: event["blocks_lost"].as_u64(),
                    ..FlowCounts::default()
                };
            }
            _ => {}
        }
    }

    /// Stores the reported values in `end`. Returns whether the copy reported its end.
    ///
    /// # Errors
    /// The copy reported an error, or its data went over TCP.
    pub(super) fn store(self, end: &mut FlowEnd) -> Result<bool, String> {
        end.delivered = self.series.last().map_or(Bytes::ZERO, |(_, bytes)| *bytes);
        end.took = self.series.last().map_or(Span::ZERO, |(at, _)| *at);
        end.setup = self.setup.min(end.took);
        end.series = self.series;
        end.counts = self.so_far;
        if let Some(error) = self.error {
            return Err(error);
        }
        let Some(summary) = self.summary else { return Ok(false) };
        let count = |name: &str| summary[name].as_u64();
        end.delivered = Bytes::new(count("bytes").unwrap_or_default());
        (end.took, end.setup) = (span(&summary, "seconds"), span(&summary, "setup_seconds"));
        end.counts = FlowCounts {
            sent: count("sent"),
            retransmitted: count("retransmitted"),
            received: count("received"),
            duplicates: count("duplicates"),
            lost: count("path_lost"),
            reported_lost: count("reported_lost"),
            blocks: count("blocks"),
            rounds: count("rounds"),
        };
        if summary["protocol"] == "tcp" {
            return Err("UDP was blocked; the data went over TCP".into());
        }
        end.finished = true;
        Ok(true)
    }
}

/// A time span in seconds; zero if missing.
fn span(event: &Value, name: &str) -> Span {
    Span::from_secs_f64(event[name].as_f64().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Reading, Scenario};

    fn end() -> FlowEnd {
        let flow = r#"{ from = "a", to = "b", protocol = "rbudp", size = "250MB" }"#;
        let text = format!("flow = [{flow}]\n[topology]\nkind = \"pair\"");
        let scenario = Scenario::parse("tells", &text, &Reading::PLAIN).unwrap();
        FlowEnd::of(&scenario, &scenario.flows[0])
    }

    #[test]
    fn a_copy_reports_its_progress_and_its_end() {
        let (mut events, mut end) = (CopyEvents::default(), end());
        events.take(r#"{"event":"progress","bytes":125000000}"#, Span::from_secs(2));
        events.take("no event at all", Span::from_secs(3));
        let summary = r#"{"event":"summary","bytes":250000000,"seconds":2.5,"setup_seconds":0.5,
            "sent":12,"retransmitted":2,"path_lost":3,"rounds":2,"blocks":10,"protocol":"rbudp"}"#;
        events.take(summary, Span::from_secs(4));
        assert_eq!(events.store(&mut end), Ok(true));
        assert!(end.finished && end.series == [(Span::from_secs(2), Bytes::new(125_000_000))]);
        assert_eq!((end.took, end.setup), (Span::from_millis(2_500), Span::from_millis(500)));
        assert_eq!((end.counts.lost, end.counts.rounds), (Some(3), Some(2)));
        assert_eq!((end.waste(), end.goodput().as_bps()), (Some(0.2), 800_000_000));
    }

    #[test]
    fn an_interrupted_copy_keeps_its_last_report_and_a_reported_error_or_tcp_is_an_error() {
        let (mut events, mut cut) = (CopyEvents::default(), end());
        let report = r#"{"event":"progress","bytes":7,"sent":9,"retransmitted":2,"blocks_lost":3,
            "setup_seconds":0.25}"#;
        events.take(report, Span::from_secs(1));
        assert_eq!(events.store(&mut cut), Ok(false));
        assert_eq!((cut.delivered, cut.took), (Bytes::new(7), Span::from_secs(1)));
        assert_eq!(cut.setup, Span::from_millis(250));
        assert_eq!((cut.counts.sent, cut.counts.lost), (Some(9), Some(3)));
        let mut events = CopyEvents::default();
        events.take(r#"{"event":"error","what":"no way"}"#, Span::from_secs(1));
        assert_eq!(events.store(&mut end()), Err("no way".into()));
        let mut events = CopyEvents::default();
        events.take(r#"{"event":"summary","protocol":"tcp"}"#, Span::from_secs(1));
        assert!(events.store(&mut end()).is_err());
    }
}
