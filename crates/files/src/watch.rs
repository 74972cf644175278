//! Progress and cancellation of long work on files.
//!
//! Walking a tree, or hashing and comparing existing data, takes as long as the disk needs. The
//! count of steps distinguishes this work from a disk that does not answer.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The progress of long work on files at the sender or at the receiver of a copy. Clones refer to
/// the same work.
#[derive(Clone, Debug, Default)]
pub struct Watch(Arc<Watched>);

#[derive(Debug, Default)]
struct Watched {
    looked: AtomicU64,
    over: AtomicBool,
    held: Mutex<Option<Held>>,
    warning: Mutex<Option<String>>,
}

/// A file that another copy has locked, so that this copy waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The file, as text.
    pub path: String,
    /// How long to wait for the end of that copy.
    pub patience: Duration,
}

impl Watch {
    /// Counts one more examined name, or one more chunk read.
    pub fn step(&self) {
        self.0.looked.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a step, and tells the caller to stop if the work was cancelled.
    ///
    /// # Errors
    /// The work was cancelled.
    pub fn go_on(&self) -> io::Result<()> {
        self.step();
        match self.is_over() {
            true => Err(io::Error::other("the copy has ended")),
            false => Ok(()),
        }
    }

    /// Returns the number of steps so far.
    pub fn looked(&self) -> u64 {
        self.0.looked.load(Ordering::Relaxed)
    }

    /// Cancels the work.
    pub fn end(&self) {
        self.0.over.store(true, Ordering::Relaxed);
    }

    /// Returns whether the work was cancelled.
    pub fn is_over(&self) -> bool {
        self.0.over.load(Ordering::Relaxed)
    }

    pub(crate) fn report_held(&self, held: Held) {
        *self.0.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(held);
    }

    /// Returns the file that this copy waits for. Returns each report only once.
    pub fn take_held(&self) -> Option<Held> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn warn(&self, text: String) {
        *self.0.warning.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }

    /// Returns the latest warning for the user. Returns each warning only once.
    pub fn take_warning(&self) -> Option<String> {
        self.0.warning.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_counted_and_fail_after_a_cancellation() {
        let watch = Watch::default();
        watch.step();
        assert!(watch.go_on().is_ok() && !watch.is_over());
        assert_eq!(watch.looked(), 2);
        watch.clone().end();
        assert!(watch.is_over() && watch.go_on().is_err());
        assert_eq!(watch.looked(), 3);
    }

    #[test]
    fn a_locked_file_is_reported_once() {
        let watch = Watch::default();
        let held = Held { path: "x".to_owned(), patience: Duration::from_secs(3) };
        watch.report_held(held.clone());
        assert_eq!((watch.take_held(), watch.take_held()), (Some(held), None));
    }
}
