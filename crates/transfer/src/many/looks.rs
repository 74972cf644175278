//! Surveys all replicas (requests the hashes of their objects), each in a separate task.
//!
//! The copy begins soon after more than half of the named sources agree, or when each source has
//! been tried. The surveys of the other sources continue, with retries as [`CopyOptions`] allows. A
//! source takes part as soon as its object is known to be the same.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::Sources;
use super::agree::votes;
use super::part::Shared;
use super::replicas::{TICK, fail};
use super::rows::Rows;
use super::survey::{Found, survey};
use crate::error::{Error, ErrorKind};
use crate::notices::interrupted;
use crate::options::CopyOptions;
use crate::progress::{Notice, Observer, Progress, SourceState};
use crate::reach::route::Route;
use crate::reach::transport::{FIRST_PAUSE, LONGEST_PAUSE, first_transport};
use crate::reach::{Reached, SizeSearch, reach};
use crate::session::{Identity, Settings};

/// Lower and upper limit of the extra time for the other sources after a majority agrees. Between
/// these limits, the extra time equals the time that the majority took.
const GRACE: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];

pub(super) struct Looked {
    pub(super) found: Found,
    pub(super) reached: Reached,
}

pub(super) enum Look {
    /// The survey failed for the first time and will be tried again.
    Trouble(Error),
    /// The survey succeeded, or failed for good.
    Ended(Result<Box<Looked>, Error>),
}

pub(super) struct Looks {
    results: UnboundedReceiver<(usize, Look)>,
    /// Sources without a final result, each with its first error, if it had one.
    pending: BTreeMap<usize, Option<Error>>,
    _tasks: JoinSet<()>,
}

impl Looks {
    pub(super) fn start(options: &CopyOptions, sources: &Sources<'_>) -> Result<Looks, Error> {
        let identity = options.key.identity()?;
        let (report, results) = unbounded_channel();
        let mut tasks = JoinSet::new();
        for (number, route) in sources.routes.iter().enumerate() {
            let looking = Looking {
                number,
                identity: identity.clone(),
                options: sources.options[number].clone(),
                stall: options.stall,
                route: route.clone(),
                shared: sources.shared.clone(),
                rows: sources.rows.clone(),
                observer: sources.observer_of(number),
                report: report.clone(),
            };
            tasks.spawn_local(looking.run());
        }
        let pending = (0..sources.routes.len()).map(|number| (number, None)).collect();
        Ok(Looks { results, pending, _tasks: tasks })
    }

    /// Returns the next result. Waits forever after the last.
    pub(super) async fn next(&mut self) -> (usize, Look) {
        let Some((number, look)) = self.results.recv().await else {
            return std::future::pending().await;
        };
        match &look {
            Look::Trouble(error) => {
                self.pending.insert(number, Some(error.clone()));
            }
            Look::Ended(_) => {
                self.pending.remove(&number);
            }
        }
        (number, look)
    }

    pub(super) fn are_over(&self) -> bool {
        self.results.is_closed() && self.results.is_empty()
    }

    /// Returns whether each source has been tried once.
    fn are_tried(&self) -> bool {
        self.are_over() || self.pending.values().all(Option::is_some)
    }

    /// Returns the sources whose survey failed and will be tried again, each with its first error.
    pub(super) fn in_trouble(&self) -> Vec<(usize, Error)> {
        let one = |(number, error): (&usize, &Option<Error>)| Some((*number, error.clone()?));
        self.pending.iter().filter_map(one).collect()
    }
}

pub(super) struct First {
    pub(super) found: Vec<(usize, String, Found)>,
    pub(super) reached: BTreeMap<usize, Reached>,
    /// Sources that failed for good.
    pub(super) errors: Vec<(String, Error)>,
}

/// Waits until enough sources are surveyed to begin.
pub(super) async fn first(sources: &Sources<'_>, looks: &mut Looks) -> Result<First, Error> {
    let (found, reached, errors) = (Vec::new(), BTreeMap::new(), Vec::new());
    let mut first = First { found, reached, errors };
    let mut tick = tokio::time::interval(TICK);
    let mut enough = Enough::new(Instant::now());
    while !looks.are_tried() {
        let has_majority = 2 * votes(&first.found) > sources.routes.len();
        if enough.look(Instant::now(), has_majority) {
            break;
        }
        tokio::select! {
            (number, look) = looks.next() => match look {
                Look::Trouble(error) => report_trouble(sources, number, &error),
                Look::Ended(Ok(looked)) => {
                    let Looked { found, reached } = *looked;
                    first.found.push((number, sources.rows.name(number), found));
                    first.reached.insert(number, reached);
                }
                Look::Ended(Err(error)) => fail(sources, number, error, &mut first.errors),
            },
            () = sources.cancel.wished() => return Err(interrupted()),
            _ = tick.tick() => {
                let sources_now = sources.rows.table();
                let progress = Progress { sources: sources_now, ..Progress::default() };
                sources.observer.progress(&progress);
            }
        }
    }
    // Messages list the sources in the order of the command line.
    first.found.sort_by_key(|(number, ..)| *number);
    Ok(first)
}

struct Enough {
    started: Instant,
    until: Option<Instant>,
}

impl Enough {
    fn new(started: Instant) -> Enough {
        Enough { started, until: None }
    }

    /// Returns whether to begin now. `has_majority` says whether more than half agree.
    fn look(&mut self, now: Instant, has_majority: bool) -> bool {
        let took = now.duration_since(self.started);
        let until = || now + took.clamp(GRACE[0], GRACE[1]);
        has_majority && now >= *self.until.get_or_insert_with(until)
    }
}

pub(super) fn report_trouble(sources: &Sources<'_>, number: usize, error: &Error) {
    sources.rows.set_state(number, SourceState::Retrying);
    let (source, what) = (sources.rows.name(number), &error.what);
    let text = format!("{source} does not take part yet; longhaul will try it again: {what}");
    sources.observer.notice(Notice::Warning(text));
}

struct Looking {
    number: usize,
    identity: Identity,
    options: CopyOptions,
    stall: Duration,
    route: Route,
    shared: Rc<Shared>,
    rows: Arc<Rows>,
    observer: Arc<dyn Observer>,
    report: UnboundedSender<(usize, Look)>,
}

impl Looking {
    async fn run(self) {
        // The channel is closed only if `Looks` was dropped, which also ends this task.
        let report = |look| drop(self.report.send((self.number, look)));
        let (mut pause, mut failing) = (FIRST_PAUSE, None);
        loop {
            let error = match self.look().await {
                Ok(looked) => return report(Look::Ended(Ok(Box::new(looked)))),
                Err(error) => error,
            };
            let since = *failing.get_or_insert_with(Instant::now);
            if !may_pass(&error) || since.elapsed() >= self.options.retry_for {
                return report(Look::Ended(Err(error)));
            }
            if pause == FIRST_PAUSE {
                report(Look::Trouble(error));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn look(&self) -> Result<Looked, Error> {
        let Looking { options, route, .. } = self;
        let reach = reach(options, route, &self.identity, &*self.observer);
        let search =
            if options.datagram.is_some() { SizeSearch::No } else { SizeSearch::DuringHandshake };
        let ports = self.shared.ports.as_ref();
        let settings =
            Settings { carriers: first_transport(options).carriers(), ..Settings::default() };
        let mut reached = reach.open_on(ports, &settings, search).await?;
        self.rows.set_state(self.number, SourceState::Surveying);
        let asked = route.asked(options)?;
        let memory = Box::new(self.shared.memory.list());
        let found = survey(&mut reached.session, options, route, self.stall, memory).await?;
        asked.map_or(Ok(()), |asked| asked.admits(&found.manifest))?;
        Ok(Looked { found, reached })
    }
}

/// Returns whether a retry may succeed.
fn may_pass(error: &Error) -> bool {
    error.is_silence || matches!(error.kind, ErrorKind::Unfinished | ErrorKind::Stalled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(pending: &[(usize, bool)]) -> (UnboundedSender<(usize, Look)>, Looks) {
        let (report, results) = unbounded_channel();
        let error = || Error::new(ErrorKind::Unreachable, "nobody answers");
        let pending = pending.iter().map(|(number, tried)| (*number, tried.then(error)));
        let pending = pending.collect();
        (report, Looks { results, pending, _tasks: JoinSet::new() })
    }

    #[test]
    fn the_other_sources_get_as_much_extra_time_as_the_majority_took_within_limits() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut enough = Enough::new(start);
        assert!(!enough.look(at(900), false) && !enough.look(at(1000), true));
        assert!(!enough.look(at(1999), true) && enough.look(at(2000), true));
        // At least 500 ms and at most 2 s, however long the majority took.
        for (took, grace) in [(10, 500), (60_000, 2000)] {
            let mut enough = Enough::new(start);
            assert!(!enough.look(at(took), true) && !enough.look(at(took + grace - 1), true));
            assert!(enough.look(at(took + grace), true));
        }
    }

    #[test]
    fn silence_is_retried_and_a_refusal_is_not() {
        let of = |kind| Error::new(kind, "why");
        assert!(may_pass(&of(ErrorKind::Unfinished)) && may_pass(&of(ErrorKind::Stalled)));
        assert!(may_pass(&of(ErrorKind::Unreachable).silence()));
        for kind in
            [ErrorKind::Unreachable, ErrorKind::RemoteFile, ErrorKind::LocalFile, ErrorKind::Usage]
        {
            assert!(!may_pass(&of(kind)), "{kind:?}");
        }
    }

    #[test]
    fn all_sources_count_as_tried_when_each_has_answered_or_failed() {
        let (report, mut some) = looks(&[(0, true), (1, false)]);
        assert!(!some.are_tried() && !some.are_over());
        assert_eq!(some.in_trouble().len(), 1);
        let error = || Error::new(ErrorKind::Unreachable, "nobody answers");
        let _ = report.send((1, Look::Trouble(error())));
        let _ = report.send((0, Look::Ended(Err(error()))));
        crate::reactor::block_on("a test", async {
            some.next().await;
            assert!(some.are_tried());
            some.next().await;
            Ok(())
        })
        .unwrap();
        assert_eq!(some.in_trouble().iter().map(|(n, _)| *n).collect::<Vec<_>>(), [1]);
        drop(report);
        assert!(some.are_over());
    }
}
