//! What the threads of a transfer count while they run: the [`board`] that others read, and the
//! time that a writing thread has [`spent`].

pub(crate) mod board;
pub(crate) mod spent;

/// Returns the CPU time of the calling thread.
pub(crate) fn thread_time() -> std::time::Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    std::time::Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
