//! A fixed rate: the user's, or the rate limit if that is lower. It never reacts to feedback, not
//! even to loss.

use super::{Feedback, RateController};
use crate::endpoint::PacketNumber;
use crate::time::Time;
use crate::units::Rate;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Fixed {
    rate: Rate,
}

impl Fixed {
    pub(crate) fn new(rate: Rate) -> Fixed {
        Fixed { rate }
    }
}

impl RateController for Fixed {
    fn rate(&self) -> Rate {
        self.rate
    }

    fn train(&mut self, _: Time, _: PacketNumber) -> u64 {
        0
    }

    fn on_sent(&mut self, _: Time, _: PacketNumber, _: u64) {}

    fn on_feedback(&mut self, _: Time, _: &Feedback<'_>) {}
}
