//! Copies sources with different objects into one folder.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use tokio::task::JoinSet;

use super::{Sources, all_failed, summing};
use crate::error::{Error, ErrorKind};
use crate::notices::interrupted;
use crate::options::CopyOptions;
use crate::progress::{Notice, SourceState};
use crate::reach::route::Route;
use crate::summary::Summary;
use longhaul_files::{Place, make_folders};
use longhaul_text::CallOption;
use longhaul_text::mkdir;

/// Interval of progress reports to the user.
const TICK: Duration = Duration::from_millis(100);

/// Copies from all sources; a source that fails does not stop the others.
pub(super) async fn run(options: &CopyOptions, sources: &Sources<'_>) -> Result<Summary, Error> {
    check_names(options)?;
    if let Some(Route::Pull { destination, .. }) = sources.routes.first() {
        check_folder(destination, options)?;
    }
    let mut tasks = JoinSet::new();
    for number in 0..sources.routes.len() {
        sources.start(&mut tasks, sources.part(number));
    }
    let (mut summaries, mut errors) = (Vec::new(), Vec::new());
    let mut tick = tokio::time::interval(TICK);
    loop {
        let ended = tokio::select! {
            ended = tasks.join_next() => ended,
            _ = tick.tick() => {
                sources.observer.progress(&sources.rows.total());
                continue;
            }
        };
        match ended {
            Some(Ok((number, Ok(summary)))) => {
                sources.rows.set_state(number, SourceState::Done);
                summaries.push(summary);
            }
            Some(Ok((number, Err(error)))) => {
                sources.rows.set_state(number, SourceState::Failed);
                let source = sources.rows.name(number);
                if error.kind != ErrorKind::Cancelled {
                    let (source, error) = (source.clone(), error.clone());
                    sources.observer.notice(Notice::SourceFailed { source, error });
                }
                errors.push((source, error));
            }
            // A panicked task does not name its source; the source counts as failed below.
            Some(Err(_)) => {}
            None => break,
        }
    }
    sources.observer.progress(&sources.rows.total());
    if errors.iter().any(|(_, error)| error.kind == ErrorKind::Cancelled) {
        return Err(interrupted());
    }
    if summaries.is_empty() {
        return Err(all_failed(&errors));
    }
    let failed = (sources.routes.len() - summaries.len()) as u64;
    let receives = sources.capacity();
    Ok(Summary { receives, ..summing::of_parts(&summaries, failed, &sources.rows) })
}

/// Checks that no two sources have the same name in the destination.
fn check_names(options: &CopyOptions) -> Result<(), Error> {
    let mut names = BTreeMap::new();
    for source in &options.sources {
        let place = Place::Ambient(source.path().to_owned());
        // A source with a slash at its end (or `.`) puts the content of the folder into the
        // destination. The names in the folder become known only later.
        let Some(name) = place.name().filter(|_| !place.says_folder()) else { continue };
        if let Some(other) = names.insert(name, source) {
            let name = place.name().map(|name| String::from_utf8_lossy(&name).into_owned());
            let what =
                format!("{other} and {source} have the same name, {}", name.unwrap_or_default());
            return Err(Error::new(ErrorKind::Usage, what).advise(format!(
                "copy one of the two into another folder; if both have the same content, add {}",
                CallOption::Replicas
            )));
        }
    }
    Ok(())
}

/// Checks that the destination is a folder. With `make_path`, first creates the folder; a dry run
/// then neither creates nor checks it. Called before any host is contacted.
fn check_folder(destination: &Path, options: &CopyOptions) -> Result<(), Error> {
    let place = Place::Ambient(destination.to_owned());
    if options.make_path && options.dry_run {
        return Ok(());
    }
    if options.make_path {
        make_folders(&place)?;
    }
    if place.is_folder()? {
        return Ok(());
    }
    let what =
        format!("{} is not a folder, but several sources need one as destination", place.shown());
    Err(Error::new(ErrorKind::LocalFile, what).at(place.named()).advise(mkdir(destination)))
}
