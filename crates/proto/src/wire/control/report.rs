//! A report: which blocks of a slice (range of blocks) of a segment are missing, as runs or as a
//! bitmap.

use alloc::vec::Vec;
use core::ops::Range;

use super::WireError;
use super::runs::{self, MAX_MISSING};
use crate::wire::messages;

/// Largest slice of a report with a bitmap, in blocks. A report with runs, or with nothing missing,
/// may cover any number of blocks.
const BITMAP_BLOCKS: u32 = MAX_MISSING as u32 * 8;

/// Missing blocks of a slice of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    segment: u32,
    round: u32,
    slice: Range<u32>,
    missing: Vec<Range<u32>>,
}

impl Report {
    /// The longest report on `missing` that fits into one message. The report covers `slice` or the
    /// beginning of `slice`; the next report starts at the end of [`Report::slice`].
    ///
    /// `missing` returns the missing blocks within `slice` in order, in disjoint runs.
    pub fn fill(
        segment: u32,
        round: u32,
        slice: Range<u32>,
        missing: impl Iterator<Item = Range<u32>>,
    ) -> Report {
        let mut report = Report { segment, round, slice: slice.clone(), missing: Vec::new() };
        // The end of the largest bitmap.
        let mapped = slice.start.saturating_add(BITMAP_BLOCKS).min(slice.end);
        let (mut size, mut at) = (0, slice.start);
        for run in missing {
            size += runs::len(at.into(), &wide(&run));
            at = run.end;
            if size <= MAX_MISSING {
                report.missing.push(run);
            } else if run.start < mapped {
                report.missing.push(run.start..run.end.min(mapped));
            } else {
                break;
            }
        }
        if size > MAX_MISSING {
            let listed = report.missing.last().map_or(slice.start, |run| run.end);
            report.slice.end = listed.max(mapped);
        }
        report
    }

    /// The segment.
    pub fn segment(&self) -> u32 {
        self.segment
    }

    /// The round of the DONE (the sender's message at the end of a round) that this report answers;
    /// 0 if it answers none. In [`Resend`](super::Resend): the number of requests for the buffer so
    /// far.
    pub fn round(&self) -> u32 {
        self.round
    }

    /// The blocks covered by the report.
    pub fn slice(&self) -> Range<u32> {
        self.slice.clone()
    }

    /// The missing blocks of the slice, in order, in disjoint runs.
    pub fn missing(&self) -> &[Range<u32>] {
        &self.missing
    }

    /// Number of missing blocks.
    pub fn count(&self) -> u32 {
        self.missing.iter().map(|run| run.end - run.start).sum()
    }

    pub(super) fn to_wire(&self) -> messages::Report {
        let mut runs = runs::write(self.slice.start.into(), self.missing.iter().map(wide));
        let count = self.slice.end - self.slice.start;
        let mut bitmap = Vec::new();
        if (count as usize).div_ceil(8) < runs.len() {
            bitmap.resize((count as usize).div_ceil(8), 0);
            for block in self.missing.iter().cloned().flatten() {
                let bit = block - self.slice.start;
                bitmap[bit as usize / 8] |= 1 << (bit % 8);
            }
            runs.clear();
        }
        let (segment, round, first) = (self.segment, self.round, self.slice.start);
        messages::Report { segment, round, first, count, runs, bitmap }
    }

    pub(super) fn from_wire(wire: messages::Report) -> Result<Report, WireError> {
        let end = wire.first.checked_add(wire.count).ok_or(WireError::Range)?;
        if wire.count == 0 {
            return Err(WireError::Range);
        }
        let missing = match (wire.runs.is_empty(), wire.bitmap.is_empty()) {
            (_, true) => {
                let runs = runs::read(&wire.runs, wire.first.into()..end.into())?;
                runs.into_iter().map(|run| run.start as u32..run.end as u32).collect()
            }
            (true, false) => read_bitmap(&wire.bitmap, wire.first, end)?,
            (false, false) => return Err(WireError::Range),
        };
        Ok(Report { segment: wire.segment, round: wire.round, slice: wire.first..end, missing })
    }
}

fn read_bitmap(bytes: &[u8], first: u32, end: u32) -> Result<Vec<Range<u32>>, WireError> {
    if bytes.len() != ((end - first) as usize).div_ceil(8) {
        return Err(WireError::Range);
    }
    let mut runs: Vec<Range<u32>> = Vec::new();
    for (index, byte) in bytes.iter().enumerate() {
        for bit in (0..8).filter(|bit| byte & (1 << bit) != 0) {
            let offset = (index * 8 + bit) as u32;
            if offset >= end - first {
                return Err(WireError::Range);
            }
            let block = first + offset;
            match runs.last_mut() {
                Some(run) if run.end == block => run.end += 1,
                _ => runs.push(block..block + 1),
            }
        }
    }
    Ok(runs)
}

fn wide(run: &Range<u32>) -> Range<u64> {
    run.start.into()..run.end.into()
}
