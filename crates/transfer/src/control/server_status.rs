//! The messages of the service `status`. The client sends one [`StatusAsk`]; the server answers
//! with [`StatusReport`] messages until the client leaves. A block is the payload of one datagram.
//! A coded symbol (of an erasure code) replaces any one lost block of its chunk.

use longhaul_proto::time::Span;
use longhaul_proto::units::Rate;

use crate::server_status::{
    RoomStatus, ServerStatus, ServerTotals, SharedTreeStatus, StreamStatus, TransferStatus,
};
use crate::summary::BoundBy;

/// The name of the service; also its keyword in the list of clients.
pub const SERVICE: &str = "status";

/// The version of the service's messages. Each new field that a receiver must not skip raises the
/// version.
pub(crate) const VERSION: u32 = 1;

/// Converts between a public type and a message with the same fields.
macro_rules! mirrors {
    ($public:ident, $message:ident { $($field:ident),* $(,)? }) => {
        impl From<$public> for $message {
            fn from($public { $($field),* }: $public) -> $message {
                $message { $($field),* }
            }
        }

        impl From<$message> for $public {
            fn from($message { $($field),* }: $message) -> $public {
                $public { $($field),* }
            }
        }
    };
}

/// The client's request for the server's status.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StatusAsk {
    /// Milliseconds between two answers; the server uses at least 100 and at most 10,000.
    #[prost(uint32, tag = "1")]
    pub interval_millis: u32,
}

/// The server's status.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StatusReport {
    /// Running transfers, oldest first.
    #[prost(message, repeated, tag = "1")]
    pub transfers: Vec<TransferReport>,
    /// Streams with a sender or a receiver.
    #[prost(message, repeated, tag = "2")]
    pub streams: Vec<StreamReport>,
    /// The shared tree, if the server has one.
    #[prost(message, optional, tag = "3")]
    pub shared_tree: Option<TreeReport>,
    /// Counts since the server started.
    #[prost(message, optional, tag = "4")]
    pub totals: Option<TotalsReport>,
    /// Rooms of channels.
    #[prost(message, repeated, tag = "5")]
    pub rooms: Vec<RoomReport>,
}

impl From<ServerStatus> for StatusReport {
    fn from(status: ServerStatus) -> StatusReport {
        StatusReport {
            transfers: status.transfers.into_iter().map(Into::into).collect(),
            streams: status.streams.into_iter().map(Into::into).collect(),
            shared_tree: status.shared_tree.map(Into::into),
            totals: Some(status.totals.into()),
            rooms: status.rooms.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<StatusReport> for ServerStatus {
    fn from(status: StatusReport) -> ServerStatus {
        ServerStatus {
            transfers: status.transfers.into_iter().map(Into::into).collect(),
            streams: status.streams.into_iter().map(Into::into).collect(),
            shared_tree: status.shared_tree.map(Into::into),
            totals: status.totals.unwrap_or_default().into(),
            rooms: status.rooms.into_iter().map(Into::into).collect(),
        }
    }
}

/// A running transfer.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TransferReport {
    /// The number of the transfer at its server.
    #[prost(uint64, tag = "1")]
    pub number: u64,
    /// The client's address.
    #[prost(string, tag = "2")]
    pub address: String,
    /// The client's id.
    #[prost(string, tag = "3")]
    pub id: String,
    /// The client's name in the list of clients.
    #[prost(string, optional, tag = "4")]
    pub name: Option<String>,
    /// The operation and its paths.
    #[prost(string, tag = "5")]
    pub wish: String,
    /// Whether the server receives the data; otherwise it sends them.
    #[prost(bool, tag = "6")]
    pub receives: bool,
    /// Time since the request, in nanoseconds.
    #[prost(uint64, tag = "7")]
    pub age_nanos: u64,
    /// Bytes that are verified and written at the destination.
    #[prost(uint64, tag = "8")]
    pub bytes: u64,
    /// Bytes that the destination already had, a part of `bytes`.
    #[prost(uint64, tag = "9")]
    pub resumed_bytes: u64,
    /// Size of the object in bytes; 0 while it is unknown.
    #[prost(uint64, tag = "10")]
    pub total_bytes: u64,
    /// Files that have their final names at the destination.
    #[prost(uint64, tag = "11")]
    pub files: u64,
    /// Number of files of the object; 0 while it is unknown.
    #[prost(uint64, tag = "12")]
    pub total_files: u64,
    /// Recent goodput, in bits a second: since the newest report that is at least a second old.
    #[prost(uint64, tag = "13")]
    pub rate_now_bps: u64,
    /// The rate at which the sending end sends, in bits a second.
    #[prost(uint64, tag = "14")]
    pub sending_rate_bps: u64,
    /// Smoothed round-trip time, in nanoseconds.
    #[prost(uint64, tag = "15")]
    pub rtt_nanos: u64,
    /// Current round-trip time minus the lowest one of this transfer, in nanoseconds.
    #[prost(uint64, tag = "16")]
    pub queue_nanos: u64,
    /// TCP connections that carry the data; 0 for datagrams.
    #[prost(uint32, tag = "17")]
    pub streams: u32,
    /// Data datagrams sent.
    #[prost(uint64, tag = "18")]
    pub sent: u64,
    /// Blocks sent again, and coded symbols; a part of `sent`.
    #[prost(uint64, tag = "19")]
    pub retransmitted: u64,
    /// Data datagrams received.
    #[prost(uint64, tag = "20")]
    pub received: u64,
    /// Datagrams lost on the path or dropped at the receiver; includes the next two counts.
    #[prost(uint64, tag = "21")]
    pub path_lost: u64,
    /// Datagrams lost in the receiving socket, whose buffer was full.
    #[prost(uint64, tag = "22")]
    pub socket_lost: u64,
    /// Datagrams that the receiving end dropped for lack of memory, or because they waited too long
    /// for the transfer to start.
    #[prost(uint64, tag = "23")]
    pub memory_lost: u64,
    /// The bottleneck, by its name in the events.
    #[prost(string, tag = "24")]
    pub bound_by: String,
    /// For each of at most 256 equal parts of the object, one byte: how many per cent of this part
    /// are at the destination.
    #[prost(bytes = "vec", tag = "25")]
    pub chunk_map: Vec<u8>,
}

impl From<TransferStatus> for TransferReport {
    fn from(status: TransferStatus) -> TransferReport {
        TransferReport {
            number: status.number,
            address: status.address,
            id: status.id,
            name: status.name,
            wish: status.wish,
            receives: status.receives,
            age_nanos: status.age.as_nanos(),
            bytes: status.bytes,
            resumed_bytes: status.resumed_bytes,
            total_bytes: status.total_bytes,
            files: status.files,
            total_files: status.total_files,
            rate_now_bps: status.rate_now.as_bps(),
            sending_rate_bps: status.sending_rate.as_bps(),
            rtt_nanos: status.rtt.as_nanos(),
            queue_nanos: status.queue.as_nanos(),
            streams: status.streams,
            sent: status.sent,
            retransmitted: status.retransmitted,
            received: status.received,
            path_lost: status.path_lost,
            socket_lost: status.socket_lost,
            memory_lost: status.memory_lost,
            bound_by: status.bound_by.name().to_owned(),
            chunk_map: status.chunk_map,
        }
    }
}

impl From<TransferReport> for TransferStatus {
    fn from(status: TransferReport) -> TransferStatus {
        TransferStatus {
            number: status.number,
            address: status.address,
            id: status.id,
            name: status.name,
            wish: status.wish,
            receives: status.receives,
            age: Span::from_nanos(status.age_nanos),
            bytes: status.bytes,
            resumed_bytes: status.resumed_bytes,
            total_bytes: status.total_bytes,
            files: status.files,
            total_files: status.total_files,
            rate_now: Rate::from_bps(status.rate_now_bps),
            sending_rate: Rate::from_bps(status.sending_rate_bps),
            rtt: Span::from_nanos(status.rtt_nanos),
            queue: Span::from_nanos(status.queue_nanos),
            streams: status.streams,
            sent: status.sent,
            retransmitted: status.retransmitted,
            received: status.received,
            path_lost: status.path_lost,
            socket_lost: status.socket_lost,
            memory_lost: status.memory_lost,
            bound_by: BoundBy::named(&status.bound_by),
            chunk_map: status.chunk_map,
        }
    }
}

/// The state of a stream.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StreamReport {
    /// The stream's name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The id of the sender, if there is one.
    #[prost(string, optional, tag = "2")]
    pub sender: Option<String>,
    /// Number of clients that receive the stream or wait for it.
    #[prost(uint64, tag = "3")]
    pub receivers: u64,
    /// Frames of the sender so far, or payloads if a payload may hold several frames.
    #[prost(uint64, tag = "4")]
    pub frames: u64,
    /// Datagrams received from the sender.
    #[prost(uint64, tag = "5")]
    pub datagrams: u64,
}

mirrors!(StreamStatus, StreamReport { name, sender, receivers, frames, datagrams });

/// The state of a room.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RoomReport {
    /// The room's name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Clients that send to the room.
    #[prost(uint64, tag = "2")]
    pub senders: u64,
    /// Clients that receive from the room.
    #[prost(uint64, tag = "3")]
    pub subscribers: u64,
    /// Messages since the room was created.
    #[prost(uint64, tag = "4")]
    pub messages: u64,
}

mirrors!(RoomStatus, RoomReport { name, senders, subscribers, messages });

/// A shared tree.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TreeReport {
    /// Keys that have a value.
    #[prost(uint64, tag = "1")]
    pub keys: u64,
    /// The revision of the tree: at least the number of changes in this and earlier runs.
    #[prost(uint64, tag = "2")]
    pub changes: u64,
    /// Active watches that have received all changes.
    #[prost(uint64, tag = "3")]
    pub watches: u64,
}

mirrors!(SharedTreeStatus, TreeReport { keys, changes, watches });

/// Counts of a server since its start.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TotalsReport {
    /// Requests that succeeded, of all services.
    #[prost(uint64, tag = "1")]
    pub done: u64,
    /// Requests that succeeded except for some files.
    #[prost(uint64, tag = "2")]
    pub partial: u64,
    /// Requests that were refused or not finished, or that copied no file because files failed.
    #[prost(uint64, tag = "3")]
    pub failed: u64,
    /// Clients that were turned away before a request.
    #[prost(uint64, tag = "4")]
    pub refused_clients: u64,
    /// Bytes that clients wrote here.
    #[prost(uint64, tag = "5")]
    pub received_bytes: u64,
    /// Bytes that clients read here.
    #[prost(uint64, tag = "6")]
    pub sent_bytes: u64,
    /// Files that clients wrote here.
    #[prost(uint64, tag = "7")]
    pub received_files: u64,
    /// Files that clients copied from here.
    #[prost(uint64, tag = "8")]
    pub sent_files: u64,
    /// Data datagrams sent, by clients and by the server.
    #[prost(uint64, tag = "9")]
    pub sent: u64,
    /// Blocks sent again, and coded symbols; a part of `sent`.
    #[prost(uint64, tag = "10")]
    pub retransmitted: u64,
    /// Data datagrams received, by clients and by the server.
    #[prost(uint64, tag = "11")]
    pub received: u64,
    /// Datagrams lost on the path or dropped at the receiver; includes the next two counts.
    #[prost(uint64, tag = "12")]
    pub path_lost: u64,
    /// Datagrams lost in a receiving socket.
    #[prost(uint64, tag = "13")]
    pub socket_lost: u64,
    /// Datagrams that receiving ends dropped for lack of memory, or because they waited too long
    /// for the transfer to start.
    #[prost(uint64, tag = "14")]
    pub memory_lost: u64,
    /// Messages of all rooms.
    #[prost(uint64, tag = "15")]
    pub room_messages: u64,
}

mirrors!(
    ServerTotals,
    TotalsReport {
        done,
        partial,
        failed,
        refused_clients,
        received_bytes,
        sent_bytes,
        received_files,
        sent_files,
        sent,
        retransmitted,
        received,
        path_lost,
        socket_lost,
        memory_lost,
        room_messages
    }
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_survives_conversion_to_a_message_and_an_unknown_bottleneck_is_read_as_none() {
        let transfer = TransferStatus {
            name: Some("Ada".to_owned()),
            wish: "reads /x".to_owned(),
            queue: Span::from_millis(3),
            sending_rate: Rate::from_bps(7),
            bound_by: BoundBy::PeerLimit,
            chunk_map: vec![100, 3],
            socket_lost: 9,
            ..TransferStatus::default()
        };
        let stream = StreamStatus { receivers: 4, ..StreamStatus::default() };
        let status = ServerStatus {
            transfers: vec![transfer],
            streams: vec![stream],
            rooms: vec![RoomStatus { name: "lab/x".to_owned(), senders: 7, ..Default::default() }],
            shared_tree: Some(SharedTreeStatus { keys: 1, changes: 2, watches: 3 }),
            totals: ServerTotals { memory_lost: 5, room_messages: 6, ..ServerTotals::default() },
        };
        assert_eq!(ServerStatus::from(StatusReport::from(status.clone())), status);
        let newer = TransferReport { bound_by: "moon".to_owned(), ..TransferReport::default() };
        assert_eq!(TransferStatus::from(newer).bound_by, BoundBy::Nothing);
    }
}
