//! The time that a writing thread has spent.

use std::time::{Duration, Instant};

use super::Counters;
use super::board::Board;

/// Elapsed time and CPU time of hashing, writing and syncing.
#[derive(Default)]
pub(crate) struct Spent {
    time: Duration,
    cpu: Duration,
}

impl Spent {
    pub(crate) fn on<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let (started, cpu) = (Instant::now(), super::thread_time());
        let done = work();
        self.time += started.elapsed();
        self.cpu += super::thread_time().saturating_sub(cpu);
        done
    }

    pub(crate) fn publish(&self, board: &Board) {
        let (disk, cpu) = (super::span(self.time), super::span(self.cpu));
        board.update(|Counters { times, .. }| (times.disk, times.disk_cpu) = (disk, cpu));
    }
}
