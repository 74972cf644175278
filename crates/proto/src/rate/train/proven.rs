//! The highest rate that lately arrived without excess loss. The search measures each epoch
//! (datagrams sent at one rate).
//!
//! A sender that was late for a moment catches up, and may overfill a short queue. The loss says
//! nothing about the path's capacity, but less than the capacity arrives in that epoch. So the rate
//! search uses the rate of earlier epochs.

use super::BELIEF;
use super::measure::Measure;

/// This many epochs with excess loss refute a new rate. An older rate needs fewer.
const DOUBTS: u32 = 4;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Proven {
    rate: f64,
    /// For how many more epochs the rate counts.
    epochs: u32,
}

impl Proven {
    /// Takes in an epoch without excess loss.
    pub(super) fn note(&mut self, measure: &Measure) {
        let rate = measure.delivered.min(measure.left);
        self.epochs = self.epochs.saturating_sub(1);
        if rate >= self.rate || self.epochs == 0 {
            *self = Proven { rate, epochs: BELIEF };
        }
    }

    /// Takes in an epoch with excess loss: the rate then counts for `BELIEF / DOUBTS` epochs less
    /// than before. When no epoch is left, no rate counts.
    pub(super) fn doubt(&mut self) {
        self.epochs = self.epochs.saturating_sub(BELIEF / DOUBTS);
        if self.epochs == 0 {
            self.rate = 0.0;
        }
    }

    pub(super) fn rate(&self) -> f64 {
        self.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Span;

    fn note(proven: &mut Proven, left: f64, delivered: f64) -> f64 {
        proven.note(&Measure {
            rate: left,
            left,
            paced: delivered,
            delivered,
            loss: 0.0,
            datagrams: 100.0,
            queue: Span::ZERO,
            queued: false,
        });
        proven.rate()
    }

    #[test]
    fn the_highest_rate_counts_for_16_epochs_and_is_capped_at_the_departure_rate() {
        let mut proven = Proven::default();
        assert_eq!(proven.rate(), 0.0);
        assert_eq!(note(&mut proven, 9.0, 10.0), 9.0);
        for _ in 1..16 {
            assert_eq!(note(&mut proven, 8.0, 7.0), 9.0);
        }
        assert_eq!(note(&mut proven, 8.0, 6.0), 6.0);
        assert_eq!(note(&mut proven, 8.0, 7.0), 7.0);
    }

    #[test]
    fn four_epochs_with_excess_loss_refute_the_rate_even_with_a_clean_one_between() {
        let mut proven = Proven::default();
        note(&mut proven, 9.0, 9.0);
        let doubt = |proven: &mut Proven| {
            proven.doubt();
            proven.rate()
        };
        assert_eq!([0; 3].map(|_| doubt(&mut proven)), [9.0; 3]);
        assert_eq!(note(&mut proven, 8.0, 5.0), 9.0);
        assert_eq!(doubt(&mut proven), 0.0);
        assert_eq!(note(&mut proven, 8.0, 5.0), 5.0);
    }
}
