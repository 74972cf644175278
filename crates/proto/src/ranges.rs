//! A set of numbers as sorted, disjoint runs: skipped blocks, loss lists, coverage of reports.

use alloc::collections::BTreeMap;
use core::ops::Range;

/// A set of `u64`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// Start and end of each run; runs neither overlap nor touch.
    runs: BTreeMap<u64, u64>,
    count: u64,
}

impl RangeSet {
    /// The empty set.
    pub const fn new() -> RangeSet {
        RangeSet { runs: BTreeMap::new(), count: 0 }
    }

    /// Adds `range`; returns how many of its numbers were new.
    pub fn insert(&mut self, range: Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let (mut start, mut end) = (range.start, range.end);
        let before = self.count;
        // Starts at the last run that begins at or before the end; goes back while runs touch.
        while let Some((&run_start, &run_end)) = self.runs.range(..=end).next_back() {
            if run_end < start {
                break;
            }
            start = start.min(run_start);
            end = end.max(run_end);
            self.runs.remove(&run_start);
            self.count -= run_end - run_start;
        }
        self.runs.insert(start, end);
        self.count += end - start;
        self.count - before
    }

    /// Removes `range`; returns how many of its numbers were in the set.
    pub fn remove(&mut self, range: Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let before = self.count;
        // Starts at the last run that begins before the end; goes back while runs overlap.
        while let Some((&start, &end)) = self.runs.range(..range.end).next_back() {
            if end <= range.start {
                break;
            }
            self.runs.remove(&start);
            self.count -= end - start;
            for (start, end) in [(start, range.start.min(end)), (range.end.max(start), end)] {
                if start < end {
                    self.runs.insert(start, end);
                    self.count += end - start;
                }
            }
            if start < range.start {
                break;
            }
        }
        before - self.count
    }

    /// Removes and returns the first run.
    pub fn pop_first(&mut self) -> Option<Range<u64>> {
        let (start, end) = self.runs.pop_first()?;
        self.count -= end - start;
        Some(start..end)
    }

    /// Whether `number` is in the set.
    pub fn contains(&self, number: u64) -> bool {
        self.run_at(number).is_some()
    }

    /// Whether all of `range` is in the set.
    pub fn covers(&self, range: Range<u64>) -> bool {
        range.is_empty() || self.run_at(range.start).is_some_and(|run| run.end >= range.end)
    }

    /// The run that contains `number`.
    pub fn run_at(&self, number: u64) -> Option<Range<u64>> {
        let (&start, &end) = self.runs.range(..=number).next_back()?;
        (number < end).then_some(start..end)
    }

    /// The first gap of the set within `range`, if there is one.
    pub fn first_gap(&self, range: Range<u64>) -> Option<Range<u64>> {
        let start = self.run_at(range.start).map_or(range.start, |run| run.end);
        if start >= range.end {
            return None;
        }
        let next = self.runs.range(start..).next().map_or(range.end, |(&next, _)| next);
        Some(start..next.min(range.end))
    }

    /// The gaps of the set within `range`, in order.
    pub fn gaps(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let mut at = range.start;
        core::iter::from_fn(move || {
            let gap = self.first_gap(at..range.end)?;
            at = gap.end;
            Some(gap)
        })
    }

    /// The members of the set within `range`, as runs in order.
    pub fn within(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let first = self.run_at(range.start).map_or(range.start, |run| run.start);
        self.runs
            .range(first..range.end.max(first))
            .map(move |(&start, &end)| start.max(range.start)..end.min(range.end))
    }

    /// Number of members.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The runs, in order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.runs.iter().map(|(&start, &end)| start..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_range_set_answers_as_a_plain_set_does(
            steps in prop::collection::vec((0u8..4, 0u64..200, 0u64..20), 0..40),
            from in 0u64..220, len in 0u64..60,
        ) {
            let (mut set, mut model) = (RangeSet::new(), BTreeSet::new());
            for (kind, start, len) in steps {
                let (before, range) = (model.len(), start..start + len);
                if kind > 0 {
                    model.extend(range.clone());
                    prop_assert_eq!(set.insert(range), (model.len() - before) as u64);
                } else {
                    model.retain(|n| !range.contains(n));
                    prop_assert_eq!(set.remove(range), (before - model.len()) as u64);
                }
            }
            prop_assert_eq!(set.count(), model.len() as u64);
            prop_assert_eq!(set.is_empty(), model.is_empty());
            prop_assert!((0..230).all(|n| set.contains(n) == model.contains(&n)));
            let listed: Vec<u64> = set.iter().flatten().collect();
            prop_assert_eq!(listed, model.iter().copied().collect::<Vec<_>>());
            let window = from..from + len;
            let inside: Vec<u64> = set.within(window.clone()).flatten().collect();
            let expected: Vec<u64> = window.clone().filter(|n| model.contains(n)).collect();
            prop_assert_eq!(inside, expected);
            prop_assert_eq!(set.covers(window.clone()), window.clone().all(|n| model.contains(&n)));
            let gap = window.clone().find(|n| !model.contains(n)).map(|start| {
                let end = (start..window.end).find(|n| model.contains(n)).unwrap_or(window.end);
                start..end
            });
            prop_assert_eq!(set.first_gap(window.clone()), gap);
            let outside: Vec<u64> = set.gaps(window.clone()).flatten().collect();
            let expected: Vec<u64> = window.filter(|n| !model.contains(n)).collect();
            prop_assert_eq!(outside, expected);
            let runs: Vec<_> = set.iter().collect();
            prop_assert!(runs.windows(2).all(|pair| pair[0].end < pair[1].start));
            let popped: Vec<_> = core::iter::from_fn(|| set.pop_first()).collect();
            prop_assert_eq!((popped, set.count()), (runs, 0));
        }
    }
}
