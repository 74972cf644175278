//! The data plane: UDP sockets, batches, sealed (encrypted and authenticated) datagrams. This crate
//! contains no transfer protocol, no session and no access to files.
//!
//! In reading order:
//! - [`clock`], [`wait`]: a monotonic clock; waiting for a point in time.
//! - [`zone`]: addresses with an interface, such as `fe80::1%eth0`. [`network`]: the address range
//!   that counts as one client when clients are limited. [`meter`]: rate limits per client.
//! - [`socket`]: one UDP socket, which sends and receives many datagrams in one system call.
//!   [`batch`]: outgoing datagrams.
//! - [`multicast`]: sockets of multicast groups.
//! - [`sealing`]: keys, sealing, opening, replay protection.
//! - [`buffers`]: memory for chunks, and the blocks that fill them.
//! - [`port`]: one receiving thread that distributes datagrams to flows; path MTU; address
//!   validation.
//! - [`access`]: the speed of the host's network card, and the other traffic through the card.
//!
//! A sender writes into a [`batch::Batch`] through a [`sealing::seal::Sealer`] and sends the batch
//! through a [`socket::Socket`]. A receiver registers a flow at a [`port::Port`]. The port passes
//! the flow's datagrams to the flow, and an [`sealing::open::Opener`] decrypts each datagram into
//! its place in a chunk's buffer.

pub mod access;
pub mod batch;
pub mod buffers;
pub mod clock;
mod error;
pub mod meter;
pub mod multicast;
pub mod network;
pub mod port;
pub mod sealing;
pub mod socket;
pub mod wait;
pub mod zone;

pub use error::Error;
