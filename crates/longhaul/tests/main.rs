//! The library as an embedder uses it, through real sockets on loopback.

mod copies;
mod memory;
mod rig;
mod rpc;
mod servers;
