//! The messages of the service `stream`. A client's first message is a [`Send`] or a [`Receive`].
//! The frames themselves are sealed datagrams of a flow of their own.

/// The name of the service, and the word of the list of clients.
pub const SERVICE: &str = "stream";

/// The version of its messages. It rises with each field that must not be skipped.
pub const VERSION: u32 = 1;

/// What a client says.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Ask {
    /// One of these; nothing if it comes from a newer version and is unknown here.
    #[prost(oneof = "Asked", tags = "1, 2, 3, 4")]
    pub asked: Option<Asked>,
}

/// Every message of a client.
#[derive(Clone, PartialEq, prost::Oneof)]
#[allow(missing_docs, reason = "each variant is documented at its type")]
pub enum Asked {
    #[prost(message, tag = "1")]
    Send(Send),
    #[prost(message, tag = "2")]
    Receive(Receive),
    #[prost(message, tag = "3")]
    End(End),
    #[prost(message, tag = "4")]
    Report(Report),
}

/// The client sends a stream. The server answers with a [`Way`], and repeats it as it changes.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Send {
    /// The stream's name: words joined by slashes, at most 512 bytes.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The flow of its datagrams.
    #[prost(uint32, tag = "2")]
    pub flow: u32,
    /// The cipher of the datagrams.
    #[prost(string, tag = "3")]
    pub cipher: String,
    /// A random number, the same when the client comes back after a lost connection: frames and
    /// stamps go on.
    #[prost(fixed64, tag = "4")]
    pub run: u64,
    /// Bytes of a symbol.
    #[prost(uint32, tag = "5")]
    pub symbol: u32,
    /// Most bytes of a frame.
    #[prost(uint32, tag = "6")]
    pub frame: u32,
    /// Frames a second, times 1000.
    #[prost(uint64, tag = "7")]
    pub per_second_milli: u64,
    /// From the sender's having a frame to its delivery.
    #[prost(uint64, tag = "8")]
    pub deadline_micros: u64,
}

/// The client receives a stream, now and when somebody sends it. The server answers with a
/// [`State`], and repeats it as it changes.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Receive {
    /// The stream's name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The flow of its datagrams. The client says by sealed control datagrams of this flow where
    /// it is, at least once a second.
    #[prost(uint32, tag = "2")]
    pub flow: u32,
    /// The cipher of the datagrams.
    #[prost(string, tag = "3")]
    pub cipher: String,
}

/// The sender has no more frames.
#[derive(Clone, PartialEq, prost::Message)]
pub struct End {
    /// How many frames there were, those that were not sent included.
    #[prost(uint32, tag = "1")]
    pub frames: u32,
}

/// What a receiver has seen, once a second.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Report {
    /// The share of datagrams between server and receiver that are lost, in millionths.
    #[prost(uint32, tag = "1")]
    pub loss_ppm: u32,
    /// Datagrams lost in a row, on average, times 1000.
    #[prost(uint32, tag = "2")]
    pub burst_milli: u32,
    /// How much longer datagrams took from the sender than the fastest did.
    #[prost(uint64, tag = "3")]
    pub jitter_micros: u64,
    /// Frames that were delivered within their deadline, since the receiver began.
    #[prost(uint64, tag = "4")]
    pub on_time: u64,
    /// Frames that were not.
    #[prost(uint64, tag = "5")]
    pub missed: u64,
}

/// What a server says.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Tell {
    /// One of these; nothing if it comes from a newer version and is unknown here.
    #[prost(oneof = "Told", tags = "1, 2")]
    pub told: Option<Told>,
}

/// Every message of a server.
#[derive(Clone, PartialEq, prost::Oneof)]
#[allow(missing_docs, reason = "each variant is documented at its type")]
pub enum Told {
    #[prost(message, tag = "1")]
    Way(Way),
    #[prost(message, tag = "2")]
    State(State),
}

/// The way of a stream, for its sender: over the server to the receivers.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Way {
    /// How many receive the stream.
    #[prost(uint32, tag = "1")]
    pub receivers: u32,
    /// The round-trip time from the sender over the server to the nearest receiver.
    #[prost(uint64, tag = "2")]
    pub nearest_micros: u64,
    /// The same to the farthest.
    #[prost(uint64, tag = "3")]
    pub farthest_micros: u64,
    /// The share of datagrams that are lost on the way to the worst receiver, in millionths.
    #[prost(uint32, tag = "4")]
    pub loss_ppm: u32,
    /// Datagrams lost in a row, on average, times 1000.
    #[prost(uint32, tag = "5")]
    pub burst_milli: u32,
    /// How much longer datagrams take than the fastest.
    #[prost(uint64, tag = "6")]
    pub jitter_micros: u64,
    /// Datagrams of the stream that came to the server.
    #[prost(uint64, tag = "7")]
    pub came: u64,
    /// Frames that receivers reported as delivered within their deadline.
    #[prost(uint64, tag = "8")]
    pub on_time: u64,
    /// Frames that receivers reported as not.
    #[prost(uint64, tag = "9")]
    pub missed: u64,
}

/// The stream as it is, for a receiver.
#[derive(Clone, PartialEq, prost::Message)]
pub struct State {
    /// 0: nobody sends it now. 1: it is being sent. 2: its sender has ended it.
    #[prost(uint32, tag = "1")]
    pub phase: u32,
    /// The sender's number. Frames and stamps of different runs have nothing in common.
    #[prost(fixed64, tag = "2")]
    pub run: u64,
    /// The number of the data keys of this flow. It grows, and none comes twice.
    #[prost(uint64, tag = "3")]
    pub epoch: u64,
    /// Bytes of a symbol.
    #[prost(uint32, tag = "4")]
    pub symbol: u32,
    /// Frames a second, times 1000.
    #[prost(uint64, tag = "5")]
    pub per_second_milli: u64,
    /// From the sender's having a frame to its delivery.
    #[prost(uint64, tag = "6")]
    pub deadline_micros: u64,
    /// The round-trip time from the sender to the server.
    #[prost(uint64, tag = "7")]
    pub sender_micros: u64,
    /// The first frame that this receiver can have whole; at the end, how many there were.
    #[prost(uint32, tag = "8")]
    pub frame: u32,
    /// Frames that the server did not forward to this receiver, wholly or in part.
    #[prost(uint64, tag = "9")]
    pub withheld: u64,
}
