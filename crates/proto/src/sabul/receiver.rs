//! The receiving end: finds gaps, acknowledges each interval.

use super::reports::Reports;
use super::{ACK_INTERVAL, RELEASE_SYNC_INTERVAL, SYNC_INTERVAL};
use crate::endpoint::{Arrival, BlockRange, Carrier, Event, Setup, Wake, Why};
use crate::ends::{Flows, ReceivingEnd, ReceivingFlow, Wholes};
use crate::layout::Block;
use crate::ranges::RangeSet;
use crate::time::{Span, Time};
use crate::wire::{Ack, Control, Sync};
use core::ops::Range;

/// SABUL's receiver, of any number of flows.
pub type SabulReceiver = Flows<Flow<false>>;
/// The receiver of the release that Oak Ridge measured.
pub type SabulOrnlReceiver = Flows<Flow<true>>;

/// One flow of it, as in the paper or as in the release.
pub struct Flow<const RELEASE: bool> {
    end: ReceivingEnd,
    /// What has come, or was there.
    there: RangeSet,
    wholes: Wholes,
    /// One more than the highest block that has come.
    highest: u64,
    reports: Reports,
    acks: Every,
    /// The release's signals to change the rate.
    syncs: Option<Every>,
}

/// Something that is said at most once an interval, and only if there is news.
struct Every {
    interval: Span,
    next: Time,
    news: bool,
    sequence: u64,
}

impl Every {
    fn new(now: Time, interval: f64) -> Every {
        Every { interval: Span::from_secs_f64(interval), next: now, news: false, sequence: 0 }
    }

    fn due(&self) -> Option<Time> {
        self.news.then_some(self.next)
    }

    /// The number to say it under, if it is due.
    fn take(&mut self, now: Time) -> Option<u64> {
        let is_due = self.due().is_some_and(|due| due <= now);
        is_due.then(|| {
            (self.next, self.news) = (now + self.interval, false);
            self.sequence += 1;
            self.sequence
        })
    }
}

impl<const RELEASE: bool> Flow<RELEASE> {
    /// The numbers of an arrival's block; nothing if the object has no such block.
    fn number(&self, arrival: &Arrival) -> Option<u64> {
        let Block { segment, index } = arrival.block;
        let layout = self.end.layout;
        (index < layout.blocks_in(segment)).then(|| layout.number(arrival.block))
    }

    /// A run of blocks has come; tells how many are new.
    ///
    /// "If the sequence number of the current packet is greater than the largest sequence number
    /// ever received plus 1, then all the packets whose sequence numbers are between these two
    /// numbers are regarded as lost. If the sequence number of the current packet is not greater
    /// than the largest sequence number ever received, it is regarded as a retransmitted packet."
    fn arrive(&mut self, run: Range<u64>) -> u64 {
        for gap in self.there.gaps(self.highest..run.start) {
            self.reports.note_gap(gap);
        }
        self.highest = self.highest.max(run.end);
        self.note_there(run)
    }

    fn note_there(&mut self, blocks: Range<u64>) -> u64 {
        let new = self.there.insert(blocks.clone());
        if new > 0 {
            self.acks.news = true;
            let end = &mut self.end;
            self.wholes
                .note(&self.there, blocks, |segment| end.tell(Event::SegmentDone { segment }));
            if self.there.count() == self.end.layout.blocks() {
                // The last word is not for the interval to hold back.
                self.acks.next = Time::ZERO;
                self.end.finish();
            }
        }
        new
    }

    fn first_missing(&self) -> Option<u64> {
        self.there.first_gap(0..self.end.layout.blocks()).map(|gap| gap.start)
    }

    fn ack(&mut self, now: Time) -> Option<Ack> {
        let sequence = self.acks.take(now)?;
        let next = self.first_missing().unwrap_or(self.end.layout.blocks());
        Some(Ack { sequence, next, received: self.there.count() })
    }

    fn report(&mut self, now: Time) -> Option<Control> {
        if self.end.is_finished() {
            return None;
        }
        let made = self.reports.make(now, &self.there, self.highest)?;
        let count = made.loss.count();
        self.end.accounting.reported_lost += count;
        self.end.accounting.blocks_lost += if made.first_time { count } else { 0 };
        Some(Control::Loss(made.loss))
    }

    fn sync(&mut self, now: Time) -> Option<Control> {
        let syncs = self.syncs.as_mut().filter(|_| !self.end.is_finished())?;
        let sequence = syncs.take(now)?;
        syncs.news = true;
        Some(Control::Sync(Sync { sequence }))
    }
}

impl<const RELEASE: bool> ReceivingFlow for Flow<RELEASE> {
    fn new(now: Time, setup: &Setup) -> Self {
        let value = |option| setup.settings.value(option);
        let (reports, ack) = if RELEASE {
            (Reports::release(now, setup), value(&ACK_INTERVAL))
        } else {
            (Reports::new(now, setup), value(&SYNC_INTERVAL))
        };
        Flow {
            end: ReceivingEnd::new(now, setup),
            there: RangeSet::new(),
            wholes: Wholes::new(setup.layout),
            highest: 0,
            reports,
            acks: Every::new(now, ack),
            syncs: RELEASE.then(|| Every::new(now, value(&RELEASE_SYNC_INTERVAL))),
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
        let (mut new, mut run) = (0, 0..0);
        for arrival in arrivals {
            let Some(number) = self.number(arrival) else { continue };
            if number == run.end && !run.is_empty() {
                run.end += 1;
                continue;
            }
            if !run.is_empty() {
                new += self.arrive(run);
            }
            run = number..number + 1;
        }
        if !run.is_empty() {
            new += self.arrive(run);
        }
        self.end.count(received, new);
        if let Some(syncs) = self.syncs.as_mut().filter(|syncs| !syncs.news) {
            // The first datagram starts the release's timer.
            (syncs.next, syncs.news) = (now + syncs.interval, true);
        }
    }

    fn on_control(&mut self, _: Time, _: &Control) {
        self.end.accounting.refused += 1;
    }

    fn on_timeout(&mut self, _: Time) {}

    fn skip(&mut self, _: Time, blocks: BlockRange) {
        let BlockRange { first, count } = blocks;
        let end = first.index.saturating_add(count).min(self.end.layout.blocks_in(first.segment));
        if first.index < end {
            let start = self.end.layout.number(first);
            self.note_there(start..start + u64::from(end - first.index));
        }
    }

    fn poll_report(&mut self, now: Time) -> Option<(Carrier, Control)> {
        let control = self.report(now);
        let control = control.or_else(|| self.ack(now).map(Control::Ack));
        let control = control.or_else(|| self.sync(now))?;
        Some((Carrier::Reliable, control))
    }

    fn next_report(&self) -> Wake {
        let is_open = !self.end.is_finished();
        let is_missing = is_open && self.first_missing().is_some_and(|at| at < self.highest);
        let syncs = self.syncs.as_ref().filter(|_| is_open).and_then(Every::due);
        let times = [self.reports.next(is_missing), self.acks.due(), syncs];
        let first = times.into_iter().flatten().min();
        first.map_or(Wake::OnInput, |at| Wake::At(at, Why::Report))
    }
}
