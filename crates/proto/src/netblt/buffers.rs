//! The division of an object into buffers; sender and receiver compute the same division.

use core::ops::Range;

use super::BUFFER;
use crate::endpoint::Setup;
use crate::layout::{Block, Layout};

/// By default a buffer is one of this many parts of the object, but at least [`LEAST`] blocks. A
/// buffer is never larger than a segment.
const PARTS: u64 = 8;
/// Minimum number of blocks in a buffer by default. The last buffer of a segment may have fewer.
const LEAST: u64 = 64;

/// Buffers of blocks: all of one size except the last of each segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffers {
    layout: Layout,
    /// Blocks in a buffer.
    size: u32,
    /// Buffers in every segment except the last.
    per_segment: u64,
}

impl Buffers {
    pub(super) fn new(setup: &Setup) -> Buffers {
        let layout = setup.layout;
        let segment = u64::from(layout.blocks_in(0).max(1));
        let blocks = match setup.settings.count(&BUFFER) {
            0 => layout.blocks().div_ceil(PARTS).max(LEAST),
            blocks => blocks,
        };
        // A buffer has at most the blocks of a segment, and their number fits in 32 bits.
        let size = blocks.clamp(1, segment) as u32;
        let per_segment = segment.div_ceil(u64::from(size));
        Buffers { layout, size, per_segment }
    }

    pub(super) fn count(&self) -> u64 {
        let Some(last) = self.layout.segments().checked_sub(1) else { return 0 };
        let blocks = self.layout.blocks_in(last);
        u64::from(last) * self.per_segment + u64::from(blocks.div_ceil(self.size))
    }

    pub(super) fn of(&self, block: Block) -> u64 {
        u64::from(block.segment) * self.per_segment + u64::from(block.index / self.size)
    }

    /// The segment and the blocks of a buffer; `None` beyond the object.
    pub(super) fn place(&self, buffer: u64) -> Option<(u32, Range<u32>)> {
        let segment = u32::try_from(buffer / self.per_segment).ok()?;
        // A buffer starts within its segment, so the product fits.
        let start = (buffer % self.per_segment) as u32 * self.size;
        let end = start.saturating_add(self.size).min(self.layout.blocks_in(segment));
        (start < end).then_some((segment, start..end))
    }

    /// The buffers that hold any of a segment's `blocks`.
    pub(super) fn touching(&self, segment: u32, blocks: Range<u32>) -> Range<u64> {
        let first = self.of(Block { segment, index: blocks.start });
        let last = self.of(Block { segment, index: blocks.end.max(1) - 1 });
        first..last + 1
    }
}
