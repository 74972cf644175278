//! A copy from several hosts at the same time.
//!
//! Each source is a copy with its own session and retries. The sources share one memory limit, and
//! one data port for each address family. With a protocol for many senders, such as GTP, they also
//! share one receiving core (protocol state machine). The module `part` holds the shared state.
//!
//! | module | does |
//! | --- | --- |
//! | `parts` | copies different objects |
//! | `replicas` | copies one object that all sources have |
//! | `survey`, `looks` | ask one source, or all, for the hashes of their object |
//! | `agree` | finds the version that more than half of the sources have |
//! | `leases` | assigns chunks to replicas |
//! | [`writer`] | writes the chunks that replicas send |
//! | `standstill`, `slow` | detect a copy without progress, or a source that became slow |
//! | `rows`, `summing` | make the progress rows and the summary |

mod agree;
mod leases;
mod looks;
pub(crate) mod part;
mod parts;
mod replicas;
mod rows;
mod slow;
mod standstill;
mod summing;
mod survey;
#[cfg(test)]
mod tests;
pub(crate) mod writer;

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use longhaul_proto::endpoint::ReceiveCapacity;
use longhaul_proto::settings::Settings;
use tokio::task::JoinSet;

use longhaul_text::CallOption;

use crate::error::{Error, ErrorKind};
use crate::flow::shared_core::SharedCore;
use crate::options::CopyOptions;
use crate::progress::{Cancel, Notice, Observer};
use crate::reach::DataPorts;
use crate::reach::route::{Host, Route};
use crate::summary::Summary;
use crate::write::budget::Budget;
use crate::write::claims::Claims;
use crate::write::writer as plain;
use part::{CopyPart, Shared, To};
use rows::Rows;

pub use survey::{Answer, Found};

/// Maximum number of threads that write the data of different objects.
const WRITERS: usize = 4;

pub(crate) type OneCopy = Pin<Box<dyn Future<Output = Result<Summary, Error>>>>;

pub(crate) type StartOne = fn(CopyOptions, Route, Arc<dyn Observer>, Cancel, CopyPart) -> OneCopy;

pub(crate) async fn run(
    options: &CopyOptions,
    routes: &[Route],
    observer: &Arc<dyn Observer>,
    cancel: &Cancel,
    one: StartOne,
) -> Result<Summary, Error> {
    let sources = Sources::new(options, routes, observer, cancel, one)?;
    match options.replicas {
        true => replicas::run(options, &sources).await,
        false => parts::run(options, &sources).await,
    }
}

/// Returns one summary for several copies of different objects, such as the parts of a pipe.
pub(crate) fn summary_of_parts(summaries: &[Summary]) -> Summary {
    summing::of_parts(summaries, 0, &Rows::new(Vec::new()))
}

struct Sources<'a> {
    routes: &'a [Route],
    options: Vec<CopyOptions>,
    shared: Rc<Shared>,
    rows: Arc<Rows>,
    observer: Arc<dyn Observer>,
    cancel: Cancel,
    one: StartOne,
}

type Ended = (usize, Result<Summary, Error>);

impl<'a> Sources<'a> {
    fn new(
        options: &CopyOptions,
        routes: &'a [Route],
        observer: &Arc<dyn Observer>,
        cancel: &Cancel,
        one: StartOne,
    ) -> Result<Sources<'a>, Error> {
        let names: Vec<String> = routes.iter().map(|route| name(options, route)).collect();
        let of_each = routes.iter().enumerate();
        let of_each = of_each.map(|(number, route)| options_of(options, route, number)).collect();
        // Each source needs memory for the data that may be sent before any grant.
        let least = Budget::least_of(routes.len() as u64);
        if options.shared_memory.is_none() && options.memory < least {
            observer.notice(Notice::Warning(format!(
                "{} sources need {least} of memory, more than the {} of {}: the copy uses \
                 {least}; copy from fewer at a time to need less",
                routes.len(),
                options.memory,
                CallOption::Memory
            )));
        }
        let core = SharedCore::of_copy(&options.protocol);
        let shared = Shared {
            left: Arc::default(),
            sources: routes.len() as u64,
            memory: Budget::of_copy(options, least, routes.len() as u32)?,
            ports: Some(DataPorts::default()),
            core: core.map(|core| core.limited(options.rate_limit)),
            writers: match options.replicas {
                true => Vec::new(),
                false => {
                    let count = routes.len().min(WRITERS);
                    (0..count).map(|_| plain::thread()).collect::<Result<_, _>>()?
                }
            },
            claims: (!options.replicas).then(|| Claims::new(names.clone())),
        };
        Ok(Sources {
            routes,
            options: of_each,
            shared: Rc::new(shared),
            rows: Arc::new(Rows::new(names)),
            observer: observer.clone(),
            cancel: cancel.clone(),
            one,
        })
    }

    fn observer_of(&self, number: usize) -> Arc<dyn Observer> {
        rows::observer(&self.rows, number, &self.observer)
    }

    fn part(&self, number: usize) -> CopyPart {
        let (to, reached) = (To::Files, None.into());
        CopyPart { shared: self.shared.clone(), number, to, reached }
    }

    fn capacity(&self) -> Option<ReceiveCapacity> {
        self.shared.core.as_ref()?.capacity()
    }

    fn start(&self, tasks: &mut JoinSet<Ended>, part: CopyPart) {
        let number = part.number;
        let (options, route) = (self.options[number].clone(), self.routes[number].clone());
        let (observer, cancel) = (self.observer_of(number), self.cancel.clone());
        let copy = (self.one)(options, route, observer, cancel, part);
        tasks.spawn_local(async move { (number, copy.await) });
    }
}

fn paths(route: &Route) -> &[std::path::PathBuf] {
    match route {
        Route::Push { sources, .. } | Route::Pull { sources, .. } => sources,
    }
}

/// Names a route by its first path, as the user wrote it, and by the number of its other paths.
fn name(options: &CopyOptions, route: &Route) -> String {
    let [path, more @ ..] = paths(route) else { return route.host().to_string() };
    let location = options.sources.iter().find(|location| {
        Host::of(location).as_ref() == Some(route.host()) && location.path() == path
    });
    let first = location.map_or_else(|| route.host().to_string(), ToString::to_string);
    match more.len() {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

fn options_of(options: &CopyOptions, route: &Route, number: usize) -> CopyOptions {
    let first = match options.replicas {
        true => Some(number),
        false => {
            let hosts = options.sources.iter().map(Host::of);
            hosts.into_iter().position(|host| host.as_ref() == Some(route.host()))
        }
    };
    let settings: Option<&Settings> = first.and_then(|n| options.source_settings.get(n));
    let mut own = options.clone();
    own.settings = settings.unwrap_or(&options.settings).clone();
    if options.replicas {
        // If one source stalls, the other sources deliver its chunks. So no source has a stall
        // limit of its own; [`Standstill`] limits the whole copy.
        own.stall = std::time::Duration::MAX;
    }
    own
}

/// Returns the error of a copy whose sources all failed: the first of `errors`, with the name of
/// its source.
fn all_failed(errors: &[(String, Error)]) -> Error {
    let lost = || Error::new(ErrorKind::Unfinished, "the sources ended too early");
    errors.first().map_or_else(lost, |(source, error)| Error {
        what: format!("{source}: {}", error.what),
        ..error.clone()
    })
}
