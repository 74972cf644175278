//! The messages of a running transfer.
//!
//! The *virtual object* is the content of all files as one sequence of bytes. A long manifest (the
//! list of files, folders and links) may be the start of this sequence. A *chunk* is 1 MiB of the
//! virtual object; its *value* is the BLAKE3 hash or chaining value of its content. A *pass* sends
//! the missing chunks.

use std::time::Duration;

use longhaul_proto::units::Rate;

use super::Ranges;

/// The sending end's object. Carries the manifest, or says where the manifest is.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Offer {
    /// The encoded manifest, if it is small; otherwise empty.
    #[prost(bytes = "vec", tag = "1")]
    pub manifest: Vec<u8>,
    /// Length in bytes of the encoded manifest, if it is the start of the object; otherwise zero.
    #[prost(uint64, tag = "2")]
    pub manifest_len: u64,
    /// BLAKE3 of the encoded manifest.
    #[prost(bytes = "vec", tag = "3")]
    pub manifest_digest: Vec<u8>,
    /// Length of the whole object, manifest included.
    #[prost(uint64, tag = "4")]
    pub object_len: u64,
    /// Length in bytes of the encoded manifest, if it follows on this stream in pieces because the
    /// data are not sealed; otherwise zero.
    #[prost(uint64, tag = "5")]
    pub streamed_len: u64,
}

/// One flow's run over the missing chunks.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Pass {
    /// The number of the pass, from 0.
    #[prost(uint32, tag = "1")]
    pub number: u32,
    /// The flow's id, new for each pass. The receiving end refuses the id of an earlier pass of the
    /// same transfer, because a repeated id would repeat keys and nonces.
    #[prost(fixed32, tag = "2")]
    pub flow: u32,
    /// Block size in bytes.
    #[prost(uint32, tag = "3")]
    pub block: u32,
    /// Segment size in bytes; zero: the whole object.
    #[prost(uint64, tag = "4")]
    pub segment: u64,
    /// The sending end's estimate of the round-trip time, in nanoseconds.
    #[prost(uint64, tag = "5")]
    pub rtt_nanos: u64,
    /// Registry name of the protocol; empty: the chunks go over streams.
    #[prost(string, tag = "6")]
    pub protocol: String,
    /// The number of the last [`Lease`], whose chunks this pass sends; zero for the chunks of the
    /// plan.
    #[prost(uint32, tag = "7")]
    pub lease: u32,
}

/// The speed of the receiving host's network card. A sender by `fobs-table` without a fixed rate
/// limits its rate to the slower of its own card and this one. Sent once, before any data; not sent
/// if the data pass no card or the card reports no speed.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Card {
    /// The card's capacity for UDP payload in full datagrams, in bits a second.
    #[prost(uint64, tag = "1")]
    pub bps: u64,
}

/// The lowest credible speed of a card.
const SLOWEST_CARD: Rate = Rate::from_mbps(1);

impl Card {
    /// Returns the capacity; `None` if it is too low to be credible.
    pub(crate) fn speed(&self) -> Option<Rate> {
        Some(Rate::from_bps(self.bps)).filter(|speed| *speed >= SLOWEST_CARD)
    }
}

/// The chunks that need not be sent, and the chunks to compare with the source.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Plan {
    /// Chunks of the object that the receiver has.
    #[prost(message, optional, tag = "1")]
    pub have: Option<Ranges>,
    /// Partial or existing files whose chunks must be compared before the missing chunks are known.
    #[prost(message, repeated, tag = "2")]
    pub compare: Vec<Compare>,
    /// Entries skipped because equal ones exist, including existing folders; by index.
    #[prost(message, optional, tag = "3")]
    pub skipped: Option<Ranges>,
    /// Bytes that need not be sent.
    #[prost(uint64, tag = "4")]
    pub resumed_bytes: u64,
    /// More slices of the same plan follow.
    #[prost(bool, tag = "5")]
    pub more: bool,
    /// Whether the receiving end takes coded symbols in place of blocks.
    #[prost(bool, tag = "6")]
    pub takes_coded: bool,
    /// Whether the receiving end takes a first flight (the first pass of a push, begun before the
    /// session was open); see `flight_secret` in [`Request`](super::Request).
    #[prost(bool, tag = "7")]
    pub takes_flight: bool,
}

/// Chunks of a partial or existing file that only the source can verify.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Compare {
    /// The entry, by index in the manifest.
    #[prost(uint64, tag = "1")]
    pub entry: u64,
    /// Chunks, counted within the file.
    #[prost(uint64, repeated, tag = "2")]
    pub chunks: Vec<u64>,
    /// 32 bytes for each chunk: its value at the destination.
    #[prost(bytes = "vec", tag = "3")]
    pub values: Vec<u8>,
}

/// The answer to [`Compare`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct Compared {
    /// The entry, by index in the manifest.
    #[prost(uint64, tag = "1")]
    pub entry: u64,
    /// For each of the chunks in question, in order: whether it is equal at the source.
    #[prost(bool, repeated, tag = "2")]
    pub same: Vec<bool>,
}

/// Chunks that are no longer needed: their files have failed or are equal at the destination, or
/// another source sends them.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Needless {
    /// The chunks of the object.
    #[prost(message, optional, tag = "1")]
    pub chunks: Option<Ranges>,
}

/// The expected values of chunks.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Digests {
    /// The chunks of the object.
    #[prost(uint64, repeated, tag = "1")]
    pub chunks: Vec<u64>,
    /// The values of the chunks, 32 bytes each.
    #[prost(bytes = "vec", tag = "2")]
    pub values: Vec<u8>,
}

/// A protocol's control message, as the core encoded it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Relay {
    /// The flow.
    #[prost(fixed32, tag = "1")]
    pub flow: u32,
    /// The encoded message.
    #[prost(bytes = "vec", tag = "2")]
    pub control: Vec<u8>,
    /// Numbers the messages of one direction of the flow, because the same message may arrive
    /// twice.
    #[prost(uint64, tag = "3")]
    pub number: u64,
}

/// The progress of the side that sends it. Counts, and times spent, are totals of the transfer.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Status {
    /// Datagrams sent (sending end).
    #[prost(uint64, tag = "1")]
    pub sent: u64,
    /// Blocks sent for the first time (sending end).
    #[prost(uint64, tag = "2")]
    pub first: u64,
    /// Blocks sent again, and coded symbols (sending end).
    #[prost(uint64, tag = "3")]
    pub retransmitted: u64,
    /// Lost blocks in the reports and repeated requests that the sending end received, or that the
    /// receiving end sent. A block that is reported twice counts twice.
    #[prost(uint64, tag = "4")]
    pub reported_lost: u64,
    /// Highest number of rounds that a segment needed (sending end).
    #[prost(uint32, tag = "5")]
    pub rounds: u32,
    /// Sending rate in bits a second (sending end).
    #[prost(uint64, tag = "6")]
    pub rate_bps: u64,
    /// Smoothed round-trip time in nanoseconds (sending end).
    #[prost(uint64, tag = "7")]
    pub rtt_nanos: u64,
    /// Bytes of the object at the destination (receiving end).
    #[prost(uint64, tag = "8")]
    pub written: u64,
    /// Files with their final name (receiving end).
    #[prost(uint64, tag = "9")]
    pub files: u64,
    /// Datagrams received, including duplicates (receiving end).
    #[prost(uint64, tag = "10")]
    pub received: u64,
    /// Blocks received for the first time (receiving end).
    #[prost(uint64, tag = "11")]
    pub distinct: u64,
    /// Blocks received again (receiving end).
    #[prost(uint64, tag = "12")]
    pub duplicates: u64,
    /// Blocks found missing, once each (receiving end).
    #[prost(uint64, tag = "13")]
    pub blocks_lost: u64,
    /// Datagrams that the kernel dropped because a buffer was full (receiving end).
    #[prost(uint64, tag = "14")]
    pub socket_lost: u64,
    /// One more than the highest packet number received, summed over passes (receiving end).
    #[prost(uint64, tag = "15")]
    pub highest: u64,
    /// Time spent waiting for the pacer, in nanoseconds (sending end).
    #[prost(uint64, tag = "16")]
    pub paced_nanos: u64,
    /// Time spent waiting for the receiver's grant, in nanoseconds (sending end).
    #[prost(uint64, tag = "17")]
    pub granted_nanos: u64,
    /// Time spent reading at the source, or writing at the destination, in nanoseconds.
    #[prost(uint64, tag = "18")]
    pub disk_nanos: u64,
    /// Time spent reading and sending data, in nanoseconds; at the receiving end, CPU time of the
    /// receiving thread.
    #[prost(uint64, tag = "19")]
    pub busy_nanos: u64,
    /// Datagrams that the flow refused as forged, malformed, replayed or too old to check, plus
    /// datagrams that the port dropped: those of unknown flows, and early ones (which arrived
    /// before the port knew their flow) beyond the limits of size and age (receiving end).
    #[prost(uint64, tag = "21")]
    pub refused: u64,
    /// The part of `disk_nanos` that was CPU time, for hashing and moving bytes.
    #[prost(uint64, tag = "22")]
    pub disk_cpu_nanos: u64,
    /// Genuine datagrams dropped because there was no memory for their chunk (receiving end).
    #[prost(uint64, tag = "23")]
    pub memory_lost: u64,
    /// Connections that carry the chunks now, if they go over streams (sending end).
    #[prost(uint32, tag = "24")]
    pub streams: u32,
    /// Whether `streams` was the best of the numbers tried.
    #[prost(bool, tag = "25")]
    pub streams_found: bool,
    /// Bytes of chunks received over streams (receiving end).
    #[prost(uint64, tag = "26")]
    pub streamed: u64,
    /// Blocks that were not requested or do not exist, and invalid control messages of protocols
    /// (receiving end).
    #[prost(uint64, tag = "30")]
    pub unasked: u64,
    /// CPU time, in nanoseconds, of the thread that carries the control stream and chunks over
    /// streams.
    #[prost(uint64, tag = "29")]
    pub carrier_nanos: u64,
    /// Datagrams with data that arrived before the port knew their flow, and that the port dropped
    /// by the limits of size and age for early datagrams (receiving end).
    #[prost(uint64, tag = "27")]
    pub early_lost: u64,
    /// Number of names examined plus number of chunks read, to find the missing chunks.
    #[prost(uint64, tag = "28")]
    pub looked: u64,
    /// Time in which the receiving thread did not wait for datagrams, in nanoseconds; includes
    /// waits for a CPU (receiving end).
    #[prost(uint64, tag = "31")]
    pub awake_nanos: u64,
    /// Blocks that had to arrive as datagrams: all but those that existed before or have only
    /// padding and holes; sent with the outcome (receiving end).
    #[prost(uint64, optional, tag = "32")]
    pub due: Option<u64>,
    /// Datagrams known to have been sent faster than requested, if the receiving end sets the rate
    /// (receiving end).
    #[prost(uint64, tag = "33")]
    pub too_fast: u64,
    /// Time spent waiting for room in a stream, if chunks go over streams, in nanoseconds (sending
    /// end).
    #[prost(uint64, tag = "34")]
    pub stream_nanos: u64,
    /// Time spent waiting for memory for chunks from streams, all streams together, in nanoseconds
    /// (receiving end).
    #[prost(uint64, tag = "35")]
    pub room_nanos: u64,
    /// The rate found for the path, in bits a second; zero: none (sending end).
    #[prost(uint64, tag = "36")]
    pub found_bps: u64,
    /// Time from the first datagram until the rate was found, in nanoseconds (sending end).
    #[prost(uint64, tag = "37")]
    pub found_nanos: u64,
    /// The path's own loss, in millionths (sending end).
    #[prost(uint32, tag = "38")]
    pub path_loss_ppm: u32,
    /// How long the sending end detected other traffic on the path, in nanoseconds; absent if it
    /// did not look for any (sending end).
    #[prost(uint64, optional, tag = "39")]
    pub shared_nanos: Option<u64>,
    /// The state of the rate search: 1 start, 2 alone, 3 shared; others: none (sending end).
    #[prost(uint32, tag = "40")]
    pub phase: u32,
    /// Coded symbols sent, a part of `retransmitted` (sending end).
    #[prost(uint64, tag = "41")]
    pub coded: u64,
    /// Blocks that coded symbols replaced, a part of `distinct` (receiving end).
    #[prost(uint64, tag = "42")]
    pub recovered: u64,
}

/// Another copy is writing a file of the destination; the server waits for the end of that copy.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Held {
    /// The file, or the destination, as text for people.
    #[prost(string, tag = "1")]
    pub path: String,
    /// The longest wait in whole seconds.
    #[prost(uint32, tag = "2")]
    pub seconds: u32,
    /// The rest of the longest wait, in nanoseconds.
    #[prost(uint32, tag = "3")]
    pub nanos: u32,
}

impl Held {
    pub(crate) fn new(path: String, patience: Duration) -> Held {
        let seconds = u32::try_from(patience.as_secs()).unwrap_or(u32::MAX);
        Held { path, seconds, nanos: patience.subsec_nanos() }
    }

    pub(crate) fn patience(&self) -> Duration {
        Duration::new(self.seconds.into(), self.nanos)
    }
}

/// A warning of the server for the user of the copy. Older clients skip it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Warning {
    /// What is wrong, and what to do.
    #[prost(string, tag = "1")]
    pub text: String,
}

/// The request is granted, but the server takes no data yet: another transfer has to give way or to
/// release memory first. Data that the client sends meanwhile are lost, except for a few early
/// datagrams. Sent again with `over` when the transfer starts.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Wait {
    /// The transfer starts now.
    #[prost(bool, tag = "1")]
    pub over: bool,
}

/// Files, folders and links that have their final names; sent only if the request asks for names.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Named {
    /// The entries, by index in the manifest.
    #[prost(message, optional, tag = "1")]
    pub entries: Option<Ranges>,
}

/// Names that the source lacks and that were removed, or would be in a dry run; sent only if the
/// request asks for names, or for a dry run.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DeletedNames {
    /// Their paths from the top of the copy; paths of folders end with a slash.
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub paths: Vec<Vec<u8>>,
}

/// The pass has ended: all of its chunks are written, except `failed`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PassEnd {
    /// The number of the pass.
    #[prost(uint32, tag = "1")]
    pub number: u32,
    /// Chunks that must be sent again: their digest was wrong, or their sync failed.
    #[prost(message, optional, tag = "2")]
    pub failed: Option<Ranges>,
}

/// With several sources of one object: the chunks that this source has to send next, regardless of
/// its current pass.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Lease {
    /// The number of the lease, from 1. A lease whose number is not higher than that of the last
    /// lease is ignored.
    #[prost(uint32, tag = "1")]
    pub number: u32,
    /// The chunks of the object.
    #[prost(message, optional, tag = "2")]
    pub chunks: Option<Ranges>,
}

/// The receiving end's last message: the result of the transfer.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Outcome {
    /// Files that this run copied.
    #[prost(uint64, tag = "1")]
    pub files: u64,
    /// Files skipped because equal ones exist.
    #[prost(uint64, tag = "2")]
    pub skipped: u64,
    /// Entries that failed at either end, up to a limit.
    #[prost(message, repeated, tag = "3")]
    pub failed: Vec<EntryFailed>,
    /// BLAKE3 of the object, if all of it was hashed.
    #[prost(bytes = "vec", tag = "4")]
    pub digest: Vec<u8>,
    /// The receiving end's final accounting.
    #[prost(message, optional, tag = "5")]
    pub status: Option<Status>,
    /// The number of failed entries, even if `failed` was truncated.
    #[prost(uint64, tag = "6")]
    pub failed_count: u64,
    /// Bytes that existed before, including those found only by a comparison.
    #[prost(uint64, tag = "7")]
    pub resumed_bytes: u64,
    /// Time since the last block arrived, in nanoseconds; absent if none did.
    #[prost(uint64, optional, tag = "8")]
    pub since_last_nanos: Option<u64>,
    /// Bytes of the failed files, including parts that arrived.
    #[prost(uint64, tag = "9")]
    pub failed_bytes: u64,
    /// Symbolic links that this run created.
    #[prost(uint64, tag = "10")]
    pub links: u64,
    /// Folders that this run created.
    #[prost(uint64, tag = "11")]
    pub folders: u64,
    /// Names that the source lacks and that this run removed, or would in a dry run.
    #[prost(uint64, tag = "12")]
    pub deleted: u64,
    /// The copy is incomplete, so names were not removed, although the request asks for removal.
    #[prost(bool, tag = "13")]
    pub kept_extra: bool,
}

/// The client's last message of a push: the client has received the [`Outcome`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct Heard {}

/// An entry that the sending end could not read, or the receiving end could not write.
#[derive(Clone, PartialEq, prost::Message)]
pub struct EntryFailed {
    /// The entry, by index in the manifest; 2⁶⁴ − 1 if only the path is known.
    #[prost(uint64, tag = "1")]
    pub entry: u64,
    /// The entry's path.
    #[prost(bytes = "vec", tag = "2")]
    pub path: Vec<u8>,
    /// The reason.
    #[prost(string, tag = "3")]
    pub reason: String,
    /// The failure concerns the file at the source, not at the destination.
    #[prost(bool, tag = "4")]
    pub at_source: bool,
    /// The source file changed while it was read: its received content is void. A new request reads
    /// the new version.
    #[prost(bool, tag = "5")]
    pub changed: bool,
}

/// The first message of an additional stream that carries chunks of a transfer.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Attach {
    /// The transfer's id from its request.
    #[prost(fixed64, tag = "1")]
    pub transfer: u64,
}

/// A piece of a chunk on a stream; the pieces of a chunk are consecutive. Also carries a piece of a
/// manifest (`streamed_len` in [`Offer`]), or the content of a probe's stream; `chunk` is
/// then zero and `last` false.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ChunkPiece {
    /// The chunk of the object.
    #[prost(uint64, tag = "1")]
    pub chunk: u64,
    /// Offset of the piece in the chunk.
    #[prost(uint32, tag = "2")]
    pub offset: u32,
    /// The bytes.
    #[prost(bytes = "vec", tag = "3")]
    pub bytes: Vec<u8>,
    /// The chunk is complete with this piece.
    #[prost(bool, tag = "4")]
    pub last: bool,
}
