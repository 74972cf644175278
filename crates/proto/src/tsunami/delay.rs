//! The delay between datagrams, and what error rates make of it.

use super::{ERROR_RATE, SLOW_DOWN, SPEED_UP};
use crate::endpoint::Setup;
use crate::units::Rate;
use crate::wire::ErrorRate;

/// The delay starts at so many times the target's.
const FIRST: f64 = 3.0;
/// The delay is never longer, in seconds, unless the target's is.
const LONGEST: f64 = 0.01;

/// The delay between datagrams, in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delay {
    /// A full datagram, in bits.
    datagram: f64,
    target: f64,
    delay: f64,
    slow_down: f64,
    speed_up: f64,
    /// Tolerated, in thousandths of a percent.
    tolerated: f64,
}

impl Delay {
    /// The delay of a flow whose target is `target`, three times which it starts at.
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

    /// The target is kept to from now on.
    pub(super) fn start_at_target(&mut self) {
        self.delay = self.target;
    }

    /// The target has become `target`: a delay that is the target's stays so, one that error rates
    /// have made longer stays as long.
    pub(super) fn set_target(&mut self, target: Rate) {
        let is_at_target = self.delay <= self.target;
        self.target = self.of(target);
        self.set(if is_at_target { self.target } else { self.delay });
    }

    fn set(&mut self, delay: f64) {
        self.delay = delay.clamp(self.target, LONGEST.max(self.target));
    }

    /// An error rate has been reported, in thousandths of a percent. The public tool's rule:
    /// above the tolerated rate the delay grows by the more the further above, else it shrinks by
    /// a fixed factor.
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

    /// The rate that the delay makes, in bits a second of UDP payload.
    pub(super) fn rate(&self) -> Rate {
        Rate::from_bps_f64(self.datagram / self.delay)
    }
}
