//! Keeps the processors awake while packets have to be punctual.
//!
//! A processor with nothing to do halts. On a virtual machine that gives it back to the host, which
//! may take milliseconds to return it: packets that were due meanwhile are late, although no
//! program of this machine had it. So a thread for each processor takes what nobody else wants.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use super::sys;

/// The threads; they end when this is dropped.
pub(super) struct Awake {
    ended: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Awake {
    /// Starts a thread for each processor that this process may use.
    ///
    /// Where a thread cannot be had, or may not be one that gives way to all others, the processors
    /// sleep as ever, and the account of late packets tells what came of it.
    pub(super) fn keep() -> Awake {
        let ended = Arc::new(AtomicBool::new(false));
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let threads = (0..processors).filter_map(|_| {
            let ended = ended.clone();
            let watch = move || {
                if sys::run_last().is_err() {
                    return;
                }
                while !ended.load(Ordering::Relaxed) {
                    core::hint::spin_loop();
                }
            };
            thread::Builder::new().name("awake".into()).spawn(watch).ok()
        });
        Awake { threads: threads.collect(), ended }
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // It fails only by a panic of its own, of which it has no occasion.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threads_end_with_their_owner() {
        let awake = Awake::keep();
        let watched = Arc::downgrade(&awake.ended);
        assert!(watched.strong_count() > 1);
        drop(awake);
        assert_eq!(watched.strong_count(), 0);
    }
}
