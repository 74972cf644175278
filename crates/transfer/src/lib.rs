//! longhaul's transfers: from a request to a verified object.
//!
//! [`api`] is what other programs embed. Below it, in reading order: [`location`] (what a copy
//! names), [`options`], [`progress`], [`summary`], [`error`]; then [`copy`] and [`serve`] (the two
//! sides of a request), [`probe`] (measurements), `end` (the two roles of a transfer) over
//! [`control`] (what they say), `driver` (the threads); below them [`session`] (who is who). Files
//! are the crate `longhaul_files`; sockets and sealing are the crate `longhaul_net`.

pub mod api;
pub mod control;
pub mod copy;
mod driver;
mod end;
pub mod error;
pub mod location;
mod meter;
pub mod options;
pub mod probe;
pub mod progress;
mod reactor;
pub mod serve;
pub mod session;
pub mod summary;
