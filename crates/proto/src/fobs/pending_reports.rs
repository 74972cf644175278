//! The content of a FOBS acknowledgement, the receiver's report of arrived and missing blocks. An
//! acknowledgement takes as many messages as the changes need.
//!
//! A segment (part of the object) is divided into cells of [`CELL`] blocks. A cell changes when one
//! of its blocks arrives, and is then reported in the next [`REPEATS`] acknowledgements. A block
//! that arrives again also changes its cell, because the sender does not know that the block
//! arrived before. A message begins with a changed cell and covers as many cells from there on as
//! it can hold, at most [`SPAN`]. From time to time the receiver also reports unchanged cells, in
//! turn.

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use crate::endpoint::Arrival;
use crate::ends::Tallies;
use crate::layout::Layout;
use crate::tally::Tally;
use crate::wire::Report;

/// Blocks of a cell. A message with a bitmap holds at least one cell.
const CELL: u32 = 8192;
/// Maximum number of cells that a message covers.
const SPAN: u32 = 32;
/// Number of acknowledgements that report a change.
const REPEATS: u8 = 3;

#[derive(Clone, Debug, Default)]
pub(super) struct PendingReports {
    /// Segments that have begun and are incomplete.
    open: BTreeMap<u32, Open>,
    /// Changed cells, by segment and index, and the number of acknowledgements that still report
    /// them. For a complete segment, the first cell stands for all cells.
    changed: BTreeMap<(u32, u32), u8>,
    /// The next cell to be reported although nothing changed.
    turn: (u32, u32),
    /// The segment and cell from which the current acknowledgement continues; `None` between
    /// acknowledgements.
    continues_at: Option<(u32, u32)>,
}

#[derive(Clone, Debug)]
struct Open {
    /// Highest arrived block, plus one.
    reach: u32,
    /// For each cell, a block number: missing blocks below it were already counted as lost.
    lost_to: Vec<u32>,
}

#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) report: Report,
    pub(super) newly_lost: u32,
    pub(super) is_last: bool,
}

impl PendingReports {
    pub(super) fn note(&mut self, segment: u32, blocks: u32, run: &[Arrival]) {
        let known = run.iter().map(|arrival| arrival.block.index).filter(|index| *index < blocks);
        for index in known {
            let cells = || vec![0; blocks.div_ceil(CELL) as usize];
            let open =
                self.open.entry(segment).or_insert_with(|| Open { reach: 0, lost_to: cells() });
            open.reach = open.reach.max(index + 1);
            self.changed.insert((segment, index / CELL), REPEATS);
        }
    }

    pub(super) fn set_whole(&mut self, segment: u32) {
        self.open.remove(&segment);
        self.changed.retain(|(of, _), _| *of != segment);
        self.note_whole(segment);
    }

    pub(super) fn note_whole(&mut self, segment: u32) {
        self.changed.insert((segment, 0), REPEATS);
    }

    /// Begins an acknowledgement. With `again`, it also reports the cell whose turn it is, changed
    /// or not. If no block of this cell or of a later cell has arrived, the turn passes to the next
    /// segment, and this acknowledgement reports only changed cells.
    pub(super) fn begin(&mut self, again: bool) {
        self.continues_at = Some((0, 0));
        let from = self.turn.0;
        let next = self.open.range(from..).next().or_else(|| self.open.iter().next());
        let Some((&segment, open)) = next.filter(|_| again) else { return };
        let cell = if segment == from { self.turn.1 } else { 0 };
        let is_within = u64::from(cell) * u64::from(CELL) < u64::from(open.reach);
        if is_within {
            self.turn = (segment, cell);
            self.changed.entry(self.turn).or_insert(1);
        } else {
            self.turn = (segment.wrapping_add(1), 0);
        }
    }

    /// Number of missing blocks among a segment's `blocks` that were counted as lost.
    pub(super) fn lost_in(&self, tallies: &Tallies, segment: u32, blocks: Range<u32>) -> u64 {
        let Some(open) = self.open.get(&segment) else { return 0 };
        let cells = blocks.start / CELL..blocks.end.div_ceil(CELL);
        let counted = cells.map(|cell| {
            let start = blocks.start.max(cell * CELL);
            tallies.missing_in(segment, start..blocks.end.min(open.lost_to[cell as usize]))
        });
        counted.map(u64::from).sum()
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.continues_at.is_some()
    }

    pub(super) fn next(&mut self, tallies: &Tallies, layout: &Layout) -> Option<Message> {
        let from = self.continues_at?;
        let Some((&(segment, cell), _)) = self.changed.range(from..).next() else {
            self.continues_at = None;
            return None;
        };
        let mut newly_lost = 0;
        let (report, covered) = match (tallies.tally(segment), self.open.get_mut(&segment)) {
            (Some(tally), Some(open)) => {
                let report = open.report(segment, cell, tally);
                newly_lost = open.count_lost(&report, tally);
                let end = report.slice().end.div_ceil(CELL);
                (report, cell..end)
            }
            _ => {
                let all = 0..layout.blocks_in(segment);
                (Report::fill(segment, 0, all, core::iter::empty()), 0..u32::MAX)
            }
        };
        let (start, end) = ((segment, covered.start), (segment, covered.end));
        let reported: Vec<(u32, u32)> =
            self.changed.range(start..end).map(|(cell, _)| *cell).collect();
        for cell in reported {
            if let Entry::Occupied(mut left) = self.changed.entry(cell) {
                *left.get_mut() -= 1;
                if *left.get() == 0 {
                    left.remove();
                }
            }
        }
        if (start..end).contains(&self.turn) {
            self.turn = end;
        }
        let is_last = self.changed.range(end..).next().is_none();
        self.continues_at = Some(end).filter(|_| !is_last);
        Some(Message { report, newly_lost, is_last })
    }
}

impl Open {
    /// Returns a report on the cells from `cell` on, as many as a message holds. The report ends at
    /// `reach` or at the end of a cell.
    fn report(&self, segment: u32, cell: u32, tally: &Tally) -> Report {
        let from = cell * CELL;
        let to = self.reach.min(from.saturating_add(CELL * SPAN));
        let fill = |to| Report::fill(segment, 0, from..to, tally.missing(from..to));
        let report = fill(to);
        let end = report.slice().end;
        if end == to { report } else { fill(end / CELL * CELL) }
    }

    /// Number of missing blocks that are named for the first time.
    fn count_lost(&mut self, report: &Report, tally: &Tally) -> u32 {
        let slice = report.slice();
        let mut lost = 0;
        for cell in slice.start / CELL..slice.end.div_ceil(CELL) {
            let known = &mut self.lost_to[cell as usize];
            let end = slice.end.min((cell + 1).saturating_mul(CELL));
            lost += tally.missing_in((*known).max(cell * CELL)..end);
            *known = end.max(*known);
        }
        lost
    }
}
