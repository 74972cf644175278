//! Departure times of packet numbers. They show why arrivals are further apart than the rate
//! demands: because of the path, or because the sender was slower than its rate.

use alloc::collections::VecDeque;

use crate::time::{Span, Time};

/// Minimum time between two notes; a note of the last datagram before a pause may follow sooner.
/// Between two notes the sending rate is taken to be constant.
const SPACING: Span = Span::from_millis(1);
/// A note of [`Departures::note`] is also at least 1/`SHARE` of a round trip after the one before.
const SHARE: u64 = 256;

#[derive(Clone, Debug, Default)]
pub(super) struct Departures {
    notes: VecDeque<(u64, Time)>,
    newest: Option<(u64, Time)>,
}

impl Departures {
    pub(super) fn note(&mut self, now: Time, number: u64, rtt: Span) {
        let spacing = SPACING.max(rtt / SHARE);
        if self.notes.back().is_none_or(|(_, last)| now.since(*last) >= spacing) {
            self.notes.push_back((number, now));
        }
        self.newest = Some((number, now));
    }

    /// Notes that `count` datagrams leave together. Also notes the last datagram before a pause, so
    /// that [`Departures::at`] does not spread datagrams over the pause.
    pub(super) fn note_burst(&mut self, now: Time, first: u64, count: u64) {
        if let Some((number, left)) = self.newest
            && now.since(left) >= SPACING
            && self.notes.back().is_some_and(|(noted, _)| *noted < number)
        {
            self.notes.push_back((number, left));
        }
        self.note(now, first, Span::ZERO);
        self.newest = Some((first + count.saturating_sub(1), now));
    }

    /// Drops notes that only numbers below `number` need.
    pub(super) fn forget(&mut self, number: u64) {
        while self.notes.get(1).is_some_and(|(next, _)| *next <= number) {
            self.notes.pop_front();
        }
    }

    /// Time that it took to send the numbers from `from` to `to`; `None` if one of them precedes
    /// the first note, or if both have the same time.
    pub(super) fn span(&self, from: u64, to: u64) -> Option<Span> {
        let span = self.at(to)?.since(self.at(from)?);
        (span > Span::ZERO).then_some(span)
    }

    /// Departure time of `number`, interpolated between notes. A number after the newest has the
    /// newest's time. `None` for a number before the first note.
    pub(super) fn at(&self, number: u64) -> Option<Time> {
        let behind = self.notes.partition_point(|(first, _)| *first <= number);
        let (first, left) = *self.notes.get(behind.checked_sub(1)?)?;
        let next = self.notes.get(behind).copied().or(self.newest);
        let Some((next, later)) = next.filter(|(next, _)| *next > first) else { return Some(left) };
        let share = (number - first) as f64 / (next - first) as f64;
        Some(left + Span::from_secs_f64(later.since(left).as_secs_f64() * share.min(1.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Time {
        Time::ZERO + Span::from_micros(micros)
    }

    #[test]
    fn the_time_between_two_numbers_is_interpolated() {
        let mut departures = Departures::default();
        for number in 0..1_000 {
            departures.note(at(number * 100), number, Span::from_millis(10));
        }
        assert!(departures.notes.len() <= 100);
        assert_eq!(departures.span(105, 305), Some(Span::from_millis(20)));
        assert_eq!(departures.at(105), Some(at(10_500)));
        departures.forget(300);
        assert_eq!(departures.span(105, 305), None);
        assert_eq!(departures.span(300, 400), Some(Span::from_millis(10)));
    }

    #[test]
    fn a_pause_is_not_spread_over_the_burst_before_it() {
        let mut departures = Departures::default();
        departures.note_burst(at(0), 0, 32);
        departures.note_burst(at(100_000), 32, 1);
        assert_eq!(departures.at(31), Some(at(0)));
        assert_eq!(departures.at(32), Some(at(100_000)));
    }

    #[test]
    fn a_span_needs_two_different_times() {
        let mut departures = Departures::default();
        assert_eq!(departures.span(0, 9), None);
        departures.note(at(5), 7, Span::ZERO);
        assert_eq!(departures.span(7, 9), None);
    }

    #[test]
    fn notes_are_at_least_a_millisecond_and_a_256th_of_a_round_trip_apart() {
        let notes = |rtt, micros: u64| {
            let mut departures = Departures::default();
            departures.note(at(0), 0, Span::from_millis(rtt));
            departures.note(at(micros), 1, Span::from_millis(rtt));
            departures.notes.len()
        };
        assert_eq!([notes(10, 999), notes(10, 1_000)], [1, 2]);
        assert_eq!([notes(512, 1_999), notes(512, 2_000)], [1, 2]);
    }

    #[test]
    fn the_last_datagram_before_a_pause_of_a_millisecond_is_noted_once() {
        let notes = |count: u64, micros| {
            let mut departures = Departures::default();
            departures.note_burst(at(0), 0, count);
            departures.note_burst(at(micros), count, 1);
            departures.notes.into_iter().collect::<alloc::vec::Vec<_>>()
        };
        assert_eq!(notes(32, 1_000), [(0, at(0)), (31, at(0)), (32, at(1_000))]);
        assert_eq!(notes(32, 999), [(0, at(0))]);
        assert_eq!(notes(1, 1_000), [(0, at(0)), (1, at(1_000))]);
    }

    #[test]
    fn a_note_is_kept_until_all_numbers_before_the_next_note_are_forgotten() {
        let mut departures = Departures::default();
        for number in [0, 10, 20] {
            departures.note(at(number * 1_000), number, Span::ZERO);
        }
        let mut left = |number| {
            departures.forget(number);
            departures.notes.len()
        };
        assert_eq!([9, 10, 19, 90].map(&mut left), [3, 2, 2, 1]);
    }
}
