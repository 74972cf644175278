//! The queue of events between the library's threads and a reader that may be slow. The threads
//! never wait for the reader.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

pub(super) trait Queued: Sized {
    /// Returns whether a full queue still takes the event; otherwise a full queue drops it.
    fn must_arrive(&self) -> bool;

    /// Returns whether the event replaces an unread event of its kind.
    fn is_latest_only(&self) -> bool;

    /// Returns the event that tells the reader of `count` dropped events.
    fn lagged(count: u64) -> Self;
}

pub(super) struct Queue<E>(Arc<Mutex<State<E>>>);

impl<E> Clone for Queue<E> {
    fn clone(&self) -> Queue<E> {
        Queue(self.0.clone())
    }
}

enum Place<E> {
    Event(E),
    Dropped(u64),
}

struct State<E> {
    places: VecDeque<Place<E>>,
    /// Number of droppable events in the queue.
    droppable: usize,
    capacity: usize,
    /// The unread event that the next event of its kind replaces.
    latest: Option<E>,
    /// Whether the last event that the reader got came from `latest`.
    latest_taken: bool,
    closed: bool,
    waker: Option<Waker>,
    /// Serial number of the current reader. Earlier readers get no further events.
    reader: u64,
}

impl<E: Queued> Queue<E> {
    pub(super) fn new(capacity: usize) -> Queue<E> {
        Queue(Arc::new(Mutex::new(State {
            places: VecDeque::new(),
            droppable: 0,
            capacity,
            latest: None,
            latest_taken: false,
            closed: false,
            waker: None,
            reader: 0,
        })))
    }

    pub(super) fn push(&self, event: E) {
        let waker = {
            let mut state = self.lock();
            state.push(event);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Closes the queue: the reader gets the remaining events, then `None`.
    pub(super) fn close(&self) {
        let waker = {
            let mut state = self.lock();
            state.closed = true;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Returns a new reader, and ends the earlier reader.
    pub(super) fn reader(&self) -> Reader<E> {
        let (number, waker) = {
            let mut state = self.lock();
            state.reader += 1;
            (state.reader, state.waker.take())
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        Reader { queue: self.clone(), number }
    }

    /// Locks the state. A poisoned lock means that a waker panicked; the state is consistent.
    fn lock(&self) -> MutexGuard<'_, State<E>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<E: Queued> State<E> {
    fn push(&mut self, event: E) {
        if event.is_latest_only() {
            self.latest = Some(event);
        } else if event.must_arrive() {
            self.places.push_back(Place::Event(event));
        } else if self.droppable < self.capacity {
            self.droppable += 1;
            self.places.push_back(Place::Event(event));
        } else if let Some(Place::Dropped(count)) = self.places.back_mut() {
            *count += 1;
        } else {
            self.places.push_back(Place::Dropped(1));
        }
    }

    /// Alternates between `latest` and the queued events, so that neither starves the other.
    fn pop(&mut self) -> Option<E> {
        if (!self.latest_taken || self.places.is_empty())
            && let Some(latest) = self.latest.take()
        {
            self.latest_taken = true;
            return Some(latest);
        }
        self.latest_taken = false;
        Some(match self.places.pop_front()? {
            Place::Dropped(count) => E::lagged(count),
            Place::Event(event) => {
                self.droppable -= usize::from(!event.must_arrive());
                event
            }
        })
    }
}

pub(super) struct Reader<E> {
    queue: Queue<E>,
    number: u64,
}

impl<E: Queued> Reader<E> {
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<E>> {
        let mut state = self.queue.lock();
        if state.reader != self.number {
            return Poll::Ready(None);
        }
        match state.pop() {
            Some(event) => Poll::Ready(Some(event)),
            None if state.closed => Poll::Ready(None),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// Defines a public stream over a reader.
macro_rules! stream {
    ($(#[$doc:meta])* $name:ident of $item:ty, read by $reader:ty) => {
        $(#[$doc])*
        pub struct $name($reader);

        impl $name {
            pub(super) fn over(reader: $reader) -> $name {
                $name(reader)
            }

            /// Waits for the next item; `None` after the last.
            pub async fn next(&mut self) -> Option<$item> {
                std::future::poll_fn(|context| self.0.poll_next(context)).await
            }
        }

        impl futures_core::Stream for $name {
            type Item = $item;

            fn poll_next(
                mut self: std::pin::Pin<&mut Self>,
                context: &mut std::task::Context<'_>,
            ) -> std::task::Poll<Option<$item>> {
                self.0.poll_next(context)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    };
}
pub(super) use stream;

// Nothing in a reader is pinned.
impl<E> Unpin for Reader<E> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    enum Event {
        Latest(u32),
        Plain(u32),
        Sure(u32),
        Lagged(u64),
    }

    impl Queued for Event {
        fn must_arrive(&self) -> bool {
            matches!(self, Event::Sure(_))
        }

        fn is_latest_only(&self) -> bool {
            matches!(self, Event::Latest(_))
        }

        fn lagged(count: u64) -> Event {
            Event::Lagged(count)
        }
    }

    fn drain(reader: &mut Reader<Event>) -> Vec<Event> {
        let mut context = Context::from_waker(Waker::noop());
        let mut events = Vec::new();
        while let Poll::Ready(Some(event)) = reader.poll_next(&mut context) {
            events.push(event);
        }
        events
    }

    #[test]
    fn a_full_queue_drops_and_counts_events_but_keeps_those_that_must_arrive() {
        let queue = Queue::new(2);
        let mut reader = queue.reader();
        for number in 0..5 {
            queue.push(Event::Plain(number));
            queue.push(Event::Sure(number));
        }
        queue.push(Event::Plain(5));
        queue.push(Event::Plain(6));
        use Event::{Lagged, Plain, Sure};
        let expected = [
            Plain(0),
            Sure(0),
            Plain(1),
            Sure(1),
            Lagged(1),
            Sure(2),
            Lagged(1),
            Sure(3),
            Lagged(1),
            Sure(4),
            Lagged(2),
        ];
        assert_eq!(drain(&mut reader), expected);
        queue.push(Plain(7));
        assert_eq!(drain(&mut reader), [Plain(7)], "there is room again");
    }

    #[test]
    fn only_the_latest_state_is_kept_and_may_precede_older_events() {
        let queue = Queue::new(8);
        let mut reader = queue.reader();
        queue.push(Event::Plain(0));
        queue.push(Event::Latest(1));
        queue.push(Event::Latest(2));
        queue.push(Event::Plain(1));
        assert_eq!(drain(&mut reader), [Event::Latest(2), Event::Plain(0), Event::Plain(1)]);
    }

    #[test]
    fn queued_events_precede_the_end_and_a_new_reader_ends_the_old_one() {
        let mut context = Context::from_waker(Waker::noop());
        let queue = Queue::new(8);
        let (mut old, mut new) = (queue.reader(), queue.reader());
        queue.push(Event::Plain(0));
        queue.close();
        assert_eq!(old.poll_next(&mut context), Poll::Ready(None));
        assert_eq!(new.poll_next(&mut context), Poll::Ready(Some(Event::Plain(0))));
        assert_eq!(new.poll_next(&mut context), Poll::Ready(None));
    }
}
