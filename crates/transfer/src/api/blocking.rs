//! Calls for threads that may block: `wait(transfer.finish())`, `iter(transfer.events())`.
//!
//! These functions park the calling thread and enter no runtime, so they do not panic inside a
//! runtime.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use super::events::{Event, Events};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future of this library on the calling thread.
pub fn wait<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

/// Returns the events of a transfer as an iterator that blocks until the next event.
pub fn iter(mut events: Events) -> impl Iterator<Item = Event> + Send {
    std::iter::from_fn(move || wait(events.next()))
}
