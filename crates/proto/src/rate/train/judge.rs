//! Judges the three tests of the rate search: shorter bursts, a higher rate, a lower rate. A test
//! lasts one epoch (datagrams sent at one rate).

use super::measure::Measure;
use super::proven::Proven;
use super::{BELOW, CAREFUL, EXCESS, Mode, SHALLOW, TRIED, Trains};

impl Trains {
    /// Reacts to a loss that we caused by a high rate, or by bursts that overfilled a short queue.
    pub(super) fn caused(&mut self, before: &Measure) {
        let known = self.shown().or(self.ceiling.map(|ceiling| ceiling.rate));
        if known.is_some_and(|rate| before.rate <= rate) && self.smooth(before, false) {
            return;
        }
        let top = self.top(before);
        self.set_ceiling(top);
        self.set_rate(top * BELOW);
    }

    /// Tests shorter bursts, once, if the queue is short. `is_own` says whether the loss counts as
    /// the path's own if shorter bursts do not help. Returns whether the test began.
    fn smooth(&mut self, before: &Measure, is_own: bool) -> bool {
        let begins = before.queue < SHALLOW && !self.was_smoothed;
        if begins {
            (self.was_smoothed, self.is_smooth) = (true, true);
            self.mode = Mode::Smooth { before: *before, is_own };
            self.set_rate(before.rate);
        }
        begins
    }

    /// Judges short bursts at an unchanged rate: was the loss halved?
    pub(super) fn smoothed(&mut self, before: &Measure, is_own: bool, measure: &Measure) {
        self.mode = Mode::Up;
        self.is_smooth = measure.is_used() && measure.loss < before.loss / 2.0;
        if self.is_smooth {
            self.up(measure);
        } else if is_own {
            self.own(before, measure);
        } else {
            self.caused(before);
        }
    }

    /// Returns to the earlier rate: the path loses the same share at any rate.
    fn own(&mut self, before: &Measure, measure: &Measure) {
        self.relearn(before, measure);
        self.set_rate(before.rate);
    }

    /// Learns the path's own loss anew from two epochs.
    fn relearn(&mut self, before: &Measure, measure: &Measure) {
        self.seen = 0.0;
        self.learn(before);
        self.learn(measure);
    }

    /// Judges a raised rate: did more arrive?
    pub(super) fn tried(&mut self, before: &Measure, measure: &Measure) {
        self.mode = Mode::Up;
        let raised = measure.left / before.left - 1.0;
        let gained = measure.delivered / before.delivered.max(1.0) - 1.0;
        self.growth = CAREFUL;
        if measure.queued {
            if measure.loss < before.loss + EXCESS {
                self.learn(before);
                self.learn(measure);
            }
            self.drain_queue(measure);
        } else if raised < (TRIED - 1.0) / 2.0 {
            // The sender could not reach the higher rate, so test a lower rate.
            self.mode = Mode::Check(*measure);
            self.set_rate(self.capacity(measure) * BELOW);
        } else if gained > raised / 2.0 {
            self.relearn(before, measure);
            self.raise(measure);
        } else {
            self.caused(before);
        }
    }

    /// Judges a lowered rate: did the loss fall with it?
    pub(super) fn check(&mut self, before: &Measure, measure: &Measure) {
        self.mode = Mode::Up;
        let slowed = measure.rate / before.rate;
        let fell = measure.delivered / before.delivered.max(1.0);
        let (was, is) = (self.is_excess(before), self.is_excess(measure));
        let less = fell < slowed * 0.9;
        if measure.queued {
            self.drain_queue(measure);
        } else if !less && fell < (1.0 + slowed) / 2.0 && was == is {
            // Less was sent and less arrived: the path loses the same share at any rate, unless
            // bursts overfill a short queue.
            if !self.smooth(before, true) {
                self.own(before, measure);
            }
        } else if less || is {
            // The rate is still too high, or the path has become slower meanwhile: no result.
            self.mode = Mode::Check(*measure);
            if self.late > 0 {
                self.proven.doubt();
            } else {
                self.proven = Proven::default();
            }
            self.set_rate(self.top(measure) * BELOW);
        } else {
            self.seen = 0.0;
            self.learn(measure);
            self.caused(before);
        }
    }
}
