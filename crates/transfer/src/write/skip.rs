//! Finds the blocks that the receiver has already. A block is the payload of one datagram.

use std::ops::Range;

use longhaul_proto::endpoint::BlockRange;
use longhaul_proto::layout::Layout;

/// Returns the blocks that lie completely within `bytes` of the object, as runs (consecutive blocks
/// of one segment).
pub(crate) fn blocks_within(layout: &Layout, bytes: Range<u64>) -> Vec<BlockRange> {
    let first = number_at(layout, bytes.start, u64::div_ceil);
    let end = if bytes.end >= layout.object().get() {
        layout.blocks()
    } else {
        number_at(layout, bytes.end, |within, block| within / block)
    };
    runs(layout, first..end)
}

pub(crate) fn blocks_of(layout: &Layout, chunks: Range<u64>) -> Vec<BlockRange> {
    let size = layout.chunk_size().get();
    blocks_within(layout, chunks.start.saturating_mul(size)..chunks.end.saturating_mul(size))
}

/// Returns the number of the block at `offset`. `round` divides the position in the chunk by the
/// block size, and rounds up or down.
fn number_at(layout: &Layout, offset: u64, round: fn(u64, u64) -> u64) -> u64 {
    let offset = offset.min(layout.object().get());
    let size = layout.chunk_size().get();
    let (chunk, within) = (offset / size, offset % size);
    let (block, count) = layout.blocks_of_chunk(chunk);
    if count == 0 {
        return layout.blocks();
    }
    let steps = round(within, u64::from(layout.block_size())).min(u64::from(count));
    layout.number(block) + steps
}

/// Returns block numbers as runs within segments.
fn runs(layout: &Layout, numbers: Range<u64>) -> Vec<BlockRange> {
    let mut runs = Vec::new();
    let mut at = numbers.start;
    while at < numbers.end {
        let Some(first) = layout.block(at) else { break };
        let left = u64::from(layout.blocks_in(first.segment) - first.index);
        let count = left.min(numbers.end - at);
        runs.push(BlockRange { first, count: count as u32 });
        at += count;
    }
    runs
}

/// Returns the numbers in `ranges` as ascending ranges that neither overlap nor touch.
pub(crate) fn tidy(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_by_key(|range| range.start);
    ranges.dedup_by(|next, last| {
        let touches = next.start <= last.end;
        if touches {
            last.end = last.end.max(next.end);
        }
        touches
    });
    ranges
}

/// Returns `ranges` without `others`; each list must be ascending and disjoint.
pub(crate) fn without(ranges: &[Range<u64>], others: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut left = Vec::new();
    let mut first = 0;
    for range in ranges {
        let mut at = range.start;
        while others.get(first).is_some_and(|other| other.end <= range.start) {
            first += 1;
        }
        for other in others[first..].iter().take_while(|other| other.start < range.end) {
            if other.start > at {
                left.push(at..other.start);
            }
            at = at.max(other.end);
        }
        if at < range.end {
            left.push(at..range.end);
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_proto::units::Bytes;
    use proptest::prelude::*;

    fn ranges(steps: &[(u64, u64)]) -> Vec<Range<u64>> {
        let mut end = 0;
        steps
            .iter()
            .map(|(gap, len)| {
                let start = end + gap;
                end = start + len;
                start..end
            })
            .collect()
    }

    proptest! {
        #[test]
        fn tidied_ranges_have_the_same_numbers_and_do_not_touch(
            all in prop::collection::vec((0u64..60, 0u64..9), 0..12),
        ) {
            let all: Vec<_> = all.into_iter().map(|(start, len)| start..start + len).collect();
            let expected: std::collections::BTreeSet<u64> = all.iter().cloned().flatten().collect();
            let tidied = tidy(all);
            prop_assert!(tidied.windows(2).all(|pair| pair[0].end < pair[1].start));
            prop_assert!(tidied.into_iter().flatten().eq(expected));
        }

        #[test]
        fn without_removes_exactly_the_other_set(
            a in prop::collection::vec((0u64..9, 1u64..9), 0..9),
            b in prop::collection::vec((0u64..9, 1u64..9), 0..9),
        ) {
            let (a, b) = (ranges(&a), ranges(&b));
            let expected: Vec<u64> =
                a.iter().cloned().flatten().filter(|n| !b.iter().any(|o| o.contains(n))).collect();
            let left: Vec<u64> = without(&a, &b).into_iter().flatten().collect();
            prop_assert_eq!(left, expected);
        }

        #[test]
        fn exactly_the_blocks_within_the_bytes_are_skipped(
            object in 1u64..60_000, chunks in 1u64..5, chunk in 1u64..4_000, block in 1u32..900,
            a in 0u64..60_000, b in 0u64..60_000,
        ) {
            prop_assume!(u64::from(block) <= chunk);
            let segment = Bytes::new(chunks * chunk);
            let layout =
                Layout::new(Bytes::new(object), segment, Bytes::new(chunk), block).unwrap();
            let bytes = a.min(b)..a.max(b);
            let mut skipped = Vec::new();
            for run in blocks_within(&layout, bytes.clone()) {
                for index in run.first.index..run.first.index + run.count {
                    skipped.push((run.first.segment, index));
                }
            }
            let inside: Vec<_> = (0..layout.blocks())
                .filter_map(|number| layout.block(number))
                .filter(|block| {
                    let extent = layout.extent(*block);
                    let end = extent.offset + u64::from(extent.len);
                    bytes.start <= extent.offset && end <= bytes.end.min(object)
                })
                .map(|block| (block.segment, block.index))
                .collect();
            prop_assert_eq!(skipped, inside);
        }
    }
}
