//! Random flow ids and challenges that a peer cannot guess.

use crate::session::random_u64;

pub(crate) fn random_challenge() -> longhaul_net::port::address::Challenge {
    let mut challenge = [0; 16];
    aws_lc_rs::rand::fill(&mut challenge).expect("the system has randomness");
    challenge
}

pub(crate) fn random_flow() -> longhaul_proto::endpoint::FlowId {
    longhaul_proto::endpoint::FlowId(random_u64() as u32)
}
