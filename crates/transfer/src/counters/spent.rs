//! Where a writing thread's time goes.

use std::time::{Duration, Instant};

use super::board::Board;

/// Time spent hashing and writing, and the CPU time of it.
#[derive(Default)]
pub(crate) struct Spent {
    time: Duration,
    cpu: Duration,
}

impl Spent {
    /// Does `work` and counts its time.
    pub(crate) fn on<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let (started, cpu) = (Instant::now(), super::thread_time());
        let done = work();
        self.time += started.elapsed();
        self.cpu += super::thread_time().saturating_sub(cpu);
        done
    }

    /// Lets the process know.
    pub(crate) fn publish(&self, board: &Board) {
        let nanos = |span: Duration| span.as_nanos() as u64;
        let (disk, cpu) = (nanos(self.time), nanos(self.cpu));
        board.update(|status| (status.disk_nanos, status.disk_cpu_nanos) = (disk, cpu));
    }
}
