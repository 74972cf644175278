//! The messages of the service `channel`. A client's first message is a [`Publish`] or a
//! [`Subscribe`].

/// The name of the service, and its word in the list of clients.
pub const SERVICE: &str = "channel";

/// The word in the list of clients for links between servers.
pub const LINK: &str = "link";

/// The version of its messages. It rises with each field that must not be skipped. Version 2 has
/// the mode `deadline`.
pub const VERSION: u32 = 2;

/// The version that a channel needs, with or without a deadline.
pub(super) fn version(has_deadline: bool) -> u32 {
    if has_deadline { VERSION } else { 1 }
}

/// A message of a client.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ChannelAsk {
    /// One of these; nothing if it comes from a newer version and is unknown here.
    #[prost(oneof = "ChannelAsked", tags = "1, 2, 3, 4")]
    pub asked: Option<ChannelAsked>,
}

impl ChannelAsk {
    /// The link that a first message asks for; 0 if it asks for none.
    pub fn link(&self) -> u64 {
        match &self.asked {
            Some(ChannelAsked::Publish(publish)) => publish.link,
            Some(ChannelAsked::Subscribe(subscribe)) => subscribe.link,
            _ => 0,
        }
    }
}

/// All messages of a client.
#[derive(Clone, PartialEq, prost::Oneof)]
#[allow(missing_docs, reason = "each variant is documented at its type")]
pub enum ChannelAsked {
    #[prost(message, tag = "1")]
    Publish(Publish),
    #[prost(message, tag = "2")]
    Subscribe(Subscribe),
    #[prost(message, tag = "3")]
    Part(Part),
    #[prost(message, tag = "4")]
    Hop(Hop),
}

/// The client sends messages to a room. The server answers with a [`Room`], and later with
/// [`Taken`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct Publish {
    /// The name of the room: words joined by slashes, at most 512 bytes.
    #[prost(string, tag = "1")]
    pub name: String,
    /// A random number, the same when the client comes back after a lost connection: messages that
    /// were taken before are dropped.
    #[prost(fixed64, tag = "2")]
    pub run: u64,
    /// The link that the messages pass, with the right `link`; 0 for a client that sends its own
    /// messages.
    #[prost(fixed64, tag = "3")]
    pub link: u64,
    /// The cipher of the datagrams; empty if messages come over this stream.
    #[prost(string, tag = "4")]
    pub cipher: String,
    /// The flow of the datagrams.
    #[prost(uint32, tag = "5")]
    pub flow: u32,
    /// How old a message may be when it comes to the server; 0 for any age. Otherwise each message
    /// in datagrams begins with its age and the time when it left, 4 bytes each.
    #[prost(uint64, tag = "6")]
    pub deadline_micros: u64,
}

/// The client receives the messages of a room. The server answers with a [`Room`], the last
/// message of each key, and all later messages.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Subscribe {
    /// The name of the room.
    #[prost(string, tag = "1")]
    pub name: String,
    /// 0: all messages in order. 1: the newest message of each key. 2: all messages in datagrams.
    /// 3: the same, with a deadline.
    #[prost(uint32, tag = "2")]
    pub mode: u32,
    /// Only messages with this key or a key below it; empty for all messages.
    #[prost(string, tag = "3")]
    pub keys: String,
    /// The run of the room from which the client has all messages before `next`; 0 for none.
    #[prost(fixed64, tag = "4")]
    pub run: u64,
    /// The position of the next message.
    #[prost(uint64, tag = "5")]
    pub next: u64,
    /// The link whose messages the client does not want back, with the right `link`; or 0.
    #[prost(fixed64, tag = "6")]
    pub link: u64,
    /// The cipher of the datagrams; empty if messages go over this stream.
    #[prost(string, tag = "7")]
    pub cipher: String,
    /// The flow of the datagrams. The client sends sealed control datagrams of this flow, at least
    /// once a second.
    #[prost(uint32, tag = "8")]
    pub flow: u32,
    /// Bytes of a datagram.
    #[prost(uint32, tag = "9")]
    pub datagram: u32,
    /// Whether the code is XOR; otherwise it is Reed–Solomon.
    #[prost(bool, tag = "10")]
    pub xor: bool,
    /// Datagrams of a group of the code; 0 for no code.
    #[prost(uint32, tag = "11")]
    pub group: u32,
    /// Repairs of a group.
    #[prost(uint32, tag = "12")]
    pub repairs: u32,
    /// How old a message may be when it comes to the client, in mode 3. The server chooses the
    /// code, and each message begins with its age and the time when it left, 4 bytes each.
    #[prost(uint64, tag = "13")]
    pub deadline_micros: u64,
}

/// What the receiving end of datagrams with a deadline has seen of them, once a second.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Hop {
    /// The share of datagrams that are lost, in millionths.
    #[prost(uint32, tag = "1")]
    pub loss_ppm: u32,
    /// Datagrams lost in a row, on average, times 1000.
    #[prost(uint32, tag = "2")]
    pub burst_milli: u32,
    /// How much longer messages took than the fastest did.
    #[prost(uint64, tag = "3")]
    pub jitter_micros: u64,
}

/// A message of a channel, or a part of one. The parts of a message follow each other.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Part {
    /// The sender; a client that sends its own messages leaves it at 0. Only in the first part, as
    /// all fields but `rest` and `bytes`.
    #[prost(fixed64, tag = "1")]
    pub origin: u64,
    /// The number of the message, which grows with each message of a sender.
    #[prost(uint64, tag = "2")]
    pub number: u64,
    /// When the sender had it, by its own clock.
    #[prost(uint64, tag = "3")]
    pub at_micros: u64,
    /// Links between servers that it has passed.
    #[prost(uint32, tag = "4")]
    pub hops: u32,
    /// Its key; empty if it has none.
    #[prost(string, tag = "5")]
    pub key: String,
    /// The position in the room of the next message after it, to a subscriber.
    #[prost(uint64, tag = "6")]
    pub next: u64,
    /// Bytes that follow in later parts.
    #[prost(uint64, tag = "7")]
    pub rest: u64,
    /// The content, or a part of it.
    #[prost(bytes = "vec", tag = "8")]
    pub bytes: Vec<u8>,
    /// How old the message is, in the first part.
    #[prost(uint64, tag = "9")]
    pub age_micros: u64,
}

/// A message of a server.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ChannelTell {
    /// One of these; nothing if it comes from a newer version and is unknown here.
    #[prost(oneof = "ChannelTold", tags = "1, 2, 3, 4, 5")]
    pub told: Option<ChannelTold>,
}

/// All messages of a server.
#[derive(Clone, PartialEq, prost::Oneof)]
#[allow(missing_docs, reason = "each variant is documented at its type")]
pub enum ChannelTold {
    #[prost(message, tag = "1")]
    Room(Room),
    #[prost(message, tag = "2")]
    Part(Part),
    #[prost(message, tag = "3")]
    Lost(Lost),
    #[prost(message, tag = "4")]
    Taken(Taken),
    #[prost(message, tag = "5")]
    Hop(Hop),
}

/// The client is in the room.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Room {
    /// A random number. Positions of different runs have nothing in common.
    #[prost(fixed64, tag = "1")]
    pub run: u64,
    /// The position of the next message of the room.
    #[prost(uint64, tag = "2")]
    pub next: u64,
}

/// The server has dropped messages that this subscriber had not taken.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Lost {
    /// How many.
    #[prost(uint64, tag = "1")]
    pub count: u64,
    /// The position of the next message.
    #[prost(uint64, tag = "2")]
    pub next: u64,
    /// Messages beside those that would have come after their deadline.
    #[prost(uint64, tag = "3")]
    pub late: u64,
}

/// The server has taken messages of this sender.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Taken {
    /// How many messages of this stream, in their order.
    #[prost(uint64, tag = "1")]
    pub count: u64,
    /// Messages that the server has dropped for lack of memory, in total.
    #[prost(uint64, tag = "2")]
    pub dropped: u64,
    /// Messages that came after their deadline, in total.
    #[prost(uint64, tag = "3")]
    pub late: u64,
}
