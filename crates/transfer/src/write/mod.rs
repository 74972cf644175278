//! The writing side of a receiving transfer: one thread that verifies chunks and writes them.
//!
//! [`destination`] has the trait of all destinations: [`files`], a `rehearsal` of them,
//! [`discard`], the file of a pipe ([`extent`]), or an output in order ([`ordered`]). [`writer`] is
//! the thread; it finds the digest of each chunk, and `writing` puts verified chunks into a store.
//! A thread receives [`jobs`]: complete chunks ([`chunk`]) and messages of the control stream.
//! Replicas have their own thread ([`many`](crate::many)). [`planned`] divides a destination's
//! reports into messages that fit a frame. `ahead` limits the digests that arrive before their
//! chunks, `missing_digests` the time that chunks wait for their digests, `wrong` how often one
//! chunk may fail verification. [`skip`] computes the blocks that need not be sent. [`claims`]
//! prevents two sources from writing one file. Incomplete chunks share the memory of [`budget`].

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
