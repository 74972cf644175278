//! The threads of a transfer: they run a core over sockets, files and the control stream.
//!
//! | thread | file | owns |
//! | --- | --- | --- |
//! | one a sending flow | [`send`] | the sending core, the source ([`payloads`]) |
//! | the port's receive thread | [`receive`], [`feedback`] | receiving cores, chunks being filled |
//! | one a receiving transfer | [`writer`] | the destination |
//! | one for replicas of an object | [`joint`], [`leases`] | the destination, who brings what |
//! | one a sending transfer without datagrams | [`stream`] | the source |
//!
//! They meet in channels, on a [`board`] that others read, and in the [`budget`] that transfers
//! share.

mod ahead;
pub(crate) mod board;
pub(crate) mod budget;
pub(crate) mod claims;
mod drain;
pub(crate) mod feedback;
pub(crate) mod jobs;
pub(crate) mod joint;
mod leases;
pub(crate) mod outbox;
pub(crate) mod payloads;
pub(crate) mod planned;
pub(crate) mod receive;
mod refusals;
mod relay;
pub(crate) mod send;
pub(crate) mod shared_core;
pub(crate) mod skip;
mod spent;
pub(crate) mod stream;
mod trial;
mod withheld;
pub(crate) mod writer;

/// CPU time of the calling thread.
pub(crate) fn thread_time() -> std::time::Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    std::time::Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A random number for ids that others must not guess.
pub(crate) fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    aws_lc_rs::rand::fill(&mut bytes).expect("the system has randomness");
    u64::from_ne_bytes(bytes)
}

/// A challenge that nobody can guess.
pub(crate) fn random_challenge() -> longhaul_net::port::address::Challenge {
    let mut challenge = [0; 16];
    aws_lc_rs::rand::fill(&mut challenge).expect("the system has randomness");
    challenge
}

/// A random flow id.
pub(crate) fn random_flow() -> longhaul_proto::endpoint::FlowId {
    longhaul_proto::endpoint::FlowId(random_u64() as u32)
}
