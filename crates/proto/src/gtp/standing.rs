//! The receiver's view of a sender: the round-trip time and the limits, from the sender's offers
//! (its reports of both) and its answers to the receiver's requests.
//!
//! A sender may claim anything, and a long round-trip time slows down all flows (section 4.2 of the
//! paper: the control interval is three RTT_max). The receiver therefore limits a claimed
//! round-trip time to the longest delay of the sender's recent answers, and to `longest_rtt`
//! (`tuning`). The receiver paces all flows by the path's round-trip time, without the queue that a
//! flow may have built up.

use super::controller::PathRtt;
use super::options::{Rules, bps};
use crate::endpoint::Setup;
use crate::ends::grace;
use crate::time::{Span, Time};
use crate::units::Rate;
use crate::wire::SenderOffer;

#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    offer: u64,
    rtt: Span,
    /// The longest delay of recent answers. Each answer replaces it by the answer's own delay, but
    /// shortens it by at most 1/`answers`.
    response: Option<Span>,
    path: PathRtt,
    fixed: Option<f64>,
    /// Rate of the first train (datagrams sent back to back), in bits a second.
    train: Option<f64>,
    limit: f64,
    offered: f64,
    drain: f64,
    /// The longest accepted round-trip time.
    longest: Span,
    /// The shortest round-trip time that rate decisions use.
    shortest: Span,
    /// Maximum requested rate, as a multiple of the rate at which this host empties its buffers
    /// (drain rate).
    more: f64,
    answers: u64,
}

impl Standing {
    pub(super) fn new(now: Time, setup: &Setup, rules: &Rules) -> Standing {
        Standing {
            offer: 0,
            rtt: setup.rtt,
            response: None,
            path: PathRtt::new(now, setup.rtt, rules.tuning.path_age),
            fixed: setup.fixed_rate().map(|rate| rate.as_bps() as f64),
            train: None,
            limit: bps(setup.rate_limit.filter(|_| setup.rate.is_none())),
            offered: f64::INFINITY,
            drain: f64::INFINITY,
            longest: rules.tuning.longest_rtt,
            shortest: rules.tuning.shortest_turn,
            more: rules.tuning.drain,
            answers: rules.tuning.answers,
        }
    }

    /// Takes an offer if it is newer than the last one; returns whether it is.
    pub(super) fn on_offer(&mut self, now: Time, offer: &SenderOffer) -> bool {
        if offer.sequence <= self.offer {
            return false;
        }
        self.offer = offer.sequence;
        self.rtt = offer.rtt;
        self.offered = bps(offer.limit);
        self.on_round(now);
        true
    }

    /// Takes the last reported round-trip time as the sample of one more round trip.
    pub(super) fn on_round(&mut self, now: Time) {
        self.path.on_sample(now, self.rtt);
    }

    pub(super) fn on_response(&mut self, after: Span) {
        let before = self.response.unwrap_or_default();
        self.response = Some(after.max(before - before / self.answers));
    }

    pub(super) fn set_drain(&mut self, drain: Option<Rate>) {
        self.drain = bps(drain.filter(|rate| *rate > Rate::ZERO)) * self.more;
    }

    pub(super) fn rtt(&self) -> Span {
        self.rtt.min(self.response.unwrap_or(self.longest)).min(self.longest)
    }

    /// The path's round-trip time without queues. It also paces the other flows.
    pub(super) fn path_rtt(&self) -> Span {
        self.path.shortest().min(self.rtt())
    }

    /// The queueing delay: the round-trip time beyond the path's own.
    pub(super) fn queue(&self) -> Span {
        self.rtt() - self.path.shortest()
    }

    pub(super) fn tick(&self) -> Span {
        self.rtt().max(self.shortest)
    }

    pub(super) fn grace(&self) -> Span {
        grace(self.rtt())
    }

    pub(super) fn queued(&self, rules: &Rules) -> f64 {
        self.path.queued(rules)
    }

    pub(super) fn fixed(&self) -> Option<f64> {
        self.fixed
    }

    pub(super) fn set_train(&mut self, rate: f64) {
        self.train = Some(rate);
    }

    pub(super) fn train(&self) -> Option<f64> {
        self.train
    }

    /// Upper bound of the flow's rate, in bits a second: min{C_i, R_App, R_Send} of section 4.2.
    pub(super) fn bound(&self) -> f64 {
        self.fixed.unwrap_or(self.limit).min(self.offered).min(self.drain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::FlowId;
    use crate::layout::Layout;
    use crate::settings::Settings;
    use crate::units::Bytes;

    fn rules() -> Rules {
        Rules::new(&Settings::default())
    }

    fn standing() -> Standing {
        let layout = Layout::whole(Bytes::new(1_000_000), 1000).unwrap();
        let rate_limit = Some(Rate::from_mbps(800));
        let setup = Setup::new(FlowId(1), layout, Span::from_millis(10));
        Standing::new(Time::ZERO, &Setup { rate_limit, ..setup }, &rules())
    }

    fn offer(sequence: u64, rtt: u64, limit: Option<u64>) -> SenderOffer {
        let limit = limit.map(Rate::from_mbps);
        SenderOffer { sequence, rtt: Span::from_millis(rtt), limit, ..SenderOffer::default() }
    }

    #[test]
    fn the_smallest_of_several_bounds_applies() {
        let mut standing = standing();
        assert_eq!(standing.bound(), 800e6);
        assert!(standing.on_offer(Time::ZERO, &offer(2, 10, Some(300))));
        assert_eq!(standing.bound(), 300e6);
        assert!(!standing.on_offer(Time::ZERO, &offer(1, 10, None)));
        standing.set_drain(Some(Rate::from_mbps(100)));
        assert!((standing.bound() - 110e6).abs() < 1.0);
        standing.set_drain(None);
        assert_eq!(standing.bound(), 300e6);
    }

    #[test]
    fn a_claimed_round_trip_time_counts_only_as_far_as_answers_confirm_it() {
        let mut standing = standing();
        standing.on_offer(Time::ZERO, &offer(1, 3_600_000, None));
        assert_eq!(standing.rtt(), rules().tuning.longest_rtt);
        standing.on_response(Span::from_millis(16));
        assert_eq!(standing.rtt(), Span::from_millis(16));
        standing.on_response(Span::from_millis(1));
        assert_eq!(standing.rtt(), Span::from_millis(14));
        standing.on_offer(Time::ZERO, &offer(2, 200, None));
        standing.on_response(Span::from_millis(210));
        assert_eq!(standing.rtt(), Span::from_millis(200));
        assert_eq!(standing.grace(), Span::from_millis(50));
    }

    #[test]
    fn a_flow_acts_once_a_round_trip_but_at_most_once_in_10_ms() {
        let mut standing = standing();
        assert_eq!(standing.tick(), Span::from_millis(10));
        standing.on_offer(Time::ZERO, &offer(1, 16, None));
        assert_eq!(standing.tick(), Span::from_millis(16));
        standing.on_offer(Time::ZERO, &offer(2, 2, None));
        assert_eq!(standing.tick(), Span::from_millis(10));
    }

    #[test]
    fn the_rate_of_a_flows_first_train_is_unknown_until_it_is_measured() {
        let mut standing = standing();
        assert_eq!(standing.train(), None);
        standing.set_train(5e6);
        assert_eq!(standing.train(), Some(5e6));
    }
}
