//! Waiting until a point in time or for a message.
//!
//! A sleeping thread wakes some tens of microseconds late; the sender's pacing makes up for the
//! delay. Polling the clock at the end of the wait would be more punctual, but took a third of a
//! sender's CPU time at 1 Gbit/s.

#[allow(unsafe_code, reason = "a system call that no library offers in a safe form")]
mod slice;

use std::num::NonZeroU64;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};

use longhaul_proto::time::{Span, Time};

use crate::clock;

/// Why a wait ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Woken<M> {
    /// The time was reached.
    Due,
    /// A message has arrived.
    Message(M),
    /// All senders are gone.
    Closed,
}

/// Length of the time slices of a thread that calls [`be_punctual`]. With the kernel's default, a
/// sender at 1 Gbit/s waited up to 5 ms for its turn on two processors that also ran the receiver
/// and an emulator.
const SLICE: Span = Span::from_micros(200);

/// Lets this thread wake and run as punctually as the kernel allows: reduces the timer slack from
/// its default of 50 µs to 1 ns, and shortens the thread's time slices. A change that the kernel
/// refuses is skipped.
pub fn be_punctual() {
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    let _ = slice::shorten(SLICE);
}

/// Waits for a message until `due` at the latest. Returns a message that is already there even if
/// `due` has passed. [`Time::NEVER`] waits for messages only.
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
        match inbox.recv_timeout(clock::duration(left)) {
            Ok(message) => return Woken::Message(message),
            Err(RecvTimeoutError::Disconnected) => return Woken::Closed,
            Err(RecvTimeoutError::Timeout) => {}
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
    fn a_wait_ends_when_all_senders_are_gone() {
        let (sender, inbox) = channel::<()>();
        drop(sender);
        assert_eq!(until(&inbox, Time::NEVER), Woken::Closed);
    }
}
