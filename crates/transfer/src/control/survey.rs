//! The survey. Before a client takes chunks of an object from one of several sources, it checks
//! that the source has the same object as the majority of the sources: it asks the source for its
//! chunk values (a BLAKE3 hash of each chunk).

use super::FilterWire;

/// The client's request for the values of an object's chunks: the first message of its session. The
/// same session may then request the object.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Survey {
    /// The paths to copy from this server, as in a [`Request`](super::Request).
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub paths: Vec<Vec<u8>>,
    /// Include folders with their content.
    #[prost(bool, tag = "2")]
    pub recursive: bool,
    /// Filters, in order.
    #[prost(message, repeated, tag = "3")]
    pub filters: Vec<FilterWire>,
}

/// A piece of the answer: first the manifest, then the values. An empty piece says that the server
/// is still waiting or reading.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Surveyed {
    /// The next bytes of the encoded manifest. The manifest treats holes as zeros, so the chunks of
    /// one object are equal everywhere.
    #[prost(bytes = "vec", tag = "1")]
    pub manifest: Vec<u8>,
    /// The values of the next chunks of the content, 32 bytes each. The manifest's own chunks have
    /// no values here.
    #[prost(bytes = "vec", tag = "2")]
    pub values: Vec<u8>,
    /// Whether this is the last piece.
    #[prost(bool, tag = "3")]
    pub done: bool,
    /// In an empty piece: a progress count (names examined plus chunks read). The work of other
    /// surveys counts while this survey waits to start; afterwards its own work counts. A server
    /// whose count does not grow is waiting for its disk or for slow clients.
    #[prost(uint64, tag = "4")]
    pub looked: u64,
}
