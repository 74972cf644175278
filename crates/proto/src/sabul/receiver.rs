//! SABUL's receiving end: reports gaps, and sends at most one acknowledgement in each interval.
//! Only the last acknowledgement, when all blocks have arrived, does not wait for the interval to
//! end.

use super::reports::Reports;
use super::{ACK_INTERVAL, RELEASE_SYNC_INTERVAL, SYNC_INTERVAL};
use crate::endpoint::{Arrival, BlockRange, Carrier, Setup, Wake, Why};
use crate::ends::{Arrived, Flows, ReceivingEnd, ReceivingFlow};
use crate::time::{Span, Time};
use crate::wire::{Ack, Control, Sync};

/// SABUL's receiver for any number of flows.
pub type SabulReceiver = Flows<Flow<false>>;
/// The receiver of the release that Oak Ridge measured.
pub type SabulOrnlReceiver = Flows<Flow<true>>;

/// One flow, as in the paper or as in the release.
pub struct Flow<const RELEASE: bool> {
    end: ReceivingEnd,
    arrived: Arrived,
    reports: Reports,
    acks: Every,
    /// The release's signals to adjust the rate.
    syncs: Option<Every>,
}

/// A message that is sent at most once an interval, and only if `news` is set.
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

    /// The number of the message to send, if it is due.
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
    fn note_new(&mut self, new: u64) {
        self.acks.news |= new > 0;
        if self.acks.news && self.end.is_finished() {
            // The interval does not delay the last acknowledgement.
            self.acks.next = Time::ZERO;
        }
    }

    fn ack(&mut self, now: Time) -> Option<Ack> {
        let sequence = self.acks.take(now)?;
        Some(Ack { sequence, next: self.arrived.next(), received: self.arrived.there().count() })
    }

    fn report(&mut self, now: Time) -> Option<Control> {
        if self.end.is_finished() {
            return None;
        }
        let made = self.reports.make(now, &self.arrived)?;
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
            arrived: Arrived::new(setup),
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
        // "If the sequence number of the current packet is greater than the largest sequence
        // number ever received plus 1, then all the packets whose sequence numbers are between
        // these two numbers are regarded as lost." (3.4)
        let gap = |gap| self.reports.note_gap(gap);
        let new = self.arrived.on_datagrams(&mut self.end, now, arrivals, gap);
        self.note_new(new);
        if let Some(syncs) = self.syncs.as_mut().filter(|syncs| !syncs.news) {
            (syncs.next, syncs.news) = (now + syncs.interval, true);
        }
    }

    fn on_control(&mut self, _: Time, _: &Control) {
        self.end.accounting.refused += 1;
    }

    fn on_timeout(&mut self, _: Time) {}

    fn skip(&mut self, _: Time, blocks: BlockRange) {
        let new = self.arrived.skip(&mut self.end, blocks, |gap| self.reports.reported(gap));
        self.note_new(new);
    }

    fn poll_report(&mut self, now: Time) -> Option<(Carrier, Control)> {
        let control = self.report(now);
        let control = control.or_else(|| self.ack(now).map(Control::Ack));
        let control = control.or_else(|| self.sync(now))?;
        Some((Carrier::Reliable, control))
    }

    fn next_report(&self) -> Wake {
        let is_open = !self.end.is_finished();
        let is_missing = is_open && self.arrived.next() < self.arrived.highest();
        let syncs = self.syncs.as_ref().filter(|_| is_open).and_then(Every::due);
        let times = [self.reports.next(is_missing), self.acks.due(), syncs];
        let first = times.into_iter().flatten().min();
        first.map_or(Wake::OnInput, |at| Wake::At(at, Why::Report))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_sent_only_with_news_and_at_most_once_an_interval() {
        let ms = |ms| Time::ZERO + Span::from_millis(ms);
        let mut every = Every::new(ms(5), 0.01);
        assert_eq!((every.due(), every.take(ms(90))), (None, None));
        every.news = true;
        assert_eq!((every.due(), every.take(ms(4))), (Some(ms(5)), None));
        assert_eq!((every.take(ms(7)), every.due(), every.take(ms(90))), (Some(1), None, None));
        every.news = true;
        assert_eq!((every.due(), every.take(ms(16))), (Some(ms(17)), None));
        assert_eq!(every.take(ms(17)), Some(2));
    }
}
