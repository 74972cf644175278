//! What happens when: events in the order of time, and of their making where the time is the same.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use longhaul_proto::time::Time;

/// The place of an event in the order of all: its time, and the number of its making. No two are
/// the same, so the order depends on nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Due {
    pub(super) at: Time,
    serial: u64,
}

/// Events that are due.
#[derive(Debug)]
pub(super) struct Calendar<T> {
    heap: BinaryHeap<Reverse<Entry<T>>>,
    serial: u64,
}

#[derive(Debug)]
struct Entry<T> {
    due: Due,
    what: T,
}

impl<T> Calendar<T> {
    pub(super) fn new() -> Calendar<T> {
        Calendar { heap: BinaryHeap::new(), serial: 0 }
    }

    /// A place in the order for something that happens at `at`.
    pub(super) fn due(&mut self, at: Time) -> Due {
        self.serial += 1;
        Due { at, serial: self.serial }
    }

    /// Adds an event.
    pub(super) fn add(&mut self, at: Time, what: T) {
        let due = self.due(at);
        self.add_due(due, what);
    }

    /// Adds an event whose place was taken before.
    pub(super) fn add_due(&mut self, due: Due, what: T) {
        self.heap.push(Reverse(Entry { due, what }));
    }

    /// The place of the next event.
    pub(super) fn next_due(&self) -> Option<Due> {
        self.heap.peek().map(|Reverse(entry)| entry.due)
    }

    /// Takes the next event out.
    pub(super) fn pop(&mut self) -> Option<(Due, T)> {
        self.heap.pop().map(|Reverse(entry)| (entry.due, entry.what))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Entry<T>) -> bool {
        self.due == other.due
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Entry<T>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Entry<T>) -> Ordering {
        self.due.cmp(&other.due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_the_order_of_time_and_then_of_their_making() {
        let mut calendar = Calendar::new();
        let at = Time::from_nanos;
        let early = calendar.due(at(5));
        for (nanos, what) in [(7, 'c'), (5, 'b'), (7, 'd'), (9, 'e')] {
            calendar.add(at(nanos), what);
        }
        calendar.add_due(early, 'a');
        assert_eq!(calendar.next_due(), Some(early));
        let order: String = std::iter::from_fn(|| calendar.pop()).map(|(_, what)| what).collect();
        assert_eq!(order, "abcde");
    }
}
