//! The writing side of a receiving transfer: one thread that verifies chunks and writes them.
//!
//! - [`destination`]: the trait of all destinations. These are [`files`], a `rehearsal` (a dry run
//!   over files), [`discard`], the file of a pipe ([`extent`]), and an output in order
//!   ([`ordered`]). Replicas have their own destination and thread ([`many`](crate::many)).
//! - [`writer`]: the thread; it finds the digest of each chunk. `writing` puts chunks into a store,
//!   which verifies them.
//! - [`jobs`]: the thread's input (complete chunks ([`chunk`]), and messages of the control stream)
//!   and output. [`planned`] divides a destination's reports into messages that fit a frame.
//! - limits: `ahead` limits digests that arrive before their chunks, `missing_digests` the time
//!   that chunks wait for their digests, `wrong` the failed verifications of one chunk. [`budget`]
//!   divides the memory for incomplete chunks.
//! - [`skip`]: computes the blocks that need not be sent. [`claims`]: prevents two sources from
//!   writing one file.

mod ahead;
pub(crate) mod budget;
pub(crate) mod chunk;
pub(crate) mod claims;
pub(crate) mod destination;
pub(crate) mod discard;
pub(crate) mod extent;
pub(crate) mod files;
pub(crate) mod jobs;
mod missing_digests;
pub(crate) mod ordered;
pub(crate) mod planned;
mod rehearsal;
pub(crate) mod skip;
pub(crate) mod writer;
mod writing;
mod wrong;
