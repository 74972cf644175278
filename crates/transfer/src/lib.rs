//! longhaul's transfers: from a request to a verified object.
//!
//! [`api`] is what other programs embed. Below it, in reading order: [`location`] (what a copy
//! names), [`options`], [`progress`], [`summary`], [`error`]; then [`copy`] and [`serve`] (the two
//! sides of a request), [`probe`] (measurements), `many` (several sources of one copy), `reach`
//! (the way to another host), `roles` (the two roles of a transfer) over [`control`] (what they
//! say), `flow` (the threads that carry chunks), `write` (the thread that writes them), `counters`
//! (what the threads count). Files are the crate `longhaul_files`, sessions the crate
//! `longhaul_session`, sockets and sealing the crate `longhaul_net`.

pub mod api;
pub mod control;
pub mod copy;
mod counters;
pub mod error;
mod flow;
pub mod location;
#[cfg(test)]
mod loopback;
mod many;
mod notices;
pub mod options;
pub mod probe;
pub mod progress;
mod random;
mod reach;
mod reactor;
mod roles;
pub mod serve;
pub mod summary;
mod write;

pub use longhaul_session as session;
