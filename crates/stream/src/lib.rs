//! Streams: frames with a deadline from one client over a server to others.
//!
//! The sender codes each frame ([`longhaul_proto::stream`]); the server opens each datagram, seals
//! it for each receiver and forwards it at once, so the code covers the whole way and costs the
//! server nothing. Receivers report what they lose, and the sender's repairs follow the worst way.
//!
//! - [`messages`] (what goes across) and `terms` (what is believed of it).
//! - The server: [`server`] answers clients out of its `rooms`, `ingress` opens what a sender
//!   sends, `relay` is the thread that forwards it, `place` knows where a receiver is.
//! - [`channel`]: messages instead of frames.
//! - The clients: [`send`] with the thread `sending`; [`receive`] with `gather` on the port's
//!   thread and `restore`, which decodes; `item` is what comes. `link` is what both work over.

pub mod channel;
mod gather;
mod ingress;
mod item;
mod link;
#[doc(hidden)]
pub mod messages;
mod place;
pub mod receive;
mod relay;
mod restore;
mod rooms;
pub mod send;
mod sending;
pub mod server;
#[doc(hidden)]
pub mod terms;

pub use link::Link;
pub use rooms::Listed;
