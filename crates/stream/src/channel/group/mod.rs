//! The multicast group of a room.
//!
//! A server joins the group in its own domain: it sends the messages of the room to the group, and
//! takes messages that members send to it. A member is a client that asks the server for the group
//! and its key over a session, so a stranger has none.
//!
//! - [`epoch`]: the keys. Each sender of an epoch has its own number, flow and key, so no two use
//!   one nonce. A subscriber has the key of all flows, a sender only that of its own. A new epoch
//!   begins whenever a member leaves.
//! - [`author`]: proves to the server who sent a message, since all subscribers could seal it.
//! - [`voice`] and [`ears`]: sending to a group, and hearing it.
//! - [`bridge`] at the server, which serves members by `host`; `listen` and `speak` at members.
//!
//! A room drops a message that comes twice, and a bridge sends no message back to the group from
//! which it came. A bridge does not hear itself, nor another bridge in the same group, whose key is
//! another one. So nothing goes round.

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
