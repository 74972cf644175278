//! The bottleneck of a copy whose chunks went over streams.
//!
//! TCP does not report why it accepts no more data. So the path counts as the bottleneck only in
//! one case: the sender had to wait for its streams, and no disk, CPU or memory of either end
//! caused the wait.

use longhaul_proto::time::Span;

use super::Times;
use crate::summary::BoundBy;

/// Returns the bottleneck. `from` has the times of the sender's two threads, which read chunks and
/// carry the streams. `to` has the times of the receiver's two threads, which carry the streams and
/// write. `capped`: the user has set or limited the rate. `small`: the copy has many small files.
pub(super) fn bound(from: &Times, to: &Times, streams: u32, capped: bool, small: bool) -> BoundBy {
    let whole = from.paced + from.stream + from.busy;
    let half = |span: Span| whole > Span::ZERO && span >= whole / 2;
    let most = |span: Span| whole > Span::ZERO && span >= whole / 10 * 8;
    // `room` adds up the waits of all streams.
    let for_room = to.room / u64::from(streams.max(1));
    let has_waited = for_room > Span::ZERO && for_room >= whole / 5;
    if capped && half(from.paced) {
        BoundBy::RateOption
    } else if most(to.disk) || (has_waited && half(to.disk)) {
        destination(to, small)
    } else if half(for_room) {
        BoundBy::PeerLimit
    } else if half(from.disk) {
        let waits = from.disk_cpu * 2 < from.disk;
        if waits { BoundBy::SourceDisk } else { BoundBy::SenderCpu }
    } else if most(to.carrier) {
        BoundBy::ReceiverCpu
    } else if most(from.carrier) {
        BoundBy::SenderCpu
    } else if half(from.stream) {
        BoundBy::Path
    } else {
        BoundBy::Nothing
    }
}

/// Returns what keeps the writer at `to` busy: small files if `small` is set, otherwise hashing or
/// the disk.
pub(super) fn destination(to: &Times, small: bool) -> BoundBy {
    match to.disk_cpu * 2 > to.disk {
        _ if small => BoundBy::SmallFiles,
        true => BoundBy::ReceiverCpu,
        false => BoundBy::DestinationDisk,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a sender's times: waiting for its rate, waiting for the streams, and reading. The
    /// tests divide 1,000 ns among the three.
    fn from(paced: u64, stream: u64, busy: u64) -> Times {
        let [paced, stream, busy] = [paced, stream, busy].map(Span::from_nanos);
        Times { paced, stream, busy, disk: busy, ..Times::default() }
    }

    fn writes(disk: u64) -> Times {
        Times { disk: Span::from_nanos(disk), ..Times::default() }
    }

    fn of(from: &Times, to: &Times) -> BoundBy {
        bound(from, to, 8, false, false)
    }

    #[test]
    fn the_path_is_the_bottleneck_if_only_streams_were_waited_for() {
        let (waits, idle) = (from(0, 900, 100), Times::default());
        assert_eq!(of(&waits, &idle), BoundBy::Path);
        assert_eq!(of(&waits, &writes(300)), BoundBy::Path);
        assert_eq!(of(&waits, &writes(900)), BoundBy::DestinationDisk);
        assert_eq!(bound(&waits, &writes(900), 8, false, true), BoundBy::SmallFiles);
        let hashes = Times { disk_cpu: Span::from_nanos(800), ..writes(900) };
        assert_eq!(of(&waits, &hashes), BoundBy::ReceiverCpu);
        let carrier = Span::from_nanos(850);
        assert_eq!(of(&waits, &Times { carrier, ..Times::default() }), BoundBy::ReceiverCpu);
        assert_eq!(of(&Times { carrier, ..waits }, &idle), BoundBy::SenderCpu);
    }

    #[test]
    fn waits_for_memory_point_to_a_busy_destination_disk_or_else_to_the_peer_limit() {
        let waits = from(0, 900, 100);
        // `room` adds up the waits of the eight streams.
        let room = |room, disk| Times { room: Span::from_nanos(room), ..writes(disk) };
        assert_eq!(of(&waits, &room(8 * 600, 550)), BoundBy::DestinationDisk);
        assert_eq!(of(&waits, &room(8 * 600, 100)), BoundBy::PeerLimit);
        assert_eq!(of(&waits, &room(600, 550)), BoundBy::Path);
    }

    #[test]
    fn the_disk_the_cpu_or_the_rate_limit_that_takes_most_of_the_senders_time_is_the_bottleneck() {
        let idle = Times::default();
        let reads = from(0, 300, 700);
        assert_eq!(of(&reads, &idle), BoundBy::SourceDisk);
        let hashes = Times { disk_cpu: Span::from_nanos(600), ..reads };
        assert_eq!(of(&hashes, &idle), BoundBy::SenderCpu);
        let paced = from(700, 200, 100);
        assert_eq!(bound(&paced, &idle, 8, true, false), BoundBy::RateOption);
    }

    #[test]
    fn a_bottleneck_without_evidence_is_not_guessed() {
        assert_eq!(of(&Times::default(), &Times::default()), BoundBy::Nothing);
        assert_eq!(of(&from(600, 300, 100), &Times::default()), BoundBy::Nothing);
    }
}
