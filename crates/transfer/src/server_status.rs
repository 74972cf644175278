//! A server's report of its state. The object of a transfer is the content of all of its files. A
//! block is the payload of one datagram. A coded symbol (of an erasure code) replaces any one lost
//! block.

use longhaul_proto::time::Span;
use longhaul_proto::units::Rate;

use crate::summary::BoundBy;

/// The state of a server. Names that clients chose may contain any characters.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ServerStatus {
    /// Running transfers, oldest first.
    pub transfers: Vec<TransferStatus>,
    /// Streams with a sender or a receiver.
    pub streams: Vec<StreamStatus>,
    /// Rooms of channels.
    pub rooms: Vec<RoomStatus>,
    /// The shared tree, if the server has one.
    pub shared_tree: Option<SharedTreeStatus>,
    /// Counts since the server started, including running transfers.
    pub totals: ServerTotals,
}

/// A running transfer. Counts of the other end are as the other end reports them.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct TransferStatus {
    /// The number of the transfer at its server.
    pub number: u64,
    /// The client's address.
    pub address: String,
    /// The client's id.
    pub id: String,
    /// The client's name in the list of clients.
    pub name: Option<String>,
    /// The operation and its paths.
    pub wish: String,
    /// Whether the server receives the data; otherwise it sends them.
    pub receives: bool,
    /// Time since the request.
    pub age: Span,
    /// Bytes that are verified and written at the destination.
    pub bytes: u64,
    /// Bytes that the destination already had, a part of `bytes`.
    pub resumed_bytes: u64,
    /// Size of the object in bytes; 0 while it is unknown.
    pub total_bytes: u64,
    /// Files that have their final names at the destination.
    pub files: u64,
    /// Number of files of the object; 0 while it is unknown.
    pub total_files: u64,
    /// Recent goodput: since the newest report that is at least a second old.
    pub rate_now: Rate,
    /// The rate at which the sending end sends.
    pub sending_rate: Rate,
    /// Smoothed round-trip time.
    pub rtt: Span,
    /// Queueing delay: current round-trip time minus the lowest of this transfer.
    pub queue: Span,
    /// TCP connections that carry the data; 0 for datagrams.
    pub streams: u32,
    /// Data datagrams sent.
    pub sent: u64,
    /// Blocks sent again, and coded symbols; a part of `sent`.
    pub retransmitted: u64,
    /// Data datagrams received.
    pub received: u64,
    /// Datagrams lost on the path or dropped at the receiver; includes the next two counts.
    pub path_lost: u64,
    /// Datagrams lost in the receiving socket, whose buffer was full.
    pub socket_lost: u64,
    /// Datagrams that the receiving end dropped for lack of memory, or because they waited too long
    /// for the transfer to start.
    pub memory_lost: u64,
    /// For each of at most 256 equal parts of the object, in order: how many per cent of this part
    /// are at the destination. Empty if the server sends, and before the object is known.
    pub chunk_map: Vec<u8>,
    /// The bottleneck, according to how both ends have spent their time so far.
    pub bound_by: BoundBy,
}

/// The state of a stream.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct StreamStatus {
    /// The stream's name.
    pub name: String,
    /// The id of the sender, if there is one.
    pub sender: Option<String>,
    /// Number of clients that receive the stream or wait for it.
    pub receivers: u64,
    /// Frames of the sender so far; or payloads (frames that were sent together) if a payload may
    /// hold several frames.
    pub frames: u64,
    /// Datagrams received from the sender.
    pub datagrams: u64,
}

/// The state of a room.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct RoomStatus {
    /// The room's name.
    pub name: String,
    /// Clients that send to the room.
    pub senders: u64,
    /// Clients that receive from the room.
    pub subscribers: u64,
    /// Messages since the room was created.
    pub messages: u64,
}

/// A shared tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedTreeStatus {
    /// Keys that have a value.
    pub keys: u64,
    /// The revision of the tree: at least the number of changes in this and earlier runs. A restart
    /// adds up to 4097.
    pub changes: u64,
    /// Active watches that have received all changes.
    pub watches: u64,
}

/// Counts of a server since its start. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerTotals {
    /// Requests that succeeded, of all services.
    pub done: u64,
    /// Requests that succeeded except for some files.
    pub partial: u64,
    /// Requests that were refused or not finished, or that copied no file because files failed.
    pub failed: u64,
    /// Clients that were turned away before a request.
    pub refused_clients: u64,
    /// Bytes that clients wrote here.
    pub received_bytes: u64,
    /// Bytes that clients read here.
    pub sent_bytes: u64,
    /// Files that clients wrote here.
    pub received_files: u64,
    /// Files that clients copied from here.
    pub sent_files: u64,
    /// Data datagrams sent, by clients and by the server.
    pub sent: u64,
    /// Blocks sent again, and coded symbols; a part of `sent`.
    pub retransmitted: u64,
    /// Data datagrams received, by clients and by the server.
    pub received: u64,
    /// Datagrams lost on the path or dropped at the receiver; includes the next two counts.
    pub path_lost: u64,
    /// Datagrams lost in a receiving socket.
    pub socket_lost: u64,
    /// Datagrams that receiving ends dropped for lack of memory, or because they waited too long
    /// for the transfer to start.
    pub memory_lost: u64,
    /// Messages of all rooms.
    pub room_messages: u64,
}
