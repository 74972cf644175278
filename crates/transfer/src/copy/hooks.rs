//! The client's hooks pass progress and events to its observer, and end a cancelled or stalled
//! copy. The plan says which bytes the destination has already; an entry is a file, folder or link.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_net::clock;
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::{Bytes, Rate};

use super::observed::Observed;
use crate::control::{Message, Outcome};
use crate::counters::board::Board;
use crate::counters::path_watch::PathWatch;
use crate::counters::recent::{Recent, over};
use crate::counters::{Counters, SenderCounters, Written};
use crate::error::{Error, ErrorKind};
use crate::notices::{self, created, entries_of, interrupted, made, shown, stalled};
use crate::options::{Names, Output};
use crate::progress::{Cancel, Notice, Observer, Progress};
use crate::roles::wire::End;
use crate::roles::{Hooks, There, Whence};
use longhaul_files::Manifest;
use longhaul_files::manifest::MAX_PATH;
use longhaul_files::watch::Held;
use longhaul_text::clipped;

/// Maximum number of additional attempts after source files changed while they were read.
const MOST_REREADS: u32 = 2;

pub(super) struct ClientHooks {
    pub(super) observer: Arc<dyn Observer>,
    pub(super) cancel: Cancel,
    pub(super) board: Arc<Board>,
    /// Set by the watchdog when UDP no longer passes but TCP does.
    pub(super) udp_cut: Rc<Cell<bool>>,
    pub(super) sends: bool,
    pub(super) stall: Duration,
    pub(super) names: Names,
    pub(super) output: Option<Output>,
    pub(super) state: RefCell<State>,
}

/// Maximum bytes kept for names and reasons of failed entries.
const MOST_FAILED: usize = 256 << 20;

pub(super) struct Failed {
    pub(super) reason: String,
    /// Whether the failure is on this host.
    pub(super) here: bool,
    pub(super) whence: Whence,
}

pub(super) struct State {
    pub(super) started: Instant,
    last_progress: Instant,
    last_count: u64,
    recent: Recent,
    path: PathWatch,
    /// Bytes that existed at the destination according to the copy's first plan.
    pub(super) resumed: Option<u64>,
    /// Existing bytes that were reported to the observer when this attempt's plan arrived.
    found: u64,
    /// Number of files that the copy's first plan skipped.
    pub(super) skipped: u64,
    /// The failed entries of this attempt, by path; each is reported at most once.
    pub(super) failed: BTreeMap<Vec<u8>, Failed>,
    failed_bytes: usize,
    pub(super) attempts: u32,
    /// The first source file that changed while this attempt read it, and the number of such files.
    changed: Option<(PathBuf, u64)>,
    /// Remaining attempts for changed source files.
    pub(super) rereads: u32,
    pub(super) single: bool,
    planned: bool,
    streams_reported: bool,
    /// Whether the server takes data before the session is open; `None` before its plan.
    pub(super) takes_flight: Option<bool>,
    pub(super) earlier: Counters,
    pub(super) observed: Observed,
}

impl State {
    pub(super) fn new() -> State {
        let now = Instant::now();
        State {
            started: now,
            last_progress: now,
            last_count: 0,
            recent: Recent::default(),
            path: PathWatch::default(),
            resumed: None,
            found: 0,
            skipped: 0,
            failed: BTreeMap::new(),
            failed_bytes: 0,
            attempts: 0,
            changed: None,
            rereads: MOST_REREADS,
            single: false,
            planned: false,
            streams_reported: false,
            takes_flight: None,
            earlier: Counters::default(),
            observed: Observed::new(clock::now()),
        }
    }
}

impl ClientHooks {
    /// Starts the counters of a new attempt, and forgets the failed entries, which may succeed now.
    pub(super) fn begin_attempt(&mut self) {
        let before = self.counters();
        let mut state = self.state.borrow_mut();
        state.earlier = before;
        state.observed.begin(clock::now());
        state.last_progress = Instant::now();
        state.planned = false;
        state.streams_reported = false;
        state.failed.clear();
        state.failed_bytes = 0;
        state.changed = None;
        state.attempts += 1;
        let (bytes, files) = self.board.totals();
        let first = self.board.first_datagram();
        self.board = Arc::default();
        self.udp_cut = Rc::default();
        self.board.set_totals(bytes, files);
        if !self.sends {
            // In a copy from replicas (several sources of one object), a common writer adds to the
            // count of this source's bytes, so the new counters start with the earlier count. The
            // writer of a copy from one source overwrites the count.
            let bytes = state.earlier.written.bytes;
            self.board.update(|counters| counters.written.bytes = bytes);
        }
        if let Some(nanos) = first {
            self.board.note_first_datagram(nanos);
        }
    }

    /// Returns the joined counters of both ends, over all attempts.
    pub(super) fn counters(&self) -> Counters {
        let mut sum = self.state.borrow().earlier.clone();
        sum += self.counters_now();
        sum
    }

    fn counters_now(&self) -> Counters {
        let (from, to) = self.ends();
        Counters::joined(&from, &to)
    }

    /// Returns the counters of the sending and the receiving end in this attempt.
    pub(super) fn ends(&self) -> (Counters, Counters) {
        let (mine, theirs) = (self.board.mine(), self.board.theirs());
        if self.sends { (mine, theirs) } else { (theirs, mine) }
    }

    /// Returns the time from the start to the first data datagram, or to the first chunk of a copy
    /// over streams.
    fn setup(&self, started: Instant) -> Option<Span> {
        let ago = clock::now().since(Time::from_nanos(self.board.first_datagram()?));
        Some(Span::from_nanos(started.elapsed().as_nanos() as u64).saturating_sub(ago))
    }

    fn progress(&self, state: &mut State, counters: &Counters) -> Progress {
        let Counters { sender, receiver, written, .. } = counters;
        state.recent.note(Instant::now(), written.bytes);
        let (total_bytes, total_files) = self.board.totals();
        let rate_now = state.recent.rate();
        let moved = written.bytes.saturating_sub(state.resumed.unwrap_or(0));
        let missing = Bytes::new(total_bytes.saturating_sub(written.bytes));
        Progress {
            bytes: written.bytes,
            total_bytes,
            files: written.files,
            total_files,
            rate_now,
            rate_average: over(moved, state.started.elapsed()),
            setup: self.setup(state.started),
            left: (rate_now > Rate::ZERO && total_bytes > 0).then(|| missing / rate_now),
            sent: sender.sent,
            retransmitted: sender.retransmitted,
            blocks_lost: receiver.blocks_lost,
            refused: receiver.unasked,
            rtt: sender.rtt,
            resumed_bytes: state.resumed.unwrap_or(0),
            path: state.path.note(Instant::now(), self.board.block().unwrap_or(0), counters),
            sources: Vec::new(),
        }
    }
}

impl ClientHooks {
    /// Reports the final progress of an attempt, if its plan has arrived.
    pub(super) fn report_last(&self) {
        if !self.state.borrow().planned {
            return;
        }
        let counters = self.counters();
        let progress = self.progress(&mut self.state.borrow_mut(), &counters);
        self.observer.progress(&progress);
    }

    /// Reports the bytes that existed before, if the plan named fewer: some bytes are known only
    /// after the comparison with the source.
    fn found(&self, bytes: u64) {
        if bytes > self.state.borrow().found {
            self.observer.notice(Notice::Resumed { bytes });
        }
    }

    pub(super) fn ended(&self, outcome: &Outcome) {
        if outcome.kept_extra {
            self.observer.notice(notices::kept_extra());
        }
        self.found(outcome.resumed_bytes);
    }

    /// Returns the notice about files that changed while this attempt read them, if another attempt
    /// will copy the new versions.
    pub(super) fn read_again(&self) -> Option<String> {
        let mut state = self.state.borrow_mut();
        let (path, count) = state.changed.take()?;
        state.rereads -= 1;
        let others = match count {
            1 => String::new(),
            2 => " and 1 more file".to_owned(),
            count => format!(" and {} more files", count - 1),
        };
        let path = path.display();
        Some(format!("{path}{others} changed while being copied; copying the new version"))
    }

    pub(super) fn tried_streams(&self) {
        let sender = self.counters().sender;
        self.report_streams(&mut self.state.borrow_mut(), &sender);
    }

    fn report_streams(&self, state: &mut State, sender: &SenderCounters) {
        if !std::mem::replace(&mut state.streams_reported, true) {
            let (count, found) = (sender.streams, sender.streams_found);
            self.observer.notice(Notice::Streams { count, found });
        }
    }
}

impl Hooks for ClientHooks {
    fn on_message(&self, message: &Message) {
        if let Message::Plan(plan) = message {
            self.state.borrow_mut().takes_flight = Some(plan.takes_flight);
        }
    }

    fn tick(&self) -> Result<(), End> {
        if self.cancel.is_cancelled() {
            return Err(End::Fatal(interrupted()));
        }
        if self.udp_cut.get() {
            return Err(End::NoDatagrams);
        }
        let counters = self.counters();
        let mut state = self.state.borrow_mut();
        state.observed.note(self.board.lived(), || self.ends());
        if state.failed_bytes > MOST_FAILED {
            let what = "more files fail than fit into memory: the list of them takes 256 MiB";
            return Err(Error::new(ErrorKind::Unfinished, what)
                .advise("copy in several parts")
                .into());
        }
        // Planning may take long, so the names and chunks that each side has examined count as
        // progress. A sign of life is no progress: the disk of a side may hang while its control
        // stream still works.
        let (received, looked) = (counters.receiver.received, counters.looked);
        let Written { bytes, streamed, .. } = counters.written;
        let count = [received, streamed, looked].into_iter().fold(bytes, u64::saturating_add);
        // The reader of an output may take any time, so waiting for the reader is no stall.
        let is_read = self.output.as_ref().is_some_and(Output::is_waiting);
        if count != state.last_count || is_read {
            state.last_count = count;
            state.last_progress = Instant::now();
        }
        if state.last_progress.elapsed() >= self.stall {
            return Err(End::Fatal(stalled(self.stall, state.planned)));
        }
        if counters.sender.streams_found {
            self.report_streams(&mut state, &counters.sender);
        }
        let progress = self.progress(&mut state, &counters);
        self.observer.progress(&progress);
        Ok(())
    }

    fn held(&self, held: &Held) {
        let side = if self.sends { " on the other side" } else { "" };
        self.observer.notice(notices::held(held, side));
    }

    fn warn(&self, text: String) {
        let side = if self.sends { "on the other side: " } else { "" };
        self.observer.notice(Notice::Warning(format!("{side}{text}")));
    }

    fn silence(&self, since: Option<Span>) {
        let sends = self.sends;
        self.observer.notice(match since {
            Some(since) => Notice::Silent { since, sends },
            None => Notice::HeardAgain,
        });
    }

    fn planned(&self, manifest: &Manifest, skipped: &[Range<u64>], there: There) {
        if self.names == Names::All {
            let there = entries_of(manifest, skipped).map(|(number, _)| number);
            notices::skipped(manifest, there).for_each(|notice| self.observer.notice(notice));
        }
        let mut state = self.state.borrow_mut();
        state.planned = true;
        state.single = manifest.is_single();
        // Only the first plan counts: a later plan includes bytes that this copy has written.
        if state.resumed.is_none() {
            state.resumed = Some(there.bytes);
            let files = entries_of(manifest, skipped).filter_map(|(_, entry)| entry.size());
            state.skipped = files.count() as u64;
        }
        // While chunks are being compared, the number of bytes is not final. The outcome of the
        // attempt reports the final number.
        state.found = if there.asks { 0 } else { there.bytes };
        if state.found > 0 {
            self.observer.notice(Notice::Resumed { bytes: state.found });
        }
    }

    fn named(&self, manifest: &Manifest, entries: &[Range<u64>]) {
        made(manifest, entries).for_each(|made| self.observer.notice(made));
    }

    fn would_copy(&self, manifest: &Manifest, entries: &[Range<u64>]) {
        let failed = &self.state.borrow().failed;
        let due = entries_of(manifest, entries).map(|(due, _)| (due, manifest.path(due)));
        let due = due.filter(|(_, path)| !failed.contains_key(path));
        due.for_each(|(due, path)| self.observer.notice(created(manifest, due, &path)));
    }

    fn deleted(&self, paths: &[Vec<u8>]) {
        for path in paths {
            // The peer chooses the length of the path.
            let path = shown(&path[..path.len().min(MAX_PATH)]);
            self.observer.notice(Notice::Deleted { path });
        }
    }

    fn entry_failed(&self, path: &[u8], reason: &str, whence: Whence) {
        let here = (whence != Whence::Destination) == self.sends;
        // The peer chooses the lengths of path and reason, and the number of failures.
        let (path, mut reason) = (&path[..path.len().min(MAX_PATH)], clipped(reason));
        let mut state = self.state.borrow_mut();
        if whence == Whence::Changed && state.rereads == 0 && state.attempts > MOST_REREADS {
            reason = format!("{reason}, in each of {} attempts", state.attempts);
        }
        state.failed_bytes += path.len() + reason.len() + size_of::<(Vec<u8>, Failed)>();
        if state.failed_bytes > MOST_FAILED {
            return;
        }
        let failed = Failed { reason: reason.clone(), here, whence };
        if state.failed.insert(path.to_owned(), failed).is_some() {
            return;
        }
        if whence == Whence::Changed && state.rereads > 0 {
            let (_, count) = state.changed.get_or_insert_with(|| (shown(path), 0));
            *count += 1;
            return;
        }
        drop(state);
        let side = if here { "here" } else { "on the other side" };
        self.observer
            .notice(Notice::FileFailed { path: shown(path), reason: format!("{reason} ({side})") });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Status;
    use crate::counters::Times;
    use crate::progress::Nobody;

    fn hooks_of(sends: bool) -> ClientHooks {
        ClientHooks {
            observer: Arc::new(Nobody),
            cancel: Cancel::default(),
            board: Arc::default(),
            udp_cut: Rc::default(),
            sends,
            stall: Duration::from_secs(60),
            names: Names::None,
            output: None,
            state: RefCell::new(State::new()),
        }
    }

    #[test]
    fn impossible_counts_do_not_overflow_the_sums() {
        let lies = Status {
            sent: u64::MAX,
            written: u64::MAX,
            received: u64::MAX,
            highest: u64::MAX,
            paced_nanos: u64::MAX,
            granted_nanos: u64::MAX,
            busy_nanos: u64::MAX,
            disk_nanos: u64::MAX,
            disk_cpu_nanos: u64::MAX,
            ..Status::default()
        };
        for sends in [true, false] {
            let mut hooks = hooks_of(sends);
            for _ in 0..300 {
                hooks.board.set_theirs(&lies);
                assert!(hooks.tick().is_ok());
                hooks.begin_attempt();
            }
            let Times { paced, granted, busy, .. } = Counters::from(&lies).times;
            assert!((paced + granted + busy).as_nanos() < u64::MAX / 2);
            assert!(hooks.counters().sender.sent > 0);
        }
    }

    fn long_ago() -> Instant {
        let long_ago = Instant::now().checked_sub(Duration::from_secs(61));
        long_ago.expect("on Linux an Instant can be before the boot")
    }

    #[test]
    fn a_lack_of_progress_at_the_other_side_before_the_plan_or_after_the_last_byte_is_a_stall() {
        let hooks = |planned| {
            let hooks = hooks_of(true);
            hooks.state.borrow_mut().planned = planned;
            hooks.board.set_totals(100, 1);
            hooks
        };
        let long_ago = long_ago();
        for planned in [false, true] {
            let hooks = hooks(planned);
            // After the plan, all 100 bytes are written; before it, none.
            let written = if planned { 100 } else { 0 };
            hooks.board.set_theirs(&Status { written, ..Status::default() });
            hooks.board.note_spoke(longhaul_proto::time::Time::from_nanos(5));
            assert!(hooks.tick().is_ok());
            hooks.state.borrow_mut().last_progress = long_ago;
            let Err(End::Fatal(error)) = hooks.tick() else { panic!("no stall: {planned}") };
            assert_eq!(error.kind, ErrorKind::Stalled);
        }
    }

    #[test]
    fn file_work_at_either_end_prevents_a_stall_and_a_mere_sign_of_life_does_not() {
        let hooks = hooks_of(true);
        let long_ago = long_ago();
        let stalled = |looks: &dyn Fn()| {
            hooks.state.borrow_mut().last_progress = long_ago;
            hooks.board.note_spoke(longhaul_proto::time::Time::from_nanos(6));
            looks();
            hooks.tick().is_err()
        };
        assert!(!stalled(&|| hooks.board.watch().step()), "this end looks at its files");
        let looked = |looked| hooks.board.set_theirs(&Status { looked, ..Status::default() });
        assert!(!stalled(&|| looked(1)), "the other end looks at its files");
        assert!(!stalled(&|| looked(2)));
        assert!(stalled(&|| looked(2)), "the disk of the other end hangs");
    }

    #[test]
    fn names_and_reasons_of_failed_files_are_bounded_and_their_excess_ends_the_copy() {
        let hooks = hooks_of(true);
        hooks.entry_failed(&[b'p'; 100_000], &"r".repeat(100_000), Whence::Source);
        let (path, failed) = hooks.state.borrow_mut().failed.pop_first().expect("it is kept");
        assert_eq!((path.len(), failed.reason.len()), (MAX_PATH, 2000));
        assert!(hooks.tick().is_ok());
        hooks.state.borrow_mut().failed_bytes = MOST_FAILED;
        hooks.entry_failed(b"one more", "why", Whence::Source);
        assert!(hooks.state.borrow().failed.is_empty());
        let Err(End::Fatal(error)) = hooks.tick() else { panic!("it goes on") };
        assert!(error.what.contains("more files fail than fit into memory"), "{error}");
    }
}
