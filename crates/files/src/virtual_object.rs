//! The virtual object that a protocol moves: a manifest's files, one after the other.
//!
//! The object starts with the encoded manifest, unless the manifest travels on the control stream.
//! The files follow in the manifest's order. A large file (of at least [`LARGE`](crate::LARGE)
//! bytes, or copied alone) starts on a chunk boundary. Consecutive small files are packed without
//! gaps, and the first of them starts on a chunk boundary. The space before such a boundary is
//! padding. Padding and holes are never sent. The object ends where its last file ends.

use std::ops::Range;
use std::sync::Arc;

use super::{CHUNK, Manifest};

/// The part of a file that is in one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The number of the file's entry in the manifest.
    pub entry: u32,
    /// Bytes from the start of the file.
    pub file_offset: u64,
    /// Bytes from the start of the chunk.
    pub chunk_offset: usize,
    /// Length in bytes; at least 1.
    pub len: usize,
}

/// The kind of a chunk's content, which decides how the chunk's value is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkKind {
    /// The encoded manifest.
    Manifest,
    /// One large file.
    Large {
        /// The number of the file's entry in the manifest.
        entry: u32,
        /// The number of the chunk within the file.
        chunk: u64,
    },
    /// One or more small files.
    Packed,
}

/// The places of all files of a manifest.
#[derive(Clone, Debug)]
pub struct VirtualObject {
    manifest: Arc<Manifest>,
    prefix: u64,
    len: u64,
    /// The files with content, in order, and their offsets.
    files: Vec<(u32, u64)>,
}

impl VirtualObject {
    /// Lays out `manifest`. The first `manifest_prefix_len` bytes, rounded up to whole chunks, are
    /// for the encoded manifest; zero if the manifest is sent separately.
    pub fn new(manifest: &Arc<Manifest>, manifest_prefix_len: u64) -> VirtualObject {
        let mut end = manifest_prefix_len;
        let mut after_large = true;
        let mut files = Vec::new();
        for (number, entry) in manifest.entries().iter().enumerate() {
            let (number, size) = (number as u32, entry.size().unwrap_or(0));
            if size == 0 {
                continue;
            }
            let large = manifest.is_large(number);
            if large || after_large {
                end = end.next_multiple_of(CHUNK);
            }
            files.push((number, end));
            end += size;
            after_large = large;
        }
        files.shrink_to_fit();
        VirtualObject { manifest: manifest.clone(), prefix: manifest_prefix_len, len: end, files }
    }

    /// Returns the length in bytes, including padding and holes.
    #[expect(clippy::len_without_is_empty, reason = "a length in bytes, not a collection")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns the number of chunks.
    pub fn chunks(&self) -> u64 {
        self.len.div_ceil(CHUNK)
    }

    /// Returns the manifest of the object's files.
    pub fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    /// Returns the number of chunks at the start that hold the encoded manifest.
    pub fn manifest_chunks(&self) -> u64 {
        self.prefix.div_ceil(CHUNK)
    }

    /// Returns the length of chunk `chunk` in bytes, including holes, without the padding at its
    /// end. Zero outside of the object.
    pub fn chunk_content(&self, chunk: u64) -> usize {
        if chunk < self.manifest_chunks() {
            return (self.prefix - chunk * CHUNK).min(CHUNK) as usize;
        }
        let last = self.extents(chunk).last();
        last.map_or(0, |extent| extent.chunk_offset + extent.len)
    }

    /// Returns the kind of chunk `chunk`; `None` outside of the object.
    pub fn chunk_kind(&self, chunk: u64) -> Option<ChunkKind> {
        if chunk < self.manifest_chunks() {
            return Some(ChunkKind::Manifest);
        }
        let first = self.extents(chunk).next()?;
        Some(match self.manifest.is_large(first.entry) {
            true => ChunkKind::Large { entry: first.entry, chunk: first.file_offset / CHUNK },
            false => ChunkKind::Packed,
        })
    }

    /// Returns the parts of files in chunk `chunk`, in order; none in the manifest's chunks and
    /// outside of the object.
    pub fn extents(&self, chunk: u64) -> impl Iterator<Item = Extent> + '_ {
        let start = chunk.saturating_mul(CHUNK);
        let end = start.saturating_add(CHUNK).min(self.len);
        let first = self.files.partition_point(|file| self.end_of(file) <= start);
        let files = self.files[first..].iter().take_while(move |(_, at)| *at < end);
        files.map(move |file @ (entry, at)| {
            let from = start.max(*at);
            let to = end.min(self.end_of(file));
            Extent {
                entry: *entry,
                file_offset: from - at,
                chunk_offset: (from - start) as usize,
                len: (to - from) as usize,
            }
        })
    }

    /// Returns the chunks that hold entry `entry`; an empty range for an entry without content.
    pub fn chunks_of(&self, entry: u32) -> Range<u64> {
        match self.files.binary_search_by_key(&entry, |(number, _)| *number) {
            Ok(at) => {
                let (start, end) = (self.files[at].1, self.end_of(&self.files[at]));
                start / CHUNK..end.div_ceil(CHUNK)
            }
            Err(_) => 0..0,
        }
    }

    /// Returns the chunks that hold entry `entry`, without its holes.
    pub(crate) fn content_runs(&self, entry: u32) -> impl Iterator<Item = Range<u64>> + '_ {
        let chunks = self.chunks_of(entry);
        let (first, len) = (chunks.start, chunks.end - chunks.start);
        let holes = self.manifest.entries()[entry as usize].holes();
        let starts = std::iter::once(0).chain(holes.iter().map(|hole| hole.end));
        let ends = holes.iter().map(|hole| hole.start).chain(std::iter::once(len));
        let runs = starts.zip(ends).filter(|(start, end)| start < end);
        runs.map(move |(start, end)| first + start..first + end)
    }

    /// Returns whether `is_wanted` holds for any file in chunk `chunk`. Starts at `entry`, which is
    /// in the chunk, and continues outwards to both sides. A caller may ask, each time a file of a
    /// chunk is finished, whether another file is unfinished. A search that starts at the finished
    /// file avoids quadratic work, in whatever order the files finish.
    pub(crate) fn any_near(&self, chunk: u64, entry: u32, is_wanted: impl Fn(u32) -> bool) -> bool {
        let start = chunk * CHUNK;
        let end = start.saturating_add(CHUNK);
        let (before, after) =
            self.files.split_at(self.files.partition_point(|(number, _)| *number < entry));
        let mut before = before.iter().rev().take_while(|file| self.end_of(file) > start);
        let mut after = after.iter().take_while(|(_, at)| *at < end);
        loop {
            let (one, other) = (before.next(), after.next());
            if one.or(other).is_none() {
                return false;
            }
            if one.into_iter().chain(other).any(|(number, _)| is_wanted(*number)) {
                return true;
            }
        }
    }

    /// Returns whether entry `entry` has its own chunks and a journal.
    pub fn is_large(&self, entry: u32) -> bool {
        self.manifest.is_large(entry)
    }

    /// Returns the bytes that are never sent, in ascending, separate ranges: padding and holes.
    pub fn implied(&self) -> Vec<Range<u64>> {
        let mut out: Vec<Range<u64>> = Vec::new();
        let mut add = |range: Range<u64>| match out.last_mut() {
            _ if range.is_empty() => {}
            Some(last) if last.end == range.start => last.end = range.end,
            _ => out.push(range),
        };
        let mut end = self.prefix;
        for file @ (entry, start) in &self.files {
            add(end..*start);
            end = self.end_of(file);
            for hole in self.manifest.entries()[*entry as usize].holes() {
                add(start + hole.start * CHUNK..(start + hole.end * CHUNK).min(end));
            }
        }
        out
    }

    /// Returns the chunks that lie in holes, so that none of their bytes are sent.
    pub fn hole_chunks(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let sparse = self.files.iter().filter(|(entry, _)| self.is_large(*entry));
        sparse.flat_map(|(entry, start)| {
            let holes = self.manifest.entries()[*entry as usize].holes();
            let first = start / CHUNK;
            holes.iter().map(move |hole| first + hole.start..first + hole.end)
        })
    }

    fn end_of(&self, (entry, start): &(u32, u64)) -> u64 {
        start + self.manifest.entries()[*entry as usize].size().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::FileTime;
    use crate::{Kind, LARGE, Listed, Shape};
    use proptest::prelude::*;

    fn file(name: String, size: u64, holes: Vec<Range<u64>>) -> Listed {
        let kind = Kind::File { size, sparse: !holes.is_empty(), holes: holes.into() };
        let path = name.into_bytes().into();
        Listed { path, kind, mode: 0o644, modified: FileTime::default() }
    }

    fn object(shape: Shape, sizes: &[u64], prefix: u64) -> VirtualObject {
        let files = sizes.iter().enumerate();
        let files = files.map(|(i, size)| file(format!("{i:05}"), *size, Vec::new()));
        let manifest = Manifest::new(shape, files.collect()).unwrap();
        VirtualObject::new(&Arc::new(manifest), prefix)
    }

    #[test]
    fn large_files_start_on_boundaries_and_small_ones_are_packed() {
        let object = object(Shape::Contents, &[10, 20, LARGE + 1, 0, 7, CHUNK], 0);
        let at = |entry| object.chunks_of(entry);
        assert_eq!([at(0), at(1), at(2), at(3)], [0..1, 0..1, 1..10, 0..0]);
        assert_eq!([at(4), at(5)], [10..11, 10..12]);
        assert_eq!(object.len(), 11 * CHUNK + 7);
        assert_eq!(object.chunk_content(0), 30);
        assert_eq!(object.chunk_content(9), 1);
        assert_eq!(object.chunk_kind(9), Some(ChunkKind::Large { entry: 2, chunk: 8 }));
        assert_eq!(object.chunk_kind(10), Some(ChunkKind::Packed));
        assert_eq!(object.chunk_kind(12), None);
        assert_eq!(object.implied(), [30..CHUNK, 9 * CHUNK + 1..10 * CHUNK]);
    }

    #[test]
    fn a_single_file_has_chunks_of_its_own_at_any_size() {
        let object = object(Shape::File, &[5], 0);
        assert_eq!(object.chunk_kind(0), Some(ChunkKind::Large { entry: 0, chunk: 0 }));
        assert_eq!((object.len(), object.implied()), (5, vec![]));
    }

    #[test]
    fn the_search_for_an_unfinished_file_after_each_finished_one_takes_no_quadratic_work() {
        let files = 1 << 12;
        let object = object(Shape::Contents, &[&[CHUNK - 7][..], &vec![1; files]].concat(), 0);
        let (first, last) = (8, files as u32);
        assert_eq!(
            (object.chunks_of(7), object.chunks_of(first), object.chunks()),
            (0..1, 1..2, 2)
        );
        let halves = (0..13).flat_map(|zeros| {
            (first..=last).filter(move |number| number.trailing_zeros() == zeros)
        });
        let orders: [Vec<u32>; 3] =
            [(first..=last).collect(), (first..=last).rev().collect(), halves.collect()];
        for order in orders {
            let (mut due, looks) = (vec![true; files + 1], std::cell::Cell::new(0));
            for (settled, entry) in (1..).zip(&order) {
                due[*entry as usize] = false;
                let is_due = |other: u32| {
                    looks.set(looks.get() + 1);
                    assert!((first..=last).contains(&other), "it is in another chunk");
                    due[other as usize]
                };
                assert_eq!(object.any_near(1, *entry, is_due), settled < order.len());
            }
            assert!(looks.get() < 32 * files, "{} looks", looks.get());
        }
    }

    #[test]
    fn an_empty_object_has_no_chunks() {
        let object = object(Shape::File, &[0], 0);
        assert_eq!((object.len(), object.chunks(), object.chunk_content(0)), (0, 0, 0));
    }

    #[test]
    fn holes_are_never_sent_even_at_the_end_of_a_file() {
        let sparse = file("a".into(), 10 * CHUNK - 5, vec![2..4, 8..10]);
        let files = vec![sparse, file("b".into(), 9, Vec::new())];
        let manifest = Arc::new(Manifest::new(Shape::Contents, files).unwrap());
        let object = VirtualObject::new(&manifest, 1);
        assert_eq!(object.implied(), [1..CHUNK, 3 * CHUNK..5 * CHUNK, 9 * CHUNK..11 * CHUNK]);
        assert_eq!(object.hole_chunks().collect::<Vec<_>>(), [3..5, 9..11]);
        assert_eq!(object.content_runs(0).collect::<Vec<_>>(), [1..3, 5..9]);
        assert_eq!(object.content_runs(1).next(), Some(11..12));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn extents_and_bytes_that_are_never_sent_tile_the_object(
            sizes in prop::collection::vec(
                prop_oneof![0u64..3_000_000, LARGE - 2..LARGE + 2, Just(0)], 0..12),
            prefix in prop_oneof![Just(0), 1u64..3_000_000],
        ) {
            let object = object(Shape::Contents, &sizes, prefix);
            let mut covered = prefix;
            let mut in_file = vec![0u64; sizes.len()];
            let mut implied = object.implied().into_iter().peekable();
            for chunk in object.manifest_chunks()..object.chunks() {
                for extent in object.extents(chunk) {
                    let at = chunk * CHUNK + extent.chunk_offset as u64;
                    if let Some(gap) = implied.next_if(|gap| gap.start == covered) {
                        covered = gap.end;
                    }
                    prop_assert_eq!(at, covered);
                    prop_assert_eq!(extent.file_offset, in_file[extent.entry as usize]);
                    prop_assert!(object.chunks_of(extent.entry).contains(&chunk));
                    in_file[extent.entry as usize] += extent.len as u64;
                    covered += extent.len as u64;
                    if object.is_large(extent.entry) {
                        prop_assert_eq!(extent.file_offset % CHUNK, 0);
                        prop_assert_eq!(extent.chunk_offset, 0);
                    }
                }
                let content = (covered - chunk * CHUNK) as usize;
                prop_assert_eq!(object.chunk_content(chunk), content);
            }
            prop_assert_eq!(covered, object.len());
            prop_assert_eq!(in_file, sizes);
        }
    }
}
