//! The multicast group of a room.
//!
//! A room is a server's meeting point for clients: each message goes to all subscribers. The server
//! joins a multicast group of its network, and passes messages between the room and the group. A
//! member is a client that asks the server over a session for the group and its key. A member needs
//! a right to the room.
//!
//! - [`epoch`]: the keys. Each sender has its own number, flow and key, so no two senders use the
//!   same nonce with a key. A subscriber has the keys of all flows. A new epoch (new keys) begins
//!   after a member has left, and when the sender numbers are used up.
//! - [`author`]: proves to the server who sent a message. The keys of the epoch cannot prove this,
//!   because every subscriber has all of them.
//! - [`voice`] sends to a group, and [`ears`] receives from it.
//! - At the server: [`bridge`] connects room and group, `host` answers members. At members:
//!   `listen` receives, `speak` sends.
//!
//! Messages cannot loop: a room drops repeated messages, and a bridge does not send a message back
//! to the group that the message came from. A bridge cannot decrypt the datagrams of another
//! server's bridge in the same group.

mod author;
pub(super) mod bridge;
mod ears;
mod epoch;
mod host;
mod listen;
mod speak;
#[cfg(test)]
mod tests;
mod voice;

pub use epoch::address;
