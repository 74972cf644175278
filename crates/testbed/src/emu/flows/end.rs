//! The result of a flow of an emulated scenario.

use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::{Bytes, Rate};

use crate::scenario::{Flow, Scenario};

/// The result of a flow.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowEnd {
    /// The flow's name.
    pub name: String,
    /// The protocol's name, `tcp cubic`, `udp`, …
    pub carrier: String,
    /// The name of the sending host.
    pub from: String,
    /// The name of the receiving host.
    pub to: String,
    /// When the flow started.
    pub started: Time,
    /// The amount to deliver; `None` without a given size.
    pub object: Option<Bytes>,
    /// The delivered amount; for UDP, all arrivals.
    pub delivered: Bytes,
    /// Time from the flow's start until all data were delivered or the flow was stopped. For a copy
    /// that was cut off: until its last report.
    pub took: Span,
    /// A copy's session setup, as a part of `took`.
    pub setup: Span,
    /// Whether the flow delivered everything (UDP: sent everything), or ran its full time.
    pub finished: bool,
    /// Why the flow did not finish.
    pub error: Option<String>,
    /// The counters.
    pub counts: FlowCounts,
    /// The duration of each short TCP connection (mouse), in the order of the starts.
    pub lives: Vec<Span>,
    /// For copies and TCP: time since the start, and bytes delivered by then.
    pub series: Vec<(Span, Bytes)>,
}

/// Counters of a flow's sender and receiver, in datagrams (for TCP: in segments).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounts {
    /// Sent in all.
    pub sent: Option<u64>,
    /// Sent again, a part of `sent`.
    pub retransmitted: Option<u64>,
    /// Received by the program.
    pub received: Option<u64>,
    /// Duplicates, a part of `received`.
    pub duplicates: Option<u64>,
    /// Sent and never received. For a copy that was cut off: blocks found missing.
    pub lost: Option<u64>,
    /// Losses reported to the sender, possibly repeatedly.
    pub reported_lost: Option<u64>,
    /// Blocks of the object.
    pub blocks: Option<u64>,
    /// The highest number of rounds of a segment (part of the object; RBUDP), of rounds of a buffer
    /// (NETBLT), or of sends of a block (FOBS). Zero in the other protocols.
    pub rounds: Option<u64>,
}

impl FlowEnd {
    /// The result of a flow that has not started.
    pub fn of(scenario: &Scenario, flow: &Flow) -> FlowEnd {
        FlowEnd {
            name: flow.name.clone(),
            carrier: flow.carrier(),
            from: scenario.node_name(flow.from).to_owned(),
            to: scenario.node_name(flow.to).to_owned(),
            started: flow.start,
            object: flow.object(),
            delivered: Bytes::ZERO,
            took: Span::ZERO,
            setup: Span::ZERO,
            finished: false,
            error: None,
            counts: FlowCounts::default(),
            lives: Vec::new(),
            series: Vec::new(),
        }
    }

    /// The delivered bytes over the duration, including a copy's session setup.
    pub fn goodput(&self) -> Rate {
        if self.took == Span::ZERO { Rate::ZERO } else { self.delivered / self.took }
    }

    /// Unnecessary data as a share of the necessary data. A finished flow with a known number of
    /// blocks needs these blocks. For every other flow, the first sends count as necessary.
    pub fn waste(&self) -> Option<f64> {
        let FlowCounts { sent, retransmitted, blocks, .. } = self.counts;
        let (sent, again) = (sent?, retransmitted?);
        let once = blocks.filter(|_| self.finished).unwrap_or(sent.saturating_sub(again));
        Some(sent.saturating_sub(once) as f64 / once.max(1) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Reading;

    #[test]
    fn waste_counts_data_beyond_the_blocks_or_the_first_sends() {
        let flow = r#"{ from = "a", to = "b", tcp = "cubic", size = "1MB" }"#;
        let text = format!("flow = [{flow}]\n[topology]\nkind = \"pair\"");
        let scenario = Scenario::parse("end", &text, &Reading::PLAIN).unwrap();
        let mut end = FlowEnd::of(&scenario, &scenario.flows[0]);
        assert_eq!((end.carrier.as_str(), end.waste()), ("tcp cubic", None));
        assert_eq!((end.goodput(), end.object), (Rate::ZERO, Some(Bytes::new(1_000_000))));
        end.counts = FlowCounts { sent: Some(110), retransmitted: Some(10), ..end.counts };
        assert_eq!(end.waste(), Some(0.1));
        end.counts.blocks = Some(88);
        assert_eq!(end.waste(), Some(0.1), "an unfinished flow may not have sent all blocks");
        end.finished = true;
        assert_eq!(end.waste(), Some(0.25));
        (end.delivered, end.took) = (Bytes::new(1_000_000), Span::from_secs(2));
        assert_eq!(end.goodput(), Rate::from_mbps(4));
    }
}
