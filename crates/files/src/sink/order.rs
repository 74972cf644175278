//! The digest of a tree hashes the digests of large files and of packed chunks (which hold small
//! files) in a fixed order. This module computes positions in that order.

use crate::{Manifest, VirtualObject};

/// The large files of a manifest, each with the number of chunks of all large files up to and
/// including this file.
#[derive(Debug, Default)]
pub(super) struct Order {
    larges: Vec<(u32, u64)>,
    manifest_chunks: u64,
}

impl Order {
    pub(super) fn new(object: &VirtualObject, manifest: &Manifest) -> Order {
        let mut chunks = 0;
        let numbers = 0..manifest.entries().len() as u32;
        let larges = numbers.filter(|number| object.is_large(*number)).map(|number| {
            let own = object.chunks_of(number);
            chunks += own.end - own.start;
            (number, chunks)
        });
        Order { larges: larges.collect(), manifest_chunks: object.manifest_chunks() }
    }

    pub(super) fn larges(&self) -> u64 {
        self.larges.len() as u64
    }

    pub(super) fn packed(&self, object: &VirtualObject) -> u64 {
        let large = self.larges.last().map_or(0, |(_, chunks)| *chunks);
        object.chunks() - object.manifest_chunks() - large
    }

    pub(super) fn of_large(&self, entry: u32) -> u64 {
        self.larges.partition_point(|(number, _)| *number < entry) as u64
    }

    /// Returns the number of packed chunks before the packed chunk `chunk`, whose first file is
    /// `first`.
    pub(super) fn of_packed(&self, chunk: u64, first: u32) -> u64 {
        let before = self.larges.partition_point(|(number, _)| *number < first);
        chunk - self.manifest_chunks - before.checked_sub(1).map_or(0, |last| self.larges[last].1)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::manifest::FileTime;
    use crate::{CHUNK, Kind, LARGE, Listed, Shape};

    #[test]
    fn large_files_and_packed_chunks_are_numbered_separately() {
        let file = |name: &str, size| {
            let kind = Kind::file(size);
            let modified = FileTime::default();
            Listed { path: name.as_bytes().into(), kind, mode: 0o600, modified }
        };
        // Two large files, and four small ones of over half a chunk before, between and after them.
        let half = CHUNK / 2 + 1;
        let listed = vec![
            file("a", half),
            file("b", LARGE + 1),
            file("c", half),
            file("d", half),
            file("e", LARGE + CHUNK),
            file("f", half),
        ];
        let manifest = Arc::new(Manifest::new(Shape::Contents, listed).expect("it is sound"));
        // The encoded manifest takes the first two chunks.
        let object = VirtualObject::new(&manifest, CHUNK + 1);
        let order = Order::new(&object, &manifest);
        assert_eq!(order.larges(), 2);
        let numbers = 0..6_u32;
        let before: Vec<u64> = numbers.map(|number| order.of_large(number)).collect();
        assert_eq!(before, [0, 0, 1, 1, 1, 2]);
        assert_eq!(order.packed(&object), object.chunks() - 2 - 2 * (LARGE / CHUNK + 1));
        // The packed chunks are numbered from zero without a gap.
        let mut places = Vec::new();
        for chunk in 0..object.chunks() {
            let Some(first) = object.extents(chunk).next().map(|extent| extent.entry) else {
                continue;
            };
            if !object.is_large(first) {
                places.push(order.of_packed(chunk, first));
            }
        }
        assert_eq!(places, (0..order.packed(&object)).collect::<Vec<_>>());
        assert!(places.len() >= 2, "{places:?}");
    }
}
