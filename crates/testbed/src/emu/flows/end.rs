//! What a flow came to.

use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::{Bytes, Rate};

use crate::scenario::{Flow, Scenario};

/// What a flow came to.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowEnd {
    /// Its name.
    pub name: String,
    /// What carried it: a protocol's name, `tcp cubic`, `udp`, …
    pub carrier: String,
    /// The name of the sending host.
    pub from: String,
    /// The name of the receiving host.
    pub to: String,
    /// When it started.
    pub started: Time,
    /// How much it was to deliver; nothing where there is no end.
    pub object: Option<Bytes>,
    /// How much it delivered, each byte once; for UDP, all that arrived.
    pub delivered: Bytes,
    /// From its start until all was delivered, or its time or the run was over.
    pub took: Span,
    /// Of this, what a copy's session took before the first datagram of the object.
    pub setup: Span,
    /// Whether it delivered all that it was to, or went on for as long as it was to.
    pub finished: bool,
    /// Why it did not come to its end.
    pub error: Option<String>,
    /// What was counted.
    pub counts: FlowCounts,
    /// How long each mouse took, in the order of their starts.
    pub lives: Vec<Span>,
    /// Of a copy, and of TCP: bytes delivered so far, and when since its start.
    pub series: Vec<(Span, Bytes)>,
}

/// What the ends of a flow count, in datagrams (segments, of TCP); nothing where nobody tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounts {
    /// Sent in all.
    pub sent: Option<u64>,
    /// Of these, sent again.
    pub retransmitted: Option<u64>,
    /// Came to the receiving program.
    pub received: Option<u64>,
    /// Of these, those that were there already.
    pub duplicates: Option<u64>,
    /// Sent, and never came: lost on a link, in a queue, in the receiver's socket. Of a copy that
    /// was cut off: blocks found missing, each once.
    pub lost: Option<u64>,
    /// Losses as reported to the sender, the same one perhaps several times.
    pub reported_lost: Option<u64>,
    /// Blocks of the object.
    pub blocks: Option<u64>,
    /// Rounds over the segment that needed most.
    pub rounds: Option<u64>,
}

impl FlowEnd {
    /// A flow that has not begun.
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

    /// What was delivered over the time that it took, a copy's session included.
    pub fn goodput(&self) -> Rate {
        if self.took == Span::ZERO { Rate::ZERO } else { self.delivered / self.took }
    }

    /// What was sent beyond what was needed, as a share of that: of the object's blocks, where
    /// they are known, else of what was sent once.
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
    fn waste_is_what_was_sent_beyond_the_blocks_or_the_first_time() {
        let flow = r#"{ from = "a", to = "b", tcp = "cubic", size = "1MB" }"#;
        let text = format!("flow = [{flow}]\n[topology]\nkind = \"pair\"");
        let scenario = Scenario::parse("end", &text, &Reading::PLAIN).unwrap();
        let mut end = FlowEnd::of(&scenario, &scenario.flows[0]);
        assert_eq!((end.carrier.as_str(), end.waste()), ("tcp cubic", None));
        assert_eq!((end.goodput(), end.object), (Rate::ZERO, Some(Bytes::new(1_000_000))));
        end.counts = FlowCounts { sent: Some(110), retransmitted: Some(10), ..end.counts };
        assert_eq!(end.waste(), Some(0.1));
        end.counts.blocks = Some(88);
        assert_eq!(end.waste(), Some(0.1), "blocks of which some may not have been sent");
        end.finished = true;
        assert_eq!(end.waste(), Some(0.25));
        (end.delivered, end.took) = (Bytes::new(1_000_000), Span::from_secs(2));
        assert_eq!(end.goodput(), Rate::from_mbps(4));
    }
}
