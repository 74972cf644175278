//! Knowledge about a path from earlier flows.

use crate::time::Span;
use crate::units::Rate;

/// A path's properties when an earlier flow used it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// The rate that the path carried, in bits a second of UDP payload.
    pub rate: Rate,
    /// The smallest round-trip time.
    pub rtt: Span,
}

impl Remembered {
    /// Whether a path with this round-trip time can be the remembered path: between half and ten
    /// times the remembered time (RFC 9959, section 3.2). Times below 2 ms count as 2 ms, because
    /// they are mostly delays in the hosts.
    pub fn fits(&self, rtt: Span) -> bool {
        let least = Span::from_millis(2);
        let (was, is) = (self.rtt.max(least), rtt.max(least));
        is >= was / 2 && is <= was * 10
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_below_two_milliseconds_are_all_alike() {
        let local = Remembered { rtt: Span::from_micros(50), rate: Rate::ZERO };
        assert!(local.fits(Span::from_millis(2)) && local.fits(Span::from_millis(20)));
        assert!(!local.fits(Span::from_micros(20_001)));
    }
}
