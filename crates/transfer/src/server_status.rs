//! What a server tells of itself to who watches it.

use longhaul_proto::time::Span;
use longhaul_proto::units::Rate;

use crate::summary::BoundBy;

/// What a server is doing. What clients name may have any characters.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ServerStatus {
    /// Transfers under way, the oldest first.
    pub transfers: Vec<TransferStatus>,
    /// Streams that somebody sends or receives.
    pub streams: Vec<StreamStatus>,
    /// The shared tree, where the server has one.
    pub shared_tree: Option<SharedTreeStatus>,
    /// Counts since the server started, transfers under way included.
    pub totals: ServerTotals,
}

/// A transfer under way. Counts of the other end are that end's word.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct TransferStatus {
    /// The number of the transfer at its server.
    pub number: u64,
    /// Where the client is.
    pub address: String,
    /// The client's id.
    pub id: String,
    /// What the list of clients calls it.
    pub name: Option<String>,
    /// What is done, and with which paths.
    pub wish: String,
    /// The server receives; else it sends.
    pub receives: bool,
    /// Time since the request.
    pub age: Span,
    /// Bytes that are verified and written at the destination.
    pub bytes: u64,
    /// Of these, bytes that were there before.
    pub resumed_bytes: u64,
    /// Bytes of the object; 0 until that is known.
    pub total_bytes: u64,
    /// Files that have their names at the destination.
    pub files: u64,
    /// Files of the object; 0 until that is known.
    pub total_files: u64,
    /// Goodput of the last second; if the server was not asked in it, since it was asked last.
    pub rate_now: Rate,
    /// The rate at which the sending end sends.
    pub sending_rate: Rate,
    /// Smoothed round-trip time.
    pub rtt: Span,
    /// Queueing delay: by how much the round-trip time is above the lowest that was seen here.
    pub queue: Span,
    /// TCP connections that carry the data; 0 for datagrams.
    pub streams: u32,
    /// Data datagrams sent.
    pub sent: u64,
    /// Of these, blocks sent again.
    pub retransmitted: u64,
    /// Data datagrams received.
    pub received: u64,
    /// Datagrams lost on the path.
    pub path_lost: u64,
    /// Datagrams lost in the receiving socket, whose buffer was full.
    pub socket_lost: u64,
    /// Datagrams that came and found no memory at the receiving end.
    pub memory_lost: u64,
    /// What bounds the transfer, by where the time of both ends went so far.
    pub bound_by: BoundBy,
}

/// A stream as it stands at its server.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct StreamStatus {
    /// Its name.
    pub name: String,
    /// The id of its sender, if there is one.
    pub sender: Option<String>,
    /// How many receive it, or wait for it.
    pub receivers: u64,
    /// Frames of its sender so far.
    pub frames: u64,
    /// Datagrams that came from its sender.
    pub datagrams: u64,
}

/// A shared tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedTreeStatus {
    /// Keys that have a value.
    pub keys: u64,
    /// Changes so far, those of earlier runs of the server included.
    pub changes: u64,
    /// Watches under way that have heard of all changes.
    pub watches: u64,
}

/// Counts of a server since its start. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerTotals {
    /// Requests of all services that were done.
    pub done: u64,
    /// Requests of which some files failed.
    pub partial: u64,
    /// Requests that were refused or not finished.
    pub failed: u64,
    /// Clients that were turned away before a request.
    pub refused_clients: u64,
    /// Bytes that clients wrote here.
    pub received_bytes: u64,
    /// Bytes that clients read here.
    pub sent_bytes: u64,
    /// Files that clients wrote here.
    pub received_files: u64,
    /// Files that clients read here.
    pub sent_files: u64,
    /// Data datagrams sent, by clients and by the server.
    pub sent: u64,
    /// Of these, blocks sent again.
    pub retransmitted: u64,
    /// Data datagrams received, by clients and by the server.
    pub received: u64,
    /// Datagrams lost on the path.
    pub path_lost: u64,
    /// Datagrams lost in a receiving socket.
    pub socket_lost: u64,
    /// Datagrams that found no memory at the receiving end.
    pub memory_lost: u64,
}
