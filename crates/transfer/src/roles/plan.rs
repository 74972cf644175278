//! The other end's plan, received in slices: chunks of data and entries (files, folders, links)
//! that need not be sent.
//!
//! An honest plan names each chunk and each entry at most once, and asks for a limited number of
//! comparisons. A longer plan is refused, because it might never end.

use std::ops::Range;

use crate::error::{Error, ErrorKind};
use crate::write::skip::{tidy, without};

/// The ranges of a plan are merged when their number has doubled since the last merge, but only
/// above this number.
const UNTIDY: usize = 1 << 12;

pub(super) struct PlanSoFar {
    /// Chunks that the other end has.
    pub(super) have: Vec<Range<u64>>,
    /// Entries that the other end skips.
    pub(super) skipped: Vec<Range<u64>>,
    /// Whether the plan asks for comparisons of chunks.
    pub(super) asks: bool,
    pub(super) complete: bool,
    chunks: u64,
    entries: u64,
    /// Maximum number of ranges and comparisons in the rest of an honest plan.
    left: u64,
}

impl PlanSoFar {
    pub(super) fn new(chunks: u64, entries: u64) -> PlanSoFar {
        // A chunk of several small files is compared once for each file. So there are at most as
        // many comparisons as chunks and entries together. The last slice is empty, and counts as
        // one name.
        let left = chunks.saturating_add(entries).saturating_mul(2).saturating_add(1);
        let (have, skipped) = (Vec::new(), Vec::new());
        PlanSoFar { have, skipped, asks: false, complete: false, chunks, entries, left }
    }

    /// Adds a slice that also asks to compare `asked` chunks. Repeated slices take limited memory.
    pub(super) fn add(
        &mut self,
        have: Vec<Range<u64>>,
        skipped: Vec<Range<u64>>,
        asked: u64,
    ) -> Result<(), Error> {
        let named = (have.len() + skipped.len()) as u64 + asked;
        // An empty slice counts as one name, so that endless empty slices are refused too.
        let left = self.left.checked_sub(named.max(1));
        self.left = left.ok_or_else(|| self.endless())?;
        self.asks |= asked > 0;
        for (all, more) in [(&mut self.have, have), (&mut self.skipped, skipped)] {
            let room = all.capacity();
            all.extend(more);
            if all.len() > room.max(UNTIDY) {
                *all = tidy(std::mem::take(all));
                // Limit the capacity to twice the number of merged ranges: merging keeps the old
                // capacity, which would otherwise grow without limit.
                let room = 2 * all.len().max(UNTIDY);
                all.shrink_to(room);
                all.reserve_exact(room - all.len());
            }
        }
        Ok(())
    }

    /// Adds chunks that are no longer needed. Returns only the newly added chunks.
    pub(super) fn add_needless(&mut self, chunks: Vec<Range<u64>>) -> Vec<Range<u64>> {
        self.have = tidy(std::mem::take(&mut self.have));
        let new = without(&tidy(chunks), &self.have);
        self.have.extend(new.iter().cloned());
        self.have = tidy(std::mem::take(&mut self.have));
        new
    }

    pub(super) fn complete(&mut self) {
        self.complete = true;
        self.have = tidy(std::mem::take(&mut self.have));
        self.skipped = tidy(std::mem::take(&mut self.skipped));
    }

    fn endless(&self) -> Error {
        let what = format!(
            "the other side's plan has no end: it names more than the object has (chunks: {}, \
             entries: {})",
            self.chunks, self.entries
        );
        Error::new(ErrorKind::Unfinished, what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(at: u64) -> Vec<Range<u64>> {
        std::iter::once(at..at + 1).collect()
    }

    #[test]
    fn an_honest_plan_whose_ranges_cannot_be_merged_is_accepted() {
        let mut plan = PlanSoFar::new(1_000, 300);
        // Every other chunk exists, every other entry is skipped, everything else is compared.
        (0..500).for_each(|n| plan.add(one(2 * n), Vec::new(), 1).unwrap());
        (0..150).for_each(|n| plan.add(Vec::new(), one(2 * n), 1).unwrap());
        plan.add(Vec::new(), Vec::new(), 0).unwrap();
        plan.complete();
        assert_eq!((plan.have.len(), plan.skipped.len()), (500, 150));
    }

    #[test]
    fn an_endless_plan_is_refused_whatever_its_slices_contain() {
        type Slice = fn(&mut PlanSoFar) -> Result<(), Error>;
        let slices: [Slice; 4] = [
            |plan| plan.add(one(7), Vec::new(), 0),
            |plan| plan.add(Vec::new(), one(7), 0),
            |plan| plan.add(Vec::new(), Vec::new(), 256),
            |plan| plan.add(Vec::new(), Vec::new(), 0),
        ];
        for add in slices {
            let mut plan = PlanSoFar::new(1 << 16, 1 << 16);
            let error = (0..10_000_000).find_map(|_| add(&mut plan).err());
            let error = error.expect("it ends");
            assert!(error.what.contains("has no end") && error.what.contains("65536"), "{error}");
            assert!(plan.have.capacity() + plan.skipped.capacity() < 8 * UNTIDY);
        }
    }

    #[test]
    fn repeated_needless_chunks_are_ignored() {
        let mut plan = PlanSoFar::new(100, 0);
        plan.add(vec![30..40, 10..20], Vec::new(), 0).unwrap();
        assert_eq!(plan.add_needless(vec![35..45, 5..12]), [5..10, 40..45]);
        for _ in 0..3 {
            assert_eq!(plan.add_needless(vec![5..20, 30..45]), []);
        }
        assert_eq!(plan.have, [5..20, 30..45]);
        assert_eq!(plan.add_needless(vec![40..46, 5..6]), [Range { start: 45, end: 46 }]);
    }
}
