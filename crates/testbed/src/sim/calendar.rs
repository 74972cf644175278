//! What happens when: events in the order of time, and of their making where the time is the same.
//!
//! A heap with four branches at each place: half as deep as one with two, and the four lie in
//! two lines of the cache. An event that was taken out leaves its place, the first, to the next
//! that is added, since nearly every event adds one: the heap is put in order once, not twice.

use longhaul_proto::time::Time;

/// How many places follow each in the heap.
const BRANCHES: usize = 4;

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
    heap: Vec<Entry<T>>,
    /// What stands first has been taken out.
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
        let entry = Entry { due, what };
        if core::mem::take(&mut self.vacant) {
            self.sink(entry);
        } else {
            self.heap.push(entry);
            self.rise(entry);
        }
    }

    /// The place of the next event.
    pub(super) fn next_due(&self) -> Option<Due> {
        match self.vacant {
            false => self.heap.first().map(|entry| entry.due),
            true => self.least_after(0).map(|(_, due)| due),
        }
    }

    /// Takes the next event out.
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

    /// The first of those that follow a place.
    fn least_after(&self, place: usize) -> Option<(usize, Due)> {
        let from = place * BRANCHES + 1;
        let to = (from + BRANCHES).min(self.heap.len());
        let following = self.heap.get(from..to)?.iter().zip(from..);
        following.map(|(entry, place)| (place, entry.due)).min_by_key(|(_, due)| *due)
    }

    /// Puts an entry in, whose place would be the first, where it belongs.
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

    /// Moves the entry, which stands last, to where it belongs.
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

    proptest! {
        #[test]
        fn it_is_an_ordered_set_whatever_is_added_and_taken_out(
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
