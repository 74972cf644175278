//! The limit on answers to path-MTU probes.
//!
//! A probe needs no session, and its source address may be forged, so the answers may go to a
//! victim. Each network (an IPv4 address or an IPv6 /64) therefore has its own budget. All networks
//! without a handshake (strangers) also share one budget. The table has a fixed number of slots; a
//! secret hash chooses a network's slot, and networks with the same slot share its budget.
//!
//! A probe that gets no answer takes nothing from any budget, so strangers beyond their shared
//! budget cannot use up the budgets of clients.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

use longhaul_proto::time::{Span, Time};

use crate::network::Network;

/// Answers a second to one network: enough for sixty searches of eight probes each, too few to be
/// useful for an attack.
const OF_ONE: u32 = 500;
/// Answers a second to all networks without a handshake.
const OF_STRANGERS: u32 = 5_000;
const SLOTS: usize = 4096;

pub(super) struct Answers {
    hasher: RandomState,
    networks: Box<[Budget]>,
    strangers: Budget,
}

#[derive(Clone, Copy)]
struct Budget {
    since: Time,
    spent: u32,
}

impl Default for Answers {
    fn default() -> Answers {
        let unspent = Budget { since: Time::ZERO, spent: 0 };
        Answers {
            hasher: RandomState::new(),
            networks: vec![unspent; SLOTS].into(),
            strangers: unspent,
        }
    }
}

impl Answers {
    /// Returns whether to answer a probe from `address`; if so, takes the answer from the budgets.
    /// `is_expected` is true if `address` has a handshake with this port, or recently had one.
    pub(super) fn may(&mut self, now: Time, address: IpAddr, is_expected: bool) -> bool {
        let slot = self.hasher.hash_one(Network::of(address)) as usize % SLOTS;
        let own = &mut self.networks[slot];
        let may = own.has(now, OF_ONE) && (is_expected || self.strangers.has(now, OF_STRANGERS));
        if may {
            own.spent += 1;
            self.strangers.spent += u32::from(!is_expected);
        }
        may
    }
}

impl Budget {
    fn has(&mut self, now: Time, limit: u32) -> bool {
        if now.since(self.since) >= Span::from_secs(1) {
            *self = Budget { since: now, spent: 0 };
        }
        self.spent < limit
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const START: Time = Time::from_nanos(5_000_000_000);

    fn address(n: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(n))
    }

    fn answered(answers: &mut Answers, n: u32, asked: u32, is_expected: bool) -> u32 {
        let may = |_: &u32| answers.may(START, address(n), is_expected);
        (0..asked).filter(may).count() as u32
    }

    #[test]
    fn each_network_has_a_budget_per_second_and_cannot_use_up_another_budget() {
        let mut answers = Answers::default();
        assert_eq!(answered(&mut answers, 1, 10_000, false), OF_ONE);
        // Two networks share a slot once in 4096 cases.
        assert!((2..10).filter(|n| answers.may(START, address(*n), false)).count() >= 7);
        assert!(!answers.may(START + Span::from_millis(999), address(1), true));
        assert!(answers.may(START + Span::from_secs(1), address(1), true));
    }

    #[test]
    fn strangers_share_one_budget_and_cannot_use_up_those_of_clients() {
        let mut answers = Answers::default();
        let forged = (1000..200_000).filter(|n| answers.may(START, address(*n), false)).count();
        assert_eq!(forged as u32, OF_STRANGERS);
        // The 5,000 answers to strangers are spread over 4,096 slots: each slot has lost only a
        // few.
        assert!(answered(&mut answers, 1, 10_000, true) > OF_ONE - 50);
        assert!(!answers.may(START, address(300_000), false));
    }
}
