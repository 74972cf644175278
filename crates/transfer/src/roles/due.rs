//! Counts the blocks (payloads of one datagram) that have to arrive. A block need not arrive if the
//! destination has it already, or if its bytes are known without sending: padding, and holes of
//! files.

use std::ops::Range;

use longhaul_proto::layout::Layout;
use longhaul_proto::ranges::RangeSet;

use crate::write::skip::{blocks_of, blocks_within};

/// The chunks that had to arrive in at least one pass (a run over the missing chunks).
#[derive(Debug, Default)]
pub(super) struct Due(RangeSet);

impl Due {
    pub(super) fn add(&mut self, chunks: &[Range<u64>]) {
        for chunks in chunks {
            self.0.insert(chunks.clone());
        }
    }

    /// Removes chunks that turned out to be unnecessary.
    pub(super) fn spare(&mut self, chunks: &[Range<u64>]) {
        for chunks in chunks {
            self.0.remove(chunks.clone());
        }
    }

    /// Returns the number of blocks in these chunks. Blocks that lie within `implied` do not count:
    /// these byte ranges of the object are padding or holes, and are never sent.
    pub(super) fn blocks(&self, layout: &Layout, implied: &[Range<u64>]) -> u64 {
        let mut blocks = RangeSet::new();
        for run in self.0.iter().flat_map(|chunks| blocks_of(layout, chunks)) {
            blocks.insert(run.numbers(layout));
        }
        for run in implied.iter().flat_map(|bytes| blocks_within(layout, bytes.clone())) {
            blocks.remove(run.numbers(layout));
        }
        blocks.count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_proto::units::Bytes;

    #[test]
    fn each_due_block_counts_once_and_spared_or_implied_blocks_do_not_count() {
        // With blocks of 400 bytes, nine chunks have three blocks each, and the last has one.
        let (object, chunk) = (Bytes::new(9_400), Bytes::new(1_000));
        let layout = Layout::new(object, Bytes::ZERO, chunk, 400).unwrap();
        let mut due = Due::default();
        due.add(&[1..3, 5..10]);
        assert_eq!(due.blocks(&layout, &[]), 6 * 3 + 1);
        due.spare(&[2..3, 7..8]);
        // Another pass sends chunk 1 again, and chunk 2, which was spared before.
        due.add(&[1..2, 2..3]);
        assert_eq!(due.blocks(&layout, &[]), 5 * 3 + 1);
        // The implied bytes are two whole blocks of chunk 5, and chunk 3, which is not due.
        assert_eq!(due.blocks(&layout, &[5_400..6_000, 3_000..4_000]), 5 * 3 + 1 - 2);
    }
}
