//! A small seeded random generator: xoshiro256++ (Blackman and Vigna, 2021), seeded by splitmix64.
//!
//! The same seed gives the same numbers on every machine, because logarithms come from `libm`.

use longhaul_proto::time::Span;

/// A stream of random numbers that a seed determines.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// The stream of `seed`, which may be zero.
    pub fn new(seed: u64) -> Random {
        let mut mix = seed;
        let state = core::array::from_fn(|_| {
            mix = mix.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (mix ^ (mix >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        });
        Random { state }
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let shifted = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= shifted;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number from 0 (included) to 1 (not included).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with probability `share`.
    pub fn chance(&mut self, share: f64) -> bool {
        share > 0.0 && self.unit() < share
    }

    /// A whole number below `limit`; zero if `limit` is zero.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(limit)) >> 64) as u64
    }

    /// A random span, exponentially distributed with this mean.
    pub fn exponential(&mut self, mean: Span) -> Span {
        Span::from_secs_f64(-libm::log(1.0 - self.unit()) * mean.as_secs_f64())
    }

    /// Number of failed trials before the first success of probability `share`; [`u64::MAX`] if
    /// `share` is zero. Uses at most one random number.
    pub(crate) fn failures_before_success(&mut self, share: f64) -> u64 {
        if share <= 0.0 {
            return u64::MAX;
        }
        // 1 − U lies in (0, 1], so its logarithm is finite. A share of 1 gives zero.
        let trials = libm::log(1.0 - self.unit()) / libm::log1p(-share.min(1.0));
        trials as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_determines_the_stream() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            (0..8).map(|_| random.bits()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn unit_has_a_mean_of_one_half_and_below_returns_only_numbers_below_its_limit() {
        let mut random = Random::new(1);
        let n = 100_000;
        let mean = (0..n).map(|_| random.unit()).sum::<f64>() / f64::from(n);
        // The mean of n uniform numbers has a standard deviation of 1 / √(12 n).
        assert!((mean - 0.5).abs() < 4.0 / (12.0 * f64::from(n)).sqrt(), "mean {mean}");
        assert!((0..n).all(|_| random.below(3) < 3));
        assert_eq!(random.below(0), 0);
    }

    #[test]
    fn failures_before_success_has_the_mean_of_the_geometric_law() {
        let mut random = Random::new(2);
        let (n, share) = (50_000, 0.02);
        let sum: u64 = (0..n).map(|_| random.failures_before_success(share)).sum();
        let (mean, expected) = (sum as f64 / f64::from(n), (1.0 - share) / share);
        let deviation = (1.0 - share).sqrt() / share / f64::from(n).sqrt();
        assert!((mean - expected).abs() < 4.0 * deviation, "mean {mean}, expected {expected}");
        assert_eq!(random.failures_before_success(0.0), u64::MAX);
        assert_eq!(random.failures_before_success(1.0), 0);
    }

    #[test]
    fn an_exponential_span_has_the_mean_and_median_of_its_law() {
        let (mut random, mean, n) = (Random::new(5), Span::from_millis(20), 20_000);
        let spans: Vec<f64> =
            (0..n).map(|_| random.exponential(mean).as_secs_f64() / 0.02).collect();
        let average = spans.iter().sum::<f64>() / f64::from(n);
        assert!((average - 1.0).abs() < 4.0 / f64::from(n).sqrt(), "{average}");
        let below = spans.iter().filter(|span| **span < core::f64::consts::LN_2).count();
        assert!((below as f64 / f64::from(n) - 0.5).abs() < 0.015, "{below}");
    }
}
