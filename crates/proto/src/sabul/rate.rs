//! SABUL's rate control as in its paper: additive increase by powers of ten, multiplicative
//! decrease.

use super::{BETA, DECREASE, LOSS_SMOOTHING, LOSS_THRESHOLD, SYNC_INTERVAL};
use crate::endpoint::Setup;
use crate::units::Rate;

/// The rate decisions that differ between SABUL's paper and the release that Oak Ridge measured
/// (`release`).
pub(super) trait RateControl: Send {
    /// The sending rate, in bits a second of UDP payload.
    fn rate(&self) -> Rate;

    /// Sets the initial rate that the first packet train (datagrams sent back to back) showed.
    fn start(&mut self, rate: Rate);

    /// A synchronization interval with `sent` sent datagrams and `lost` reported losses has ended.
    fn on_interval(&mut self, sent: u64, lost: u64);

    /// A loss report arrived. `lost` is the highest block that it names; all blocks below `sent_to`
    /// have been sent. Returns whether sending freezes for a round trip.
    fn on_report(&mut self, lost: u64, sent_to: u64) -> bool;
}

/// "Every SYN interval, the sender calculates the exponential moving average of the loss rate."
#[derive(Clone, Copy, Debug)]
pub(super) struct LossAverage {
    average: f64,
    weight: f64,
}

impl LossAverage {
    pub(super) fn new(setup: &Setup) -> LossAverage {
        LossAverage { average: 0.0, weight: setup.settings.value(&LOSS_SMOOTHING) }
    }

    /// Adds an interval and returns the average; `None` for an interval with neither datagrams nor
    /// losses. The loss ratio of the interval is 1 if the losses are at least as many as the
    /// datagrams.
    pub(super) fn note(&mut self, sent: u64, lost: u64) -> Option<f64> {
        if sent == 0 && lost == 0 {
            return None;
        }
        let ratio = if lost >= sent { 1.0 } else { lost as f64 / sent as f64 };
        self.average += (ratio - self.average) * self.weight;
        Some(self.average)
    }
}

/// The rate control of section 3.5.
#[derive(Clone, Debug)]
pub(super) struct PaperRate {
    /// The MTU of the formulas, in bytes.
    mtu: f64,
    sync: f64,
    beta: f64,
    decrease: f64,
    threshold: f64,
    loss: LossAverage,
    /// Datagrams in a synchronization interval (SYN): its length divided by the inter-packet time.
    per_sync: f64,
    /// Upper limit of `per_sync`.
    most: f64,
    /// Blocks below this one had been sent at the last decrease.
    decreased_at: Option<u64>,
    /// Number of reports since condition 1 was last satisfied (see `on_report`).
    reports: u64,
    dec_count: u32,
}

impl PaperRate {
    /// The rate control of a flow that begins at the rate `first` and never exceeds `cap`.
    pub(super) fn new(setup: &Setup, first: Rate, cap: Option<Rate>) -> PaperRate {
        let settings = &setup.settings;
        let (mtu, sync) = (setup.datagram().bits() / 8.0, settings.value(&SYNC_INTERVAL));
        let per_sync = |rate: Rate| rate.as_bps() as f64 * sync / (mtu * 8.0);
        PaperRate {
            mtu,
            sync,
            beta: settings.value(&BETA),
            decrease: settings.value(&DECREASE),
            threshold: settings.value(&LOSS_THRESHOLD),
            loss: LossAverage::new(setup),
            per_sync: per_sync(first),
            most: cap.map_or(f64::INFINITY, per_sync),
            decreased_at: None,
            reports: 0,
            dec_count: 4,
        }
    }

    /// Additional datagrams in the next interval.
    ///
    /// "a) Calculate the current sending speed (S), in bps: S = MTU * 8 / ipt. b) Round S to the
    /// next highest power of ten (Sr). c) Calculate the number of packets to be increased in the
    /// next SYN time (inc): inc = Sr * SYN * beta / (MTU * 8), where beta is the constant
    /// 1.2*10^-5. d) inc is, at minimum, 1/MTU."
    ///
    /// The paper's table of inc (0.01, 0.1, 1 for an MTU of 1500) contradicts this text. The table
    /// follows from the formula without the factor SYN. This code follows the table.
    fn increase(&self) -> f64 {
        let speed = self.per_sync / self.sync * self.mtu * 8.0;
        let mut rounded = 1.0;
        // A computed rate may exceed its power of ten by a rounding error.
        while rounded < speed * (1.0 - 1e-9) {
            rounded *= 10.0;
        }
        (rounded * self.beta / (self.mtu * 8.0)).max(1.0 / self.mtu)
    }

    /// "The inter-packet time is increased by 1/8." The rate never falls below one datagram an
    /// interval, or below the limit if the limit is lower. The paper has no such floor, but a rate
    /// of zero could not recover.
    fn slow_down(&mut self, sent_to: u64) {
        self.per_sync = (self.per_sync / (1.0 + self.decrease)).max(self.most.min(1.0));
        self.decreased_at = Some(sent_to);
    }
}

impl RateControl for PaperRate {
    fn rate(&self) -> Rate {
        Rate::from_bps_f64(self.per_sync.min(self.most) / self.sync * self.mtu * 8.0)
    }

    fn start(&mut self, rate: Rate) {
        let per_sync = rate.as_bps() as f64 * self.sync / (self.mtu * 8.0);
        self.per_sync = per_sync.clamp(self.most.min(1.0), self.most.max(1.0));
    }

    fn on_interval(&mut self, sent: u64, lost: u64) {
        // "If the loss rate is less than a small threshold (e.g., 0.1%), the sending rate is
        // increased: SYN / Inew = SYN / Iold + inc."
        if self.loss.note(sent, lost).is_some_and(|average| average < self.threshold) && sent > 0 {
            self.per_sync = (self.per_sync + self.increase()).min(self.most);
        }
    }

    fn on_report(&mut self, lost: u64, sent_to: u64) -> bool {
        // "1) If the lost sequence number is greater than the largest sent sequence number when the
        // last decrease occurred."
        if self.decreased_at.is_none_or(|at| lost >= at) {
            self.slow_down(sent_to);
            (self.reports, self.dec_count) = (0, 4);
            return true;
        }
        // "2) If it is the 2^dec_count-th NAK since the last time condition 1) was satisfied, where
        // dec_count is set to 4, once 1) is satisfied and increased by 1, each time 2) is
        // satisfied."
        self.reports += 1;
        if Some(self.reports) == 1u64.checked_shl(self.dec_count) {
            self.slow_down(sent_to);
            self.dec_count += 1;
        }
        false
    }
}
