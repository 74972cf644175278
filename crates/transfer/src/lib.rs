//! longhaul's transfers: from a request to a verified object.
//!
//! In reading order: [`location`] (what a copy names), [`options`], [`progress`], [`summary`],
//! [`error`], [`zone`]; then [`copy`] and [`serve`] (the two sides of a request), [`probe`]
//! (measurements), `end` (the two roles of a transfer) over [`control`] (what they say), `driver`
//! (the threads); below them [`objects`] (files), [`datapath`] (sockets and seals), `access` (the
//! host's link), [`session`] (who is who).

mod access;
pub mod control;
pub mod copy;
pub mod datapath;
mod driver;
mod end;
pub mod error;
pub mod location;
pub mod objects;
pub mod options;
pub mod probe;
pub mod progress;
mod reactor;
pub mod serve;
pub mod session;
pub mod summary;
pub mod zone;
