//! The retransmission timeout (RFC 6298).

use longhaul_proto::time::Span;

/// The timeout before the first sample (RFC 6298, 2.1).
const INITIAL: Span = Span::from_secs(1);
/// Minimum of the term 4 × variation; Linux limits this term, not the sum.
const MIN_VARIATION: Span = Span::from_millis(200);
/// RFC 6298, 2.5 allows a maximum of 60 s or more; Linux uses 120 s.
const MAX: Span = Span::from_secs(120);

#[derive(Clone, Copy, Debug)]
pub(super) struct Rto {
    /// The smoothed round-trip time and its variation.
    estimate: Option<(Span, Span)>,
    pub(super) min_rtt: Span,
    backoff: u32,
}

impl Rto {
    pub(super) fn new() -> Rto {
        Rto { estimate: None, min_rtt: Span::MAX, backoff: 0 }
    }

    pub(super) fn sample(&mut self, rtt: Span) {
        self.min_rtt = self.min_rtt.min(rtt);
        self.estimate = Some(match self.estimate {
            None => (rtt, rtt / 2),
            Some((smoothed, variation)) => {
                let error = (smoothed - rtt).max(rtt - smoothed);
                let variation = variation - variation / 4 + error / 4;
                (smoothed - smoothed / 8 + rtt / 8, variation)
            }
        });
    }

    /// The smoothed round-trip time; at first, the initial timeout.
    pub(super) fn smoothed(&self) -> Span {
        self.estimate.map_or(INITIAL, |(smoothed, _)| smoothed)
    }

    pub(super) fn timeout(&self) -> Span {
        let base = self
            .estimate
            .map_or(INITIAL, |(smoothed, variation)| smoothed + (variation * 4).max(MIN_VARIATION));
        (base * (1 << self.backoff)).min(MAX)
    }

    /// RFC 6298, 5.5: doubles the timeout after it expired.
    pub(super) fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(10);
    }

    /// Ends the backoff: the SYN or new data were acknowledged.
    pub(super) fn relax(&mut self) {
        self.backoff = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Span = Span::from_millis;

    #[test]
    fn the_first_samples_follow_rfc_6298() {
        let mut rto = Rto::new();
        assert_eq!(rto.timeout(), MS(1_000));
        rto.sample(MS(400));
        // SRTT = R, RTTVAR = R/2, RTO = SRTT + 4 × RTTVAR.
        assert_eq!(rto.timeout(), MS(400 + 4 * 200));
        rto.sample(MS(480));
        // RTTVAR = 3/4 × 200 + 1/4 × 80 = 170; SRTT = 7/8 × 400 + 1/8 × 480 = 410.
        assert_eq!((rto.smoothed(), rto.timeout()), (MS(410), MS(410 + 4 * 170)));
    }

    #[test]
    fn the_timeout_of_a_steady_path_is_rtt_plus_200_ms_and_doubles_on_each_back_off() {
        let mut rto = Rto::new();
        (0..200).for_each(|_| rto.sample(MS(10)));
        let steady = rto.timeout();
        assert_eq!(steady, MS(210));
        rto.back_off();
        rto.back_off();
        assert_eq!(rto.timeout(), steady * 4);
        rto.relax();
        assert_eq!(rto.timeout(), steady);
    }
}
