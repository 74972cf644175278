//! Keeps the processors awake while packets must be on time.
//!
//! An idle processor halts. A hypervisor may take milliseconds to give a halted processor back, so
//! packets would be late. While packets are in flight, and for a second afterwards, one thread per
//! processor therefore runs at the lowest priority.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle, Thread};

use longhaul_proto::time::{Span, Time};

use super::clock::processor_time;
use super::sys;

/// How long the processors stay awake after the last packet: longer than TCP's minimum timeout (200
/// ms).
const LINGER: Span = Span::from_secs(1);

/// Loop iterations between looks at the clock.
const TURNS: u32 = 1_000;

pub(super) struct Awake {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    roused: AtomicBool,
    ended: AtomicBool,
    resting: AtomicUsize,
    /// Processor time of all threads, in nanoseconds.
    taken: AtomicU64,
}

impl Awake {
    /// Starts one sleeping thread for each available processor. A processor halts as usual if its
    /// thread cannot get the lowest priority.
    pub(super) fn keep() -> Awake {
        let shared = Arc::<Shared>::default();
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let threads = (0..processors).filter_map(|_| {
            let shared = shared.clone();
            thread::Builder::new().name("awake".into()).spawn(move || shared.take()).ok()
        });
        Awake { threads: threads.collect(), shared }
    }

    pub(super) fn rouser(&self) -> Rouser {
        let threads = self.threads.iter().map(|thread| thread.thread().clone());
        Rouser { shared: self.shared.clone(), threads: threads.collect(), until: None }
    }

    /// Processor time that the threads used.
    pub(super) fn taken(&self) -> Span {
        Span::from_nanos(self.shared.taken.load(Ordering::Relaxed))
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // Joining fails only if the thread panicked.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Keeps a processor busy while `roused` is set. Returns when `ended` is set, or at once
    /// if the thread cannot get the lowest priority.
    fn take(&self) {
        if sys::run_last().is_err() {
            return;
        }
        let mut counted = processor_time();
        while !self.ended.load(Ordering::Acquire) {
            if !self.roused.load(Ordering::Acquire) {
                self.resting.fetch_add(1, Ordering::AcqRel);
                thread::park();
                self.resting.fetch_sub(1, Ordering::AcqRel);
                continue;
            }
            (0..TURNS).for_each(|_| core::hint::spin_loop());
            let now = processor_time();
            self.taken.fetch_add(now.saturating_sub(counted).as_nanos(), Ordering::Relaxed);
            counted = now;
        }
    }
}

pub(super) struct Rouser {
    shared: Arc<Shared>,
    threads: Vec<Thread>,
    until: Option<Time>,
}

impl Rouser {
    /// Keeps the threads awake for a packet in flight at `now`.
    pub(super) fn rouse(&mut self, now: Time) {
        if self.until.replace(now + LINGER).is_none() {
            self.shared.roused.store(true, Ordering::Release);
            self.threads.iter().for_each(Thread::unpark);
        }
    }

    /// Notes that no packet is in flight at `now`. Returns the time until the next call; `None` if
    /// the threads may sleep.
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
    fn sleeping_and_running_threads_end_when_their_owner_is_dropped() {
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
    fn the_threads_run_only_while_packets_are_in_flight_and_for_a_second_afterwards() {
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
        assert_eq!(rouser.quiet(Time::ZERO + LINGER), Some(LINGER / 2), "another packet followed");
        assert_eq!(rouser.quiet(half + LINGER), None);
        until("they rest again", all_rest);
        let taken = awake.taken();
        assert_eq!(rouser.quiet(half + LINGER * 2), None);
        assert_eq!(awake.taken(), taken);
        rouser.rouse(half + LINGER * 3);
        until("they were roused again", || awake.taken() > taken);
    }
}
