//! The questions of a flow that began before its session: how much has arrived?

use std::sync::Arc;

use longhaul_net::port::receipts::Receipts;
use longhaul_net::socket::{Path, Socket};
use longhaul_proto::time::{Span, Time};

/// The first question follows the first packet train (datagrams sent back to back), which has 32
/// datagrams: the answer reports the time of the train.
const FIRST: u64 = 32;
/// Interval of questions. A question or its answer may be lost.
const INTERVAL: Span = Span::from_millis(10);

pub(super) struct Questions {
    receipts: Receipts,
    next: Time,
}

impl Questions {
    pub(super) fn new(receipts: Receipts) -> Questions {
        Questions { receipts, next: Time::ZERO }
    }

    /// Sends a question if one is due, and if the first `sent` datagrams include the whole first
    /// train.
    pub(super) fn ask(&mut self, now: Time, sent: u64, socket: &Arc<Socket>, path: Path) {
        if sent >= FIRST && now >= self.next {
            self.next = now + INTERVAL;
            // A failure to send has the same effect as a lost question.
            let _ = socket.send(path, &self.receipts.question());
        }
    }

    /// Returns when the next question is due; `Time::NEVER` before the first question, which
    /// follows the first train.
    pub(super) fn due(&self) -> Time {
        if self.next == Time::ZERO { Time::NEVER } else { self.next }
    }
}
