//! Repetition with exponential backoff while the peer is silent.

use crate::time::{Span, Time};

/// The time of the last attempt, and how often the wait has doubled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Again {
    last: Time,
    count: u32,
    most: u32,
}

impl Again {
    /// The wait doubles up to `most` times (at most 16), then stays.
    pub(crate) fn new(most: u32) -> Again {
        Again { last: Time::ZERO, count: 0, most: most.min(16) }
    }

    /// Resets the backoff, because the peer has answered or the first attempt begins.
    pub(crate) fn restart(&mut self, now: Time) {
        (self.last, self.count) = (now, 0);
    }

    /// Restarts the current wait without changing the backoff.
    pub(crate) fn put_off(&mut self, now: Time) {
        self.last = now;
    }

    /// Records an attempt, so that the next wait is twice as long, up to the limit.
    pub(crate) fn note(&mut self, now: Time) {
        (self.last, self.count) = (now, (self.count + 1).min(self.most));
    }

    /// When the next attempt is due; `wait` is the wait without backoff.
    pub(crate) fn next(&self, wait: Span) -> Time {
        self.last + wait * (1 << self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_its_limit_and_can_restart() {
        let at = |ms| Time::ZERO + Span::from_millis(ms);
        let wait = Span::from_millis(100);
        let mut again = Again::new(2);
        again.restart(at(50));
        let mut times = [Time::ZERO; 4];
        for time in &mut times {
            *time = again.next(wait);
            again.note(*time);
        }
        assert_eq!(times, [at(150), at(350), at(750), at(1150)]);
        again.put_off(at(1_200));
        assert_eq!(again.next(wait), at(1_600));
        again.restart(at(1_300));
        assert_eq!(again.next(wait), at(1_400));
    }
}
