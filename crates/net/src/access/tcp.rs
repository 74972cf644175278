//! The approximate number of other flows on the access link: this host's TCP connections that
//! received at least a twentieth of the traffic other than our datagrams. A copy of ours over TCP
//! counts: it competes like any other TCP connection.

use std::collections::BTreeMap;

use super::netlink::Connection;

/// A connection counts if it received at least 1/`PART` of all other traffic.
const PART: u64 = 20;

/// The total bytes that each connection of the last list had received.
#[derive(Debug, Default)]
pub(super) struct Flows {
    before: BTreeMap<[u8; 8], u64>,
}

impl Flows {
    /// Handles a new list of connections; `others` bytes of other traffic arrived since the last
    /// list. Returns how many connections count; zero if the other traffic is not TCP, or if this
    /// host only forwards it.
    pub(super) fn count(&mut self, now: &[Connection], others: u64) -> u32 {
        let least = (others / PART).max(1);
        let brought = |connection: &&Connection| {
            let before = self.before.get(&connection.cookie);
            // A new connection counts with all its bytes.
            connection.received.saturating_sub(before.copied().unwrap_or(0)) >= least
        };
        let flows = now.iter().filter(brought).count() as u32;
        self.before = now.iter().map(|each| (each.cookie, each.received)).collect();
        flows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(number: u8, received: u64) -> Connection {
        Connection { cookie: [number; 8], received }
    }

    #[test]
    fn connections_with_a_twentieth_of_the_traffic_are_counted() {
        let mut flows = Flows::default();
        let first = [connection(1, 1_000_000), connection(2, 900_000), connection(3, 10)];
        assert_eq!(flows.count(&first, 2_000_000), 2);
        // The first connection has stopped, and a fourth one has started.
        let next = [first[0], connection(2, 1_000_000), connection(3, 20), connection(4, 90_000)];
        assert_eq!(flows.count(&next, 200_000), 2);
        assert_eq!(flows.count(&next, 200_000), 0);
        assert_eq!(flows.count(&[], 0), 0);
    }
}
