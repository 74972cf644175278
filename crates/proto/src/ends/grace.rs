//! How long a datagram that others have overtaken may still come.

use crate::time::Span;

/// Hosts and cards reorder by this much on the shortest path.
pub(crate) const SHORTEST_GRACE: Span = Span::from_millis(1);

/// max(RTT/4, 1 ms): what is missing for longer counts as lost.
pub(crate) fn grace(rtt: Span) -> Span {
    (rtt / 4).max(SHORTEST_GRACE)
}
