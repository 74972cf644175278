//! One object, copied from several sources that all have it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_proto::units::{Bytes, Rate};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::agree::agree;
use super::looks::{self, First, Look, Looked, Looks};
use super::part::{To, sink_options};
use super::slow::Slow;
use super::standstill::Standstill;
use super::survey::Found;
use super::writer::{self, Agreed, ReplicaEvent, ReplicaLink, WHOLE};
use super::{Ended, Sources, all_failed, summing};
use crate::control::Outcome;
use crate::counters::Counters;
use crate::counters::board::Board;
use crate::counters::recent::{Recent, over};
use crate::error::{Error, ErrorKind};
use crate::notices::{self, interrupted, made, shown, stalled};
use crate::options::{CopyOptions, Receive};
use crate::progress::{Notice, Progress, SourceRow, SourceState};
use crate::reach::Reached;
use crate::reach::route::Route;
use crate::roles::closing_after;
use crate::summary::{Summary, hex};
use crate::write::jobs::{Job, Jobs};
use longhaul_files::Place;
use longhaul_files::digest::Digest;
use longhaul_text::CallOption;

pub(super) const TICK: Duration = Duration::from_millis(100);
/// How long the sources may take to end after the object is complete.
const FAREWELL: Duration = Duration::from_secs(2);

pub(super) async fn run(options: &CopyOptions, sources: &Sources<'_>) -> Result<Summary, Error> {
    let Some(Route::Pull { destination, .. }) = sources.routes.first() else {
        return Err(Error::new(ErrorKind::Usage, "no destination"));
    };
    if options.dry_run || options.receive == Receive::Fake {
        let what = "a copy from replicas supports neither a dry run nor a measurement";
        let (dry_run, receive) = (CallOption::DryRun, CallOption::Receive);
        return Err(Error::new(ErrorKind::Usage, what)
            .advise(format!("omit {dry_run} and {receive} fake, or name one source")));
    }
    let mut looks = Looks::start(options, sources)?;
    let First { found, reached, mut errors } = looks::first(sources, &mut looks).await?;
    if found.is_empty() {
        for (number, error) in looks.in_trouble() {
            fail(sources, number, error, &mut errors);
        }
        return Err(all_failed(&errors));
    }
    let agreement = agree(&found)?;
    for (number, how) in &agreement.others {
        fail(sources, *number, differs(how), &mut errors);
    }
    let board = Arc::new(Board::default());
    let (events_end, events) = unbounded_channel();
    let digests: Vec<(usize, Digest)> =
        found.iter().map(|(number, _, found)| (*number, found.digest)).collect();
    let of_majority = found.into_iter().find(|(number, ..)| agreement.same.contains(number));
    let Some((_, _, reference)) = of_majority else { return Err(all_failed(&errors)) };
    let agreed = Agreed {
        manifest: reference.manifest.clone(),
        values: reference.values.clone(),
        sources: agreement.same.len(),
    };
    let (place, sink) = (Place::Ambient(destination.clone()), sink_options(options));
    let whole = board.clone();
    let opened = tokio::task::spawn_blocking(move || {
        writer::spawn(agreed, &place, &sink, whole, events_end)
    });
    let lost = |_| Error::new(ErrorKind::Unfinished, "the destination was not opened");
    let jobs = tokio::select! {
        opened = opened => opened.map_err(lost)??,
        error = given_up(options, sources, &board) => {
            board.watch().end();
            return Err(error);
        }
    };
    let mut tasks = JoinSet::new();
    for (number, reached) in reached {
        let digest = digests.iter().find(|(found, _)| *found == number);
        if let Some((_, digest)) = digest.filter(|_| agreement.same.contains(&number)) {
            start(sources, &mut tasks, &jobs, number, *digest, reached);
        }
    }
    let mut copying = Copying::new(options, sources, board, events);
    (copying.tasks, copying.errors) = (tasks, errors);
    copying.run(jobs, looks, &reference).await
}

fn differs(how: &str) -> Error {
    Error::new(ErrorKind::Verification, format!("it {how}"))
}

/// Waits until the copy is cancelled, or the opening of the destination makes no progress for too
/// long.
async fn given_up(options: &CopyOptions, sources: &Sources<'_>, board: &Board) -> Error {
    let mut tick = tokio::time::interval(TICK);
    let mut progressed = (Instant::now(), 0);
    loop {
        tokio::select! {
            () = sources.cancel.wished() => return interrupted(),
            _ = tick.tick() => {}
        }
        let looked = board.watch().looked();
        if looked != progressed.1 {
            progressed = (Instant::now(), looked);
        } else if progressed.0.elapsed() >= options.stall {
            return stalled(options.stall, false);
        }
    }
}

fn start(
    sources: &Sources<'_>,
    tasks: &mut JoinSet<Ended>,
    jobs: &Jobs,
    number: usize,
    manifest: Digest,
    reached: Reached,
) {
    let mut part = sources.part(number);
    part.to = To::Replicas(ReplicaLink { jobs: jobs.of_source(number), manifest });
    part.reached = Some(reached).into();
    sources.start(tasks, part);
}

pub(super) fn fail(
    sources: &Sources<'_>,
    number: usize,
    error: Error,
    errors: &mut Vec<(String, Error)>,
) {
    sources.rows.set_state(number, SourceState::Failed);
    let source = sources.rows.name(number);
    errors.push((source.clone(), error.clone()));
    if error.kind != ErrorKind::Cancelled {
        sources.observer.notice(Notice::SourceFailed { source, error });
    }
}

struct Copying<'a> {
    options: &'a CopyOptions,
    sources: &'a Sources<'a>,
    board: Arc<Board>,
    events: UnboundedReceiver<ReplicaEvent>,
    tasks: JoinSet<Ended>,
    summaries: Vec<Summary>,
    errors: Vec<(String, Error)>,
    resumed: u64,
    recent: Recent,
    standstill: Standstill,
    /// For each source, its usual rate, and whether the source has become slow.
    slow: Vec<Slow>,
    failed_files: u64,
}

impl<'a> Copying<'a> {
    fn new(
        options: &'a CopyOptions,
        sources: &'a Sources<'a>,
        board: Arc<Board>,
        events: UnboundedReceiver<ReplicaEvent>,
    ) -> Copying<'a> {
        Copying {
            options,
            sources,
            board,
            events,
            tasks: JoinSet::new(),
            summaries: Vec::new(),
            errors: Vec::new(),
            resumed: 0,
            recent: Recent::default(),
            standstill: Standstill::new(Instant::now()),
            slow: sources.routes.iter().map(|_| Slow::default()).collect(),
            failed_files: 0,
        }
    }

    /// Runs until the object is complete or cannot be completed; then the destination is closed.
    async fn run(
        mut self,
        jobs: Jobs,
        mut looks: Looks,
        reference: &Found,
    ) -> Result<Summary, Error> {
        let outcome = self.await_outcome(&jobs, &mut looks, reference).await;
        if outcome.is_ok() {
            self.say_farewell().await;
            // Sources that could not be surveyed were tried again until the copy ended.
            for (number, error) in looks.in_trouble() {
                fail(self.sources, number, error, &mut self.errors);
            }
        }
        self.tasks.shutdown().await;
        jobs.of_source(WHOLE).send(Job::Stop);
        // A hanging disk blocks its thread, but must not block a user who cancels the copy.
        let closed = async { while self.events.recv().await.is_some() {} };
        let patience = closing_after(outcome.as_ref().err().map(|error| error.kind));
        let _ = timeout(patience, closed).await;
        let outcome = outcome?;
        self.sources.observer.progress(&self.progress());
        Ok(self.summary(&outcome))
    }

    async fn await_outcome(
        &mut self,
        jobs: &Jobs,
        looks: &mut Looks,
        reference: &Found,
    ) -> Result<Outcome, Error> {
        let mut tick = tokio::time::interval(TICK);
        loop {
            tokio::select! {
                event = self.events.recv() => match event {
                    Some(ReplicaEvent::Outcome(outcome)) => return Ok(*outcome),
                    Some(ReplicaEvent::Failed(error)) => return Err(error),
                    Some(event) => self.hear(event),
                    None => {
                        let what = "the writing thread ended early";
                        return Err(Error::new(ErrorKind::Unfinished, what));
                    }
                },
                (number, look) = looks.next() => self.on_look(jobs, reference, number, look),
                Some(ended) = self.tasks.join_next() => {
                    // A panicked task does not say which source it served.
                    if let Ok(ended) = ended {
                        self.end(ended);
                    }
                }
                _ = tick.tick() => {
                    if self.tasks.is_empty() && looks.are_over() {
                        self.none_left()?;
                    }
                    self.look()?;
                }
                () = self.sources.cancel.wished() => return Err(interrupted()),
            }
        }
    }

    /// Processes the result of a survey (a request for the hashes of a source), while other sources
    /// already send.
    fn on_look(&mut self, jobs: &Jobs, reference: &Found, number: usize, look: Look) {
        match look {
            Look::Trouble(error) => looks::report_trouble(self.sources, number, &error),
            Look::Ended(Err(error)) => fail(self.sources, number, error, &mut self.errors),
            Look::Ended(Ok(looked)) => {
                let Looked { found, reached } = *looked;
                match reference.differs(&found) {
                    None => {
                        let (sources, digest) = (self.sources, found.digest);
                        start(sources, &mut self.tasks, jobs, number, digest, reached);
                    }
                    Some(how) => fail(self.sources, number, differs(&how), &mut self.errors),
                }
            }
        }
    }

    /// Waits until the connected sources that answer have ended, at most [`FAREWELL`]. The writer
    /// has told them that the object is complete.
    async fn say_farewell(&mut self) {
        let farewell = tokio::time::sleep(FAREWELL);
        tokio::pin!(farewell);
        while self.sources.rows.are_there() {
            tokio::select! {
                ended = self.tasks.join_next() => match ended {
                    Some(Ok((number, Ok(summary)))) => {
                        self.sources.rows.set_done(number);
                        self.summaries.push(summary);
                    }
                    // The object is complete, so no notice reports this failure.
                    Some(Ok((number, Err(_)))) => {
                        self.sources.rows.set_state(number, SourceState::Retrying);
                    }
                    Some(Err(_)) => {}
                    None => break,
                },
                () = &mut farewell => break,
            }
        }
    }

    /// Returns an error if all sources have failed. If a source has ended without an error, the
    /// copy waits: the last writes may still be on their way to the disk.
    fn none_left(&mut self) -> Result<(), Error> {
        if self.summaries.is_empty() {
            return Err(all_failed(&self.errors));
        }
        Ok(())
    }

    fn hear(&mut self, event: ReplicaEvent) {
        let rows = &self.sources.rows;
        let observer = &self.sources.observer;
        match event {
            ReplicaEvent::Resumed(bytes) => {
                self.resumed = bytes;
                observer.notice(Notice::Resumed { bytes });
            }
            ReplicaEvent::Waits { source, waits } => {
                let state = if waits { SourceState::Waiting } else { SourceState::Receiving };
                rows.set_state(source, state);
            }
            ReplicaEvent::Silent { source, silent } => {
                rows.set_silent(source, silent);
                let what = match silent {
                    true => "is silent; its chunks may go to the other sources",
                    false => "is back",
                };
                observer.notice(Notice::Warning(format!("{} {what}", rows.name(source))));
            }
            ReplicaEvent::Named { manifest, entries } => {
                made(&manifest, &entries).for_each(|made| observer.notice(made));
            }
            ReplicaEvent::EntryFailed { path, reason } => {
                self.failed_files += 1;
                let reason = format!("{reason} (here)");
                observer.notice(Notice::FileFailed { path: shown(&path), reason });
            }
            ReplicaEvent::Outcome(_) | ReplicaEvent::Failed(_) => {}
        }
    }

    fn end(&mut self, (number, result): Ended) {
        match result {
            Ok(summary) => {
                self.sources.rows.set_done(number);
                self.summaries.push(summary);
            }
            Err(error) => fail(self.sources, number, error, &mut self.errors),
        }
    }

    /// Reports progress, and detects a stall; called ten times a second.
    fn look(&mut self) -> Result<(), Error> {
        let Counters { written, looked, .. } = self.board.mine();
        let written = written.bytes;
        let (total, _) = self.board.totals();
        let (now, is_there) = (Instant::now(), self.sources.rows.any_connected());
        let moved = written.saturating_add(looked);
        let may_rest = written >= total || !is_there;
        if self.standstill.lasts(now, moved, may_rest) >= self.options.stall {
            return Err(stalled(self.options.stall, true));
        }
        let observer = &self.sources.observer;
        notices::of_files(self.board.watch()).for_each(|notice| observer.notice(notice));
        self.recent.note(now, written);
        let progress = self.progress();
        self.report_slow(now, &progress.sources);
        self.sources.observer.progress(&progress);
        Ok(())
    }

    /// Reports sources that have become slow; their chunks are gradually reassigned to the others.
    fn report_slow(&mut self, now: Instant, rows: &[SourceRow]) {
        let all = Rate::from_bps(rows.iter().map(|row| row.rate.as_bps()).sum());
        for (row, slow) in rows.iter().zip(&mut self.slow) {
            let rate = (row.state == SourceState::Receiving).then_some(row.rate);
            if let Some(usual) = slow.look(now, rate, all) {
                let text = format!(
                    "{} has become slow: {}, before {usual}; its chunks go to the other sources",
                    row.source, row.rate
                );
                self.sources.observer.notice(Notice::Warning(text));
            }
        }
    }

    fn progress(&self) -> Progress {
        let written = self.board.mine().written;
        let (total_bytes, total_files) = self.board.totals();
        let rate_now = self.recent.rate();
        let missing = Bytes::new(total_bytes.saturating_sub(written.bytes));
        let moved = written.bytes.saturating_sub(self.resumed);
        let sum = self.sources.rows.total();
        Progress {
            bytes: written.bytes,
            total_bytes,
            files: written.files,
            total_files,
            rate_now,
            rate_average: over(moved, self.sources.rows.elapsed()),
            left: (rate_now > Rate::ZERO && total_bytes > 0).then(|| missing / rate_now),
            resumed_bytes: self.resumed,
            ..sum
        }
    }

    fn summary(&self, outcome: &Outcome) -> Summary {
        let mut whole = summing::of_flows(&self.summaries, &self.sources.rows);
        let (bytes, files) = self.board.totals();
        let moved = self.board.mine().written.bytes.saturating_sub(self.resumed);
        let failed_files = outcome.failed_count.max(self.failed_files);
        whole.bytes = bytes;
        whole.files = files;
        whole.copied_files = outcome.files.min(files);
        let there = outcome.resumed_bytes.saturating_add(outcome.failed_bytes);
        whole.copied_bytes = bytes.saturating_sub(there);
        whole.links = outcome.links;
        whole.folders = outcome.folders;
        whole.goodput = Bytes::new(moved) / whole.elapsed;
        whole.resumed_bytes = outcome.resumed_bytes;
        whole.skipped_files = outcome.skipped;
        whole.failed_files = failed_files;
        whole.failed_sources = self.sources.rows.lost();
        whole.unread_files = if self.options.checksum { 0 } else { outcome.skipped };
        whole.verified = failed_files == 0 && whole.unread_files == 0;
        whole.blake3 = hex(&outcome.digest);
        whole.receives = self.sources.capacity();
        whole
    }
}
