//! Files, trees, identities and their troubles, through the real binary.

mod copies;
mod destination_trouble;
mod permissions;
mod reach;
mod resume;
mod sizes;
mod source_trouble;
mod trust;
mod verbose;
mod ways;
