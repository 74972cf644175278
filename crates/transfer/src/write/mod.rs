//! The writing side of a receiving transfer: one thread that verifies chunks and writes them.
//!
//! [`writer`] is the thread of one transfer. [`joint`] is the thread of an object that several
//! sources bring; `leases` decides which source brings which chunk. Both read [`jobs`], which are
//! whole chunks ([`chunk`]) and messages of the control stream. [`planned`] cuts what the
//! destination says into messages that fit a frame. `ahead` limits the digests that come before
//! their chunks, `withheld` the time that chunks wait for theirs, `wrong` how often one chunk may
//! come wrong. [`skip`] computes the blocks that need not come. [`claims`] keeps two sources from
//! one file. Incomplete chunks share the memory of [`budget`].

mod ahead;
pub(crate) mod budget;
pub(crate) mod chunk;
pub(crate) mod claims;
pub(crate) mod jobs;
pub(crate) mod joint;
mod leases;
pub(crate) mod planned;
pub(crate) mod skip;
mod withheld;
pub(crate) mod writer;
mod wrong;
