//! Departure times of datagrams. A pulse (the receiver's periodic report) echoes the number of a
//! datagram, with an age: the time from the datagram's arrival to the pulse. The time since the
//! datagram left, less this age, is the round-trip time.

use alloc::collections::VecDeque;

use crate::time::{Span, Time};
use crate::wire::{Echo, PacketNumber};

/// Maximum number of entries.
const CAPACITY: usize = 4096;
/// An entry covers the bursts of 1/`RESOLUTION` of a round trip.
const RESOLUTION: u64 = 256;

#[derive(Clone, Debug, Default)]
pub(crate) struct SentLog {
    /// Oldest first: the number after the entry's last datagram, and when its first burst left.
    bursts: VecDeque<(u64, Time)>,
    /// The number of the oldest entry's first datagram.
    first: u64,
}

impl SentLog {
    pub(crate) fn record(&mut self, now: Time, first: PacketNumber, count: u64, rtt: Span) {
        let end = first.0 + count;
        match self.bursts.back_mut() {
            Some((last, time)) if now.since(*time) <= rtt / RESOLUTION => *last = end,
            Some(_) => self.bursts.push_back((end, now)),
            None => {
                self.first = first.0;
                self.bursts.push_back((end, now));
            }
        }
        if self.bursts.len() > CAPACITY
            && let Some((end, _)) = self.bursts.pop_front()
        {
            self.first = end;
        }
    }

    /// Returns the round-trip time that an echo shows, if the log still has its datagram. Drops
    /// older entries.
    pub(crate) fn sample(&mut self, now: Time, echo: Echo) -> Option<Span> {
        if echo.number.0 < self.first {
            return None;
        }
        while let Some(&(end, sent)) = self.bursts.front() {
            if echo.number.0 < end {
                return Some(now.since(sent).saturating_sub(echo.age));
            }
            self.first = end;
            self.bursts.pop_front();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Time = |ms| Time::ZERO + Span::from_millis(ms);

    const RTT: Span = Span::from_millis(100);

    fn echo(number: u64, age: u64) -> Echo {
        Echo { number: PacketNumber(number), age: Span::from_millis(age) }
    }

    #[test]
    fn an_echo_gives_the_time_since_its_datagram_left_minus_the_age_of_the_echo() {
        let mut log = SentLog::default();
        log.record(MS(0), PacketNumber(0), 10, RTT);
        log.record(MS(5), PacketNumber(10), 10, RTT);
        assert_eq!(log.sample(MS(105), echo(9, 5)), Some(Span::from_millis(100)));
        assert_eq!(log.sample(MS(105), echo(10, 0)), Some(Span::from_millis(100)));
        assert_eq!(log.sample(MS(105), echo(9, 0)), None);
        assert_eq!(log.sample(MS(105), echo(20, 0)), None);
    }

    #[test]
    fn the_log_is_bounded() {
        let mut log = SentLog::default();
        for ms in 0..20_000 {
            log.record(MS(ms), PacketNumber(ms), 1, RTT);
        }
        assert!(log.bursts.len() <= CAPACITY);
        assert_eq!(log.sample(MS(20_000), echo(0, 0)), None);
        assert_eq!(log.sample(MS(20_000), echo(19_999, 0)), Some(Span::from_millis(1)));
    }
    #[test]
    fn datagrams_sent_within_a_256th_of_a_round_trip_share_a_departure_time() {
        let sample = |later| {
            let mut log = SentLog::default();
            log.record(MS(0), PacketNumber(0), 10, RTT);
            log.record(Time::from_nanos(later), PacketNumber(10), 10, RTT);
            log.sample(MS(100), echo(15, 0)).map(Span::as_nanos)
        };
        assert_eq!([390_625, 390_626].map(sample), [Some(100_000_000), Some(99_609_374)]);
    }

    #[test]
    fn the_log_keeps_4096_departure_times() {
        let oldest = |count| {
            let mut log = SentLog::default();
            (0..count).for_each(|ms| log.record(MS(ms), PacketNumber(ms), 1, RTT));
            [0, 1].map(|number| log.clone().sample(MS(5_000), echo(number, 0)).is_some())
        };
        assert_eq!([4_096, 4_097].map(oldest), [[true, true], [false, true]]);
    }
}
