//! The control messages as protobuf sees them; nothing outside [`control`](super::control) does.
//!
//! Field numbers are for ever: a field is added, never given another meaning.

use alloc::vec::Vec;

/// One control message.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Envelope {
    #[prost(oneof = "Body", tags = "1, 2, 3, 4, 5")]
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
    /// Gap and length in turn, each a varint; gaps from the end of the run before.
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
    /// One more than the highest packet number that came.
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
    /// Gap and length in turn, each a varint; gaps from the end of the run before.
    #[prost(bytes = "vec", tag = "2")]
    pub(super) lost: Vec<u8>,
}
