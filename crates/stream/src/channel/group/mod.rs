//! The multicast group of a room.
//!
//! A room is a server's meeting point for clients: each message that a client sends to the room
//! goes to all subscribers. For a room, the server joins a multicast group of its network. It sends
//! the messages of the room to the group, and puts messages that members send to the group into the
//! room. A member is a client that asks the server over a session for the group and its key. The
//! server gives no key to a client that has no right to the room.
//!
//! - [`epoch`]: the keys. An epoch is the time during which the same keys are valid. Each sender of
//!   an epoch has its own number, flow and key, so no two senders use the same nonce with a key. A
//!   subscriber has the keys of all flows, a sender only the key of its own flow. A new epoch
//!   begins after a member has left, and when the sender numbers are used up.
//! - [`author`]: proves to the server who sent a message. The encryption does not prove this,
//!   because every subscriber has the keys of all senders.
//! - [`voice`] sends to a group, and [`ears`] receives from it.
//! - At the server: [`bridge`] connects room and group, `host` answers members. At members:
//!   `listen` receives, `speak` sends.
//!
//! Messages cannot loop: a room drops repeated messages, and a bridge sends no message back to the
//! group from which it came. A bridge ignores its own datagrams. It cannot decrypt the datagrams of
//! another server's bridge in the same group, because the keys differ.

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
