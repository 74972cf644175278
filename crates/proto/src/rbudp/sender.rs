//! RBUDP's sending end: which block is next, how fast, and when to send DONE (the message at the
//! end of a round).

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};

use super::TAIL_COPIES;
use super::segments::{Next, Segment, TailCopies};
use crate::coded;
use crate::endpoint::{BlockRange, Carrier, Event, PacketNumber, Setup, Wake, Why};
use crate::ends::{Run, SendingEnd, SendingFlow};
use crate::law::Found;
use crate::layout::Block;
use crate::pulse::until_train;
use crate::rate::{RateController, controller};
use crate::receipt::Receipt;
use crate::time::{Span, Time};
use crate::units::{Bytes, LossRatio};
use crate::wire::{Control, Done, Pulse, Report};

/// Longest wait before DONE is repeated; if two timeouts are longer, they are the longest wait.
const MAX_REPEAT: Span = Span::from_secs(2);
/// Limit on the extra copies in small last rounds: one copy for this many blocks of the object.
const COPY_SHARE: u64 = 256;
/// Minimum loss ratio assumed when computing coded symbols ([`crate::coded`]) for a round with
/// repairs, because the round before it had losses.
const LEAST_LOSS: f64 = 0.000_5;
/// A round of first sends gets symbols only after reports have covered this many datagrams: with
/// fewer datagrams, the loss ratio is too uncertain. No minimum applies if an earlier flow's loss
/// ratio is remembered.
const KNOWN: u64 = 500;
/// Datagrams that a segment may send in addition to its expected losses, as a share of its blocks.
/// A measured loss ratio may be too high after few reports, so `SPARE` is smaller than
/// `SPARE_REMEMBERED`, which applies to a remembered loss ratio. Segments that have no symbols
/// leave their share to the last ones: see [`spare`].
const SPARE: f64 = 0.007_5;
const SPARE_REMEMBERED: f64 = 0.008;
/// At this loss ratio and above, no symbols are sent.
const MOST_LOSS: f64 = 0.5;

/// RBUDP's sender.
pub struct RbudpSender {
    end: SendingEnd,
    controller: Box<dyn RateController>,
    /// Segments that have begun and are not known to be complete.
    open: BTreeMap<u32, Segment>,
    /// The open segments that have repairs to send.
    repairing: BTreeSet<u32>,
    /// When DONE is repeated, and for which segment.
    repeats: BTreeSet<(Time, u32)>,
    copies: TailCopies,
    /// Whether last rounds get coded symbols instead of copies.
    codes: bool,
    /// By how many datagrams segments with symbols exceeded their expected losses.
    beyond: u64,
    datagram: Bytes,
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
            copies: TailCopies {
                times: setup.settings.count(&TAIL_COPIES) as u32,
                budget: setup.layout.blocks() / COPY_SHARE,
            },
            codes: false,
            beyond: 0,
            datagram: setup.datagram(),
        }
    }

    fn base(&self, segment: u32) -> u64 {
        self.end.layout.number(Block { segment, index: 0 })
    }

    /// The segment whose blocks are being sent for the first time.
    fn current(&self) -> Option<u32> {
        Some(self.end.layout.block(self.end.frontier.peek()?)?.segment)
    }

    /// Checks, after a run, a report or skipped blocks, whether the segment's round is over.
    fn end_round(&mut self, now: Time, segment: u32) {
        let all_sent = self.end.frontier.peek().is_none();
        let Some(open) = self.open.get_mut(&segment) else { return };
        if all_sent && !self.codes && !open.has_repairs() {
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

    /// Whether repairs of a round that ends now would be sent after all first sends. A loss among
    /// these repairs would then cost another round trip.
    fn is_tail(&self) -> bool {
        let frontier = &self.end.frontier;
        let left = self.end.layout.blocks().saturating_sub(frontier.passed());
        // The receiver's grace (the wait for late data) is at least a quarter of a round trip.
        let answer = self.end.rtt.smoothed() + self.end.rtt.smoothed() / 4;
        let rest = Bytes::new(self.datagram.get().saturating_mul(left));
        frontier.peek().is_none() || rest / self.controller.rate() < answer
    }

    /// Adds coded symbols to a segment's round before its DONE, if it is one of the last rounds and
    /// losses are expected.
    fn code_round(&mut self, segment: u32) {
        if !self.codes || !self.is_tail() {
            return;
        }
        let Some(open) = self.open.get_mut(&segment) else { return };
        let (least_known, least) =
            if open.is_first_round() { (KNOWN, 0.0) } else { (1, LEAST_LOSS) };
        let known = self.end.loss(least_known).unwrap_or_default();
        let ratio = known.ratio.get().max(least);
        let share = if known.is_remembered { SPARE_REMEMBERED } else { SPARE };
        let left = share * self.end.accounting.first as f64 - self.beyond as f64;
        let is_last = self.end.frontier.peek().is_none();
        let spare = spare(share * f64::from(open.blocks), left, is_last);
        if let Some(loss) = LossRatio::new(ratio).filter(|_| ratio < MOST_LOSS) {
            let there = self.end.frontier.there();
            self.beyond += open.code_round(&self.end.layout, segment, there, loss, spare);
        }
    }

    /// Takes the segment's next step: queues coded symbols, sends DONE or finishes the segment.
    fn settle(&mut self, now: Time, segment: u32) {
        let blocked = self.current() == Some(segment) && self.end.frontier.is_out_of_grant();
        let sent_to = self.end.frontier.sent_to(segment);
        let Some(open) = self.open.get(&segment) else { return };
        match open.next(sent_to, blocked, |from| self.end.is_there(segment, from)) {
            Next::Wait => {}
            Next::Whole => self.set_whole(segment),
            Next::Ask => {
                if sent_to == open.blocks {
                    self.code_round(segment);
                }
                if self.open.get(&segment).is_some_and(Segment::has_repairs) {
                    self.repairing.insert(segment);
                } else {
                    self.ask(now, segment, sent_to);
                }
            }
        }
    }

    fn ask(&mut self, now: Time, segment: u32, sent_to: u32) {
        // The wait includes half a round trip for the receiver's grace and processing time.
        let wait = self.end.rtt.timeout() + self.end.rtt.smoothed() / 2;
        let Some(open) = self.open.get_mut(&segment) else { return };
        if let Some(pending_done) = open.pending_done() {
            self.repeats.remove(&(pending_done.again, segment));
        }
        let blocks = open.round_len();
        let done = open.ask(now, segment, sent_to, wait);
        self.repeats.insert((now + wait, segment));
        self.end.push_event(Event::Round { segment, round: done.round, blocks });
        self.say(done);
    }

    fn say(&mut self, done: Done) {
        self.end.say(Carrier::Reliable, Control::Done(done));
    }

    fn set_whole(&mut self, segment: u32) {
        self.repairing.remove(&segment);
        if let Some(open) = self.open.remove(&segment)
            && let Some(pending_done) = open.pending_done()
        {
            self.repeats.remove(&(pending_done.again, segment));
        }
        self.end.set_whole(segment);
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
        let before = open.pending_done().map(|pending_done| pending_done.again);
        open.on_report(now, report);
        let after = open.pending_done().map(|pending_done| pending_done.again);
        if open.has_repairs() {
            self.repairing.insert(segment);
        }
        if let Some(again) = before.filter(|_| before != after) {
            self.repeats.remove(&(again, segment));
            self.repeats.extend(after.map(|again| (again, segment)));
        }
        self.end_round(now, segment);
    }

    fn follow_rate(&mut self, now: Time) {
        self.end.pace(now, self.controller.rate(), self.controller.burst());
    }

    fn on_pulse(&mut self, now: Time, pulse: &Pulse) {
        if let Some(feedback) = self.end.on_pulse(now, pulse) {
            self.controller.on_feedback(now, &feedback);
            self.follow_rate(now);
        }
    }
}

/// Returns how many datagrams a segment may send in addition to its expected losses: its own share
/// `own`, or more if the segments before it have left more. Of these `left` datagrams a segment
/// takes half, because other segments follow; once all blocks were sent, it takes all.
fn spare(own: f64, left: f64, is_last: bool) -> f64 {
    own.max(if is_last { left } else { left / 2.0 })
}

impl SendingFlow for RbudpSender {
    fn end(&self) -> &SendingEnd {
        &self.end
    }

    fn end_mut(&mut self) -> &mut SendingEnd {
        &mut self.end
    }

    fn hear(&mut self, now: Time, control: &Control) -> bool {
        match control {
            Control::Report(report) => self.on_report(now, report),
            Control::Pulse(pulse) => self.on_pulse(now, pulse),
            _ => return false,
        }
        true
    }

    fn expire(&mut self, now: Time) {
        let most = MAX_REPEAT.max(self.end.rtt.timeout() * 2);
        while let Some(&(again, segment)) = self.repeats.first()
            && again <= now
        {
            self.repeats.pop_first();
            let Some(open) = self.open.get_mut(&segment) else { continue };
            let done = open.repeat(now, most);
            self.repeats
                .extend(open.pending_done().map(|pending_done| (pending_done.again, segment)));
            if let Some(done) = done {
                self.say(done);
            }
        }
    }

    fn leave_out(&mut self, now: Time, blocks: BlockRange) {
        let segment = blocks.first.segment;
        if self.end.frontier.skip(blocks).is_none() {
            return;
        }
        if self.end.is_there(segment, 0) {
            self.set_whole(segment);
        } else {
            self.end_round(now, segment);
        }
    }

    fn use_receipt(&mut self, now: Time, receipt: &Receipt) {
        self.controller.on_receipt(receipt);
        self.follow_rate(now);
    }

    fn use_coded(&mut self) {
        // A symbol of a single block would be a copy.
        let shape = coded::shape(&self.end.layout, 0);
        self.codes = self.copies.times > 1 && shape.is_some_and(|shape| shape.originals() > 1);
    }

    fn codes(&self) -> bool {
        self.codes
    }

    fn room(&mut self, now: Time, next: PacketNumber) -> u64 {
        let trained = self.controller.train(now, next);
        trained.max(self.end.pacer.allowance(now)).min(until_train(next))
    }

    /// Repairs first, earliest segment first; then first sends.
    fn next_run(&mut self, now: Time, _: u64, max: u32) -> Option<(Run, bool)> {
        while let Some(&segment) = self.repairing.first() {
            let base = self.base(segment);
            if let Some(open) = self.open.get_mut(&segment)
                && let Some(blocks) = open
                    .next_repair(max, base, self.end.frontier.there())
                    .or_else(|| open.next_symbols(max))
            {
                return Some((Run { segment, blocks }, false));
            }
            // The receiver got the remaining blocks from another source meanwhile.
            self.repairing.remove(&segment);
            self.settle(now, segment);
        }
        Some((self.end.frontier.take(max)?, true))
    }

    fn on_run(&mut self, now: Time, run: &Run, first_time: bool, last: u64) {
        let (layout, segment) = (&self.end.layout, run.segment);
        let (blocks, count) = (layout.blocks_in(segment), run.blocks.end - run.blocks.start);
        let open = self.open.entry(segment).or_insert_with(|| Segment::new(blocks));
        if run.blocks.start >= blocks {
            open.on_symbols(count, PacketNumber(last));
            self.end.accounting.coded += u64::from(count);
        } else {
            open.on_sent(&run.blocks, PacketNumber(last), first_time);
            if !first_time && self.codes {
                open.note_repeated(layout, segment, &run.blocks);
            } else if !first_time {
                open.list_repair(run.blocks.clone(), self.copies);
            }
        }
        self.end.accounting.rounds = self.end.accounting.rounds.max(open.rounds);
        self.end_round(now, segment);
    }

    fn on_sent(&mut self, now: Time, next: PacketNumber, count: u64) {
        if count > 0 {
            self.controller.on_sent(now, next, count);
        }
        self.follow_rate(now);
    }

    fn has_work(&self) -> bool {
        !self.repairing.is_empty() || self.end.frontier.is_open()
    }

    fn has_only_first(&self) -> bool {
        self.repairing.is_empty()
    }

    fn found_out(&self) -> Found {
        self.controller.found()
    }

    fn next_due(&self) -> Wake {
        let repeat = |&(again, _): &(Time, u32)| Wake::At(again, Why::Repeat);
        self.repeats.first().map_or(Wake::OnInput, repeat)
    }
}
