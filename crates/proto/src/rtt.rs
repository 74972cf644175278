//! The round-trip time: smoothed as in RFC 6298, and its minimum.

use crate::time::Span;

/// Minimum time by which a timeout exceeds the smoothed round-trip time. It covers the receiver's
/// own delays, which the samples do not include.
const MIN_TIMEOUT: Span = Span::from_millis(5);

/// An estimate of the round-trip time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rtt {
    smoothed: Span,
    variation: Span,
    min: Span,
    sampled: bool,
}

impl Rtt {
    /// Starts from the session's estimate.
    pub fn new(initial: Span) -> Rtt {
        Rtt { smoothed: initial, variation: initial / 2, min: initial, sampled: false }
    }

    /// Adds a sample; a sample of zero is ignored.
    pub fn sample(&mut self, sample: Span) {
        if sample == Span::ZERO {
            return;
        }
        if !self.sampled {
            // RFC 6298, 2.2: the first measurement replaces the guess.
            *self = Rtt::new(sample);
            self.sampled = true;
            return;
        }
        let error = (self.smoothed - sample).max(sample - self.smoothed);
        // RFC 6298, 2.3: beta is 1/4, alpha is 1/8.
        self.variation = self.variation - self.variation / 4 + error / 4;
        self.smoothed = self.smoothed - self.smoothed / 8 + sample / 8;
        self.min = self.min.min(sample);
    }

    /// The smoothed round-trip time.
    pub fn smoothed(&self) -> Span {
        self.smoothed
    }

    /// The smallest sample: about the round-trip time with empty queues. Before the first sample,
    /// the session's estimate.
    pub fn min(&self) -> Span {
        self.min
    }

    /// How long to wait before an answer counts as late.
    pub fn timeout(&self) -> Span {
        let margin = (self.variation * 4).max(MIN_TIMEOUT);
        (self.smoothed * 2).max(self.smoothed + margin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sample_replaces_the_guess() {
        let mut rtt = Rtt::new(Span::from_millis(100));
        rtt.sample(Span::from_millis(20));
        assert_eq!(rtt.smoothed(), Span::from_millis(20));
        assert_eq!(rtt.min(), Span::from_millis(20));
    }

    #[test]
    fn the_estimate_settles_on_a_steady_path() {
        let mut rtt = Rtt::new(Span::from_millis(100));
        rtt.sample(Span::from_millis(10));
        for _ in 0..100 {
            rtt.sample(Span::from_millis(50));
        }
        let off = Span::from_millis(50) - rtt.smoothed();
        assert!(off < Span::from_millis(1), "{off}");
        assert!(rtt.timeout() >= Span::from_millis(95));
        assert_eq!(rtt.min(), Span::from_millis(10));
    }

    #[test]
    fn each_sample_changes_the_estimate_as_in_rfc_6298() {
        let millis = Span::from_millis;
        let mut rtt = Rtt::new(Span::ZERO);
        // After each sample: smoothed, variation, minimum and timeout.
        for (sample, expected) in [
            (80, [80, 40, 80, 240]),
            (40, [75, 40, 40, 235]),
            (0, [75, 40, 40, 235]),
            (235, [95, 70, 40, 375]),
        ] {
            rtt.sample(millis(sample));
            assert_eq!([rtt.smoothed, rtt.variation, rtt.min, rtt.timeout()], expected.map(millis));
        }
    }

    #[test]
    fn a_timeout_is_never_shorter_than_two_round_trips() {
        let mut rtt = Rtt::new(Span::from_micros(50));
        for _ in 0..50 {
            rtt.sample(Span::from_millis(80));
        }
        assert!(rtt.timeout() >= rtt.smoothed() * 2);
        assert!(Rtt::new(Span::from_micros(50)).timeout() >= MIN_TIMEOUT);
    }
}
