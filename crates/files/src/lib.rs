//! Files and trees: read at the source; verified, written and given their final names at the
//! destination. This crate uses no sockets, sessions or protocols.
//!
//! In reading order:
//! - [`manifest`]: the files, folders and links of a copy. [`VirtualObject`]: the layout of its
//!   files in the object that a protocol moves. [`digest`]: hashes of chunks, and how they merge
//!   into the BLAKE3 hash of a file.
//! - [`place`]: paths given by a user or, below a [`Root`], by a peer. [`filter`]: selects the
//!   files of a tree. [`Asked`]: the request, which limits the entries that a peer may send.
//! - `store`: the traits through which a source and a sink access files.
//! - [`edit`]: creates, replaces, renames and removes single files and folders. [`list`]: the names
//!   in a folder.
//! - [`Source`]: walks and reads. [`RangeFile`]: one version of a file, read by ranges.
//!   [`journal`]: the record of written chunks that survives a kill. [`sink`]: verifies, writes,
//!   resumes, names. [`watch`]: progress of long work. [`DiskPermits`]: divides the accesses to
//!   the disk among a server's clients.
//!
//! [`Source::open`] lists the files to copy. [`Sink::open`] compares that list with the destination
//! and returns a [`Plan`]: the chunks that exist, and those that the source must compare.
//! [`Source::read_chunk`] and [`Sink::write_chunk`] then move chunk after chunk. [`Sink::finish`]
//! creates empty files and links, removes names that the source lacks (if requested), and gives
//! folders their permissions and times.
//!
//! All calls block, so they belong on plain threads. No name from a peer is trusted. Below the base
//! folder of a copy, each component is opened by its parent's handle, and a symbolic link is never
//! followed.

mod asked;
pub mod digest;
mod disk_permits;
pub mod edit;
mod error;
pub mod filter;
mod folders;
#[doc(hidden)]
pub mod journal;
pub mod list;
pub mod manifest;
mod names;
pub mod place;
mod range_file;
pub mod sink;
mod source;
mod store;
#[cfg(test)]
mod tests;
mod virtual_object;
mod walk;
pub mod watch;

pub use asked::Asked;
pub use digest::Digest;
pub use disk_permits::{DiskPermit, DiskPermits};
pub use error::{Advice, Error, FileErrorKind};
pub use manifest::{Entry, Kind, ListMemory, Listed, Manifest, Shape};
pub use names::PARTIAL;
pub use place::{Place, Root};
pub use range_file::{ChunkValues, RangeFile, Stamp, Uncached};
pub use sink::{
    Delete, Deleted, Mark, PipeFile, Plan, Sink, SinkOptions, SinkOutcome, Together, Verdict,
    make_folders,
};
pub use source::{ChunkRead, PartialChunk, Source, SourceOptions};
pub use store::buffers::{MemoryFolder, Store};
pub use virtual_object::{ChunkKind, Extent, VirtualObject};
pub use watch::Watch;

/// The unit that is hashed, written and journalled, in bytes.
pub const CHUNK: u64 = 1 << 20;

/// Files of at least this size, in bytes, start on a chunk boundary and have a journal. So does a
/// file of any size (except zero) that is copied alone.
pub const LARGE: u64 = 8 << 20;

/// A file, folder or link that failed, while the copy continues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// The number of the entry in the manifest, if the manifest has the entry.
    pub entry: Option<u32>,
    /// The path within the copy, as bytes.
    pub path: Vec<u8>,
    /// The reason, as a sentence without a full stop.
    pub reason: String,
    /// Whether the source file changed while it was read.
    pub changed: bool,
}

impl Failure {
    pub(crate) fn bytes(&self) -> u64 {
        (size_of::<Failure>() + self.path.len() + self.reason.len()) as u64
    }

    /// Returns the path for people: bytes that are not UTF-8 are replaced.
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.path).into_owned()
    }
}

#[cfg(test)]
mod failure_tests {
    use super::*;

    #[test]
    fn the_memory_of_a_failure_includes_its_texts_and_its_path_is_shown_as_utf8() {
        let path = b"a\xffb".to_vec();
        let failure = Failure { path, reason: "no rights".to_owned(), ..Failure::default() };
        assert_eq!(failure.bytes(), size_of::<Failure>() as u64 + 3 + 9);
        assert_eq!(failure.shown(), "a\u{fffd}b");
    }

    #[test]
    fn a_chunk_is_a_mebibyte_and_a_large_file_has_at_least_eight() {
        assert_eq!((CHUNK, LARGE), (1_048_576, 8_388_608));
    }
}
