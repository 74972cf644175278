//! A map of the chunks of an object that are at its destination, for displays.

use std::ops::Range;

/// Maximum number of cells of a map. In an object of fewer chunks, each chunk is a cell.
const CELLS: u64 = 256;

/// Counts the chunks that have arrived in each of at most [`CELLS`] cells of an object. The cells
/// have the same number of chunks, or differ by one.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChunkMap {
    chunks: u64,
    arrived: Vec<u64>,
}

impl ChunkMap {
    /// The map of an object. The chunks in `have` are at the destination already.
    pub(crate) fn new(chunks: u64, have: &[Range<u64>]) -> ChunkMap {
        let mut map = ChunkMap { chunks, arrived: vec![0; chunks.min(CELLS) as usize] };
        have.iter().for_each(|range| map.add(range.clone()));
        map
    }

    fn first(&self, cell: usize) -> u64 {
        let product = cell as u128 * u128::from(self.chunks);
        product.div_ceil(self.arrived.len().max(1) as u128) as u64
    }

    fn cell(&self, chunk: u64) -> usize {
        let product = u128::from(chunk) * self.arrived.len() as u128;
        (product / u128::from(self.chunks.max(1))) as usize
    }

    /// Chunks beyond the object do not count.
    pub(crate) fn add(&mut self, range: Range<u64>) {
        let mut at = range.start;
        let end = range.end.min(self.chunks);
        while at < end {
            let cell = self.cell(at);
            let next = self.first(cell + 1).min(end);
            self.arrived[cell] += next - at;
            at = next;
        }
    }

    /// Returns for each cell how many per cent of its chunks have arrived, rounded down. Empty
    /// if the object is empty or not known yet.
    pub(crate) fn percents(&self) -> Vec<u8> {
        let percent = |(cell, arrived): (usize, &u64)| {
            let all = self.first(cell + 1) - self.first(cell);
            (u128::from(*arrived) * 100 / u128::from(all.max(1))).min(100) as u8
        };
        self.arrived.iter().enumerate().map(percent).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_chunk_has_one_cell_and_a_whole_object_fills_all_cells() {
        for chunks in [1, 2, 255, 256, 257, 1000, u64::MAX] {
            let mut map = ChunkMap::new(chunks, &[]);
            assert_eq!(map.percents(), vec![0; chunks.min(256) as usize]);
            let half = chunks / 2;
            map.add(0..half);
            map.add(half..chunks);
            assert_eq!(map.percents(), vec![100; chunks.min(256) as usize], "{chunks} chunks");
        }
    }

    #[test]
    fn existing_and_arriving_chunks_count_only_in_their_own_cells() {
        // Each of the 256 cells stands for four chunks.
        let mut map = ChunkMap::new(1024, &[0..4, 1022..1024]);
        map.add(5..6);
        let percents = map.percents();
        assert_eq!((percents[0], percents[1], percents[255]), (100, 25, 50));
        assert!(percents[2..255].iter().all(|share| *share == 0));
    }

    #[test]
    fn an_unknown_or_empty_object_has_no_cells_and_chunks_beyond_an_objects_end_do_not_count() {
        let mut unknown = ChunkMap::default();
        unknown.add(0..9);
        assert!(unknown.percents().is_empty());
        let mut map = ChunkMap::new(3, &[]);
        map.add(2..u64::MAX);
        map.add(7..8);
        assert_eq!(map.percents(), [0, 0, 100]);
    }
}
