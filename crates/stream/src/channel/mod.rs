//! Channels: clients send messages to other clients through a room of a server.
//!
//! Each client chooses how messages travel between the client and the server
//! ([`Mode`](longhaul_proto::channel::Mode)). Clients with different modes can share a room.
//!
//! - [`messages`] (the wire messages), `parts` (messages longer than a frame of the control
//!   stream).
//! - The server: [`server`] answers clients from its `rooms`.
//! - `inbound` and `outbound`: the receiving and the sending end of a flow of datagrams, at clients
//!   and servers.
//! - `group`: the multicast group of a room, at servers and members.
//! - The clients: [`publish`] and [`subscribe`]. [`link`] connects a room of this server to the
//!   room of another server.

mod group;
mod inbound;
pub mod link;
#[doc(hidden)]
pub mod messages;
mod outbound;
#[doc(hidden)]
pub mod parts;
pub mod publish;
mod rooms;
pub mod server;
pub mod subscribe;

#[doc(hidden)]
pub use group::address as group_address;
pub use rooms::{Charge, Charges, RoomLimits, RoomListed};

use longhaul_net::clock;

/// Returns this process's time for the timestamps of messages: microseconds since the clock was
/// first read.
fn stamp() -> u64 {
    clock::now().as_nanos() / 1_000
}
