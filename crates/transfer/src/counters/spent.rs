//! The time that a writing thread has spent.

use std::time::{Duration, Instant};

use super::Counters;
use super::board::Board;

/// Time spent hashing and writing, and the CPU time of it.
#[derive(Default)]
pub(crate) struct Spent {
    time: Duration,
    cpu: Duration,
}

impl Spent {
    /// Does `work` and adds its time.
    pub(crate) fn on<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let (started, cpu) = (Instant::now(), super::thread_time());
        let done = work();
        self.time += started.elapsed();
        self.cpu += super::thread_time().saturating_sub(cpu);
        done
    }

    /// Publishes the times on `board`.
    pub(crate) fn publish(&self, board: &Board) {
        let (disk, cpu) = (super::span(self.time), super::span(self.cpu));
        board.update(|Counters { times, .. }| (times.disk, times.disk_cpu) = (disk, cpu));
    }
}
