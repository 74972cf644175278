//! The sending end: which block next, how fast, and when to ask.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::TAIL_COPIES;
use super::segments::{Next, Segment, TailCopies};
use crate::accounting::SenderAccounting;
use crate::endpoint::{
    BlockRange, Carrier, Event, FlowId, Outgoing, PacketNumber, Sender, Setup, Wake, Why,
};
use crate::ends::{Run, SendingEnd};
use crate::layout::Block;
use crate::pulse::until_train;
use crate::ranges::RangeSet;
use crate::rate::{RateController, controller};
use crate::time::{Span, Time};
use crate::units::Rate;
use crate::wire::{Control, Done, Pulse, Report};

/// A question is asked again after this at the latest (unless the path is longer).
const MAX_REPEAT: Span = Span::from_secs(2);
/// Extra copies are at most one in so many of the object's blocks.
const COPY_SHARE: u64 = 256;

/// RBUDP's sender.
pub struct RbudpSender {
    end: SendingEnd,
    controller: Box<dyn RateController>,
    /// Segments begun and not known to be whole.
    open: BTreeMap<u32, Segment>,
    /// Those of them that have repairs to send.
    repairing: BTreeSet<u32>,
    /// When questions are asked again.
    repeats: BTreeSet<(Time, u32)>,
    /// Segments known to be whole.
    whole: RangeSet,
    copies: TailCopies,
}

impl RbudpSender {
    /// A sender at the start of a flow.
    pub fn new(setup: &Setup) -> RbudpSender {
        let controller = controller(setup);
        RbudpSender {
            end: SendingEnd::new(setup, controller.rate()),
            controller,
            open: BTreeMap::new(),
            repairing: BTreeSet::new(),
            repeats: BTreeSet::new(),
            whole: RangeSet::new(),
            copies: TailCopies {
                times: setup.settings.count(&TAIL_COPIES) as u32,
                budget: setup.layout.blocks() / COPY_SHARE,
            },
        }
    }

    /// The number of a segment's first block.
    fn base(&self, segment: u32) -> u64 {
        self.end.layout.number(Block { segment, index: 0 })
    }

    /// Repairs first, earliest segment first; then first blocks. Tells whether it is a first one.
    fn next_run(&mut self, now: Time, max: u32) -> Option<(Run, bool)> {
        while let Some(&segment) = self.repairing.first() {
            let base = self.base(segment);
            if let Some(open) = self.open.get_mut(&segment)
                && let Some(blocks) = open.next_repair(max, base, self.end.frontier.there())
            {
                return Some((Run { segment, blocks }, false));
            }
            // What was left has been skipped meanwhile.
            self.repairing.remove(&segment);
            self.settle(now, segment);
        }
        Some((self.end.frontier.take(max)?, true))
    }

    /// The segment whose first blocks are being sent.
    fn current(&self) -> Option<u32> {
        Some(self.end.layout.block(self.end.frontier.peek()?)?.segment)
    }

    fn rest_skipped(&self, segment: u32, from: u32) -> bool {
        let base = self.base(segment);
        let rest = base + u64::from(from)..base + u64::from(self.end.layout.blocks_in(segment));
        self.end.frontier.there().covers(rest)
    }

    /// Sends a run whose datagrams have numbers up to `last`.
    fn send_run(
        &mut self,
        now: Time,
        run: &Run,
        first_time: bool,
        last: u64,
        out: &mut Vec<Block>,
    ) {
        self.end.send(now, run, first_time, out);
        let blocks = self.end.layout.blocks_in(run.segment);
        let open = self.open.entry(run.segment).or_insert_with(|| Segment::new(blocks));
        open.on_sent(&run.blocks, PacketNumber(last), first_time);
        if !first_time {
            open.list_repair(run.blocks.clone(), self.copies);
        }
        self.end.accounting.rounds = self.end.accounting.rounds.max(open.rounds);
    }

    /// A run of a segment has left: is its round over?
    fn end_round(&mut self, now: Time, segment: u32) {
        let all_sent = self.end.frontier.peek().is_none();
        let Some(open) = self.open.get_mut(&segment) else { return };
        if all_sent && !open.has_repairs() {
            let copied = open.copy_round(self.copies);
            self.copies.budget -= copied.min(self.copies.budget);
        }
        if open.has_repairs() {
            self.repairing.insert(segment);
        } else {
            self.repairing.remove(&segment);
        }
        self.settle(now, segment);
    }

    /// Asks about a segment, or finds it whole, if that is what is next.
    fn settle(&mut self, now: Time, segment: u32) {
        let blocked = self.current() == Some(segment) && self.end.frontier.is_out_of_grant();
        let sent_to = self.end.frontier.sent_to(segment);
        let Some(open) = self.open.get(&segment) else { return };
        match open.next(sent_to, blocked, |from| self.rest_skipped(segment, from)) {
            Next::Wait => {}
            Next::Whole => self.set_whole(segment),
            Next::Ask => self.ask(now, segment, sent_to),
        }
    }

    fn ask(&mut self, now: Time, segment: u32, sent_to: u32) {
        // The receiver's grace and its way to the report are not in the round trip.
        let wait = self.end.rtt.timeout() + self.end.rtt.smoothed() / 2;
        let Some(open) = self.open.get_mut(&segment) else { return };
        if let Some(asked) = open.asked() {
            self.repeats.remove(&(asked.again, segment));
        }
        let blocks = open.round_len();
        let done = open.ask(now, segment, sent_to, wait);
        self.repeats.insert((now + wait, segment));
        self.end.tell(Event::Round { segment, round: done.round, blocks });
        self.say(done);
    }

    fn say(&mut self, done: Done) {
        self.end.say(Carrier::Reliable, Control::Done(done));
    }

    fn set_whole(&mut self, segment: u32) {
        if self.whole.insert(u64::from(segment)..u64::from(segment) + 1) == 0 {
            return;
        }
        let base = self.base(segment);
        let blocks = u64::from(self.end.layout.blocks_in(segment));
        self.end.frontier.set_there(base..base + blocks);
        self.repairing.remove(&segment);
        if let Some(open) = self.open.remove(&segment)
            && let Some(asked) = open.asked()
        {
            self.repeats.remove(&(asked.again, segment));
        }
        self.end.tell(Event::SegmentDone { segment });
        if self.whole.count() == u64::from(self.end.layout.segments()) {
            self.end.finish();
        }
    }

    fn has_work(&self) -> bool {
        let frontier = &self.end.frontier;
        !self.repairing.is_empty() || (frontier.peek().is_some() && !frontier.is_out_of_grant())
    }

    fn on_report(&mut self, now: Time, report: &Report) {
        let segment = report.segment();
        let (slice, blocks) = (report.slice(), self.end.layout.blocks_in(segment));
        if slice.end > blocks {
            self.end.accounting.refused += 1;
            return;
        }
        self.end.accounting.reported_lost += u64::from(report.count());
        if slice == (0..blocks) && report.missing().is_empty() {
            self.set_whole(segment);
            return;
        }
        let Some(open) = self.open.get_mut(&segment) else { return };
        let before = open.asked().map(|asked| asked.again);
        open.on_report(now, report);
        let after = open.asked().map(|asked| asked.again);
        if open.has_repairs() {
            self.repairing.insert(segment);
        }
        if let Some(again) = before.filter(|_| before != after) {
            self.repeats.remove(&(again, segment));
            self.repeats.extend(after.map(|again| (again, segment)));
        }
        self.end_round(now, segment);
    }

    fn on_pulse(&mut self, now: Time, pulse: &Pulse) {
        if let Some(feedback) = self.end.on_pulse(now, pulse) {
            self.controller.on_feedback(now, &feedback);
            self.end.pacer.set_rate(now, self.controller.rate());
        }
    }
}

impl Sender for RbudpSender {
    fn on_control(&mut self, now: Time, flow: FlowId, control: &Control) {
        if !self.end.hear(now, flow) {
            return;
        }
        match control {
            Control::Report(report) => self.on_report(now, report),
            Control::Pulse(pulse) => self.on_pulse(now, pulse),
            _ => self.end.accounting.refused += 1,
        }
    }

    fn on_timeout(&mut self, now: Time) {
        if self.end.check_breaker(now) {
            return;
        }
        let most = MAX_REPEAT.max(self.end.rtt.timeout() * 2);
        while let Some(&(again, segment)) = self.repeats.first()
            && again <= now
        {
            self.repeats.pop_first();
            let Some(open) = self.open.get_mut(&segment) else { continue };
            let done = open.repeat(now, most);
            self.repeats.extend(open.asked().map(|asked| (asked.again, segment)));
            if let Some(done) = done {
                self.say(done);
            }
        }
    }

    fn skip(&mut self, now: Time, flow: FlowId, blocks: BlockRange) {
        let segment = blocks.first.segment;
        if flow != self.end.flow || self.end.frontier.skip(blocks).is_none() {
            return;
        }
        if self.rest_skipped(segment, 0) {
            self.set_whole(segment);
        } else {
            self.end_round(now, segment);
        }
    }

    fn poll_transmit(&mut self, now: Time, next: PacketNumber, max: usize, out: &mut Vec<Block>) {
        if self.end.is_at_rest() {
            return;
        }
        let trained = self.controller.train(now, next);
        let room = trained.max(self.end.pacer.allowance(now)).min(until_train(next));
        let mut room = room.min(max as u64) as u32;
        let mut number = next.0;
        while room > 0 {
            let Some((run, first_time)) = self.next_run(now, room) else {
                self.end.pacer.idle(now);
                break;
            };
            let count = run.blocks.len() as u64;
            number += count;
            room -= count as u32;
            self.send_run(now, &run, first_time, number - 1, out);
            self.end_round(now, run.segment);
        }
        self.end.sent(now, next, number - next.0);
        if number > next.0 {
            self.controller.on_sent(now, next, number - next.0);
        }
        self.end.pacer.set_rate(now, self.controller.rate());
    }

    fn poll_control(&mut self, _: Time) -> Option<Outgoing> {
        self.end.poll_control()
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.end.poll_event()
    }

    fn next_wakeup(&self) -> Wake {
        let wake = self.end.next_wakeup(self.has_work());
        match self.repeats.first() {
            Some(&(again, _)) if !self.end.is_at_rest() => {
                wake.earlier(Wake::At(again, Why::Repeat))
            }
            _ => wake,
        }
    }

    fn is_finished(&self) -> bool {
        self.end.is_finished()
    }

    fn is_blocked_by_grant(&self) -> bool {
        !self.is_finished() && self.repairing.is_empty() && self.end.frontier.is_out_of_grant()
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
