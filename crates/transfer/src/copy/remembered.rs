//! The properties of a path that a copy takes from an earlier copy, and those that it stores for
//! the next copy.

use std::net::IpAddr;

use longhaul_proto::remembered::Remembered;
use longhaul_proto::time::Span;
use longhaul_proto::units::Rate;

use super::attempt::Attempt;
use crate::path_memory::{Found, PathMemory};
use crate::progress::Notice;
use crate::summary::{BoundBy, Summary};

/// A reported rate is believed up to this multiple of the goodput. The multiple is high because a
/// short copy mostly waits, so its goodput is far below its rate.
const MOST_BELIEVED: f64 = 20.0;
/// Minimum number of datagrams of a copy whose rate is stored.
const FEWEST: u64 = 1000;

#[derive(Clone, Copy, Debug)]
pub(super) struct UsedPath {
    peer: IpAddr,
    /// Whether the data come to this host.
    receives: bool,
    /// The round-trip time before the copy sent its data.
    rtt: Span,
    /// The rate, round-trip time and loss that an earlier copy found.
    pub(super) remembered: Option<Remembered>,
}

impl UsedPath {
    /// Returns the path to `peer` (if `receives`, from `peer`), with the path's entry in `memory`
    /// if the entry fits the round-trip time `rtt`.
    pub(super) fn find(
        memory: Option<&PathMemory>,
        peer: IpAddr,
        receives: bool,
        rtt: Span,
    ) -> UsedPath {
        let remembered = memory.and_then(|memory| memory.find(peer, receives));
        UsedPath { peer, receives, rtt, remembered: remembered.filter(|path| path.fits(rtt)) }
    }

    /// Returns the path's properties as measured by a copy that ended with `summary`; `None` if the
    /// copy was too short or reports no rate.
    fn found(&self, summary: &Summary) -> Option<Found> {
        let sent = summary.receiver.received.saturating_add(summary.path_lost);
        if sent < FEWEST || summary.rate == Rate::ZERO {
            return None;
        }
        let measured = (summary.rtt > Span::ZERO).then_some(summary.rtt);
        Some(Found {
            peer: self.peer,
            receives: self.receives,
            // The other end of a pull reports its own sending rate, which may be false. So the
            // goodput that this host measured limits the rate.
            rate: summary.rate.min(summary.goodput.scale(MOST_BELIEVED)),
            // The session's first measurement may contain a pause of either host, so the shorter
            // time counts.
            rtt: measured.map_or(self.rtt, |measured| self.rtt.min(measured)),
            loss: summary.path_lost as f64 / sent as f64,
            is_bound_by_path: summary.bound_by == BoundBy::Path,
        })
    }
}

impl Attempt<'_> {
    /// Stores the path's properties for the next copy. Returns `summary` with the rate that an
    /// earlier copy found, if any.
    pub(super) fn remember(&self, mut summary: Summary) -> Summary {
        let Some(path) = self.path.get() else { return summary };
        summary.remembered = path.remembered.map(|path| path.rate);
        let memory = self.options.path_memory.as_ref();
        // With a rate limit, the found rate may be the limit instead of the path's rate.
        let memory = memory.filter(|_| self.options.rate_limit.is_none());
        if let (Some(memory), Some(found)) = (memory, path.found(&summary))
            && let Err(error) = memory.note(found)
        {
            self.hooks.observer.notice(Notice::Warning(error.to_string()));
        }
        summary
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn found(set: impl FnOnce(&mut Summary)) -> Option<Found> {
        let mut summary = Summary {
            path_lost: 10,
            rate: Rate::from_mbps(400),
            goodput: Rate::from_mbps(100),
            bound_by: BoundBy::Path,
            ..Summary::default()
        };
        summary.receiver.received = 990;
        set(&mut summary);
        let peer = Ipv4Addr::new(192, 0, 2, 7).into();
        let rtt = Span::from_millis(80);
        let path = UsedPath { peer, receives: true, rtt, remembered: None };
        path.found(&summary)
    }

    #[test]
    fn a_copy_of_a_thousand_datagrams_is_the_shortest_that_is_remembered() {
        let long = found(|_| {}).expect("it says something");
        assert_eq!((long.rate, long.loss), (Rate::from_mbps(400), 0.01));
        assert!(long.is_bound_by_path);
        assert!(found(|summary| summary.path_lost = 9).is_none());
        assert!(found(|summary| summary.rate = Rate::ZERO).is_none());
    }

    #[test]
    fn a_rate_is_believed_up_to_twenty_times_the_goodput() {
        let rate = |goodput| found(|summary| summary.goodput = goodput).map(|found| found.rate);
        assert_eq!(rate(Rate::from_mbps(20)), Some(Rate::from_mbps(400)));
        assert_eq!(rate(Rate::from_mbps(19)), Some(Rate::from_mbps(380)));
    }

    #[test]
    fn the_shorter_of_the_two_measured_round_trip_times_is_stored() {
        let rtt = |millis| {
            found(|summary| summary.rtt = Span::from_millis(millis)).map(|found| found.rtt)
        };
        assert_eq!(rtt(0), Some(Span::from_millis(80)));
        assert_eq!(rtt(70), Some(Span::from_millis(70)));
        assert_eq!(rtt(90), Some(Span::from_millis(80)));
    }

    #[test]
    fn a_rate_that_a_cpu_limits_is_not_bound_by_the_path() {
        let found = found(|summary| summary.bound_by = BoundBy::SenderCpu);
        assert!(!found.expect("it says something").is_bound_by_path);
    }
}
