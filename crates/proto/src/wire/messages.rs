//! The protobuf form of the control messages, used only by [`control`](super::control).
//!
//! Field numbers never change their meaning: a new field gets a new number.

use alloc::vec::Vec;

/// A control message. It has one of the fields of [`Body`].
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Envelope {
    #[prost(oneof = "Body", tags = "1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13, 14, 15, 16")]
    pub(super) body: Option<Body>,
}

/// The kinds of control messages. Each protocol uses some of them.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Body {
    #[prost(message, tag = "1")]
    Done(Done),
    #[prost(message, tag = "2")]
    Report(Report),
    #[prost(message, tag = "3")]
    Pulse(Pulse),
    #[prost(message, tag = "4")]
    Ack(Ack),
    #[prost(message, tag = "5")]
    Loss(Loss),
    #[prost(message, tag = "6")]
    Sync(Sync),
    #[prost(message, tag = "7")]
    ErrorRate(ErrorRate),
    #[prost(message, tag = "10")]
    Selective(Selective),
    #[prost(message, tag = "11")]
    Go(Go),
    #[prost(message, tag = "12")]
    BufferOk(BufferOk),
    #[prost(message, tag = "13")]
    Resend(Resend),
    #[prost(message, tag = "14")]
    Begun(Begun),
    #[prost(message, tag = "15")]
    Request(Request),
    #[prost(message, tag = "16")]
    SenderOffer(SenderOffer),
}

/// RBUDP, from the sender: a round over a segment has been sent. The receiver answers with
/// `Report`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Done {
    /// The segment, from 0.
    #[prost(uint32, tag = "1")]
    pub(super) segment: u32,
    /// The round, from 1.
    #[prost(uint32, tag = "2")]
    pub(super) round: u32,
    /// The segment's blocks before this block have been sent at least once, or need not be sent.
    #[prost(uint32, tag = "3")]
    pub(super) sent_to: u32,
    /// The highest packet number that carried a block of the round.
    #[prost(uint64, tag = "4")]
    pub(super) highest: u64,
}

/// From the receiver: the missing blocks of a slice (a range of blocks) of a segment, as `runs` or
/// as `bitmap`. `runs`, `bitmap` or both are empty.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Report {
    /// The segment, from 0.
    #[prost(uint32, tag = "1")]
    pub(super) segment: u32,
    /// The round of the `Done` that this report answers; 0 if it answers none.
    #[prost(uint32, tag = "2")]
    pub(super) round: u32,
    /// The first block of the slice, counted within the segment.
    #[prost(uint32, tag = "3")]
    pub(super) first: u32,
    /// The number of blocks in the slice, at least 1.
    #[prost(uint32, tag = "4")]
    pub(super) count: u32,
    /// Runs of blocks: for each run a gap and a length, both varints. A gap counts from the end of
    /// the previous run, the first gap from the start of the slice.
    #[prost(bytes = "vec", tag = "5")]
    pub(super) runs: Vec<u8>,
    /// A bit for each block of the slice, lowest first; a bit is set if its block is missing.
    #[prost(bytes = "vec", tag = "6")]
    pub(super) bitmap: Vec<u8>,
}

/// From the receiver: the periodic report on a flow. All counts start with the flow.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Pulse {
    /// The number of the pulse. If a pulse arrives after a later pulse, only the grant of the
    /// earlier pulse is used.
    #[prost(uint64, tag = "1")]
    pub(super) sequence: u64,
    /// Time since the receiver first knew the flow, in nanoseconds.
    #[prost(uint64, tag = "2")]
    pub(super) clock: u64,
    /// Highest packet number received, plus one.
    #[prost(uint64, tag = "3")]
    pub(super) highest: u64,
    /// Data datagrams that arrived.
    #[prost(uint64, tag = "4")]
    pub(super) received: u64,
    /// Blocks that arrived for the first time.
    #[prost(uint64, tag = "5")]
    pub(super) distinct: u64,
    /// Bytes of blocks that may be sent for the first time.
    #[prost(uint64, tag = "6")]
    pub(super) grant: u64,
    /// The rate at which the receiving host empties its buffers, in bits a second; absent if
    /// unknown.
    #[prost(uint64, optional, tag = "7")]
    pub(super) drain: Option<u64>,
    /// The highest packet number that arrived; absent before the first datagram.
    #[prost(uint64, optional, tag = "8")]
    pub(super) echo: Option<u64>,
    /// The time from the arrival of the datagram `echo` to the pulse, in nanoseconds.
    #[prost(uint64, tag = "9")]
    pub(super) echo_age: u64,
    /// The packet number of the first datagram of the newest measured packet train (datagrams sent
    /// back to back); absent without one.
    #[prost(uint64, optional, tag = "10")]
    pub(super) train: Option<u64>,
    /// UDP payload that arrived after the train's first arrival, in bytes. If the receiving host
    /// slept during the train, the datagrams that arrived at the end of the sleep do not count.
    #[prost(uint64, tag = "11")]
    pub(super) train_bytes: u64,
    /// The time from the train's first arrival to its last, in nanoseconds. A sleep of the
    /// receiving host does not count.
    #[prost(uint64, tag = "12")]
    pub(super) train_span: u64,
    /// Datagrams that the receiver's own socket dropped.
    #[prost(uint64, tag = "13")]
    pub(super) socket_lost: u64,
    /// The number of distinct arrival times in the train after the first.
    #[prost(uint32, tag = "14")]
    pub(super) train_steps: u32,
}

/// From the receiver: its progress. Blocks are numbered from the start of the object.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Ack {
    /// The number of the acknowledgement.
    #[prost(uint64, tag = "1")]
    pub(super) sequence: u64,
    /// The first block that has not arrived.
    #[prost(uint64, tag = "2")]
    pub(super) next: u64,
    /// The number of arrived blocks.
    #[prost(uint64, tag = "3")]
    pub(super) received: u64,
}

/// From the receiver: blocks that it requests again. Blocks are numbered from the start of the
/// object.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Loss {
    /// The number of the list.
    #[prost(uint64, tag = "1")]
    pub(super) sequence: u64,
    /// Runs of blocks: for each run a gap and a length, both varints. A gap counts from the end of
    /// the previous run, the first gap from block 0.
    #[prost(bytes = "vec", tag = "2")]
    pub(super) lost: Vec<u8>,
}

/// FOBS, from the receiver: a part of an acknowledgement.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Selective {
    /// The number of the acknowledgement, the same in all its messages.
    #[prost(uint64, tag = "1")]
    pub(super) sequence: u64,
    /// The missing blocks of a slice; the other blocks of the slice have arrived.
    #[prost(message, optional, tag = "2")]
    pub(super) report: Option<Report>,
    /// Highest packet number received, plus one. Present only in the last message of an
    /// acknowledgement.
    #[prost(uint64, optional, tag = "3")]
    pub(super) highest: Option<u64>,
    /// In the last message: the number of blocks that arrived for the first time since the previous
    /// acknowledgement.
    #[prost(uint64, tag = "4")]
    pub(super) fresh: u64,
}

/// SABUL, from the receiver: a synchronization interval has ended, and the sender adjusts its rate.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Sync {
    /// The number of the interval.
    #[prost(uint64, tag = "1")]
    pub(super) sequence: u64,
}

/// GTP, from the receiver: blocks to send, and the rate from now on.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Request {
    /// The number of the request, from 1. Requests are obeyed in order, each at most once.
    #[prost(uint64, tag = "1")]
    pub(super) sequence: u64,
    /// The allowed rate, in bits a second of UDP payload.
    #[prost(uint64, tag = "2")]
    pub(super) rate: u64,
    /// Whether this request voids all earlier ones: the sender forgets requested blocks that it has
    /// not sent yet, and ignores earlier requests that arrive later.
    #[prost(bool, tag = "3")]
    pub(super) anew: bool,
    /// Runs of blocks: for each run a gap and a length, both varints. A gap counts from the end of
    /// the previous run, the first gap from block 0.
    #[prost(bytes = "vec", tag = "4")]
    pub(super) blocks: Vec<u8>,
}

/// GTP, from the sender: its limits and its progress.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct SenderOffer {
    /// The number of the offer, from 1. An offer that arrives after a later one is ignored.
    #[prost(uint64, tag = "1")]
    pub(super) sequence: u64,
    /// The sender's round-trip time, in nanoseconds.
    #[prost(uint64, tag = "2")]
    pub(super) rtt: u64,
    /// The lower of the sender's rate limit and the speed of its network card, in bits a second of
    /// UDP payload; absent if neither is known.
    #[prost(uint64, optional, tag = "3")]
    pub(super) limit: Option<u64>,
    /// All blocks of the requests up to this number have been sent, or need not be sent; 0 before
    /// the first request.
    #[prost(uint64, tag = "4")]
    pub(super) answered: u64,
    /// Highest packet number used when the last block of request `answered` was sent, plus one.
    #[prost(uint64, tag = "5")]
    pub(super) highest: u64,
}

/// Tsunami, from the receiver: the smoothed error rate.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ErrorRate {
    /// The number of the report.
    #[prost(uint64, tag = "1")]
    pub(super) sequence: u64,
    /// The rate in thousandths of a percent.
    #[prost(uint32, tag = "2")]
    pub(super) rate: u32,
    /// If present, the sender sends everything from this block on again.
    #[prost(uint64, optional, tag = "3")]
    pub(super) restart: Option<u64>,
}

/// A rate, as a burst size and an interval.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct Burst {
    /// Datagrams of a burst, at least 1.
    #[prost(uint32, tag = "1")]
    pub(super) size: u32,
    /// The time from the start of one burst to the start of the next, in nanoseconds.
    #[prost(uint64, tag = "2")]
    pub(super) interval: u64,
}

/// NETBLT, from the receiver: allows buffers (NETBLT's parts of the object) to be sent.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct Go {
    /// All buffers below this number may be sent.
    #[prost(uint64, tag = "1")]
    pub(super) buffers: u64,
}

/// NETBLT, from the receiver: a buffer is complete.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct BufferOk {
    /// The buffer.
    #[prost(uint64, tag = "1")]
    pub(super) buffer: u64,
    /// The fastest rate that the receiver accepts for the following buffers; absent without a
    /// limit.
    #[prost(message, optional, tag = "2")]
    pub(super) offer: Option<Burst>,
}

/// NETBLT, from the receiver: missing blocks of a buffer.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Resend {
    /// The buffer.
    #[prost(uint64, tag = "1")]
    pub(super) buffer: u64,
    /// Highest packet number received, plus one.
    #[prost(uint64, tag = "2")]
    pub(super) highest: u64,
    /// The missing blocks; `round` is the number of this request among the requests for the buffer,
    /// from 1.
    #[prost(message, optional, tag = "3")]
    pub(super) report: Option<Report>,
}

/// NETBLT, from the sender: a buffer begins.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct Begun {
    /// The buffer.
    #[prost(uint64, tag = "1")]
    pub(super) buffer: u64,
    /// The rate of the buffer; absent if unknown.
    #[prost(message, optional, tag = "2")]
    pub(super) burst: Option<Burst>,
}
