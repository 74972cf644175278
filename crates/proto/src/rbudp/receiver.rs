//! The receiving end: keeps tallies (bitmaps) of arrived blocks, answers DONE (the sender's message
//! at the end of a round) and sends pulses (periodic reports).

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use super::reports::{Segment, complete_report};
use crate::coded::{Symbol, Waiting};
use crate::endpoint::{Arrival, BlockRange, Carrier, Event, Setup, Wake, Why};
use crate::ends::{Flows, ReceivingEnd, ReceivingFlow, Tallies, grace};
use crate::layout::Block;
use crate::ranges::RangeSet;
use crate::time::{Span, Time};
use crate::wire::{Control, Done, Report};

/// Minimum of `Flow::recent`, which otherwise is one round trip.
const MIN_RECENT: Span = Span::from_millis(10);

/// RBUDP's receiver for any number of flows.
pub type RbudpReceiver = Flows<Flow>;

/// One flow of the receiver.
pub struct Flow {
    end: ReceivingEnd,
    /// How long to wait for data that DONE overtook.
    grace: Span,
    /// A DONE that arrives again within this time after its answer is a copy.
    recent: Span,
    tallies: Tallies,
    /// Segments that have begun and are incomplete.
    open: BTreeMap<u32, Segment>,
    /// The open segments whose DONE waits for overtaken data, or is being answered.
    answering: BTreeSet<u32>,
    /// Coded symbols ([`crate::coded`]) of incomplete chunks.
    symbols: Waiting,
    /// Segments to report as complete. With each, the round of the DONE that came after the segment
    /// was complete, or 0 if the segment has just become complete.
    completed: VecDeque<(u32, u32)>,
}

impl Flow {
    fn set_whole(&mut self, segment: u32) {
        if self.open.remove(&segment).is_some() {
            self.completed.push_back((segment, 0));
        }
        self.answering.remove(&segment);
        self.end.push_event(Event::SegmentDone { segment });
        if self.tallies.is_complete() {
            self.end.finish();
        }
    }

    fn mark_run(&mut self, segment: u32, run: &[Arrival]) -> u64 {
        let marked = self.tallies.mark(segment, run);
        if marked.is_last || self.tallies.tally(segment).is_some() {
            self.open.entry(segment).or_default();
        }
        if marked.is_last {
            self.set_whole(segment);
        }
        marked.new
    }

    fn restore(&mut self, arrivals: &[Arrival]) {
        let layout = self.end.layout;
        let mut touched = BTreeSet::new();
        for Arrival { block, .. } in arrivals {
            if let Some(symbol) = Symbol::of(&layout, *block) {
                self.symbols.keep(symbol);
                touched.insert(symbol.chunk);
            } else if !self.symbols.is_empty() {
                touched.insert(layout.chunk_of(*block));
            }
        }
        touched.into_iter().for_each(|chunk| self.restore_chunk(chunk));
    }

    fn restore_chunk(&mut self, chunk: u64) {
        let (first, count) = self.end.layout.blocks_of_chunk(chunk);
        let blocks = first.index..first.index + count;
        let missing = self.tallies.missing_in(first.segment, blocks.clone());
        if missing > self.symbols.count(chunk) {
            return;
        }
        self.symbols.drop_chunk(chunk);
        if missing == 0 {
            return;
        }
        self.end.restored(chunk, missing.into());
        if self.tallies.fill(first.segment, blocks) {
            self.set_whole(first.segment);
        }
    }

    /// Returns the blocks of a segment that no report needs to name, because symbols replace them.
    /// In a chunk with n symbols, these are the last n missing blocks.
    fn spared(&self, segment: u32) -> RangeSet {
        let (layout, mut spared) = (&self.end.layout, RangeSet::new());
        let Some(tally) = self.tallies.tally(segment) else { return spared };
        let chunk = |index| layout.chunk_of(Block { segment, index });
        let chunks = chunk(0)..chunk(layout.blocks_in(segment).saturating_sub(1)) + 1;
        for chunk in self.symbols.chunks(chunks) {
            let (first, count) = layout.blocks_of_chunk(chunk);
            let blocks = first.index..first.index + count;
            let mut left =
                tally.missing_in(blocks.clone()).saturating_sub(self.symbols.count(chunk));
            for run in tally.missing(blocks.clone()) {
                let needed = left.min(run.end - run.start);
                left -= needed;
                spared.insert(u64::from(run.start + needed)..run.end.into());
            }
        }
        spared
    }

    fn begin_reports(&mut self, now: Time) {
        for segment in &self.answering {
            if let Some(open) = self.open.get_mut(segment) {
                open.begin(now, self.end.accounting.highest, self.end.risen, self.grace);
            }
        }
    }

    fn on_done(&mut self, now: Time, done: &Done) {
        let segment = done.segment;
        let blocks = self.end.layout.blocks_in(segment);
        if done.sent_to == 0 || done.sent_to > blocks {
            self.end.accounting.refused += 1;
            return;
        }
        if !self.tallies.is_whole(segment) {
            let open = self.open.entry(segment).or_default();
            open.on_done(now, done, self.grace, self.recent);
            if open.is_waiting() {
                self.answering.insert(segment);
            }
            self.begin_reports(now);
        } else if self.completed.iter().all(|(of, _)| *of != segment) {
            self.completed.push_back((segment, done.round));
        }
    }

    /// How many of these blocks are missing and counted as lost.
    fn lost_in(&self, blocks: &BlockRange) -> u64 {
        let segment = blocks.first.segment;
        let Some(open) = self.open.get(&segment) else { return 0 };
        let indices = blocks.indices(&self.end.layout);
        self.tallies.missing_in(segment, indices.start..indices.end.min(open.lost_to())).into()
    }

    fn take_report(&mut self, now: Time) -> Option<Report> {
        if let Some((segment, round)) = self.completed.pop_front() {
            return Some(complete_report(segment, round, self.end.layout.blocks_in(segment)));
        }
        let reporting =
            |segment: &&u32| self.open.get(*segment).is_some_and(|open| open.is_reporting());
        let segment = *self.answering.iter().find(reporting)?;
        let spared = self.spared(segment);
        let open = self.open.get_mut(&segment)?;
        let slice = open.next_slice(now, segment, self.tallies.open(segment)?, &spared)?;
        if !open.is_reporting() {
            self.answering.remove(&segment);
        }
        self.end.accounting.blocks_lost += u64::from(slice.newly_lost);
        self.end.accounting.reported_lost += u64::from(slice.report.count());
        if let Some(blocks) = slice.round_left {
            let round = slice.report.round();
            self.end.push_event(Event::Round { segment, round, blocks });
        }
        Some(slice.report)
    }
}

impl ReceivingFlow for Flow {
    fn new(now: Time, setup: &Setup) -> Flow {
        Flow {
            end: ReceivingEnd::new(now, setup),
            grace: grace(setup.rtt),
            recent: setup.rtt.max(MIN_RECENT),
            tallies: Tallies::new(setup.layout),
            open: BTreeMap::new(),
            answering: BTreeSet::new(),
            symbols: Waiting::default(),
            completed: VecDeque::new(),
        }
    }

    fn end(&self) -> &ReceivingEnd {
        &self.end
    }

    fn end_mut(&mut self) -> &mut ReceivingEnd {
        &mut self.end
    }

    fn on_datagrams(&mut self, now: Time, arrivals: &[Arrival]) {
        let received = self.end.on_coded_arrivals(now, arrivals);
        let segment = |arrival: &Arrival| arrival.block.segment;
        let runs = arrivals.chunk_by(|a, b| segment(a) == segment(b));
        let new = runs.map(|run| self.mark_run(segment(&run[0]), run)).sum();
        self.end.count(received, new);
        self.restore(arrivals);
        self.begin_reports(now);
    }

    fn on_control(&mut self, now: Time, control: &Control) {
        match control {
            Control::Done(done) => self.on_done(now, done),
            _ => self.end.accounting.refused += 1,
        }
    }

    fn on_timeout(&mut self, now: Time) {
        self.begin_reports(now);
    }

    fn skip(&mut self, _: Time, blocks: BlockRange) {
        self.end.forget_lost(self.lost_in(&blocks));
        if self.tallies.skip(blocks) {
            self.set_whole(blocks.first.segment);
        }
        let layout = self.end.layout;
        let chunk = |index| layout.chunk_of(Block { index, ..blocks.first });
        let indices = blocks.indices(&layout);
        if !indices.is_empty() {
            let chunks = chunk(indices.start)..chunk(indices.end - 1) + 1;
            let chunks: Vec<u64> = self.symbols.chunks(chunks).collect();
            chunks.into_iter().for_each(|chunk| self.restore_chunk(chunk));
        }
    }

    fn poll_report(&mut self, now: Time) -> Option<(Carrier, Control)> {
        let report = self.take_report(now)?;
        Some((Carrier::Reliable, Control::Report(report)))
    }

    fn next_report(&self) -> Wake {
        let graces = self.answering.iter().filter_map(|segment| self.open.get(segment)?.deadline());
        graces.min().map_or(Wake::OnInput, |at| Wake::At(at, Why::Report))
    }
}
