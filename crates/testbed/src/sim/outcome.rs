//! What a run ends with: plain values, the same bit for bit whenever the scenario and the seed are.

use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::{Bytes, Rate};

use crate::link::LinkTally;

/// A run's end.
#[derive(Clone, Debug, PartialEq)]
pub struct SimOutcome {
    /// The scenario's name.
    pub scenario: String,
    /// The seed that determined all chance.
    pub seed: u64,
    /// When the last flow that can end had ended, or the time limit came.
    pub ended: Time,
    /// Whether the time limit ended it while flows that can end had not.
    pub timed_out: bool,
    /// Events: packets that came to the end of a link, timers, host programs' turns.
    pub events: u64,
    /// Packets offered to links.
    pub packets: u64,
    /// One for each flow of the scenario, in its order.
    pub flows: Vec<FlowOutcome>,
    /// One for each link of the scenario, in its order; then the hosts' cards.
    pub links: Vec<LinkOutcome>,
}

/// How a flow fared; all its connections together where it has several.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowOutcome {
    /// Its name.
    pub name: String,
    /// What carried it: a protocol's name, `tcp cubic`, `tcp newreno`, `udp` or `mice`.
    pub carrier: String,
    /// The name of the sending host.
    pub from: String,
    /// The name of the receiving host.
    pub to: String,
    /// The round-trip time of its route without queues.
    pub rtt: Span,
    /// When it started.
    pub started: Time,
    /// When all of it was at the receiving host (and on its disk, where it goes there). Nothing
    /// for a flow that has no end, or that did not come to it.
    pub finished: Option<Time>,
    /// When the sender knew; nothing for UDP.
    pub known: Option<Time>,
    /// The object's size; for mice, of all together; nothing where there is no end.
    pub object: Option<Bytes>,
    /// Bytes of the object that arrived, each counted once; for UDP, all that arrived.
    pub delivered: Bytes,
    /// `delivered` over the time from the start to the finish, or to the flow's or run's end.
    pub goodput: Rate,
    /// Both ends' accounts and the network's.
    pub accounts: Accounts,
    /// What was sent beyond the first time of each block, as a share of those; of segments, for
    /// TCP.
    pub waste: f64,
    /// The longest time in which nothing new arrived, from the start to the last of it; not told
    /// for UDP.
    pub stall: Span,
    /// How long each connection took, in the order of their starts; for mice only.
    pub lives: Vec<Span>,
    /// The state at regular times, if the scenario asks for it.
    pub series: Vec<Point>,
}

/// What both ends and the network count, in datagrams (segments of TCP).
///
/// sent = first + retransmitted; received = distinct + duplicates; sent + copied = received +
/// replayed + corrupted + `socket_lost` + dropped + `in_flight`. Each run is checked against this.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    /// Sent in all.
    pub sent: u64,
    /// Sent for the first time.
    pub first: u64,
    /// Sent again.
    pub retransmitted: u64,
    /// Taken by the receiver.
    pub received: u64,
    /// Of these, new ones.
    pub distinct: u64,
    /// Of these, those that were there already.
    pub duplicates: u64,
    /// First loss: known to have been sent, and not come. Counted by the receiver.
    pub path_lost: u64,
    /// Second loss: blocks found missing, once each. Counted by the receiver.
    pub blocks_lost: u64,
    /// Third loss: as reported to the sender, the same one perhaps several times.
    pub reported_lost: u64,
    /// What links really dropped.
    pub dropped: u64,
    /// Of these, those that a queue dropped: full, or managed by CoDel.
    pub queue_full: u64,
    /// Dropped by the receiving host's socket buffer.
    pub socket_lost: u64,
    /// Second copies that links made.
    pub copied: u64,
    /// Copies that the receiving driver threw away before the protocol saw them.
    pub replayed: u64,
    /// Came with a bit turned, and were thrown away.
    pub corrupted: u64,
    /// On a link or in a socket buffer when the flow's accounts were closed.
    pub in_flight: u64,
    /// Rounds of a protocol that has them.
    pub rounds: u32,
    /// Retransmission time-outs of TCP.
    pub timeouts: u64,
    /// Control messages sent, by both ends; for TCP, acknowledgements.
    pub controls: u64,
}

/// A flow at a moment. All counts are since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// The moment.
    pub at: Time,
    /// Bytes that arrived, repeats too.
    pub received: Bytes,
    /// Bytes of the object that arrived.
    pub delivered: Bytes,
    /// Losses as reported to the sender.
    pub reported_lost: u64,
    /// Arrivals of what was there already.
    pub duplicates: u64,
    /// What the sender sends at: the protocol's rate; for TCP, its window over its round trip.
    pub rate: Rate,
}

/// How a link fared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkOutcome {
    /// `from > to` by the names of its nodes; a card is `host card out` or `host card in`.
    pub name: String,
    /// What it did with the packets offered to it.
    pub tally: LinkTally,
    /// The most that waited before it, in bytes on the wire.
    pub queue_max: Bytes,
}

impl FlowOutcome {
    /// Rates of arrival between the points of the series, each at the later of its two points:
    /// repeats included.
    pub fn receive_rates(&self) -> Vec<(Time, Rate)> {
        let start = Point { at: self.started, ..Point::default() };
        let points: Vec<&Point> = core::iter::once(&start).chain(&self.series).collect();
        let rate = |pair: &[&Point]| {
            (pair[1].at, (pair[1].received - pair[0].received) / pair[1].at.since(pair[0].at))
        };
        points.windows(2).filter(|pair| pair[1].at > pair[0].at).map(rate).collect()
    }
}

impl core::ops::AddAssign<&Accounts> for Accounts {
    fn add_assign(&mut self, other: &Accounts) {
        self.sent += other.sent;
        self.first += other.first;
        self.retransmitted += other.retransmitted;
        self.received += other.received;
        self.distinct += other.distinct;
        self.duplicates += other.duplicates;
        self.path_lost += other.path_lost;
        self.blocks_lost += other.blocks_lost;
        self.reported_lost += other.reported_lost;
        self.dropped += other.dropped;
        self.queue_full += other.queue_full;
        self.socket_lost += other.socket_lost;
        self.copied += other.copied;
        self.replayed += other.replayed;
        self.corrupted += other.corrupted;
        self.in_flight += other.in_flight;
        self.rounds = self.rounds.max(other.rounds);
        self.timeouts += other.timeouts;
        self.controls += other.controls;
    }
}

impl Accounts {
    /// Which of the identities does not hold, if one does not.
    pub(super) fn wrong(&self) -> Option<String> {
        let a = self;
        let gone = a.received + a.replayed + a.corrupted + a.socket_lost + a.dropped;
        let identities = [
            ("sent = first + retransmitted", a.sent, a.first + a.retransmitted),
            ("received = distinct + duplicates", a.received, a.distinct + a.duplicates),
            (
                "sent + copied = received + replayed + corrupted + socket_lost + dropped + \
                 in_flight",
                a.sent + a.copied,
                gone + a.in_flight,
            ),
        ];
        let wrong = identities.into_iter().find(|(_, left, right)| left != right);
        wrong.map(|(identity, left, right)| format!("{identity} does not hold: {left}, {right}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_that_do_not_balance_are_found() {
        let good = Accounts {
            sent: 3,
            first: 3,
            received: 2,
            distinct: 2,
            dropped: 1,
            ..Default::default()
        };
        assert_eq!(good.wrong(), None);
        let lost = Accounts { dropped: 0, ..good };
        assert!(lost.wrong().unwrap().contains("in_flight does not hold: 3, 2"));
        let repeated = Accounts { first: 2, ..good };
        assert!(repeated.wrong().unwrap().contains("first + retransmitted"));
    }
}
