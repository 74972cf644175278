//! Packet trains that the sender sent back to back. The arrival times of other trains do not show
//! the capacity of the path.

use alloc::collections::VecDeque;

use crate::pulse::TRAIN_LEN;

/// Maximum number of trains that are remembered; a train begins every 1,024 datagrams.
const MOST: usize = 256;

/// First packet numbers of the trains that left back to back, lowest first. There may be several,
/// because on a long fat path later trains leave before the report on a train arrives.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked {
    trains: VecDeque<u64>,
}

impl Asked {
    pub(super) fn ask(&mut self, start: u64) {
        if self.is_newest(start) {
            return;
        }
        if self.trains.len() == MOST {
            self.trains.pop_front();
        }
        self.trains.push_back(start);
    }

    pub(super) fn is_newest(&self, start: u64) -> bool {
        self.trains.back() == Some(&start)
    }

    pub(super) fn has(&self, start: u64) -> bool {
        self.trains.contains(&start)
    }

    /// Returns whether a train has a packet number from `from` to below `to`.
    pub(super) fn any_within(&self, from: u64, to: u64) -> bool {
        self.trains.iter().any(|start| *start + TRAIN_LEN > from && *start < to)
    }

    /// Drops the trains whose last number is below `highest`.
    pub(super) fn forget(&mut self, highest: u64) {
        self.trains.retain(|start| *start + TRAIN_LEN > highest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(starts: impl IntoIterator<Item = u64>) -> Asked {
        let mut asked = Asked::default();
        starts.into_iter().for_each(|start| asked.ask(start));
        asked
    }

    #[test]
    fn at_most_256_trains_are_remembered_each_once() {
        let asked = asked((0..300).flat_map(|n| [n * 1024; 2]));
        assert_eq!((asked.trains.len(), asked.trains[0]), (256, 44 * 1024));
        assert_eq!([43, 44, 299, 300].map(|n| asked.has(n * 1024)), [false, true, true, false]);
        assert_eq!([298, 299].map(|n| asked.is_newest(n * 1024)), [false, true]);
    }

    #[test]
    fn a_train_is_32_datagrams_long() {
        let mut asked = asked([1024, 2048]);
        let within = |from, to| asked.any_within(from, to);
        assert_eq!([within(0, 1024), within(0, 1025)], [false, true]);
        assert_eq!([within(1055, 2048), within(1056, 2048)], [true, false]);
        asked.forget(1055);
        assert!(asked.has(1024));
        asked.forget(1056);
        assert!(!asked.has(1024) && asked.has(2048));
    }
}
