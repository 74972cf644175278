//! The single-flow monitor (SFM): counts arrivals and losses by packet numbers. From the paper of
//! GTP:
//!
//! > We employ a per-connection data packet sequence number (embedded in the header of data
//! > packet) to diagnose packet loss, as well as calculate transmission and loss rates.
//! > (section 3.5)
//!
//! The monitor counts up to an *edge*: the highest number that had arrived at some moment. The edge
//! is settled after a grace (a wait), when overtaken datagrams have arrived too.

use crate::time::{Span, Time};
use crate::units::Bytes;

/// The counts at an edge, since the flow's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) at: Time,
    pub(super) sent: u64,
    pub(super) received: u64,
    pub(super) bytes: Bytes,
}

/// Arrivals up to the edge, or arrivals beyond the edge.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    received: u64,
    bytes: Bytes,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Monitor {
    /// The edge that is not settled yet: when it had arrived, and its number plus one.
    edge: Option<(Time, u64)>,
    below: Count,
    above: Count,
    /// Highest number plus one.
    highest: u64,
    /// When the highest number arrived.
    risen: Time,
    settled: Option<Seen>,
}

impl Monitor {
    /// Records the datagram `number`, which reached the host at `at`. The time of reading would be
    /// misleading: a thread that reads late would see a slow period, and then a period faster than
    /// any link.
    pub(super) fn on_arrival(&mut self, at: Time, number: u64, payload: Bytes) {
        let below = self.edge.is_some_and(|(_, edge)| number < edge);
        let count = if below { &mut self.below } else { &mut self.above };
        count.received += 1;
        count.bytes += payload;
        if number >= self.highest {
            self.highest = number + 1;
            self.risen = self.risen.max(at);
        }
    }

    /// Settles the edge if its grace has ended, and sets the next edge.
    pub(super) fn settle(&mut self, now: Time, grace: Span) {
        if let Some((at, sent)) = self.edge.filter(|(at, _)| now >= *at + grace) {
            let Count { received, bytes } = self.below;
            self.settled = Some(Seen { at, sent, received, bytes });
            self.edge = None;
        }
        let settled = self.settled.map_or(0, |seen| seen.sent);
        if self.edge.is_none() && self.highest > settled {
            self.edge = Some((self.risen, self.highest));
            let above = core::mem::take(&mut self.above);
            self.below.received += above.received;
            self.below.bytes += above.bytes;
        }
    }

    pub(super) fn seen(&self) -> Option<Seen> {
        self.settled
    }
}

/// A flow's rates between two edges, in bits a second of UDP payload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Measure {
    /// r_curr: "observed received rate by receiver of flow i" (Table 1).
    pub(super) current: f64,
    /// r_total: the rate of received and lost datagrams together.
    pub(super) total: f64,
    /// loss = r_loss / r_total.
    pub(super) loss: f64,
    pub(super) datagrams: u64,
    pub(super) span: Span,
}

impl Measure {
    /// The measurement from `from` to `to`; `datagram` is the UDP payload of a full datagram.
    /// `None` if no time passed or nothing was sent.
    pub(super) fn between(from: Seen, to: Seen, datagram: Bytes) -> Option<Measure> {
        let span = to.at.since(from.at);
        let sent = to.sent.saturating_sub(from.sent);
        if span == Span::ZERO || sent == 0 {
            return None;
        }
        // Late arrivals of an earlier period must not make the loss negative.
        let received = (to.received - from.received).min(sent);
        let bytes = to.bytes - from.bytes;
        let lost = (sent - received) as f64 * datagram.bits();
        let seconds = span.as_secs_f64();
        let (current, total) = (bytes.bits() / seconds, (bytes.bits() + lost) / seconds);
        let loss = if total > 0.0 { lost / seconds / total } else { 0.0 };
        Some(Measure { current, total, loss, datagrams: sent, span })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const GRACE: Span = Span::from_millis(10);
    const FULL: Bytes = Bytes::new(1000);

    fn ms(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    fn arrive(monitor: &mut Monitor, at: u64, number: u64) {
        monitor.on_arrival(ms(at), number, FULL);
        monitor.settle(ms(at), GRACE);
    }

    #[test]
    fn an_overtaken_datagram_counts_as_received_and_a_missing_datagram_as_lost() {
        let mut monitor = Monitor::default();
        arrive(&mut monitor, 0, 0);
        for (at, number) in [(1, 1), (2, 3), (3, 2), (11, 6), (12, 5)] {
            arrive(&mut monitor, at, number);
        }
        let first = monitor.seen().unwrap();
        assert_eq!((first.at, first.sent, first.received), (ms(0), 1, 1));
        monitor.settle(ms(20), GRACE);
        assert_eq!(monitor.seen(), Some(first));
        monitor.settle(ms(21), GRACE);
        let second = monitor.seen().unwrap();
        assert_eq!((second.at, second.sent, second.received), (ms(11), 7, 6));
        let measure = Measure::between(first, second, FULL).unwrap();
        // Five of six datagrams of 8,000 bits in 11 ms.
        assert!((measure.current - 40_000.0 / 0.011).abs() < 1.0);
        assert!((measure.total - 48_000.0 / 0.011).abs() < 1.0);
        assert!((measure.loss - 1.0 / 6.0).abs() < 1e-9);
        assert_eq!((measure.datagrams, measure.span), (6, Span::from_millis(11)));
    }

    #[test]
    fn rates_use_arrival_times_and_not_reading_times() {
        let mut monitor = Monitor::default();
        arrive(&mut monitor, 0, 0);
        // One datagram each millisecond; the thread reads the first thirty late, in two batches.
        for (numbers, read) in [(1..21, 30), (21..31, 30)] {
            numbers.for_each(|number| monitor.on_arrival(ms(number), number, FULL));
            monitor.settle(ms(read), GRACE);
        }
        let mut before = Seen { at: ms(0), sent: 1, received: 1, bytes: FULL };
        let mut rates = Vec::new();
        for number in 31..90 {
            arrive(&mut monitor, number, number);
            let seen = monitor.seen().unwrap();
            rates.extend(Measure::between(before, seen, FULL).map(|measure| measure.current));
            before = seen;
        }
        assert!(rates.len() >= 2 && rates.iter().all(|rate| (rate - 8e6).abs() < 1.0), "{rates:?}");
    }

    #[test]
    fn nothing_is_measured_if_nothing_was_sent() {
        let mut monitor = Monitor::default();
        monitor.settle(ms(5), GRACE);
        assert_eq!(monitor.seen(), None);
        arrive(&mut monitor, 6, 0);
        monitor.settle(ms(30), GRACE);
        let seen = monitor.seen().unwrap();
        monitor.settle(ms(90), GRACE);
        assert_eq!(monitor.seen(), Some(seen));
        assert_eq!(Measure::between(seen, seen, FULL), None);
    }

    #[test]
    fn a_datagram_below_a_settled_edge_is_counted_once() {
        let mut monitor = Monitor::default();
        arrive(&mut monitor, 0, 9);
        monitor.settle(ms(10), GRACE);
        assert_eq!(monitor.seen().unwrap().received, 1);
        arrive(&mut monitor, 11, 3);
        arrive(&mut monitor, 12, 10);
        monitor.settle(ms(30), GRACE);
        let seen = monitor.seen().unwrap();
        assert_eq!((seen.sent, seen.received), (11, 3));
    }
}
