//! The sending end. The sender sends each block once, then repeats unacknowledged blocks in a
//! circle, batch after batch, until the completion signal arrives. After each chunk of new data the
//! sender resends known losses before it begins the next chunk.

use alloc::boxed::Box;

use super::circle::{Circle, Known};
use super::table::Table;
use super::{BATCH, BURST, CHUNK, GREEDY_CHUNK, STATE_SEGMENT, TOLERATED_LOSS};
use crate::endpoint::{BlockRange, Event, PacketNumber, Setup, Wake, Why};
use crate::ends::{Run, SendingEnd, SendingFlow};
use crate::law::Found;
use crate::layout::Block;
use crate::pulse::until_train;
use crate::rate::{RateController, controller};
#[cfg(test)]
use crate::time::Span;
use crate::time::Time;
use crate::units::Rate;
use crate::wire::{Ack, Control, Pulse, Selective};

/// The smallest batch that an acknowledgement of new blocks sets: the size that was best in the
/// paper.
const LEAST_BATCH: u64 = 2;

pub(crate) struct FobsSender {
    end: SendingEnd,
    speed: Speed,
    circle: Circle,
    batch: Batch,
    /// Blocks in a chunk. A chunk here is a setting of FOBS ([`CHUNK`]), not a hashed chunk of the
    /// object.
    chunk: u64,
    /// The end of the current chunk, as a block number of the object.
    chunk_end: u64,
    /// The packet number of the last datagram that carried a first send.
    last_first: u64,
    /// The number of the newest acknowledgement whose last message arrived.
    sequence: u64,
    /// The highest packet number that reached the receiver, plus one, as the last message of an
    /// acknowledgement reports it.
    highest: u64,
    /// If nothing can be sent: when the next block counts as lost.
    rest: Option<Time>,
}

enum Speed {
    Greedy(Box<dyn RateController>),
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

/// Number of datagrams between two checks for an acknowledgement.
#[derive(Clone, Copy, Debug)]
enum Batch {
    Fixed(u64),
    /// As many blocks as the last acknowledgement confirmed; unlimited before the first one.
    Auto(u64),
}

impl FobsSender {
    pub(crate) fn greedy(setup: &Setup) -> FobsSender {
        let chunk = setup.settings.value(&GREEDY_CHUNK);
        FobsSender::new(setup, Speed::Greedy(controller(setup)), chunk)
    }

    pub(crate) fn by_table(setup: &Setup) -> FobsSender {
        let settings = &setup.settings;
        let tolerated = settings.value(&TOLERATED_LOSS);
        let table = Table::new(setup, settings.count(&STATE_SEGMENT), tolerated);
        let chunk = settings.value(&CHUNK);
        let mut sender = FobsSender::new(setup, Speed::Table(table), chunk);
        sender.end.pacer.fix_burst(settings.count(&BURST));
        sender
    }

    fn new(setup: &Setup, mut speed: Speed, chunk: f64) -> FobsSender {
        let blocks = chunk / f64::from(setup.layout.block_size());
        let mut sender = FobsSender {
            end: SendingEnd::new(setup, speed.controller().rate()),
            speed,
            circle: Circle::new(setup.layout),
            batch: match setup.settings.count(&BATCH) {
                0 => Batch::Auto(u64::MAX),
                count => Batch::Fixed(count),
            },
            chunk: (blocks as u64).max(1),
            chunk_end: 0,
            last_first: 0,
            sequence: 0,
            highest: 0,
            rest: None,
        };
        sender.chunk_end = sender.chunk_end_after(0);
        sender
    }

    /// The end of the chunk that holds a block. Chunks never straddle segments.
    fn chunk_end_after(&self, number: u64) -> u64 {
        let end = (number / self.chunk + 1).saturating_mul(self.chunk);
        let layout = &self.end.layout;
        layout.block(number).map_or(end, |Block { segment, .. }| {
            let base = layout.number(Block { segment, index: 0 });
            end.min(base + u64::from(layout.blocks_in(segment)))
        })
    }

    fn is_between_chunks(&self) -> bool {
        self.end.frontier.peek().is_some_and(|next| next >= self.chunk_end)
    }

    /// Returns the rules by which a block counts as lost. While a first send is possible, the
    /// timeout does not apply to blocks repeated after the last first send. Otherwise a slow sender
    /// without acknowledgements would repeat blocks for ever and never reach a first send.
    fn known(&self) -> Known {
        let by_time_to = if self.end.frontier.is_open() { self.last_first } else { u64::MAX };
        Known { highest: self.highest, patience: self.end.rtt.timeout(), by_time_to }
    }

    /// Whether a block is resent only if it is known to be lost.
    ///
    /// > Note that a repeated batch-sending operation with zero packets is logically equivalent to
    /// > blocking on an acknowledgement.
    ///
    /// True in three cases: after an acknowledgement without new blocks, if acknowledgements set
    /// the batch size; while the receiver has no room; and during congestion:
    ///
    /// > we are investigating mechanisms to decrease the greediness of FOBS when congestion in the
    /// > network is detected
    fn is_thrifty(&self) -> bool {
        let is_congested = matches!(&self.speed, Speed::Table(table) if table.is_congested());
        is_congested || matches!(self.batch, Batch::Auto(0)) || self.end.frontier.is_out_of_grant()
    }

    /// The next run, whose first datagram gets number `number`, and whether it is a first send.
    fn choose(&mut self, now: Time, number: u64, max: u32) -> Option<(Run, bool)> {
        if self.is_between_chunks() {
            // While new data can be sent, losses are resent only between two chunks.
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
        if next >= self.chunk_end {
            self.chunk_end = self.chunk_end_after(next);
        }
        let rest = u32::try_from(self.chunk_end - next).unwrap_or(u32::MAX);
        let run = self.end.frontier.take(max.min(rest))?;
        self.last_first = number + run.blocks.len() as u64 - 1;
        self.circle.send_first(now, &run, self.last_first, self.end.frontier.there());
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

    fn on_selective(&mut self, selective: &Selective) {
        let (segment, slice) = (selective.report.segment(), selective.report.slice());
        let blocks = self.end.layout.blocks_in(segment);
        let beyond = selective.closing.is_some_and(|closing| closing.highest > self.end.numbered());
        if slice.end > blocks || beyond {
            self.end.accounting.refused += 1;
            return;
        }
        self.end.accounting.reported_lost += u64::from(selective.report.count());
        let missing = selective.report.missing();
        let is_whole = slice == (0..blocks) && missing.is_empty();
        if self.circle.acknowledge(segment, slice, missing) || is_whole {
            self.set_whole(segment);
        }
        let Some(closing) = selective.closing.filter(|_| selective.sequence > self.sequence) else {
            return;
        };
        self.sequence = selective.sequence;
        self.highest = self.highest.max(closing.highest);
        if let Batch::Auto(count) = &mut self.batch {
            *count = if closing.fresh > 0 { closing.fresh.max(LEAST_BATCH) } else { 0 };
        }
    }

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
            self.follow_rate(now);
        }
    }

    /// Sets the pacer to the controller's rate and burst; reports a change of the table's rate.
    fn follow_rate(&mut self, now: Time) {
        let controller = self.speed.controller();
        let (rate, most) = (controller.rate(), controller.burst());
        let is_state = matches!(&self.speed, Speed::Table(table) if table.state().is_some());
        if is_state && rate != self.end.pacer.rate() && !self.end.is_finished() {
            self.end.push_event(Event::Rate(rate));
        }
        self.end.pace(now, rate, most);
    }
}

#[cfg(test)]
impl FobsSender {
    pub(super) fn remembered(&self) -> usize {
        self.circle.remembered()
    }

    pub(super) fn standing(&self) -> Standing {
        let frontier = &self.end.frontier;
        let known_first = self.is_between_chunks();
        Standing {
            repeats_first: known_first || frontier.is_out_of_grant(),
            known_only: known_first || self.is_thrifty(),
            first_left: frontier.peek().is_some(),
            first_may_go: frontier.is_open(),
            patience: self.known().patience,
        }
    }
}

#[cfg(test)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    /// Whether repeats are possible although a first send is left: the receiver allows no more
    /// bytes, or a chunk has ended.
    pub(super) repeats_first: bool,
    pub(super) known_only: bool,
    pub(super) first_left: bool,
    /// Whether a first send is left and the grant allows it.
    pub(super) first_may_go: bool,
    pub(super) patience: Span,
}

impl SendingFlow for FobsSender {
    fn end(&self) -> &SendingEnd {
        &self.end
    }

    fn end_mut(&mut self) -> &mut SendingEnd {
        &mut self.end
    }

    fn hear(&mut self, now: Time, control: &Control) -> bool {
        self.rest = None;
        match control {
            Control::Selective(selective) => self.on_selective(selective),
            Control::Ack(ack) => self.on_ack(ack),
            Control::Pulse(pulse) => self.on_pulse(now, pulse),
            _ => return false,
        }
        true
    }

    fn expire(&mut self, now: Time) {
        self.rest = self.rest.filter(|rest| *rest > now);
    }

    fn leave_out(&mut self, _: Time, blocks: BlockRange) {
        let Block { segment, index } = blocks.first;
        let Some(range) = self.end.frontier.skip(blocks) else { return };
        self.rest = None;
        let slice = index..index + (range.end - range.start) as u32;
        let is_whole = self.circle.acknowledge(segment, slice, &[]);
        if is_whole || self.end.is_there(segment, 0) {
            self.set_whole(segment);
        }
    }

    fn hear_of_card(&mut self, now: Time, card: Rate) {
        if let Speed::Table(table) = &mut self.speed {
            table.set_peer_card(card);
            self.follow_rate(now);
        }
    }

    fn room(&mut self, now: Time, next: PacketNumber) -> u64 {
        let trained = self.speed.controller().train(now, next);
        let batch = match self.batch {
            Batch::Fixed(count) => count,
            // First sends continue even if the last acknowledgement confirmed no block.
            Batch::Auto(count) => count.max(LEAST_BATCH),
        };
        trained.max(self.end.pacer.allowance(now)).min(until_train(next)).min(batch)
    }

    fn next_run(&mut self, now: Time, number: u64, max: u32) -> Option<(Run, bool)> {
        let chosen = self.choose(now, number, max);
        if chosen.is_none() {
            let patience = self.known().patience;
            self.rest = Some(self.circle.next_loss(patience).unwrap_or(Time::NEVER));
        }
        chosen
    }

    fn on_sent(&mut self, now: Time, next: PacketNumber, count: u64) {
        if count > 0 {
            self.speed.controller().on_sent(now, next, count);
        }
        self.follow_rate(now);
    }

    fn has_work(&self) -> bool {
        self.rest.is_none()
    }

    fn has_only_first(&self) -> bool {
        self.rest.is_some()
    }

    fn found_out(&self) -> Found {
        match &self.speed {
            Speed::Greedy(controller) => controller.found(),
            Speed::Table(_) => Found::default(),
        }
    }

    fn next_due(&self) -> Wake {
        let rest = self.rest.filter(|rest| *rest < Time::NEVER);
        rest.map_or(Wake::OnInput, |rest| Wake::At(rest, Why::Repeat))
    }
}
