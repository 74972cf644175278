//! The running transfers, and the server's totals.
//!
//! A status report only reads the counters that the transfers' threads keep anyway.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::Tell;
use super::events::{ServedClient, ServerEvent};
use super::running::Running;
use crate::counters::bound::{Ends, is_small};
use crate::counters::path_watch::QueueWatch;
use crate::counters::recent::Recent;
use crate::counters::{Counters, span};
use crate::server_status::{ServerTotals, TransferStatus};

/// The running transfers and the totals of a server. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Live {
    now: Rc<Now>,
    ended: Arc<Ended>,
}

#[derive(Default)]
struct Now {
    transfers: RefCell<BTreeMap<u64, Entry>>,
    last: Cell<u64>,
    /// Totals of the transfers that have ended, and of reads and writes of remote files.
    before: Cell<ServerTotals>,
}

/// Counts of ended requests, by result, and of clients that were turned away (`refused`). A request
/// without an error is `partial` only if it copied some files and others failed.
#[derive(Default)]
struct Ended {
    done: AtomicU64,
    partial: AtomicU64,
    failed: AtomicU64,
    refused: AtomicU64,
}

impl Ended {
    fn note(&self, event: &ServerEvent) {
        let (count, more) = match event {
            ServerEvent::Ended { error: None, moved, .. } if moved.failed == 0 => (&self.done, 1),
            ServerEvent::Ended { error: None, moved, .. } if moved.files > 0 => (&self.partial, 1),
            ServerEvent::Ended { .. } => (&self.failed, 1),
            ServerEvent::Refused { .. } => (&self.refused, 1),
            ServerEvent::RefusedMore { count } => (&self.refused, *count),
            _ => return,
        };
        count.fetch_add(more, Ordering::Relaxed);
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Mode {
    pub(super) receives: bool,
    /// Whether the client has set or limited the rate.
    pub(super) fixed_rate: bool,
}

struct Entry {
    client: ServedClient,
    mode: Mode,
    running: Running,
    since: Instant,
    recent: Recent,
    queue: QueueWatch,
    /// The last reported status. Its counts never fall, although the number of losses falls when a
    /// lost datagram arrives after all.
    reported: TransferStatus,
}

/// Keeps a transfer in the list until dropped.
pub(super) struct EntryGuard {
    live: Live,
    number: u64,
}

impl Drop for EntryGuard {
    fn drop(&mut self) {
        let entry = self.live.now.transfers.borrow_mut().remove(&self.number);
        if let Some(mut entry) = entry {
            let status = entry.status(self.number);
            let before = &self.live.now.before;
            before.set(plus(before.get(), &status));
        }
    }
}

impl Live {
    /// Wraps `report` so that it also counts requests that end, and clients that are turned away.
    pub(super) fn counting(&self, report: Tell) -> Tell {
        let ended = self.ended.clone();
        Arc::new(move |event| {
            ended.note(&event);
            report(event);
        })
    }

    pub(super) fn enter(&self, client: ServedClient, mode: Mode, running: Running) -> EntryGuard {
        let number = self.now.last.get() + 1;
        self.now.last.set(number);
        let entry = Entry {
            client,
            mode,
            running,
            since: Instant::now(),
            recent: Recent::default(),
            queue: QueueWatch::default(),
            reported: TransferStatus::default(),
        };
        self.now.transfers.borrow_mut().insert(number, entry);
        EntryGuard { live: self.clone(), number }
    }

    /// Counts bytes that a client has read from a remote file, or with `receives` has written to
    /// it.
    pub(super) fn count_bytes(&self, receives: bool, bytes: u64) {
        let moved = TransferStatus { receives, bytes, ..TransferStatus::default() };
        self.now.before.set(plus(self.now.before.get(), &moved));
    }

    pub(super) fn status(&self) -> (Vec<TransferStatus>, ServerTotals) {
        let mut transfers = self.now.transfers.borrow_mut();
        let transfers: Vec<TransferStatus> =
            transfers.iter_mut().map(|(number, entry)| entry.status(*number)).collect();
        let sum = transfers.iter().fold(self.now.before.get(), plus);
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Ended { done, partial, failed, refused } = &*self.ended;
        let (done, partial, failed) = (count(done), count(partial), count(failed));
        (transfers, ServerTotals { done, partial, failed, refused_clients: count(refused), ..sum })
    }
}

fn plus(totals: ServerTotals, status: &TransferStatus) -> ServerTotals {
    let mut sum = totals;
    let bytes = status.bytes.saturating_sub(status.resumed_bytes);
    let (all_bytes, all_files) = match status.receives {
        true => (&mut sum.received_bytes, &mut sum.received_files),
        false => (&mut sum.sent_bytes, &mut sum.sent_files),
    };
    for (sum, more) in [
        (all_bytes, bytes),
        (all_files, status.files),
        (&mut sum.sent, status.sent),
        (&mut sum.retransmitted, status.retransmitted),
        (&mut sum.received, status.received),
        (&mut sum.path_lost, status.path_lost),
        (&mut sum.socket_lost, status.socket_lost),
        (&mut sum.memory_lost, status.memory_lost),
    ] {
        *sum = sum.saturating_add(more);
    }
    sum
}

impl Entry {
    fn status(&mut self, number: u64) -> TransferStatus {
        let (now, board) = (Instant::now(), self.running.board());
        let (mine, theirs) = (board.mine(), board.theirs());
        let (total_bytes, total_files) = board.totals();
        let (from, to) = if self.mode.receives { (theirs, mine) } else { (mine, theirs) };
        let age = span(now.duration_since(self.since));
        let ends = Ends {
            from: &from,
            to: &to,
            fixed_rate: self.mode.fixed_rate,
            small: is_small(total_bytes, total_files),
        };
        let bound_by = ends.bound(age);
        let Counters { sender, receiver, written, .. } = Counters::joined(&from, &to);
        let reported = &self.reported;
        // If the server sends, the final counts come with the outcome that the client reports.
        let (moved, there) = (self.running.moved(), self.running.there());
        let whole = moved.bytes.saturating_add(there.max(reported.resumed_bytes));
        let final_bytes = if moved.bytes > 0 { whole } else { 0 };
        let bytes = written.bytes.max(reported.bytes).max(final_bytes);
        // Bytes that existed before do not count towards the goodput.
        let resumed_bytes = there.max(reported.resumed_bytes).min(bytes);
        self.recent.note(now, bytes - resumed_bytes);
        let ServedClient { address, id, name, wish, .. } = &self.client;
        let status = TransferStatus {
            number,
            address: address.to_string(),
            id: id.clone(),
            name: name.clone(),
            wish: wish.clone(),
            receives: self.mode.receives,
            age,
            bytes,
            resumed_bytes,
            total_bytes,
            files: written.files.max(reported.files).max(moved.files),
            total_files,
            rate_now: self.recent.rate(),
            sending_rate: sender.rate,
            rtt: sender.rtt,
            queue: self.queue.note(sender.rtt),
            streams: sender.streams,
            sent: sender.sent.max(reported.sent),
            retransmitted: sender.retransmitted.max(reported.retransmitted),
            received: receiver.received.max(reported.received),
            path_lost: receiver.highest.saturating_sub(receiver.received).max(reported.path_lost),
            socket_lost: receiver.socket_lost.max(reported.socket_lost),
            memory_lost: receiver
                .memory_lost
                .saturating_add(receiver.early_lost)
                .max(reported.memory_lost),
            chunk_map: board.chunk_map(),
            bound_by,
        };
        self.reported = status.clone();
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{self, ErrorKind};
    use crate::serve::events::Moved;

    #[test]
    fn a_request_is_partial_only_if_some_files_were_copied_and_others_failed() {
        let address = "192.0.2.1:9".parse().unwrap();
        let (id, name, wish, path) = (String::new(), None, String::new(), String::new());
        let client = ServedClient { address, id, name, wish, path, since: Instant::now() };
        let live = Live::default();
        let report = live.counting(Arc::new(|_| {}));
        for (files, failed) in [(0, 0), (3, 0), (3, 1), (1, 1), (1, 9), (0, 1)] {
            let moved = Moved { files, failed, ..Moved::default() };
            report(client.clone().ended(&Ok(()), moved));
        }
        let refused = Err(error::Error::new(ErrorKind::Unreachable, "not here"));
        report(client.ended(&refused, Moved { files: 1, ..Moved::default() }));
        let (_, totals) = live.status();
        assert_eq!((totals.done, totals.partial, totals.failed), (2, 3, 2));
    }

    #[test]
    fn the_totals_of_transfers_leave_out_resumed_bytes() {
        let status = TransferStatus {
            bytes: 100,
            resumed_bytes: 30,
            files: 2,
            receives: true,
            sent: 7,
            path_lost: 1,
            ..TransferStatus::default()
        };
        let once = plus(ServerTotals::default(), &status);
        assert_eq!((once.received_bytes, once.received_files, once.sent_bytes), (70, 2, 0));
        let other = TransferStatus { receives: false, ..status };
        let twice = plus(once, &other);
        assert_eq!((twice.received_bytes, twice.sent_bytes, twice.sent_files), (70, 70, 2));
        assert_eq!((twice.sent, twice.path_lost), (14, 2));
    }
}
