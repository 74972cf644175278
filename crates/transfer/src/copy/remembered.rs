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
/// Round trips after which a copy has found the path's rate. A shorter copy ends before that, so
/// its rate does not refute a higher remembered rate.
const LONG: u64 = 20;
/// If the loss exceeds the remembered loss by more than this, the rate was too high. A short copy
/// shows this too.
const EXCESS: f64 = 0.02;
/// A copy that sent fewer datagrams than this stores no rate.
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
    /// The UDP payload of a full datagram, and the bytes of the object in it. `None` if these sizes
    /// are useless for a first flight (data that leave before the session is open).
    size: Option<(u16, u32)>,
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
        let remembered = remembered.filter(|path| path.fits(rtt));
        UsedPath { peer, receives, rtt, remembered, size: None }
    }

    /// Sets the UDP payload of a full datagram, and the bytes of the object in it.
    pub(super) fn with_size(self, size: Option<(u16, u32)>) -> UsedPath {
        UsedPath { size, ..self }
    }

    /// Returns the path's properties as measured by a copy that ended with `summary`; `None` if the
    /// copy was too short or reports no rate.
    fn found(&self, summary: &Summary, takes_flight: bool) -> Option<Found> {
        let sent = summary.receiver.received.saturating_add(summary.path_lost);
        if sent < FEWEST || summary.rate == Rate::ZERO {
            return None;
        }
        // The current rate may exceed the path's rate, because the search probes above it.
        let rate = summary.found.map_or(summary.rate, |found| found.rate);
        let measured = (summary.rtt > Span::ZERO).then_some(summary.rtt);
        // The session's first measurement may contain a pause of either host, so the shorter time
        // counts.
        let rtt = measured.map_or(self.rtt, |measured| self.rtt.min(measured));
        let loss = summary.path_lost as f64 / sent as f64;
        let is_long = summary.elapsed >= rtt * LONG;
        let known_loss = self.remembered.map_or(0.0, |path| path.loss.get());
        let is_lossy = loss > known_loss + EXCESS;
        // Perhaps the server dropped the first flight. So this loss says nothing about the path,
        // and the next copy does without a first flight.
        let is_dropped = summary.first_flight && is_lossy;
        // Smaller blocks mean that datagrams of this size did not pass.
        let size = self.size.filter(|(_, block)| summary.payload_bytes == *block);
        let may_fly = takes_flight && !is_dropped && !self.receives;
        Some(Found {
            peer: self.peer,
            receives: self.receives,
            // The other end of a pull reports its own sending rate, which may be false. So the
            // goodput that this host measured limits the rate.
            rate: rate.min(summary.goodput.scale(MOST_BELIEVED)),
            rtt,
            loss: if is_dropped { known_loss } else { loss },
            is_evidence: summary.bound_by == BoundBy::Path && (is_long || is_lossy) && !is_dropped,
            datagram: size.map(|(datagram, _)| datagram).filter(|_| may_fly),
        })
    }
}

impl Attempt<'_> {
    /// Stores the path's properties for the next copy. Returns `summary` with the rate that an
    /// earlier copy found, if any.
    pub(super) fn remember(&self, mut summary: Summary) -> Summary {
        let Some(path) = self.path.get() else { return summary };
        summary.remembered = path.remembered.map(|path| path.rate);
        summary.first_flight = self.first_flight.get();
        let memory = self.options.path_memory.as_ref();
        // With a rate limit, the found rate may be the limit instead of the path's rate.
        let memory = memory.filter(|_| self.options.rate_limit.is_none());
        // The plan says whether the server takes first flights, but the outcome may overtake the
        // plan. A server that took this first flight takes the next one too.
        let takes_flight = self.hooks.state.borrow().takes_flight;
        let takes_flight = takes_flight.unwrap_or(summary.first_flight);
        if let (Some(memory), Some(found)) = (memory, path.found(&summary, takes_flight))
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

    use longhaul_proto::law;
    use longhaul_proto::units::LossRatio;

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
        let path = UsedPath { peer, receives: true, rtt, remembered: None, size: None };
        path.found(&summary, false)
    }

    #[test]
    fn a_copy_of_a_thousand_datagrams_is_the_shortest_that_is_remembered() {
        let long = found(|_| {}).expect("it says something");
        assert_eq!((long.rate, long.loss), (Rate::from_mbps(400), 0.01));
        assert!(found(|summary| summary.path_lost = 9).is_none());
        assert!(found(|summary| summary.rate = Rate::ZERO).is_none());
    }

    #[test]
    fn the_rate_that_was_found_is_stored_instead_of_a_probe_above_it() {
        let rate = Rate::from_mbps(300);
        let probing =
            found(|summary| summary.found = Some(law::Found { rate, ..law::Found::default() }));
        assert_eq!(probing.map(|found| found.rate), Some(rate));
    }

    #[test]
    fn full_datagrams_that_passed_are_stored_if_the_server_takes_a_first_flight() {
        let size = |receives, takes_flight, payload_bytes| {
            let mut summary =
                Summary { payload_bytes, rate: Rate::from_mbps(1), ..Summary::default() };
            summary.receiver.received = 1_000;
            let (peer, rtt) = (Ipv4Addr::new(192, 0, 2, 7).into(), Span::from_millis(80));
            let path = UsedPath::find(None, peer, receives, rtt).with_size(Some((1_452, 1_420)));
            path.found(&summary, takes_flight).expect("it is long enough").datagram
        };
        assert_eq!(size(false, true, 1_420), Some(1_452));
        assert_eq!(size(false, false, 1_420), None, "an older server");
        assert_eq!(size(false, true, 1_200), None, "larger datagrams did not pass");
        assert_eq!(size(true, true, 1_420), None, "a pull has no first flight");
    }

    #[test]
    fn after_a_first_flight_with_much_loss_the_next_copy_has_none_and_the_loss_is_not_stored() {
        let (peer, rtt) = (Ipv4Addr::new(192, 0, 2, 7).into(), Span::from_millis(80));
        let (rate, loss) = (Rate::from_mbps(1), LossRatio::of(1, 100));
        let remembered = Some(Remembered { rate, rtt, loss });
        let path = UsedPath { remembered, ..UsedPath::find(None, peer, false, rtt) };
        let after = |path_lost, first_flight| {
            let bound_by = BoundBy::Path;
            let mut summary = Summary { path_lost, first_flight, bound_by, ..Summary::default() };
            (summary.rate, summary.payload_bytes) = (rate, 1_420);
            summary.receiver.received = 10_000 - path_lost;
            let found = path.with_size(Some((1_452, 1_420))).found(&summary, true);
            let found = found.expect("it is long enough");
            (found.datagram, found.loss, found.is_evidence)
        };
        assert_eq!(after(300, true), (Some(1_452), 0.03, false));
        assert_eq!(after(301, true), (None, 0.01, false));
        assert_eq!(after(301, false), (Some(1_452), 0.0301, true));
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
    fn only_a_long_or_lossy_copy_that_the_path_limited_refutes_a_higher_rate() {
        let is_evidence = |set: fn(&mut Summary)| {
            let long = |summary: &mut Summary| {
                summary.elapsed = Span::from_millis(80 * LONG);
                set(summary);
            };
            found(long).expect("it says something").is_evidence
        };
        assert!(is_evidence(|_| {}));
        assert!(!is_evidence(|summary| summary.bound_by = BoundBy::SenderCpu));
        // A short copy refutes a higher rate only if it has lost much.
        assert!(!is_evidence(|summary| summary.elapsed = Span::from_millis(80 * LONG - 1)));
        assert!(is_evidence(|summary| {
            summary.elapsed = Span::from_millis(80);
            summary.path_lost = 21;
        }));
    }
}
