//! The sending end: first blocks, then the circle, batch after batch until the completion signal.
//! Greedy, or by the table: that goes round after each chunk, and is less greedy while there is
//! congestion.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::circle::{Circle, Known};
use super::table::Table;
use super::{BATCH, BURST, CHUNK, STATE_SEGMENT, TOLERATED_LOSS};
use crate::accounting::SenderAccounting;
use crate::endpoint::{
    BlockRange, Event, FlowId, Outgoing, PacketNumber, Sender, Setup, Wake, Why,
};
use crate::ends::{Run, SendingEnd};
use crate::layout::Block;
use crate::pulse::until_train;
use crate::rate::{RateController, controller};
use crate::time::{Span, Time};
use crate::units::Rate;
use crate::wire::{Ack, Control, Pulse, Selective};

/// The smallest batch that an acknowledgement makes: the paper's best.
const LEAST_BATCH: u64 = 2;

/// FOBS's sender.
pub struct FobsSender {
    end: SendingEnd,
    speed: Speed,
    circle: Circle,
    batch: Batch,
    /// Blocks of a chunk, and the first of the next one, counted through the object.
    chunk: u64,
    next_chunk: u64,
    /// The newest acknowledgement that has come to its end.
    sequence: u64,
    /// What it said of the datagrams under way.
    highest: u64,
    /// Nothing is due before this, unless something is heard.
    rest: Option<Time>,
}

/// What the rate is.
enum Speed {
    /// Given, or found.
    Greedy(Box<dyn RateController>),
    /// Out of the table.
    Table(Table),
}

impl Speed {
    fn controller(&mut self) -> &mut dyn RateController {
        match self {
            Speed::Greedy(controller) => controller.as_mut(),
            Speed::Table(table) => table,
        }
    }
}

/// How many datagrams go between two looks for an acknowledgement.
#[derive(Clone, Copy, Debug)]
enum Batch {
    Fixed(u64),
    /// As many blocks as the last acknowledgement brought; as many as may be before the first.
    Auto(u64),
}

impl FobsSender {
    /// A greedy sender at the start of a flow.
    pub fn greedy(setup: &Setup) -> FobsSender {
        FobsSender::new(setup, Speed::Greedy(controller(setup)), u64::MAX)
    }

    /// A sender by the table at the start of a flow.
    pub fn by_table(setup: &Setup) -> FobsSender {
        let settings = &setup.settings;
        let tolerated = settings.value(&TOLERATED_LOSS) / 100.0;
        let table = Table::new(setup, settings.count(&STATE_SEGMENT), tolerated);
        let chunk = settings.value(&CHUNK) * f64::from(1 << 20);
        let blocks = (chunk / f64::from(setup.layout.block_size())) as u64;
        let mut sender = FobsSender::new(setup, Speed::Table(table), blocks.max(1));
        sender.end.pacer.fix_burst(settings.count(&BURST));
        sender
    }

    fn new(setup: &Setup, mut speed: Speed, chunk: u64) -> FobsSender {
        FobsSender {
            end: SendingEnd::new(setup, speed.controller().rate()),
            speed,
            circle: Circle::new(setup.layout),
            batch: match setup.settings.count(&BATCH) {
                0 => Batch::Auto(u64::MAX),
                count => Batch::Fixed(count),
            },
            chunk,
            next_chunk: chunk,
            sequence: 0,
            highest: 0,
            rest: None,
        }
    }

    fn known(&self) -> Known {
        Known { highest: self.highest, patience: self.end.rtt.timeout() }
    }

    /// Whether a block goes again only when it is known to be lost.
    ///
    /// > Note that a repeated batch-sending operation with zero packets is logically equivalent to
    /// > blocking on an acknowledgement.
    ///
    /// So it is after an acknowledgement that brought nothing new, where those make the batch;
    /// while the receiver has no room for more; and while there is congestion:
    ///
    /// > we are investigating mechanisms to decrease the greediness of FOBS when congestion in the
    /// > network is detected
    fn is_thrifty(&self) -> bool {
        let is_congested = matches!(&self.speed, Speed::Table(table) if table.is_congested());
        is_congested || matches!(self.batch, Batch::Auto(0)) || self.end.frontier.is_out_of_grant()
    }

    /// What goes next, the first datagram under number `number`; and whether for the first time.
    fn next_run(&mut self, now: Time, number: u64, max: u32) -> Option<(Run, bool)> {
        if self.end.frontier.peek().is_some_and(|next| next >= self.next_chunk) {
            // What was lost goes again only after a chunk's new data. What is on its way is not
            // waited for: that would be the lock-step which the study saw.
            let known = self.known();
            if let Some(run) = self.again(now, number, max, Some(known)) {
                return Some((run, false));
            }
        }
        if let Some(run) = self.first(now, number, max) {
            return Some((run, true));
        }
        let known = self.is_thrifty().then(|| self.known());
        Some((self.again(now, number, max, known)?, false))
    }

    fn first(&mut self, now: Time, number: u64, max: u32) -> Option<Run> {
        let next = self.end.frontier.peek()?;
        if next >= self.next_chunk {
            self.next_chunk = (next / self.chunk + 1).saturating_mul(self.chunk);
        }
        let rest = u32::try_from(self.next_chunk - next).unwrap_or(u32::MAX);
        let run = self.end.frontier.take(max.min(rest))?;
        let last = number + run.blocks.len() as u64 - 1;
        self.circle.send_first(now, &run, last, self.end.frontier.there());
        self.end.accounting.rounds = self.end.accounting.rounds.max(1);
        Some(run)
    }

    fn again(&mut self, now: Time, number: u64, max: u32, known: Option<Known>) -> Option<Run> {
        let (run, times) = self.circle.send_again(now, number, max, known)?;
        self.end.accounting.rounds = self.end.accounting.rounds.max(times);
        Some(run)
    }

    fn set_whole(&mut self, segment: u32) {
        self.circle.forget(segment);
        self.end.set_whole(segment);
    }

    fn on_selective(&mut self, told: &Selective) {
        let (segment, slice) = (told.report.segment(), told.report.slice());
        let blocks = self.end.layout.blocks_in(segment);
        let beyond = told.closing.is_some_and(|closing| closing.highest > self.end.numbered());
        if slice.end > blocks || beyond {
            self.end.accounting.refused += 1;
            return;
        }
        self.end.accounting.reported_lost += u64::from(told.report.count());
        let missing = told.report.missing();
        let is_whole = slice == (0..blocks) && missing.is_empty();
        if self.circle.acknowledge(segment, slice, missing) || is_whole {
            self.set_whole(segment);
        }
        let Some(closing) = told.closing.filter(|_| told.sequence > self.sequence) else { return };
        self.sequence = told.sequence;
        self.highest = self.highest.max(closing.highest);
        if let Batch::Auto(count) = &mut self.batch {
            *count = if closing.fresh > 0 { closing.fresh.max(LEAST_BATCH) } else { 0 };
        }
    }

    /// The completion signal.
    fn on_ack(&mut self, ack: &Ack) {
        if ack.next != self.end.layout.blocks() {
            self.end.accounting.refused += 1;
            return;
        }
        (0..self.end.layout.segments()).for_each(|segment| self.set_whole(segment));
    }

    fn on_pulse(&mut self, now: Time, pulse: &Pulse) {
        if let Some(feedback) = self.end.on_pulse(now, pulse) {
            self.speed.controller().on_feedback(now, &feedback);
            let rate = self.speed.controller().rate();
            let is_state = matches!(&self.speed, Speed::Table(table) if table.state().is_some());
            if is_state && rate != self.end.pacer.rate() && !self.end.is_finished() {
                self.end.tell(Event::Rate(rate));
            }
            self.end.pacer.set_rate(now, rate);
        }
    }

    /// The most datagrams of this poll.
    fn room(&mut self, now: Time, next: PacketNumber, max: usize) -> u32 {
        let trained = self.speed.controller().train(now, next);
        let batch = match self.batch {
            Batch::Fixed(count) => count,
            // First blocks go in any case: that batch is about repeats.
            Batch::Auto(count) => count.max(LEAST_BATCH),
        };
        let room = trained.max(self.end.pacer.allowance(now)).min(until_train(next));
        room.min(batch).min(max as u64) as u32
    }
}

#[cfg(test)]
impl FobsSender {
    /// Whether no first block may go for want of a grant, and whether one is left.
    pub(super) fn first_blocks(&self) -> (bool, bool) {
        (self.end.frontier.is_out_of_grant(), self.end.frontier.peek().is_some())
    }
}

impl Sender for FobsSender {
    fn on_control(&mut self, now: Time, flow: FlowId, control: &Control) {
        if !self.end.hear(now, flow) {
            return;
        }
        self.rest = None;
        match control {
            Control::Selective(told) => self.on_selective(told),
            Control::Ack(ack) => self.on_ack(ack),
            Control::Pulse(pulse) => self.on_pulse(now, pulse),
            _ => self.end.accounting.refused += 1,
        }
    }

    fn on_timeout(&mut self, now: Time) {
        if !self.end.check_breaker(now) && self.rest.is_some_and(|rest| rest <= now) {
            self.rest = None;
        }
    }

    fn skip(&mut self, _: Time, flow: FlowId, blocks: BlockRange) {
        let BlockRange { first: Block { segment, index }, .. } = blocks;
        if flow != self.end.flow {
            return;
        }
        let Some(range) = self.end.frontier.skip(blocks) else { return };
        self.rest = None;
        let slice = index..index + (range.end - range.start) as u32;
        let is_whole = self.circle.acknowledge(segment, slice, &[]);
        if is_whole || self.end.is_there(segment, 0) {
            self.set_whole(segment);
        }
    }

    fn poll_transmit(&mut self, now: Time, next: PacketNumber, max: usize, out: &mut Vec<Block>) {
        if self.end.is_at_rest() {
            return;
        }
        let mut room = self.room(now, next, max);
        let mut number = next.0;
        while room > 0 {
            let Some((run, first_time)) = self.next_run(now, number, room) else {
                self.end.pacer.idle(now);
                let patience = self.known().patience;
                self.rest = Some(self.circle.next_loss(patience).unwrap_or(Time::NEVER));
                break;
            };
            self.end.send(now, &run, first_time, out);
            number += run.blocks.len() as u64;
            room -= run.blocks.len() as u32;
        }
        self.end.sent(now, next, number - next.0);
        if number > next.0 {
            self.speed.controller().on_sent(now, next, number - next.0);
        }
        let rate = self.speed.controller().rate();
        self.end.pacer.set_rate(now, rate);
    }

    fn poll_control(&mut self, _: Time) -> Option<Outgoing> {
        self.end.poll_control()
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.end.poll_event()
    }

    fn next_wakeup(&self) -> Wake {
        let wake = self.end.next_wakeup(self.rest.is_none());
        match self.rest {
            Some(rest) if rest < Time::NEVER && !self.end.is_at_rest() => {
                wake.earlier(Wake::At(rest, Why::Repeat))
            }
            _ => wake,
        }
    }

    fn is_finished(&self) -> bool {
        self.end.is_finished()
    }

    fn is_blocked_by_grant(&self) -> bool {
        !self.is_finished() && self.rest.is_some() && self.end.frontier.is_out_of_grant()
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
