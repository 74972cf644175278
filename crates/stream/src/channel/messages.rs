//! The messages of the service `channel`. A client's first message is a [`Publish`] or a
//! [`Subscribe`].

use longhaul_proto::channel::Mode;

/// The name of the service; also its keyword in the list of clients.
pub const SERVICE: &str = "channel";

/// The keyword in the list of clients for links between servers.
pub const LINK: &str = "link";

/// The version of the service's messages. Each new field that a receiver must understand raises the
/// version. Version 2 adds the mode `deadline`, version 3 the mode `multicast`.
pub const VERSION: u32 = 3;

/// Returns the version that a mode needs.
pub(super) fn version(mode: Mode) -> u32 {
    match mode {
        Mode::Multicast => VERSION,
        Mode::Deadline(_) => 2,
        _ => 1,
    }
}

/// A message of a client. It has one of the fields of [`ChannelAsked`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct ChannelAsk {
    /// The message; absent if a newer version sent a kind that this version does not know.
    #[prost(oneof = "ChannelAsked", tags = "1, 2, 3, 4, 5")]
    pub asked: Option<ChannelAsked>,
}

impl ChannelAsk {
    /// Returns the number of the link (a connection of a room to the same room at another server)
    /// that a first message names; 0 for none.
    pub fn link(&self) -> u64 {
        match &self.asked {
            Some(ChannelAsked::Publish(publish)) => publish.link,
            Some(ChannelAsked::Subscribe(subscribe)) => subscribe.link,
            _ => 0,
        }
    }
}

/// The messages of a client.
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
    #[prost(message, tag = "5")]
    LastOfKeys(LastOfKeys),
}

/// Asks to send messages to a room. The server answers with a [`Room`], and later with [`Taken`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct Publish {
    /// The name of the room: words joined by slashes, at most 512 bytes.
    #[prost(string, tag = "1")]
    pub name: String,
    /// A random number of this sender. It stays the same after a reconnection, so the server drops
    /// repeated messages.
    #[prost(fixed64, tag = "2")]
    pub run: u64,
    /// The link (from the same room at another server) that delivers the messages; 0 for a client
    /// that sends its own messages. Only a client with the right `link` in the server's list of
    /// clients may set this.
    #[prost(fixed64, tag = "3")]
    pub link: u64,
    /// The cipher of the datagrams; empty if messages are sent over this stream.
    #[prost(string, tag = "4")]
    pub cipher: String,
    /// The number of the flow that carries the datagrams.
    #[prost(uint32, tag = "5")]
    pub flow: u32,
    /// The maximum age of a message on arrival at the server; 0 for no limit. With a limit, each
    /// message in datagrams starts with its age and its departure time, 4 bytes each.
    #[prost(uint64, tag = "6")]
    pub deadline_micros: u64,
    /// Whether the client sends its messages to the multicast group of the room. If so, the server
    /// answers with a [`Group`], and sends another [`Group`] whenever the key changes.
    #[prost(bool, tag = "7")]
    pub multicast: bool,
}

/// Asks for the messages of a room. The server answers with a [`Room`]. Then it sends the last
/// message of each key and all later messages, or the messages from `next` on if `run` is
/// equal to [`Room.run`](Room::run). In mode 3 it sends only later messages. In mode 4 it sends the
/// last message of each key only after [`LastOfKeys`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct Subscribe {
    /// The name of the room.
    #[prost(string, tag = "1")]
    pub name: String,
    /// 0: all messages in order. 1: the newest message of each key. 2: all messages in datagrams.
    /// 3: all messages in datagrams, with a deadline. 4: all messages through the multicast group
    /// of the room; the server answers with a [`Group`], and sends another [`Group`] whenever the
    /// key changes.
    #[prost(uint32, tag = "2")]
    pub mode: u32,
    /// The client wants only messages with this key or a key below it; empty for all messages.
    #[prost(string, tag = "3")]
    pub keys: String,
    /// The [`Room.run`](Room::run) of the previous connection; 0 on the first connection and for
    /// messages in datagrams. The client already has all messages of this run before `next`.
    #[prost(fixed64, tag = "4")]
    pub run: u64,
    /// The position to continue at, as the server last sent it. If its top bit is set, the server
    /// first sends the last message of each key before this position.
    #[prost(uint64, tag = "5")]
    pub next: u64,
    /// The link whose messages must not be sent back; 0 for none. Only a client with the right
    /// `link` in the server's list of clients may set this.
    #[prost(fixed64, tag = "6")]
    pub link: u64,
    /// The cipher of the datagrams; empty if messages are sent over this stream.
    #[prost(string, tag = "7")]
    pub cipher: String,
    /// The number of the flow that carries the datagrams. The client sends sealed control datagrams
    /// of this flow, at least once a second.
    #[prost(uint32, tag = "8")]
    pub flow: u32,
    /// The size of a datagram in bytes.
    #[prost(uint32, tag = "9")]
    pub datagram: u32,
    /// Whether the erasure code is XOR; false for Reed–Solomon.
    #[prost(bool, tag = "10")]
    pub xor: bool,
    /// Number of datagrams in a group of the erasure code; 0 for no code.
    #[prost(uint32, tag = "11")]
    pub group: u32,
    /// Number of repair datagrams in a group, at most `group`.
    #[prost(uint32, tag = "12")]
    pub repairs: u32,
    /// The maximum age of a message on arrival at the client, for mode 3. The server chooses
    /// the code. Each message starts with its age and its departure time, 4 bytes each.
    #[prost(uint64, tag = "13")]
    pub deadline_micros: u64,
}

/// Sent by a subscriber in mode 4 as soon as it begins to receive from the group. The server
/// answers with the last message of each key.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LastOfKeys {
    /// The epoch of the client's key.
    #[prost(uint64, tag = "1")]
    pub epoch: u64,
}

/// The receiver's report on datagrams with a deadline, sent once a second.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Hop {
    /// The share of lost datagrams, in millionths.
    #[prost(uint32, tag = "1")]
    pub loss_ppm: u32,
    /// The average length of a loss burst in datagrams, times 1000.
    #[prost(uint32, tag = "2")]
    pub burst_milli: u32,
    /// Spread of delays: how much longer the slowest message took than the fastest.
    #[prost(uint64, tag = "3")]
    pub jitter_micros: u64,
}

/// A message of a channel, or a part of one. The parts of a message are sent in sequence. Every
/// part has `rest` and `bytes`; only the first part has the other fields.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Part {
    /// The number of the sender; 0 if a client sends its own message.
    #[prost(fixed64, tag = "1")]
    pub origin: u64,
    /// The number of the message; it increases with each message of a sender.
    #[prost(uint64, tag = "2")]
    pub number: u64,
    /// The time at which the sender accepted the message, in microseconds of the sender's clock.
    #[prost(uint64, tag = "3")]
    pub at_micros: u64,
    /// Number of links between servers that the message has passed.
    #[prost(uint32, tag = "4")]
    pub hops: u32,
    /// The key of the message; empty for none.
    #[prost(string, tag = "5")]
    pub key: String,
    /// To a subscriber: the position to continue at on another connection.
    #[prost(uint64, tag = "6")]
    pub next: u64,
    /// Number of bytes of the message that later parts have.
    #[prost(uint64, tag = "7")]
    pub rest: u64,
    /// The content that this part has.
    #[prost(bytes = "vec", tag = "8")]
    pub bytes: Vec<u8>,
    /// The age of the message in microseconds when it is sent.
    #[prost(uint64, tag = "9")]
    pub age_micros: u64,
}

/// A message of a server. It has one of the fields of [`ChannelTold`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct ChannelTell {
    /// The message; absent if a newer version sent a kind that this version does not know.
    #[prost(oneof = "ChannelTold", tags = "1, 2, 3, 4, 5, 6")]
    pub told: Option<ChannelTold>,
}

/// The messages of a server.
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
    #[prost(message, tag = "6")]
    Group(Group),
}

/// The multicast group of the room, and a key of one epoch (the time during which the same keys are
/// valid). The client forgets earlier keys soon.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Group {
    /// The address of the group: 4 or 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub address: Vec<u8>,
    /// The UDP port of the group.
    #[prost(uint32, tag = "2")]
    pub port: u32,
    /// The hop limit of the group's datagrams.
    #[prost(uint32, tag = "3")]
    pub hops: u32,
    /// The cipher of the group's datagrams.
    #[prost(string, tag = "4")]
    pub cipher: String,
    /// The number of the epoch.
    #[prost(uint64, tag = "5")]
    pub epoch: u64,
    /// To a sender: its flow. To a subscriber: the flow of the server; the flows of senders have
    /// the next numbers.
    #[prost(uint32, tag = "6")]
    pub flow: u32,
    /// A key of 32 bytes. To a sender: the key of its flow. To a subscriber: the key of all flows
    /// of the epoch.
    #[prost(bytes = "vec", tag = "7")]
    pub key: Vec<u8>,
    /// To a sender: the origin of its messages.
    #[prost(fixed64, tag = "8")]
    pub origin: u64,
}

/// The client has entered the room.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Room {
    /// A random number, chosen when the server creates the room. Positions in rooms with different
    /// numbers are not comparable.
    #[prost(fixed64, tag = "1")]
    pub run: u64,
    /// The position to continue at on another connection.
    #[prost(uint64, tag = "2")]
    pub next: u64,
}

/// The server has dropped messages that this subscriber had not received.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Lost {
    /// The number of dropped messages.
    #[prost(uint64, tag = "1")]
    pub count: u64,
    /// The position of the next message.
    #[prost(uint64, tag = "2")]
    pub next: u64,
    /// The number of further messages that were dropped because they would have arrived after their
    /// deadline.
    #[prost(uint64, tag = "3")]
    pub late: u64,
}

/// The server has received messages of this sender.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Taken {
    /// The number of messages that the server has received since the client opened this stream.
    #[prost(uint64, tag = "1")]
    pub count: u64,
    /// Total number of messages that the server has dropped for lack of memory. With datagrams or
    /// multicast, it includes the messages that were lost on the path.
    #[prost(uint64, tag = "2")]
    pub dropped: u64,
    /// Total number of messages that arrived after their deadline.
    #[prost(uint64, tag = "3")]
    pub late: u64,
}
