//! The messages of the service `stream`. A client's first message is a [`Send`] or a [`Receive`].
//! The frames travel in sealed datagrams of a separate flow. Each datagram carries one symbol: a
//! part of a frame, or a repair computed from the frame.

/// The name of the service; also its keyword in the list of clients.
pub const SERVICE: &str = "stream";

/// The version of these messages. Each new field that the reader of a message must not skip raises
/// the version.
pub const VERSION: u32 = 2;

/// A message of a client. It has one of the fields of [`Asked`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct Ask {
    /// The message; absent if a newer version sent a kind that this version does not know.
    #[prost(oneof = "Asked", tags = "1, 2, 3, 4, 5")]
    pub asked: Option<Asked>,
}

/// The messages of a client.
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
    #[prost(message, tag = "5")]
    Again(Again),
}

/// A receiver lacks symbols of a frame that has no repairs. The server passes the message on to the
/// sender, which sends these symbols again to all receivers.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Again {
    /// The frame's number.
    #[prost(uint32, tag = "1")]
    pub frame: u32,
    /// The first symbol of each range of missing symbols, in ascending order; at most 1,024.
    #[prost(uint32, repeated, tag = "2")]
    pub first: Vec<u32>,
    /// The last symbol of each range.
    #[prost(uint32, repeated, tag = "3")]
    pub last: Vec<u32>,
    /// From the server: the number of the receiver.
    #[prost(uint32, tag = "4")]
    pub receiver: u32,
}

/// Asks to send a stream. The server answers with a [`Way`], and repeats it regularly and after
/// changes.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Send {
    /// The stream's name: words joined by slashes, at most 512 bytes.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The number of the flow that carries the datagrams.
    #[prost(uint32, tag = "2")]
    pub flow: u32,
    /// The cipher of the datagrams.
    #[prost(string, tag = "3")]
    pub cipher: String,
    /// A random number of this sender. It stays the same after a reconnection: frame numbers
    /// and timestamps continue.
    #[prost(fixed64, tag = "4")]
    pub run: u64,
    /// Bytes of a symbol.
    #[prost(uint32, tag = "5")]
    pub symbol: u32,
    /// Maximum bytes of a frame.
    #[prost(uint32, tag = "6")]
    pub frame: u32,
    /// Frames a second, times 1000.
    #[prost(uint64, tag = "7")]
    pub per_second_milli: u64,
    /// The maximum time from when the sender takes a frame until its delivery.
    #[prost(uint64, tag = "8")]
    pub deadline_micros: u64,
    /// Maximum number of frames in a payload; 0 or 1: each frame is sent separately. With more
    /// frames, the other fields and the datagrams describe payloads instead of frames. In a payload
    /// a length of 4 bytes, big-endian, precedes each frame.
    #[prost(uint32, tag = "9")]
    pub group: u32,
}

/// Asks to receive a stream, now or when a client sends it. The server answers with a [`State`],
/// and repeats it regularly and after changes.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Receive {
    /// The stream's name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The number of the flow that carries the datagrams. At least once a second the client sends a
    /// sealed control datagram of this flow, which tells the server the client's address.
    #[prost(uint32, tag = "2")]
    pub flow: u32,
    /// The cipher of the datagrams.
    #[prost(string, tag = "3")]
    pub cipher: String,
}

/// The sender has no more frames.
#[derive(Clone, PartialEq, prost::Message)]
pub struct End {
    /// The number of frames (of payloads, if `Send.group` is above 1) that the sender took while
    /// the stream had a receiver, including those that it then dropped.
    #[prost(uint32, tag = "1")]
    pub frames: u32,
}

/// A receiver's measurements, sent once a second.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Report {
    /// The share of datagrams lost between server and receiver, in millionths.
    #[prost(uint32, tag = "1")]
    pub loss_ppm: u32,
    /// The average length of a loss burst in datagrams, times 1000.
    #[prost(uint32, tag = "2")]
    pub burst_milli: u32,
    /// Spread of delays: how much longer the slowest datagram took than the fastest.
    #[prost(uint64, tag = "3")]
    pub jitter_micros: u64,
    /// Frames delivered within their deadline, since the receiver started.
    #[prost(uint64, tag = "4")]
    pub on_time: u64,
    /// Frames not delivered within their deadline.
    #[prost(uint64, tag = "5")]
    pub missed: u64,
}

/// A message of a server. It has one of the fields of [`Told`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct Tell {
    /// The message; absent if a newer version sent a kind that this version does not know.
    #[prost(oneof = "Told", tags = "1, 2, 3")]
    pub told: Option<Told>,
}

/// The messages of a server.
#[derive(Clone, PartialEq, prost::Oneof)]
#[allow(missing_docs, reason = "each variant is documented at its type")]
pub enum Told {
    #[prost(message, tag = "1")]
    Way(Way),
    #[prost(message, tag = "2")]
    State(State),
    #[prost(message, tag = "3")]
    Again(Again),
}

/// The path of a stream, for its sender: through the server to the receivers.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Way {
    /// Number of receivers that have the keys for the stream's datagrams.
    #[prost(uint32, tag = "1")]
    pub receivers: u32,
    /// The round-trip time from the sender through the server to the nearest receiver.
    #[prost(uint64, tag = "2")]
    pub nearest_micros: u64,
    /// The round-trip time to the farthest receiver.
    #[prost(uint64, tag = "3")]
    pub farthest_micros: u64,
    /// The share of datagrams lost on the path to the worst receiver, in millionths.
    #[prost(uint32, tag = "4")]
    pub loss_ppm: u32,
    /// The average length of a loss burst in datagrams, times 1000.
    #[prost(uint32, tag = "5")]
    pub burst_milli: u32,
    /// Spread of delays: how much longer the slowest datagram takes than the fastest.
    #[prost(uint64, tag = "6")]
    pub jitter_micros: u64,
    /// Datagrams of the stream that arrived at the server.
    #[prost(uint64, tag = "7")]
    pub came: u64,
    /// Frames delivered within their deadline: the sum of the receivers' reports.
    #[prost(uint64, tag = "8")]
    pub on_time: u64,
    /// Frames not delivered within their deadline: the sum of the receivers' reports.
    #[prost(uint64, tag = "9")]
    pub missed: u64,
    /// The highest rate at which the symbols of one frame arrived at the server recently, in bits
    /// of UDP payload a second; 0 if unknown.
    #[prost(uint64, tag = "10")]
    pub carried_bps: u64,
}

/// The state of the stream, for a receiver.
#[derive(Clone, PartialEq, prost::Message)]
pub struct State {
    /// 0: no client sends the stream, or the server does not know this receiver's address yet. 1:
    /// a client sends the stream. 2: the sender has ended it.
    #[prost(uint32, tag = "1")]
    pub phase: u32,
    /// The sender's random number. Frame numbers and timestamps of different runs are not
    /// comparable.
    #[prost(fixed64, tag = "2")]
    pub run: u64,
    /// The number of this flow's data keys. It increases and is never reused.
    #[prost(uint64, tag = "3")]
    pub epoch: u64,
    /// Bytes of a symbol.
    #[prost(uint32, tag = "4")]
    pub symbol: u32,
    /// Frames a second, times 1000.
    #[prost(uint64, tag = "5")]
    pub per_second_milli: u64,
    /// The maximum time from when the sender takes a frame until its delivery.
    #[prost(uint64, tag = "6")]
    pub deadline_micros: u64,
    /// The round-trip time from the sender to the server.
    #[prost(uint64, tag = "7")]
    pub sender_micros: u64,
    /// The next frame at the server: a receiver that starts now gets this frame and later ones
    /// completely. After the stream's end, the number of frames.
    #[prost(uint32, tag = "8")]
    pub frame: u32,
    /// Frames that the server did not forward completely to this receiver.
    #[prost(uint64, tag = "9")]
    pub withheld: u64,
    /// Maximum number of frames in a payload, as in [`Send`].
    #[prost(uint32, tag = "10")]
    pub group: u32,
}
