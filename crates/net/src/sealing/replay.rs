//! Replay protection: a sliding window over the newest packet numbers.
//!
//! Replays are dropped before the flow's protocol sees them, because they would falsify its RTT,
//! counters and reports. The window is the ring of RFC 6479: advancing clears whole words and never
//! shifts.

use longhaul_proto::endpoint::PacketNumber;

const WORDS: u64 = 1 << 10;

/// How many numbers are checked, counted back from the newest; datagrams with older numbers are
/// dropped.
pub const WINDOW: u64 = (WORDS - 1) * 64;

/// The state of a packet number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Not seen yet.
    New,
    /// Seen before.
    Again,
    /// Too old to check; also the largest possible number.
    Stale,
}

/// The window over one number space.
pub struct ReplayWindow {
    seen: Box<[u64]>,
    /// Newest number plus one.
    end: u64,
}

impl Default for ReplayWindow {
    fn default() -> ReplayWindow {
        ReplayWindow { seen: vec![0; WORDS as usize].into_boxed_slice(), end: 0 }
    }
}

impl ReplayWindow {
    /// Returns the newest number seen plus one; zero before the first.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Returns whether `number` is new, was seen before, or is too old.
    pub fn check(&self, number: PacketNumber) -> Seen {
        let PacketNumber(n) = number;
        if n == u64::MAX {
            Seen::Stale
        } else if n >= self.end {
            Seen::New
        } else if self.end - n > WINDOW {
            Seen::Stale
        } else if self.seen[slot(n)] & bit(n) != 0 {
            Seen::Again
        } else {
            Seen::New
        }
    }

    /// Records the number of a genuine datagram, after [`ReplayWindow::check`] has returned
    /// [`Seen::New`].
    pub fn mark(&mut self, number: PacketNumber) {
        let PacketNumber(n) = number;
        if n >= self.end {
            // Clears the words that the window enters. The word of the newest number so far is in
            // use, so it stays.
            let first = self.end.div_ceil(64);
            let last = n / 64;
            for word in first.max((last + 1).saturating_sub(WORDS))..=last {
                self.seen[(word % WORDS) as usize] = 0;
            }
            self.end = n.saturating_add(1);
        }
        self.seen[slot(n)] |= bit(n);
    }
}

fn slot(number: u64) -> usize {
    (number / 64 % WORDS) as usize
}

fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn step() -> impl Strategy<Value = i64> {
        prop_oneof![
            8 => -40i64..40,
            3 => -2_000i64..2_000,
            1 => (-(WINDOW as i64) - 80)..(2 * WINDOW as i64),
            1 => (-(WINDOW as i64) - 3)..(-(WINDOW as i64) + 3),
        ]
    }

    proptest! {
        #[test]
        fn the_window_answers_like_a_set(start in 0u64..200_000, steps in
            proptest::collection::vec(step(), 1..400))
        {
            let mut window = ReplayWindow::default();
            let mut model = BTreeSet::new();
            let mut newest = start;
            for step in steps {
                let n = newest.saturating_add_signed(step);
                let end = model.last().map_or(0, |newest| newest + 1);
                let expected = match n {
                    n if n + WINDOW < end => Seen::Stale,
                    n if model.contains(&n) => Seen::Again,
                    _ => Seen::New,
                };
                prop_assert_eq!(window.check(PacketNumber(n)), expected, "number {}", n);
                if expected == Seen::New {
                    window.mark(PacketNumber(n));
                    model.insert(n);
                }
                newest = newest.max(n);
                prop_assert_eq!(window.end(), model.last().map_or(0, |newest| newest + 1));
            }
        }
    }

    #[test]
    fn the_largest_numbers_do_no_harm() {
        let mut window = ReplayWindow::default();
        assert_eq!(window.check(PacketNumber(u64::MAX)), Seen::Stale);
        window.mark(PacketNumber(u64::MAX - 1));
        assert_eq!(window.end(), u64::MAX);
        assert_eq!(window.check(PacketNumber(u64::MAX - 1)), Seen::Again);
        assert_eq!(window.check(PacketNumber(u64::MAX - 2)), Seen::New);
        assert_eq!(window.check(PacketNumber(u64::MAX)), Seen::Stale);
        assert_eq!(window.check(PacketNumber(0)), Seen::Stale);
    }

    #[test]
    fn a_number_is_new_once() {
        let mut window = ReplayWindow::default();
        assert_eq!(window.check(PacketNumber(0)), Seen::New);
        window.mark(PacketNumber(0));
        assert_eq!(window.check(PacketNumber(0)), Seen::Again);
    }
}
