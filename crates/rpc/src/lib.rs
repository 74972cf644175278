//! Remote procedure calls, both ways over one stream of a session.
//!
//! The logic is in `longhaul_proto::rpc`: numbers of calls, limits, and stored answers for callers
//! that reconnect. This crate has [`messages`] (the wire messages), [`convert`] (their validation),
//! `handle` (the program's side of calls), `method` (the methods of this end and the thread that
//! runs them), `ends` (the calls of one program in both directions), `link` (one connection of a
//! program), [`server`] and [`client`] (a program's successive connections).

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
