//! A sender's blocks to send again, and its blocks known to have arrived. Blocks are numbered from
//! the start of the object.

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

    /// Notes that the receiver lacks `blocks`. Adds the blocks that are not known to have arrived
    /// to the list, and returns their number. With `fresh`, blocks resent less than a round trip
    /// ago are left out, because the report was made before they could arrive.
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

    /// Notes that all blocks below `next` have arrived; returns false if the object has fewer
    /// blocks.
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
