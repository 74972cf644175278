//! Opens files when this process, or the host, has no file descriptor left.
//!
//! An open that gets no descriptor waits for one until a timeout. A waiting open retries after each
//! `Handle` that this process closes, and also at intervals, because sockets and other processes
//! free descriptors too. The limit of descriptors applies to the whole process, so the process
//! has one queue of waiting opens.

use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// Timeout of an open, shorter than the default stall limit of a copy (60 s).
const PATIENCE: Duration = Duration::from_secs(20);
/// Interval of retries for descriptors that are freed without a notification.
const LOOK: Duration = Duration::from_millis(100);

/// Divisor of this process's limit of descriptors. The quotient limits the number of idle files or
/// folders of one kind that a transfer keeps open.
const PARTS: usize = 16;

/// The waiting opens of this process.
static RETURNED: Desk = Desk::new();

/// A queue of opens that wait for a descriptor.
struct Desk {
    waiting: AtomicUsize,
    lock: Mutex<()>,
    bell: Condvar,
}

/// Opens something, and waits for a descriptor if there is none.
pub(super) fn patiently<T>(open: impl FnMut() -> Result<T, Errno>) -> io::Result<T> {
    Ok(RETURNED.wait(PATIENCE, LOOK, open)?)
}

/// Returns the number of idle files that may stay open: at most `most`, and at most a 16th of this
/// process's limit, but at least 1. While an open waits, the result is 1.
pub(crate) fn kept(most: usize) -> usize {
    static LIMIT: OnceLock<usize> = OnceLock::new();
    let limit = LIMIT.get_or_init(|| {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        usize::try_from(limit).unwrap_or(usize::MAX)
    });
    share(most, RETURNED.waiting.load(Ordering::SeqCst), *limit)
}

fn share(most: usize, waiting: usize, limit: usize) -> usize {
    if waiting == 0 { most.min(limit / PARTS).max(1) } else { 1 }
}

/// A file or folder whose close wakes all waiting opens.
#[derive(Debug)]
pub(super) struct Handle<T>(Option<T>);

impl<T> Handle<T> {
    pub(super) fn new(open: T) -> Handle<T> {
        Handle(Some(open))
    }
}

impl<T> Deref for Handle<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("it is open until it is dropped")
    }
}

impl<T: AsFd> AsFd for Handle<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        (**self).as_fd()
    }
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        drop(self.0.take());
        RETURNED.ring();
    }
}

fn is_want(error: Errno) -> bool {
    matches!(error, Errno::MFILE | Errno::NFILE)
}

impl Desk {
    const fn new() -> Desk {
        Desk { waiting: AtomicUsize::new(0), lock: Mutex::new(()), bell: Condvar::new() }
    }

    fn wait<T>(
        &self,
        patience: Duration,
        look: Duration,
        mut open: impl FnMut() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match open() {
            Err(error) if is_want(error) => {}
            opened => return opened,
        }
        let until = Instant::now() + patience;
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = loop {
            // Open under the lock, so that a descriptor freed afterwards wakes this thread.
            let opened = open();
            let left = until.saturating_duration_since(Instant::now());
            let goes_on = matches!(&opened, Err(error) if is_want(*error)) && !left.is_zero();
            if !goes_on {
                break opened;
            }
            let waited = self.bell.wait_timeout(guard, left.min(look));
            guard = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        opened
    }

    fn ring(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.bell.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc;
    use std::thread;

    use longhaul_testbed::alone;

    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn an_open_without_a_descriptor_waits_until_one_is_closed() {
        let (desk, is_free) = (Desk::new(), AtomicBool::new(false));
        let (tried, has_tried) = mpsc::channel();
        thread::scope(|scope| {
            let opening = scope.spawn(|| {
                desk.wait(LONG, LONG, || {
                    let is_free = is_free.load(Ordering::SeqCst);
                    let _ = tried.send(());
                    if is_free { Ok(7) } else { Err(Errno::MFILE) }
                })
            });
            // The second attempt is under the lock: after it the thread waits for the wake-up.
            (0..2).for_each(|_| has_tried.recv().expect("it tries"));
            is_free.store(true, Ordering::SeqCst);
            desk.ring();
            assert_eq!(opening.join().expect("no panic"), Ok(7));
        });
        assert_eq!(desk.waiting.load(Ordering::SeqCst), 0);
    }

    /// Runs in a separate process, because [`kept`] returns 1 in the whole process while an open
    /// waits.
    #[test]
    fn a_closed_file_wakes_an_open_that_waits() {
        const ALONE: &str = "LONGHAUL_TEST_WAKE";
        if std::env::var_os(ALONE).is_none() {
            let name = "store::scarce::tests::a_closed_file_wakes_an_open_that_waits";
            let output = alone::command(name).env(ALONE, "1").output().expect("it starts");
            return alone::assert_passed(&output);
        }
        static IS_FREE: AtomicBool = AtomicBool::new(false);
        let (tried, has_tried) = mpsc::channel();
        let (opened, has_opened) = mpsc::channel();
        thread::spawn(move || {
            let is_open = RETURNED.wait(LONG, LONG, || {
                let is_free = IS_FREE.load(Ordering::SeqCst);
                let _ = tried.send(());
                if is_free { Ok(()) } else { Err(Errno::MFILE) }
            });
            opened.send(is_open)
        });
        (0..2).for_each(|_| has_tried.recv().expect("it tries"));
        IS_FREE.store(true, Ordering::SeqCst);
        drop(Handle::new(7));
        let is_open = has_opened.recv_timeout(Duration::from_secs(20));
        assert_eq!(is_open, Ok(Ok(())), "only a wake-up ends the wait before its timeout");
    }

    #[test]
    fn an_open_without_a_descriptor_retries_until_it_succeeds_or_times_out() {
        let desk = Desk::new();
        let mut attempts = 0;
        let opened = desk.wait(LONG, Duration::from_millis(1), || {
            attempts += 1;
            if attempts > 5 { Ok(attempts) } else { Err(Errno::NFILE) }
        });
        assert_eq!(opened, Ok(6));
        let refused = desk.wait(Duration::ZERO, LONG, || Err::<(), _>(Errno::MFILE));
        assert_eq!(refused, Err(Errno::MFILE));
    }

    #[test]
    fn an_open_that_fails_for_another_reason_is_not_retried() {
        let mut attempts = 0;
        let failed = Desk::new().wait(Duration::ZERO, LONG, || {
            attempts += 1;
            Err::<(), _>(Errno::NOENT)
        });
        assert_eq!((failed, attempts), (Err(Errno::NOENT), 1));
    }

    #[test]
    fn idle_files_take_a_16th_of_the_descriptors_at_most_and_a_single_one_while_an_open_waits() {
        assert_eq!([share(64, 0, 1024), share(64, 0, 1023), share(64, 0, 4096)], [64, 63, 64]);
        assert_eq!([share(64, 0, 15), share(64, 1, 1024), share(0, 0, 1024)], [1, 1, 1]);
        assert!((1..=7).contains(&kept(7)));
    }
}
