//! Assigns the missing chunks of one object to its replicas, the sources that have this object.
//!
//! A missing chunk is either open or leased to a source. Sources that are known at the start get
//! equal leases. A source that has finished its lease gets open chunks. If no chunk is open, the
//! source gets chunks from the end of another source's lease: as many as let both sources finish at
//! the same time. The speeds of the sources therefore need not be known at the start, and may
//! change. Near the end, a lease may be too short to divide. Then the last chunks of a slow source
//! are leased a second time, and the first arrival counts.
//!
//! When a source leaves, the chunks of its lease become open. An idle source may take the whole
//! lease of a silent source.

use std::collections::BTreeMap;
use std::ops::Range;

use longhaul_proto::ranges::RangeSet;

/// If a source has fewer than twice this many chunks that no other source has leased, these chunks
/// are leased a second time, not divided.
const TAIL: u64 = 4;
/// The minimum and the maximum share of a lease that another source may take.
const PARTS: (f64, f64) = (1.0 / 16.0, 15.0 / 16.0);
/// The lowest rate that is assumed for a source, in chunks per second.
const LEAST: f64 = 0.01;

#[derive(Debug, Default)]
pub(crate) struct Leases {
    open: RangeSet,
    /// The number of expected sources that have not asked for a lease yet.
    expected: u64,
    /// Chunks that are leased a second time.
    twice: RangeSet,
    sources: BTreeMap<usize, Lease>,
}

#[derive(Debug, Default)]
struct Lease {
    chunks: RangeSet,
    /// The source's recent rate in chunks a second; `None` before the first measurement.
    rate: Option<f64>,
    silent: bool,
    /// Whether the source has asked for a lease before.
    known: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) chunks: Vec<Range<u64>>,
    /// Chunks taken from the leases of other sources.
    pub(crate) taken: Vec<(usize, Vec<Range<u64>>)>,
}

impl Leases {
    /// Returns leases in which all of `missing` is open.
    pub(crate) fn new(missing: impl IntoIterator<Item = Range<u64>>) -> Leases {
        let mut leases = Leases::default();
        for chunks in missing {
            leases.open.insert(chunks);
        }
        leases
    }

    /// Reserves an equal part of the open chunks for each of `sources` sources.
    pub(crate) fn expect(self, sources: usize) -> Leases {
        Leases { expected: sources as u64, ..self }
    }

    pub(crate) fn join(&mut self, source: usize) {
        self.leave(source);
        self.sources.insert(source, Lease::default());
    }

    /// Removes a source. Its remaining chunks become open, unless another source has them too.
    pub(crate) fn leave(&mut self, source: usize) {
        let Some(left) = self.sources.remove(&source) else { return };
        for run in left.chunks.iter() {
            for alone in gaps(&self.twice, run.clone()) {
                self.open.insert(alone);
            }
            self.twice.remove(run);
        }
    }

    pub(crate) fn set_silent(&mut self, source: usize, silent: bool) {
        if let Some(lease) = self.sources.get_mut(&source) {
            lease.silent = silent;
        }
    }

    pub(crate) fn set_rate(&mut self, source: usize, rate: f64) {
        if let Some(lease) = self.sources.get_mut(&source) {
            lease.rate = Some(rate.max(LEAST));
        }
    }

    /// Removes a chunk that is written or no longer needed. Returns the sources that had leased it.
    pub(crate) fn settle(&mut self, chunk: u64) -> Vec<usize> {
        let chunk = chunk..chunk + 1;
        self.open.remove(chunk.clone());
        self.twice.remove(chunk.clone());
        let had = self.sources.iter_mut();
        let had = had.filter_map(|(source, lease)| {
            (lease.chunks.remove(chunk.clone()) > 0).then_some(*source)
        });
        had.collect()
    }

    pub(crate) fn reopen(&mut self, chunk: u64) {
        self.open.insert(chunk..chunk + 1);
    }

    pub(crate) fn is_idle(&self, source: usize) -> bool {
        self.sources.get(&source).is_some_and(|lease| lease.chunks.is_empty() && !lease.silent)
    }

    /// Leases chunks to an idle source. Returns `None` if the source is busy or silent, or no chunk
    /// is left for it.
    pub(crate) fn next(&mut self, source: usize) -> Option<Given> {
        if !self.is_idle(source) {
            return None;
        }
        let lease = self.sources.get_mut(&source)?;
        if !std::mem::replace(&mut lease.known, true) {
            self.expected = self.expected.saturating_sub(1);
        }
        let given = self.take_open().or_else(|| self.take_from_others(source))?;
        let lease = self.sources.get_mut(&source)?;
        for chunks in &given.chunks {
            lease.chunks.insert(chunks.clone());
        }
        Some(given)
    }

    /// Takes open chunks, except the parts reserved for expected sources.
    fn take_open(&mut self) -> Option<Given> {
        let part = self.open.count().div_ceil(self.expected + 1);
        let chunks = first(&self.open, part);
        for run in &chunks {
            self.open.remove(run.clone());
        }
        (!chunks.is_empty()).then(|| Given { chunks, taken: Vec::new() })
    }

    /// Takes chunks from the lease that would finish last; if it has none to give, from the next.
    fn take_from_others(&mut self, source: usize) -> Option<Given> {
        let usual = self.usual_rate();
        let own = self.sources.get(&source)?.rate.unwrap_or(usual);
        let mut others: Vec<(usize, f64)> = Vec::new();
        for (other, lease) in &self.sources {
            let time = match lease.silent {
                true => f64::INFINITY,
                false => lease.chunks.count() as f64 / lease.rate.unwrap_or(usual),
            };
            if *other != source && !lease.chunks.is_empty() {
                others.push((*other, time));
            }
        }
        others.sort_by(|a, b| b.1.total_cmp(&a.1));
        others.into_iter().find_map(|(other, time)| match time.is_infinite() {
            true => self.take_all(other),
            false => self.take_end(other, own, usual),
        })
    }

    /// Returns the mean of the known rates in chunks a second; 1 if none is known.
    fn usual_rate(&self) -> f64 {
        let known: Vec<f64> = self.sources.values().filter_map(|lease| lease.rate).collect();
        match known.len() {
            0 => 1.0,
            count => known.iter().sum::<f64>() / count as f64,
        }
    }

    /// Takes the chunks of a silent source that no live source has leased.
    fn take_all(&mut self, from: usize) -> Option<Given> {
        let mut left = self.sources.get(&from)?.chunks.clone();
        for lease in self.sources.values().filter(|lease| !lease.silent) {
            lease.chunks.iter().for_each(|run| {
                left.remove(run);
            });
        }
        let chunks: Vec<Range<u64>> = left.iter().collect();
        let mut taken = Vec::new();
        for (source, lease) in self.sources.iter_mut().filter(|(_, lease)| lease.silent) {
            let had: Vec<_> =
                chunks.iter().flat_map(|run| lease.chunks.within(run.clone())).collect();
            for run in &had {
                lease.chunks.remove(run.clone());
            }
            if !had.is_empty() {
                taken.push((*source, had));
            }
        }
        for run in &chunks {
            self.twice.remove(run.clone());
        }
        (!chunks.is_empty()).then_some(Given { chunks, taken })
    }

    /// Takes the end of a lease, or duplicates a short one.
    fn take_end(&mut self, from: usize, own: f64, usual: f64) -> Option<Given> {
        let lease = self.sources.get_mut(&from)?;
        let rate = lease.rate.unwrap_or(usual);
        let alone: Vec<Range<u64>> =
            lease.chunks.iter().flat_map(|run| gaps(&self.twice, run)).collect();
        let count: u64 = alone.iter().map(|run| run.end - run.start).sum();
        let knows_better = lease.rate.is_some() && own <= rate;
        if count >= 2 * TAIL {
            let part = (own / (own + rate)).clamp(PARTS.0, PARTS.1);
            let chunks = last(&alone, ((count as f64 * part) as u64).max(1));
            for run in &chunks {
                lease.chunks.remove(run.clone());
            }
            return Some(Given { taken: vec![(from, chunks.clone())], chunks });
        }
        // A source that is no faster would not finish earlier.
        if count == 0 || knows_better {
            return None;
        }
        for run in &alone {
            self.twice.insert(run.clone());
        }
        Some(Given { chunks: alone, taken: Vec::new() })
    }
}

fn gaps(set: &RangeSet, range: Range<u64>) -> Vec<Range<u64>> {
    set.gaps(range).collect()
}

/// Returns the first `count` numbers of `set`.
fn first(set: &RangeSet, mut count: u64) -> Vec<Range<u64>> {
    let mut out = Vec::new();
    for range in set.iter() {
        let take = count.min(range.end - range.start);
        if take == 0 {
            break;
        }
        count -= take;
        out.push(range.start..range.start + take);
    }
    out
}

/// Returns the last `count` numbers of ascending ranges.
fn last(ranges: &[Range<u64>], mut count: u64) -> Vec<Range<u64>> {
    let mut out = Vec::new();
    for range in ranges.iter().rev() {
        let take = count.min(range.end - range.start);
        count -= take;
        if take > 0 {
            out.push(range.end - take..range.end);
        }
    }
    out.reverse();
    out
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "the list has one run")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn leases(chunks: u64, sources: usize) -> Leases {
        let mut leases = Leases::new([0..chunks]);
        (0..sources).for_each(|source| leases.join(source));
        leases
    }

    fn given(leases: &mut Leases, source: usize) -> Vec<Range<u64>> {
        leases.next(source).map(|given| given.chunks).unwrap_or_default()
    }

    fn bring(leases: &mut Leases, chunks: Range<u64>) {
        chunks.for_each(|chunk| {
            leases.settle(chunk);
        });
    }

    #[test]
    fn the_first_source_takes_all_and_a_later_one_takes_half_of_the_longest_lease() {
        let mut leases = leases(100, 3);
        assert_eq!(given(&mut leases, 0), [0..100]);
        assert_eq!(leases.next(0), None);
        let second = leases.next(1).unwrap();
        assert_eq!(second.chunks, [50..100]);
        assert_eq!(second.taken, [(0, vec![50..100])]);
        assert_eq!(given(&mut leases, 2), [25..50]);
    }

    #[test]
    fn a_chunk_lost_by_a_failed_sync_is_leased_again() {
        let mut leases = leases(4, 2);
        assert_eq!(given(&mut leases, 0), [0..4]);
        bring(&mut leases, 0..4);
        assert_eq!(leases.next(1), None);
        leases.reopen(2);
        assert_eq!(given(&mut leases, 1), [2..3]);
    }

    #[test]
    fn expected_sources_begin_with_equal_parts_and_absent_ones_cause_no_delay() {
        let mut leases = leases(100, 3).expect(3);
        let parts = [0, 1, 2].map(|source| given(&mut leases, source));
        assert_eq!(parts, [[0..34], [34..67], [67..100]]);
        let mut leases = self::leases(100, 2).expect(3);
        assert_eq!(given(&mut leases, 0), [0..34]);
        assert_eq!(given(&mut leases, 1), [34..67]);
        bring(&mut leases, 0..34);
        // The third source is absent. Each further lease takes half of the chunks that are left of
        // the third source's part.
        assert_eq!(given(&mut leases, 0), [67..84]);
        bring(&mut leases, 34..84);
        assert_eq!((given(&mut leases, 0), given(&mut leases, 1)), (vec![84..92], vec![92..96]));
    }

    #[test]
    fn a_fast_source_takes_so_many_chunks_of_a_slow_one_that_both_finish_together() {
        let mut leases = leases(100, 2);
        given(&mut leases, 0);
        given(&mut leases, 1);
        leases.set_rate(0, 1.0);
        leases.set_rate(1, 9.0);
        bring(&mut leases, 50..100);
        bring(&mut leases, 0..10);
        // The first source keeps a tenth of the 40 chunks that are left.
        assert_eq!(given(&mut leases, 1), [14..50]);
    }

    #[test]
    fn only_a_faster_source_gets_a_second_lease_of_the_last_chunks_of_a_slow_source() {
        let mut leases = leases(6, 3);
        given(&mut leases, 0);
        leases.set_rate(0, 1.0);
        leases.set_rate(1, 10.0);
        leases.set_rate(2, 0.5);
        assert_eq!(leases.next(2), None);
        let again = leases.next(1).unwrap();
        assert_eq!((again.chunks, again.taken), (vec![0..6], Vec::new()));
        assert_eq!(leases.settle(3), [0, 1]);
        // No chunk is leased a third time.
        leases.set_rate(2, 100.0);
        assert_eq!(leases.next(2), None);
    }

    #[test]
    fn idle_sources_get_the_leases_of_dead_and_silent_ones() {
        let mut leases = leases(100, 3);
        given(&mut leases, 0);
        given(&mut leases, 1);
        leases.leave(0);
        assert_eq!(given(&mut leases, 2), [0..50]);
        leases.set_silent(1, true);
        bring(&mut leases, 0..50);
        let taken = leases.next(2).unwrap();
        assert_eq!((taken.chunks, taken.taken), (vec![50..100], vec![(1, vec![50..100])]));
        // The source recovers and takes part again.
        assert!(!leases.is_idle(1));
        leases.set_silent(1, false);
        assert_eq!(given(&mut leases, 1), [75..100]);
    }

    #[test]
    fn chunks_leased_to_two_silent_sources_are_leased_again() {
        let mut leases = leases(4, 3);
        given(&mut leases, 0);
        assert_eq!(given(&mut leases, 1), [0..4]);
        leases.set_silent(0, true);
        leases.set_silent(1, true);
        assert_eq!(given(&mut leases, 2), [0..4]);
    }

    impl Leases {
        /// Checks that each missing chunk is open, or leased once or twice, and that no other chunk
        /// is open or leased.
        fn check(&self, missing: &[bool]) -> Result<(), TestCaseError> {
            for (chunk, missing) in missing.iter().enumerate() {
                let chunk = chunk as u64;
                let owners = self.sources.values().filter(|lease| lease.chunks.contains(chunk));
                let (owners, open) = (owners.count(), self.open.contains(chunk));
                prop_assert_eq!(self.twice.contains(chunk), owners == 2);
                prop_assert!(owners <= 2 && !(open && owners > 0));
                prop_assert_eq!(*missing, open || owners > 0, "chunk {}", chunk);
            }
            Ok(())
        }
    }

    proptest! {
        #[test]
        fn every_chunk_is_delivered_while_one_source_lives(
            chunks in 1usize..200,
            steps in prop::collection::vec((0usize..4, 0u8..7, 0u64..1_000), 0..300),
        ) {
            let mut leases = Leases::new([0..chunks as u64]).expect(3);
            let mut missing = vec![true; chunks];
            for (source, what, number) in steps {
                match what {
                    0 => leases.join(source),
                    1 => leases.leave(source),
                    2 => leases.set_silent(source, number % 2 == 0),
                    3 => leases.set_rate(source, number as f64 / 100.0),
                    4 => {
                        let chunk = number as usize % chunks;
                        missing[chunk] = false;
                        leases.settle(chunk as u64);
                    }
                    _ => {
                        leases.next(source);
                    }
                }
                leases.check(&missing)?;
            }
            // If all other sources are silent, a new source gets all missing chunks.
            (0..4).for_each(|source| leases.set_silent(source, true));
            leases.join(9);
            while let Some(given) = leases.next(9) {
                for chunk in given.chunks.into_iter().flatten() {
                    missing[chunk as usize] = false;
                    leases.settle(chunk);
                }
                leases.check(&missing)?;
            }
            prop_assert!(missing.iter().all(|missing| !missing));
        }
    }
}
