//! The messages between the two ends of a transfer on the control stream.
//!
//! The client opens with a [`Request`]. Most other messages depend on the direction of the copy,
//! not on which side is the client: a *sending end* has the source, a *receiving end* has the
//! destination. Messages are protobuf, so old and new versions can communicate. The code that uses
//! a message checks it against the object before it allocates anything.
//!
//! | from | message | when it is sent, or what it says |
//! | --- | --- | --- |
//! | client | [`Request`] | first |
//! | sending end | [`Offer`], then [`Pass`] | immediately; another `Pass` resends chunks |
//! | receiving end | [`Card`] | immediately, if the speed of its network card is known |
//! | receiving end | [`Plan`] | when it knows the list of files: the chunks that need not be sent |
//! | sending end | [`Compared`] | which of the chunks that the plan asks about are equal |
//! | sending end | [`Digests`] | with the data: the expected digest of each chunk |
//! | sending end | [`ChunkPiece`] | data that go over a stream |
//! | client | [`Attach`] | first on an additional stream for data |
//! | both | [`Relay`] | a protocol's control message |
//! | both | [`Status`] | ten times a second: accounting, progress |
//! | both | [`EntryFailed`] | an entry of the list failed at this end |
//! | server | [`Ping`] | asks whether the client is alive; the client answers with a `Ping` |
//! | server | [`Wait`] | when a transfer has to wait; again when it may start |
//! | server | [`Held`] | in a push, while the server waits: another copy holds the destination |
//! | server | [`Warning`] | in a push: a warning for the user of the copy |
//! | receiving end | [`Needless`] | these chunks are no longer needed |
//! | receiving end | [`Named`] | these files have their final names; only on request |
//! | receiving end | [`DeletedNames`] | removed names; of a dry run: names to remove; on request |
//! | receiving end | [`PassEnd`] | the pass has ended, and these chunks must be sent again |
//! | receiving end | [`Lease`] | with several sources: the chunks that this source sends next |
//! | receiving end | [`Outcome`] | the result: everything has its final name or has failed |
//! | client | [`Heard`] | in a push: the client has the outcome |
//!
//! Instead of a request a client may open with a [`Probe`]; the server answers it, and each
//! [`ProbeRun`] that follows, with a [`ProbeCount`]. Or the client opens with a [`Survey`]. The
//! server answers with [`Surveyed`] messages, and a request may follow.
//!
//! A side that cannot continue gives its reason when it closes the session.
//!
//! All these are messages of the service `copy`; for messages of other services see [`list`],
//! [`mod@pipe`], [`mod@file`] and [`server_status`].

mod checks;
pub mod file;
pub mod list;
mod pieces;
pub mod pipe;
mod probe;
mod ranges;
mod request;
pub mod server_status;
mod survey;
mod transfer;

pub(crate) use checks::MAX_MANIFEST;
pub use pieces::Pieces;
pub use probe::{Probe, ProbeCount, ProbeRun};
pub use ranges::{Ranges, RangesError};
pub use request::{DeleteWire, Direction, FilterWire, Request, Setting};
pub use survey::{Survey, Surveyed};
pub use transfer::{
    Attach, Card, ChunkPiece, Compare, Compared, DeletedNames, Digests, EntryFailed, Heard, Held,
    Lease, Named, Needless, Offer, Outcome, Pass, PassEnd, Plan, Relay, Status, Wait, Warning,
};

/// The name of the service of copies, to which all these messages belong.
pub const SERVICE: &str = "copy";

/// The version of these messages. Each new field that a receiver must not skip raises the version;
/// a client that sets such a field requests the version that introduced the field.
pub(crate) const VERSION: u32 = 5;

/// The first version whose requests may be for a part of a pipe (a file of unknown length that is
/// sent in parts).
pub(crate) const TAKES_PARTS: u32 = 2;

/// The first version whose pushes may create missing parent folders.
pub(crate) const MAKES_PATHS: u32 = 3;

/// The first version whose pushes may remove names that the source lacks. Names that changed after
/// the copy's first attempt began stay. Version 4, which was never released, removed these too.
pub(crate) const DELETES: u32 = 5;

/// A frame of the control stream. It has one of the fields of [`Message`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct Frame {
    /// The message; `None` if a newer version sent a message that is unknown here.
    #[prost(oneof = "Message")]
    #[prost(
        tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, \
                23, 24, 25, 26, 27, 28"
    )]
    pub message: Option<Message>,
}

/// The messages of the control stream.
#[derive(Clone, PartialEq, prost::Oneof)]
#[allow(missing_docs, reason = "each variant is documented at its type")]
pub enum Message {
    #[prost(message, tag = "1")]
    Request(Request),
    #[prost(message, tag = "2")]
    Offer(Offer),
    #[prost(message, tag = "3")]
    Pass(Pass),
    #[prost(message, tag = "4")]
    Plan(Plan),
    #[prost(message, tag = "5")]
    Digests(Digests),
    #[prost(message, tag = "6")]
    Relay(Relay),
    #[prost(message, tag = "7")]
    Status(Status),
    #[prost(message, tag = "8")]
    PassEnd(PassEnd),
    #[prost(message, tag = "9")]
    Outcome(Outcome),
    #[prost(message, tag = "10")]
    EntryFailed(EntryFailed),
    #[prost(message, tag = "11")]
    Compared(Compared),
    #[prost(message, tag = "12")]
    Attach(Attach),
    #[prost(message, tag = "13")]
    ChunkPiece(ChunkPiece),
    #[prost(message, tag = "14")]
    Ping(Ping),
    #[prost(message, tag = "15")]
    Needless(Needless),
    #[prost(message, tag = "16")]
    Named(Named),
    #[prost(message, tag = "17")]
    Probe(Probe),
    #[prost(message, tag = "18")]
    ProbeRun(ProbeRun),
    #[prost(message, tag = "19")]
    ProbeCount(ProbeCount),
    #[prost(message, tag = "20")]
    Survey(Survey),
    #[prost(message, tag = "21")]
    Surveyed(Surveyed),
    #[prost(message, tag = "22")]
    Held(Held),
    #[prost(message, tag = "23")]
    Wait(Wait),
    #[prost(message, tag = "24")]
    Heard(Heard),
    #[prost(message, tag = "25")]
    Card(Card),
    #[prost(message, tag = "26")]
    Lease(Lease),
    #[prost(message, tag = "27")]
    DeletedNames(DeletedNames),
    #[prost(message, tag = "28")]
    Warning(Warning),
}

/// Asks whether the other end is alive. The answer is the same message with `answer` set.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Ping {
    /// This is the answer.
    #[prost(bool, tag = "1")]
    pub answer: bool,
}

impl From<Message> for Frame {
    fn from(message: Message) -> Frame {
        Frame { message: Some(message) }
    }
}
