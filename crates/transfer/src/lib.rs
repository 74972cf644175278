//! longhaul's transfers: from a request to a verified object.
//!
//! [`api`] is what other programs embed. Below it, in reading order: [`location`] (what a copy
//! names), [`options`], [`progress`], [`summary`], [`error`]; then [`copy`] and [`serve`] (the two
//! sides of a request), [`probe`] (measurements), `end` (the two roles of a transfer) over
//! [`control`] (what they say), `driver` (the threads). Files are the crate `longhaul_files`,
//! sessions the crate `longhaul_session`, sockets and sealing the crate `longhaul_net`.

pub mod api;
pub mod control;
pub mod copy;
mod driver;
mod end;
pub mod error;
pub mod location;
#[cfg(test)]
mod loopback;
pub mod options;
pub mod probe;
pub mod progress;
mod reactor;
pub mod serve;
pub mod summary;

pub use longhaul_session as session;
