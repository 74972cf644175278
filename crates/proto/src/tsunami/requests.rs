//! What the receiver asks for, and when it may ask again.

use core::ops::Range;

use super::{GRACE, TABLE};
use crate::accounting::ReceiverAccounting;
use crate::endpoint::Setup;
use crate::ends::{Arrived, Recent, SHORTEST_GRACE};
use crate::ranges::RangeSet;
use crate::time::{Span, Time};
use crate::wire::Loss;

/// The shortest time after which a block is asked for again.
const MIN_WAIT: Span = Span::from_millis(5);

/// A restart that is passing: the sender sends again from a block on.
#[derive(Clone, Copy, Debug)]
struct Passing {
    /// How far it has come: what is missing below was lost again.
    at: u64,
    /// Where it ends.
    end: u64,
    /// When it last got on.
    since: Time,
}

/// What is missing, as far as it is known to be, and what has been asked for.
pub(super) struct Requests {
    table: u64,
    /// After this a block is asked for again.
    wait: Span,
    /// How long a datagram may be late.
    grace: Span,
    /// Blocks below this came, or are late beyond the grace; and what will be so next, from when.
    settled: u64,
    settling: (u64, Time),
    /// Blocks that have been asked for lately, and all that ever were and have not come in order.
    recent: Recent,
    counted: RangeSet,
    /// Blocks to be asked for now.
    asking: RangeSet,
    passing: Option<Passing>,
    sequence: u64,
}

/// What is asked for at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    /// How many blocks.
    pub(super) blocks: u64,
    /// Instead: everything from this block on.
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

    /// How long a datagram may be late.
    pub(super) fn grace(&self) -> Span {
        self.grace
    }

    /// Blocks up to `highest` have come.
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

    /// Nothing that was sent earlier can come any more: all below `highest` is settled.
    pub(super) fn settle(&mut self, highest: u64) {
        self.settled = highest;
    }

    /// A block has come that is below the highest: a restart that is passing has got there.
    pub(super) fn note_passing(&mut self, now: Time, block: u64) {
        if let Some(passing) = &mut self.passing
            && (passing.at..passing.end).contains(&block)
        {
            (passing.at, passing.since) = (block + 1, now);
        }
    }

    /// Asks for what is missing, counts it, and tells how much that is.
    pub(super) fn ask(
        &mut self,
        now: Time,
        arrived: &Arrived,
        accounting: &mut ReceiverAccounting,
    ) -> Asked {
        let next = arrived.next();
        self.counted.remove(0..next);
        // A pass is over when it is through, or when nothing of it comes any more.
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

    /// A gap need not be filled: tells how many blocks of it were asked for.
    pub(super) fn forget(&mut self, gap: Range<u64>) -> u64 {
        self.counted.remove(gap)
    }

    /// The next message that asks for blocks.
    pub(super) fn take(&mut self, arrived: &Arrived) -> Option<Loss> {
        let loss = arrived.take_missing(&mut self.asking, self.sequence + 1)?;
        self.sequence += 1;
        Some(loss)
    }
}
