//! About how many flows others are: the TCP connections of this host that bring a good part.

use std::collections::BTreeMap;

use super::netlink::Connection;

/// A connection that brings less than this part of what all others bring is no flow of its own.
const PART: u64 = 20;

/// What each connection had received.
#[derive(Debug, Default)]
pub(super) struct Flows {
    before: BTreeMap<[u8; 8], u64>,
}

impl Flows {
    /// The connections are these now, and all others together brought `others` bytes since the last
    /// look: how many of them count. None where nothing is known of them: it is another kind of
    /// traffic, or passes through this host.
    pub(super) fn count(&mut self, now: &[Connection], others: u64) -> u32 {
        let least = (others / PART).max(1);
        let brought = |connection: &&Connection| {
            let before = self.before.get(&connection.cookie);
            // A connection that was not there has brought all that it has received.
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
    fn connections_that_bring_a_twentieth_are_counted_and_idle_ones_are_not() {
        let mut flows = Flows::default();
        let first = [connection(1, 1_000_000), connection(2, 900_000), connection(3, 10)];
        assert_eq!(flows.count(&first, 2_000_000), 2);
        // The first has fallen silent, a fourth has come.
        let next = [first[0], connection(2, 1_000_000), connection(3, 20), connection(4, 90_000)];
        assert_eq!(flows.count(&next, 200_000), 2);
        assert_eq!(flows.count(&next, 200_000), 0);
        assert_eq!(flows.count(&[], 0), 0);
    }
}
