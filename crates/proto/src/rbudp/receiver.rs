//! The receiving end: keeps the tallies, answers DONE, and tells how the flows fare.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

use super::reports::{Segment, whole};
use crate::accounting::ReceiverAccounting;
use crate::endpoint::{
    Arrival, BlockRange, Carrier, Event, FlowId, Outgoing, Receiver, Setup, Wake, Why,
};
use crate::layout::{Block, Layout};
use crate::pulse::Pulses;
use crate::ranges::RangeSet;
use crate::tally::Tally;
use crate::time::{Span, Time};
use crate::units::{Bytes, Rate};
use crate::wire::{Control, Done, Report};

/// The shortest grace for data that DONE has overtaken.
const MIN_GRACE: Span = Span::from_millis(1);
/// A question that comes again sooner than this after its answer is a copy.
const MIN_RECENT: Span = Span::from_millis(10);

/// RBUDP's receiver, of any number of flows.
#[derive(Default)]
pub struct RbudpReceiver {
    flows: BTreeMap<FlowId, Flow>,
}

struct Flow {
    layout: Layout,
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
    /// When the highest number last rose.
    risen: Time,
    pulses: Pulses,
    events: VecDeque<Event>,
    accounting: ReceiverAccounting,
}

impl RbudpReceiver {
    /// A receiver without flows.
    pub fn new() -> RbudpReceiver {
        RbudpReceiver::default()
    }
}

impl Flow {
    fn new(now: Time, setup: &Setup) -> Flow {
        let mut events = VecDeque::new();
        if setup.layout.segments() == 0 {
            events.push_back(Event::Finished);
        }
        Flow {
            layout: setup.layout,
            grace: (setup.rtt / 4).max(MIN_GRACE),
            recent: setup.rtt.max(MIN_RECENT),
            open: BTreeMap::new(),
            asked: BTreeSet::new(),
            whole: RangeSet::new(),
            skipped: RangeSet::new(),
            tell_whole: VecDeque::new(),
            risen: now,
            pulses: Pulses::new(now, setup),
            events,
            accounting: ReceiverAccounting::default(),
        }
    }

    fn base(&self, segment: u32) -> u64 {
        self.layout.number(Block { segment, index: 0 })
    }

    /// Begins a segment, with what is there already.
    fn begin(&mut self, segment: u32) {
        if self.open.contains_key(&segment) {
            return;
        }
        let blocks = self.layout.blocks_in(segment);
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

    fn is_finished(&self) -> bool {
        self.whole.count() == u64::from(self.layout.segments())
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
        self.events.push_back(Event::SegmentDone { segment });
        if self.is_finished() {
            self.events.push_back(Event::Finished);
        }
    }

    /// A run of arrivals of one segment.
    fn on_run(&mut self, now: Time, segment: u32, run: &[Arrival]) {
        let blocks = self.layout.blocks_in(segment);
        let known = run.iter().filter(|arrival| arrival.block.index < blocks);
        let count = known.clone().count() as u64;
        self.accounting.refused += run.len() as u64 - count;
        if count == 0 {
            return;
        }
        self.pulses.on_arrivals(now, known.clone());
        let mut new = 0;
        if !self.is_whole(segment) {
            self.begin(segment);
            if let Some(open) = self.open.get_mut(&segment) {
                for arrival in known.clone() {
                    new += u64::from(open.tally.mark(arrival.block.index));
                }
                if open.tally.is_whole() {
                    self.set_whole(segment);
                }
            }
        }
        let highest = known.map(|arrival| arrival.number.0 + 1).max().unwrap_or(0);
        self.accounting.received += count;
        self.accounting.distinct += new;
        self.accounting.duplicates += count - new;
        self.accounting.highest = self.accounting.highest.max(highest);
    }

    fn on_datagrams(&mut self, now: Time, arrivals: &[Arrival]) {
        let before = self.accounting.highest;
        let segment = |arrival: &Arrival| arrival.block.segment;
        for run in arrivals.chunk_by(|a, b| segment(a) == segment(b)) {
            self.on_run(now, segment(&run[0]), run);
        }
        if self.accounting.highest > before {
            self.risen = now;
        }
        self.begin_reports(now);
    }

    fn begin_reports(&mut self, now: Time) {
        for segment in &self.asked {
            if let Some(open) = self.open.get_mut(segment) {
                open.begin(now, self.accounting.highest, self.risen, self.grace);
            }
        }
    }

    fn on_done(&mut self, now: Time, done: &Done) {
        let segment = done.segment;
        let blocks = self.layout.blocks_in(segment);
        if done.sent_to == 0 || done.sent_to > blocks {
            self.accounting.refused += 1;
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

    fn skip(&mut self, blocks: BlockRange) {
        let BlockRange { first, count } = blocks;
        let segment = first.segment;
        let all = self.layout.blocks_in(segment);
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

    fn next_report(&mut self, now: Time) -> Option<Report> {
        if let Some((segment, round)) = self.tell_whole.pop_front() {
            return Some(whole(segment, round, self.layout.blocks_in(segment)));
        }
        let reporting =
            |segment: &&u32| self.open.get(*segment).is_some_and(|open| open.is_reporting());
        let segment = *self.asked.iter().find(reporting)?;
        let open = self.open.get_mut(&segment)?;
        let slice = open.next_slice(now, segment)?;
        if !open.is_reporting() {
            self.asked.remove(&segment);
        }
        self.accounting.blocks_lost += u64::from(slice.newly_lost);
        self.accounting.reported_lost += u64::from(slice.report.count());
        if let Some(blocks) = slice.round_left {
            let round = slice.report.round();
            self.events.push_back(Event::Round { segment, round, blocks });
        }
        Some(slice.report)
    }

    fn poll_control(&mut self, now: Time) -> Option<(Carrier, Control)> {
        if let Some(report) = self.next_report(now) {
            return Some((Carrier::Reliable, Control::Report(report)));
        }
        if self.pulses.due() <= now {
            let pulse = self.pulses.make(now, &self.accounting);
            return Some((Carrier::Datagram, Control::Pulse(pulse)));
        }
        None
    }

    fn next_wakeup(&self) -> Wake {
        let graces = self.asked.iter().filter_map(|segment| self.open.get(segment)?.deadline());
        let report = graces.min().map_or(Wake::OnInput, |at| Wake::At(at, Why::Report));
        report.earlier(Wake::At(self.pulses.due(), Why::Pulse))
    }
}

impl Receiver for RbudpReceiver {
    fn on_datagrams(&mut self, now: Time, flow: FlowId, arrivals: &[Arrival]) {
        if let Some(flow) = self.flows.get_mut(&flow) {
            flow.on_datagrams(now, arrivals);
        }
    }

    fn on_control(&mut self, now: Time, flow: FlowId, control: &Control) {
        let Some(flow) = self.flows.get_mut(&flow) else { return };
        match control {
            Control::Done(done) => flow.on_done(now, done),
            Control::Report(_) | Control::Pulse(_) => flow.accounting.refused += 1,
        }
    }

    fn on_timeout(&mut self, now: Time) {
        for flow in self.flows.values_mut() {
            flow.begin_reports(now);
        }
    }

    fn skip(&mut self, _: Time, flow: FlowId, blocks: BlockRange) {
        if let Some(flow) = self.flows.get_mut(&flow) {
            flow.skip(blocks);
        }
    }

    fn set_grant(&mut self, _: Time, flow: FlowId, grant: Bytes, drain: Option<Rate>) {
        if let Some(flow) = self.flows.get_mut(&flow) {
            flow.pulses.set_grant(grant, drain);
        }
    }

    fn set_socket_lost(&mut self, _: Time, flow: FlowId, lost: u64) {
        if let Some(flow) = self.flows.get_mut(&flow) {
            flow.pulses.set_socket_lost(lost);
        }
    }

    fn poll_control(&mut self, now: Time) -> Option<Outgoing> {
        self.flows.iter_mut().find_map(|(&id, flow)| {
            let (carrier, control) = flow.poll_control(now)?;
            Some(Outgoing { flow: id, carrier, control })
        })
    }

    fn poll_event(&mut self) -> Option<(FlowId, Event)> {
        self.flows.iter_mut().find_map(|(&id, flow)| Some((id, flow.events.pop_front()?)))
    }

    fn next_wakeup(&self) -> Wake {
        self.flows.values().map(Flow::next_wakeup).fold(Wake::OnInput, Wake::earlier)
    }

    fn is_finished(&self, flow: FlowId) -> bool {
        self.flows.get(&flow).is_some_and(Flow::is_finished)
    }

    fn accounting(&self, flow: FlowId) -> Option<&ReceiverAccounting> {
        self.flows.get(&flow).map(|flow| &flow.accounting)
    }

    fn add_flow(&mut self, now: Time, setup: &Setup) {
        self.flows.entry(setup.flow).or_insert_with(|| Flow::new(now, setup));
    }

    fn remove_flow(&mut self, flow: FlowId) {
        self.flows.remove(&flow);
    }
}
