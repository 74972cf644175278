//! The sending end: which block next, how fast, and when to ask.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::ops::Range;

use super::segments::{Next, Segment, TailCopies};
use crate::accounting::SenderAccounting;
use crate::endpoint::{
    BlockRange, Carrier, Event, FlowId, Outgoing, PacketNumber, Sender, Setup, Wake, Why,
};
use crate::layout::{Block, Layout};
use crate::pace::Pacer;
use crate::pulse::until_train;
use crate::ranges::RangeSet;
use crate::rate::{Feedback, RateController, controller, datagram};
use crate::rtt::Rtt;
use crate::sent::SentLog;
use crate::time::{Span, Time};
use crate::units::{Bytes, Rate};
use crate::wire::{Control, Done, Pulse, Report};

/// The circuit breaker of RFC 8085, section 3.1.10: silence for the longer of this and
/// [`SILENT_RTTS`] round trips stops the flow.
const SILENT: Span = Span::from_secs(3);
const SILENT_RTTS: u64 = 8;
/// A question is asked again after this at the latest (unless the path is longer).
const MAX_REPEAT: Span = Span::from_secs(2);
/// Extra copies are at most one in so many of the object's blocks.
const COPY_SHARE: u64 = 256;

/// RBUDP's sender.
pub struct RbudpSender {
    flow: FlowId,
    layout: Layout,
    overhead: Bytes,
    controller: Box<dyn RateController>,
    pacer: Pacer,
    rtt: Rtt,
    sent: SentLog,
    /// One more than the highest packet number that was used: none higher can have come.
    numbered: u64,
    /// Segments begun and not known to be whole.
    open: BTreeMap<u32, Segment>,
    /// Those of them that have repairs to send.
    repairing: BTreeSet<u32>,
    /// When questions are asked again.
    repeats: BTreeSet<(Time, u32)>,
    /// The segment whose first blocks are being sent.
    frontier: u32,
    /// Segments known to be whole.
    whole: RangeSet,
    /// Blocks, counted through the object, that the receiver has from elsewhere.
    skipped: RangeSet,
    /// Bytes of blocks sent for the first time and not skipped since, and how many may be.
    first_sent: Bytes,
    grant: Bytes,
    copies: TailCopies,
    /// When something was last heard; nothing before the first datagram left.
    heard: Option<Time>,
    silent: bool,
    last_pulse: u64,
    outgoing: VecDeque<Outgoing>,
    events: VecDeque<Event>,
    accounting: SenderAccounting,
}

/// Blocks to send next.
struct Run {
    segment: u32,
    blocks: Range<u32>,
    first_time: bool,
}

impl RbudpSender {
    /// A sender at the start of a flow.
    pub fn new(setup: &Setup) -> RbudpSender {
        let controller = controller(setup);
        let mut sender = RbudpSender {
            flow: setup.flow,
            layout: setup.layout,
            overhead: setup.overhead,
            pacer: Pacer::new(controller.rate(), datagram(setup)),
            controller,
            rtt: Rtt::new(setup.rtt),
            sent: SentLog::default(),
            numbered: 0,
            open: BTreeMap::new(),
            repairing: BTreeSet::new(),
            repeats: BTreeSet::new(),
            frontier: 0,
            whole: RangeSet::new(),
            skipped: RangeSet::new(),
            first_sent: Bytes::ZERO,
            grant: setup.grant,
            copies: TailCopies {
                times: setup.tail_copies.max(1),
                budget: setup.layout.blocks() / COPY_SHARE,
            },
            heard: None,
            silent: false,
            last_pulse: 0,
            outgoing: VecDeque::new(),
            events: VecDeque::new(),
            accounting: SenderAccounting::default(),
        };
        if setup.layout.segments() == 0 {
            sender.events.push_back(Event::Finished);
        }
        sender
    }

    /// The number of a segment's first block.
    fn base(&self, segment: u32) -> u64 {
        self.layout.number(Block { segment, index: 0 })
    }

    fn is_whole(&self, segment: u32) -> bool {
        self.whole.contains(u64::from(segment))
    }

    /// Repairs first, earliest segment first; then first blocks.
    fn next_run(&mut self, now: Time, max: u32) -> Option<Run> {
        while let Some(&segment) = self.repairing.first() {
            let base = self.base(segment);
            if let Some(open) = self.open.get_mut(&segment)
                && let Some(blocks) = open.next_repair(max, base, &self.skipped)
            {
                return Some(Run { segment, blocks, first_time: false });
            }
            // What was left has been skipped meanwhile.
            self.repairing.remove(&segment);
            self.settle(now, segment);
        }
        self.next_first(max)
    }

    /// The next first blocks that the grant allows.
    fn next_first(&mut self, max: u32) -> Option<Run> {
        let gap = self.seek_first()?;
        let segment = self.frontier;
        let mut end = gap.start;
        let mut left = self.grant.saturating_sub(self.first_sent).get();
        while end < gap.end && end - gap.start < max {
            let len = u64::from(self.layout.extent(Block { segment, index: end }).len);
            if len > left {
                break;
            }
            left -= len;
            end += 1;
        }
        let blocks = gap.start..end;
        (!blocks.is_empty()).then_some(Run { segment, blocks, first_time: true })
    }

    /// Moves the frontier to the next block that was never sent and is not skipped; gives the run
    /// of such blocks there, or nothing if all first blocks have been sent.
    fn seek_first(&mut self) -> Option<Range<u32>> {
        while self.frontier < self.layout.segments() {
            let segment = self.frontier;
            let blocks = self.layout.blocks_in(segment);
            let cursor = self.open.get(&segment).map_or(0, |open| open.cursor);
            if !self.is_whole(segment)
                && let Some(gap) = self.unskipped(segment, cursor, blocks)
            {
                return Some(gap);
            }
            if let Some(open) = self.open.get_mut(&segment) {
                open.cursor = blocks;
            } else if !self.is_whole(segment) {
                self.set_whole(segment);
            }
            self.frontier += 1;
        }
        None
    }

    /// The first run of unskipped blocks of a segment from `from` on, before `end`.
    fn unskipped(&self, segment: u32, from: u32, end: u32) -> Option<Range<u32>> {
        let base = self.base(segment);
        let gap = self.skipped.first_gap(base + u64::from(from)..base + u64::from(end))?;
        Some((gap.start - base) as u32..(gap.end - base) as u32)
    }

    /// Takes blocks that are about to be skipped off the grant's count, if they were sent: the
    /// receiver does not drain them. Those of a segment that is whole it has, and drains.
    fn credit(&mut self, segment: u32, blocks: Range<u32>) {
        let Some(open) = self.open.get(&segment) else { return };
        let end = blocks.end.min(open.cursor);
        let (mut at, mut bytes) = (blocks.start, 0);
        while at < end
            && let Some(gap) = self.unskipped(segment, at, end)
        {
            at = gap.end;
            let len = |index| u64::from(self.layout.extent(Block { segment, index }).len);
            bytes += gap.map(len).sum::<u64>();
        }
        self.first_sent = self.first_sent.saturating_sub(Bytes::new(bytes));
    }

    fn rest_skipped(&self, segment: u32, from: u32) -> bool {
        self.unskipped(segment, from, self.layout.blocks_in(segment)).is_none()
    }

    /// Accounts for a run that leaves with numbers from `number` on; gives its bytes.
    fn send_run(&mut self, run: &Run, number: u64, out: &mut Vec<Block>) -> Bytes {
        let segment = run.segment;
        let count = run.blocks.end - run.blocks.start;
        let mut bytes = 0;
        for index in run.blocks.clone() {
            let block = Block { segment, index };
            bytes += u64::from(self.layout.extent(block).len);
            out.push(block);
        }
        let blocks = self.layout.blocks_in(segment);
        let open = self.open.entry(segment).or_insert_with(|| Segment::new(blocks));
        open.on_sent(&run.blocks, PacketNumber(number + u64::from(count) - 1), run.first_time);
        self.accounting.sent += u64::from(count);
        if run.first_time {
            self.accounting.first += u64::from(count);
            self.first_sent += Bytes::new(bytes);
        } else {
            self.accounting.retransmitted += u64::from(count);
            open.list_repair(run.blocks.clone(), self.copies);
        }
        self.accounting.rounds = self.accounting.rounds.max(open.rounds);
        Bytes::new(bytes + u64::from(count) * self.overhead.get())
    }

    /// A run of a segment has left: is its round over?
    fn end_round(&mut self, now: Time, segment: u32) {
        let all_sent = self.seek_first().is_none();
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
        let blocked = segment == self.frontier && self.is_out_of_grant();
        let Some(open) = self.open.get(&segment) else { return };
        match open.next(blocked, |from| self.rest_skipped(segment, from)) {
            Next::Wait => {}
            Next::Whole => self.set_whole(segment),
            Next::Ask => self.ask(now, segment),
        }
    }

    fn ask(&mut self, now: Time, segment: u32) {
        // The receiver's grace and its way to the report are not in the round trip.
        let wait = self.rtt.timeout() + self.rtt.smoothed() / 2;
        let Some(open) = self.open.get_mut(&segment) else { return };
        if let Some(asked) = open.asked() {
            self.repeats.remove(&(asked.again, segment));
        }
        let blocks = open.round_len();
        let done = open.ask(now, segment, wait);
        self.repeats.insert((now + wait, segment));
        self.events.push_back(Event::Round { segment, round: done.round, blocks });
        self.say(done);
    }

    fn say(&mut self, done: Done) {
        let control = Control::Done(done);
        self.outgoing.push_back(Outgoing { flow: self.flow, carrier: Carrier::Reliable, control });
    }

    fn set_whole(&mut self, segment: u32) {
        if self.whole.insert(u64::from(segment)..u64::from(segment) + 1) == 0 {
            return;
        }
        self.repairing.remove(&segment);
        if let Some(open) = self.open.remove(&segment)
            && let Some(asked) = open.asked()
        {
            self.repeats.remove(&(asked.again, segment));
        }
        self.events.push_back(Event::SegmentDone { segment });
        if self.is_finished() {
            self.events.push_back(Event::Finished);
        }
    }

    /// Whether the next first block needs a higher grant.
    fn is_out_of_grant(&self) -> bool {
        let segment = self.frontier;
        let cursor = self.open.get(&segment).map_or(0, |open| open.cursor);
        let gap = self.unskipped(segment, cursor, self.layout.blocks_in(segment));
        gap.is_some_and(|gap| {
            let len = self.layout.extent(Block { segment, index: gap.start }).len;
            self.first_sent + Bytes::new(u64::from(len)) > self.grant
        })
    }

    fn has_work(&self) -> bool {
        !self.repairing.is_empty()
            || (self.frontier < self.layout.segments() && !self.is_out_of_grant())
    }

    fn on_report(&mut self, now: Time, report: &Report) {
        let segment = report.segment();
        let (slice, blocks) = (report.slice(), self.layout.blocks_in(segment));
        if slice.end > blocks {
            self.accounting.refused += 1;
            return;
        }
        self.accounting.reported_lost += u64::from(report.count());
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
        if pulse.highest > self.numbered {
            self.accounting.refused += 1;
            return;
        }
        self.grant = self.grant.max(pulse.grant);
        if pulse.sequence <= self.last_pulse {
            return;
        }
        self.last_pulse = pulse.sequence;
        let sample = pulse.echo.and_then(|echo| self.sent.sample(now, echo));
        if let Some(sample) = sample {
            self.rtt.sample(sample);
        }
        let (min_rtt, rtt) = (self.rtt.min(), self.rtt.smoothed());
        self.controller.on_feedback(now, &Feedback { pulse, min_rtt, rtt, sample });
        self.pacer.set_rate(now, self.controller.rate());
    }

    fn silence(&self) -> Span {
        SILENT.max(self.rtt.smoothed() * SILENT_RTTS)
    }

    fn breaker(&self) -> Option<Time> {
        self.heard.filter(|_| !self.silent).map(|heard| heard + self.silence())
    }
}

impl Sender for RbudpSender {
    fn on_control(&mut self, now: Time, flow: FlowId, control: &Control) {
        if flow != self.flow {
            return;
        }
        if core::mem::take(&mut self.silent) && !self.is_finished() {
            self.events.push_back(Event::Resumed);
        }
        self.heard = self.heard.map(|_| now);
        match control {
            Control::Report(report) => self.on_report(now, report),
            Control::Pulse(pulse) => self.on_pulse(now, pulse),
            Control::Done(_) => self.accounting.refused += 1,
        }
    }

    fn on_timeout(&mut self, now: Time) {
        if self.is_finished() || self.silent {
            return;
        }
        if self.breaker().is_some_and(|at| at <= now) {
            self.silent = true;
            let heard = self.heard.unwrap_or(now);
            self.events.push_back(Event::Silent(now.since(heard)));
            return;
        }
        let most = MAX_REPEAT.max(self.rtt.timeout() * 2);
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
        let BlockRange { first, count } = blocks;
        let end = first.index.saturating_add(count).min(self.layout.blocks_in(first.segment));
        if flow != self.flow || first.index >= end {
            return;
        }
        self.credit(first.segment, first.index..end);
        let base = self.base(first.segment);
        self.skipped.insert(base + u64::from(first.index)..base + u64::from(end));
        if self.rest_skipped(first.segment, 0) {
            self.set_whole(first.segment);
        } else {
            self.end_round(now, first.segment);
        }
    }

    fn poll_transmit(&mut self, now: Time, next: PacketNumber, max: usize, out: &mut Vec<Block>) {
        if self.silent || self.is_finished() {
            return;
        }
        let trained = self.controller.train(now, next);
        let room = trained.max(self.pacer.allowance(now)).min(until_train(next));
        let mut room = room.min(max as u64) as u32;
        let mut number = next.0;
        while room > 0 {
            let Some(run) = self.next_run(now, room) else {
                self.pacer.idle(now);
                break;
            };
            let bytes = self.send_run(&run, number, out);
            let count = run.blocks.end - run.blocks.start;
            number += u64::from(count);
            room -= count;
            self.pacer.spend(now, bytes);
            self.end_round(now, run.segment);
        }
        if number > next.0 {
            self.heard.get_or_insert(now);
            self.numbered = number;
            self.sent.record(now, next, number - next.0, self.rtt.min());
            self.controller.on_sent(now, next, number - next.0);
        }
        self.pacer.set_rate(now, self.controller.rate());
    }

    fn poll_control(&mut self, _: Time) -> Option<Outgoing> {
        self.outgoing.pop_front()
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn next_wakeup(&self) -> Wake {
        if self.is_finished() || self.silent {
            return Wake::OnInput;
        }
        let mut wake = Wake::OnInput;
        if self.has_work() {
            wake = wake.earlier(Wake::At(self.pacer.next(), Why::Pacing));
        }
        if let Some(&(again, _)) = self.repeats.first() {
            wake = wake.earlier(Wake::At(again, Why::Repeat));
        }
        if let Some(at) = self.breaker() {
            wake = wake.earlier(Wake::At(at, Why::Breaker));
        }
        wake
    }

    fn is_finished(&self) -> bool {
        self.whole.count() == u64::from(self.layout.segments())
    }

    fn is_blocked_by_grant(&self) -> bool {
        !self.is_finished() && self.repairing.is_empty() && self.is_out_of_grant()
    }

    fn rate(&self) -> Rate {
        self.pacer.rate()
    }

    fn rtt(&self) -> Span {
        self.rtt.smoothed()
    }

    fn accounting(&self) -> &SenderAccounting {
        &self.accounting
    }
}
