//! Channels: clients send messages to other clients through a room of a server.
//!
//! Each client chooses its [`Mode`](longhaul_proto::channel::Mode) of transport. Clients with
//! different modes can share a room.
//!
//! - [`messages`]: the wire messages. `parts`: the parts of long messages.
//! - The server: [`server`] answers clients from its `rooms`.
//! - `inbound` and `outbound`: the two ends of a flow of datagrams, at clients and servers.
//! - `group`: the multicast group of a room, at servers and members.
//! - The clients: [`publish`] and [`subscribe`]. [`link`] connects rooms of two servers.

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

/// Returns the microseconds since the clock's first use, for timestamps.
fn stamp() -> u64 {
    clock::now().as_nanos() / 1_000
}
