//! The messages of the service `pipe`: one file whose length its sender does not know.
//!
//! The client opens the pipe with a [`Pipe`], and the server answers with a [`Piped`] once the file
//! is begun. Then each part of the content is a transfer of its own, of a file of known length, on
//! a stream of the service `copy` whose request has an [`Extent`]. When all parts stand the client
//! says [`PipeEnd`], and the server gives the file its name and answers with [`Piped`] again. The
//! end of the stream without a [`PipeEnd`] ends the pipe, and nothing of it stays.

/// The name of the service.
pub const SERVICE: &str = "pipe";

/// The version of its messages. It rises with each field that must not be skipped.
pub const VERSION: u32 = 1;

/// The most bytes of one part.
pub const MAX_EXTENT: u64 = 1 << 30;

/// The client's wish to write a file of unknown length.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Pipe {
    /// The file, relative to the server's root; over ssh relative to the home folder, or absolute.
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
    /// Names the pipe in the requests of its parts; random.
    #[prost(fixed64, tag = "2")]
    pub pipe: u64,
}

/// The client's last word: all parts stand.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PipeEnd {
    /// Bytes of the whole.
    #[prost(uint64, tag = "1")]
    pub total: u64,
    /// BLAKE3 of the whole.
    #[prost(bytes = "vec", tag = "2")]
    pub digest: Vec<u8>,
}

/// The server's answer.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Piped {
    /// The file stands under its name; else it has begun, and parts may come.
    #[prost(bool, tag = "1")]
    pub done: bool,
}

/// In a request: the object is one file, which is a part of a pipe.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Extent {
    /// The pipe.
    #[prost(fixed64, tag = "1")]
    pub pipe: u64,
    /// Where in the pipe the part begins: a whole number of chunks of 1 MiB.
    #[prost(uint64, tag = "2")]
    pub offset: u64,
}
