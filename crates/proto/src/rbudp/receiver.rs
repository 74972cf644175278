//! The receiving end: keeps the tallies, answers DONE, and tells how the flows fare.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

use super::reports::{Segment, whole};
use crate::endpoint::{Arrival, BlockRange, Carrier, Event, Setup, Wake, Why};
use crate::ends::{Flows, ReceivingEnd, ReceivingFlow};
use crate::layout::Block;
use crate::ranges::RangeSet;
use crate::tally::Tally;
use crate::time::{Span, Time};
use crate::wire::{Control, Done, Report};

/// The shortest grace for data that DONE has overtaken.
const MIN_GRACE: Span = Span::from_millis(1);
/// A question that comes again sooner than this after its answer is a copy.
const MIN_RECENT: Span = Span::from_millis(10);

/// RBUDP's receiver, of any number of flows.
pub type RbudpReceiver = Flows<Flow>;

/// One flow of it.
pub struct Flow {
    end: ReceivingEnd,
    /// How long to wait for what DONE has overtaken, and for how long a question is a copy.
    grace: Span,
    recent: Span,
    /// Segments begun and not whole.
    open: BTreeMap<u32, Segment>,
    /// Those of them with a question that waits, or an answer under way.
    asked: BTreeSet<u32>,
    whole: RangeSet,
    /// Blocks that are there from elsewhere, counted through the object, until their segment
    /// begins.
    skipped: RangeSet,
    /// Segments to report as whole, with the round that asked.
    tell_whole: VecDeque<(u32, u32)>,
}

impl Flow {
    fn base(&self, segment: u32) -> u64 {
        self.end.layout.number(Block { segment, index: 0 })
    }

    /// Begins a segment, with what is there already.
    fn begin(&mut self, segment: u32) {
        if self.open.contains_key(&segment) {
            return;
        }
        let blocks = self.end.layout.blocks_in(segment);
        let base = self.base(segment);
        let mut tally = Tally::new(blocks);
        for run in self.skipped.within(base..base + u64::from(blocks)) {
            tally.mark_range((run.start - base) as u32..(run.end - base) as u32);
        }
        self.open.insert(segment, Segment::new(tally));
    }

    fn is_whole(&self, segment: u32) -> bool {
        self.whole.contains(u64::from(segment))
    }

    fn set_whole(&mut self, segment: u32) {
        let begun = self.open.remove(&segment).is_some();
        self.asked.remove(&segment);
        if self.whole.insert(u64::from(segment)..u64::from(segment) + 1) == 0 {
            return;
        }
        if begun {
            self.tell_whole.push_back((segment, 0));
        }
        self.end.tell(Event::SegmentDone { segment });
        if self.whole.count() == u64::from(self.end.layout.segments()) {
            self.end.finish();
        }
    }

    /// Marks a run of arrivals of one segment; tells how many blocks are new.
    fn mark_run(&mut self, segment: u32, run: &[Arrival]) -> u64 {
        let blocks = self.end.layout.blocks_in(segment);
        let mut known = run.iter().filter(|arrival| arrival.block.index < blocks).peekable();
        if known.peek().is_none() || self.is_whole(segment) {
            return 0;
        }
        self.begin(segment);
        let Some(open) = self.open.get_mut(&segment) else { return 0 };
        let new = known.map(|arrival| u64::from(open.tally.mark(arrival.block.index))).sum();
        if open.tally.is_whole() {
            self.set_whole(segment);
        }
        new
    }

    fn begin_reports(&mut self, now: Time) {
        for segment in &self.asked {
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
        if !self.is_whole(segment) {
            self.begin(segment);
            let Some(open) = self.open.get_mut(&segment) else { return };
            if open.tally.is_whole() {
                self.set_whole(segment);
                return;
            }
            open.on_done(now, done, self.grace, self.recent);
            if open.is_waiting() {
                self.asked.insert(segment);
            }
            self.begin_reports(now);
        } else if self.tell_whole.iter().all(|(told, _)| *told != segment) {
            self.tell_whole.push_back((segment, done.round));
        }
    }

    fn take_report(&mut self, now: Time) -> Option<Report> {
        if let Some((segment, round)) = self.tell_whole.pop_front() {
            return Some(whole(segment, round, self.end.layout.blocks_in(segment)));
        }
        let reporting =
            |segment: &&u32| self.open.get(*segment).is_some_and(|open| open.is_reporting());
        let segment = *self.asked.iter().find(reporting)?;
        let open = self.open.get_mut(&segment)?;
        let slice = open.next_slice(now, segment)?;
        if !open.is_reporting() {
            self.asked.remove(&segment);
        }
        self.end.accounting.blocks_lost += u64::from(slice.newly_lost);
        self.end.accounting.reported_lost += u64::from(slice.report.count());
        if let Some(blocks) = slice.round_left {
            let round = slice.report.round();
            self.end.tell(Event::Round { segment, round, blocks });
        }
        Some(slice.report)
    }
}

impl ReceivingFlow for Flow {
    fn new(now: Time, setup: &Setup) -> Flow {
        Flow {
            end: ReceivingEnd::new(now, setup),
            grace: (setup.rtt / 4).max(MIN_GRACE),
            recent: setup.rtt.max(MIN_RECENT),
            open: BTreeMap::new(),
            asked: BTreeSet::new(),
            whole: RangeSet::new(),
            skipped: RangeSet::new(),
            tell_whole: VecDeque::new(),
        }
    }

    fn end(&self) -> &ReceivingEnd {
        &self.end
    }

    fn end_mut(&mut self) -> &mut ReceivingEnd {
        &mut self.end
    }

    fn on_datagrams(&mut self, now: Time, arrivals: &[Arrival]) {
        let received = self.end.on_arrivals(now, arrivals);
        let segment = |arrival: &Arrival| arrival.block.segment;
        let runs = arrivals.chunk_by(|a, b| segment(a) == segment(b));
        let new = runs.map(|run| self.mark_run(segment(&run[0]), run)).sum();
        self.end.count(received, new);
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
        let BlockRange { first, count } = blocks;
        let segment = first.segment;
        let all = self.end.layout.blocks_in(segment);
        let end = first.index.saturating_add(count).min(all);
        if first.index >= end || self.is_whole(segment) {
            return;
        }
        let base = self.base(segment);
        self.skipped.insert(base + u64::from(first.index)..base + u64::from(end));
        let is_whole = match self.open.get_mut(&segment) {
            Some(open) => {
                open.tally.mark_range(first.index..end);
                open.tally.is_whole()
            }
            None => self.skipped.covers(base..base + u64::from(all)),
        };
        if is_whole {
            self.set_whole(segment);
        }
    }

    fn poll_report(&mut self, now: Time) -> Option<(Carrier, Control)> {
        let report = self.take_report(now)?;
        Some((Carrier::Reliable, Control::Report(report)))
    }

    fn next_report(&self) -> Wake {
        let graces = self.asked.iter().filter_map(|segment| self.open.get(segment)?.deadline());
        graces.min().map_or(Wake::OnInput, |at| Wake::At(at, Why::Report))
    }
}
