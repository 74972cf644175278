//! Tsunami's receiving end: counts arrivals, requests missing blocks and reports the error rate.

use super::requests::Requests;
use super::{HISTORY, REPORT_BLOCKS, REPORT_INTERVAL};
use crate::endpoint::{Arrival, BlockRange, Carrier, Setup, Wake, Why};
use crate::ends::{Arrived, Flows, ReceivingEnd, ReceivingFlow};
use crate::time::{Span, Time};
use crate::wire::{Ack, Control, ErrorRate};

/// Factor from a loss ratio to an error rate, in thousandths of a percent. As in the tool that
/// Tsunami's authors released, a loss of 100 % is an error rate of 50 %.
const SCALE: f64 = 50_000.0;

/// Tsunami's receiver for any number of flows.
pub type TsunamiReceiver = Flows<Flow>;

/// One flow of the receiver.
pub struct Flow {
    end: ReceivingEnd,
    arrived: Arrived,
    requests: Requests,
    interval: Span,
    /// The receiver reports when its count of datagrams passes a multiple of this, at most once
    /// in `interval`.
    every: u64,
    /// Weight of the previous error rate in the smoothed error rate.
    history: f64,
    /// The smoothed error rate, in thousandths of a percent.
    error: f64,
    reported: Time,
    /// Datagrams that had arrived at the last report.
    received: u64,
    /// When a datagram last arrived, or the receiver last requested or acknowledged blocks.
    active: Time,
    /// When the receiver requests the remaining blocks: a grace (a wait for late blocks) after the
    /// object's last block arrived.
    ending: Option<Time>,
    /// Whether a new block arrived, or was skipped, since the last acknowledgement.
    news: bool,
    rates: u64,
    acks: u64,
    rate: Option<ErrorRate>,
    ack: bool,
}

impl Flow {
    /// Updates the error rate with the smoothing of the authors' tool; this report requests
    /// `requests` blocks.
    fn note_errors(&mut self, requests: u64) {
        let received = self.end.accounting.received;
        let came = received - core::mem::replace(&mut self.received, received);
        let loss = requests as f64 / (1 + requests + came) as f64;
        self.error = self.history * self.error + (1.0 - self.history) * SCALE * loss;
    }

    /// Requests missing blocks and acknowledges. A report also carries the error rate, and so does
    /// a request to restart (to resend every block from one block on).
    fn ask(&mut self, now: Time, is_report: bool) {
        let asked = self.requests.ask(now, &self.arrived, &mut self.end.accounting);
        (self.active, self.news, self.ack) = (now, false, true);
        if is_report || asked.restart.is_some() {
            self.reported = now;
            self.note_errors(asked.blocks);
            self.rates += 1;
            let (sequence, restart) = (self.rates, asked.restart);
            self.rate = Some(ErrorRate { sequence, rate: self.error as u32, restart });
        }
    }

    /// When the receiver requests missing blocks and acknowledges, if no datagram arrives before;
    /// `None` if nothing is missing and all is acknowledged.
    fn rest(&self) -> Option<Time> {
        let is_missing = self.arrived.next() < self.arrived.highest();
        (self.news || is_missing).then(|| self.active + self.interval)
    }

    fn check(&mut self, now: Time) {
        if self.end.is_finished() {
            return;
        }
        let is_end = self.ending.is_some_and(|at| at <= now);
        if is_end || self.rest().is_some_and(|at| at <= now) {
            self.ending = None;
            self.requests.settle(self.arrived.highest());
            self.ask(now, false);
        }
    }

    /// Once nothing is missing, acknowledges the last blocks, and drops a planned request and an
    /// unsent error rate.
    fn check_finished(&mut self) {
        if self.end.is_finished() && self.news {
            (self.news, self.ack) = (false, true);
            (self.ending, self.rate) = (None, None);
        }
    }
}

impl ReceivingFlow for Flow {
    fn new(now: Time, setup: &Setup) -> Flow {
        Flow {
            end: ReceivingEnd::new(now, setup),
            arrived: Arrived::new(setup),
            requests: Requests::new(now, setup),
            interval: setup.settings.span(&REPORT_INTERVAL),
            every: setup.settings.count(&REPORT_BLOCKS).max(1),
            history: setup.settings.value(&HISTORY),
            error: 0.0,
            reported: now,
            received: 0,
            active: now,
            ending: None,
            news: false,
            rates: 0,
            acks: 0,
            rate: None,
            ack: false,
        }
    }

    fn end(&self) -> &ReceivingEnd {
        &self.end
    }

    fn end_mut(&mut self) -> &mut ReceivingEnd {
        &mut self.end
    }

    fn on_datagrams(&mut self, now: Time, arrivals: &[Arrival]) {
        let before = self.end.accounting.received;
        let new = self.arrived.on_datagrams(&mut self.end, now, arrivals, |_| {});
        let after = self.end.accounting.received;
        (self.active, self.news) = (now, self.news || new > 0);
        if self.end.is_finished() {
            self.check_finished();
            return;
        }
        let layout = self.end.layout;
        for arrival in arrivals {
            let number = layout.number(arrival.block);
            self.requests.note_passing(now, number);
            if number + 1 == layout.blocks() {
                self.ending.get_or_insert(now + self.requests.grace());
            }
        }
        self.requests.note_highest(now, self.arrived.highest());
        if before / self.every != after / self.every && now >= self.reported + self.interval {
            self.ask(now, true);
        }
    }

    fn on_control(&mut self, _: Time, _: &Control) {
        self.end.accounting.refused += 1;
    }

    fn on_timeout(&mut self, now: Time) {
        self.check(now);
    }

    fn skip(&mut self, _: Time, blocks: BlockRange) {
        let requests = &mut self.requests;
        self.news |= self.arrived.skip(&mut self.end, blocks, |gap| requests.forget(gap)) > 0;
        self.check_finished();
    }

    fn poll_report(&mut self, now: Time) -> Option<(Carrier, Control)> {
        self.check(now);
        let requests = self.requests.take(&self.arrived).map(Control::Loss);
        let control = requests.or_else(|| self.rate.take().map(Control::ErrorRate));
        let control = control.or_else(|| {
            core::mem::take(&mut self.ack).then(|| {
                self.acks += 1;
                let (next, received) = (self.arrived.next(), self.arrived.there().count());
                Control::Ack(Ack { sequence: self.acks, next, received })
            })
        });
        Some((Carrier::Reliable, control?))
    }

    fn next_report(&self) -> Wake {
        if self.end.is_finished() {
            return Wake::OnInput;
        }
        let first = [self.ending, self.rest()].into_iter().flatten().min();
        first.map_or(Wake::OnInput, |at| Wake::At(at, Why::Report))
    }
}
