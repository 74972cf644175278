//! The messages of the service `share`. If the first message of a stream is a [`Watch`], the server
//! sends [`Part`] messages until the stream ends. On any other stream the client sends [`Begin`],
//! [`Get`], [`Put`] and [`Hold`] messages. The server answers a [`Begin`] with a [`Begun`], and
//! each other message with an [`Answer`], in order. Each change gives the tree its next revision.

/// The name of the service; also its keyword in the list of clients.
pub const SERVICE: &str = "share";

/// The version of the service's messages. Each new field that a receiver must not skip raises the
/// version.
pub const VERSION: u32 = 2;

/// A message of a client. It has one of the fields of [`Asked`]. An empty message only opens the
/// stream; the server does not answer it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Ask {
    /// The message.
    #[prost(oneof = "Asked", tags = "1, 2, 3, 4, 5")]
    pub asked: Option<Asked>,
}

/// The messages of a client.
#[derive(Clone, PartialEq, prost::Oneof)]
#[allow(missing_docs, reason = "each variant is documented at its type")]
pub enum Asked {
    #[prost(message, tag = "1")]
    Watch(Watch),
    #[prost(message, tag = "2")]
    Get(Get),
    #[prost(message, tag = "3")]
    Put(Put),
    #[prost(message, tag = "4")]
    Begin(Begin),
    #[prost(message, tag = "5")]
    Hold(Hold),
}

/// Names the program whose edits follow. The stream replaces an earlier stream of the same program.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Begin {
    /// A random number of this program.
    #[prost(uint64, tag = "1")]
    pub instance: u64,
    /// Whether this is the program's first stream.
    #[prost(bool, tag = "2")]
    pub first: bool,
    /// The value `forgotten` of the last [`Begun`] that arrived while the client had no unanswered
    /// edit of an earlier stream; absent if no such `Begun` has arrived.
    #[prost(uint64, optional, tag = "3")]
    pub seen: Option<u64>,
}

/// Restores a presence (a value that the server deletes when its writer disconnects) that the
/// program had on an earlier stream.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Hold {
    /// The number of the call, repeated in its answer. It is even.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The key.
    #[prost(string, tag = "2")]
    pub key: String,
    /// The value.
    #[prost(bytes = "vec", tag = "3")]
    pub value: Vec<u8>,
    /// The version that the presence had.
    #[prost(uint64, tag = "4")]
    pub version: u64,
    /// Whether the call fails if the server has deleted the presence. If false, the call creates
    /// the presence again.
    #[prost(bool, tag = "5")]
    pub strict: bool,
}

/// Watches a key and all keys below it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Watch {
    /// The key; empty for the whole tree.
    #[prost(string, tag = "1")]
    pub prefix: String,
    /// The client has all changes of `run` up to this revision.
    #[prost(uint64, tag = "2")]
    pub revision: u64,
    /// The run of the server to which `revision` refers; 0 for a client without data.
    #[prost(uint64, tag = "3")]
    pub run: u64,
    /// Whether the server may restart a snapshot that is not complete yet. If false, the server
    /// ends the watch instead.
    #[prost(bool, tag = "4")]
    pub anew: bool,
}

/// Reads a key.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Get {
    /// The number of the call, repeated in its answer.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The key.
    #[prost(string, tag = "2")]
    pub key: String,
}

/// Changes a key.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Put {
    /// The number of the call, repeated in its answer: 2 × the number of the edit + 1, so it is
    /// odd. A program numbers its edits from 1, over all its streams.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The key.
    #[prost(string, tag = "2")]
    pub key: String,
    /// The new value; absent to delete the key.
    #[prost(bytes = "vec", optional, tag = "3")]
    pub value: Option<Vec<u8>>,
    /// Condition: the key has this version; 0: the key does not exist.
    #[prost(uint64, optional, tag = "4")]
    pub version: Option<u64>,
    /// Condition: the key does not exist, has not changed since this revision, or was last changed
    /// by this program.
    #[prost(uint64, optional, tag = "5")]
    pub not_since: Option<u64>,
    /// Whether the server deletes the value when this stream ends and no later stream of the
    /// program has replaced this stream.
    #[prost(bool, tag = "6")]
    pub presence: bool,
    /// Whether the edit was sent before, on a lost stream.
    #[prost(bool, tag = "7")]
    pub again: bool,
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
    Answer(Answer),
    #[prost(message, tag = "2")]
    Part(Part),
    #[prost(message, tag = "3")]
    Begun(Begun),
}

/// The answer to a [`Begin`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct Begun {
    /// How many times the server has discarded outcomes of this client's edits.
    #[prost(uint64, tag = "1")]
    pub forgotten: u64,
}

/// The answer to one call.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Answer {
    /// The number of the call.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The revision of the tree after a successful call, otherwise 0.
    #[prost(uint64, tag = "2")]
    pub revision: u64,
    /// 0: done. 1: the condition of a `Put` does not hold, or a `Hold` arrived too late. 2:
    /// refused; `why` has the reason. 3: the edit was sent before, and the server has discarded its
    /// outcome.
    #[prost(uint32, tag = "3")]
    pub result: u32,
    /// The version that a `Put` or a `Hold` made; 0 if the key to delete did not exist.
    #[prost(uint64, tag = "4")]
    pub version: u64,
    /// The key's current entry, in the answer to a `Get`, and after a failed condition if the
    /// client may read the key. Absent if the key does not exist.
    #[prost(message, optional, tag = "5")]
    pub item: Option<Item>,
    /// The reason of a refusal.
    #[prost(string, tag = "6")]
    pub why: String,
}

/// A key and its entry.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Item {
    /// The key.
    #[prost(string, tag = "1")]
    pub key: String,
    /// The value; absent in a change that deletes the key.
    #[prost(bytes = "vec", optional, tag = "2")]
    pub value: Option<Vec<u8>>,
    /// The revision of the key's last change.
    #[prost(uint64, tag = "3")]
    pub version: u64,
    /// Whether the server deletes the value when its writer disconnects. False in every change.
    #[prost(bool, tag = "4")]
    pub presence: bool,
}

/// A piece of a watch's data.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Part {
    /// The run of the server: revisions of different runs must not be compared.
    #[prost(uint64, tag = "1")]
    pub run: u64,
    /// For changes: the client then has all changes up to this revision. For a snapshot: the
    /// revision of the snapshot.
    #[prost(uint64, tag = "2")]
    pub revision: u64,
    /// Whether the items are entries of a snapshot instead of changes.
    #[prost(bool, tag = "3")]
    pub is_snapshot: bool,
    /// Whether a snapshot begins. It replaces all earlier data of the watch, including an
    /// incomplete snapshot.
    #[prost(bool, tag = "4")]
    pub is_first: bool,
    /// Whether the snapshot is complete.
    #[prost(bool, tag = "5")]
    pub is_last: bool,
    /// Changes, oldest first, or entries in key order.
    #[prost(message, repeated, tag = "6")]
    pub items: Vec<Item>,
}
