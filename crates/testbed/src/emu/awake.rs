//! Keeps the processors awake while packets have to be punctual.
//!
//! A processor with nothing to do halts. On a virtual machine that gives it back to the host, which
//! may take milliseconds to return it: packets that were due meanwhile are late, although no
//! program of this machine had it. So while packets are on their way, and a little longer, a thread
//! for each processor takes what nobody else wants. An emulation in which nothing happens leaves
//! the processors alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle, Thread};

use longhaul_proto::time::{Span, Time};

use super::clock::processor_time;
use super::sys;

/// How long after the last packet the processors stay awake: longer than most programs pause, and
/// than TCP waits before it repeats what was lost.
const LINGER: Span = Span::from_secs(1);

/// Turns of a thread before it looks at its clock: some ten microseconds.
const TURNS: u32 = 1_000;

/// The threads; they end when this is dropped.
pub(super) struct Awake {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// What the threads and their owners say to each other.
#[derive(Default)]
struct Shared {
    roused: AtomicBool,
    ended: AtomicBool,
    /// Threads that wait to be roused.
    resting: AtomicUsize,
    /// Nanoseconds of processor time that all threads together took.
    taken: AtomicU64,
}

impl Awake {
    /// Starts a thread for each processor that this process may use; they rest until roused.
    ///
    /// Where a thread cannot be had, or may not be one that gives way to all others, the processors
    /// sleep as ever, and the account of late packets tells what came of it.
    pub(super) fn keep() -> Awake {
        let shared = Arc::<Shared>::default();
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let threads = (0..processors).filter_map(|_| {
            let shared = shared.clone();
            thread::Builder::new().name("awake".into()).spawn(move || shared.take()).ok()
        });
        Awake { threads: threads.collect(), shared }
    }

    /// What rouses the threads.
    pub(super) fn rouser(&self) -> Rouser {
        let threads = self.threads.iter().map(|thread| thread.thread().clone());
        Rouser { shared: self.shared.clone(), threads: threads.collect(), until: None }
    }

    /// Processor time that the threads took together, because nobody else wanted it.
    pub(super) fn taken(&self) -> Span {
        Span::from_nanos(self.shared.taken.load(Ordering::Relaxed))
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // It fails only by a panic of its own, of which it has no occasion.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Takes the processor while it is wanted awake, until the end.
    fn take(&self) {
        if sys::run_last().is_err() {
            return;
        }
        let mut told = processor_time();
        while !self.ended.load(Ordering::Acquire) {
            if !self.roused.load(Ordering::Acquire) {
                self.resting.fetch_add(1, Ordering::AcqRel);
                thread::park();
                self.resting.fetch_sub(1, Ordering::AcqRel);
                continue;
            }
            (0..TURNS).for_each(|_| core::hint::spin_loop());
            let now = processor_time();
            self.taken.fetch_add(now.saturating_sub(told).as_nanos(), Ordering::Relaxed);
            told = now;
        }
    }
}

/// Rouses the threads, and lets them rest.
pub(super) struct Rouser {
    shared: Arc<Shared>,
    threads: Vec<Thread>,
    /// Until when they stay roused; nothing while they rest.
    until: Option<Time>,
}

impl Rouser {
    /// Something is on its way at `now`.
    pub(super) fn rouse(&mut self, now: Time) {
        if self.until.replace(now + LINGER).is_none() {
            self.shared.roused.store(true, Ordering::Release);
            self.threads.iter().for_each(Thread::unpark);
        }
    }

    /// Nothing is on its way at `now`: how long to wait before this has to be said again, lest the
    /// threads never rest; nothing once they do.
    pub(super) fn quiet(&mut self, now: Time) -> Option<Span> {
        let left = self.until?.since(now);
        if left > Span::ZERO {
            return Some(left);
        }
        self.until = None;
        self.shared.roused.store(false, Ordering::Release);
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[track_caller]
    fn until(what: &str, is: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(120);
        while !is() {
            assert!(Instant::now() < deadline, "{what}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn the_threads_end_with_their_owner_resting_or_not() {
        for roused in [false, true] {
            let awake = Awake::keep();
            let watched = Arc::downgrade(&awake.shared);
            let mut rouser = awake.rouser();
            if roused {
                rouser.rouse(Time::ZERO);
            }
            drop(rouser);
            assert!(watched.strong_count() > 1);
            drop(awake);
            assert_eq!(watched.strong_count(), 0);
        }
    }

    #[test]
    fn the_threads_take_a_processor_only_while_packets_are_on_their_way_or_were_lately() {
        let awake = Awake::keep();
        let mut rouser = awake.rouser();
        let all_rest = || awake.shared.resting.load(Ordering::Acquire) == awake.threads.len();
        until("they rest at first", all_rest);
        assert_eq!(awake.taken(), Span::ZERO);
        rouser.rouse(Time::ZERO);
        until("they were roused", || awake.taken() > Span::ZERO);
        let half = Time::ZERO + LINGER / 2;
        assert_eq!(rouser.quiet(half), Some(LINGER / 2), "another packet may follow");
        rouser.rouse(half);
        assert_eq!(rouser.quiet(Time::ZERO + LINGER), Some(LINGER / 2), "one did");
        assert_eq!(rouser.quiet(half + LINGER), None);
        until("they rest again", all_rest);
        let taken = awake.taken();
        assert_eq!(rouser.quiet(half + LINGER * 2), None);
        assert_eq!(awake.taken(), taken);
        rouser.rouse(half + LINGER * 3);
        until("they were roused again", || awake.taken() > taken);
    }
}
