//! Files, trees, identities and their troubles, through the real binary.

mod copies;
mod destination_trouble;
mod permissions;
mod reach;
mod replaced;
mod resume;
mod rotten;
mod serve_log;
mod sizes;
mod source_trouble;
mod trust;
mod verbose;
mod ways;
