//! The progress of each source, and of all sources together.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, LossRatio, Rate};

use crate::progress::{Notice, Observer, Progress, SourceRow, SourceState};

pub(super) struct Rows {
    started: Instant,
    rows: Mutex<Vec<Row>>,
    trust_time: Mutex<TrustTime>,
}

/// The time that the user took to decide about new servers, before any data arrived.
struct TrustTime {
    total: Duration,
    /// The waiting time before this instant is counted already: several sources may ask at the same
    /// time.
    until: Instant,
}

struct Row {
    name: String,
    state: SourceState,
    silent: bool,
    progress: Progress,
}

impl Row {
    /// A source that has ended keeps its state.
    fn set_state(&mut self, state: SourceState) {
        if !matches!(self.state, SourceState::Done | SourceState::Silent | SourceState::Failed) {
            self.state = state;
        }
    }

    fn is_connected(&self) -> bool {
        matches!(self.state, SourceState::Receiving | SourceState::Waiting)
    }

    fn state(&self) -> SourceState {
        if self.silent && self.is_connected() { SourceState::Silent } else { self.state }
    }

    fn rate(&self) -> Rate {
        if self.is_connected() { self.progress.rate_now } else { Rate::ZERO }
    }
}

impl Rows {
    pub(super) fn new(names: Vec<String>) -> Rows {
        let (state, silent) = (SourceState::Connecting, false);
        let row = |name| Row { name, state, silent, progress: Progress::default() };
        let (started, rows) = (Instant::now(), Mutex::new(names.into_iter().map(row).collect()));
        let trust_time = Mutex::new(TrustTime { total: Duration::ZERO, until: started });
        Rows { started, rows, trust_time }
    }

    fn trust_time(&self) -> MutexGuard<'_, TrustTime> {
        // No code panics while it holds the lock.
        self.trust_time.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the answer to a question asked at `since`. After the first data of any source, the
    /// waiting time counts as copy time.
    fn answered(&self, since: Instant) {
        let has_come =
            self.rows().iter().any(|row| row.progress.bytes > row.progress.resumed_bytes);
        let (mut trust_time, now) = (self.trust_time(), Instant::now());
        if !has_come {
            let since = since.max(trust_time.until);
            trust_time.total += now.saturating_duration_since(since);
        }
        trust_time.until = now;
    }

    fn rows(&self) -> MutexGuard<'_, Vec<Row>> {
        // No code panics while it holds the lock.
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn name(&self, number: usize) -> String {
        self.rows()[number].name.clone()
    }

    /// Sets the state of a source, unless the source has ended: done, failed, or silent at its end.
    pub(super) fn set_state(&self, number: usize, state: SourceState) {
        self.rows()[number].set_state(state);
    }

    /// Marks a source that has ended without an error: as silent if it was silent at its end,
    /// otherwise as done.
    pub(super) fn set_done(&self, number: usize) {
        let row = &mut self.rows()[number];
        row.set_state(if row.silent { SourceState::Silent } else { SourceState::Done });
    }

    pub(super) fn set_silent(&self, number: usize, silent: bool) {
        self.rows()[number].silent = silent;
    }

    /// Returns whether any source is connected and not silent.
    pub(super) fn are_there(&self) -> bool {
        self.rows().iter().any(|row| row.is_connected() && !row.silent)
    }

    /// Returns whether any source is connected, silent or not.
    pub(super) fn any_connected(&self) -> bool {
        self.rows().iter().any(Row::is_connected)
    }

    /// Returns the number of sources that have failed, are silent or retrying, or were never
    /// reached.
    pub(super) fn lost(&self) -> u64 {
        let is_lost = |row: &&Row| match row.state() {
            SourceState::Connecting
            | SourceState::Silent
            | SourceState::Retrying
            | SourceState::Failed => true,
            SourceState::Surveying
            | SourceState::Receiving
            | SourceState::Waiting
            | SourceState::Done => false,
        };
        self.rows().iter().filter(is_lost).count() as u64
    }

    fn set_progress(&self, number: usize, progress: &Progress) {
        self.rows()[number].progress = progress.clone();
    }

    pub(super) fn table(&self) -> Vec<SourceRow> {
        let rows = self.rows();
        let sum: u64 = rows.iter().map(|row| row.rate().as_bps()).sum();
        let one = |row: &Row| {
            let Progress { bytes, resumed_bytes, sent, retransmitted, blocks_lost, .. } =
                row.progress;
            let Progress { refused, rtt, .. } = row.progress;
            SourceRow {
                source: row.name.clone(),
                state: row.state(),
                received_bytes: bytes.saturating_sub(resumed_bytes),
                rate: row.rate(),
                share: row.rate().as_bps() as f64 / sum.max(1) as f64,
                loss: LossRatio::of(blocks_lost, sent.saturating_sub(retransmitted)),
                resent: retransmitted,
                refused,
                rtt,
            }
        };
        rows.iter().map(one).collect()
    }

    pub(super) fn total(&self) -> Progress {
        let sources = self.table();
        let rows = self.rows();
        let mut all = Progress::default();
        rows.iter().for_each(|row| all.add(&row.progress));
        let elapsed = Span::from_nanos(self.elapsed().as_nanos() as u64);
        let rate_now = Rate::from_bps(sources.iter().map(|row| row.rate.as_bps()).sum());
        let missing = Bytes::new(all.total_bytes.saturating_sub(all.bytes));
        Progress {
            rate_now,
            rate_average: Bytes::new(all.bytes.saturating_sub(all.resumed_bytes)) / elapsed,
            setup: rows.iter().filter_map(|row| row.progress.setup).min(),
            left: (rate_now > Rate::ZERO && all.total_bytes > 0).then(|| missing / rate_now),
            sources,
            ..all
        }
    }

    /// Returns the duration of the copy so far, without the time that the user took to decide about
    /// new servers before the first data arrived.
    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed().saturating_sub(self.trust_time().total)
    }
}

/// Returns an observer that updates a source's row, and passes on notices with the source's name.
pub(super) fn observer(
    rows: &Arc<Rows>,
    number: usize,
    observer: &Arc<dyn Observer>,
) -> Arc<dyn Observer> {
    Arc::new(OfSource { rows: rows.clone(), number, observer: observer.clone() })
}

struct OfSource {
    rows: Arc<Rows>,
    number: usize,
    observer: Arc<dyn Observer>,
}

impl Observer for OfSource {
    fn progress(&self, progress: &Progress) {
        self.rows.set_progress(self.number, progress);
    }

    fn notice(&self, notice: Notice) {
        match &notice {
            Notice::Connected { .. } => {
                self.rows.set_silent(self.number, false);
                self.rows.set_state(self.number, SourceState::Receiving);
            }
            Notice::Reconnecting { .. } | Notice::Busy { .. } => {
                self.rows.set_state(self.number, SourceState::Retrying);
            }
            Notice::Silent { .. } => self.rows.set_silent(self.number, true),
            Notice::HeardAgain => self.rows.set_silent(self.number, false),
            _ => {}
        }
        let source = self.rows.name(self.number);
        self.observer.notice(Notice::OfSource { source, notice: Box::new(notice) });
    }

    fn trust_new_server(&self, server: &str, id: &str) -> bool {
        let since = Instant::now();
        let answer = self.observer.trust_new_server(server, id);
        self.rows.answered(since);
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Nobody;

    #[test]
    fn progress_is_the_sum_of_all_sources_and_each_has_its_share_of_the_rate() {
        let rows = Rows::new(vec!["a".into(), "b".into(), "c".into()]);
        let progress = |bytes, rate| Progress {
            bytes,
            total_bytes: 100,
            rate_now: Rate::from_mbps(rate),
            ..Progress::default()
        };
        (0..3).for_each(|number| rows.set_state(number, SourceState::Receiving));
        rows.set_progress(0, &progress(10, 30));
        rows.set_progress(1, &progress(20, 10));
        rows.set_progress(2, &progress(100, 40));
        rows.set_state(2, SourceState::Done);
        let total = rows.total();
        assert_eq!((total.bytes, total.total_bytes), (130, 300));
        assert_eq!(total.rate_now, Rate::from_mbps(40));
        let shares: Vec<f64> = total.sources.iter().map(|row| row.share).collect();
        assert_eq!(shares, [0.75, 0.25, 0.0]);
    }

    #[test]
    fn sums_of_reported_counts_saturate() {
        let rows = Rows::new(vec!["a".into(), "b".into()]);
        let most = Progress { total_bytes: u64::MAX, sent: u64::MAX, ..Progress::default() };
        (0..2).for_each(|number| rows.set_progress(number, &most));
        assert_eq!((rows.total().total_bytes, rows.total().sent), (u64::MAX, u64::MAX));
    }

    #[test]
    fn a_silent_source_that_reconnects_is_shown_as_retrying_with_rate_zero() {
        let rows = Arc::new(Rows::new(vec!["a".into()]));
        let user: Arc<dyn Observer> = Arc::new(Nobody);
        let source_observer = observer(&rows, 0, &user);
        let state = || rows.table()[0].state;
        let connected =
            || Notice::Connected { peer: "p".into(), address: "a".into(), carrier: "quic" };
        let silent = || Notice::Silent { since: Span::from_secs(3), sends: false };
        source_observer.notice(connected());
        source_observer.progress(&Progress { rate_now: Rate::from_mbps(9), ..Progress::default() });
        assert_eq!(rows.table()[0].rate, Rate::from_mbps(9));
        rows.set_state(0, SourceState::Waiting);
        source_observer.notice(silent());
        assert_eq!(state(), SourceState::Silent);
        assert!(rows.any_connected() && !rows.are_there());
        source_observer.notice(Notice::HeardAgain);
        assert_eq!(state(), SourceState::Waiting);
        source_observer.notice(silent());
        source_observer.notice(Notice::Reconnecting { reason: "lost".into() });
        assert_eq!((state(), rows.table()[0].rate), (SourceState::Retrying, Rate::ZERO));
        assert!(!rows.any_connected());
        source_observer.notice(connected());
        assert_eq!(state(), SourceState::Receiving);
        rows.set_done(0);
        assert_eq!(state(), SourceState::Done);
    }

    #[test]
    fn a_source_that_is_silent_at_its_end_is_lost_and_no_longer_connected() {
        let rows = Rows::new(vec!["a".into()]);
        rows.set_state(0, SourceState::Receiving);
        rows.set_silent(0, true);
        assert!(rows.any_connected());
        rows.set_done(0);
        assert_eq!(rows.table()[0].state, SourceState::Silent, "a source that is gone is not done");
        assert_eq!((rows.any_connected(), rows.lost()), (false, 1));
        // The writer may report the source's last change of state after its end.
        rows.set_state(0, SourceState::Waiting);
        assert_eq!(rows.table()[0].state, SourceState::Silent);
    }

    #[test]
    fn sources_that_failed_or_did_not_come_back_are_lost() {
        use SourceState::{
            Connecting, Done, Failed, Receiving, Retrying, Silent, Surveying, Waiting,
        };
        let lost = |state| {
            let rows = Rows::new(vec!["a".into()]);
            rows.set_state(0, state);
            rows.lost()
        };
        assert_eq!([Connecting, Silent, Retrying, Failed].map(lost), [1; 4]);
        assert_eq!([Surveying, Receiving, Waiting, Done].map(lost), [0; 4]);
    }

    struct Thinks(Duration);

    impl Observer for Thinks {
        fn progress(&self, _: &Progress) {}

        fn notice(&self, _: Notice) {}

        fn trust_new_server(&self, _: &str, _: &str) -> bool {
            std::thread::sleep(self.0);
            true
        }
    }

    #[test]
    fn the_time_of_simultaneous_decisions_about_new_servers_is_subtracted_once() {
        let think = Duration::from_millis(200);
        let begun = Instant::now();
        let rows = Arc::new(Rows::new(vec!["a".into(), "b".into()]));
        let user: Arc<dyn Observer> = Arc::new(Thinks(think));
        std::thread::scope(|scope| {
            for number in 0..2 {
                let source_observer = observer(&rows, number, &user);
                scope.spawn(move || assert!(source_observer.trust_new_server("s", "id")));
            }
        });
        let (elapsed, all) = (rows.elapsed(), begun.elapsed());
        assert!(elapsed + think <= all, "{elapsed:?} of {all:?}");
        assert!(rows.trust_time().total <= all, "simultaneous decisions count once");
        // After the first data, a decision counts as copy time.
        let before = rows.trust_time().total;
        rows.set_progress(0, &Progress { bytes: 1, ..Progress::default() });
        assert!(observer(&rows, 1, &user).trust_new_server("s", "id"));
        assert_eq!(rows.trust_time().total, before);
    }

    #[test]
    fn a_failed_source_stays_failed() {
        let rows = Rows::new(vec!["a".into()]);
        rows.set_state(0, SourceState::Failed);
        rows.set_state(0, SourceState::Receiving);
        assert_eq!(rows.table()[0].state, SourceState::Failed);
    }
}
