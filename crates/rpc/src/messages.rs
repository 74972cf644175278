//! The messages of the service `rpc`, the same for both directions. The client's first message is a
//! [`Begin`]. Every later message names its call or calls. Calls of the client have odd numbers,
//! calls of the server even numbers.

/// The name of the service; also its keyword in the list of clients (`--allow`).
pub const SERVICE: &str = "rpc";

/// The version of the service's messages. Each new field that a receiver must not skip raises the
/// version.
pub const VERSION: u32 = 1;

/// A message of either end. It has one of the fields of [`Said`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct Say {
    /// The message; absent if a newer version sent a kind that this version does not know.
    #[prost(oneof = "Said", tags = "1, 2, 3, 4, 5, 6, 7, 8")]
    pub said: Option<Said>,
}

/// The messages of both ends.
#[derive(Clone, PartialEq, prost::Oneof)]
#[allow(missing_docs, reason = "each variant is documented at its type")]
pub enum Said {
    #[prost(message, tag = "1")]
    Begin(Begin),
    #[prost(message, tag = "2")]
    Call(Call),
    #[prost(message, tag = "3")]
    Item(Item),
    #[prost(message, tag = "4")]
    Finish(Finish),
    #[prost(message, tag = "5")]
    Answer(Answer),
    #[prost(message, tag = "6")]
    Cancel(Cancel),
    #[prost(message, tag = "7")]
    Credit(Credit),
    #[prost(message, tag = "8")]
    Have(Have),
}

/// Names the program whose calls follow. The stream replaces an earlier stream of the same program.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Begin {
    /// A random number of this program.
    #[prost(uint64, tag = "1")]
    pub instance: u64,
    /// Whether this is the program's first stream.
    #[prost(bool, tag = "2")]
    pub first: bool,
}

/// A call.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Call {
    /// The number of the call. The numbers of the calls of one side grow.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The name of the method.
    #[prost(string, tag = "2")]
    pub method: String,
    /// The request, at most 256 KiB.
    #[prost(bytes = "vec", tag = "3")]
    pub body: Vec<u8>,
    /// Milliseconds that are left for the answer; 0 if there is no limit.
    #[prost(uint64, tag = "4")]
    pub within: u64,
    /// Whether both ends may send items.
    #[prost(bool, tag = "5")]
    pub items: bool,
    /// Whether the call was sent before, on a lost stream.
    #[prost(bool, tag = "6")]
    pub again: bool,
}

/// An item: a further message of a call. Each end may send 8 items, and as many more as the other
/// end allows.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Item {
    /// The number of the call.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The item, at most 256 KiB.
    #[prost(bytes = "vec", tag = "2")]
    pub body: Vec<u8>,
}

/// The caller sends no more items.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Finish {
    /// The number of the call.
    #[prost(uint64, tag = "1")]
    pub id: u64,
}

/// The answer, which ends a call.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Answer {
    /// The number of the call.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// 0: the method succeeded. 1: it failed. 2: cancelled. 3: the deadline passed. 4: no such
    /// method. 5: no right to the method. 6: too many calls. 7: the request, an item or the answer
    /// is too long. 8: malformed. 9: the call was sent before, and its answer is lost. 10: a
    /// connection was lost. From 65536: an error of the application.
    #[prost(uint32, tag = "2")]
    pub code: u32,
    /// The result, at most 256 KiB.
    #[prost(bytes = "vec", tag = "3")]
    pub body: Vec<u8>,
    /// The reason of a failure.
    #[prost(string, tag = "4")]
    pub why: String,
}

/// The caller no longer needs the answer.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Cancel {
    /// The number of the call.
    #[prost(uint64, tag = "1")]
    pub id: u64,
}

/// Allows the other end of a call to send more items.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Credit {
    /// The number of the call.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The number of further items.
    #[prost(uint32, tag = "2")]
    pub items: u32,
}

/// The caller has these answers; the other end may discard them.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Have {
    /// The numbers of the calls.
    #[prost(uint64, repeated, tag = "1")]
    pub ids: Vec<u64>,
}
