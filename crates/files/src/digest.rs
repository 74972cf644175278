//! Values of chunks, and their merge into the hash that `b3sum` prints. The value of a chunk is its
//! hash or its chaining value in the tree of BLAKE3.
//!
//! BLAKE3 is a tree over pieces of 1024 bytes. The number of pieces in a node's left subtree is the
//! largest power of two that leaves a piece for the right subtree (BLAKE3 paper, section 2.1). So
//! each aligned mebibyte (a chunk) is a subtree, whose value follows from its bytes and its offset.
//! The root follows from these values.

use std::collections::BTreeMap;

use blake3::hazmat::{HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};

use super::CHUNK;

/// A BLAKE3 hash or chaining value.
pub type Digest = [u8; 32];

/// Returns the value of a chunk of packed files (small files that share a chunk) or of the encoded
/// manifest: the plain hash.
pub(crate) fn packed_value(content: &[u8]) -> Digest {
    ChunkHasher::packed().value_of(content)
}

/// Returns the value of chunk `chunk` (numbered from the start of the file) of a file of
/// `file_size` bytes. If the file has only this chunk, the value is the root hash; otherwise it is
/// the chaining value of the chunk's subtree. `content` must be the chunk's whole content.
pub fn file_value(file_size: u64, chunk: u64, content: &[u8]) -> Digest {
    ChunkHasher::new(file_size, chunk).value_of(content)
}

/// Computes the value of a chunk from the parts of its content, given in order.
#[derive(Debug)]
pub(crate) struct ChunkHasher {
    hasher: blake3::Hasher,
    is_root: bool,
}

impl ChunkHasher {
    /// For the value of [`packed_value`].
    pub(crate) fn packed() -> ChunkHasher {
        ChunkHasher { hasher: blake3::Hasher::new(), is_root: true }
    }

    /// For the value of [`file_value`].
    pub(crate) fn new(file_size: u64, chunk: u64) -> ChunkHasher {
        if file_size <= CHUNK { ChunkHasher::packed() } else { ChunkHasher::subtree(chunk) }
    }

    fn subtree(chunk: u64) -> ChunkHasher {
        let mut hasher = blake3::Hasher::new();
        hasher.set_input_offset(chunk * CHUNK);
        ChunkHasher { hasher, is_root: false }
    }

    pub(crate) fn update(&mut self, part: &[u8]) {
        self.hasher.update(part);
    }

    pub(crate) fn value(&self) -> Digest {
        match self.is_root {
            true => *self.hasher.finalize().as_bytes(),
            false => self.hasher.finalize_non_root(),
        }
    }

    fn value_of(mut self, content: &[u8]) -> Digest {
        self.update(content);
        self.value()
    }
}

/// Merges the values of a file's chunks, given in any order, into the file's root.
///
/// Aligned pairs merge as soon as both are present, so chunks in order need O(log n) memory.
#[derive(Clone, Debug)]
pub struct RootBuilder {
    chunks: u64,
    given: u64,
    /// The values of subtrees by level and number. A subtree starts with chunk `number << level`.
    subtrees: BTreeMap<(u32, u64), Digest>,
}

impl RootBuilder {
    /// Returns a builder for a file of `file_size` bytes.
    pub fn new(file_size: u64) -> RootBuilder {
        RootBuilder { chunks: file_size.div_ceil(CHUNK), given: 0, subtrees: BTreeMap::new() }
    }

    /// Adds the value of chunk `chunk`. Give each chunk once; a chunk outside of the file is
    /// ignored.
    pub fn give(&mut self, chunk: u64, value: Digest) {
        if chunk >= self.chunks {
            return;
        }
        self.given += 1;
        let (mut level, mut number, mut value) = (0, chunk, value);
        // A pair that reaches the end of the file may be the root, which has a different merge, so
        // `root` merges these pairs.
        while ((number >> 1) + 1) << (level + 1) < self.chunks
            && let Some(sibling) = self.subtrees.remove(&(level, number ^ 1))
        {
            let (left, right) = if number & 1 == 0 { (value, sibling) } else { (sibling, value) };
            value = merge_subtrees_non_root(&left, &right, Mode::Hash);
            (level, number) = (level + 1, number >> 1);
        }
        self.subtrees.insert((level, number), value);
    }

    /// Returns whether every chunk has been given.
    pub fn is_complete(&self) -> bool {
        self.given >= self.chunks
    }

    /// Returns the file's BLAKE3 hash; `None` if a chunk is missing.
    pub fn root(&self) -> Option<Digest> {
        if !self.is_complete() {
            return None;
        }
        // From left to right, no remaining subtree is larger than the one before. Merge them from
        // the right.
        let mut spine: Vec<(u64, Digest)> =
            self.subtrees.iter().map(|((level, n), value)| (n << level, *value)).collect();
        spine.sort_unstable_by_key(|(start, _)| *start);
        let Some((_, mut right)) = spine.pop() else {
            return Some(packed_value(&[]));
        };
        while let Some((_, left)) = spine.pop() {
            right = match spine.is_empty() {
                true => *merge_subtrees_root(&left, &right, Mode::Hash).as_bytes(),
                false => merge_subtrees_non_root(&left, &right, Mode::Hash),
            };
        }
        Some(right)
    }
}

/// Returns the value of chunk `chunk` of a stream that is longer than one chunk.
pub fn stream_value(chunk: u64, content: &[u8]) -> Digest {
    ChunkHasher::subtree(chunk).value_of(content)
}

/// Merges the values of a stream's chunks into the stream's root. The merge at the root differs
/// from other merges, so a chunk is merged only when the next chunk has arrived.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamRoot {
    /// The number of the first missing chunk.
    next: u64,
    early: BTreeMap<u64, Digest>,
    /// The value of chunk `next - 1`, which is not merged yet.
    held: Option<Digest>,
    /// The values of the subtrees of all chunks before chunk `next - 1`, the largest subtree first.
    /// The sizes of the subtrees, in chunks, are the powers of two that add up to `next - 1`.
    subtrees: Vec<Digest>,
}

impl StreamRoot {
    /// Adds the value of chunk `chunk`. A repeated chunk changes nothing.
    pub(crate) fn give(&mut self, chunk: u64, value: Digest) {
        if chunk < self.next {
            return;
        }
        self.early.entry(chunk).or_insert(value);
        while let Some(value) = self.early.remove(&self.next) {
            if let Some(held) = self.held.replace(value) {
                self.merge(held);
            }
            self.next += 1;
        }
    }

    fn merge(&mut self, mut value: Digest) {
        for _ in 0..self.next.trailing_zeros() {
            let Some(left) = self.subtrees.pop() else { break };
            value = merge_subtrees_non_root(&left, &value, Mode::Hash);
        }
        self.subtrees.push(value);
    }

    pub(crate) fn has(&self, chunk: u64) -> bool {
        chunk < self.next || self.early.contains_key(&chunk)
    }

    /// Returns the number of chunks before the first missing chunk.
    pub(crate) fn chunks(&self) -> u64 {
        self.next
    }

    /// Returns the stream's BLAKE3 hash; `None` if chunks are missing, or for a single chunk.
    pub(crate) fn root(&self) -> Option<Digest> {
        let mut right = self.held.filter(|_| self.early.is_empty() && self.next > 1)?;
        for (number, left) in self.subtrees.iter().enumerate().rev() {
            right = match number {
                0 => *merge_subtrees_root(left, &right, Mode::Hash).as_bytes(),
                _ => merge_subtrees_non_root(left, &right, Mode::Hash),
            };
        }
        Some(right)
    }
}

/// The BLAKE3 hash over a sequence of values, which may arrive in any order.
#[derive(Clone, Debug, Default)]
pub(crate) struct SequenceHasher {
    hasher: blake3::Hasher,
    next: u64,
    early: BTreeMap<u64, Digest>,
}

impl SequenceHasher {
    pub(crate) fn give(&mut self, number: u64, value: Digest) {
        if number < self.next {
            return;
        }
        self.early.insert(number, value);
        while let Some(value) = self.early.remove(&self.next) {
            self.hasher.update(&value);
            self.next += 1;
        }
    }

    /// Returns the hash, if exactly the first `count` values have been given.
    pub(crate) fn finish(&self, count: u64) -> Option<Digest> {
        (self.next == count && self.early.is_empty()).then(|| *self.hasher.finalize().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn content(len: u64) -> Vec<u8> {
        (0..len).map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
    }

    fn root_in_order(content: &[u8], order: impl Iterator<Item = u64>) -> Option<Digest> {
        let size = content.len() as u64;
        let mut builder = RootBuilder::new(size);
        for chunk in order {
            let end = ((chunk + 1) * CHUNK).min(size);
            let piece = &content[(chunk * CHUNK) as usize..end as usize];
            builder.give(chunk, file_value(size, chunk, piece));
        }
        builder.root()
    }

    #[test]
    fn the_root_of_a_stream_is_its_blake3_hash_in_any_order_of_chunks() {
        for len in [CHUNK + 1, 2 * CHUNK, 3 * CHUNK, 4 * CHUNK, 7 * CHUNK + 5, 8 * CHUNK] {
            let content: Vec<u8> = (0..len).map(|at| (at * 7 / 5) as u8).collect();
            let values: Vec<Digest> = content
                .chunks(CHUNK as usize)
                .enumerate()
                .map(|(chunk, content)| stream_value(chunk as u64, content))
                .collect();
            let chunks = values.len();
            // Give the chunks in strides of `step`, which visit each chunk once.
            for step in [1, 3, chunks - 1]
                .into_iter()
                .filter(|step| !chunks.is_multiple_of(*step) || *step == 1)
            {
                let mut root = StreamRoot::default();
                for number in (0..chunks).map(|number| number * step % chunks) {
                    root.give(number as u64, values[number]);
                }
                root.give(0, [9; 32]);
                assert_eq!(root.root(), Some(*blake3::hash(&content).as_bytes()), "{len} {step}");
            }
        }
        let mut gap = StreamRoot::default();
        gap.give(1, [1; 32]);
        assert_eq!((gap.root(), gap.chunks()), (None, 0));
        assert_eq!([0, 1, 2].map(|chunk| gap.has(chunk)), [false, true, false]);
        gap.give(0, [0; 32]);
        assert_eq!([0, 1, 2].map(|chunk| gap.has(chunk)), [true, true, false]);
        assert_eq!(gap.chunks(), 2);
    }

    #[test]
    fn the_root_is_what_b3sum_prints_at_every_power_of_two() {
        let all = content((8 << 20) + 1);
        let sizes = (0..=23).flat_map(|power| {
            let size = 1u64 << power;
            [size - 1, size, size + 1]
        });
        for size in sizes.chain([3 * CHUNK, 5 * CHUNK + 7, 7 * CHUNK - 1]) {
            let content = &all[..size as usize];
            let chunks = size.div_ceil(CHUNK);
            let plain = *blake3::hash(content).as_bytes();
            assert_eq!(root_in_order(content, 0..chunks), Some(plain), "{size} bytes");
            assert_eq!(root_in_order(content, (0..chunks).rev()), Some(plain), "{size} bytes");
        }
    }

    #[test]
    fn a_missing_chunk_means_no_root() {
        assert_eq!(root_in_order(&content(3 * CHUNK), [0, 2].into_iter()), None);
    }

    #[test]
    fn memory_stays_logarithmic_if_chunks_come_in_order() {
        let mut builder = RootBuilder::new((1 << 20) * CHUNK);
        for chunk in 0..1 << 20 {
            builder.give(chunk, [0; 32]);
            // One subtree for each power of two below 2^20, and the last chunk.
            assert!(builder.subtrees.len() <= 21);
        }
        assert!(builder.root().is_some());
    }

    #[test]
    fn a_sequence_hashes_the_same_in_any_order() {
        let (mut forth, mut back) = (SequenceHasher::default(), SequenceHasher::default());
        for n in 0..5u64 {
            forth.give(n, [n as u8; 32]);
            back.give(4 - n, [4 - n as u8; 32]);
        }
        assert!(forth.finish(5).is_some());
        assert_eq!(forth.finish(5), back.finish(5));
        assert_eq!(forth.finish(4), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn any_order_gives_the_same_root(chunks in 1u64..200, seed in any::<u64>()) {
            let value = |n: u64| *blake3::hash(&n.to_le_bytes()).as_bytes();
            let mut order: Vec<u64> = (0..chunks).collect();
            order.sort_by_key(|n| blake3::hash(&(n ^ seed).to_le_bytes()).as_bytes().to_owned());
            let (mut sorted, mut mixed) =
                (RootBuilder::new(chunks * CHUNK), RootBuilder::new(chunks * CHUNK));
            (0..chunks).for_each(|n| sorted.give(n, value(n)));
            order.into_iter().for_each(|n| mixed.give(n, value(n)));
            prop_assert_eq!(sorted.root(), mixed.root());
            prop_assert!(sorted.root().is_some());
        }
    }

    #[test]
    fn a_chunk_outside_of_the_file_is_ignored() {
        let mut builder = RootBuilder::new(2 * CHUNK);
        builder.give(2, [2; 32]);
        builder.give(0, [0; 32]);
        assert!(!builder.is_complete() && builder.root().is_none());
        builder.give(1, [1; 32]);
        assert!(builder.is_complete() && builder.root().is_some());
    }

    #[test]
    fn no_root_is_merged_for_a_stream_of_one_chunk() {
        let mut one = StreamRoot::default();
        one.give(0, [1; 32]);
        assert_eq!(one.root(), None);
    }
}
