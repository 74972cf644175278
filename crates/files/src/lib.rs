//! Objects: files and trees, from a walk of the source to verified files under their final names.
//!
//! In reading order: [`manifest`] (what an object consists of), [`virtual_object`] (how its files
//! lie end to end in what a protocol moves), [`digest`] (values of chunks and how they merge into
//! a file's BLAKE3 root), [`place`] (paths given by a user or, below a root, by a peer),
//! [`filter`], [`asked`] (what a peer may send), `store` (every access to files), [`source`]
//! (reading), [`journal`] (what survives a kill), [`sink`] (verifying, writing, resuming, naming),
//! [`watch`] (how far that is).
//!
//! Everything here blocks and is meant for plain threads. No name from the other side is trusted:
//! below a base folder each component is opened by its parent's handle and never followed when it
//! is a symbolic link.

pub mod asked;
pub mod digest;
mod error;
pub mod filter;
mod folders;
pub mod journal;
pub mod manifest;
pub mod names;
pub mod place;
pub mod sink;
pub mod source;
mod store;
#[cfg(test)]
mod tests;
pub mod virtual_object;
mod walk;
pub mod watch;

pub use asked::Asked;
pub use digest::Digest;
pub use error::{Error, ErrorKind};
pub use manifest::{Entry, Kind, ListMemory, Listed, Manifest, Shape};
pub use place::Place;
pub use sink::{Mark, Outcome, Plan, Sink, SinkOptions, Together, Verdict};
pub use source::{ChunkRead, Source, SourceOptions};
pub use virtual_object::{ChunkKind, Extent, VirtualObject};
pub use watch::Watch;

/// The unit that is hashed, written and journalled, in bytes.
pub const CHUNK: u64 = 1 << 20;

/// Files from this size on start on a chunk boundary and have a journal.
pub const LARGE: u64 = 8 << 20;

/// A file or folder that does not make it, while the others go on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// The manifest's entry, if it got that far.
    pub entry: Option<u32>,
    /// The path within the copy, as bytes.
    pub path: Vec<u8>,
    /// What went wrong, as a sentence without a full stop.
    pub reason: String,
    /// The source file changed while it was read: a new walk finds its new version.
    pub changed: bool,
}

impl Failure {
    /// The path for people: bytes that are no UTF-8 are replaced.
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.path).into_owned()
    }
}
