//! The first datagrams leave at once: what the receiver tells of them shows a rate to begin with.

use crate::endpoint::{PacketNumber, Setup};
use crate::pulse::TRAIN_LEN;
use crate::rate::train::first_rate;
use crate::units::{Bytes, Rate};
use crate::wire::Pulse;

/// A flow's first packet train, where its protocol only wants a first rate of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstTrain {
    datagram: Bytes,
    /// What of the rate that it shows is taken.
    share: f64,
    /// Its datagrams.
    len: u64,
    /// No rate is higher.
    limit: Option<Rate>,
    /// The report has not come.
    is_open: bool,
}

impl FirstTrain {
    /// The train at the start of a flow; none goes unless it is `wanted`. Of what it shows `share`
    /// is taken.
    pub(crate) fn new(setup: &Setup, wanted: bool, share: f64) -> FirstTrain {
        let limit = setup.rate.or(setup.rate_limit);
        let (datagram, len) = (setup.datagram(), TRAIN_LEN);
        FirstTrain { datagram, share, len, limit, is_open: wanted }
    }

    /// The same with a train of so many datagrams, which the receiver knows.
    pub(crate) fn with_len(self, len: u64) -> FirstTrain {
        FirstTrain { len, ..self }
    }

    /// Whether the rate is still to be shown.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// How many datagrams from number `next` on leave whatever the pace.
    pub(crate) fn room(&self, next: PacketNumber) -> u64 {
        if self.is_open { self.len.saturating_sub(next.0) } else { 0 }
    }

    /// The rate that the train shows, once, as soon as it does.
    pub(crate) fn on_pulse(&mut self, pulse: &Pulse) -> Option<Rate> {
        let rate = first_rate(self.datagram, pulse, self.share).filter(|_| self.is_open)?;
        self.is_open = false;
        Some(self.limit.map_or(rate, |limit| rate.min(limit)))
    }
}
