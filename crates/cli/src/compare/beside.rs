//! Measures how a copy and one TCP connection share a real path. The two start together, and are
//! measured until one of them ends.

use std::sync::Arc;

use longhaul::{CancelHandle, CopyRequest, Event, Protocol, Receive, blocking};

use super::course::Course;
use super::runs::Shares;
use crate::error::{Error, ErrorKind};

pub(super) const NOTE: &str = "beside TCP: goodput of the copy + goodput of one TCP connection, \
                               and TCP's share of the sum. Both start together and are measured \
                               until one of them ends, in a separate run that writes nothing. \
                               Shares of copies shorter than a second are coarse: progress is \
                               reported ten times a second";

/// Goodputs of `copy` and of one concurrent TCP connection.
pub(super) fn shares(copy: &CopyRequest, cancel: &CancelHandle) -> Result<Shares, Error> {
    // Neither receiver writes anything: `ours` and `tcp` would write to the same path.
    let ours = copy.clone().receive(Receive::Fake).cancel_with(cancel);
    let tcp = ours.clone().protocol(Protocol::Tcp { streams: 1 }).rate(None);
    let (course, beside) = (Arc::new(Course::new()), Arc::new(Course::new()));
    let mut tcp = tcp.on_event(noting(&beside)).start()?;
    let ours = blocking::wait(ours.on_event(noting(&course)).start()?.finish());
    tcp.cancel_handle().cancel();
    let tcp = blocking::wait(tcp.finish());
    let mut until = course.done(&ours?);
    match tcp {
        Ok(summary) => until = until.min(beside.done(&summary)),
        Err(error) if error.kind == ErrorKind::Cancelled => {}
        Err(error) => return Err(error.into()),
    }
    Ok(Shares { copy: course.rate(until), tcp: beside.rate(until) })
}

fn noting(course: &Arc<Course>) -> impl Fn(Event) + Send + Sync + 'static {
    let course = course.clone();
    move |event| {
        if let Event::Progress(progress) = event {
            course.note(progress.bytes);
        }
    }
}
