//! Careful Resume (RFC 9959): a flow over a remembered path starts at half of the remembered rate.
//!
//! - **Reconnaissance** (section 3.2): the session measures the round-trip time. If this time is
//!   less than half or more than ten times the remembered time, the path is treated as unknown:
//!   [`Remembered::fits`].
//! - **Unvalidated** (section 3.3): after the first packet train (datagrams sent back to back), the
//!   flow sends at half of the remembered rate until the report on that train arrives. Meanwhile it
//!   sends at most half of the remembered bandwidth-delay product. If the data leave before the
//!   session is open, a receipt (an unauthenticated message of the receiving host about the arrived
//!   datagrams) can end this step sooner. The flow then takes the rate of the next step, for one
//!   bandwidth-delay product at most.
//! - **Validating and Safe Retreat** (sections 3.4 and 3.5): the report on the first packet train
//!   shows the current capacity. The report confirms the remembered rate if few datagrams are
//!   missing, and the train arrived at two thirds of this rate or more, or too fast to be timed.
//!   The flow then continues near the remembered rate, unless the controller has found a higher
//!   rate. Without a confirmation, the flow takes the controller's rate. From then on the
//!   controller decides alone.

use alloc::boxed::Box;

use super::train::first_rate;
use super::{Feedback, RateController};
use crate::endpoint::{PacketNumber, Setup};
use crate::law::Found;
use crate::pulse::TRAIN_LEN;
use crate::receipt::Receipt;
use crate::remembered::Remembered;
use crate::time::Time;
use crate::units::{Bytes, Rate};
use crate::wire::{Pulse, Train};

/// Share of the remembered rate that the first train must show to confirm the remembered rate.
const CONFIRMS: f64 = 2.0 / 3.0;
/// Share of a confirmed rate that the flow takes.
const TAKEN: f64 = 0.95;

pub(super) struct Resumed {
    law: Box<dyn RateController>,
    path: Remembered,
    limit: Option<Rate>,
    datagram: Bytes,
    rate: Rate,
    /// Maximum number of datagrams to send at the faster rate, including the first train.
    budget: u64,
    sent: u64,
    is_open: bool,
    has_receipt: bool,
}

/// Share of datagrams that may be missing in addition to the remembered loss.
const MISSING: f64 = 0.1;

impl Resumed {
    /// Wraps the controller `law` with a faster start. The rate limit of `setup` still applies.
    pub(super) fn new(law: Box<dyn RateController>, setup: &Setup, path: Remembered) -> Resumed {
        let (half, datagram) = (path.rate.scale(0.5), setup.datagram());
        let rate = setup.rate_limit.map_or(half, |limit| half.min(limit));
        let flight = path.flight(setup.rtt).get() / datagram.get().max(1);
        let budget = TRAIN_LEN + flight;
        Resumed {
            law,
            path,
            limit: setup.rate_limit,
            datagram,
            rate,
            budget,
            sent: 0,
            is_open: true,
            has_receipt: false,
        }
    }
}

impl Resumed {
    /// Returns the rate to take after the first train, if the path still seems to be the remembered
    /// one. A train that arrived too fast to be timed also confirms the remembered rate. A train
    /// slower than the share [`CONFIRMS`] of this rate, or much loss, contradicts this rate.
    fn confirmed(&self, first: Receipt) -> Option<Rate> {
        let least = self.path.rate.scale(CONFIRMS);
        let (highest, received) = (first.highest as f64, first.received as f64);
        let is_as_fast = |train: Train| train.bytes / train.span >= least;
        let is_fast = match first.train {
            Some(train) if is_as_fast(train) => true,
            // A later train may have left at half of the remembered rate, so it contradicts
            // nothing.
            Some(train) if train.first.0 == 0 => false,
            // If half a train is missing beyond the remembered loss, the first train may be lost.
            _ => highest - received < highest * self.path.loss.get() + TRAIN_LEN as f64 / 2.0,
        };
        let is_clear = received > highest * (1.0 - self.path.loss.get() - MISSING);
        (is_clear && is_fast).then(|| self.path.rate.scale(TAKEN))
    }
}

impl RateController for Resumed {
    fn rate(&self) -> Rate {
        let law = self.law.rate();
        if self.is_open && self.sent < self.budget { law.max(self.rate) } else { law }
    }

    fn train(&mut self, now: Time, next: PacketNumber) -> u64 {
        self.law.train(now, next)
    }

    fn burst(&self) -> u64 {
        self.law.burst()
    }

    fn on_sent(&mut self, now: Time, first: PacketNumber, count: u64) {
        self.sent = first.0 + count;
        self.law.on_sent(now, first, count);
    }

    fn on_receipt(&mut self, receipt: &Receipt) {
        if !self.is_open || self.has_receipt || receipt.highest < TRAIN_LEN {
            return;
        }
        if let Some(rate) = self.confirmed(*receipt) {
            self.has_receipt = true;
            self.rate = self.limit.map_or(rate, |limit| rate.min(limit));
            // Another whole bandwidth-delay product, in addition to the half.
            self.budget = self.budget.saturating_mul(3);
        }
    }

    fn found(&self) -> Found {
        self.law.found()
    }

    fn on_feedback(&mut self, now: Time, feedback: &Feedback<'_>) {
        self.law.on_feedback(now, feedback);
        if !self.is_open || first_rate(self.datagram, feedback.pulse, 1.0).is_none() {
            return;
        }
        self.is_open = false;
        let &Pulse { highest, received, train, .. } = feedback.pulse;
        if let Some(rate) = self.confirmed(Receipt { highest, received, train }) {
            self.law.start_at(rate);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::FlowId;
    use crate::layout::Layout;
    use crate::rate::controller;
    use crate::time::Span;
    use crate::units::LossRatio;
    use crate::wire::Train;

    const RTT: Span = Span::from_millis(100);
    const PATH: Remembered =
        Remembered { rate: Rate::from_mbps(800), rtt: RTT, loss: LossRatio::NONE };

    fn setup(remembered: Option<Remembered>) -> Setup {
        let layout = Layout::whole(Bytes::new(1 << 30), 1218).unwrap();
        let overhead = Bytes::new(32);
        Setup { overhead, remembered, ..Setup::new(FlowId(1), layout, RTT) }
    }

    fn feedback(pulse: &Pulse) -> Feedback<'_> {
        Feedback { pulse, min_rtt: RTT, rtt: RTT, sample: Some(RTT) }
    }

    #[test]
    fn the_flow_sends_at_half_of_the_remembered_rate_for_one_round_trip_at_most() {
        let mut resumed = controller(&setup(Some(PATH)));
        let cold = controller(&setup(None)).rate();
        assert_eq!(resumed.rate(), Rate::from_mbps(400));
        // 400 Mbit/s over 100 ms are 5 MB: 4,000 datagrams of 1,250 bytes, after the train.
        let budget = TRAIN_LEN + 4_000;
        resumed.on_sent(Time::ZERO, PacketNumber(0), budget - 1);
        assert_eq!(resumed.rate(), Rate::from_mbps(400));
        resumed.on_sent(Time::ZERO, PacketNumber(budget - 1), 1);
        assert!(resumed.rate() < cold, "the law waits for its report");
    }

    #[test]
    fn the_wrapped_controller_decides_the_first_train() {
        let train = |path| controller(&setup(path)).train(Time::ZERO, PacketNumber(0));
        assert_eq!((train(Some(PATH)), train(None)), (TRAIN_LEN, TRAIN_LEN));
    }

    #[test]
    fn the_report_on_the_first_train_ends_the_use_of_the_remembered_rate() {
        let mut resumed = controller(&setup(Some(PATH)));
        resumed.on_sent(Time::ZERO, PacketNumber(0), TRAIN_LEN + 10);
        let early = Pulse { clock: RTT, highest: 5, received: 5, ..Pulse::default() };
        resumed.on_feedback(Time::ZERO + RTT, &feedback(&early));
        assert_eq!(resumed.rate(), Rate::from_mbps(400), "a report without the train");
        // 31 gaps of 100 µs: 100 Mbit/s, an eighth of the remembered rate. The law sends at 90 % of
        // these 100 Mbit/s.
        let bytes = Bytes::new(31 * 1250);
        let train =
            Train { first: PacketNumber(0), bytes, span: Span::from_micros(3_100), steps: 31 };
        let report = Pulse { train: Some(train), highest: TRAIN_LEN, ..early };
        resumed.on_feedback(Time::ZERO + RTT, &feedback(&report));
        assert_eq!(resumed.rate(), Rate::from_mbps(90));
    }

    #[test]
    fn a_first_train_with_two_thirds_of_the_remembered_rate_and_little_loss_confirms_this_rate() {
        // 31 datagrams of 1,250 bytes take 581.25 µs at two thirds of 800 Mbit/s. The second case
        // has too much loss, and the third train is too slow. Both get the controller's rate: 90 %
        // of the train's rate. In the fourth case this rate is higher than the confirmed rate.
        for (nanos, received, mbps) in
            [(581_000, 40, 760), (581_000, 36, 480), (582_000, 40, 479), (300_000, 40, 930)]
        {
            let (bytes, span) = (Bytes::new(31 * 1250), Span::from_nanos(nanos));
            let train = Train { first: PacketNumber(0), bytes, span, steps: 31 };
            let report = Pulse { train: Some(train), highest: 40, received, ..Pulse::default() };
            let mut resumed = controller(&setup(Some(PATH)));
            resumed.on_sent(Time::ZERO, PacketNumber(0), 40);
            resumed.on_feedback(Time::ZERO + RTT, &feedback(&report));
            assert_eq!(resumed.rate().as_bps() / 1_000_000, mbps, "{nanos} ns");
        }
    }

    #[test]
    fn a_report_confirms_the_rate_by_a_later_train_or_if_the_first_train_can_have_arrived_untimed()
    {
        let later = |micros| {
            let (bytes, span) = (Bytes::new(31 * 1250), Span::from_micros(micros));
            Some(Train { first: PacketNumber(256), bytes, span, steps: 31 })
        };
        let cases = [(None, 400, true), (None, 384, false)];
        let timed = [(later(310), 384, true), (later(600), 400, true), (later(600), 384, false)];
        for (train, received, is_confirmed) in cases.into_iter().chain(timed) {
            let report = Pulse { train, highest: 400, received, ..Pulse::default() };
            let mut resumed = controller(&setup(Some(PATH)));
            resumed.on_sent(Time::ZERO, PacketNumber(0), 400);
            resumed.on_feedback(Time::ZERO + RTT, &feedback(&report));
            let is_near = resumed.rate() >= PATH.rate.scale(TAKEN);
            assert_eq!(is_near, is_confirmed, "{train:?}, {received}");
        }
    }

    #[test]
    fn a_receipt_that_confirms_the_remembered_rate_allows_one_more_round_trip_at_most() {
        let train = |nanos| {
            let (bytes, span) = (Bytes::new(31 * 1250), Span::from_nanos(nanos));
            Some(Train { first: PacketNumber(0), bytes, span, steps: 31 })
        };
        let receipt = |nanos, received| Receipt { highest: 100, received, train: train(nanos) };
        let after = |receipt: Receipt| {
            let mut resumed = controller(&setup(Some(PATH)));
            resumed.on_receipt(&receipt);
            resumed
        };
        let mbps = |receipt| after(receipt).rate().as_bps() / 1_000_000;
        // As above, 581 µs show two thirds of the remembered 800 Mbit/s, and 582 µs do not.
        let cases = [(581_000, 100), (582_000, 100), (400_000, 91), (400_000, 90), (1, 100)];
        assert_eq!(
            cases.map(|(nanos, came)| mbps(receipt(nanos, came))),
            [760, 400, 760, 400, 760]
        );
        // A train that was too fast to be timed also counts, but not before it has arrived.
        let untimed = |highest| Receipt { train: None, highest, received: highest };
        assert_eq!([31, 32].map(|highest| mbps(untimed(highest))), [400, 760]);
        // Half of a train's datagrams are missing, perhaps those of the first train.
        let lacking = |missing: u64| Receipt { received: 400 - missing, ..untimed(400) };
        assert_eq!([15, 16].map(|missing| mbps(lacking(missing))), [760, 400]);
        // The budget becomes three times as large, once.
        let mut resumed = after(receipt(300_000, 100));
        resumed.on_receipt(&receipt(300_000, 100));
        let budget = 3 * (TRAIN_LEN + 4_000);
        resumed.on_sent(Time::ZERO, PacketNumber(0), budget - 1);
        assert_eq!(resumed.rate(), Rate::from_mbps(760));
        resumed.on_sent(Time::ZERO, PacketNumber(budget - 1), 1);
        assert!(resumed.rate() < Rate::from_mbps(100));
        // After the report on the train, a receipt has no effect.
        let mut reported = controller(&setup(Some(PATH)));
        reported.on_sent(Time::ZERO, PacketNumber(0), 40);
        let pulse =
            Pulse { train: train(3_100_000), highest: 40, received: 40, ..Pulse::default() };
        reported.on_feedback(Time::ZERO + RTT, &feedback(&pulse));
        reported.on_receipt(&receipt(300_000, 100));
        assert_eq!(reported.rate(), Rate::from_mbps(90));
    }

    #[test]
    fn the_rate_limit_also_caps_the_remembered_rate() {
        let rate_limit = Some(Rate::from_mbps(50));
        let resumed = controller(&Setup { rate_limit, ..setup(Some(PATH)) });
        assert_eq!(resumed.rate(), Rate::from_mbps(50));
    }

    #[test]
    fn a_remembered_rate_is_not_used_with_a_fixed_rate_or_on_a_changed_path() {
        let rate = Rate::from_mbps(20);
        let fixed = Setup { rate: Some(rate), ..setup(Some(PATH)) };
        assert_eq!(controller(&fixed).rate(), rate);
        let cold = controller(&setup(None)).rate();
        let far = Remembered { rtt: Span::from_millis(201), ..PATH };
        assert_eq!(controller(&setup(Some(far))).rate(), cold);
        let near = Remembered { rtt: Span::from_micros(9_999), ..PATH };
        assert_eq!(controller(&setup(Some(near))).rate(), cold);
        let just = Remembered { rtt: Span::from_millis(200), ..PATH };
        assert_eq!(controller(&setup(Some(just))).rate(), Rate::from_mbps(400));
        let just = Remembered { rtt: Span::from_millis(10), ..PATH };
        assert_eq!(controller(&setup(Some(just))).rate(), Rate::from_mbps(400));
    }
}
