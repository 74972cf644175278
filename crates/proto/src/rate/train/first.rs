//! The start of the rate search: from the first packet train (datagrams sent back to back) to the
//! first rate.

use super::{GUESSED, Mode, NEAR, Trains};
use crate::pulse::TRAIN_LEN;
use crate::rate::Feedback;
use crate::rate::pool::SURE;
use crate::time::Span;
use crate::units::{Bytes, Rate};
use crate::wire::Pulse;

/// The rate between the first train and its report.
pub(crate) const TRICKLE: Rate = Rate::from_mbps(8);
/// Number of datagrams sent at [`TRICKLE`], after which the rate drops to the minimum.
pub(super) const TRICKLE_LEN: u64 = 128;
/// Round-trip times are used to detect jitter only if at most this many datagrams left before the
/// first rate. More datagrams may have filled a queue.
pub(super) const MOST_TRICKLED: u64 = 256;
/// Assumed duration of a train that arrived in one instant, too fast to be timed.
const INSTANT: Span = Span::from_micros(500);
/// Share of the first train's rate that the sender takes: other flows may use the path too.
pub(crate) const FIRST_SHARE: f64 = 0.9;
/// Factor of the first rate if jitter stretched the first train.
const DOUBLED: f64 = 2.0;

/// The initial rate, from the report on a flow's first train: `share` of the train's rate. If the
/// train was too fast to be timed, the rate of a train that lasts [`INSTANT`]. `None` before the
/// report.
pub(crate) fn first_rate(datagram: Bytes, pulse: &Pulse, share: f64) -> Option<Rate> {
    match pulse.train.filter(|train| train.first.0 == 0) {
        Some(train) => Some((train.bytes / train.span).scale(share)),
        None if pulse.highest >= TRAIN_LEN => {
            Some(Bytes::new(datagram.get() * TRAIN_LEN) / INSTANT)
        }
        None => None,
    }
}

impl Trains {
    /// At the end of the first epoch, decides whether jitter may have spoiled the first train.
    pub(super) fn doubt(&mut self) {
        if self.jitter.judge() {
            self.pool.doubt();
            if self.shown().is_none() {
                (self.blind, self.growth) = (true, GUESSED);
            }
        }
    }

    /// Ends the start phase at the report on the first train, timed or not.
    pub(super) fn start(&mut self, feedback: &Feedback<'_>) {
        let Some(rate) = first_rate(self.datagram, feedback.pulse, 1.0) else { return };
        let (rate, mut factor) = (rate.as_bps() as f64, 1.0);
        if feedback.pulse.train.is_some_and(|train| train.first.0 == 0) {
            // A stalled host may have stretched the train, so its rate is not taken as a ceiling.
            self.growth = if self.blind { GUESSED } else { NEAR };
            factor = FIRST_SHARE;
        }
        if self.jitter.is_stretched {
            factor *= DOUBLED;
        }
        self.mode = Mode::Up;
        self.is_unsure = rate > SURE;
        self.set_rate(rate.min(SURE) * factor);
    }
}
