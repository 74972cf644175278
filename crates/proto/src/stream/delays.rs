//! Percentiles of delays.

use alloc::vec;
use alloc::vec::Vec;

use crate::time::Span;

/// log₂ of the number of buckets for each power of two: percentiles are exact to 2⁻⁶, 1.6 %.
const FINE: u32 = 6;

/// A histogram of delays in a fixed amount of memory.
#[derive(Clone, Debug)]
pub struct Delays {
    buckets: Vec<u64>,
    count: u64,
    longest: Span,
}

impl Default for Delays {
    fn default() -> Delays {
        Delays { buckets: vec![0; (33 - FINE as usize) << FINE], count: 0, longest: Span::ZERO }
    }
}

impl Delays {
    /// Counts a delay. In percentiles, a delay above an hour counts as an hour.
    pub fn add(&mut self, delay: Span) {
        let micros = (delay.as_nanos() / 1_000).min(3_600_000_000) as u32;
        if let Some(bucket) = self.buckets.get_mut(place(micros)) {
            *bucket += 1;
        }
        self.count += 1;
        self.longest = self.longest.max(delay);
    }

    /// The delay that the share `share` of all counted delays did not exceed.
    pub fn at(&self, share: f64) -> Span {
        let wanted = libm::ceil(self.count as f64 * share) as u64;
        let mut seen = 0;
        for (place, bucket) in self.buckets.iter().enumerate() {
            seen += bucket;
            if seen > 0 && seen >= wanted {
                return Span::from_micros(most(place)).min(self.longest);
            }
        }
        self.longest
    }

    /// The longest delay.
    pub fn longest(&self) -> Span {
        self.longest
    }

    /// Number of delays.
    pub fn count(&self) -> u64 {
        self.count
    }
}

/// The bucket of a delay: one for each µs below 2⁷ µs, then 2⁶ for each power of two.
fn place(micros: u32) -> usize {
    let octave = (32 - micros.leading_zeros()).saturating_sub(FINE + 1);
    ((octave << FINE) + (micros >> octave)) as usize
}

/// The longest delay that falls into a bucket, in µs.
fn most(place: usize) -> u64 {
    let (octave, fine) = (place >> FINE, place as u64 & ((1 << FINE) - 1));
    match octave {
        0 => fine,
        octave => ((fine + (1 << FINE) + 1) << (octave - 1)) - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_delay_is_in_a_bucket_that_ends_at_the_delay_or_a_little_above() {
        for micros in (0..40).flat_map(|n| {
            let power = 1_u64 << (n % 32);
            [power - 1, power, power + power / 3]
        }) {
            let micros = micros.min(3_600_000_000);
            let most = most(place(micros as u32));
            assert!(most >= micros && most <= micros + micros / 64 + 1, "{micros} {most}");
        }
    }

    #[test]
    fn percentiles_are_at_most_1_6_percent_above_those_of_the_delays() {
        let mut delays = Delays::default();
        assert_eq!((delays.at(0.5), delays.count()), (Span::ZERO, 0));
        for millis in 1..=1_000 {
            delays.add(Span::from_millis(millis));
        }
        for (share, millis) in [(0.5, 500.0), (0.99, 990.0), (0.999, 999.0)] {
            let at = delays.at(share).as_secs_f64() * 1_000.0;
            assert!(at >= millis && at <= millis * 1.016, "{share} {at}");
        }
        assert_eq!((delays.at(1.0), delays.longest()), (Span::from_secs(1), Span::from_secs(1)));
        delays.add(Span::from_secs(100_000));
        assert_eq!(delays.longest(), Span::from_secs(100_000));
    }

    #[test]
    fn a_bucket_is_1_us_wide_below_128_us_and_then_2_4_and_8_us_wide() {
        let last = |micros| most(place(micros));
        assert_eq!([0, 127, 128, 129, 254, 255].map(last), [0, 127, 129, 129, 255, 255]);
        assert_eq!([256, 259, 260, 512].map(last), [259, 259, 263, 519]);
    }
}
