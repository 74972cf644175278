//! The processor time of a thread.

use longhaul_proto::time::Span;
use rustix::time::ClockId;

/// Processor time of the calling thread since it started.
pub(super) fn processor_time() -> Span {
    let time = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    Span::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
