//! A tree of small values that clients of a server watch and edit.
//!
//! The tree itself, and how a client keeps up with it, is pure logic in `longhaul_proto::share`.
//! Here is what it needs of the world: [`messages`] (what goes across) and [`convert`] (what is
//! believed of it), `disk` (the file) and `store` (the thread that has tree and file), `server` and
//! [`client`] (the two sides of a session's streams), `turns` and `unread` (how much a client can
//! make a server hold, and a server a client). [`Right`] says who may do what.

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
pub use unread::Unread;
pub use store::Size;
