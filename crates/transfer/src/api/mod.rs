//! The library that other programs embed.
//!
//! - [`Client`] and [`Server`] describe the two sides. [`Trust`] decides about new servers.
//! - A [`CopyRequest`] starts a [`Transfer`], which reports [`Event`]s and ends with a [`Summary`]
//!   or an [`Error`]. A [`ReadRequest`] and a [`WriteRequest`] copy between memory and another
//!   host.
//! - A [`ProbeRequest`] measures the path to a server.
//! - A [`Connection`] to a host serves several calls; a [`RemoteFile`] is an open file there.
//! - A [`Share`] is the tree of small values that a server's clients share. An [`Rpc`] calls the
//!   methods of the other side. A [`StreamSender`] and a [`StreamReceiver`] carry frames with a
//!   deadline. A [`ChannelSender`] and a [`ChannelReceiver`] carry messages from several clients to
//!   several others.
//! - [`access_list`] parses lists of clients. [`listen`] parses the address of a server.
//!   [`blocking`] is for threads that may block.
//! - Inside: `engine` starts the threads that do the work (together: the engine). `queue` passes
//!   the threads' events to slow readers; `batches` passes the results of calls. `running` is the
//!   common part of the handles of transfers and probes; `ending` ends a stream or channel when its
//!   handle is dropped. `host` connects to a host for calls. `expand` expands patterns in paths.
//!   `ssh_server` serves the client whose ssh started this process; `ssh_rooms` has the rooms that
//!   such clients share.

pub mod access_list;
mod batches;
pub mod blocking;
mod channel;
mod client;
mod connection;
mod copy;
mod ending;
mod engine;
mod events;
mod expand;
mod host;
mod identity;
pub mod listen;
mod memory;
mod probe;
mod queue;
mod remote_file;
mod rpc;
mod running;
mod server;
mod share;
mod ssh_rooms;
mod ssh_server;
mod stream;
mod transfer;
mod trust;

pub use channel::{
    ChannelCode, ChannelEvent, ChannelInput, ChannelMessage, ChannelMode, ChannelReceived,
    ChannelReceiver, ChannelSender, ChannelSent, ChannelSettings, ReceiveChannelRequest,
    SendChannelRequest,
};
pub use client::{Client, ClientBuilder, IntoLocation};
pub use connection::{ConnectRequest, Connection, Listing, StatusWatch};
pub use copy::CopyRequest;
pub use events::{Event, Events};
pub use expand::Expanded;
pub use identity::Identity;
pub use memory::{ReadRequest, WriteRequest};
pub use probe::{Probe, ProbeEvent, ProbeEvents, ProbeRequest};
pub use remote_file::{RangePiece, RangeReads, RemoteFile};
pub use rpc::RpcRequest;
pub use server::{Access, Server, ServerBuilder, ServerControl, ServerEvents};
pub use share::{EditRequest, Edited, Share, ShareEvent, ShareRequest, ShareWatch, SharedValue};
pub use ssh_rooms::SshRooms;
pub use ssh_server::SshServer;
pub use stream::{
    ReceiveStreamRequest, SendStreamRequest, StreamEvent, StreamFrame, StreamInput, StreamReceived,
    StreamReceiver, StreamSender, StreamSent, StreamSettings, StreamWay, WhenBehind,
};
pub use transfer::Transfer;
pub use trust::{NewServer, Trust};

pub use crate::error::public::{Error, ErrorKind, Side};
pub use crate::list::{FileTime, NameKind, Named};
pub use crate::path_memory::{KnownPath, PathMemory};
pub use crate::progress::Cancel as CancelHandle;
pub use crate::serve::{Moved, ServedClient, ServerEvent};
pub use crate::server_status::{
    RoomStatus, ServerStatus, ServerTotals, SharedTreeStatus, StreamStatus, TransferStatus,
};
pub use crate::summary::Summary;
pub use longhaul_files::MemoryFolder;
pub use longhaul_proto::channel::{Array, ArrayError, Element};
pub use longhaul_proto::rpc::{RpcCode, RpcError};
pub use longhaul_rpc::{Rpc, RpcCall, RpcMessage, RpcOptions, RpcStream};
pub use longhaul_stream::channel::RoomLimits;
pub use longhaul_text::CallOption;
