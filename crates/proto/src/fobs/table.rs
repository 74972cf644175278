//! The rate table: the congestion response of FOBS as Oak Ridge's (ORNL's) study describes it.
//!
//! > FOBS asks for the local and remote network interface card speed which it uses to determine a
//! > maximum beginning rate. The default tolerated loss rate is 1%. FOBS calculates a table of
//! > rates during sender initialization linking these rates to a network state machine. After a
//! > segment of data (about 10000 1466-byte packets) has been transferred … The reported packet
//! > loss from the receiver is used then to calculate the current bandwidth. The current bandwidth
//! > is compared against the pre-calculated table values to determine the current state of the
//! > network and pull a corresponding rate from the table.
//!
//! Here a segment is a number of datagrams (the setting `state-segment`), not a part of the
//! object. The study gives no formula for the table. Ours has [`STATES`] states at equal distances,
//! the k-th at k/20 of the maximum rate. After a segment the bandwidth is the rate minus the lost
//! part. A tolerated loss raises the state by one; otherwise the new state is the lowest whose rate
//! is at least the bandwidth.
//!
//! The report on a segment is the receiver's pulse (its periodic report). If no maximum is known,
//! the sender first measures the path until the measured rate settles. The speed of one card alone
//! is no maximum, because the other card may be slower.

use alloc::boxed::Box;

use crate::endpoint::{PacketNumber, Setup};
use crate::rate::{Feedback, RateController, controller};
use crate::time::Time;
use crate::units::{LossRatio, Rate};

const STATES: u32 = 20;
/// A measured rate that rises by at most this factor in a segment has settled.
const SETTLED: f64 = 1.05;

pub(super) struct Table {
    /// The maximum, once it is known.
    top: Option<Rate>,
    fixed: Option<Rate>,
    limit: Option<Rate>,
    /// The speed of the sending host's card.
    card: Option<Rate>,
    finder: Box<dyn RateController>,
    /// The measured rate at the start of the segment.
    found: Rate,
    state: u32,
    /// Datagrams in a segment.
    segment: u64,
    tolerated: f64,
    /// Highest packet number sent, plus one.
    sent: u64,
    /// The segment has only packet numbers from this one on.
    from: u64,
    /// The counts when the segment's first datagrams had arrived.
    start: Option<Counts>,
    congested: bool,
}

/// Highest arrived number plus one, and the number of arrivals.
#[derive(Clone, Copy, Debug)]
struct Counts {
    highest: u64,
    received: u64,
}

impl Table {
    /// The maximum is the user's fixed rate (reduced to the user's limit), or else the lowest of
    /// the limit and both hosts' card speeds. Until both speeds are known, the maximum is the
    /// limit, or without a limit the measured rate. A segment has `segment` datagrams, of which the
    /// share `tolerated` may be lost.
    pub(super) fn new(setup: &Setup, segment: u64, tolerated: f64) -> Table {
        let finder = controller(setup);
        let top = setup.cap();
        let found = finder.rate();
        Table {
            top,
            fixed: setup.rate,
            limit: setup.rate_limit,
            card: setup.card,
            finder,
            found,
            state: STATES,
            segment,
            tolerated,
            sent: 0,
            from: 0,
            start: None,
            congested: false,
        }
    }

    /// Sets the receiving host's card speed: the slower card limits the table. Has no effect if the
    /// user has fixed the rate, or if the speed of this host's card is unknown.
    pub(super) fn set_peer_card(&mut self, peer: Rate) {
        let (None, Some(card)) = (self.fixed, self.card) else { return };
        let cards = card.min(peer);
        let top = self.limit.map_or(cards, |limit| limit.min(cards));
        if self.top != Some(top) {
            self.top = Some(top);
            self.state = STATES;
            self.forget_segment();
        }
    }

    pub(super) fn is_congested(&self) -> bool {
        self.congested
    }

    /// The rate of the current state, once the table has a maximum.
    pub(super) fn state(&self) -> Option<Rate> {
        self.top.map(|top| rate_of(top, self.state))
    }

    /// The loss of the segment, once all its datagrams arrived or are lost.
    fn measure(&mut self, feedback: &Feedback<'_>) -> Option<LossRatio> {
        let end = Counts { highest: feedback.pulse.highest, received: feedback.pulse.received };
        if end.highest <= self.from {
            return None;
        }
        let Some(start) = self.start else {
            self.start = Some(end);
            return None;
        };
        let sent = end.highest.saturating_sub(start.highest);
        if sent < self.segment {
            return None;
        }
        self.start = Some(end);
        // If the receiver's number of arrivals goes backwards, the segment counts as lost.
        let came = end.received.saturating_sub(start.received).min(sent);
        Some(LossRatio::of(sent - came, sent))
    }

    fn on_segment(&mut self, loss: LossRatio) {
        self.congested = loss.get() > self.tolerated;
        let Some(top) = self.top else {
            let rate = self.finder.rate();
            if rate.as_bps() as f64 <= self.found.as_bps() as f64 * SETTLED {
                self.top = Some(rate.max(self.found));
            }
            self.found = rate;
            return;
        };
        let before = self.state;
        if self.congested {
            let bandwidth = rate_of(top, self.state).scale(1.0 - loss.get());
            let states = (1..=STATES).filter(|state| rate_of(top, *state) >= bandwidth);
            self.state = states.min().unwrap_or(STATES);
        } else {
            self.state = STATES.min(self.state + 1);
        }
        if self.state != before {
            self.forget_segment();
        }
    }

    /// Discards the current segment, because its datagrams in flight left at the old rate.
    fn forget_segment(&mut self) {
        self.from = self.sent;
        self.start = None;
    }
}

fn rate_of(top: Rate, state: u32) -> Rate {
    top.scale(f64::from(state) / f64::from(STATES))
}

impl RateController for Table {
    fn rate(&self) -> Rate {
        self.state().unwrap_or_else(|| self.finder.rate())
    }

    fn train(&mut self, now: Time, next: PacketNumber) -> u64 {
        if self.top.is_some() { 0 } else { self.finder.train(now, next) }
    }

    fn burst(&self) -> u64 {
        if self.top.is_some() { u64::MAX } else { self.finder.burst() }
    }

    fn on_sent(&mut self, now: Time, first: PacketNumber, count: u64) {
        self.sent = first.0 + count;
        if self.top.is_none() {
            self.finder.on_sent(now, first, count);
        }
    }

    fn on_feedback(&mut self, now: Time, feedback: &Feedback<'_>) {
        if self.top.is_none() {
            self.finder.on_feedback(now, feedback);
        }
        if let Some(loss) = self.measure(feedback) {
            self.on_segment(loss);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::FlowId;
    use crate::layout::Layout;
    use crate::time::Span;
    use crate::units::Bytes;
    use crate::wire::Pulse;
    use alloc::vec::Vec;

    fn table(rate: Option<Rate>, rate_limit: Option<Rate>) -> Table {
        let layout = Layout::whole(Bytes::new(1 << 30), 1000).unwrap();
        let setup = Setup::new(FlowId(1), layout, Span::from_millis(100));
        Table::new(&Setup { rate, rate_limit, ..setup }, 1000, 0.01)
    }

    /// Sends segments with this many lost datagrams; returns the rates in Mbit/s that follow.
    fn rates(table: &mut Table, lost: &[u64]) -> Vec<u64> {
        let (mut highest, mut received) = (table.sent, table.sent);
        let mut after = Vec::new();
        for lost in lost {
            for count in [10, 1000] {
                highest += count;
                received += if count == 1000 { count - lost } else { count };
                table.on_sent(Time::ZERO, PacketNumber(highest - count), count);
                let pulse = Pulse { highest, received, ..Pulse::default() };
                let (min_rtt, rtt) = (Span::from_millis(100), Span::from_millis(100));
                let feedback = Feedback { pulse: &pulse, min_rtt, rtt, sample: None };
                table.on_feedback(Time::ZERO, &feedback);
            }
            after.push(table.rate().as_bps() / 1_000_000);
        }
        after
    }

    #[test]
    fn too_much_loss_lowers_the_state_to_the_arrival_rate_and_tolerated_loss_raises_it_by_one() {
        let mut table = table(Some(Rate::from_mbps(1_000)), None);
        assert_eq!(table.rate(), Rate::from_mbps(1_000));
        // Ten lost of a thousand are tolerated. A loss of half of 1,000 Mbit/s leaves 500. A loss
        // of a quarter of 500 leaves 375: the next higher state is 400.
        assert_eq!(rates(&mut table, &[10, 505, 250]), [1_000, 500, 400]);
        assert!(table.is_congested());
        assert_eq!(rates(&mut table, &[0, 5, 0]), [450, 500, 550]);
        assert!(!table.is_congested());
        // A loss of 6 % of 550 leaves 517: the lowest state above 517 is the current one, 550.
        assert_eq!(rates(&mut table, &[60]), [550]);
        assert!(table.is_congested());
        assert_eq!(rates(&mut table, &[0; 12]).last(), Some(&1_000));
        assert_eq!(rates(&mut table, &[1000]), [50]);
    }

    #[test]
    fn the_maximum_is_the_users_limit_if_no_card_is_known() {
        let mut table = table(None, Some(Rate::from_mbps(200)));
        assert_eq!(rates(&mut table, &[0, 101]), [200, 180]);
    }

    fn between_cards(rate: Option<u64>, limit: Option<u64>, peer: Option<u64>) -> Table {
        let [rate, limit, peer] = [rate, limit, peer].map(|mbps| mbps.map(Rate::from_mbps));
        let layout = Layout::whole(Bytes::new(1 << 30), 1000).unwrap();
        let setup = Setup::new(FlowId(1), layout, Span::from_millis(100));
        let card = Some(Rate::from_mbps(1_000));
        let setup = Setup { rate, rate_limit: limit, card, ..setup };
        let mut table = Table::new(&setup, 1000, 0.01);
        peer.into_iter().for_each(|peer| table.set_peer_card(peer));
        table
    }

    #[test]
    fn the_maximum_is_the_slower_card_unless_the_user_sets_a_rate_or_a_lower_limit() {
        let top = |rate, limit, peer| between_cards(rate, limit, peer).top.map(Rate::as_bps);
        let mbps = |mbps: u64| Some(mbps * 1_000_000);
        assert_eq!(top(None, None, Some(10_000)), mbps(1_000), "the sender's is slower");
        assert_eq!(top(None, None, Some(200)), mbps(200), "the receiver's is slower");
        assert_eq!(top(None, Some(150), Some(200)), mbps(150), "the user's limit");
        assert_eq!(top(None, Some(500), Some(200)), mbps(200), "no more than the cards");
        assert_eq!(top(Some(300), None, Some(200)), mbps(300), "the user's rate");
        assert_eq!(top(None, None, None), None, "the other card is unknown");
        let mut slower = between_cards(None, None, Some(200));
        assert_eq!(rates(&mut slower, &[0, 101]), [200, 180], "the table uses this maximum");
        let mut unknown = table(None, None);
        unknown.set_peer_card(Rate::from_mbps(200));
        assert_eq!(unknown.top, None);
    }

    #[test]
    fn a_card_speed_known_late_restarts_the_table() {
        let mut late = between_cards(None, Some(1_000), None);
        assert_eq!(rates(&mut late, &[505]), [500]);
        late.set_peer_card(Rate::from_mbps(200));
        assert_eq!(late.rate(), Rate::from_mbps(200));
        assert_eq!(rates(&mut late, &[505]), [100]);
        late.set_peer_card(Rate::from_mbps(200));
        assert_eq!(late.rate(), Rate::from_mbps(100));
    }

    #[test]
    fn the_defaults_match_the_release_that_the_study_measured() {
        let row = crate::registry::find("fobs-table").unwrap();
        let default = |name| row.options.iter().find(|option| option.name == name).unwrap().default;
        let names = ["state-segment", "tolerated-loss", "burst"];
        assert_eq!(names.map(default), [10_000.0, 0.01, 25.0]);
    }

    #[test]
    fn datagrams_sent_at_the_old_rate_belong_to_no_segment() {
        let mut table = table(Some(Rate::from_mbps(1_000)), None);
        table.on_sent(Time::ZERO, PacketNumber(0), 5_000);
        let mut tell = |highest, received| {
            let pulse = Pulse { highest, received, ..Pulse::default() };
            let (min_rtt, rtt) = (Span::from_millis(100), Span::from_millis(100));
            let feedback = Feedback { pulse: &pulse, min_rtt, rtt, sample: None };
            table.on_feedback(Time::ZERO, &feedback);
            table.rate().as_bps() / 1_000_000
        };
        assert_eq!((tell(100, 100), tell(1_100, 600)), (1_000, 500));
        // Datagrams sent before the change are lost too, but do not lower the rate a second time.
        assert_eq!((tell(3_000, 1_500), tell(5_000, 2_500)), (500, 500));
    }

    struct Finds(u64);

    impl RateController for Finds {
        fn rate(&self) -> Rate {
            Rate::from_bps(self.0)
        }

        fn train(&mut self, _: Time, _: PacketNumber) -> u64 {
            0
        }

        fn on_sent(&mut self, _: Time, _: PacketNumber, _: u64) {}

        fn on_feedback(&mut self, _: Time, _: &Feedback<'_>) {}
    }

    #[test]
    fn a_measured_rate_settles_when_it_rises_by_at_most_5_percent_in_a_segment() {
        let top = |found: &[u64]| {
            let mut table = Table { found: Rate::from_mbps(100), ..table(None, None) };
            for bps in found {
                table.finder = Box::new(Finds(*bps));
                table.on_segment(LossRatio::NONE);
            }
            table.top.map(Rate::as_bps)
        };
        assert_eq!(top(&[105_000_000]), Some(105_000_000));
        assert_eq!(top(&[105_000_001]), None);
        assert_eq!(top(&[200_000_000, 210_000_001]), None, "compared with the last segment");
        assert_eq!(top(&[90_000_000]), Some(100_000_000), "the highest that was found");
    }

    #[test]
    fn without_known_cards_the_maximum_is_the_measured_rate() {
        let mut table = table(None, None);
        assert_eq!(table.top, None);
        rates(&mut table, &[0; 3]);
        assert!(table.top.is_some());
        let top = table.rate();
        rates(&mut table, &[0; 3]);
        assert_eq!(table.rate(), top);
    }

    #[test]
    fn trains_leave_only_while_the_maximum_is_unknown() {
        let first = |rate: Option<u64>| {
            table(rate.map(Rate::from_mbps), None).train(Time::ZERO, PacketNumber(0))
        };
        assert_eq!((first(None), first(Some(100))), (32, 0));
    }
}
