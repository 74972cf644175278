//! Rate controllers (rate control laws): feedback in, a rate out.
//!
//! - [`fixed`]: the rate that the user gave; it never reacts.
//! - [`train`]: finds the rate from packet trains (datagrams sent back to back) and from the
//!   delivery rate.
//! - [`resume`]: starts a controller faster on a path whose rate an earlier flow found.
//! - [`shadow`]: [`train`] while the flow is alone on the path, and a window like CUBIC's while
//!   other flows share it.

mod asked;
mod departures;
pub(crate) mod fixed;
mod jitter;
mod pool;
mod resume;
pub(crate) mod shadow;
pub(crate) mod train;

#[cfg(test)]
mod tests;

use crate::endpoint::{PacketNumber, Setup};
use crate::law::{Found, Law};
use crate::receipt::Receipt;
use crate::time::{Span, Time};
use crate::units::Rate;
use crate::wire::Pulse;

use alloc::boxed::Box;

/// Input to a controller, one for each pulse (periodic report) of the receiver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Feedback<'a> {
    pub pulse: &'a Pulse,
    /// The smallest round-trip time seen.
    pub min_rtt: Span,
    /// The smoothed round-trip time.
    pub rtt: Span,
    /// Round-trip time from the pulse's echo, if the sender still knows when the echoed datagram
    /// left.
    pub sample: Option<Span>,
}

/// Decides how fast datagrams leave.
pub(crate) trait RateController: Send {
    /// The current sending rate, in bits a second of UDP payload.
    fn rate(&self) -> Rate;

    /// Number of datagrams, from number `next` on, that may leave back to back, regardless of the
    /// pace.
    fn train(&mut self, now: Time, next: PacketNumber) -> u64;

    /// Notes that `count` datagrams, from number `first` on, have left.
    fn on_sent(&mut self, now: Time, first: PacketNumber, count: u64);

    /// Maximum number of datagrams in a burst.
    fn burst(&self) -> u64 {
        u64::MAX
    }

    /// What the controller knows about the path so far; empty for a controller that does not probe.
    fn found(&self) -> Found {
        Found::default()
    }

    fn on_feedback(&mut self, now: Time, feedback: &Feedback<'_>);

    /// Handles what the receiving host says about datagrams that left before the session was open.
    /// The receipt is not authenticated.
    fn on_receipt(&mut self, _receipt: &Receipt) {}

    /// Raises the rate to `rate`, which is near the rate that an earlier flow found. The report on
    /// the first train has confirmed the earlier rate. Without effect if the controller does not
    /// search for a higher rate, or already has one that it does not doubt.
    fn start_at(&mut self, _rate: Rate) {}
}

/// Returns the controller that the flow's setup asks for.
pub(crate) fn controller(setup: &Setup) -> Box<dyn RateController> {
    if let Some(rate) = setup.fixed_rate() {
        return Box::new(fixed::Fixed::new(rate));
    }
    let law: Box<dyn RateController> = match setup.law {
        Law::Trains => Box::new(train::Trains::new(setup.datagram(), setup.rate_limit)),
        Law::Shadow => {
            Box::new(shadow::Shadow::new(setup.datagram(), setup.rate_limit, setup.weight))
        }
    };
    match setup.known_path() {
        Some(path) => Box::new(resume::Resumed::new(law, setup, path)),
        None => law,
    }
}
