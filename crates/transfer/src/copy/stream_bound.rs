//! What bounded a copy whose chunks went by streams.
//!
//! TCP tells nobody why it takes no more. So the path is named only where the sender had to wait
//! for its streams, and neither end's disk, CPU or memory was what made it wait.

use crate::control::Status;
use crate::summary::BoundBy;

/// Where the time went: of the thread that feeds the streams, of the other end's writer, and of the
/// two threads that carry the streams.
pub(super) fn bound(from: &Status, to: &Status, capped: bool, small: bool) -> BoundBy {
    let whole = from.paced_nanos + from.granted_nanos + from.busy_nanos;
    let half = |nanos: u64| whole > 0 && nanos >= whole / 2;
    let most = |nanos: u64| whole > 0 && nanos >= whole / 10 * 8;
    // Each stream waits by itself.
    let for_room = to.granted_nanos / u64::from(from.streams.max(1));
    let has_waited = for_room > 0 && for_room >= whole / 5;
    if capped && half(from.paced_nanos) {
        BoundBy::RateOption
    } else if most(to.disk_nanos) || (has_waited && half(to.disk_nanos)) {
        destination(to, small)
    } else if half(for_room) {
        BoundBy::PeerLimit
    } else if half(from.disk_nanos) {
        let waits = 2 * from.disk_cpu_nanos < from.disk_nanos;
        if waits { BoundBy::SourceDisk } else { BoundBy::SenderCpu }
    } else if most(to.carrier_nanos) {
        BoundBy::ReceiverCpu
    } else if most(from.carrier_nanos) {
        BoundBy::SenderCpu
    } else if half(from.granted_nanos) {
        BoundBy::Path
    } else {
        BoundBy::Nothing
    }
}

/// What a busy writer at `to` is busy with: `small` files, hashing, or its disk.
pub(super) fn destination(to: &Status, small: bool) -> BoundBy {
    match 2 * to.disk_cpu_nanos > to.disk_nanos {
        _ if small => BoundBy::SmallFiles,
        true => BoundBy::ReceiverCpu,
        false => BoundBy::DestinationDisk,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sender with eight streams that waited, for its rate and for them, and read.
    fn from(paced_nanos: u64, granted_nanos: u64, busy_nanos: u64) -> Status {
        let disk_nanos = busy_nanos;
        Status {
            paced_nanos,
            granted_nanos,
            busy_nanos,
            disk_nanos,
            streams: 8,
            ..Status::default()
        }
    }

    fn of(from: &Status, to: &Status) -> BoundBy {
        bound(from, to, false, false)
    }

    #[test]
    fn the_path_is_named_where_streams_are_waited_for_and_nothing_else_explains_it() {
        let (waits, idle) = (from(0, 900, 100), Status::default());
        assert_eq!(of(&waits, &idle), BoundBy::Path);
        let writes = |disk_nanos| Status { disk_nanos, ..Status::default() };
        assert_eq!(of(&waits, &writes(300)), BoundBy::Path);
        assert_eq!(of(&waits, &writes(900)), BoundBy::DestinationDisk);
        assert_eq!(bound(&waits, &writes(900), false, true), BoundBy::SmallFiles);
        let hashes = Status { disk_cpu_nanos: 800, ..writes(900) };
        assert_eq!(of(&waits, &hashes), BoundBy::ReceiverCpu);
        let opens = Status { carrier_nanos: 850, ..Status::default() };
        assert_eq!(of(&waits, &opens), BoundBy::ReceiverCpu);
        let seals = Status { carrier_nanos: 850, ..waits };
        assert_eq!(of(&seals, &idle), BoundBy::SenderCpu);
    }

    #[test]
    fn room_that_each_stream_waits_for_is_the_disks_fault_or_the_memorys() {
        let waits = from(0, 900, 100);
        let room = |disk_nanos| Status { granted_nanos: 8 * 600, disk_nanos, ..Status::default() };
        assert_eq!(of(&waits, &room(550)), BoundBy::DestinationDisk);
        assert_eq!(of(&waits, &room(100)), BoundBy::PeerLimit);
        let little = Status { granted_nanos: 600, disk_nanos: 550, ..Status::default() };
        assert_eq!(of(&waits, &little), BoundBy::Path);
    }

    #[test]
    fn a_sender_that_reads_all_the_time_is_bound_by_its_disk_or_its_hashing() {
        let idle = Status::default();
        let reads = from(0, 300, 700);
        assert_eq!(of(&reads, &idle), BoundBy::SourceDisk);
        let hashes = Status { disk_cpu_nanos: 600, ..reads };
        assert_eq!(of(&hashes, &idle), BoundBy::SenderCpu);
        let paced = from(700, 200, 100);
        assert_eq!(bound(&paced, &idle, true, false), BoundBy::RateOption);
    }

    #[test]
    fn what_nothing_tells_is_not_guessed() {
        assert_eq!(of(&Status::default(), &Status::default()), BoundBy::Nothing);
        assert_eq!(of(&from(600, 300, 100), &Status::default()), BoundBy::Nothing);
    }
}
