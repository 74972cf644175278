//! The first packet train: the first datagrams leave back to back, and the receiver's report on
//! them gives a first rate.

use crate::endpoint::{PacketNumber, Setup};
use crate::pulse::TRAIN_LEN;
use crate::rate::train::first_rate;
use crate::units::{Bytes, Rate};
use crate::wire::Pulse;

/// A flow's first packet train, for a protocol that only needs a first rate from it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstTrain {
    datagram: Bytes,
    /// The share of the measured rate that is used.
    share: f64,
    len: u64,
    /// Upper limit of the rate.
    limit: Option<Rate>,
    /// Whether the receiver's report on the train is still to come.
    is_open: bool,
}

impl FirstTrain {
    /// Returns the train at the start of a flow. If `wanted` is false, the flow begins without a
    /// train. The first rate is `share` of the measured rate.
    pub(crate) fn new(setup: &Setup, wanted: bool, share: f64) -> FirstTrain {
        let limit = setup.rate.or(setup.rate_limit);
        let (datagram, len) = (setup.datagram(), TRAIN_LEN);
        FirstTrain { datagram, share, len, limit, is_open: wanted }
    }

    /// Sets the number of datagrams in the train, which the receiver must know too.
    pub(crate) fn with_len(self, len: u64) -> FirstTrain {
        FirstTrain { len, ..self }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Returns how many datagrams, from packet number `next` on, leave regardless of the pacing.
    pub(crate) fn room(&self, next: PacketNumber) -> u64 {
        if self.is_open { self.len.saturating_sub(next.0) } else { 0 }
    }

    /// Returns the first rate, once: when a pulse (the receiver's periodic report) covers the
    /// train.
    pub(crate) fn on_pulse(&mut self, pulse: &Pulse) -> Option<Rate> {
        let rate = first_rate(self.datagram, pulse, self.share).filter(|_| self.is_open)?;
        self.is_open = false;
        Some(self.limit.map_or(rate, |limit| rate.min(limit)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::FlowId;
    use crate::layout::Layout;
    use crate::time::Span;

    #[test]
    fn a_train_is_open_until_its_report_and_only_if_it_is_wanted() {
        let layout = Layout::whole(Bytes::new(100_000), 1000).unwrap();
        let setup = Setup::new(FlowId(1), layout, Span::from_millis(10));
        let room = |train: &FirstTrain, next| train.room(PacketNumber(next));
        let none = FirstTrain::new(&setup, false, 0.5);
        assert_eq!((none.is_open(), room(&none, 0)), (false, 0));
        let mut train = FirstTrain::new(&setup, true, 0.5).with_len(8);
        assert_eq!((train.is_open(), room(&train, 3), room(&train, 9)), (true, 5, 0));
        assert_eq!(train.on_pulse(&Pulse::default()), None);
        assert!(train.is_open());
        let report = Pulse { highest: TRAIN_LEN, ..Pulse::default() };
        assert!(train.on_pulse(&report).is_some());
        assert_eq!((train.is_open(), room(&train, 3), train.on_pulse(&report)), (false, 0, None));
    }
}
