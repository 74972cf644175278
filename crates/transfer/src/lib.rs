//! longhaul's transfers: from a request to a verified object.
//!
//! [`api`] is the interface for other programs, and everything that these pages show; the other
//! modules are public for the crate `longhaul`, for tests and for fuzzers. Below `api`, in reading
//! order: [`location`] (the ends of a copy), [`path_memory`] (rates of earlier copies),
//! [`options`], [`progress`], [`summary`], [`error`]; then [`copy`] and [`serve`] (the two sides of
//! a request), `list` (listings), `file` (remote files), `share` (the shared tree), `stream`
//! (streams), [`probe`] (measurements), `many` (several sources of one copy), `reach` (connecting
//! to another host), `roles` (sender and receiver of a transfer) over [`control`] (their messages),
//! `flow` (the threads that carry chunks), `write` (the thread that writes them), `counters` (the
//! threads' counters). The crate `longhaul_files` has the files, `longhaul_session` the sessions,
//! `longhaul_net` sockets and sealing.

pub mod api;
mod calls;
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
#[doc(hidden)]
pub mod serve;
mod share;
mod stream;
#[doc(hidden)]
pub mod summary;
mod write;

#[doc(hidden)]
pub use longhaul_session as session;
