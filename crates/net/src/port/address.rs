//! The addresses to which data may be sent.
//!
//! Data go only to an address that is known to want them. That is the address that this end
//! contacted, or the control path's IP address at the port from which the first *sealed* (encrypted
//! and authenticated) datagram came. Any other source, such as a peer that has moved, must first
//! echo a random challenge. Before the echo, the source gets at most three times the bytes that it
//! sent (RFC 9000, section 8).

use std::net::{IpAddr, SocketAddr};

use longhaul_proto::time::{Span, Time};

use crate::sealing::seal::SEALED_OVERHEAD;
use crate::socket::Path;
use crate::zone;

/// A random number, sent to an unvalidated address. Only a receiver at that address can echo it.
pub type Challenge = [u8; 16];

/// Bytes of the datagram that carries a challenge.
pub const CHALLENGE_COST: usize = SEALED_OVERHEAD + size_of::<Challenge>();

/// Interval between repeats of a challenge.
const REPEAT: Span = Span::from_millis(250);
/// Age at which a new challenge replaces an unanswered one. Also the maximum of
/// [`AddressRule::hold`].
const PATIENCE: Span = Span::from_secs(10);
/// Maximum bytes sent to an unvalidated address for each byte received from it.
const AMPLIFICATION: u64 = 3;

/// What to do after a sealed datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Nothing: the datagram came from the current address, or gives no reason to act.
    Nothing,
    /// Data may be sent to the datagram's source from now on.
    Adopted,
    /// Send this challenge to the datagram's source, sealed.
    Send(Challenge),
}

/// The address rule of one flow, without clock, socket or randomness.
#[derive(Debug)]
pub struct AddressRule {
    /// The control path's address when the flow began.
    validated: IpAddr,
    current: Option<Path>,
    pending: Option<Pending>,
    /// Minimum time that an address stays pending before another address replaces it.
    hold: Span,
}

#[derive(Debug)]
struct Pending {
    path: Path,
    challenge: Challenge,
    since: Time,
    /// When the challenge was last sent.
    said: Time,
    /// Bytes received from the address.
    came: u64,
    /// Bytes of challenges sent to the address.
    went: u64,
}

impl AddressRule {
    /// Creates the rule for a peer whose data address is unknown. `validated` is the control path's
    /// address.
    pub fn waiting(validated: IpAddr) -> AddressRule {
        AddressRule {
            validated: validated.to_canonical(),
            current: None,
            pending: None,
            hold: REPEAT,
        }
    }

    /// Creates the rule for a peer that this end contacted at `address`, which has the control
    /// path's IP address.
    pub fn contacted(address: SocketAddr) -> AddressRule {
        let address = zone::canonical(address);
        let current = Some(Path::from(address));
        AddressRule { validated: address.ip(), current, pending: None, hold: REPEAT }
    }

    /// Returns the address for data, if known.
    pub fn destination(&self) -> Option<Path> {
        self.current
    }

    /// Handles a sealed datagram of `len` bytes from `path` that is authentic and no replay.
    /// `random` makes a fresh challenge if one is needed; the challenge takes a datagram of `cost`
    /// bytes.
    pub fn on_genuine(
        &mut self,
        now: Time,
        path: Path,
        len: usize,
        cost: usize,
        random: impl FnOnce() -> Challenge,
    ) -> Advice {
        match self.current {
            Some(current) if current.remote == path.remote => {
                // The local address may change with a route.
                self.current = Some(path);
                return Advice::Nothing;
            }
            None if path.remote.ip() == self.validated => {
                self.adopt(path);
                return Advice::Adopted;
            }
            _ => {}
        }
        let stale = |pending: &Pending| now.since(pending.since) > PATIENCE;
        if self.pending.as_ref().is_none_or(|p| p.path.remote != path.remote || stale(p)) {
            // The newest unvalidated address becomes the pending one, so an old path that still
            // delivers cannot delay a move. But each address stays pending for at least `hold`,
            // which doubles at each replacement. So an echo finally arrives before another address
            // takes over.
            if let Some(pending) = &self.pending {
                if now.since(pending.since) < self.hold {
                    return Advice::Nothing;
                }
                self.hold = (self.hold * 2).min(PATIENCE);
            }
            let (challenge, said) = (random(), Time::ZERO);
            self.pending = Some(Pending { path, challenge, since: now, said, came: 0, went: 0 });
        }
        self.pending.as_mut().map_or(Advice::Nothing, |pending| {
            pending.came += len as u64;
            pending.say(now, cost)
        })
    }

    /// Handles a sealed echo from `path`. Returns whether data go to `path` from now on.
    pub fn on_echo(&mut self, path: Path, echo: &Challenge) -> bool {
        let right = self.pending.as_ref().is_some_and(|pending| {
            pending.path.remote == path.remote && pending.challenge == *echo
        });
        if right {
            self.adopt(path);
        }
        right
    }

    fn adopt(&mut self, path: Path) {
        self.current = Some(path);
        self.pending = None;
        self.hold = REPEAT;
    }
}

impl Pending {
    fn say(&mut self, now: Time, cost: usize) -> Advice {
        let cost = cost as u64;
        let early = self.went > 0 && now.since(self.said) < REPEAT;
        if early || self.went + cost > AMPLIFICATION * self.came {
            return Advice::Nothing;
        }
        self.said = now;
        self.went += cost;
        Advice::Send(self.challenge)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Time = Time::from_nanos(5_000_000_000);
    const COST: usize = 48;

    fn path(address: &str) -> Path {
        Path::from(address.parse::<SocketAddr>().unwrap())
    }

    fn genuine(rule: &mut AddressRule, now: Time, from: &str, random: u8) -> Advice {
        rule.on_genuine(now, path(from), 100, COST, || [random; 16])
    }

    #[test]
    fn data_go_to_the_control_paths_address_at_the_port_of_its_first_sealed_datagram() {
        let mut rule = AddressRule::waiting("192.0.2.1".parse().unwrap());
        assert_eq!(rule.destination(), None);
        assert_eq!(genuine(&mut rule, NOW, "192.0.2.1:5000", 1), Advice::Adopted);
        assert_eq!(rule.destination(), Some(path("192.0.2.1:5000")));
        assert_eq!(genuine(&mut rule, NOW, "192.0.2.1:5000", 1), Advice::Nothing);
    }

    #[test]
    fn another_address_is_used_only_after_its_echo() {
        let mut rule = AddressRule::waiting("192.0.2.1".parse().unwrap());
        assert_eq!(genuine(&mut rule, NOW, "192.0.2.2:5000", 1), Advice::Send([1; 16]));
        assert_eq!(rule.destination(), None);
        assert!(!rule.on_echo(path("192.0.2.2:5000"), &[2; 16]), "a wrong echo");
        assert!(!rule.on_echo(path("192.0.2.3:5000"), &[1; 16]), "from elsewhere");
        assert!(rule.on_echo(path("192.0.2.2:5000"), &[1; 16]));
        assert_eq!(rule.destination(), Some(path("192.0.2.2:5000")));
        assert!(!rule.on_echo(path("192.0.2.2:5000"), &[1; 16]), "an echo counts once");
    }

    #[test]
    fn a_new_port_is_a_new_address() {
        let mut rule = AddressRule::contacted("192.0.2.1:7718".parse().unwrap());
        assert_eq!(genuine(&mut rule, NOW, "192.0.2.1:9", 1), Advice::Send([1; 16]));
        assert_eq!(rule.destination(), Some(path("192.0.2.1:7718")));
    }

    #[test]
    fn a_challenge_is_repeated_after_250_ms_and_replaced_after_10_s_or_for_a_new_address() {
        let mut rule = AddressRule::contacted("192.0.2.1:7718".parse().unwrap());
        assert_eq!(genuine(&mut rule, NOW, "192.0.2.9:1", 1), Advice::Send([1; 16]));
        assert_eq!(genuine(&mut rule, NOW, "192.0.2.9:1", 2), Advice::Nothing);
        assert_eq!(genuine(&mut rule, NOW + REPEAT, "192.0.2.9:1", 3), Advice::Send([1; 16]));
        assert_eq!(genuine(&mut rule, NOW + REPEAT, "192.0.2.8:1", 4), Advice::Send([4; 16]));
        let late = NOW + REPEAT + PATIENCE + Span::from_nanos(1);
        assert_eq!(genuine(&mut rule, late, "192.0.2.8:1", 5), Advice::Send([5; 16]));
    }

    #[test]
    fn one_of_two_alternating_addresses_is_validated_on_a_path_with_a_long_round_trip() {
        let mut rule = AddressRule::contacted("192.0.2.1:7718".parse().unwrap());
        let rtt = Span::from_millis(700);
        let mut echoes = std::collections::VecDeque::new();
        let found = (0u64..100).find(|step| {
            let now = NOW + Span::from_millis(50) * *step;
            let from = ["192.0.2.8:1", "192.0.2.9:1"][*step as usize % 2];
            if let Advice::Send(challenge) = genuine(&mut rule, now, from, *step as u8) {
                echoes.push_back((now + rtt, from, challenge));
            }
            echoes
                .pop_front_if(|(due, ..)| *due <= now)
                .is_some_and(|(_, from, challenge)| rule.on_echo(path(from), &challenge))
        });
        assert!(found.is_some());
    }

    proptest! {
        #[test]
        fn an_unvalidated_address_gets_at_most_three_times_its_bytes(
            steps in proptest::collection::vec((0u64..400, 1usize..200), 1..200),
        ) {
            let mut rule = AddressRule::contacted("192.0.2.1:7718".parse().unwrap());
            let (mut now, mut came, mut went) = (NOW, 0, 0);
            for (wait, len) in steps {
                now += Span::from_millis(wait);
                came += len;
                let advice = rule.on_genuine(now, path("192.0.2.9:1"), len, COST, || [1; 16]);
                if matches!(advice, Advice::Send(_)) {
                    went += COST;
                }
                prop_assert!(went <= 3 * came, "{} bytes for {}", went, came);
                prop_assert_eq!(rule.destination(), Some(path("192.0.2.1:7718")));
            }
        }
    }
}
