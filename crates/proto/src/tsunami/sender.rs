//! The sending end: what is asked for, else the next block.

use super::REPORT_INTERVAL;
use super::delay::Delay;
use crate::endpoint::{BlockRange, PacketNumber, Setup, Wake, Why};
use crate::ends::{Again, FirstTrain, Heard, Repairs, Run, SendingEnd, SendingFlow};
use crate::rate::train::TRICKLE;
use crate::time::{Span, Time};
use crate::wire::{Ack, Control, ErrorRate, Loss, Pulse};

/// Without a report for so long the public tool takes everything for lost.
const HEARTBEAT: Span = Span::from_millis(500);
/// How often the wait for an answer to the last block doubles.
const MOST_DOUBLED: u32 = 3;

/// What of the rate that the first train shows is the target: it is come to slowly, from a third of
/// it, and the error rate speaks before.
const TARGET_SHARE: f64 = 0.97;

/// Tsunami's sender.
pub struct TsunamiSender {
    end: SendingEnd,
    repairs: Repairs,
    delay: Delay,
    /// It shows the target.
    train: FirstTrain,
    /// Requests and error rates that have come.
    requests: Heard,
    rates: Heard,
    /// When a report last came, or its absence was last counted; nothing before the first datagram.
    reported: Option<Time>,
    interval: Span,
    /// The last block goes again.
    last: Again,
}

impl TsunamiSender {
    /// A sender at the start of a flow.
    pub fn new(setup: &Setup) -> TsunamiSender {
        let limit = setup.cap();
        let target = setup.fixed_rate().unwrap_or(TRICKLE);
        let delay = Delay::new(setup, limit.map_or(target, |limit| target.min(limit)));
        TsunamiSender {
            end: SendingEnd::new(setup, delay.rate()),
            repairs: Repairs::default(),
            delay,
            train: FirstTrain::new(setup, setup.rate.is_none(), TARGET_SHARE),
            requests: Heard::default(),
            rates: Heard::default(),
            reported: None,
            interval: Span::from_secs_f64(setup.settings.value(&REPORT_INTERVAL)),
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
        if !self.train.is_open() {
            self.delay.on_error_rate(error);
            self.end.pacer.set_rate(now, self.delay.rate());
        }
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
        if self.end.on_pulse(now, pulse).is_none() {
            return;
        }
        if let Some(rate) = self.train.on_pulse(pulse) {
            self.delay.set_target(rate);
            self.end.pacer.set_rate(now, self.delay.rate());
        }
    }

    /// When the last block goes again, to show the receiver how far it should have got. Where
    /// everything is sent, it answers at once; else it may wait for its interval.
    fn next_last(&self) -> Option<Time> {
        if self.has_work() || self.end.frontier.unacknowledged() == 0 {
            return None;
        }
        let is_end = self.end.frontier.peek().is_none();
        let answer = if is_end { self.end.rtt.smoothed() / 2 } else { self.interval };
        Some(self.last.next(self.end.rtt.timeout() + answer))
    }

    /// A receiver that says nothing may be getting nothing.
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
        self.train.room(next).max(self.end.pacer.allowance(now))
    }

    /// What was asked for goes first.
    fn next_run(&mut self, now: Time, _: u64, max: u32) -> Option<(Run, bool)> {
        match self.repairs.take(now, &self.end, max) {
            Some(run) => Some((run, false)),
            None => Some((self.end.frontier.take(max)?, true)),
        }
    }

    fn on_sent(&mut self, now: Time, _: PacketNumber, count: u64) {
        if count > 0 {
            self.reported.get_or_insert(now);
            self.last.put_off(now);
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
