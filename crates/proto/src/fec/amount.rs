//! The number of repairs that a block needs. With a Reed–Solomon code, a block of k originals and m
//! repairs (redundant symbols) can be restored if at most m of its k + m packets are lost.

use alloc::vec;
use alloc::vec::Vec;

use super::{MAX_ORIGINALS, MAX_REPAIRS};
use crate::units::LossRatio;

/// The losses of a path: their ratio and burst length. The model has two states (Gilbert 1960): in
/// the bad one every packet is lost, in the good one none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Losses {
    ratio: LossRatio,
    /// The mean number of packets lost in a row.
    burst: f64,
}

impl Losses {
    /// Each packet is lost with probability `ratio`, independently of the others.
    pub fn independent(ratio: LossRatio) -> Losses {
        Losses::bursty(ratio, 1.0)
    }

    /// The share `ratio` of all packets is lost, `burst` in a row on average. Independent losses
    /// have bursts of 1 / (1 − ratio); a smaller `burst` counts as this value.
    pub fn bursty(ratio: LossRatio, burst: f64) -> Losses {
        let shortest = 1.0 / (1.0 - ratio.get());
        Losses { ratio, burst: if burst > shortest { burst } else { shortest } }
    }

    /// The share of packets that are lost.
    pub fn ratio(self) -> LossRatio {
        self.ratio
    }

    /// The mean number of packets lost in a row.
    pub fn burst(self) -> f64 {
        self.burst
    }
}

/// Probabilities below this are not tracked further, and count as failures.
const NEGLIGIBLE: f64 = 1e-18;
/// A smaller failure ratio of a block could be a rounding error of double precision.
const LEAST_EPSILON: f64 = 1e-10;

/// The probability of each number of losses among the packets so far.
struct Course {
    /// The number of losses for which `good[0]` and `bad[0]` are the probabilities.
    first: usize,
    /// Probabilities if the last packet arrived.
    good: Vec<f64>,
    /// Probabilities if the last packet was lost.
    bad: Vec<f64>,
}

impl Course {
    /// No packet yet; the path is in the bad state with probability `loss`.
    fn new(loss: f64) -> Course {
        Course { first: 0, good: vec![1.0 - loss], bad: vec![loss] }
    }

    /// Adds a packet. `worsens` is the probability of a change from the good to the bad state,
    /// `recovers` of a change back.
    fn step(&mut self, worsens: f64, recovers: f64) {
        self.good.push(0.0);
        self.bad.push(0.0);
        let mut lost_before = 0.0;
        for (good, bad) in self.good.iter_mut().zip(&mut self.bad) {
            let (arrives, lost) = (
                *good * (1.0 - worsens) + *bad * recovers,
                *good * worsens + *bad * (1.0 - recovers),
            );
            *good = arrives;
            *bad = lost_before;
            lost_before = lost;
        }
        let small = |(good, bad): (&f64, &f64)| good + bad < NEGLIGIBLE;
        let low = self.good.iter().zip(&self.bad).take_while(|&pair| small(pair)).count();
        // Removing elements at the front moves all others, which costs as much as a step.
        // Therefore at least 64 are removed at a time.
        if low >= 64 {
            self.good.drain(..low);
            self.bad.drain(..low);
            self.first += low;
        }
        let high = self.good.iter().zip(&self.bad).rev().take_while(|&pair| small(pair)).count();
        let kept = self.good.len() - high;
        self.good.truncate(kept);
        self.bad.truncate(kept);
    }

    fn at_most(&self, losses: usize) -> f64 {
        let count = (losses + 1).saturating_sub(self.first);
        self.good.iter().zip(&self.bad).take(count).map(|(good, bad)| good + bad).sum()
    }
}

/// Returns the smallest m for which a block fails with a probability of at most `epsilon`. A block
/// fails if more than m of its `originals` + m packets are lost. With k originals, independent
/// losses of ratio L, and ε = `epsilon`, this is P(Bin(k + m, L) > m) ≤ ε.
///
/// `None` if `originals` is 0 or above [`MAX_ORIGINALS`], if all packets are lost, if `epsilon` is
/// not a number, or if [`MAX_REPAIRS`] do not suffice. An `epsilon` below 10⁻¹⁰ counts as 10⁻¹⁰.
pub fn repairs(originals: u16, losses: Losses, epsilon: f64) -> Option<u16> {
    let loss = losses.ratio.get();
    if originals == 0 || originals > MAX_ORIGINALS || loss >= 1.0 || epsilon.is_nan() {
        return None;
    }
    let (epsilon, k) = (epsilon.max(LEAST_EPSILON), usize::from(originals));
    let recovers = 1.0 / losses.burst;
    let worsens = (recovers * loss / (1.0 - loss)).min(1.0);
    let mut course = Course::new(loss);
    for _ in 0..k {
        course.step(worsens, recovers);
    }
    for m in 0..=MAX_REPAIRS {
        if 1.0 - course.at_most(m.into()) <= epsilon {
            return Some(m);
        }
        course.step(worsens, recovers);
    }
    None
}
