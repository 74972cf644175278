//! The summary of a finished copy, and its bottleneck. The outcome, the receiving end's last
//! message, has the receiver's counts and names the files that failed.

use longhaul_net::clock;
use longhaul_proto::accounting::{ReceiverAccounting, SenderAccounting};
use longhaul_proto::endpoint::{Origin, ReceiveCapacity};
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::{Bytes, Rate};

use super::attempt::{Attempt, Finished};
use super::hooks::{Failed, State};
use crate::control::Outcome;
use crate::counters::bound::{Ends, is_small};
use crate::counters::{Counters, Times, process_time};
use crate::error::{Error, ErrorKind};
use crate::options::{CopyOptions, Receive};
use crate::roles::Whence;
use crate::summary::{BoundBy, Summary, hex};
use longhaul_files::PARTIAL;
use longhaul_files::place::{as_path, show};

/// If a copy takes less time than this after its first data, its bottleneck is not reported: the
/// times are not accurate enough.
const TOO_SHORT: Span = Span::from_millis(200);

/// Advice if the source cannot read the only file of a copy.
pub(super) const CHECK_SOURCE: &str =
    "check that the source still exists and can be read, then run the same command again";

/// Returns the summary. Fails if the only file of the copy failed; failed files of a tree are only
/// counted.
pub(super) fn summary(
    options: &CopyOptions,
    attempt: &Attempt<'_>,
    finished: Finished,
) -> Result<Summary, Error> {
    let Counters { sender, receiver, written, .. } = final_counters(attempt, &finished);
    let elapsed = clock::now().since(attempt.started);
    let (total_bytes, total_files) = attempt.hooks.board.totals();
    let state = attempt.hooks.state.borrow();
    if let (true, Some((path, failed))) = (state.single, state.failed.first_key_value()) {
        return Err(single(path, failed, written.bytes));
    }
    let outcome = &finished.outcome;
    let failed_files = (state.failed.len() as u64).max(outcome.failed_count);
    let (resumed_bytes, skipped_files) = was_there(&state, outcome);
    let unread_files = if options.checksum { 0 } else { skipped_files };
    let copied_bytes =
        total_bytes.saturating_sub(resumed_bytes.saturating_add(outcome.failed_bytes));
    let fake = options.receive == Receive::Fake;
    let moved = written.bytes.saturating_sub(resumed_bytes).min(copied_bytes);
    let first = attempt.hooks.board.first_datagram().map(Time::from_nanos);
    let setup = first.map_or(elapsed, |first| first.since(attempt.started));
    let is_measurable = elapsed.saturating_sub(setup) >= TOO_SHORT && (moved > 0 || fake);
    let bound_by = is_measurable.then(|| find_bound(attempt, elapsed, moved, &finished));
    let last_block = last_block(attempt, &finished, sender.rtt);
    let blocks = written.due.map_or(sender.first, |due| due.min(sender.first));
    let (accounting, found) = (SenderAccounting::from(&sender), sender.found);
    Ok(Summary {
        bytes: total_bytes,
        files: total_files,
        copied_files: standing(outcome, total_files).saturating_sub(skipped_files),
        copied_bytes,
        links: outcome.links,
        folders: outcome.folders,
        deleted: outcome.deleted,
        elapsed,
        setup,
        last_block,
        goodput: Bytes::new(moved) / elapsed,
        protocol: finished.protocol,
        rate: sender.rate,
        found: (found.rate > Rate::ZERO).then_some(found),
        rtt: sender.rtt,
        // The last pass may have used smaller blocks, because larger ones did not fit the path.
        payload_bytes: attempt.hooks.board.block().unwrap_or(finished.block),
        blocks,
        // Up to the newest arrival (`highest`), so datagrams in flight do not count as lost.
        path_lost: receiver.highest.saturating_sub(receiver.received),
        socket_lost: receiver.socket_lost,
        memory_lost: receiver.memory_lost,
        early_lost: receiver.early_lost,
        refused_datagrams: receiver.refused,
        sender: accounting,
        receiver: ReceiverAccounting::from(&receiver),
        waste: accounting.waste(blocks),
        segments: attempt.hooks.board.segments(),
        bound_by: bound_by.unwrap_or(BoundBy::Nothing),
        resumed_bytes,
        skipped_files,
        failed_files,
        cipher: finished.cipher,
        blake3: hex(&finished.outcome.digest),
        unread_files,
        verified: !fake && !options.dry_run && failed_files == 0 && unread_files == 0,
        cpu: process_time(),
        far_cpu: attempt.hooks.sends.then(|| receiving_cpu(&attempt.hooks.board.theirs().times)),
        receives: attempt.capacity(),
        ..Summary::default()
    })
}

/// Returns the number of complete files at the destination. Files that the last attempt skipped are
/// included, because an earlier attempt of this copy may have copied them.
fn standing(outcome: &Outcome, of: u64) -> u64 {
    outcome.files.saturating_add(outcome.skipped).min(of)
}

/// Returns the bytes and files that existed before this run.
fn was_there(state: &State, outcome: &Outcome) -> (u64, u64) {
    match state.resumed {
        // The outcome of a later attempt counts bytes that the earlier attempts copied.
        Some(resumed) if state.attempts > 1 => (resumed, state.skipped),
        // The plan and the outcome both give the resumed bytes, and the outcome may arrive first.
        resumed => (resumed.unwrap_or(0).max(outcome.resumed_bytes), outcome.skipped),
    }
}

/// Returns the time from the start to the arrival of the last block, by this host's clock.
fn last_block(attempt: &Attempt<'_>, finished: &Finished, rtt: Span) -> Option<Span> {
    let after = Span::from_nanos(finished.outcome.since_last_nanos?);
    // The delay of the outcome on its way to this host.
    let delay = if attempt.hooks.sends { rtt / 2 } else { Span::ZERO };
    let until_outcome = finished.outcome_at.since(attempt.started);
    Some(until_outcome.saturating_sub(after).saturating_sub(delay))
}

fn single(path: &[u8], failed: &Failed, written: u64) -> Error {
    let kind = if failed.here { ErrorKind::LocalFile } else { ErrorKind::RemoteFile };
    let what = format!("cannot copy {}: {}", show(path), failed.reason);
    let again = match failed.whence {
        // The source may be gone for good.
        Whence::Unlisted | Whence::Source => CHECK_SOURCE,
        Whence::Changed | Whence::Destination => "run the same command again",
    };
    let error = Error::new(kind, what).at(as_path(path));
    match written {
        0 => error.advise(again),
        written => error.advise(format!(
            "{again}; up to {} that arrived are kept in a hidden file next to the destination, \
             .NAME{PARTIAL}",
            Bytes::new(written)
        )),
    }
}

fn final_counters(attempt: &Attempt<'_>, finished: &Finished) -> Counters {
    if let Some(status) = &finished.outcome.status
        && attempt.hooks.sends
    {
        attempt.hooks.board.set_theirs(status);
    }
    attempt.hooks.counters()
}

/// From this share of a receiver's allowed rate, that rate counts as the limit of a copy.
const NEARLY_ALL: f64 = 0.75;

/// Judges the thread times of the attempts since the last change of carrier (UDP or streams).
/// Returns [`BoundBy::Nothing`] if these times explain less than half of the time with a
/// connection, for example because UDP was blocked at first.
fn find_bound(attempt: &Attempt<'_>, elapsed: Span, moved: u64, finished: &Finished) -> BoundBy {
    let (bytes, files) = attempt.hooks.board.totals();
    let (mut from, mut to) = attempt.hooks.ends();
    let state = attempt.hooks.state.borrow();
    let connected = state.observed.join_all(&mut from, &mut to, elapsed);
    // A path may be slower than the rate that the user allows to the receiver.
    let is_limited = |of: ReceiveCapacity| {
        let is_given = matches!(of.origin, Origin::Given | Origin::Limit);
        let goodput = Bytes::new(moved) / elapsed;
        is_given && goodput.as_bps() as f64 > of.rate.as_bps() as f64 * NEARLY_ALL
    };
    let fixed_rate = finished.fixed_rate || attempt.capacity().is_some_and(is_limited);
    let ends = Ends { from: &from, to: &to, fixed_rate, small: is_small(bytes, files) };
    ends.bound(connected)
}

/// Returns the CPU time of the receiving end's threads, by its own report.
fn receiving_cpu(to: &Times) -> Span {
    to.busy + to.disk_cpu
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_for_an_unreadable_source_is_to_check_it_before_the_next_run() {
        let advice = |whence, written| {
            let failed = Failed { reason: "x".to_owned(), here: true, whence };
            single(b"a", &failed, written).advice.unwrap()
        };
        assert_eq!(advice(Whence::Source, 0), CHECK_SOURCE);
        assert!(advice(Whence::Source, 5).starts_with(&format!("{CHECK_SOURCE}; up to 5 B")));
        for whence in [Whence::Changed, Whence::Destination] {
            assert_eq!(advice(whence, 0), "run the same command again");
        }
    }
}
