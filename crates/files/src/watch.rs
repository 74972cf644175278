//! Long work at files: how far it is, for who waits for it, and whether anybody still does.
//!
//! Walking a tree, hashing what an earlier run left or comparing it takes as long as the disk
//! needs, and brings nothing across meanwhile. Who waits can tell such work from a disk that does
//! not answer only if each step of it is counted.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Watches the long work of one end of a copy. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Watch(Arc<Watched>);

#[derive(Debug, Default)]
struct Watched {
    looked: AtomicU64,
    over: AtomicBool,
    held: Mutex<Option<Held>>,
}

/// A file that another copy has at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The file, for people.
    pub path: String,
    /// How long its end is waited for.
    pub patience: Duration,
}

impl Watch {
    /// One more name was looked at, or one more chunk was read.
    pub fn step(&self) {
        self.0.looked.fetch_add(1, Ordering::Relaxed);
    }

    /// The same of work that is left off when nobody waits for it any more.
    ///
    /// # Errors
    /// Nobody does.
    pub fn go_on(&self) -> io::Result<()> {
        self.step();
        match self.is_over() {
            true => Err(io::Error::other("the copy has ended")),
            false => Ok(()),
        }
    }

    /// Steps so far.
    pub fn looked(&self) -> u64 {
        self.0.looked.load(Ordering::Relaxed)
    }

    /// Nobody waits any more.
    pub fn end(&self) {
        self.0.over.store(true, Ordering::Relaxed);
    }

    /// Whether nobody waits any more.
    pub fn is_over(&self) -> bool {
        self.0.over.load(Ordering::Relaxed)
    }

    /// Tells who waits of a file that is waited for.
    pub(crate) fn tell_held(&self, held: Held) {
        *self.0.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(held);
    }

    /// The file that is waited for, once.
    pub fn take_held(&self) -> Option<Held> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_counts_and_none_goes_on_after_the_end() {
        let watch = Watch::default();
        watch.step();
        assert!(watch.go_on().is_ok() && !watch.is_over());
        assert_eq!(watch.looked(), 2);
        watch.clone().end();
        assert!(watch.is_over() && watch.go_on().is_err());
        assert_eq!(watch.looked(), 3);
    }

    #[test]
    fn a_held_file_is_told_once() {
        let watch = Watch::default();
        let held = Held { path: "x".to_owned(), patience: Duration::from_secs(3) };
        watch.tell_held(held.clone());
        assert_eq!((watch.take_held(), watch.take_held()), (Some(held), None));
    }
}
