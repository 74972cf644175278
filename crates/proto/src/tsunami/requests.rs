//! Which blocks Tsunami's receiver requests, and when it may repeat a request.

use core::ops::Range;

use super::{GRACE, TABLE};
use crate::accounting::ReceiverAccounting;
use crate::endpoint::Setup;
use crate::ends::{Arrived, Recent, SHORTEST_GRACE};
use crate::ranges::RangeSet;
use crate::time::{Span, Time};
use crate::wire::Loss;

/// Shortest time before a block is requested again.
const MIN_WAIT: Span = Span::from_millis(5);

/// A restart in progress: the sender resends every block from one block on.
#[derive(Clone, Copy, Debug)]
struct Passing {
    /// How far the restart has arrived: missing blocks below this number were lost again.
    at: u64,
    end: u64,
    /// When the restart last progressed.
    since: Time,
}

pub(super) struct Requests {
    /// Number of missing blocks at which a restart replaces the list.
    table: u64,
    /// Time after which a block is requested again.
    wait: Span,
    /// How late a block may be before it counts as missing.
    grace: Span,
    /// Each block below this number has arrived, or is later than the grace allows.
    settled: u64,
    /// The next value of `settled`, and the time from which its grace counts.
    settling: (u64, Time),
    /// Blocks that were requested less than `wait` ago.
    recent: Recent,
    /// All requested blocks, except those below the first missing block.
    counted: RangeSet,
    /// Blocks for the next request.
    asking: RangeSet,
    passing: Option<Passing>,
    sequence: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    /// Number of missing blocks to be requested.
    pub(super) blocks: u64,
    /// The block from which the sender is to resend everything; `None` if a list of blocks is
    /// requested instead.
    pub(super) restart: Option<u64>,
}

impl Requests {
    pub(super) fn new(now: Time, setup: &Setup) -> Requests {
        Requests {
            table: setup.settings.count(&TABLE),
            wait: (setup.rtt * 2).max(MIN_WAIT),
            grace: match setup.settings.value(&GRACE) {
                0.0 => Span::ZERO,
                trips => Span::from_secs_f64(setup.rtt.as_secs_f64() * trips).max(SHORTEST_GRACE),
            },
            settled: 0,
            settling: (0, now),
            recent: Recent::default(),
            counted: RangeSet::new(),
            asking: RangeSet::new(),
            passing: None,
            sequence: 0,
        }
    }

    pub(super) fn grace(&self) -> Span {
        self.grace
    }

    /// Notes the number of the highest arrived block, plus one.
    pub(super) fn note_highest(&mut self, now: Time, highest: u64) {
        if self.grace == Span::ZERO {
            self.settled = highest;
            return;
        }
        let (settling, since) = self.settling;
        if now.since(since) >= self.grace {
            self.settled = self.settled.max(settling);
            self.settling = (highest, now);
        }
    }

    /// Settles all blocks below `highest`. Call this only if nothing sent earlier can still arrive.
    pub(super) fn settle(&mut self, highest: u64) {
        self.settled = highest;
    }

    /// Notes an arrived block. If the block belongs to a restart in progress, the restart has
    /// reached it.
    pub(super) fn note_passing(&mut self, now: Time, block: u64) {
        if let Some(passing) = &mut self.passing
            && (passing.at..passing.end).contains(&block)
        {
            (passing.at, passing.since) = (block + 1, now);
        }
    }

    /// Requests and counts missing blocks. Returns their number, and where a restart must begin if
    /// there are too many.
    pub(super) fn ask(
        &mut self,
        now: Time,
        arrived: &Arrived,
        accounting: &mut ReceiverAccounting,
    ) -> Asked {
        let next = arrived.next();
        self.counted.remove(0..next);
        // A restart ends when its last block has arrived, or when none of its blocks has arrived
        // for four waits.
        self.passing = self
            .passing
            .filter(|passing| passing.at < passing.end && now.since(passing.since) < self.wait * 4);
        let to = self.passing.map_or(self.settled, |passing| passing.at.min(self.settled));
        let recent = self.recent.forget(now, self.wait);
        let missing = |gap: Range<u64>| recent.gaps(gap);
        let mut runs: RangeSet = RangeSet::new();
        for run in arrived.there().gaps(next..to).flat_map(missing) {
            runs.insert(run);
        }
        let blocks = runs.count();
        accounting.reported_lost += blocks;
        accounting.blocks_lost += runs.iter().map(|run| self.counted.insert(run)).sum::<u64>();
        if blocks >= self.table && self.passing.is_none() {
            self.passing = Some(Passing { at: next, end: arrived.highest(), since: now });
            return Asked { blocks, restart: Some(next) };
        }
        for run in runs.iter() {
            self.recent.insert(now, run.clone(), self.wait);
            self.asking.insert(run);
        }
        Asked { blocks, restart: None }
    }

    /// Removes a gap that need not be filled; returns how many of its blocks were requested.
    pub(super) fn forget(&mut self, gap: Range<u64>) -> u64 {
        self.counted.remove(gap)
    }

    pub(super) fn take(&mut self, arrived: &Arrived) -> Option<Loss> {
        let loss = arrived.take_missing(&mut self.asking, self.sequence + 1)?;
        self.sequence += 1;
        Some(loss)
    }
}
