//! An epoch (datagrams sent at one rate) and its measurements, for [`Trains`](super::Trains).

use crate::rate::Feedback;
use crate::time::Span;
use crate::wire::Pulse;

/// A queue up to this length, or up to a quarter of the shortest round-trip time if that is more,
/// is ignored, because hosts that wake up late cause the same delay. If the arrival rate was below
/// the share [`STRETCHED`] of the departure rate, shorter queues count too: those longer than
/// [`MIN_FILLING`] and than a twentieth of the shortest round-trip time.
pub(super) const MIN_QUEUE: Span = Span::from_millis(10);
const MIN_FILLING: Span = Span::from_millis(5);
const STRETCHED: f64 = 0.96;
/// An epoch shorter than half a round trip counts only while the rate is a guess, and only if the
/// epoch is clean: the sender used its rate ([`USED`]), the arrival rate was more than [`CLEAN`] of
/// the departure rate, and the loss ratio exceeds the path's own by less than [`CLEAN_LOSS`].
const CLEAN: f64 = 0.98;
const CLEAN_LOSS: f64 = 0.005;
/// A sender uses its rate if it reaches more than this share of it.
const USED: f64 = 0.9;
/// A sender is late if it reaches less than this share of its rate.
const LATE: f64 = 0.97;

#[derive(Clone, Copy, Debug)]
pub(super) struct Epoch {
    /// The first packet number sent at this rate.
    pub(super) from: u64,
    pub(super) start: Option<Snapshot>,
    /// Round-trip time at the previous pulse (the receiver's periodic report).
    pub(super) last: Option<Span>,
    /// Whether the flow sent more slowly than at this rate on purpose.
    pub(super) is_capped: bool,
}

impl Epoch {
    pub(super) fn new(from: u64) -> Epoch {
        Epoch { from, start: None, last: None, is_capped: false }
    }
}

/// State at one pulse.
#[derive(Clone, Copy, Debug)]
pub(super) struct Snapshot {
    pub(super) clock: Span,
    pub(super) highest: u64,
    pub(super) received: u64,
    pub(super) rtt: Option<Span>,
}

impl Snapshot {
    pub(super) fn of(feedback: &Feedback<'_>) -> Snapshot {
        let Pulse { clock, highest, received, .. } = *feedback.pulse;
        Snapshot { clock, highest, received, rtt: feedback.sample }
    }
}

/// Measurements of one epoch; rates in bits a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Measure {
    pub(super) rate: f64,
    /// Departure rate.
    pub(super) left: f64,
    /// Arrival rate, as if the lost datagrams had arrived.
    pub(super) paced: f64,
    pub(super) delivered: f64,
    pub(super) loss: f64,
    pub(super) datagrams: f64,
    pub(super) queue: Span,
    /// Whether our own datagrams fill the queue.
    pub(super) queued: bool,
}

impl Measure {
    pub(super) fn is_used(&self) -> bool {
        self.left > self.rate * USED
    }

    pub(super) fn is_late(&self) -> bool {
        self.left < self.rate * LATE
    }

    pub(super) fn is_stretched(&self) -> bool {
        self.paced < self.left * STRETCHED
    }

    /// Whether the sender used the rate, the datagrams arrived nearly as fast as they left, and the
    /// loss ratio exceeds the path's own loss ratio `own` by less than [`CLEAN_LOSS`].
    pub(super) fn is_clean(&self, own: f64) -> bool {
        self.is_used() && self.paced > self.left * CLEAN && self.loss < own + CLEAN_LOSS
    }
}

/// Whether we fill a queue of length `queue` that grew by `growth` during an epoch of `span`.
/// `stretch` is the arrival rate divided by the departure rate.
pub(super) fn fills(queue: Span, growth: Span, span: Span, stretch: f64, min_rtt: Span) -> bool {
    if queue > MIN_QUEUE.max(min_rtt / 4) && growth > span / 200 {
        return true;
    }
    // The round-trip time should grow as much as arrivals are stretched. Noise may hide a part of
    // the growth, so a quarter is enough.
    let expected = span.as_secs_f64() * (1.0 - stretch) / 4.0;
    stretch < STRETCHED && queue > MIN_FILLING.max(min_rtt / 20) && growth.as_secs_f64() > expected
}

/// A rate that was too high, and for how many more epochs this ceiling is believed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ceiling {
    pub(super) rate: f64,
    pub(super) epochs: u32,
}
