//! How long nothing has been heard, and what is due then.

use crate::time::{Span, Time};

/// Silence while something is in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Silence {
    probe: Turn,
    expiry: Turn,
    /// How often each wait doubles.
    most: u32,
}

/// Something that is done again and again, ever more slowly.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    last: Time,
    count: u32,
}

impl Turn {
    fn next(self, wait: Span) -> Time {
        self.last + wait * (1 << self.count)
    }

    fn note(&mut self, now: Time, most: u32) {
        *self = Turn { last: now, count: (self.count + 1).min(most) };
    }
}

impl Silence {
    /// The waits double so often, then stay.
    pub(super) fn new(most: u32) -> Silence {
        Silence { probe: Turn::default(), expiry: Turn::default(), most }
    }

    /// An acknowledgement or a loss report has come, or the first block after a pause is sent.
    pub(super) fn end(&mut self, now: Time) {
        let turn = Turn { last: now, count: 0 };
        (self.probe, self.expiry) = (turn, turn);
    }

    /// When the next probe is due, the first after `wait`.
    pub(super) fn probe(&self, wait: Span) -> Time {
        self.probe.next(wait)
    }

    /// When everything in flight is given up, the first time after `wait`.
    pub(super) fn expiry(&self, wait: Span) -> Time {
        self.expiry.next(wait)
    }

    /// A probe is sent.
    pub(super) fn note_probe(&mut self, now: Time) {
        self.probe.note(now, self.most);
    }

    /// Everything in flight is given up.
    pub(super) fn note_expiry(&mut self, now: Time) {
        self.expiry.note(now, self.most);
    }
}
