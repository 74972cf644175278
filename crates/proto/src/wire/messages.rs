//! The protobuf form of the control messages, used only by [`control`](super::control).
//!
//! Field numbers never change their meaning: a new field gets a new number.

use alloc::vec::Vec;

/// One control message.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Envelope {
    #[prost(oneof = "Body", tags = "1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13, 14, 15, 16")]
    pub(super) body: Option<Body>,
}

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

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Done {
    #[prost(uint32, tag = "1")]
    pub(super) segment: u32,
    #[prost(uint32, tag = "2")]
    pub(super) round: u32,
    #[prost(uint32, tag = "3")]
    pub(super) sent_to: u32,
    #[prost(uint64, tag = "4")]
    pub(super) highest: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Report {
    #[prost(uint32, tag = "1")]
    pub(super) segment: u32,
    #[prost(uint32, tag = "2")]
    pub(super) round: u32,
    #[prost(uint32, tag = "3")]
    pub(super) first: u32,
    #[prost(uint32, tag = "4")]
    pub(super) count: u32,
    /// Gaps and lengths in turn, each a varint; a gap starts at the end of the previous run.
    #[prost(bytes = "vec", tag = "5")]
    pub(super) runs: Vec<u8>,
    /// A bit for each block of the slice, lowest first, set where it is missing.
    #[prost(bytes = "vec", tag = "6")]
    pub(super) bitmap: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Pulse {
    #[prost(uint64, tag = "1")]
    pub(super) sequence: u64,
    #[prost(uint64, tag = "2")]
    pub(super) clock: u64,
    /// Highest packet number received, plus one.
    #[prost(uint64, tag = "3")]
    pub(super) highest: u64,
    #[prost(uint64, tag = "4")]
    pub(super) received: u64,
    #[prost(uint64, tag = "5")]
    pub(super) distinct: u64,
    #[prost(uint64, tag = "6")]
    pub(super) grant: u64,
    #[prost(uint64, optional, tag = "7")]
    pub(super) drain: Option<u64>,
    #[prost(uint64, optional, tag = "8")]
    pub(super) echo: Option<u64>,
    #[prost(uint64, tag = "9")]
    pub(super) echo_age: u64,
    #[prost(uint64, optional, tag = "10")]
    pub(super) train: Option<u64>,
    #[prost(uint64, tag = "11")]
    pub(super) train_bytes: u64,
    #[prost(uint64, tag = "12")]
    pub(super) train_span: u64,
    #[prost(uint64, tag = "13")]
    pub(super) socket_lost: u64,
    #[prost(uint32, tag = "14")]
    pub(super) train_steps: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Ack {
    #[prost(uint64, tag = "1")]
    pub(super) sequence: u64,
    #[prost(uint64, tag = "2")]
    pub(super) next: u64,
    #[prost(uint64, tag = "3")]
    pub(super) received: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Loss {
    #[prost(uint64, tag = "1")]
    pub(super) sequence: u64,
    /// Gaps and lengths in turn, each a varint; a gap starts at the end of the previous run.
    #[prost(bytes = "vec", tag = "2")]
    pub(super) lost: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Selective {
    #[prost(uint64, tag = "1")]
    pub(super) sequence: u64,
    #[prost(message, optional, tag = "2")]
    pub(super) report: Option<Report>,
    /// Present only in the last message of an acknowledgement.
    #[prost(uint64, optional, tag = "3")]
    pub(super) highest: Option<u64>,
    #[prost(uint64, tag = "4")]
    pub(super) fresh: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Sync {
    #[prost(uint64, tag = "1")]
    pub(super) sequence: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Request {
    #[prost(uint64, tag = "1")]
    pub(super) sequence: u64,
    #[prost(uint64, tag = "2")]
    pub(super) rate: u64,
    #[prost(bool, tag = "3")]
    pub(super) anew: bool,
    /// Gaps and lengths in turn, each a varint; a gap starts at the end of the previous run.
    #[prost(bytes = "vec", tag = "4")]
    pub(super) blocks: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct SenderOffer {
    #[prost(uint64, tag = "1")]
    pub(super) sequence: u64,
    #[prost(uint64, tag = "2")]
    pub(super) rtt: u64,
    #[prost(uint64, optional, tag = "3")]
    pub(super) limit: Option<u64>,
    #[prost(uint64, tag = "4")]
    pub(super) answered: u64,
    /// Highest packet number used, plus one.
    #[prost(uint64, tag = "5")]
    pub(super) highest: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ErrorRate {
    #[prost(uint64, tag = "1")]
    pub(super) sequence: u64,
    /// Thousandths of a percent.
    #[prost(uint32, tag = "2")]
    pub(super) rate: u32,
    #[prost(uint64, optional, tag = "3")]
    pub(super) restart: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct Burst {
    #[prost(uint32, tag = "1")]
    pub(super) size: u32,
    #[prost(uint64, tag = "2")]
    pub(super) interval: u64,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct Go {
    #[prost(uint64, tag = "1")]
    pub(super) buffers: u64,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct BufferOk {
    #[prost(uint64, tag = "1")]
    pub(super) buffer: u64,
    #[prost(message, optional, tag = "2")]
    pub(super) offer: Option<Burst>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Resend {
    #[prost(uint64, tag = "1")]
    pub(super) buffer: u64,
    #[prost(uint64, tag = "2")]
    pub(super) highest: u64,
    #[prost(message, optional, tag = "3")]
    pub(super) report: Option<Report>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct Begun {
    #[prost(uint64, tag = "1")]
    pub(super) buffer: u64,
    #[prost(message, optional, tag = "2")]
    pub(super) burst: Option<Burst>,
}
