//! The receiving end: records arrivals, and acknowledges them after a fixed number of new blocks or
//! a delay.

use super::ACK_FREQUENCY;
use super::pending_reports::PendingReports;
use crate::endpoint::{Arrival, BlockRange, Carrier, Event, Setup, Wake, Why};
use crate::ends::{Flows, ReceivingEnd, ReceivingFlow, Tallies};
use crate::time::{Span, Time};
use crate::wire::{Ack, Closing, Control, Selective};

/// Minimum delay of an acknowledgement after the first datagram that it covers. Between this and
/// [`LONGEST_DELAY`] the delay is a quarter of a round trip.
const SHORTEST_DELAY: Span = Span::from_millis(1);
/// Maximum delay of an acknowledgement.
const LONGEST_DELAY: Span = Span::from_millis(50);

pub(crate) type FobsReceiver = Flows<Flow>;

pub(crate) struct Flow {
    end: ReceivingEnd,
    tallies: Tallies,
    pending_reports: PendingReports,
    /// Number of new blocks that trigger an acknowledgement.
    every: u64,
    /// New blocks since the last acknowledgement.
    fresh: u64,
    delay: Span,
    /// When an acknowledgement is due even with fewer new blocks than `every`.
    due: Option<Time>,
    /// When the receiver next reports unchanged cells (groups of blocks, see `pending_reports`).
    again: Time,
    sequence: u64,
    /// Whether the completion signal is due.
    complete: bool,
}

impl Flow {
    fn set_whole(&mut self, segment: u32) {
        self.pending_reports.set_whole(segment);
        self.end.push_event(Event::SegmentDone { segment });
        if self.tallies.is_complete() {
            self.end.finish();
            self.complete = true;
        }
    }

    fn begin(&mut self, now: Time) {
        let is_due = self.fresh >= self.every || self.due.is_some_and(|due| due <= now);
        if !is_due || self.pending_reports.is_under_way() {
            return;
        }
        let again = self.again <= now;
        if again {
            self.again = now + self.delay;
        }
        self.sequence += 1;
        self.due = None;
        self.pending_reports.begin(again);
    }

    fn take(&mut self, now: Time) -> Option<Selective> {
        self.begin(now);
        let message = self.pending_reports.next(&self.tallies, &self.end.layout)?;
        self.end.accounting.blocks_lost += u64::from(message.newly_lost);
        self.end.accounting.reported_lost += u64::from(message.report.count());
        let closing = message.is_last.then(|| Closing {
            highest: self.end.accounting.highest,
            fresh: core::mem::take(&mut self.fresh),
        });
        Some(Selective { sequence: self.sequence, report: message.report, closing })
    }
}

impl ReceivingFlow for Flow {
    fn new(now: Time, setup: &Setup) -> Flow {
        let delay = (setup.rtt / 4).clamp(SHORTEST_DELAY, LONGEST_DELAY);
        Flow {
            end: ReceivingEnd::new(now, setup),
            tallies: Tallies::new(setup.layout),
            pending_reports: PendingReports::default(),
            every: setup.settings.count(&ACK_FREQUENCY),
            fresh: 0,
            delay,
            due: None,
            again: now + delay,
            sequence: 0,
            complete: false,
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
        let mut new = 0;
        for run in arrivals.chunk_by(|a, b| segment(a) == segment(b)) {
            let of = segment(&run[0]);
            let marked = self.tallies.mark(of, run);
            new += marked.new;
            if marked.is_last {
                self.set_whole(of);
            } else if self.tallies.is_whole(of) {
                self.pending_reports.note_whole(of);
            } else {
                self.pending_reports.note(of, self.end.layout.blocks_in(of), run);
            }
        }
        self.end.count(received, new);
        self.fresh += new;
        // Duplicates start the timer too (`received`, not `new`): they show that the sender does
        // not know yet that the block arrived.
        if received > 0 {
            self.due.get_or_insert(now + self.delay);
        }
    }

    fn on_control(&mut self, _: Time, _: &Control) {
        self.end.accounting.refused += 1;
    }

    fn on_timeout(&mut self, now: Time) {
        self.begin(now);
    }

    fn skip(&mut self, _: Time, blocks: BlockRange) {
        let (segment, indices) = (blocks.first.segment, blocks.indices(&self.end.layout));
        self.end.forget_lost(self.pending_reports.lost_in(&self.tallies, segment, indices));
        if self.tallies.skip(blocks) {
            self.set_whole(blocks.first.segment);
        }
    }

    fn poll_report(&mut self, now: Time) -> Option<(Carrier, Control)> {
        if core::mem::take(&mut self.complete) {
            let blocks = self.end.layout.blocks();
            let ack = Ack { sequence: self.sequence, next: blocks, received: blocks };
            return Some((Carrier::Reliable, Control::Ack(ack)));
        }
        if self.end.is_finished() {
            return None;
        }
        Some((Carrier::Datagram, Control::Selective(self.take(now)?)))
    }

    fn next_report(&self) -> Wake {
        if self.complete || (self.pending_reports.is_under_way() && !self.end.is_finished()) {
            return Wake::Now;
        }
        match self.due.filter(|_| !self.end.is_finished()) {
            Some(due) => Wake::At(due, Why::Report),
            None => Wake::OnInput,
        }
    }
}
