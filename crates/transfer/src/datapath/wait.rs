//! Waiting to the microsecond, but for a message.
//!
//! A sleeping thread wakes some tens of microseconds late; a burst that leaves so late is a clump
//! later on. So the last stretch is not slept: the thread looks at the clock again and again, and
//! lets whoever else wants its core run meanwhile. Where cores are few, that is the very thread
//! that has to take what this one sends.

use std::num::NonZeroU64;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};

use longhaul_proto::time::{Span, Time};

use super::clock;

/// The stretch that is not slept: as late as the kernel wakes a thread with slack taken out.
const WATCH: Span = Span::from_micros(50);

/// Why a wait ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Woken<M> {
    /// The time has come.
    Due,
    /// A message came earlier.
    Message(M),
    /// Nobody is left who could send one.
    Closed,
}

/// Takes the kernel's freedom to wake this thread late, 50 µs by default. Without effect where
/// the kernel refuses.
pub fn take_slack_out() {
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}

/// Waits for a message until `due` at the latest. A message that is there already comes first;
/// [`Time::NEVER`] waits for messages alone.
pub fn until<M>(inbox: &Receiver<M>, due: Time) -> Woken<M> {
    loop {
        match inbox.try_recv() {
            Ok(message) => return Woken::Message(message),
            Err(TryRecvError::Disconnected) => return Woken::Closed,
            Err(TryRecvError::Empty) => {}
        }
        let left = due.since(clock::now());
        if left == Span::ZERO {
            return Woken::Due;
        }
        if left > WATCH {
            match inbox.recv_timeout(clock::duration(left - WATCH)) {
                Ok(message) => return Woken::Message(message),
                Err(RecvTimeoutError::Disconnected) => return Woken::Closed,
                Err(RecvTimeoutError::Timeout) => {}
            }
        } else {
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_wait_never_ends_before_its_time() {
        let (_sender, inbox) = channel::<()>();
        for micros in [0, 10, 200, 3_000] {
            let due = clock::now() + Span::from_micros(micros);
            assert_eq!(until(&inbox, due), Woken::Due);
            assert!(clock::now() >= due);
        }
    }

    #[test]
    fn a_message_ends_the_wait() {
        let (sender, inbox) = channel();
        let waiter = std::thread::spawn(move || until(&inbox, Time::NEVER));
        sender.send(7).unwrap();
        assert_eq!(waiter.join().unwrap(), Woken::Message(7));
    }

    #[test]
    fn a_wait_ends_with_its_last_sender() {
        let (sender, inbox) = channel::<()>();
        drop(sender);
        assert_eq!(until(&inbox, Time::NEVER), Woken::Closed);
    }
}
