//! How long an overtaken datagram may still arrive.

use crate::time::Span;

/// Reordering by hosts and cards on the shortest path.
pub(crate) const SHORTEST_GRACE: Span = Span::from_millis(1);

/// max(RTT/4, 1 ms): a block missing for longer counts as lost.
pub(crate) fn grace(rtt: Span) -> Span {
    (rtt / 4).max(SHORTEST_GRACE)
}
