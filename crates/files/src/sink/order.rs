//! Which large file and which packed chunk comes how-manieth, for the digest of a tree.

use crate::{Manifest, VirtualObject};

/// The large files of a manifest, and how many chunks they have up to each.
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

    /// How many large files there are.
    pub(super) fn larges(&self) -> u64 {
        self.larges.len() as u64
    }

    /// How many packed chunks there are.
    pub(super) fn packed(&self, object: &VirtualObject) -> u64 {
        let large = self.larges.last().map_or(0, |(_, chunks)| *chunks);
        object.chunks() - object.manifest_chunks() - large
    }

    /// How many large files come before entry `entry`.
    pub(super) fn of_large(&self, entry: u32) -> u64 {
        self.larges.partition_point(|(number, _)| *number < entry) as u64
    }

    /// How many packed chunks come before the packed chunk `chunk`, whose first file is `first`.
    pub(super) fn of_packed(&self, chunk: u64, first: u32) -> u64 {
        let before = self.larges.partition_point(|(number, _)| *number < first);
        chunk - self.manifest_chunks - before.checked_sub(1).map_or(0, |last| self.larges[last].1)
    }
}
