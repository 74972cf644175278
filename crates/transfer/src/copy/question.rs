//! Measures the time that a user takes to decide about a new server. That time does not count as
//! the copy's time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::progress::{Notice, Observer, Progress};

/// Asks the observer whether to trust a new server. Returns the answer, and the time that it took.
pub(super) fn ask(observer: &dyn Observer, server: &str, id: &str) -> (bool, Duration) {
    let asked = Instant::now();
    (observer.trust_new_server(server, id), asked.elapsed())
}

pub(super) struct TimedQuestion<'a> {
    observer: &'a dyn Observer,
    nanos: AtomicU64,
}

impl<'a> TimedQuestion<'a> {
    pub(super) fn new(observer: &'a dyn Observer) -> TimedQuestion<'a> {
        TimedQuestion { observer, nanos: AtomicU64::new(0) }
    }

    pub(super) fn waited(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }
}

impl Observer for TimedQuestion<'_> {
    fn progress(&self, progress: &Progress) {
        self.observer.progress(progress);
    }

    fn notice(&self, notice: Notice) {
        self.observer.notice(notice);
    }

    fn trust_new_server(&self, server: &str, id: &str) -> bool {
        let (answer, took) = ask(self.observer, server, id);
        self.nanos.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
        answer
    }
}
