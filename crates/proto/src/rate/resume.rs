//! Careful Resume (RFC 9959): a flow over a remembered path starts at half of the remembered rate.
//!
//! - **Reconnaissance** (section 3.2): the session measures the round-trip time. If this time has
//!   changed too much, the path is treated as unknown: [`Remembered::fits`].
//! - **Unvalidated** (section 3.3): after the first packet train (datagrams sent back to back), the
//!   flow sends at half of the remembered rate until the report on that train arrives. Meanwhile it
//!   sends at most half of the remembered bandwidth-delay product.
//! - **Validating and Safe Retreat** (sections 3.4 and 3.5): the report on the first packet train
//!   shows the current capacity. From then on the controller decides alone, and the remembered rate
//!   has no influence.

use alloc::boxed::Box;

use super::train::first_rate;
use super::{Feedback, RateController};
use crate::endpoint::{PacketNumber, Setup};
use crate::law::Found;
use crate::pulse::TRAIN_LEN;
use crate::remembered::Remembered;
use crate::time::Time;
use crate::units::{Bytes, Rate};

pub(super) struct Resumed {
    law: Box<dyn RateController>,
    datagram: Bytes,
    rate: Rate,
    /// Maximum number of datagrams to send at the faster rate, including the first train.
    budget: u64,
    sent: u64,
    is_open: bool,
}

impl Resumed {
    /// Wraps the controller `law` with a faster start. The rate limit of `setup` still applies.
    pub(super) fn new(law: Box<dyn RateController>, setup: &Setup, path: Remembered) -> Resumed {
        let (half, datagram) = (path.rate.scale(0.5), setup.datagram());
        let rate = setup.rate_limit.map_or(half, |limit| half.min(limit));
        let flight = path.flight(setup.rtt).get() / datagram.get().max(1);
        Resumed { law, datagram, rate, budget: TRAIN_LEN + flight, sent: 0, is_open: true }
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

    fn found(&self) -> Found {
        self.law.found()
    }

    fn on_feedback(&mut self, now: Time, feedback: &Feedback<'_>) {
        self.is_open &= first_rate(self.datagram, feedback.pulse, 1.0).is_none();
        self.law.on_feedback(now, feedback);
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
    use crate::wire::{Pulse, Train};

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
