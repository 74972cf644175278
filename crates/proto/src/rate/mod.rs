//! Rate controllers: feedback in, a rate out.
//!
//! - [`fixed`]: the rate that the user gave; it never reacts.
//! - [`train`]: finds the rate by packet trains and by what is delivered.
//! - [`resume`]: a faster start for a law, over a path that is remembered.
//! - [`shadow`]: the delivery rate, and beside other traffic the window that CUBIC would have.

mod asked;
mod departures;
pub(crate) mod fixed;
mod resume;
pub(crate) mod shadow;
pub(crate) mod train;

#[cfg(test)]
mod tests;

use crate::endpoint::{PacketNumber, Setup};
use crate::law::{Found, Law};
use crate::time::{Span, Time};
use crate::units::Rate;
use crate::wire::Pulse;

use alloc::boxed::Box;

/// What a controller learns, each time that the receiver's pulse comes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Feedback<'a> {
    /// What the receiver says.
    pub pulse: &'a Pulse,
    /// The smallest round-trip time seen.
    pub min_rtt: Span,
    /// The smoothed round-trip time.
    pub rtt: Span,
    /// The round-trip time of the pulse's echo, if it has one that we still know.
    pub sample: Option<Span>,
}

/// Decides how fast datagrams go out.
pub(crate) trait RateController: Send {
    /// The rate to send at from now on, in bits a second of UDP payload.
    fn rate(&self) -> Rate;

    /// How many datagrams, the first with number `next`, may leave at once whatever the pace.
    fn train(&mut self, now: Time, next: PacketNumber) -> u64;

    /// So many datagrams, the first with number `first`, have left.
    fn on_sent(&mut self, now: Time, first: PacketNumber, count: u64);

    /// What is known about the path so far; nothing where the law looks for nothing.
    fn found(&self) -> Found {
        Found::default()
    }

    /// The receiver's pulse has come.
    fn on_feedback(&mut self, now: Time, feedback: &Feedback<'_>);
}

/// The controller that a flow's setup asks for.
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
    match setup.remembered.filter(|path| path.fits(setup.rtt)) {
        Some(path) => Box::new(resume::Resumed::new(law, setup, path)),
        None => law,
    }
}
