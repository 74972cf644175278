//! Streams: frames with a deadline, from one client through a server to other clients.
//!
//! The sender adds repairs to each frame, or sends lost parts of a frame again on request
//! ([`longhaul_proto::stream`]). The server decrypts each datagram, encrypts it for each receiver
//! and forwards it immediately. So repairs cover losses on the whole path. Receivers report their
//! losses, and the sender adapts to the worst path.
//!
//! - [`messages`] (the wire messages) and `terms` (their validation).
//! - The server: [`server`] answers clients, with `rooms` for its streams; `ingress` decrypts
//!   datagrams, the thread `relay` forwards them, `place` has a receiver's address.
//! - [`channel`]: messages instead of frames.
//! - The clients: [`send`] uses the thread `sending`. [`receive`] uses `gather` and the thread
//!   `restore`, which decodes; `queue` is the input of this thread, and `item` is its output.
//!   `announcer` sends the receiver's address to the server. `link` has the connection.

mod announcer;
pub mod channel;
mod gather;
mod ingress;
mod item;
mod link;
#[doc(hidden)]
pub mod messages;
mod place;
mod queue;
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
