//! The loss reports of SABUL's receiver: their times and their content.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;
use core::ops::Range;

use super::{REPORT_INTERVAL, SYNC_INTERVAL};
use crate::endpoint::Setup;
use crate::ends::Arrived;
use crate::ranges::RangeSet;
use crate::time::{Span, Time};
use crate::wire::Loss;

/// Maximum number of loss reports in one interval (our addition). The interval is the paper's
/// synchronization interval or, by the rules of Oak Ridge's release, the interval of collective
/// reports (`Again::Collective`).
pub(super) const MOST_AT_ONCE: u32 = 32;

/// A loss to be reported again: the time, k (see [`Again::AfterTrips`]), the first block, and the
/// last block plus one.
type Due = Reverse<(Time, u64, u64, u64)>;

/// The rule for repeated reports.
enum Again {
    /// "The loss will be reported again if the retransmission has not been received after k*RTT,
    /// where k is initialized as 2 and is increased by 1 each time the loss is reported." (3.4)
    AfterTrips { rtt: Span, due: BinaryHeap<Due>, blocks: RangeSet },
    /// "Also, every 20ms a collective loss report is sent" (Oak Ridge's study, 4.3.3). The report
    /// lists as many losses as fit in one message.
    Collective { interval: Span, next: Time },
}

/// The losses of a flow that are still to be reported.
pub(super) struct Reports {
    /// Losses that were never reported.
    fresh: RangeSet,
    again: Again,
    sequence: u64,
    /// Start of the current interval of length `interval`.
    began: Time,
    /// Number of reports made in the current interval.
    made: u32,
    interval: Span,
}

/// A report, and whether it is the first for its blocks.
pub(super) struct Made {
    pub(super) loss: Loss,
    pub(super) first_time: bool,
}

impl Reports {
    /// The paper's rules. A round trip shorter than the synchronization interval counts as one
    /// interval: no repair is expected sooner.
    pub(super) fn new(now: Time, setup: &Setup) -> Reports {
        let sync = setup.settings.span(&SYNC_INTERVAL);
        let rtt = setup.rtt.max(sync);
        let again = Again::AfterTrips { rtt, due: BinaryHeap::new(), blocks: RangeSet::new() };
        Reports::with(now, again, sync)
    }

    /// The rules of the release that Oak Ridge measured.
    pub(super) fn release(now: Time, setup: &Setup) -> Reports {
        let interval = setup.settings.span(&REPORT_INTERVAL);
        Reports::with(now, Again::Collective { interval, next: now + interval }, interval)
    }

    fn with(now: Time, again: Again, interval: Span) -> Reports {
        Reports { fresh: RangeSet::new(), again, sequence: 0, began: now, made: 0, interval }
    }

    pub(super) fn note_gap(&mut self, blocks: Range<u64>) {
        self.fresh.insert(blocks);
    }

    /// Number of blocks of a gap that were reported.
    pub(super) fn reported(&self, gap: Range<u64>) -> u64 {
        self.fresh.gaps(gap).map(|run| run.end - run.start).sum()
    }

    pub(super) fn make(&mut self, now: Time, arrived: &Arrived) -> Option<Made> {
        if now >= self.began + self.interval {
            (self.began, self.made) = (now, 0);
        }
        if self.made == MOST_AT_ONCE {
            return None;
        }
        self.sequence += 1;
        let made = self.make_fresh(now, arrived).or_else(|| self.make_again(now, arrived));
        match made {
            Some(_) => self.made += 1,
            None => self.sequence -= 1,
        }
        made
    }

    fn make_fresh(&mut self, now: Time, arrived: &Arrived) -> Option<Made> {
        let loss = arrived.take_missing(&mut self.fresh, self.sequence)?;
        if let Again::AfterTrips { rtt, due, .. } = &mut self.again {
            let runs = loss.lost().iter();
            due.extend(runs.map(|run| Reverse((now + *rtt * 2, 2, run.start, run.end))));
        }
        Some(Made { loss, first_time: true })
    }

    fn make_again(&mut self, now: Time, arrived: &Arrived) -> Option<Made> {
        let loss = match &mut self.again {
            Again::AfterTrips { rtt, due, blocks } => {
                while let Some(&Reverse((at, k, start, end))) = due.peek()
                    && at <= now
                {
                    due.pop();
                    for gap in arrived.there().gaps(start..end) {
                        blocks.insert(gap.clone());
                        let (at, k) = (now + *rtt * (k + 1), k + 1);
                        due.push(Reverse((at, k, gap.start, gap.end)));
                    }
                }
                arrived.take_missing(blocks, self.sequence)?
            }
            Again::Collective { interval, next } => {
                if now < *next {
                    return None;
                }
                *next = now + *interval;
                let missing = arrived.there().gaps(0..arrived.highest());
                let loss = Loss::fill(self.sequence, &mut missing.peekable());
                (!loss.lost().is_empty()).then_some(loss)?
            }
        };
        Some(Made { loss, first_time: false })
    }

    /// When the next report may be due; `is_missing` says whether any block is missing.
    pub(super) fn next(&self, is_missing: bool) -> Option<Time> {
        if !is_missing {
            return None;
        }
        let waiting = match &self.again {
            Again::AfterTrips { due, blocks, .. } => {
                let due = due.peek().map(|Reverse((at, ..))| *at);
                if blocks.is_empty() && self.fresh.is_empty() { due } else { Some(self.began) }
            }
            Again::Collective { next, .. } => Some(*next),
        };
        let full = self.made == MOST_AT_ONCE;
        waiting.map(|at| if full { at.max(self.began + self.interval) } else { at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::FlowId;
    use crate::layout::Layout;
    use crate::units::Bytes;

    #[test]
    fn the_next_report_waits_for_a_loss_and_after_32_reports_for_the_next_interval() {
        let layout = Layout::whole(Bytes::new(1_000_000), 1000).unwrap();
        let setup = Setup::new(FlowId(7), layout, Span::from_millis(100));
        let ms = |ms| Time::ZERO + Span::from_millis(ms);
        let mut reports = Reports::new(ms(5), &setup);
        assert_eq!([reports.next(false), reports.next(true)], [None, None]);
        reports.note_gap(3..5);
        assert_eq!([reports.next(false), reports.next(true)], [None, Some(ms(5))]);
        assert_eq!(reports.reported(2..8), 4);
        reports.made = MOST_AT_ONCE - 1;
        assert_eq!(reports.next(true), Some(ms(5)));
        reports.made = MOST_AT_ONCE;
        assert_eq!(reports.next(true), Some(ms(15)));
        let mut release = Reports::release(ms(5), &setup);
        assert_eq!([release.next(false), release.next(true)], [None, Some(ms(25))]);
        release.made = MOST_AT_ONCE;
        assert_eq!(release.next(true), Some(ms(25)));
    }
}
