//! The rate control of the SABUL release that Oak Ridge measured: a delay between packets.
//!
//! > SABUL begins with a preset IPD (inter-packet delay) of 10 usec … The receiver generates a SYN
//! > packet based on a timed interval (200ms) which signals the sender to use both the number of
//! > lost packets and the number of packets — including retransmits — sent since the last SYN time
//! > to calculate a current loss rate. This loss rate is then input to a weighted moving average
//! > formula to give a history-rate. If the history-rate is greater then a preset limit (.001),
//! > the IPD is increased; if less than the limit, the IPD is decreased; if equal, .1 is added. …
//! > The latest implementation … keep[s] the delay between blocks/packets between an upper and
//! > lower limit.
//!
//! This text is from Oak Ridge's study ("Faster bulk transfer starring: UDP"). The study gives
//! neither the step nor the limits of the IPD; they are settings here.

use super::rate::{LossAverage, RateControl};
use super::{DELAY_STEP, FIRST_DELAY, LONGEST_DELAY, LOSS_THRESHOLD, SHORTEST_DELAY};
use crate::endpoint::Setup;
use crate::units::Rate;

/// "If equal, .1 is added", taken as microseconds.
const EQUAL_STEP: f64 = 0.1;

#[derive(Clone, Debug)]
pub(super) struct ReleaseRate {
    /// Size of a full datagram in bits.
    datagram: f64,
    /// The current delay, in microseconds.
    delay: f64,
    shortest: f64,
    longest: f64,
    step: f64,
    limit: f64,
    loss: LossAverage,
    cap: Option<Rate>,
}

impl ReleaseRate {
    pub(super) fn new(setup: &Setup, cap: Option<Rate>) -> ReleaseRate {
        let value = |option| setup.settings.value(option);
        // Whole nanoseconds, so that 10 µs are exact.
        let micros = |option| setup.settings.span(option).as_nanos() as f64 / 1e3;
        let shortest = micros(&SHORTEST_DELAY);
        ReleaseRate {
            datagram: setup.datagram().bits(),
            delay: micros(&FIRST_DELAY).max(shortest),
            shortest,
            longest: micros(&LONGEST_DELAY).max(shortest),
            step: value(&DELAY_STEP),
            limit: value(&LOSS_THRESHOLD),
            loss: LossAverage::new(setup),
            cap,
        }
    }
}

impl RateControl for ReleaseRate {
    fn rate(&self) -> Rate {
        let rate = Rate::from_bps_f64(self.datagram * 1e6 / self.delay);
        self.cap.map_or(rate, |cap| rate.min(cap))
    }

    fn start(&mut self, rate: Rate) {
        let delay = self.datagram * 1e6 / rate.as_bps().max(1) as f64;
        self.delay = delay.clamp(self.shortest, self.longest);
    }

    fn on_interval(&mut self, sent: u64, lost: u64) {
        let Some(history) = self.loss.note(sent, lost) else { return };
        let delay = if history > self.limit {
            self.delay * (1.0 + self.step)
        } else if history < self.limit {
            self.delay / (1.0 + self.step)
        } else {
            self.delay + EQUAL_STEP
        };
        self.delay = delay.clamp(self.shortest, self.longest);
    }

    fn on_report(&mut self, _: u64, _: u64) -> bool {
        false
    }
}
