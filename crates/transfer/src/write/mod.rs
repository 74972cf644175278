//! The writing side of a receiving transfer: one thread that verifies chunks and writes them.
//!
//! [`destination`] says what an object can be written to: [`files`], a `rehearsal` of them,
//! [`discard`], the file of a pipe ([`extent`]), or a pipe itself ([`ordered`]). [`writer`] is the
//! thread; it finds the digest of each chunk, and `writing` puts what is verified into a store. A
//! thread reads [`jobs`], which are whole chunks ([`chunk`]) and messages of the control stream.
//! Replicas write by a thread of their own ([`many`](crate::many)). [`planned`] cuts what the
//! destination says into messages that fit a frame. `ahead` limits the digests that come before
//! their chunks, `missing_digests` the time that chunks wait for theirs, `wrong` how often one
//! chunk may come wrong. [`skip`] computes the blocks that need not come. [`claims`] keeps two
//! sources from one file. Incomplete chunks share the memory of [`budget`].

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
