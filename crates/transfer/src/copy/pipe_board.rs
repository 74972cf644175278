//! The reports of a pipe, which copies content of unknown length as several parts. The user sees
//! one copy.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, Rate};

use super::question;
use crate::options::{Protocol, TCP_STREAMS};
use crate::progress::{Notice, Observer, Progress};

pub(super) struct PipeBoard {
    observer: Arc<dyn Observer>,
    started: Instant,
    parts: Mutex<Parts>,
}

#[derive(Default)]
struct Parts {
    /// The summed progress of the finished parts.
    past: Progress,
    /// The progress of the parts in transit, by their offsets.
    present: BTreeMap<u64, Progress>,
    total: u64,
    /// The time that the user took to decide about the server.
    asked: Duration,
    fell_back: bool,
}

impl PipeBoard {
    pub(super) fn new(observer: Arc<dyn Observer>) -> Arc<PipeBoard> {
        let (started, parts) = (Instant::now(), Mutex::default());
        Arc::new(PipeBoard { observer, started, parts })
    }

    /// No thread panics while it holds the lock.
    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn of_part(self: &Arc<PipeBoard>, offset: u64) -> Arc<dyn Observer> {
        Arc::new(OfPart { board: self.clone(), offset })
    }

    pub(super) fn finish_part(&self, offset: u64) {
        let mut parts = self.parts();
        if let Some(part) = parts.present.remove(&offset) {
            let setup = parts.past.setup;
            add(&mut parts.past, &part);
            (parts.past.rate_now, parts.past.setup) = (Rate::ZERO, setup.or(part.setup));
        }
    }

    pub(super) fn set_total(&self, bytes: u64) {
        self.parts().total = bytes;
    }

    pub(super) fn protocol(&self, asked: &Protocol) -> Protocol {
        match self.parts().fell_back {
            true => Protocol::Tcp { streams: TCP_STREAMS },
            false => asked.clone(),
        }
    }

    /// Excludes the time that the user took to decide about the server.
    pub(super) fn elapsed(&self) -> Span {
        self.elapsed_but(self.parts().asked)
    }

    fn elapsed_but(&self, asked: Duration) -> Span {
        let own = self.started.elapsed().saturating_sub(asked);
        Span::from_nanos(own.as_nanos() as u64)
    }

    fn progress(&self) -> Progress {
        let parts = self.parts();
        let elapsed = self.elapsed_but(parts.asked);
        let mut all = parts.past.clone();
        parts.present.values().for_each(|part| add(&mut all, part));
        let missing = Bytes::new(parts.total.saturating_sub(all.bytes));
        Progress {
            total_bytes: parts.total,
            files: 0,
            total_files: 1,
            rate_average: Bytes::new(all.bytes) / elapsed.max(Span::from_nanos(1)),
            left: (parts.total > 0 && all.rate_now > Rate::ZERO).then(|| missing / all.rate_now),
            ..all
        }
    }
}

fn add(all: &mut Progress, part: &Progress) {
    all.add(part);
    all.rate_now = Rate::from_bps(all.rate_now.as_bps().saturating_add(part.rate_now.as_bps()));
    all.setup = all.setup.or(part.setup);
}

struct OfPart {
    board: Arc<PipeBoard>,
    offset: u64,
}

impl Observer for OfPart {
    fn progress(&self, progress: &Progress) {
        self.board.parts().present.insert(self.offset, progress.clone());
        self.board.observer.progress(&self.board.progress());
    }

    fn notice(&self, notice: Notice) {
        match notice {
            // The pipe has reported its one connection, and the user does not see the parts.
            Notice::Connected { .. } | Notice::Resumed { .. } => {}
            Notice::Fallback { .. } => {
                if !std::mem::replace(&mut self.board.parts().fell_back, true) {
                    self.board.observer.notice(notice);
                }
            }
            notice => self.board.observer.notice(notice),
        }
    }

    fn trust_new_server(&self, server: &str, id: &str) -> bool {
        let (answer, took) = question::ask(&*self.board.observer, server, id);
        self.board.parts().asked += took;
        answer
    }
}
