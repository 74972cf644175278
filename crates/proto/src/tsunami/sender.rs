//! Tsunami's sending end: sends the requested blocks first, otherwise the next new block.

use alloc::boxed::Box;

use super::REPORT_INTERVAL;
use super::delay::Delay;
use crate::endpoint::{BlockRange, PacketNumber, Setup, Wake, Why};
use crate::ends::{Again, Repairs, Run, SeenNumbers, SendingEnd, SendingFlow};
use crate::pulse::{TRAIN_LEN, until_train};
use crate::rate::{Feedback, RateController, controller};
use crate::time::{Span, Time};
use crate::units::Bytes;
use crate::wire::{Ack, Control, ErrorRate, Loss, Pulse, Train};

/// If no report arrives for this time, the error rate counts as 100 %, as in the tool that
/// Tsunami's authors released.
const HEARTBEAT: Span = Span::from_millis(500);
/// Maximum number of times that the wait for an answer to the last block doubles.
const MOST_DOUBLED: u32 = 3;
/// Minimum duration assumed for a first train (datagrams sent back to back) that arrived in one
/// instant.
const AT_ONCE: Span = Span::from_millis(2);

/// Tsunami's sender.
pub struct TsunamiSender {
    end: SendingEnd,
    repairs: Repairs,
    delay: Delay,
    /// The target: the user's rate, or a rate that is measured during the whole flow. One packet
    /// train is not enough: if the host slept for a moment, the train shows a rate that is far too
    /// high or too low.
    target: Box<dyn RateController>,
    /// Whether the rate was given, or a pulse (the receiver's periodic report) has arrived. Before
    /// that no rate is known.
    begun: bool,
    /// The session's round-trip time.
    rtt: Span,
    /// UDP payload of a packet train.
    train: Bytes,
    requests: SeenNumbers,
    rates: SeenNumbers,
    /// When a report (an error rate, a loss report or an acknowledgement, but not a pulse) last
    /// arrived, or the absence of reports was last counted. Before either, when the first datagram
    /// left; `None` until a datagram leaves.
    reported: Option<Time>,
    /// The receiver's report interval.
    interval: Span,
    /// Timer that resends the last block.
    last: Again,
}

impl TsunamiSender {
    /// A sender at the start of a flow.
    pub fn new(setup: &Setup) -> TsunamiSender {
        let target = controller(setup);
        let mut delay = Delay::new(setup, target.rate());
        if setup.rate.is_none() {
            // The search for the target starts low and converges from below, so the delay needs no
            // slow start of its own.
            delay.start_at_target();
        }
        TsunamiSender {
            end: SendingEnd::new(setup, delay.rate()),
            repairs: Repairs::default(),
            delay,
            target,
            begun: setup.rate.is_some(),
            rtt: setup.rtt,
            train: Bytes::new(TRAIN_LEN * setup.datagram().get()),
            requests: SeenNumbers::default(),
            rates: SeenNumbers::default(),
            reported: None,
            interval: setup.settings.span(&REPORT_INTERVAL),
            last: Again::new(MOST_DOUBLED),
        }
    }

    fn hear_report(&mut self, now: Time) {
        self.last.restart(now);
        self.reported = self.reported.map(|_| now);
    }

    fn on_error_rate(&mut self, now: Time, rate: &ErrorRate) {
        let sent_to = self.end.frontier.passed();
        if rate.restart.is_some_and(|block| block >= sent_to) {
            self.end.accounting.refused += 1;
            return;
        }
        if !self.rates.is_new(rate.sequence) {
            return;
        }
        self.hear_report(now);
        self.adapt(now, rate.rate);
        if let Some(block) = rate.restart {
            self.repairs.list(now, &self.end, block..sent_to, true);
        }
    }

    fn adapt(&mut self, now: Time, error: u32) {
        if self.begun {
            self.delay.on_error_rate(error);
            self.end.pacer.set_rate(now, self.delay.rate());
        }
    }

    fn follow_target(&mut self, now: Time) {
        self.delay.set_target(self.target.rate());
        self.end.pacer.set_rate(now, self.delay.rate());
    }

    fn on_loss(&mut self, now: Time, loss: &Loss) {
        if loss.lost().last().is_some_and(|run| run.end > self.end.frontier.passed()) {
            self.end.accounting.refused += 1;
            return;
        }
        if !self.requests.is_new(loss.sequence()) {
            return;
        }
        self.hear_report(now);
        self.end.accounting.reported_lost += loss.count();
        for run in loss.lost() {
            self.repairs.list(now, &self.end, run.clone(), true);
        }
    }

    fn on_ack(&mut self, now: Time, ack: &Ack) {
        if self.repairs.on_ack(&mut self.end, ack.next) {
            self.hear_report(now);
        } else {
            self.end.accounting.refused += 1;
        }
    }

    fn on_pulse(&mut self, now: Time, pulse: &Pulse) {
        if let Some(feedback) = self.end.on_pulse(now, pulse) {
            self.begun = true;
            let pulse = Pulse { train: pulse.train.or_else(|| self.guess(&feedback)), ..*pulse };
            self.target.on_feedback(now, &Feedback { pulse: &pulse, ..feedback });
            self.follow_target(now);
        }
    }

    /// Returns a substitute for the report of a first train that arrived in one instant, because
    /// such a train shows no rate. Either the path is fast, or the receiving host slept while the
    /// train arrived. A sleep lengthens the round trip, so the substitute takes the extra
    /// round-trip time as the train's duration. It has one step (distinct arrival time), so the
    /// rate then grows as after a train that was timed poorly.
    fn guess(&self, feedback: &Feedback<'_>) -> Option<Train> {
        let longer = feedback.sample? - self.rtt;
        let (first, span) = (PacketNumber(0), longer.max(AT_ONCE));
        let came = feedback.pulse.highest >= TRAIN_LEN;
        came.then_some(Train { first, bytes: self.train, span, steps: 1 })
    }

    /// When the last block is resent, to show the receiver which blocks were sent. If all blocks
    /// are sent, the receiver answers soon; otherwise the receiver may wait for its report
    /// interval.
    fn next_last(&self) -> Option<Time> {
        if self.has_work() || self.end.frontier.unacknowledged() == 0 {
            return None;
        }
        let is_end = self.end.frontier.peek().is_none();
        let answer = if is_end { self.end.rtt.smoothed() / 2 } else { self.interval };
        Some(self.last.next(self.end.rtt.timeout() + answer))
    }

    /// Takes the error rate as 100 % if no report arrives for [`HEARTBEAT`], because the receiver
    /// may be receiving nothing. Pulses are not reports.
    fn check_heartbeat(&mut self, now: Time) {
        if self.reported.is_some_and(|at| now.since(at) >= HEARTBEAT) {
            self.reported = Some(now);
            self.adapt(now, ErrorRate::ALL);
        }
    }
}

impl SendingFlow for TsunamiSender {
    fn end(&self) -> &SendingEnd {
        &self.end
    }

    fn end_mut(&mut self) -> &mut SendingEnd {
        &mut self.end
    }

    fn hear(&mut self, now: Time, control: &Control) -> bool {
        match control {
            Control::Loss(loss) => self.on_loss(now, loss),
            Control::ErrorRate(rate) => self.on_error_rate(now, rate),
            Control::Ack(ack) => self.on_ack(now, ack),
            Control::Pulse(pulse) => self.on_pulse(now, pulse),
            _ => return false,
        }
        true
    }

    fn expire(&mut self, now: Time) {
        if self.next_last().is_some_and(|at| at <= now) {
            self.repairs.list_last(&self.end);
            self.last.note(now);
        }
    }

    fn leave_out(&mut self, _: Time, blocks: BlockRange) {
        self.repairs.skip(&mut self.end, blocks);
    }

    fn room(&mut self, now: Time, next: PacketNumber) -> u64 {
        self.check_heartbeat(now);
        let trained = self.target.train(now, next);
        trained.max(self.end.pacer.allowance(now)).min(until_train(next))
    }

    fn next_run(&mut self, now: Time, _: u64, max: u32) -> Option<(Run, bool)> {
        match self.repairs.take(now, &self.end, max) {
            Some(run) => Some((run, false)),
            None => Some((self.end.frontier.take(max)?, true)),
        }
    }

    fn on_sent(&mut self, now: Time, next: PacketNumber, count: u64) {
        if count > 0 {
            self.reported.get_or_insert(now);
            self.last.put_off(now);
            self.target.on_sent(now, next, count);
            self.follow_target(now);
        }
    }

    fn has_work(&self) -> bool {
        !self.repairs.is_empty() || self.end.frontier.is_open()
    }

    fn has_only_first(&self) -> bool {
        self.repairs.is_empty()
    }

    fn next_due(&self) -> Wake {
        self.next_last().map_or(Wake::OnInput, |at| Wake::At(at, Why::Repeat))
    }
}
