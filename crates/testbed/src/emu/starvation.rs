//! The time that a runnable thread waited for a processor.

use std::fs::File;
use std::os::unix::fs::FileExt;

use longhaul_proto::time::Span;

#[derive(Default)]
pub(super) struct Starvation {
    /// `None` if the kernel does not count.
    file: Option<File>,
}

impl Starvation {
    /// The counter of the calling thread.
    pub(super) fn of_this_thread() -> Starvation {
        Starvation { file: File::open("/proc/thread-self/schedstat").ok() }
    }

    /// The wait since the thread's start; zero without a counter.
    pub(super) fn so_far(&self) -> Span {
        let mut text = [0u8; 96];
        let read = |file: &File| file.read_at(&mut text, 0).ok();
        let len = self.file.as_ref().and_then(read).unwrap_or(0);
        waited(&String::from_utf8_lossy(&text[..len])).unwrap_or(Span::ZERO)
    }
}

/// The second of three numbers: nanoseconds run, nanoseconds waited, time slices.
fn waited(text: &str) -> Option<Span> {
    Some(Span::from_nanos(text.split_whitespace().nth(1)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_number_is_the_time_that_a_thread_has_waited() {
        assert_eq!(waited("123 4567 8\n"), Some(Span::from_nanos(4_567)));
        assert_eq!(waited(""), None);
        let own = Starvation::of_this_thread();
        let before = own.so_far();
        assert!(own.so_far() >= before);
    }
}
