//! How a copy and one TCP connection share a real path: both from the same start, in a run of
//! their own, until the first of the two has ended.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use longhaul_proto::units::Rate;
use longhaul_transfer::copy::copy;
use longhaul_transfer::error::{Class, Error};
use longhaul_transfer::options::{CopyOptions, Protocol, Receive};
use longhaul_transfer::progress::{Cancel, Notice, Observer, Progress};
use longhaul_transfer::summary::Summary;

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
    let (course, beside) = (Course::new(), Course::new());
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

/// How far a copy was, when: seconds since its start, bytes.
struct Course {
    started: Instant,
    points: Mutex<Vec<(f64, u64)>>,
}

impl Course {
    fn new() -> Arc<Course> {
        Arc::new(Course { started: Instant::now(), points: Mutex::default() })
    }

    /// A poisoned lock only means that a thread died while it told.
    fn with<T>(&self, act: impl FnOnce(&mut Vec<(f64, u64)>) -> T) -> T {
        act(&mut self.points.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The copy has ended so; when.
    fn done(&self, summary: &Summary) -> f64 {
        let end = summary.elapsed.as_secs_f64();
        self.with(|points| {
            points.retain(|(at, _)| *at < end);
            points.push((end, summary.bytes));
        });
        end
    }

    /// Goodput from the start until so many seconds after it.
    fn rate(&self, until: f64) -> Rate {
        let bytes = self.with(|points| at(points, until));
        Rate::from_bps_f64(if until > 0.0 { bytes * 8.0 / until } else { 0.0 })
    }
}

/// The bytes at a time, on straight lines between the points; what came after the last of them is
/// not known, and none.
fn at(points: &[(f64, u64)], time: f64) -> f64 {
    let mut before = (0.0, 0.0);
    for (at, bytes) in points {
        let here = (*at, *bytes as f64);
        if here.0 >= time && here.0 > before.0 {
            let part = (time - before.0) / (here.0 - before.0);
            return before.1 + part * (here.1 - before.1);
        }
        before = here;
    }
    before.1
}

impl Observer for Course {
    fn progress(&self, progress: &Progress) {
        let at = self.started.elapsed().as_secs_f64();
        self.with(|points| points.push((at, progress.bytes)));
    }

    fn notice(&self, _: Notice) {}

    /// The run before this one has met the server.
    fn trust_new_server(&self, _: &str, _: &str) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_come_is_told_between_the_looks_and_not_beyond_them() {
        let points = [(0.5, 100), (1.0, 200), (2.0, 600)];
        let found = [0.0, 0.25, 0.5, 1.5, 2.0, 9.0].map(|time| at(&points, time));
        assert_eq!(found, [0.0, 50.0, 100.0, 400.0, 600.0, 600.0]);
        assert_eq!(at(&[], 1.0), 0.0);
        assert_eq!(at(&[(0.0, 7)], 1.0), 7.0);
    }
}
