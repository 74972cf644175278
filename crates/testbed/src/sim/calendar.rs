//! The event queue: events in the order of time, then in the order in which their positions were
//! reserved ([`Calendar::due`]).
//!
//! Each node of the heap has four children, so the heap is half as deep as a binary heap. The
//! children are neighbours in memory. A popped event leaves its place vacant for an event that is
//! added before the next pop. Nearly every event adds another, so the heap is reordered once
//! instead of twice.

use longhaul_proto::time::Time;

/// Children of each node in the heap.
const BRANCHES: usize = 4;

/// An event's position in the order: its time and its sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Due {
    pub(super) at: Time,
    serial: u64,
}

#[derive(Debug)]
pub(super) struct Calendar<T> {
    heap: Vec<Entry<T>>,
    /// Whether the first entry's place is vacant.
    vacant: bool,
    serial: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry<T> {
    due: Due,
    what: T,
}

impl<T: Copy> Calendar<T> {
    pub(super) fn new() -> Calendar<T> {
        Calendar { heap: Vec::new(), vacant: false, serial: 0 }
    }

    /// Reserves the position of an event at `at`.
    pub(super) fn due(&mut self, at: Time) -> Due {
        self.serial += 1;
        Due { at, serial: self.serial }
    }

    pub(super) fn add(&mut self, at: Time, what: T) {
        let due = self.due(at);
        self.add_due(due, what);
    }

    pub(super) fn add_due(&mut self, due: Due, what: T) {
        let entry = Entry { due, what };
        if core::mem::take(&mut self.vacant) {
            self.sink(entry);
        } else {
            self.heap.push(entry);
            self.rise(entry);
        }
    }

    pub(super) fn next_due(&self) -> Option<Due> {
        match self.vacant {
            false => self.heap.first().map(|entry| entry.due),
            true => self.least_after(0).map(|(_, due)| due),
        }
    }

    pub(super) fn pop(&mut self) -> Option<(Due, T)> {
        if core::mem::take(&mut self.vacant)
            && let Some(last) = self.heap.pop()
            && !self.heap.is_empty()
        {
            self.sink(last);
        }
        let first = *self.heap.first()?;
        self.vacant = true;
        Some((first.due, first.what))
    }

    fn least_after(&self, place: usize) -> Option<(usize, Due)> {
        let from = place * BRANCHES + 1;
        let to = (from + BRANCHES).min(self.heap.len());
        let following = self.heap.get(from..to)?.iter().zip(from..);
        following.map(|(entry, place)| (place, entry.due)).min_by_key(|(_, due)| *due)
    }

    /// Places an entry from the heap's root down.
    fn sink(&mut self, entry: Entry<T>) {
        let mut place = 0;
        while let Some((next, due)) = self.least_after(place)
            && due < entry.due
        {
            self.heap[place] = self.heap[next];
            place = next;
        }
        self.heap[place] = entry;
    }

    /// Places an entry from the last leaf up.
    fn rise(&mut self, entry: Entry<T>) {
        let mut place = self.heap.len() - 1;
        while place > 0 {
            let before = (place - 1) / BRANCHES;
            if self.heap[before].due < entry.due {
                break;
            }
            self.heap[place] = self.heap[before];
            place = before;
        }
        self.heap[place] = entry;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn events_are_ordered_by_time_and_then_by_reservation() {
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

    proptest! {
        #[test]
        fn the_calendar_pops_events_like_an_ordered_set_after_any_changes(
            steps in prop::collection::vec((0u64..40, 0u8..3), 0..300),
        ) {
            let (mut calendar, mut model) = (Calendar::new(), BTreeSet::new());
            for (nanos, what) in steps {
                if what == 0 {
                    let popped = calendar.pop().map(|(due, what)| (due.at, what));
                    prop_assert_eq!(popped, model.pop_first());
                } else {
                    let number = calendar.serial;
                    calendar.add(Time::from_nanos(nanos), number);
                    model.insert((Time::from_nanos(nanos), number));
                }
                let next = calendar.next_due().map(|due| due.at);
                prop_assert_eq!(next, model.first().map(|(at, _)| *at));
            }
            let rest = std::iter::from_fn(|| calendar.pop()).map(|(due, what)| (due.at, what));
            prop_assert!(rest.eq(model));
        }
    }
}
