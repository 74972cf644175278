//! How a copy and one TCP connection share a real path: both from the same start, in a run of
//! their own, until the first of the two has ended.

use std::sync::Arc;
use std::thread;

use longhaul_transfer::copy::copy;
use longhaul_transfer::error::{Class, Error};
use longhaul_transfer::options::{CopyOptions, Protocol, Receive};
use longhaul_transfer::progress::{Cancel, Notice, Observer, Progress};

use super::course::Course;
use super::runs::Shares;

/// What stands below a table with shares.
pub(super) const NOTE: &str = "beside TCP: the copy's goodput + that of a copy by one TCP \
                               connection, started together, until the first of them ended, in a \
                               run of its own that writes nothing; and TCP's share of both. It \
                               says little of less than a second, for what has come is told ten \
                               times in one";

/// What a copy like `options` and one TCP connection get.
///
/// # Errors
/// Whatever ended one of them before it was done, but for TCP that the copy was done.
pub(super) fn shares(options: &CopyOptions, cancel: &Cancel) -> Result<Shares, Error> {
    // Of two that write one object neither would be right.
    let ours = CopyOptions { receive: Receive::Fake, ..options.clone() };
    let tcp = CopyOptions { protocol: Protocol::Tcp { streams: 1 }, rate: None, ..ours.clone() };
    let (course, beside) = (Arc::new(Course::new()), Arc::new(Course::new()));
    let stop = Cancel::default();
    let (ours, tcp) = thread::scope(|scope| {
        let tcp = scope.spawn(|| copy(tcp, beside.clone(), stop.clone()));
        let ours = copy(ours, course.clone(), cancel.clone());
        stop.cancel();
        (ours, tcp.join().unwrap_or_else(|_| Err(died())))
    });
    let ours = ours?;
    let mut until = course.done(&ours);
    match tcp {
        Ok(summary) => until = until.min(beside.done(&summary)),
        Err(error) if error.class == Class::Interrupted => {}
        Err(error) => return Err(error),
    }
    Ok(Shares { copy: course.rate(until), tcp: beside.rate(until) })
}

fn died() -> Error {
    Error::new(Class::Unfinished, "the thread of the TCP copy died")
}

impl Observer for Course {
    fn progress(&self, progress: &Progress) {
        self.note(progress.bytes);
    }

    fn notice(&self, _: Notice) {}

    /// The run before this one has met the server.
    fn trust_new_server(&self, _: &str, _: &str) -> bool {
        false
    }
}
