//! Tests of copies, servers and identities with the real binary.

mod copies;
pub(crate) mod destination_trouble;
mod events;
mod local;
mod modes;
mod on_disk;
mod permissions;
mod pipes;
mod races;
mod reach;
mod replaced;
mod resume;
mod rotten;
mod serve_log;
mod service;
mod serving;
mod shown_names;
mod sizes;
mod source_trouble;
mod sparse;
mod sync;
mod taken_over;
mod terminal;
mod trust;
mod verbose;
mod ways;
