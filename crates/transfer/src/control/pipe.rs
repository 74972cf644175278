//! The messages of the service `pipe`: one file whose length its sender does not know.
//!
//! The client opens the pipe with a [`Pipe`], and the server answers with a [`Piped`] once it has
//! created the partial file. Each part of the content is a separate transfer of a file of known
//! length, on a stream of the service `copy` whose request has an [`Extent`]. When all parts are
//! written the client sends [`PipeEnd`]; the server gives the file its name and answers with
//! [`Piped`] again. If the stream ends without a [`PipeEnd`], the server discards the pipe and its
//! content.

/// The name of the service.
pub const SERVICE: &str = "pipe";

/// The version of the service's messages. Each new field that a receiver must not skip raises the
/// version.
pub const VERSION: u32 = 1;

/// Maximum bytes of one part.
pub const MAX_EXTENT: u64 = 1 << 30;

/// The client's request to write a file of unknown length.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Pipe {
    /// The file, relative to the server's root; over ssh relative to the home folder, or absolute.
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
    /// The pipe's id in the requests of its parts; random.
    #[prost(fixed64, tag = "2")]
    pub pipe: u64,
}

/// The client's last message: all parts are written.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PipeEnd {
    /// Length of the whole content in bytes.
    #[prost(uint64, tag = "1")]
    pub total: u64,
    /// BLAKE3 of the whole content.
    #[prost(bytes = "vec", tag = "2")]
    pub digest: Vec<u8>,
}

/// The server's answer.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Piped {
    /// True: the file has its final name. False: the pipe is open, and parts may come.
    #[prost(bool, tag = "1")]
    pub done: bool,
}

/// In a request: the object is one file, whose content is a part of a pipe.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Extent {
    /// The pipe's id.
    #[prost(fixed64, tag = "1")]
    pub pipe: u64,
    /// Offset of the part in the pipe: a multiple of 1 MiB.
    #[prost(uint64, tag = "2")]
    pub offset: u64,
}
