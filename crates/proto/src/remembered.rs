//! Knowledge about a path from earlier flows.

use crate::time::Span;
use crate::units::{Bytes, LossRatio, Rate};

/// A path's properties when an earlier flow used it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Remembered {
    /// The rate that the path carried, in bits a second of UDP payload.
    pub rate: Rate,
    /// The smallest round-trip time.
    pub rtt: Span,
    /// The share of datagrams that the path lost.
    pub loss: LossRatio,
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

    /// Returns the bytes that may be in flight before a path with this round-trip time is validated
    /// (RFC 9959, section 3.3). They are half of what the remembered rate carries in the shorter of
    /// the two round-trip times.
    pub fn flight(&self, rtt: Span) -> Bytes {
        self.rate.scale(0.5).over(self.rtt.min(rtt))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_below_two_milliseconds_count_as_two_milliseconds() {
        let (rate, loss) = (Rate::ZERO, LossRatio::NONE);
        let local = Remembered { rtt: Span::from_micros(50), rate, loss };
        assert!(local.fits(Span::from_millis(2)) && local.fits(Span::from_millis(20)));
        assert!(!local.fits(Span::from_micros(20_001)));
    }

    #[test]
    fn a_flight_is_half_of_what_the_path_carries_in_the_shorter_round_trip() {
        let (rate, loss) = (Rate::from_mbps(800), LossRatio::NONE);
        let path = Remembered { rate, rtt: Span::from_millis(100), loss };
        assert_eq!(path.flight(Span::from_millis(120)), Bytes::new(5_000_000));
        assert_eq!(path.flight(Span::from_millis(50)), Bytes::new(2_500_000));
    }
}
