//! Sources that all have the same object, which is taken from all of them together.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_proto::units::{Bytes, Rate};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;

use super::super::attempt::{reach, sink_options};
use super::super::first_way;
use super::super::hooks::{interrupted, named_paths, shown};
use super::super::reach::{Look, Reached};
use super::super::recent::{Recent, over};
use super::super::route::Route;
use super::super::summing::hex;
use super::agree::agree;
use super::survey::{Found, survey};
use super::{Ended, Sources, all_failed, summing};
use crate::control::Outcome;
use crate::driver::board::Board;
use crate::driver::jobs::{Job, Jobs};
use crate::driver::joint::{self, Agreed, JointLink, News, WHOLE};
use crate::error::{Class, Error};
use crate::objects::Place;
use crate::objects::digest::Digest;
use crate::options::{CopyOptions, Receive};
use crate::progress::{Notice, Progress, SourceState};
use crate::session::{Identity, Settings};
use crate::summary::Summary;

/// How often the user is told how far the copy is.
const TICK: Duration = Duration::from_millis(100);
/// How long sources have to end once all stands.
const FAREWELL: Duration = Duration::from_secs(2);

/// A source that was looked at, with the session over which it was.
struct Looked {
    number: usize,
    found: Found,
    reached: Reached,
}

/// Copies the object.
pub(super) async fn run(options: &CopyOptions, sources: &Sources<'_>) -> Result<Summary, Error> {
    let Some(Route::Pull { destination, .. }) = sources.routes.first() else {
        return Err(Error::new(Class::Usage, "nowhere to copy to"));
    };
    if options.dry_run || options.receive == Receive::Fake {
        let what = "replicas are neither looked at alone nor measured";
        return Err(Error::new(Class::Usage, what)
            .advise("leave --dry-run and --receive fake out, or name one source"));
    }
    let (looked, mut errors) = look_at_all(options, sources).await?;
    if looked.is_empty() {
        return Err(all_failed(errors));
    }
    let named = looked.into_iter().map(|looked| {
        let Looked { number, found, reached } = looked;
        ((number, sources.rows.name(number), found), reached)
    });
    let (found, reached): (Vec<_>, Vec<Reached>) = named.unzip();
    let agreement = agree(&found)?;
    for (number, how) in &agreement.others {
        let error = Error::new(Class::Verification, format!("it {how}"));
        fail(sources, *number, error, &mut errors);
    }
    let board = Arc::new(Board::default());
    let (news_end, news) = unbounded_channel();
    let digests: Vec<(usize, Digest)> =
        found.iter().map(|(number, _, found)| (*number, found.digest)).collect();
    let of_majority = found.into_iter().find(|(number, ..)| agreement.same.contains(number));
    let Some((_, _, reference)) = of_majority else { return Err(all_failed(errors)) };
    let agreed = Agreed { manifest: reference.manifest, values: reference.values };
    let (place, sink) = (Place::Ambient(destination.clone()), sink_options(options));
    let whole = board.clone();
    let opened =
        tokio::task::spawn_blocking(move || joint::spawn(agreed, &place, &sink, whole, news_end));
    let lost = |_| Error::new(Class::Unfinished, "the destination was not opened");
    let jobs = opened.await.map_err(lost)??;
    let mut tasks = JoinSet::new();
    for ((number, digest), reached) in digests.into_iter().zip(reached) {
        if agreement.same.contains(&number) {
            start(sources, &mut tasks, &jobs, number, digest, reached);
        }
    }
    Copying::new(options, sources, board, news, tasks, errors).run(jobs).await
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
    part.joint = Some(JointLink { jobs: jobs.of_source(number), manifest });
    part.reached = Some(reached).into();
    sources.start(tasks, part);
}

/// A source takes no more part.
fn fail(sources: &Sources<'_>, number: usize, error: Error, errors: &mut Vec<(String, Error)>) {
    sources.rows.set_state(number, SourceState::Failed);
    let source = sources.rows.name(number);
    errors.push((source.clone(), error.clone()));
    if error.class != Class::Interrupted {
        sources.observer.notice(Notice::SourceFailed { source, error });
    }
}

/// Looks at all sources at once; those that cannot be looked at take no part.
async fn look_at_all(
    options: &CopyOptions,
    sources: &Sources<'_>,
) -> Result<(Vec<Looked>, Vec<(String, Error)>), Error> {
    let identity = Identity::load_or_create(&options.trust.config_dir)?;
    let looks = (0..sources.routes.len()).map(|number| look_at(sources, &identity, number));
    let all = join_all(looks.collect());
    tokio::pin!(all);
    let mut tick = tokio::time::interval(TICK);
    let ended = loop {
        tokio::select! {
            ended = &mut all => break ended,
            () = sources.cancel.wished() => return Err(interrupted()),
            _ = tick.tick() => {
                let sources_now = sources.rows.table();
                let progress = Progress { sources: sources_now, ..Progress::default() };
                sources.observer.progress(&progress);
            }
        }
    };
    let (mut looked, mut errors) = (Vec::new(), Vec::new());
    for (number, result) in ended.into_iter().enumerate() {
        match result {
            Ok(found) => looked.push(found),
            Err(error) => fail(sources, number, error, &mut errors),
        }
    }
    Ok((looked, errors))
}

async fn look_at(
    sources: &Sources<'_>,
    identity: &Identity,
    number: usize,
) -> Result<Looked, Error> {
    let (options, route) = (&sources.options[number], &sources.routes[number]);
    let observer = sources.observer_of(number);
    let reach = reach(options, route, identity, &*observer);
    let look = if options.datagram.is_some() { Look::No } else { Look::Beside };
    let ports = sources.shared.ports.as_ref();
    let settings = Settings { carriers: first_way(options).carriers(), ..Settings::default() };
    let mut reached = reach.open_on(ports, &settings, look).await?;
    sources.rows.set_state(number, SourceState::Surveying);
    let found = survey(&mut reached.session, options, route).await?;
    Ok(Looked { number, found, reached })
}

/// Awaits all of them, side by side.
async fn join_all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut waiting: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        let mut left = false;
        for (future, output) in &mut waiting {
            if output.is_none() {
                match future.as_mut().poll(context) {
                    std::task::Poll::Ready(done) => *output = Some(done),
                    std::task::Poll::Pending => left = true,
                }
            }
        }
        if left { std::task::Poll::Pending } else { std::task::Poll::Ready(()) }
    })
    .await;
    waiting.into_iter().filter_map(|(_, output)| output).collect()
}

/// The copy under way.
struct Copying<'a> {
    options: &'a CopyOptions,
    sources: &'a Sources<'a>,
    board: Arc<Board>,
    news: UnboundedReceiver<News>,
    tasks: JoinSet<Ended>,
    summaries: Vec<Summary>,
    errors: Vec<(String, Error)>,
    resumed: u64,
    recent: Recent,
    /// When bytes last came, and how many stood then.
    progressed: (Instant, u64),
    failed_files: u64,
}

impl<'a> Copying<'a> {
    fn new(
        options: &'a CopyOptions,
        sources: &'a Sources<'a>,
        board: Arc<Board>,
        news: UnboundedReceiver<News>,
        tasks: JoinSet<Ended>,
        errors: Vec<(String, Error)>,
    ) -> Copying<'a> {
        Copying {
            options,
            sources,
            board,
            news,
            tasks,
            summaries: Vec::new(),
            errors,
            resumed: 0,
            recent: Recent::default(),
            progressed: (Instant::now(), 0),
            failed_files: 0,
        }
    }

    /// Until all stands, or cannot; the destination is closed then.
    async fn run(mut self, jobs: Jobs) -> Result<Summary, Error> {
        let outcome = self.await_outcome().await;
        if outcome.is_ok() {
            self.say_farewell().await;
        }
        self.tasks.shutdown().await;
        jobs.of_source(WHOLE).send(Job::Stop);
        while self.news.recv().await.is_some() {}
        let outcome = outcome?;
        self.sources.observer.progress(&self.progress());
        Ok(self.summary(&outcome))
    }

    async fn await_outcome(&mut self) -> Result<Outcome, Error> {
        let mut tick = tokio::time::interval(TICK);
        loop {
            tokio::select! {
                news = self.news.recv() => match news {
                    Some(News::Outcome(outcome)) => return Ok(*outcome),
                    Some(News::Failed(error)) => return Err(error),
                    Some(news) => self.hear(news),
                    None => {
                        let what = "the writing thread ended before its time";
                        return Err(Error::new(Class::Unfinished, what));
                    }
                },
                ended = self.tasks.join_next() => match ended {
                    Some(Ok(ended)) => self.end(ended),
                    // What it was at, it does not say.
                    Some(Err(_)) => {}
                    None => self.none_left()?,
                },
                _ = tick.tick() => self.look()?,
                () = self.sources.cancel.wished() => return Err(interrupted()),
            }
        }
    }

    /// Lets the sources that are there hear that all stands.
    async fn say_farewell(&mut self) {
        let farewell = tokio::time::sleep(FAREWELL);
        tokio::pin!(farewell);
        while self.sources.rows.are_there() {
            tokio::select! {
                ended = self.tasks.join_next() => match ended {
                    Some(Ok((number, Ok(summary)))) => {
                        self.sources.rows.set_state(number, SourceState::Done);
                        self.summaries.push(summary);
                    }
                    // It was lost in the last moment.
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

    /// No source is left. What was written last may still be on its way to the disk.
    fn none_left(&mut self) -> Result<(), Error> {
        if self.summaries.is_empty() {
            return Err(all_failed(std::mem::take(&mut self.errors)));
        }
        Ok(())
    }

    fn hear(&mut self, news: News) {
        let rows = &self.sources.rows;
        let observer = &self.sources.observer;
        match news {
            News::Resumed(bytes) => {
                self.resumed = bytes;
                self.progressed.1 = bytes;
                observer.notice(Notice::Resumed { bytes });
            }
            News::Waits { source, waits } => {
                let state = if waits { SourceState::Waiting } else { SourceState::Receiving };
                rows.set_state(source, state);
            }
            News::Silent { source, silent } => {
                let state = if silent { SourceState::Silent } else { SourceState::Receiving };
                rows.set_state(source, state);
                let what = match silent {
                    true => "gives no sign of life; the others bring what it was to bring",
                    false => "is back and takes part again",
                };
                observer.notice(Notice::Warning(format!("{} {what}", rows.name(source))));
            }
            News::Named { manifest, entries } => {
                for path in named_paths(&manifest, &entries) {
                    observer.notice(Notice::File { path });
                }
            }
            News::EntryFailed { path, reason } => {
                self.failed_files += 1;
                let reason = format!("{reason} (here)");
                observer.notice(Notice::FileFailed { path: shown(&path), reason });
            }
            News::Outcome(_) | News::Failed(_) => {}
        }
    }

    fn end(&mut self, (number, result): Ended) {
        match result {
            Ok(summary) => {
                self.sources.rows.set_state(number, SourceState::Done);
                self.summaries.push(summary);
            }
            Err(error) => fail(self.sources, number, error, &mut self.errors),
        }
    }

    /// Ten times a second: how far it is, and whether it goes on.
    fn look(&mut self) -> Result<(), Error> {
        let written = self.board.mine().written;
        let (total, _) = self.board.totals();
        if written != self.progressed.1 || written >= total {
            self.progressed = (Instant::now(), written);
        }
        if self.progressed.0.elapsed() >= self.options.stall {
            let seconds = self.options.stall.as_secs();
            let what = format!("nothing has come across for {seconds} s");
            return Err(Error::new(Class::Stalled, what)
                .advise("the same command goes on where this one stopped"));
        }
        self.recent.note(Instant::now(), written);
        self.sources.observer.progress(&self.progress());
        Ok(())
    }

    fn progress(&self) -> Progress {
        let status = self.board.mine();
        let (total_bytes, total_files) = self.board.totals();
        let rate_now = self.recent.rate();
        let missing = Bytes::new(total_bytes.saturating_sub(status.written));
        let moved = status.written.saturating_sub(self.resumed);
        let sum = self.sources.rows.total();
        Progress {
            bytes: status.written,
            total_bytes,
            files: status.files,
            total_files,
            rate_now,
            rate_average: over(moved, self.sources.rows.started().elapsed()),
            left: (rate_now > Rate::ZERO && total_bytes > 0).then(|| missing / rate_now),
            resumed_bytes: self.resumed,
            ..sum
        }
    }

    fn summary(&self, outcome: &Outcome) -> Summary {
        let mut whole = summing::of_flows(&self.summaries, &self.sources.rows);
        let (bytes, files) = self.board.totals();
        let moved = self.board.mine().written.saturating_sub(self.resumed);
        let failed_files = outcome.failed_count.max(self.failed_files);
        whole.bytes = bytes;
        whole.files = files;
        whole.goodput = Bytes::new(moved) / whole.elapsed;
        whole.resumed_bytes = outcome.resumed_bytes;
        whole.skipped_files = outcome.skipped;
        whole.failed_files = failed_files;
        whole.unread_files = if self.options.checksum { 0 } else { outcome.skipped };
        whole.verified = failed_files == 0 && whole.unread_files == 0;
        whole.blake3 = hex(&outcome.digest);
        whole
    }
}
