//! A tree of small values that clients of a server watch and edit.
//!
//! The logic is in `longhaul_proto::share`. Each change gives the tree its next revision; the
//! version of a key is the revision of its last change. A presence is a value that the server
//! deletes when its writer disconnects. The modules:
//! - [`messages`]: the wire messages; [`convert`] validates them.
//! - `disk`: the file that keeps the tree; `store`: the thread that owns the tree and the file.
//! - `server` and [`client`]: the two sides of a session's streams.
//! - `turns` (pending calls at the server) and `unread` (unread data of a client): memory limits.

pub mod client;
#[doc(hidden)]
pub mod convert;
mod disk;
#[doc(hidden)]
pub mod messages;
mod server;
mod store;
mod turns;
mod unread;

pub use longhaul_proto::share::Right;
pub use server::Shared;
pub use store::Size;
pub use unread::Unread;
