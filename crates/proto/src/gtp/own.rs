//! Loss that does not depend on the rate. These rules are our addition. The paper's rules take
//! every loss as a sign of too high a rate. On a path with loss that does not depend on the rate,
//! they would slow a flow down for ever.
//!
//! Congestion loss at a lower rate can be predicted: a link of a given capacity loses the excess.
//! After the rate has fallen to the share `own_reduced` of the highest rate since losses began, the
//! flow's loss is compared with this prediction. `own_stays` says how near to its old value the
//! loss must be to count as unchanged. A second comparison follows after a further fall of the
//! rate: the share `own_again` of the first fall. If the loss stayed both times, it is the path's
//! own loss and is ignored from then on. One comparison is not enough, because the drops of a full
//! queue vary between flows. If a period (a control interval whose loss was measured) has less
//! loss, the path's own loss falls to the loss of that period.

use super::options::Rules;
use super::tuning::Tuning;

#[derive(Clone, Copy, Debug)]
pub(super) struct OwnLoss {
    /// Constants: see `own_*` in `tuning`.
    reduced: f64,
    again: f64,
    stays: f64,
    least: f64,
    margin: f64,
    /// The path's own loss, as far as known.
    own: f64,
    /// The rate and loss with which the next period is compared: at the highest rate since losses
    /// began, or at the last comparison.
    began: Option<(f64, f64)>,
    /// Whether the loss stayed at the last comparison.
    has_stayed: bool,
}

impl OwnLoss {
    pub(super) fn new(rules: &Rules) -> OwnLoss {
        let Tuning { own_reduced, own_again, own_stays, own_least, own_margin, .. } = rules.tuning;
        OwnLoss {
            reduced: own_reduced,
            again: own_again,
            stays: own_stays,
            least: own_least,
            margin: own_margin,
            own: 0.0,
            began: None,
            has_stayed: false,
        }
    }

    pub(super) fn note(&mut self, rate: f64, loss: f64) {
        self.own = self.own.min(loss);
        if self.excess(loss) <= self.least {
            (self.began, self.has_stayed) = (None, false);
            return;
        }
        let (before, was) = self.began.unwrap_or((0.0, 0.0));
        if rate >= before {
            self.began = Some((rate, loss));
        } else if rate <= before * self.share_to_judge() {
            // The loss that a link would have now if its capacity had caused the loss before.
            let predicted = (1.0 - (1.0 - was) * before / rate).max(0.0);
            let stays = loss > was * self.stays + predicted * (1.0 - self.stays);
            if stays && self.has_stayed {
                self.own = loss.min(was);
            }
            self.has_stayed = stays;
            self.began = Some((rate, loss));
        }
    }

    /// Share to which the rate must fall before losses are compared.
    fn share_to_judge(&self) -> f64 {
        let again = (1.0 - self.again) + self.reduced * self.again;
        if self.has_stayed { again } else { self.reduced }
    }

    /// The part of a loss ratio that exceeds the path's own loss times the margin.
    pub(super) fn excess(&self, loss: f64) -> f64 {
        (loss - self.own * self.margin).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;
    use alloc::vec::Vec;

    fn rules() -> Rules {
        Rules::new(&Settings::default())
    }

    /// Simulates periods at rates that fall by 2 % each. The link carries `link`, and the path
    /// loses `share` of all datagrams. Returns the loss that counts in each period.
    fn excesses(
        own: &mut OwnLoss,
        link: f64,
        share: f64,
        rates: core::ops::Range<i32>,
    ) -> Vec<f64> {
        let each = rates.map(|turn| {
            let rate = 100.0 * 0.98f64.powi(turn);
            let loss = 1.0 - (rate * (1.0 - share)).min(link) / rate;
            own.note(rate, loss);
            own.excess(loss)
        });
        each.collect()
    }

    #[test]
    fn loss_that_stays_while_the_rate_falls_is_the_paths_own() {
        for share in [0.005, 0.01, 0.05, 0.2] {
            let mut own = OwnLoss::new(&rules());
            let excess = excesses(&mut own, 1e9, share, 0..12);
            assert!((excess[4] - share).abs() < 1e-9, "{excess:?}");
            assert_eq!(excess[8..], [0.0; 4], "{share}: {excess:?}");
        }
    }

    #[test]
    fn loss_that_falls_with_the_rate_is_congestion() {
        for link in [10.0, 50.0, 90.0, 99.0] {
            let mut own = OwnLoss::new(&rules());
            excesses(&mut own, link, 0.0, 0..40);
            assert_eq!(own.own, 0.0, "a link of {link}");
        }
    }

    #[test]
    fn own_again_sets_the_second_comparison_and_own_stays_sets_what_counts_as_unchanged() {
        let by = |tuning| OwnLoss::new(&Rules { tuning, ..rules() });
        let begun = |mut own: OwnLoss| {
            excesses(&mut own, 1e9, 0.05, 0..12).iter().position(|excess| *excess == 0.0)
        };
        // The rate falls in steps of 2 %. Losses are compared after falls of 5 % and 2.5 %, and in
        // the second case after falls of 5 % and 5 %.
        assert_eq!(begun(OwnLoss::new(&rules())), Some(5));
        assert_eq!(begun(by(Tuning { own_again: 1.0, ..Tuning::OURS })), Some(6));
        // If a narrow link loses 10 % at a rate of 100, it loses 4.3 % at 94. If it loses 6 % at
        // 94, it loses 2.9 % at 91. `own_stays` decides whether 6 % is near enough to the old 10 %.
        let after = |mut own: OwnLoss| {
            for (rate, loss) in [(100.0, 0.1), (94.0, 0.06), (91.0, 0.06)] {
                own.note(rate, loss);
            }
            own.own
        };
        assert_eq!(after(OwnLoss::new(&rules())), 0.0);
        assert_eq!(after(by(Tuning { own_stays: 0.25, ..Tuning::OURS })), 0.06);
    }

    #[test]
    fn own_loss_is_forgotten_when_it_disappears() {
        let mut own = OwnLoss::new(&rules());
        excesses(&mut own, 1e9, 0.05, 0..12);
        own.note(100.0, 0.0);
        assert_eq!(own.excess(0.05), 0.05);
        excesses(&mut own, 1e9, 0.05, 0..12);
        assert!(own.excess(0.3) > 0.2);
    }

    #[test]
    fn loss_is_compared_after_a_fall_of_5_percent_and_again_after_half_of_that() {
        let after = |notes: &[(f64, f64)]| {
            let mut own = OwnLoss::new(&rules());
            notes.iter().for_each(|(rate, loss)| own.note(*rate, *loss));
            (own.began, own.has_stayed, own.own)
        };
        let (first, fell) = ((100.0, 0.1), (95.0, 0.1));
        assert_eq!(after(&[first, (95.1, 0.1)]), (Some(first), false, 0.0));
        assert_eq!(after(&[first, fell]), (Some(fell), true, 0.0));
        assert_eq!(after(&[first, (100.0, 0.2)]), (Some((100.0, 0.2)), false, 0.0));
        assert_eq!(after(&[first, fell, (92.7, 0.1)]), (Some(fell), true, 0.0));
        assert_eq!(after(&[first, fell, (92.6, 0.09)]), (Some((92.6, 0.09)), true, 0.09));
        assert_eq!(after(&[first, fell, (92.6, 0.0)]), (None, false, 0.0));
    }
}
