//! How long to wait for a datagram after later datagrams have overtaken it.

use crate::time::Span;

/// Minimum grace: hosts and network cards reorder datagrams even on the shortest path.
pub(crate) const SHORTEST_GRACE: Span = Span::from_millis(1);

/// max(RTT/4, 1 ms): a block missing for longer counts as lost.
pub(crate) fn grace(rtt: Span) -> Span {
    (rtt / 4).max(SHORTEST_GRACE)
}
