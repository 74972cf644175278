//! The sending end: what is asked for, else the next block.

use alloc::vec::Vec;

use super::REPORT_INTERVAL;
use super::delay::Delay;
use crate::accounting::SenderAccounting;
use crate::endpoint::{
    BlockRange, Event, FlowId, Outgoing, PacketNumber, Sender, Setup, Wake, Why,
};
use crate::ends::{Again, Heard, Repairs, Run, SendingEnd};
use crate::layout::Block;
use crate::pulse::TRAIN_LEN;
use crate::rate::datagram;
use crate::rate::train::{TRICKLE, first_rate};
use crate::time::{Span, Time};
use crate::units::{Bytes, Rate};
use crate::wire::{Ack, Control, ErrorRate, Loss, Pulse};

/// Without a report for so long the public tool takes everything for lost.
const HEARTBEAT: Span = Span::from_millis(500);
/// How often the wait for an answer to the last block doubles.
const MOST_DOUBLED: u32 = 3;

/// Tsunami's sender.
pub struct TsunamiSender {
    end: SendingEnd,
    repairs: Repairs,
    delay: Delay,
    /// The datagram's size, as long as the first train is to show the target.
    finding: Option<Bytes>,
    limit: Option<Rate>,
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
            repairs: Repairs::new(setup),
            delay,
            finding: setup.rate.is_none().then(|| datagram(setup)),
            limit,
            requests: Heard::default(),
            rates: Heard::default(),
            reported: None,
            interval: Span::from_secs_f64(setup.settings.value(&REPORT_INTERVAL)),
            last: Again::new(MOST_DOUBLED),
        }
    }

    /// What was asked for goes first. Tells whether the run is of first blocks.
    fn next_run(&mut self, now: Time, max: u32) -> Option<(Run, bool)> {
        match self.repairs.take(now, &self.end, max) {
            Some(run) => Some((run, false)),
            None => Some((self.end.frontier.take(max)?, true)),
        }
    }

    fn has_work(&self) -> bool {
        let frontier = &self.end.frontier;
        let is_new = frontier.peek().is_some() && !frontier.is_out_of_grant();
        !self.repairs.is_empty() || is_new
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
        if self.finding.is_none() {
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
        if let Some(rate) = self.finding.and_then(|datagram| first_rate(datagram, pulse)) {
            self.finding = None;
            self.delay.set_target(self.limit.map_or(rate, |limit| rate.min(limit)));
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

impl Sender for TsunamiSender {
    fn on_control(&mut self, now: Time, flow: FlowId, control: &Control) {
        if !self.end.hear(now, flow) {
            return;
        }
        match control {
            Control::Loss(loss) => self.on_loss(now, loss),
            Control::ErrorRate(rate) => self.on_error_rate(now, rate),
            Control::Ack(ack) => self.on_ack(now, ack),
            Control::Pulse(pulse) => self.on_pulse(now, pulse),
            _ => self.end.accounting.refused += 1,
        }
    }

    fn on_timeout(&mut self, now: Time) {
        if self.end.check_breaker(now) {
            return;
        }
        if self.next_last().is_some_and(|at| at <= now) {
            self.repairs.list_last(&self.end);
            self.last.note(now);
        }
    }

    fn skip(&mut self, _: Time, flow: FlowId, blocks: BlockRange) {
        if flow == self.end.flow {
            self.repairs.skip(&mut self.end, blocks);
        }
    }

    fn poll_transmit(&mut self, now: Time, next: PacketNumber, max: usize, out: &mut Vec<Block>) {
        if self.end.is_at_rest() {
            return;
        }
        self.check_heartbeat(now);
        let is_train = self.finding.is_some();
        let trained = if is_train { TRAIN_LEN.saturating_sub(next.0) } else { 0 };
        let room = trained.max(self.end.pacer.allowance(now));
        let mut room = room.min(max as u64) as u32;
        let mut number = next.0;
        while room > 0 {
            let Some((run, first_time)) = self.next_run(now, room) else {
                self.end.pacer.idle(now);
                break;
            };
            number += run.blocks.len() as u64;
            room -= run.blocks.len() as u32;
            self.end.send(now, &run, first_time, out);
        }
        let count = number - next.0;
        self.end.sent(now, next, count);
        if count > 0 {
            self.reported.get_or_insert(now);
            self.last.put_off(now);
        }
    }

    fn poll_control(&mut self, _: Time) -> Option<Outgoing> {
        self.end.poll_control()
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.end.poll_event()
    }

    fn next_wakeup(&self) -> Wake {
        let wake = self.end.next_wakeup(self.has_work());
        match self.next_last() {
            Some(at) if !self.end.is_at_rest() => wake.earlier(Wake::At(at, Why::Repeat)),
            _ => wake,
        }
    }

    fn is_finished(&self) -> bool {
        self.end.is_finished()
    }

    fn is_blocked_by_grant(&self) -> bool {
        !self.is_finished() && self.repairs.is_empty() && self.end.frontier.is_out_of_grant()
    }

    fn rate(&self) -> Rate {
        self.end.pacer.rate()
    }

    fn rtt(&self) -> Span {
        self.end.rtt.smoothed()
    }

    fn accounting(&self) -> &SenderAccounting {
        &self.end.accounting
    }
}
