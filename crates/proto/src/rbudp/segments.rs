//! One segment (part of the object) at RBUDP's sending end: blocks sent, blocks covered by DONE
//! (the message at the end of a round), repairs, and coded symbols ([`crate::coded`]).

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::ops::Range;

use crate::coded::{SYMBOLS, Symbol, amounts};
use crate::endpoint::PacketNumber;
use crate::fec::Losses;
use crate::layout::{Block, Layout};
use crate::ranges::RangeSet;
use crate::time::{Span, Time};
use crate::units::LossRatio;
use crate::wire::{Done, Report};

/// Limits for the copies of a small last round.
#[derive(Clone, Copy, Debug)]
pub(super) struct TailCopies {
    /// Maximum number of times that each block of the round is sent.
    pub(super) times: u32,
    /// Number of copies that may still be sent. In each round, the first repair of a block does not
    /// count.
    pub(super) budget: u64,
}

impl TailCopies {
    /// How many more times a round of `blocks` blocks may be sent. A round takes at most half of
    /// the remaining budget, because the following rounds are smaller and gain more from copies.
    fn more(self, blocks: u64) -> u64 {
        let most = u64::from(self.times.saturating_sub(1));
        (self.budget / 2).checked_div(blocks).unwrap_or(0).min(most)
    }
}

/// A DONE that the receiver has not answered completely.
#[derive(Clone, Debug)]
pub(super) struct PendingDone {
    pub(super) done: Done,
    /// When the DONE is sent again.
    pub(super) again: Time,
    wait: Span,
    /// The blocks covered by answers.
    covered: RangeSet,
}

impl PendingDone {
    fn is_answered(&self) -> bool {
        self.covered.count() == u64::from(self.done.sent_to)
    }
}

/// A segment that has begun and is not known to be complete.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) blocks: u32,
    /// The round of the last DONE.
    round: u32,
    /// The highest packet number that carried a block or symbol of the segment.
    highest: PacketNumber,
    /// Datagrams sent since the last DONE.
    since_done: u32,
    /// The last complete answer covers the blocks before this number. Of the covered blocks, the
    /// receiver needs only those that it reported missing.
    answered_to: u32,
    pending_done: Option<PendingDone>,
    repairs: VecDeque<Range<u32>>,
    /// Rounds begun: 1, and one for each repair round.
    pub(super) rounds: u32,
    in_repair: bool,
    /// The round's repairs, as long as there are few enough to copy.
    list: Vec<Range<u32>>,
    /// Number of blocks repaired in the round.
    listed: u64,
    /// Whether the round's copies or symbols are queued.
    copied: bool,
    /// Coded symbols to send after the repairs, as block indices ([`Symbol::block`]).
    symbols: VecDeque<Range<u32>>,
    /// Number of the round's repairs by chunk, if chunks can be coded.
    repeated: BTreeMap<u64, u32>,
    /// Symbols sent so far, by chunk.
    coded: BTreeMap<u64, u8>,
    /// Datagrams sent so far that were not first sends.
    again: u64,
    /// The part of these datagrams, and of the queued symbols, that exceeds the expected losses.
    beyond: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Wait, or send blocks.
    Wait,
    /// Send DONE.
    Ask,
    /// No block is missing.
    Whole,
}

impl Segment {
    pub(super) fn new(blocks: u32) -> Segment {
        Segment {
            blocks,
            round: 0,
            highest: PacketNumber(0),
            since_done: 0,
            answered_to: 0,
            pending_done: None,
            repairs: VecDeque::new(),
            rounds: 1,
            in_repair: false,
            list: Vec::new(),
            listed: 0,
            copied: false,
            symbols: VecDeque::new(),
            repeated: BTreeMap::new(),
            coded: BTreeMap::new(),
            again: 0,
            beyond: 0,
        }
    }

    pub(super) fn has_repairs(&self) -> bool {
        !self.repairs.is_empty() || !self.symbols.is_empty()
    }

    pub(super) fn pending_done(&self) -> Option<&PendingDone> {
        self.pending_done.as_ref()
    }

    /// Number of datagrams in the round that the next DONE ends.
    pub(super) fn round_len(&self) -> u32 {
        self.since_done
    }

    /// The next run of at most `max` blocks to repair. `skipped` holds the blocks that the receiver
    /// has from other sources, numbered from the start of the object. `base` is the number of the
    /// segment's first block.
    pub(super) fn next_repair(
        &mut self,
        max: u32,
        base: u64,
        skipped: &RangeSet,
    ) -> Option<Range<u32>> {
        while let Some(front) = self.repairs.front_mut() {
            let range = base + u64::from(front.start)..base + u64::from(front.end);
            let Some(gap) = skipped.first_gap(range) else {
                self.repairs.pop_front();
                continue;
            };
            // Both bounds are counted within the segment, so they fit into 32 bits.
            let start = (gap.start - base) as u32;
            let end = start + max.min((gap.end - gap.start) as u32);
            front.start = end;
            if front.start == front.end {
                self.repairs.pop_front();
            }
            return Some(start..end);
        }
        None
    }

    pub(super) fn next_symbols(&mut self, max: u32) -> Option<Range<u32>> {
        let front = self.symbols.front_mut()?;
        let run = front.start..front.end.min(front.start.saturating_add(max));
        front.start = run.end;
        if front.start == front.end {
            self.symbols.pop_front();
        }
        Some(run)
    }

    /// Counts a run of repairs, so that the round ends with symbols for their chunks.
    pub(super) fn note_repeated(&mut self, layout: &Layout, segment: u32, run: &Range<u32>) {
        for index in run.clone() {
            *self.repeated.entry(layout.chunk_of(Block { segment, index })).or_default() += 1;
        }
    }

    /// Whether no complete answer has covered the whole segment yet.
    pub(super) fn is_first_round(&self) -> bool {
        self.answered_to < self.blocks
    }

    /// Queues symbols for the chunks of the round, after all blocks and repairs of the round were
    /// sent. `there` holds the blocks that the receiver has from other sources. Adds symbols only
    /// as long as the segment's repairs and symbols together do not exceed its expected losses plus
    /// `spare` datagrams; repairs are not limited. Does nothing if the round already has copies or
    /// symbols. Returns by how many datagrams the excess over the segment's expected losses has
    /// grown.
    pub(super) fn code_round(
        &mut self,
        layout: &Layout,
        segment: u32,
        there: &RangeSet,
        loss: LossRatio,
        spare: f64,
    ) -> u64 {
        if core::mem::replace(&mut self.copied, true) {
            return 0;
        }
        let is_first = self.is_first_round();
        let mut sent = core::mem::take(&mut self.repeated);
        let mut index = self.answered_to;
        while index < self.blocks {
            let chunk = layout.chunk_of(Block { segment, index });
            let (first, count) = layout.blocks_of_chunk(chunk);
            let end = first.index + count;
            let number = |index| layout.number(Block { segment, index });
            let gaps = there.gaps(number(index)..number(index) + u64::from(end - index));
            let new: u64 = gaps.map(|gap| gap.end - gap.start).sum();
            *sent.entry(chunk).or_default() += new as u32;
            index = end;
        }
        let ratio = loss.get();
        let expected = f64::from(self.blocks) * ratio / (1.0 - ratio);
        let budget = (libm::ceil(expected + spare) as u64).saturating_sub(self.again);
        let counts: Vec<u32> = sent.values().copied().collect();
        let counts = amounts(&counts, Losses::independent(loss), budget, is_first);
        let mut queued = 0;
        for (&chunk, count) in sent.keys().zip(counts) {
            let before = self.coded.entry(chunk).or_default();
            let count = count.min(SYMBOLS - *before);
            let Some(first) = (Symbol { chunk, number: *before }).block(layout) else { continue };
            if count > 0 {
                self.symbols.push_back(first.index..first.index + u32::from(count));
                *before += count;
                queued += u64::from(count);
            }
        }
        let beyond = (self.again + queued).saturating_sub(expected as u64);
        let more = beyond.saturating_sub(self.beyond);
        self.beyond += more;
        more
    }

    pub(super) fn on_symbols(&mut self, count: u32, last: PacketNumber) {
        self.highest = self.highest.max(last);
        self.since_done = self.since_done.saturating_add(count);
        self.again += u64::from(count);
    }

    pub(super) fn on_sent(&mut self, run: &Range<u32>, last: PacketNumber, first_time: bool) {
        let count = run.end - run.start;
        self.highest = self.highest.max(last);
        self.since_done = self.since_done.saturating_add(count);
        if first_time {
            return;
        }
        self.again += u64::from(count);
        if !core::mem::replace(&mut self.in_repair, true) {
            self.rounds += 1;
        }
    }

    /// Keeps a run of repairs for copies, as long as the round has few repairs.
    pub(super) fn list_repair(&mut self, run: Range<u32>, copies: TailCopies) {
        if self.copied {
            return;
        }
        self.listed += u64::from(run.end - run.start);
        if copies.more(self.listed) > 0 {
            self.list.push(run);
        } else {
            self.list = Vec::new();
        }
    }

    /// Queues copies of the round's repairs, if they are few enough; returns the number of blocks
    /// added.
    pub(super) fn copy_round(&mut self, copies: TailCopies) -> u64 {
        let more = copies.more(self.listed);
        if self.pending_done.is_some() || self.list.is_empty() || more == 0 {
            return 0;
        }
        self.copied = true;
        let list = core::mem::take(&mut self.list);
        for _ in 0..more {
            self.repairs.extend(list.iter().cloned());
        }
        self.listed * more
    }

    /// The segment's next step. All blocks before `sent_to` have been sent, or need not be sent.
    /// `rest_skipped(n)` says whether the receiver has block n and all later blocks; `blocked` says
    /// that no first send is allowed.
    pub(super) fn next(
        &self,
        sent_to: u32,
        blocked: bool,
        rest_skipped: impl Fn(u32) -> bool,
    ) -> Next {
        if self.has_repairs() {
            return Next::Wait;
        }
        let all_sent = sent_to == self.blocks;
        match &self.pending_done {
            // The DONE for the whole segment replaces an unanswered partial DONE.
            Some(pending_done) => {
                let part =
                    pending_done.done.sent_to < self.blocks && pending_done.covered.is_empty();
                if part && all_sent && self.since_done > 0 { Next::Ask } else { Next::Wait }
            }
            None if self.since_done > 0 => {
                if all_sent || blocked {
                    Next::Ask
                } else {
                    Next::Wait
                }
            }
            None if rest_skipped(self.answered_to) => Next::Whole,
            None => Next::Wait,
        }
    }

    /// Ends the round: returns the DONE for the blocks before `sent_to`.
    pub(super) fn ask(&mut self, now: Time, segment: u32, sent_to: u32, wait: Span) -> Done {
        self.round = self.round.saturating_add(1);
        self.since_done = 0;
        self.in_repair = false;
        self.list = Vec::new();
        self.listed = 0;
        self.copied = false;
        self.repeated.clear();
        let (round, highest) = (self.round, self.highest);
        let done = Done { segment, round, sent_to, highest };
        self.pending_done =
            Some(PendingDone { done, again: now + wait, wait, covered: RangeSet::new() });
        done
    }

    /// Repeats the unanswered DONE if its wait is over. The wait doubles each time, up to `most`.
    pub(super) fn repeat(&mut self, now: Time, most: Span) -> Option<Done> {
        let pending_done =
            self.pending_done.as_mut().filter(|pending_done| pending_done.again <= now)?;
        pending_done.wait = (pending_done.wait * 2).min(most);
        pending_done.again = now + pending_done.wait;
        Some(pending_done.done)
    }

    /// Handles an answer. An answer to an older DONE is useless: the missing blocks that it lists
    /// were repaired since, or a newer DONE covers them.
    pub(super) fn on_report(&mut self, now: Time, report: &Report) {
        let slice = report.slice();
        let Some(pending_done) = &mut self.pending_done else { return };
        if report.round() != pending_done.done.round || slice.end > pending_done.done.sent_to {
            return;
        }
        let wide = |run: Range<u32>| u64::from(run.start)..u64::from(run.end);
        for run in report.missing().iter().cloned().map(wide) {
            let mut at = run.start;
            while let Some(gap) = pending_done.covered.first_gap(at..run.end) {
                at = gap.end;
                self.repairs.push_back(gap.start as u32..gap.end as u32);
            }
        }
        if pending_done.covered.insert(wide(slice)) > 0 {
            pending_done.again = pending_done.again.max(now + pending_done.wait);
        }
        if pending_done.is_answered() {
            self.answered_to = pending_done.done.sent_to;
            self.pending_done = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Bytes;

    #[test]
    fn a_done_for_the_whole_segment_replaces_only_a_partial_done_that_has_no_answer() {
        for (sent_to, answered, next) in
            [(5, 0, Next::Ask), (5, 1, Next::Wait), (10, 0, Next::Wait), (10, 1, Next::Wait)]
        {
            let mut open = Segment::new(10);
            open.on_sent(&(0..sent_to), PacketNumber(9), true);
            open.ask(Time::ZERO, 0, sent_to, Span::from_millis(200));
            if answered > 0 {
                open.on_report(Time::ZERO, &Report::fill(0, 1, 0..answered, [].into_iter()));
            }
            open.on_sent(&(9..10), PacketNumber(10), true);
            assert_eq!(open.next(10, false, |_| false), next, "{sent_to} {answered}");
        }
    }

    #[test]
    fn a_chunk_gets_each_of_its_symbols_once() {
        let size = Bytes::new(100_000);
        let layout = Layout::new(size, size, size, 1_000).unwrap();
        let mut open = Segment::new(100);
        let mut sent = Vec::new();
        for _ in 0..9 {
            let loss = LossRatio::new(0.3).unwrap();
            open.code_round(&layout, 0, &RangeSet::new(), loss, 100.0);
            sent.extend(core::iter::from_fn(|| open.next_symbols(u32::MAX)).flatten());
            open.ask(Time::ZERO, 0, 100, Span::ZERO);
        }
        let symbol = |number| Symbol { chunk: 0, number }.block(&layout).unwrap().index;
        assert_eq!(sent, (0..SYMBOLS).map(symbol).collect::<Vec<_>>());
    }
}
