//! Remote procedure calls, both ways over one stream of a session.
//!
//! The logic is in `longhaul_proto::rpc`: call numbers, limits, and stored answers for callers that
//! reconnect. The modules of this crate:
//! - [`messages`]: the wire messages; [`convert`] validates them.
//! - `handle`: the handle with which a program makes calls.
//! - `method`: the methods that a program offers, and the thread that runs them.
//! - `ends`: the calls of one program in both directions; `link` moves their messages over one
//!   connection.
//! - [`server`] and [`client`]: the successive connections of a program.

pub mod client;
#[doc(hidden)]
pub mod convert;
mod ends;
mod handle;
mod link;
#[doc(hidden)]
pub mod messages;
mod method;
pub mod server;
#[cfg(test)]
mod tests;

pub use handle::{Rpc, RpcMessage, RpcOptions, RpcStream};
pub use method::{Methods, RpcCall};
