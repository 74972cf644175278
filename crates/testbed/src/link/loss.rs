//! Loss models: which packets the line loses.

use std::sync::Arc;

use longhaul_proto::units::LossRatio;

use super::SpecError;
use crate::random::Random;

/// How a link loses packets.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Loss {
    /// No loss.
    #[default]
    None,
    /// Each packet is lost independently with this probability.
    Independent(LossRatio),
    /// Packets are lost in bursts.
    GilbertElliott(GilbertElliott),
    /// Each bit on the wire is wrong with this probability; one wrong bit loses the packet.
    BitErrors(f64),
    /// A recorded pattern (`true`: lost), repeated at its end.
    Pattern(Arc<[bool]>),
}

/// Two states, each with its own loss; the state may change before each packet (Gilbert 1960,
/// Elliott 1963). All four fields are probabilities.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GilbertElliott {
    /// Transition from the good state to the bad one.
    pub worsens: f64,
    /// Transition from the bad state to the good one: the inverse of a bad period's mean length in
    /// packets.
    pub recovers: f64,
    /// Loss in the good state.
    pub good_loss: f64,
    /// Loss in the bad state.
    pub bad_loss: f64,
}

impl GilbertElliott {
    /// Bursts of lost packets: `mean_burst` packets long on average, `ratio` of all packets lost.
    /// `None` if `ratio` is 1, or `mean_burst` is below 1 or below ratio / (1 − ratio).
    pub fn bursts(ratio: LossRatio, mean_burst: f64) -> Option<GilbertElliott> {
        let recovers = 1.0 / mean_burst;
        let worsens = recovers * ratio.get() / (1.0 - ratio.get());
        let possible = |p: f64| (0.0..=1.0).contains(&p);
        (possible(recovers) && possible(worsens)).then_some(GilbertElliott {
            worsens,
            recovers,
            good_loss: 0.0,
            bad_loss: 1.0,
        })
    }

    /// The long-run share of lost packets.
    pub fn mean(&self) -> f64 {
        let turnover = self.worsens + self.recovers;
        let bad = if turnover > 0.0 { self.worsens / turnover } else { 0.0 };
        (1.0 - bad) * self.good_loss + bad * self.bad_loss
    }
}

impl Loss {
    /// Independent loss, or none where `ratio` is zero.
    pub fn independent(ratio: LossRatio) -> Loss {
        if ratio == LossRatio::NONE { Loss::None } else { Loss::Independent(ratio) }
    }

    pub(super) fn validate(&self) -> Result<(), SpecError> {
        let sound = |what: &'static str, share: f64| match (0.0..=1.0).contains(&share) {
            true => Ok(()),
            false => Err(SpecError::new(format!("{what} {share} is not between 0 and 1"))),
        };
        match self {
            Loss::None | Loss::Independent(_) => Ok(()),
            Loss::GilbertElliott(chain) => {
                sound("worsens", chain.worsens)?;
                sound("recovers", chain.recovers)?;
                sound("good_loss", chain.good_loss)?;
                sound("bad_loss", chain.bad_loss)
            }
            Loss::BitErrors(share) => sound("bit error ratio", *share),
            Loss::Pattern(pattern) if pattern.is_empty() => {
                Err(SpecError::new("the loss pattern is empty".into()))
            }
            Loss::Pattern(_) => Ok(()),
        }
    }
}

/// A loss model's state: decides packet by packet.
#[derive(Clone, Debug)]
pub(super) enum LossState {
    Never,
    /// `left` packets pass before the next loss.
    Gap {
        share: f64,
        left: u64,
    },
    Chain {
        chain: GilbertElliott,
        bad: bool,
    },
    /// `left` bits pass before the next wrong one.
    Bits {
        share: f64,
        left: u64,
    },
    Pattern {
        pattern: Arc<[bool]>,
        at: usize,
    },
}

impl LossState {
    pub(super) fn new(loss: &Loss, random: &mut Random) -> LossState {
        match loss {
            Loss::None => LossState::Never,
            Loss::Independent(ratio) => {
                let share = ratio.get();
                LossState::Gap { share, left: random.failures_before_success(share) }
            }
            Loss::GilbertElliott(chain) => LossState::Chain { chain: *chain, bad: false },
            Loss::BitErrors(share) => {
                LossState::Bits { share: *share, left: random.failures_before_success(*share) }
            }
            Loss::Pattern(pattern) => LossState::Pattern { pattern: pattern.clone(), at: 0 },
        }
    }

    /// Whether the next packet is lost.
    pub(super) fn takes(&mut self, wire_bytes: u64, random: &mut Random) -> bool {
        match self {
            LossState::Never => false,
            LossState::Gap { share, left } => {
                let lost = *left == 0;
                *left = if lost { random.failures_before_success(*share) } else { *left - 1 };
                lost
            }
            LossState::Chain { chain, bad } => {
                let turn = if *bad { chain.recovers } else { chain.worsens };
                *bad ^= random.chance(turn);
                random.chance(if *bad { chain.bad_loss } else { chain.good_loss })
            }
            LossState::Bits { share, left } => {
                let bits = wire_bytes * 8;
                if bits <= *left {
                    *left -= bits;
                    return false;
                }
                // Wrong bits are independent, so a restarted count is exact.
                *left = random.failures_before_success(*share);
                true
            }
            LossState::Pattern { pattern, at } => {
                let lost = pattern[*at];
                *at = (*at + 1) % pattern.len();
                lost
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fates(loss: &Loss, wire_bytes: u64, n: usize) -> Vec<bool> {
        let mut random = Random::new(11);
        let mut state = LossState::new(loss, &mut random);
        (0..n).map(|_| state.takes(wire_bytes, &mut random)).collect()
    }

    fn share(fates: &[bool]) -> f64 {
        fates.iter().filter(|lost| **lost).count() as f64 / fates.len() as f64
    }

    fn runs(fates: &[bool]) -> Vec<usize> {
        fates.split(|lost| !lost).map(<[bool]>::len).filter(|n| *n > 0).collect()
    }

    /// Four standard deviations of a share of `n` independent trials.
    fn margin(p: f64, n: usize) -> f64 {
        4.0 * (p * (1.0 - p) / n as f64).sqrt()
    }

    #[test]
    fn independent_loss_keeps_its_ratio_and_run_lengths() {
        let n = 400_000;
        for p in [0.001, 0.05, 0.5] {
            let fates = fates(&Loss::Independent(LossRatio::new(p).unwrap()), 1500, n);
            assert!((share(&fates) - p).abs() < margin(p, n), "{p}: {}", share(&fates));
            let runs = runs(&fates);
            let mean = runs.iter().sum::<usize>() as f64 / runs.len() as f64;
            let (expected, deviation) = (1.0 / (1.0 - p), p.sqrt() / (1.0 - p));
            let margin = 4.0 * deviation / (runs.len() as f64).sqrt();
            assert!((mean - expected).abs() < margin, "{p}: mean run {mean}, not {expected}");
        }
    }

    #[test]
    fn gilbert_elliott_keeps_its_ratio_and_burst_length() {
        let (n, ratio, burst) = (2_000_000, 0.01, 8.0);
        let chain = GilbertElliott::bursts(LossRatio::new(ratio).unwrap(), burst).unwrap();
        assert!((chain.mean() - ratio).abs() < 1e-12);
        let fates = fates(&Loss::GilbertElliott(chain), 1500, n);
        let runs = runs(&fates);
        let mean = runs.iter().sum::<usize>() as f64 / runs.len() as f64;
        let deviation = (1.0 - 1.0 / burst).sqrt() * burst / (runs.len() as f64).sqrt();
        assert!((mean - burst).abs() < 4.0 * deviation, "mean burst {mean}");
        // The standard deviation of a burst's length is about its mean, so the variance of the
        // share is about 2 × burst times that of independent losses.
        let margin = margin(ratio, n) * (2.0 * burst).sqrt();
        assert!((share(&fates) - ratio).abs() < margin, "{}", share(&fates));
    }

    #[test]
    fn a_chains_losses_and_consecutive_losses_match_the_formulas() {
        let n = 1_000_000;
        for (worsens, recovers, good_loss, bad_loss) in
            [(0.02, 0.1, 0.01, 0.4), (0.3, 0.5, 0.2, 0.9), (0.01, 0.01, 0.0, 0.5)]
        {
            let chain = GilbertElliott { worsens, recovers, good_loss, bad_loss };
            let bad = worsens / (worsens + recovers);
            let mean = (1.0 - bad) * good_loss + bad * bad_loss;
            assert!((chain.mean() - mean).abs() < 1e-12);
            let fates = fates(&Loss::GilbertElliott(chain), 1500, n);
            // The losses of two packets have a covariance: memory^k · `states`, where k is their
            // distance. The sum of these covariances over all k widens the margin.
            let memory = 1.0 - worsens - recovers;
            let apart = bad_loss - good_loss;
            let states = apart * apart * bad * (1.0 - bad);
            let share_of_states = states / (mean * (1.0 - mean));
            let widened = (1.0 + 2.0 * share_of_states * memory / (1.0 - memory)).sqrt();
            let allowed = margin(mean, n) * widened;
            assert!((share(&fates) - mean).abs() < allowed, "{chain:?}: {}", share(&fates));
            // Two consecutive losses: mean² plus the covariance of neighbours.
            let both = mean * mean + memory * states;
            let pairs = fates.windows(2).filter(|pair| pair[0] && pair[1]).count();
            let found = pairs as f64 / (n - 1) as f64;
            let allowed = margin(both, n) * widened * 2.0;
            assert!((found - both).abs() < allowed, "{chain:?}: {found} pairs, not {both}");
        }
    }

    #[test]
    fn bit_errors_lose_large_packets_more_often() {
        let (n, ratio) = (200_000, 1e-6_f64);
        for wire_bytes in [100u64, 1538] {
            let expected = 1.0 - (1.0 - ratio).powf(wire_bytes as f64 * 8.0);
            let found = share(&fates(&Loss::BitErrors(ratio), wire_bytes, n));
            assert!((found - expected).abs() < margin(expected, n), "{wire_bytes}: {found}");
        }
    }

    #[test]
    fn a_pattern_repeats() {
        let pattern = Loss::Pattern([true, false, false].into());
        assert_eq!(fates(&pattern, 1500, 5), [true, false, false, true, false]);
    }

    #[test]
    fn an_impossible_burst_has_no_chain() {
        let high = LossRatio::new(0.9).unwrap();
        assert_eq!(GilbertElliott::bursts(high, 1.0), None);
        assert_eq!(GilbertElliott::bursts(high, 0.5), None);
    }
}
