//! The queue of the thread that restores frames.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

/// If this many frames and reports are queued for the thread, the reader (the program that takes
/// the frames from the thread) is too slow and loses further frames.
const WAITING: usize = 4;

/// The sender of the thread's queue.
pub(crate) struct Outlet<T> {
    sender: Sender<T>,
    waiting: Arc<AtomicUsize>,
}

impl<T> Outlet<T> {
    /// Returns whether fewer than [`WAITING`] entries are queued. Also true after the thread has
    /// ended, so that the next [`Outlet::send`] detects the end.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) < WAITING || Arc::strong_count(&self.waiting) == 1
    }

    /// Queues `entry`, even if the queue has no room; returns whether the thread still runs.
    pub(crate) fn send(&self, entry: T) -> bool {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.sender.send(entry).is_ok()
    }
}

/// The thread's end of its queue. The receiver is dropped before the counter, so the queue is
/// closed when only the outlet still has the counter.
pub(crate) struct Inlet<T> {
    receiver: Receiver<T>,
    waiting: Arc<AtomicUsize>,
}

impl<T> Inlet<T> {
    /// Waits for the next entry; returns `None` when the queue is empty and closed.
    pub(crate) fn next(&self) -> Option<T> {
        let entry = self.receiver.recv().ok()?;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        Some(entry)
    }
}

pub(crate) fn queue<T>() -> (Outlet<T>, Inlet<T>) {
    let (sender, receiver) = channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    (Outlet { sender, waiting: waiting.clone() }, Inlet { receiver, waiting })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_of_four_has_no_room_until_an_entry_is_taken_or_the_thread_has_ended() {
        let (outlet, inlet) = queue();
        for number in 0..4 {
            assert!(outlet.has_room());
            assert!(outlet.send(number));
        }
        assert!(!outlet.has_room());
        assert_eq!(inlet.next(), Some(0));
        assert!(outlet.has_room());
        assert!(outlet.send(4));
        assert!(!outlet.has_room());
        drop(inlet);
        assert!(outlet.has_room());
        assert!(!outlet.send(5));
    }
}
