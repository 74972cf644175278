//! What several sources are asked before one object is taken from all of them: whether it is one.

use super::FilterWire;

/// The client's wish to know what the chunks of an object hash to: the first message of its
/// session. The same session may then ask for the object.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Survey {
    /// The sources, as in a [`Request`](super::Request).
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub paths: Vec<Vec<u8>>,
    /// Take folders with all that is in them.
    #[prost(bool, tag = "2")]
    pub recursive: bool,
    /// Filters, in order.
    #[prost(message, repeated, tag = "3")]
    pub filters: Vec<FilterWire>,
}

/// A piece of the answer: first the manifest, then the values. One that is empty says that the
/// server still reads.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Surveyed {
    /// The next bytes of the encoded manifest. Holes are taken for zeros in it, so that the chunks
    /// of one object are the same everywhere.
    #[prost(bytes = "vec", tag = "1")]
    pub manifest: Vec<u8>,
    /// What the next chunks hash to, 32 bytes each. The manifest is not among them.
    #[prost(bytes = "vec", tag = "2")]
    pub values: Vec<u8>,
    /// That is all.
    #[prost(bool, tag = "3")]
    pub done: bool,
    /// Names looked at and chunks read so far: a server that tells no more than before waits for
    /// its disk.
    #[prost(uint64, tag = "4")]
    pub looked: u64,
}
