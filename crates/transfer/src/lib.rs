//! longhaul's transfers: from a request to verified files.
//!
//! Other programs use [`api`]. The other modules are private, or hidden from these pages and public
//! only for the workspace's other crates and for fuzzers. The modules that `api` builds on, in
//! reading order:
//! - [`location`] (sources and destinations), [`path_memory`] (measurements of earlier copies),
//!   [`options`], [`progress`], [`summary`], [`error`].
//! - [`copy`] and [`serve`]: the two sides of a request.
//! - calls of a client: `list` (listings), `watching` (a watch of a server's status), `file`
//!   (remote files), `share` (the shared tree), `rpc` (remote procedure calls), `stream` (streams),
//!   `channel` (channels), [`probe`] (measurements). `server_status` is a server's report of its
//!   state.
//! - `many` (several sources of one copy), `reach` (connects to another host), `roles` (the two
//!   roles of a transfer) over [`control`] (their messages).
//! - `flow` (the threads that carry chunks), `write` (the thread that writes them), `counters` (the
//!   counters of these threads).
//!
//! Other crates: `longhaul_files` reads and writes files, `longhaul_session` opens sessions,
//! `longhaul_net` has the sockets and the encryption of datagrams.

pub mod api;
mod calls;
mod channel;
#[doc(hidden)]
pub mod control;
#[doc(hidden)]
pub mod copy;
mod counters;
#[doc(hidden)]
pub mod error;
mod file;
mod flow;
mod list;
#[doc(hidden)]
pub mod location;
#[cfg(test)]
mod loopback;
mod many;
mod notices;
#[doc(hidden)]
pub mod options;
#[doc(hidden)]
pub mod path_memory;
#[doc(hidden)]
pub mod probe;
#[doc(hidden)]
pub mod progress;
mod random;
mod reach;
mod reactor;
mod roles;
mod rpc;
#[doc(hidden)]
pub mod serve;
mod server_status;
mod share;
mod stream;
#[doc(hidden)]
pub mod summary;
mod watching;
mod write;

#[doc(hidden)]
pub use longhaul_session as session;
