//! How an object is divided: object → segments → chunks → blocks, and the position of each block.
//!
//! A *block* is the payload of one datagram. A *chunk* is the unit that is hashed, written to disk,
//! and recorded as written. Blocks never straddle chunks: all blocks have the same size except the
//! last of each chunk. A *segment* is a sequence of chunks that a protocol transfers like a
//! separate object. Segments are numbered from the start of the object.

use crate::units::Bytes;

/// A block's position: its segment, and its index within the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block {
    /// The segment, counted from the start of the object.
    pub segment: u32,
    /// The block within the segment.
    pub index: u32,
}

/// The position of a block's payload in the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes from the start of the object.
    pub offset: u64,
    /// Length in bytes; at least 1.
    pub len: u32,
}

/// Why sizes do not form a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// Block size zero, or larger than a chunk.
    BlockSize,
    /// Chunk size zero, or the object rounded up to whole chunks exceeds 2⁶⁴ − 1 bytes.
    ChunkSize,
    /// The segment is not a multiple of the chunk.
    SegmentSize,
    /// 2³² or more segments, or 2³² or more blocks in one segment.
    TooMany,
}

/// The division of an object into segments, chunks and blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    object: u64,
    segment: u64,
    chunk: u64,
    block: u32,
    blocks_per_chunk: u32,
    blocks_per_segment: u32,
    segments: u32,
}

impl Layout {
    /// Divides `object` into segments of `segment` bytes, each segment into chunks of `chunk`
    /// bytes, and each chunk into blocks of `block` bytes.
    ///
    /// A `segment` of zero means a single segment: the whole object, rounded up to whole chunks. So
    /// does a `segment` that is larger than the rounded object.
    ///
    /// # Errors
    /// [`LayoutError`] names the size or number that is out of its limits.
    pub fn new(
        object: Bytes,
        segment: Bytes,
        chunk: Bytes,
        block: u32,
    ) -> Result<Layout, LayoutError> {
        let (object, chunk) = (object.get(), chunk.get());
        if chunk == 0 {
            return Err(LayoutError::ChunkSize);
        }
        if block == 0 || u64::from(block) > chunk {
            return Err(LayoutError::BlockSize);
        }
        let whole = object.div_ceil(chunk).max(1).checked_mul(chunk);
        let whole = whole.ok_or(LayoutError::ChunkSize)?;
        let segment = if segment == Bytes::ZERO { whole } else { segment.get().min(whole) };
        if !segment.is_multiple_of(chunk) {
            return Err(LayoutError::SegmentSize);
        }
        let blocks_per_chunk = chunk.div_ceil(u64::from(block));
        let blocks_per_segment =
            blocks_per_chunk.checked_mul(segment / chunk).ok_or(LayoutError::TooMany)?;
        Ok(Layout {
            object,
            segment,
            chunk,
            block,
            blocks_per_chunk: u32::try_from(blocks_per_chunk).map_err(|_| LayoutError::TooMany)?,
            blocks_per_segment: u32::try_from(blocks_per_segment)
                .map_err(|_| LayoutError::TooMany)?,
            segments: u32::try_from(object.div_ceil(segment)).map_err(|_| LayoutError::TooMany)?,
        })
    }

    /// An object in one segment and one chunk, as in the papers' experiments.
    ///
    /// # Errors
    /// [`LayoutError`] if `block` is zero, or there are too many blocks.
    pub fn whole(object: Bytes, block: u32) -> Result<Layout, LayoutError> {
        let chunk = Bytes::new(object.get().max(u64::from(block)));
        Layout::new(object, Bytes::ZERO, chunk, block)
    }

    /// The object's size.
    pub fn object(&self) -> Bytes {
        Bytes::new(self.object)
    }

    /// The size of every segment but the last.
    pub fn segment_size(&self) -> Bytes {
        Bytes::new(self.segment)
    }

    /// The size of every chunk but the last.
    pub fn chunk_size(&self) -> Bytes {
        Bytes::new(self.chunk)
    }

    /// The size of every block but the last of each chunk.
    pub fn block_size(&self) -> u32 {
        self.block
    }

    /// Number of segments; zero if the object is empty.
    pub fn segments(&self) -> u32 {
        self.segments
    }

    /// Number of chunks.
    pub fn chunks(&self) -> u64 {
        self.object.div_ceil(self.chunk)
    }

    /// Number of blocks in `segment`; zero beyond the object.
    pub fn blocks_in(&self, segment: u32) -> u32 {
        if segment >= self.segments {
            return 0;
        }
        if segment < self.segments - 1 {
            return self.blocks_per_segment;
        }
        let rest = self.object - u64::from(segment) * self.segment;
        let (full, tail) = (rest / self.chunk, rest % self.chunk);
        // No overflow: the block count of a full segment fits.
        full as u32 * self.blocks_per_chunk + tail.div_ceil(u64::from(self.block)) as u32
    }

    /// Number of blocks of the object.
    pub fn blocks(&self) -> u64 {
        match self.segments {
            0 => 0,
            n => self.number(Block { segment: n - 1, index: 0 }) + u64::from(self.blocks_in(n - 1)),
        }
    }

    /// The block's number in the whole object, as in the header of a datagram.
    pub fn number(&self, block: Block) -> u64 {
        u64::from(block.segment) * u64::from(self.blocks_per_segment) + u64::from(block.index)
    }

    /// The block with this number, if the object has it.
    pub fn block(&self, number: u64) -> Option<Block> {
        let per = u64::from(self.blocks_per_segment);
        let segment = u32::try_from(number / per).ok()?;
        let index = (number % per) as u32;
        (index < self.blocks_in(segment)).then_some(Block { segment, index })
    }

    /// The chunk that contains `block`.
    pub fn chunk_of(&self, block: Block) -> u64 {
        u64::from(block.segment) * (self.segment / self.chunk)
            + u64::from(block.index / self.blocks_per_chunk)
    }

    /// The first block of `chunk` and the number of its blocks; zero blocks if the object has no
    /// such chunk.
    pub fn blocks_of_chunk(&self, chunk: u64) -> (Block, u32) {
        let per_segment = self.segment / self.chunk;
        let segment = u32::try_from(chunk / per_segment).unwrap_or(u32::MAX);
        let index = (chunk % per_segment) as u32 * self.blocks_per_chunk;
        let left = self.blocks_in(segment).saturating_sub(index);
        (Block { segment, index }, left.min(self.blocks_per_chunk))
    }

    /// The position of `block` in the object. The block must belong to the layout.
    pub fn extent(&self, block: Block) -> Extent {
        let chunk = u64::from(block.index / self.blocks_per_chunk);
        let within = u64::from(block.index % self.blocks_per_chunk) * u64::from(self.block);
        let start = u64::from(block.segment) * self.segment + chunk * self.chunk;
        let offset = start + within;
        let end = offset.saturating_add(u64::from(self.block));
        let end = end.min(start + self.chunk).min(self.object);
        Extent { offset, len: end.saturating_sub(offset) as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn layout(object: u64, segment: u64, chunk: u64, block: u32) -> Layout {
        Layout::new(Bytes::new(object), Bytes::new(segment), Bytes::new(chunk), block).unwrap()
    }

    fn all_blocks(layout: &Layout) -> Vec<Block> {
        (0..layout.blocks()).map(|n| layout.block(n).unwrap()).collect()
    }

    #[test]
    fn an_empty_object_has_no_blocks() {
        let layout = layout(0, 0, 1 << 20, 1440);
        assert_eq!((layout.blocks(), layout.segments(), layout.chunks()), (0, 0, 0));
        assert_eq!(layout.block(0), None);
    }

    #[test]
    fn beyond_the_object_there_are_no_blocks() {
        let layout = layout(10_000, 2_000, 1_000, 100);
        for segment in [5, 6, u32::MAX - 1, u32::MAX] {
            assert_eq!(layout.blocks_in(segment), 0, "segment {segment}");
        }
        for chunk in [10, 11, u64::from(u32::MAX), u64::MAX] {
            assert_eq!(layout.blocks_of_chunk(chunk).1, 0, "chunk {chunk}");
        }
    }

    #[test]
    fn only_block_numbers_below_the_block_count_are_valid() {
        let many = layout(u64::from(u32::MAX) << 32, 1 << 32, 1 << 20, 1 << 10);
        let large = layout(u64::MAX, u64::MAX / 3, u64::MAX / 3, u32::MAX - 1);
        let small = layout(10_000, 2_000, 1_000, 100);
        for layout in [small, layout(1, 0, 1 << 20, 1440), many, large] {
            let beyond = layout.blocks();
            assert!(layout.block(beyond - 1).is_some());
            for number in [beyond, u64::from(u32::MAX) * 4096, u64::MAX - 1, u64::MAX] {
                let block = layout.block(number);
                assert_eq!(block.is_some(), number < beyond, "block {number} of {layout:?}");
            }
            let per = u64::from(layout.blocks_in(0));
            for segment in [u32::MAX - 1, u32::MAX] {
                let number = u64::from(segment) * per;
                assert_eq!(layout.block(number).is_some(), number < beyond);
            }
            let last = layout.block(beyond - 1).unwrap();
            let extent = layout.extent(last);
            assert_eq!(extent.offset + u64::from(extent.len), layout.object().get());
            assert_eq!(layout.blocks_of_chunk(layout.chunks()).1, 0);
            assert_eq!(layout.blocks_of_chunk(u64::MAX).1, 0);
        }
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused() {
        let new = |s, c, b| Layout::new(Bytes::new(10_000), Bytes::new(s), Bytes::new(c), b);
        assert_eq!(new(0, 0, 1), Err(LayoutError::ChunkSize));
        assert_eq!(new(0, 100, 0), Err(LayoutError::BlockSize));
        assert_eq!(new(0, 100, 101), Err(LayoutError::BlockSize));
        assert_eq!(new(150, 100, 10), Err(LayoutError::SegmentSize));
    }

    #[test]
    fn a_billion_blocks_fit_one_segment() {
        let layout = Layout::whole(Bytes::new(1_000_000_000 * 1440), 1440).unwrap();
        assert_eq!(layout.blocks(), 1_000_000_000);
    }

    proptest! {
        #[test]
        fn blocks_tile_the_object(
            object in 0u64..200_000, chunks in 1u64..6, chunk in 1u64..5_000, block in 1u32..2_000,
        ) {
            prop_assume!(u64::from(block) <= chunk);
            let layout = layout(object, chunks * chunk, chunk, block);
            let mut at = 0;
            for block in all_blocks(&layout) {
                let extent = layout.extent(block);
                prop_assert_eq!(extent.offset, at);
                prop_assert!(extent.len > 0);
                at += u64::from(extent.len);
                let chunk = layout.chunk_of(block);
                prop_assert_eq!(chunk, extent.offset / layout.chunk_size().get());
                let (first, count) = layout.blocks_of_chunk(chunk);
                prop_assert_eq!(first.segment, block.segment);
                prop_assert!((first.index..first.index + count).contains(&block.index));
                prop_assert_eq!(layout.block(layout.number(block)), Some(block));
            }
            prop_assert_eq!(at, object);
            prop_assert_eq!(layout.block(layout.blocks()), None);
        }
    }
}
