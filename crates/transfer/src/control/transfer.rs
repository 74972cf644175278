//! The messages of a transfer under way.

use longhaul_proto::units::Rate;

use super::Ranges;

/// What the sending end has. Either the manifest itself or where it is found.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Offer {
    /// The encoded manifest, where it is small.
    #[prost(bytes = "vec", tag = "1")]
    pub manifest: Vec<u8>,
    /// Otherwise its length: it is the beginning of the object, from its first byte.
    #[prost(uint64, tag = "2")]
    pub manifest_len: u64,
    /// BLAKE3 of the encoded manifest.
    #[prost(bytes = "vec", tag = "3")]
    pub manifest_digest: Vec<u8>,
    /// Length of the whole virtual object, manifest included.
    #[prost(uint64, tag = "4")]
    pub object_len: u64,
    /// Or its length where it follows on this stream, in pieces: the data are not sealed.
    #[prost(uint64, tag = "5")]
    pub streamed_len: u64,
}

/// One flow's run over what is still missing.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Pass {
    /// Its number, from 0.
    #[prost(uint32, tag = "1")]
    pub number: u32,
    /// The flow, new for each pass: the receiving end refuses the id of an earlier pass of the same
    /// transfer, which would repeat keys and nonces.
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
    /// Registry name of the protocol; empty: the chunks come by stream.
    #[prost(string, tag = "6")]
    pub protocol: String,
    /// The number of the last [`Lease`], which this pass brings; zero for what was planned.
    #[prost(uint32, tag = "7")]
    pub lease: u32,
}

/// The receiving host's network card, for a sender whose highest rate is that of both cards. Told
/// once, before anything has come; not at all where data pass no card, or it tells no speed.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Card {
    /// What it takes of UDP payload in full datagrams, in bits a second.
    #[prost(uint64, tag = "1")]
    pub bps: u64,
}

/// No card is slower.
const SLOWEST_CARD: Rate = Rate::from_mbps(1);

impl Card {
    /// What it takes; nothing where no card takes so little.
    pub(crate) fn speed(&self) -> Option<Rate> {
        Some(Rate::from_bps(self.bps)).filter(|speed| *speed >= SLOWEST_CARD)
    }
}

/// What need not be sent, and what must be compared first.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Plan {
    /// Chunks of the virtual object that are there.
    #[prost(message, optional, tag = "1")]
    pub have: Option<Ranges>,
    /// Entries whose chunks must be compared before it is known what is missing.
    #[prost(message, repeated, tag = "2")]
    pub compare: Vec<Compare>,
    /// Entries left out because they are there and equal, folders that are there among them, by
    /// index.
    #[prost(message, optional, tag = "3")]
    pub skipped: Option<Ranges>,
    /// Bytes that need not be sent.
    #[prost(uint64, tag = "4")]
    pub resumed_bytes: u64,
    /// More slices of the same plan follow.
    #[prost(bool, tag = "5")]
    pub more: bool,
}

/// Chunks of a partial file whose worth only the source can tell.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Compare {
    /// The entry, by index in the manifest.
    #[prost(uint64, tag = "1")]
    pub entry: u64,
    /// Chunks, counted within the file.
    #[prost(uint64, repeated, tag = "2")]
    pub chunks: Vec<u64>,
    /// 32 bytes for each of them: what the chunk at the destination hashes to.
    #[prost(bytes = "vec", tag = "3")]
    pub values: Vec<u8>,
}

/// The answer to [`Compare`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct Compared {
    /// The entry.
    #[prost(uint64, tag = "1")]
    pub entry: u64,
    /// For each of the chunks asked about, in order: is it the same at the source?
    #[prost(bool, repeated, tag = "2")]
    pub same: Vec<bool>,
}

/// Chunks that nobody needs any more: what they belonged to has failed.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Needless {
    /// The chunks of the virtual object.
    #[prost(message, optional, tag = "1")]
    pub chunks: Option<Ranges>,
}

/// What chunks must hash to.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Digests {
    /// The chunks of the virtual object.
    #[prost(uint64, repeated, tag = "1")]
    pub chunks: Vec<u64>,
    /// 32 bytes for each.
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
    /// Counts a direction's messages of the flow: the same message may come by two ways.
    #[prost(uint64, tag = "3")]
    pub number: u64,
}

/// How far an end is; cumulative over the transfer.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Status {
    /// Datagrams sent (sending end).
    #[prost(uint64, tag = "1")]
    pub sent: u64,
    /// Blocks sent for the first time (sending end).
    #[prost(uint64, tag = "2")]
    pub first: u64,
    /// Blocks sent again (sending end).
    #[prost(uint64, tag = "3")]
    pub retransmitted: u64,
    /// Losses as reported to the sending end, or by the receiving end.
    #[prost(uint64, tag = "4")]
    pub reported_lost: u64,
    /// Rounds of the segment that needed most (sending end).
    #[prost(uint32, tag = "5")]
    pub rounds: u32,
    /// Sending rate in bits a second (sending end).
    #[prost(uint64, tag = "6")]
    pub rate_bps: u64,
    /// Smoothed round-trip time in nanoseconds (sending end).
    #[prost(uint64, tag = "7")]
    pub rtt_nanos: u64,
    /// Bytes of the object that are written (receiving end).
    #[prost(uint64, tag = "8")]
    pub written: u64,
    /// Files that stand under their names (receiving end).
    #[prost(uint64, tag = "9")]
    pub files: u64,
    /// Datagrams received, a duplicate too (receiving end).
    #[prost(uint64, tag = "10")]
    pub received: u64,
    /// Blocks that came for the first time (receiving end).
    #[prost(uint64, tag = "11")]
    pub distinct: u64,
    /// Blocks that were there already (receiving end).
    #[prost(uint64, tag = "12")]
    pub duplicates: u64,
    /// Blocks found missing, once each (receiving end).
    #[prost(uint64, tag = "13")]
    pub blocks_lost: u64,
    /// Datagrams that the kernel dropped for want of buffer (receiving end).
    #[prost(uint64, tag = "14")]
    pub socket_lost: u64,
    /// One more than the highest packet number received, summed over passes (receiving end).
    #[prost(uint64, tag = "15")]
    pub highest: u64,
    /// Where this end's time went, in nanoseconds: waiting for the pacer.
    #[prost(uint64, tag = "16")]
    pub paced_nanos: u64,
    /// Waiting for the receiver's grant (sending end).
    #[prost(uint64, tag = "17")]
    pub granted_nanos: u64,
    /// Reading at the source, or writing at the destination.
    #[prost(uint64, tag = "18")]
    pub disk_nanos: u64,
    /// Working on datagrams; at the receiving end, CPU time of the thread that receives.
    #[prost(uint64, tag = "19")]
    pub busy_nanos: u64,
    /// Datagrams that were refused: of no flow, forged, malformed, or copies (receiving end).
    #[prost(uint64, tag = "21")]
    pub refused: u64,
    /// How much of `disk_nanos` was CPU time, for hashing and moving bytes, and no waiting.
    #[prost(uint64, tag = "22")]
    pub disk_cpu_nanos: u64,
    /// Genuine datagrams that found no memory for their chunk (receiving end).
    #[prost(uint64, tag = "23")]
    pub memory_lost: u64,
    /// Connections that carry the chunks now, where they come by stream (sending end).
    #[prost(uint32, tag = "24")]
    pub streams: u32,
    /// That number was found to be the best of those tried.
    #[prost(bool, tag = "25")]
    pub streams_found: bool,
    /// Bytes of chunks that have come by stream (receiving end).
    #[prost(uint64, tag = "26")]
    pub streamed: u64,
    /// Blocks that nobody asked for (receiving end).
    #[prost(uint64, tag = "30")]
    pub unasked: u64,
    /// CPU time of the thread that carries the control stream, and chunks that go by stream.
    #[prost(uint64, tag = "29")]
    pub carrier_nanos: u64,
    /// Datagrams with data that came before their flow was known and did not fit the memory for
    /// early datagrams (receiving end).
    #[prost(uint64, tag = "27")]
    pub early_lost: u64,
    /// Names looked at and chunks read, to find out what there is to do.
    #[prost(uint64, tag = "28")]
    pub looked: u64,
    /// How long the thread that receives did not wait for datagrams, with a CPU or without one
    /// (receiving end).
    #[prost(uint64, tag = "31")]
    pub awake_nanos: u64,
    /// Blocks that had to come: neither there nor implied; told with the outcome, where they came
    /// by datagram (receiving end).
    #[prost(uint64, optional, tag = "32")]
    pub due: Option<u64>,
    /// Datagrams known to have been sent faster than they were asked for, where the receiving end
    /// asks (receiving end).
    #[prost(uint64, tag = "33")]
    pub too_fast: u64,
    /// Waiting for a stream that takes more, where chunks go by stream (sending end).
    #[prost(uint64, tag = "34")]
    pub stream_nanos: u64,
    /// Waiting for memory for chunks that come by stream, all streams together (receiving end).
    #[prost(uint64, tag = "35")]
    pub room_nanos: u64,
    /// The rate that was found for the path, in bits a second; zero: none was (sending end).
    #[prost(uint64, tag = "36")]
    pub found_bps: u64,
    /// From the first datagram until a rate was found (sending end).
    #[prost(uint64, tag = "37")]
    pub found_nanos: u64,
    /// The path's own loss, in millionths (sending end).
    #[prost(uint32, tag = "38")]
    pub path_loss_ppm: u32,
    /// How long other traffic was believed to be on the path; absent: it was not looked for
    /// (sending end).
    #[prost(uint64, optional, tag = "39")]
    pub shared_nanos: Option<u64>,
}

/// A file of the destination is another copy's at this moment; its end is waited for.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Held {
    /// The file, or the destination, for people.
    #[prost(string, tag = "1")]
    pub path: String,
    /// How many seconds it is waited for at most.
    #[prost(uint32, tag = "2")]
    pub seconds: u32,
}

/// The request is granted, but nothing is taken in yet: another transfer has to give way first, or
/// to give memory back. What the client sends meanwhile is lost, but for the little that is held
/// of first data. Told again with `over` once it begins.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Wait {
    /// It begins now.
    #[prost(bool, tag = "1")]
    pub over: bool,
}

/// Files, folders and links that have got their names; told only where the request asks for it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Named {
    /// The entries, by index in the manifest.
    #[prost(message, optional, tag = "1")]
    pub entries: Option<Ranges>,
}

/// Names that the source lacks and that were removed, or would be in a dry run; told only where
/// the request asks for names, or for a dry run.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DeletedNames {
    /// Their paths from the top of the copy; those of folders end with a slash.
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub paths: Vec<Vec<u8>>,
}

/// All chunks of the pass but these are written.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PassEnd {
    /// The pass.
    #[prost(uint32, tag = "1")]
    pub number: u32,
    /// Chunks whose digest was wrong; they must come again.
    #[prost(message, optional, tag = "2")]
    pub failed: Option<Ranges>,
}

/// Where several sources have one object, the chunks that this one is to bring next, whatever its
/// pass is, and no others.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Lease {
    /// Its number, from 1. One that is no higher than that of the last lease is ignored.
    #[prost(uint32, tag = "1")]
    pub number: u32,
    /// The chunks of the virtual object.
    #[prost(message, optional, tag = "2")]
    pub chunks: Option<Ranges>,
}

/// The receiving end's last word: what stands under its final name.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Outcome {
    /// Files that this run brought.
    #[prost(uint64, tag = "1")]
    pub files: u64,
    /// Files left out because they were there and equal.
    #[prost(uint64, tag = "2")]
    pub skipped: u64,
    /// Entries that failed at the receiving end: path and reason.
    #[prost(message, repeated, tag = "3")]
    pub failed: Vec<EntryFailed>,
    /// BLAKE3 of the object, where all of it was hashed.
    #[prost(bytes = "vec", tag = "4")]
    pub digest: Vec<u8>,
    /// The receiving end's final accounting.
    #[prost(message, optional, tag = "5")]
    pub status: Option<Status>,
    /// How many entries failed, also where `failed` was cut short.
    #[prost(uint64, tag = "6")]
    pub failed_count: u64,
    /// Bytes that were there before, also those that only a comparison showed.
    #[prost(uint64, tag = "7")]
    pub resumed_bytes: u64,
    /// How long ago the last block came, in nanoseconds; nothing where none did.
    #[prost(uint64, optional, tag = "8")]
    pub since_last_nanos: Option<u64>,
    /// Bytes of the files that failed, parts that had come included.
    #[prost(uint64, tag = "9")]
    pub failed_bytes: u64,
    /// Symbolic links that this run made.
    #[prost(uint64, tag = "10")]
    pub links: u64,
    /// Folders that this run made.
    #[prost(uint64, tag = "11")]
    pub folders: u64,
    /// Names that the source lacks and that this run removed, or would in a dry run.
    #[prost(uint64, tag = "12")]
    pub deleted: u64,
    /// None was removed, though the request asks for it: not all of the copy is there.
    #[prost(bool, tag = "13")]
    pub kept_extra: bool,
}

/// The client's last word on a push: it has the [`Outcome`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct Heard {}

/// An entry that the sending end could not read, or the receiving end could not write.
#[derive(Clone, PartialEq, prost::Message)]
pub struct EntryFailed {
    /// The entry, by index in the manifest.
    #[prost(uint64, tag = "1")]
    pub entry: u64,
    /// Its path.
    #[prost(bytes = "vec", tag = "2")]
    pub path: Vec<u8>,
    /// Why.
    #[prost(string, tag = "3")]
    pub reason: String,
    /// It is the file's own trouble at the source, not at the destination.
    #[prost(bool, tag = "4")]
    pub at_source: bool,
    /// The source file changed while it was read: all that came of it is void. A new request finds
    /// its new version.
    #[prost(bool, tag = "5")]
    pub changed: bool,
}

/// The first message of a further stream that carries chunks of a transfer.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Attach {
    /// The transfer, as its request named it.
    #[prost(fixed64, tag = "1")]
    pub transfer: u64,
}

/// A piece of a chunk on a stream; a chunk's pieces follow each other.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ChunkPiece {
    /// The chunk of the virtual object.
    #[prost(uint64, tag = "1")]
    pub chunk: u64,
    /// Where in the chunk the piece begins.
    #[prost(uint32, tag = "2")]
    pub offset: u32,
    /// The bytes.
    #[prost(bytes = "vec", tag = "3")]
    pub bytes: Vec<u8>,
    /// The chunk is whole with this piece.
    #[prost(bool, tag = "4")]
    pub last: bool,
}
