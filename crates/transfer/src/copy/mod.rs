//! The client's side of a copy, from the request to the summary, over one or more sessions.
//!
//! - `attempt` copies over one session, `first_flight` sends data before the session is open,
//!   `remembered` handles the path's properties from earlier copies, `udp_watchdog` detects that
//!   UDP no longer passes.
//! - `hooks` passes events to the user and cancels on request; `question` measures how long the
//!   user takes to answer; `summing` creates the summary, `observed` keeps the times of earlier
//!   attempts for it.
//! - `local` copies within this host, `http` copies from an HTTP server; both use `to_files`.
//! - `crate::many` runs a copy from several sources, with one session for each source.
//! - `pipe` copies content of unknown length in parts: `feed` reads the parts, `pipe_board` reports
//!   them.
//! - `rehearsal` is a session without a network, for the fuzzer.

mod attempt;
mod feed;
mod first_flight;
mod hooks;
mod http;
mod local;
mod observed;
mod pipe;
mod pipe_board;
mod question;
mod rehearsal;
mod remembered;
mod summing;
mod to_files;
mod udp_watchdog;

use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_proto::units::Bytes;
use longhaul_text::CallOption;

use crate::error::{Error, ErrorKind};
use crate::flow::shared_core::SharedCore;
use crate::many::part::CopyPart;
use crate::many::{self, OneCopy};
use crate::notices::interrupted;
use crate::options::{CopyOptions, Receive, TCP_STREAMS};
use crate::progress::{Cancel, Notice, Observer};
use crate::reach::route::Route;
use crate::reach::transport::{FIRST_PAUSE, LONGEST_PAUSE, Transport, first_transport};
use crate::reactor;
use crate::roles::wire::End;
use crate::summary::Summary;
use crate::write::budget::Budget;
use attempt::Attempt;

pub use crate::many::{Answer as SurveyAnswer, Found as SurveyFound};
#[doc(hidden)]
pub use rehearsal::rehearse;

/// Copies files; blocks until the copy ends.
///
/// # Errors
/// [`Error`] says why the copy ended. If only some of several sources fail, the summary names them;
/// if all fail, the copy returns an error.
pub fn copy(
    options: CopyOptions,
    observer: Arc<dyn Observer>,
    cancel: Cancel,
) -> Result<Summary, Error> {
    check_delete(&options)?;
    if local::is_local(&options) {
        return local::copy(options, observer, &cancel);
    }
    if http::is_asked(&options) {
        return http::copy(options, observer, &cancel);
    }
    let routes = Route::all(&options)?;
    check_input(&options, &routes)?;
    check_output(&options, &routes)?;
    check_dry_run(&options)?;
    reactor::block_on("the copy", async {
        match &routes[..] {
            [route] if options.input.is_some() => {
                pipe::push(options.clone(), route, observer, cancel, one).await
            }
            [route] => {
                // A copy that only sends needs no memory for received data, so `options.memory` may
                // be below the minimum of a budget.
                let (least, core) = match route {
                    Route::Push { .. } => (Budget::least_of(1), None),
                    Route::Pull { .. } => {
                        let core = SharedCore::of_copy(&options.protocol);
                        (Bytes::ZERO, core.map(|core| core.limited(options.rate_limit)))
                    }
                };
                let part = CopyPart::alone(Budget::of_copy(&options, least, 1)?, core);
                run(&options, route, observer, cancel, part).await
            }
            _ => many::run(&options, &routes, &observer, &cancel, one).await,
        }
    })
}

fn check_input(options: &CopyOptions, routes: &[Route]) -> Result<(), Error> {
    match options.input.is_some() && routes.len() != 1 {
        true => Err(Error::new(ErrorKind::Usage, "a reader must be the only source")),
        false => Ok(()),
    }
}

/// Checks that a copy with deletion makes one folder equal to one other folder.
fn check_delete(options: &CopyOptions) -> Result<(), Error> {
    let is_one = options.sources.len() == 1 && options.recursive && !options.replicas;
    let is_kept = options.receive != Receive::Fake
        && options.input.is_none()
        && options.output.is_none()
        && options.local.is_none();
    if options.delete.is_none() || is_one && is_kept {
        return Ok(());
    }
    let what = "names are deleted only if one whole folder is copied to files";
    Err(Error::new(ErrorKind::Usage, what))
}

fn check_dry_run(options: &CopyOptions) -> Result<(), Error> {
    if !options.dry_run || options.receive != Receive::Fake {
        return Ok(());
    }
    let (dry_run, receive) = (CallOption::DryRun, CallOption::Receive);
    let what = format!("{receive} fake writes nothing, so a dry run has no plan");
    Err(Error::new(ErrorKind::Usage, what).advise(format!("omit {dry_run} or {receive}")))
}

fn check_output(options: &CopyOptions, routes: &[Route]) -> Result<(), Error> {
    let is_one = matches!(routes, [Route::Pull { sources, .. }] if sources.len() == 1);
    if options.output.is_none() || is_one && !options.recursive {
        return Ok(());
    }
    let what = "an output takes one file of another host";
    Err(Error::new(ErrorKind::Usage, what).advise("name one source, and no folder"))
}

/// Copies from one of several sources, or copies one part of a pipe.
fn one(
    options: CopyOptions,
    route: Route,
    observer: Arc<dyn Observer>,
    cancel: Cancel,
    part: CopyPart,
) -> OneCopy {
    Box::pin(async move { run(&options, &route, observer, cancel, part).await })
}

async fn run(
    options: &CopyOptions,
    route: &Route,
    observer: Arc<dyn Observer>,
    cancel: Cancel,
    part: CopyPart,
) -> Result<Summary, Error> {
    let mut attempt = Attempt::new(options, route, observer.clone(), cancel.clone(), part)?;
    let mut transport = first_transport(options);
    if options.receive == Receive::Fake {
        let receive = CallOption::Receive;
        let what =
            format!("with {receive} fake, the receiver only counts datagrams; no file is written");
        observer.notice(Notice::Warning(what));
    }
    let mut fell_back = false;
    let mut lost_since: Option<Instant> = None;
    let mut pause = FIRST_PAUSE;
    loop {
        let before = attempt.progress();
        let result = attempt.run(transport).await;
        attempt.hooks.report_last();
        let (reason, notice) = match result {
            Ok(finished) => match attempt.hooks.read_again() {
                Some(changed) => {
                    observer.notice(Notice::Warning(changed));
                    continue;
                }
                None => {
                    return Ok(attempt.remember(summing::summary(options, &attempt, finished)?));
                }
            },
            // The server cannot be reached over TCP either. Its control stream over QUIC worked,
            // and now carries the data.
            Err(End::Fatal(error))
                if fell_back && error.kind == ErrorKind::Unreachable && !attempt.was_refused() =>
            {
                fell_back = false;
                transport = Transport::Streams(0);
                observer.notice(attempt.fallback_notice(0));
                continue;
            }
            Err(End::Fatal(error)) => {
                return match (lost_since, error.kind) {
                    // The server accepted an earlier connection, so it may become reachable again.
                    (Some(_), ErrorKind::Unreachable) if !attempt.was_refused() => {
                        take_up(&mut lost_since, options, &error.to_string())?;
                        rest(&mut pause, &cancel).await?;
                        continue;
                    }
                    _ => Err(error),
                };
            }
            Err(End::NoDatagrams) => {
                fell_back = true;
                transport = Transport::Streams(TCP_STREAMS);
                observer.notice(attempt.fallback_notice(TCP_STREAMS));
                continue;
            }
            Err(End::Lost(reason)) => (reason.clone(), Notice::Reconnecting { reason }),
            Err(End::Busy(reason)) => (reason.clone(), Notice::Busy { reason }),
        };
        if attempt.progress() > before {
            (lost_since, pause) = (None, FIRST_PAUSE);
        }
        take_up(&mut lost_since, options, &reason)?;
        observer.notice(notice);
        rest(&mut pause, &cancel).await?;
    }
}

async fn rest(pause: &mut Duration, cancel: &Cancel) -> Result<(), Error> {
    tokio::select! {
        () = tokio::time::sleep(*pause) => {}
        () = cancel.wished() => return Err(interrupted()),
    }
    *pause = (*pause * 2).min(LONGEST_PAUSE);
    Ok(())
}

/// Decides whether to retry a lost connection.
fn take_up(
    lost_since: &mut Option<Instant>,
    options: &CopyOptions,
    reason: &str,
) -> Result<(), Error> {
    let since = *lost_since.get_or_insert_with(Instant::now);
    if since.elapsed() < options.retry_for {
        return Ok(());
    }
    let seconds = options.retry_for.as_secs();
    let what = format!("the copy was interrupted and not restored within {seconds} s: {reason}");
    let retry_for = CallOption::RetryFor;
    Err(Error::new(ErrorKind::Unfinished, what).advise(format!(
        "run the same command again to resume, and raise {retry_for} to wait longer"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Trust;

    #[test]
    fn the_error_after_the_last_retry_advises_more_time_for_retries() {
        let trust = Trust { config_dir: "c".into(), pins: Vec::new(), accept_new: false };
        let (from, to) = ("far:x".parse().unwrap(), "y".parse().unwrap());
        let mut options = CopyOptions::new(vec![from], to, trust);
        options.retry_for = Duration::from_secs(60);
        let since = Instant::now();
        assert!(take_up(&mut Some(since), &options, "lost").is_ok());
        options.retry_for = Duration::ZERO;
        let error = take_up(&mut Some(since), &options, "lost").unwrap_err();
        let advice = error.advice.expect("it has advice");
        assert!(advice.contains("to resume") && advice.contains("raise `retry_for`"), "{advice}");
    }

    #[test]
    fn a_cancellation_ends_the_pause_between_two_attempts() {
        let cancel = Cancel::default();
        let wishing = cancel.clone();
        let ended = reactor::block_on("a test", async move {
            tokio::task::spawn_local(async move { wishing.cancel() });
            rest(&mut Duration::from_secs(3600), &cancel).await
        });
        assert_eq!(ended.unwrap_err().kind, ErrorKind::Cancelled);
    }
}
