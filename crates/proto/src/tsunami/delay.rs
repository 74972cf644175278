//! Tsunami's delay between datagrams, and how error rates change it. The *target* is the highest
//! rate of the flow: the delay never falls below the delay at this rate.

use super::{ERROR_RATE, SLOW_DOWN, SPEED_UP};
use crate::endpoint::Setup;
use crate::units::Rate;
use crate::wire::ErrorRate;

/// With a fixed rate, the delay starts at this multiple of the target's delay, as far as
/// [`LONGEST`] allows.
const FIRST: f64 = 3.0;
/// Longest delay in seconds, unless the target's delay is longer.
const LONGEST: f64 = 0.01;

/// The delay between datagrams, in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delay {
    /// Size of a full datagram in bits.
    datagram: f64,
    /// The delay at the target, in seconds.
    target: f64,
    delay: f64,
    slow_down: f64,
    speed_up: f64,
    /// Tolerated error rate, in thousandths of a percent.
    tolerated: f64,
}

impl Delay {
    pub(super) fn new(setup: &Setup, target: Rate) -> Delay {
        let value = |option| setup.settings.value(option);
        let mut delay = Delay {
            datagram: setup.datagram().bits(),
            target: 0.0,
            delay: 0.0,
            slow_down: value(&SLOW_DOWN),
            speed_up: value(&SPEED_UP),
            tolerated: value(&ERROR_RATE) * f64::from(ErrorRate::ALL),
        };
        delay.target = delay.of(target);
        delay.set(delay.target * FIRST);
        delay
    }

    fn of(&self, rate: Rate) -> f64 {
        self.datagram / rate.as_bps().max(1) as f64
    }

    pub(super) fn start_at_target(&mut self) {
        self.delay = self.target;
    }

    /// Changes the target. A delay that equals the old target's delay becomes the new target's
    /// delay. A longer delay stays; if it is shorter than the new target's delay, it rises to the
    /// new target's delay.
    pub(super) fn set_target(&mut self, target: Rate) {
        let is_at_target = self.delay <= self.target;
        self.target = self.of(target);
        self.set(if is_at_target { self.target } else { self.delay });
    }

    fn set(&mut self, delay: f64) {
        self.delay = delay.clamp(self.target, LONGEST.max(self.target));
    }

    /// Handles a reported error rate, in thousandths of a percent, by the rule of Tsunami's public
    /// tool. Above the tolerated error rate, the delay grows by a share that is linear in the
    /// excess. Otherwise the delay shrinks by a fixed factor.
    pub(super) fn on_error_rate(&mut self, rate: u32) {
        let all = f64::from(ErrorRate::ALL);
        let above = f64::from(rate) - self.tolerated;
        let factor = if above > 0.0 {
            1.0 + (self.slow_down - 1.0) * (1.0 + above) / (all - self.tolerated)
        } else {
            self.speed_up
        };
        self.set(self.delay * factor);
    }

    /// The rate that corresponds to the delay, in bits a second of UDP payload.
    pub(super) fn rate(&self) -> Rate {
        Rate::from_bps_f64(self.datagram / self.delay)
    }
}
