//! The blocks that a sender must send again, and the blocks that are known to have arrived. Blocks
//! are numbered from the start of the object.

use core::ops::Range;

use super::{LossList, Recent, Run, SendingEnd};
use crate::endpoint::BlockRange;
use crate::time::Time;

/// Blocks to send again before any new block.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repairs {
    lost: LossList,
    recent: Recent,
    /// All blocks below this number are known to have arrived.
    acknowledged: u64,
}

impl Repairs {
    pub(crate) fn is_empty(&self) -> bool {
        self.lost.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn head(&self) -> Range<u64> {
        self.lost.head()
    }

    /// Takes the next run to resend now: at most `max` consecutive blocks of one segment.
    pub(crate) fn take(&mut self, now: Time, end: &SendingEnd, max: u32) -> Option<Run> {
        let head = self.lost.head();
        let first = end.layout.block(head.start).filter(|_| !head.is_empty())?;
        let left = end.layout.blocks_in(first.segment) - first.index;
        let count = (head.end - head.start).min(left.min(max).into()) as u32;
        let to = head.start + u64::from(count);
        self.lost.advance(to);
        self.recent.insert(now, head.start..to, end.rtt.smoothed());
        Some(Run { segment: first.segment, blocks: first.index..first.index + count })
    }

    /// Notes that the receiver lacks `blocks`. Adds to the list the blocks that are not known to
    /// have arrived, and returns their number. With `fresh`, leaves out blocks resent less than a
    /// round trip ago, because the receiver made its report before they could arrive.
    pub(crate) fn list(
        &mut self,
        now: Time,
        end: &SendingEnd,
        blocks: Range<u64>,
        fresh: bool,
    ) -> u64 {
        let recent = self.recent.forget(now, end.rtt.smoothed());
        let mut listed = 0;
        for gap in end.frontier.there().gaps(blocks) {
            if !fresh {
                listed += gap.end - gap.start;
                self.lost.insert(gap);
                continue;
            }
            for gap in recent.gaps(gap) {
                listed += gap.end - gap.start;
                self.lost.insert(gap);
            }
        }
        listed
    }

    /// Adds all blocks in flight to the list; returns their number.
    pub(crate) fn list_in_flight(&mut self, now: Time, end: &SendingEnd) -> u64 {
        self.list(now, end, self.acknowledged..end.frontier.passed(), false)
    }

    /// Adds the last block in flight to the list, if there is one.
    pub(crate) fn list_last(&mut self, end: &SendingEnd) {
        if end.frontier.unacknowledged() > 0 {
            let to = end.frontier.passed();
            let last = end.frontier.there().run_at(to - 1).map_or(to, |run| run.start);
            self.lost.insert(last - 1..last);
        }
    }

    /// Notes that all blocks below `next` have arrived. Returns false, and notes nothing, if the
    /// object has fewer than `next` blocks.
    pub(crate) fn on_ack(&mut self, end: &mut SendingEnd, next: u64) -> bool {
        if next > end.layout.blocks() {
            return false;
        }
        if next > self.acknowledged {
            let news = self.acknowledged..next;
            self.acknowledged = next;
            end.frontier.set_there(news.clone());
            self.lost.remove(0..next);
            end.note(news);
        }
        true
    }

    /// As [`Sender::skip`](crate::endpoint::Sender::skip).
    pub(crate) fn skip(&mut self, end: &mut SendingEnd, blocks: BlockRange) {
        if let Some(blocks) = end.frontier.skip(blocks) {
            self.lost.remove(blocks.clone());
            end.note(blocks);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::{FlowId, Setup};
    use crate::layout::Layout;
    use crate::time::Span;
    use crate::units::{Bytes, Rate};

    #[test]
    fn a_run_to_resend_ends_with_its_segment() {
        let size = |blocks: u64| Bytes::new(blocks * 1000);
        let layout = Layout::new(size(20), size(10), size(1), 1000).unwrap();
        let setup = Setup::new(FlowId(1), layout, Span::from_millis(10));
        let mut end = SendingEnd::new(&setup, Rate::from_mbps(1));
        let mut repairs = Repairs::default();
        end.frontier.pass(20);
        repairs.list(Time::ZERO, &end, 7..15, true);
        let mut take = || {
            let run = repairs.take(Time::ZERO, &end, 100)?;
            Some((run.segment, run.blocks))
        };
        assert_eq!([take(), take(), take()], [Some((0, 7..10)), Some((1, 0..5)), None]);
    }

    #[test]
    fn a_resent_block_is_listed_again_after_a_round_trip_and_an_arrived_block_never() {
        let layout = Layout::whole(Bytes::new(100_000), 1000).unwrap();
        let setup = Setup::new(FlowId(1), layout, Span::from_millis(10));
        let mut end = SendingEnd::new(&setup, Rate::from_mbps(1));
        let mut repairs = Repairs::default();
        end.frontier.pass(20);
        assert_eq!(repairs.list(Time::ZERO, &end, 5..9, true), 4);
        assert_eq!(repairs.take(Time::ZERO, &end, 3).unwrap().blocks, 5..8);
        assert_eq!(repairs.list(Time::ZERO, &end, 4..9, true), 2, "4 and 8");
        let later = Time::ZERO + Span::from_millis(10);
        assert_eq!(repairs.list(later, &end, 4..9, true), 5);
        assert_eq!(repairs.list_in_flight(later, &end), 20);
        assert!(repairs.on_ack(&mut end, 7));
        assert_eq!(repairs.head(), 7..20);
        assert_eq!(repairs.list_in_flight(later, &end), 13);
        assert!(!repairs.on_ack(&mut end, 101) && repairs.on_ack(&mut end, 20));
        assert!(repairs.is_empty());
        repairs.list_last(&end);
        assert!(repairs.is_empty(), "nothing is in flight");
    }

    #[test]
    fn the_last_block_in_flight_is_the_last_one_that_has_not_arrived() {
        let layout = Layout::whole(Bytes::new(100_000), 1000).unwrap();
        let setup = Setup::new(FlowId(1), layout, Span::from_millis(10));
        let mut end = SendingEnd::new(&setup, Rate::from_mbps(1));
        end.frontier.pass(20);
        let last = |end: &SendingEnd| {
            let mut repairs = Repairs::default();
            repairs.list_last(end);
            repairs.head()
        };
        assert_eq!(last(&end), 19..20);
        end.frontier.set_there(18..20);
        assert_eq!(last(&end), 17..18);
    }
}
