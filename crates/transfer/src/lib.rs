//! longhaul's transfers: from a request to a verified object.
//!
//! In reading order: [`location`] (what a copy names), [`options`], [`progress`], [`summary`],
//! [`error`].

pub mod control;
pub mod error;
pub mod location;
pub mod options;
pub mod progress;
pub mod summary;
