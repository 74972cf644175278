//! The outcome of a run: plain values, the same for the same seed.

use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::{Bytes, Rate};

use crate::link::LinkTally;

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct SimOutcome {
    /// The scenario's name.
    pub scenario: String,
    /// The seed of all randomness.
    pub seed: u64,
    /// When the last flow had ended, or the time limit was reached.
    pub ended: Time,
    /// Whether the time limit ended the run.
    pub timed_out: bool,
    /// Number of events of the simulator, such as the arrival of a packet at the end of a link, or
    /// a timer.
    pub events: u64,
    /// Packets offered to links.
    pub packets: u64,
    /// The flows' outcomes, in the scenario's order.
    pub flows: Vec<FlowOutcome>,
    /// The links' outcomes, in the scenario's order; then the cards'.
    pub links: Vec<LinkOutcome>,
}

/// The outcome of a flow, with all its connections.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowOutcome {
    /// The flow's name.
    pub name: String,
    /// The carrier's name, as [`Flow::carrier`](crate::scenario::Flow::carrier).
    pub carrier: String,
    /// The name of the sending host.
    pub from: String,
    /// The name of the receiving host.
    pub to: String,
    /// The round-trip time of the flow's route without queues.
    pub rtt: Span,
    /// When the flow started.
    pub started: Time,
    /// When the object was complete at the receiving host (on its disk, if any). `None` if it was
    /// not complete, or if the flow has a fixed duration.
    pub finished: Option<Time>,
    /// When the sender knew that the object was complete; not for UDP.
    pub known: Option<Time>,
    /// The size of the object, or of all mice (short TCP connections) together; `None` if the
    /// scenario gives no size.
    pub object: Option<Bytes>,
    /// Bytes of the object that arrived.
    pub delivered: Bytes,
    /// `delivered` divided by the time to the finish, or to the end of the flow or run.
    pub goodput: Rate,
    /// Both ends' accounts and the network's.
    pub accounts: Accounts,
    /// Repeated data as a share of the data sent for the first time.
    pub waste: f64,
    /// The longest time without new data, up to the last new data; not measured for UDP.
    pub stall: Span,
    /// Each mouse's duration, in the order of the starts.
    pub lives: Vec<Span>,
    /// The state at regular times, if recorded.
    pub series: Vec<Point>,
}

/// Counters of both ends and of the network, in datagrams (segments of TCP). Each run is checked:
/// - sent = first + retransmitted
/// - received = distinct + duplicates
/// - sent + copied = received + replayed + corrupted + `socket_lost` + dropped + `in_flight`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    /// Sent in all.
    pub sent: u64,
    /// Sent for the first time.
    pub first: u64,
    /// Sent again.
    pub retransmitted: u64,
    /// Accepted by the receiver.
    pub received: u64,
    /// New data, a part of `received`.
    pub distinct: u64,
    /// Repeats, a part of `received`.
    pub duplicates: u64,
    /// Sent datagrams that did not arrive, counted by the receiver; zero for TCP and UDP.
    pub path_lost: u64,
    /// Missing blocks, each once, counted by the receiver; for TCP, losses counted by the sender.
    pub blocks_lost: u64,
    /// Losses reported to the sender, repeats included.
    pub reported_lost: u64,
    /// Packets that links dropped; the simulator counts them.
    pub dropped: u64,
    /// Dropped by a full queue or by CoDel, a part of `dropped`.
    pub queue_full: u64,
    /// Dropped by the receiving host's socket buffer.
    pub socket_lost: u64,
    /// Second copies that links made.
    pub copied: u64,
    /// Duplicates that the protocol never saw.
    pub replayed: u64,
    /// Arrived with a flipped bit and was discarded.
    pub corrupted: u64,
    /// On a link or in a socket buffer at the run's end, or arrived after the receiver forgot the
    /// flow.
    pub in_flight: u64,
    /// Rounds of a protocol that has them.
    pub rounds: u32,
    /// Retransmission time-outs of TCP.
    pub timeouts: u64,
    /// Control messages sent, by both ends; for TCP, acknowledgements.
    pub controls: u64,
}

/// A flow's state at one time, with counts since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// The time.
    pub at: Time,
    /// Bytes that arrived, repeats included.
    pub received: Bytes,
    /// Bytes of the object that arrived.
    pub delivered: Bytes,
    /// Losses as reported to the sender.
    pub reported_lost: u64,
    /// Arrivals of data that had arrived before.
    pub duplicates: u64,
    /// The protocol's sending rate; for TCP, the window divided by the round-trip time.
    pub rate: Rate,
}

/// The outcome of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkOutcome {
    /// `from > to`; a card is `host card out` or `host card in`.
    pub name: String,
    /// The link's counters.
    pub tally: LinkTally,
    /// The longest queue before the link, in bytes on the wire.
    pub queue_max: Bytes,
}

impl FlowOutcome {
    /// Rates of arrival between successive points of the series, with the time of the later point.
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
    /// The first identity that does not hold, if any.
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
