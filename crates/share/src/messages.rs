//! The messages of the service `share`. A stream whose first message is a [`Watch`] is answered by
//! [`Part`] messages until it ends. Any other stream takes [`Begin`], [`Get`], [`Put`] and [`Hold`]
//! messages; a [`Begin`] is answered by a [`Begun`], all others by an [`Answer`], in order.

/// The name of the service, and the word of the list of clients.
pub const SERVICE: &str = "share";

/// The version of its messages. It rises with each field that must not be skipped.
pub const VERSION: u32 = 2;

/// What a client says. An empty one begins a stream, and is not answered.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Ask {
    /// One of these.
    #[prost(oneof = "Asked", tags = "1, 2, 3, 4, 5")]
    pub asked: Option<Asked>,
}

/// Every message of a client.
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

/// Names the program whose edits follow. It takes the place of an earlier stream that named it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Begin {
    /// A random number of this program.
    #[prost(uint64, tag = "1")]
    pub instance: u64,
    /// The program has had no stream before.
    #[prost(bool, tag = "2")]
    pub first: bool,
    /// What `Begun.forgotten` was when the program last had no edit in doubt; nothing if it has
    /// heard no `Begun`.
    #[prost(uint64, optional, tag = "3")]
    pub seen: Option<u64>,
}

/// Takes up a presence that the program had on an earlier stream.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Hold {
    /// The number of the call; its answer has the same. It is even.
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
    /// Only if the presence is still there.
    #[prost(bool, tag = "5")]
    pub strict: bool,
}

/// Watches a key and all keys below it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Watch {
    /// The key; empty for the whole tree.
    #[prost(string, tag = "1")]
    pub prefix: String,
    /// The client has everything up to this revision of `run`.
    #[prost(uint64, tag = "2")]
    pub revision: u64,
    /// The run of the server that `revision` is of; 0 for a client that has nothing.
    #[prost(uint64, tag = "3")]
    pub run: u64,
    /// A snapshot may begin anew before it is complete. Without it the server ends the watch where
    /// a snapshot has fallen behind.
    #[prost(bool, tag = "4")]
    pub anew: bool,
}

/// Reads a key.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Get {
    /// The number of the call; its answer has the same.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The key.
    #[prost(string, tag = "2")]
    pub key: String,
}

/// Changes a key.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Put {
    /// The number of the call; its answer has the same. It is odd: twice the number of the edit,
    /// and one. A program numbers its edits from 1, over all its streams.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The key.
    #[prost(string, tag = "2")]
    pub key: String,
    /// The new value; nothing deletes the key.
    #[prost(bytes = "vec", optional, tag = "3")]
    pub value: Option<Vec<u8>>,
    /// Only if the key has this version; 0: if it is not there.
    #[prost(uint64, optional, tag = "4")]
    pub version: Option<u64>,
    /// Only if the key has not changed since this revision.
    #[prost(uint64, optional, tag = "5")]
    pub not_since: Option<u64>,
    /// The value vanishes when this stream ends.
    #[prost(bool, tag = "6")]
    pub presence: bool,
    /// The edit was sent before, on a stream that was lost.
    #[prost(bool, tag = "7")]
    pub again: bool,
}

/// What a server says.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Tell {
    /// One of these; nothing if it comes from a newer version and is unknown here.
    #[prost(oneof = "Told", tags = "1, 2, 3")]
    pub told: Option<Told>,
}

/// Every message of a server.
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
    /// How often the server has forgotten outcomes of edits of this client.
    #[prost(uint64, tag = "1")]
    pub forgotten: u64,
}

/// The answer to one call.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Answer {
    /// The number of the call.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The revision of the tree after it.
    #[prost(uint64, tag = "2")]
    pub revision: u64,
    /// 0: it is done. 1: the condition of a `Put` does not hold, or a `Hold` comes too late.
    /// 2: refused; `why` has the reason. 3: the edit was sent before, and its outcome is forgotten.
    #[prost(uint32, tag = "3")]
    pub result: u32,
    /// The version that a `Put` made; 0 where there was nothing to delete.
    #[prost(uint64, tag = "4")]
    pub version: u64,
    /// What the key has: of a `Get`, and of a condition that does not hold where the client may
    /// read. Nothing: the key is not there.
    #[prost(message, optional, tag = "5")]
    pub item: Option<Item>,
    /// Why it was refused.
    #[prost(string, tag = "6")]
    pub why: String,
}

/// A key, and what it has.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Item {
    /// The key.
    #[prost(string, tag = "1")]
    pub key: String,
    /// The value; nothing in a change that deletes the key.
    #[prost(bytes = "vec", optional, tag = "2")]
    pub value: Option<Vec<u8>>,
    /// The revision that the last change of the key made.
    #[prost(uint64, tag = "3")]
    pub version: u64,
    /// The value vanishes with the client that wrote it.
    #[prost(bool, tag = "4")]
    pub presence: bool,
}

/// What a watch brings.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Part {
    /// The run of the server: revisions of different runs must not be compared.
    #[prost(uint64, tag = "1")]
    pub run: u64,
    /// Of changes: with them the client has everything up to this revision. Of a snapshot: its
    /// revision.
    #[prost(uint64, tag = "2")]
    pub revision: u64,
    /// These are entries of a snapshot, not changes.
    #[prost(bool, tag = "3")]
    pub is_snapshot: bool,
    /// A snapshot begins: it replaces all that came before, a snapshot that is not complete too.
    #[prost(bool, tag = "4")]
    pub is_first: bool,
    /// The snapshot is complete.
    #[prost(bool, tag = "5")]
    pub is_last: bool,
    /// Changes, oldest first, or entries in the order of their keys.
    #[prost(message, repeated, tag = "6")]
    pub items: Vec<Item>,
}
