//! The time slice that the kernel's scheduler gives to this thread (sched_setattr(2)).

use std::io;
use std::mem::MaybeUninit;

use longhaul_proto::time::Span;

/// Asks for time slices of length `slice`. Since Linux 6.12, a thread with short slices gets its
/// turn sooner; its share of the processor is the same. Older kernels ignore the length. Under
/// another policy than the default one, nothing changes.
pub(super) fn shorten(slice: Span) -> io::Result<()> {
    let mut scheduling = own()?;
    if scheduling.sched_policy == libc::SCHED_OTHER as u32 {
        scheduling.sched_runtime = slice.as_nanos();
        // SAFETY: the kernel only reads the structure, whose size is in its first field.
        let failed = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const scheduling, 0) };
        if failed != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

fn own() -> io::Result<libc::sched_attr> {
    let mut scheduling = MaybeUninit::<libc::sched_attr>::zeroed();
    let size = size_of::<libc::sched_attr>();
    // SAFETY: the kernel writes at most `size` bytes; all zeros, too, are a valid structure.
    unsafe {
        if libc::syscall(libc::SYS_sched_getattr, 0, scheduling.as_mut_ptr(), size, 0) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(scheduling.assume_init())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shorter_slice_leaves_the_rest_of_the_scheduling_as_it_was() {
        let before = own().unwrap();
        shorten(Span::from_micros(300)).unwrap();
        let after = own().unwrap();
        assert_eq!(after.sched_policy, before.sched_policy);
        assert_eq!(after.sched_nice, before.sched_nice);
        // Kernels before 6.12 report no slices.
        let has_slices = after.sched_policy == libc::SCHED_OTHER as u32 && before.sched_runtime > 0;
        let expected = if has_slices { 300_000 } else { before.sched_runtime };
        assert_eq!(after.sched_runtime, expected);
    }
}
