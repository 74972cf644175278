//! Finds the bottleneck of a transfer from how its two ends spend their time.

use longhaul_proto::time::Span;

use super::{Counters, Times, stream_bound};
use crate::summary::BoundBy;

/// If the files of a copy have fewer bytes than this on average, the copy counts as a copy of many
/// small files.
const SMALL: u64 = 64 << 10;

pub(crate) fn is_small(bytes: u64, files: u64) -> bool {
    bytes / files.max(1) < SMALL
}

pub(crate) struct Ends<'a> {
    pub(crate) from: &'a Counters,
    pub(crate) to: &'a Counters,
    /// Whether the user has set or limited the rate.
    pub(crate) fixed_rate: bool,
    pub(crate) small: bool,
}

impl Ends<'_> {
    pub(crate) fn bound(&self, elapsed: Span) -> BoundBy {
        let Ends { from, to, fixed_rate, small } = *self;
        if !explains(&from.times, &to.times, elapsed) {
            return BoundBy::Nothing;
        }
        match from.sender.streams {
            0 if from.sender.sent == 0 => BoundBy::Nothing,
            0 => bound(&from.times, &to.times, fixed_rate, small),
            streams => stream_bound::bound(&from.times, &to.times, streams, fixed_rate, small),
        }
    }
}

/// Returns whether the threads' times cover at least half of `elapsed`. If not, the times do not
/// show the bottleneck.
fn explains(from: &Times, to: &Times, elapsed: Span) -> bool {
    let sending = from.paced + from.granted + from.stream + from.busy;
    // The sender may merely wait for reports while the receiver is busy, so the receiver's times
    // count too.
    let receiving = to.disk.max(to.busy).max(to.awake);
    sending.max(receiving) >= elapsed / 2
}

fn bound(from: &Times, to: &Times, fixed_rate: bool, small: bool) -> BoundBy {
    let work = from.busy.saturating_sub(from.disk);
    let most = from.paced.max(from.granted).max(from.disk).max(work);
    if most == Span::ZERO {
        return BoundBy::Nothing;
    }
    let destination = || stream_bound::destination(to, small);
    // The receiver's disk works in parallel with the sender, so compare it first. Its writes may
    // outlast all waits of the sender.
    if to.disk > most {
        return destination();
    }
    let whole = from.paced + from.granted + from.busy;
    let receives = to.busy.max(to.awake) > work.max(whole / 10 * 8);
    if receives && !(fixed_rate && most == from.paced) {
        return BoundBy::ReceiverCpu;
    }
    if most == from.paced {
        return if fixed_rate { BoundBy::RateOption } else { BoundBy::Path };
    }
    if most == from.granted {
        return if to.disk * 2 > from.granted { destination() } else { BoundBy::PeerLimit };
    }
    let waits = most == from.disk && from.disk_cpu * 2 < from.disk;
    if waits { BoundBy::SourceDisk } else { BoundBy::SenderCpu }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a sender's times: waiting for its rate, waiting for a grant, and working.
    fn sending(paced: u64, granted: u64, busy: u64) -> Times {
        let [paced, granted, busy] = [paced, granted, busy].map(Span::from_nanos);
        Times { paced, granted, busy, ..Times::default() }
    }

    #[test]
    fn threads_that_worked_only_briefly_explain_nothing() {
        const SECOND: u64 = 1_000_000_000;
        let elapsed = Span::from_nanos(10 * SECOND);
        let idle = Times::default();
        assert!(!explains(&sending(SECOND, SECOND, SECOND), &idle, elapsed));
        assert!(explains(&sending(2 * SECOND, 2 * SECOND, SECOND), &idle, elapsed));
        // A disk that is still writing after everything was sent.
        let writes = Times { disk: Span::from_secs(9), ..Times::default() };
        assert!(explains(&sending(SECOND, 0, 0), &writes, elapsed));
        // A receiver that falls behind makes its sender wait for reports.
        let behind = Times { awake: Span::from_secs(6), ..Times::default() };
        assert!(explains(&sending(SECOND, 0, 0), &behind, elapsed));
    }

    #[test]
    fn the_receivers_cpu_is_named_where_its_threads_have_no_time_left() {
        let of = |from: &Times, to: &Times| bound(from, to, false, false);
        let busy = Times { busy: Span::from_nanos(95), ..Times::default() };
        assert_eq!(of(&sending(60, 0, 40), &busy), BoundBy::ReceiverCpu);
        assert_eq!(of(&sending(60, 0, 40), &Times::default()), BoundBy::Path);
        assert_eq!(bound(&sending(60, 0, 40), &busy, true, false), BoundBy::RateOption);
        assert_eq!(of(&sending(3, 0, 97), &busy), BoundBy::SenderCpu);
        // A receiver that always falls behind because it gets too little CPU time.
        let (awake, cpu) = (Span::from_nanos(95), Span::from_nanos(20));
        let behind = Times { awake, busy: cpu, ..Times::default() };
        assert_eq!(of(&sending(60, 0, 40), &behind), BoundBy::ReceiverCpu);
        assert_eq!(of(&sending(0, 90, 10), &behind), BoundBy::ReceiverCpu);
        // If most of the disk time is CPU time for hashing, the disk is not the bottleneck.
        let writing = |cpu| {
            let (disk, disk_cpu) = (Span::from_nanos(90), Span::from_nanos(cpu));
            Times { disk, disk_cpu, ..Times::default() }
        };
        assert_eq!(of(&sending(10, 80, 10), &writing(80)), BoundBy::ReceiverCpu);
        assert_eq!(of(&sending(10, 80, 10), &writing(20)), BoundBy::DestinationDisk);
        assert_eq!(of(&sending(10, 80, 10), &Times::default()), BoundBy::PeerLimit);
    }
}
