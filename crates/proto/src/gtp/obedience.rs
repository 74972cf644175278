//! Detects a sender that exceeds its requested rate.
//!
//! The receiver requests more data than the path holds. The excess is in the sender's hand
//! (requested and not yet sent), so a late request does not starve the sender. [`Obedience`]
//! compares the datagrams sent, by packet numbers, with the allowed rate. It allows one burst in
//! addition, because paths and hosts release held data in bursts.

use crate::time::Time;

/// Bits that the sender may still send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Obedience {
    left: f64,
    /// The largest `burst` of all calls of [`Obedience::allow`] so far, in bits.
    burst: f64,
    at: Time,
}

impl Obedience {
    pub(super) fn new(now: Time, bits: f64) -> Obedience {
        Obedience { left: bits, burst: 0.0, at: now }
    }

    /// Credits the time since the last call at `rate`, in bits a second, until the allowance is
    /// `burst` bits. An allowance that is already larger stays.
    pub(super) fn allow(&mut self, now: Time, rate: f64, burst: f64) {
        let most = self.left.max(burst);
        // If `burst` exceeds all earlier values, the difference may arrive as one burst.
        let more = (burst - self.burst).max(0.0);
        self.left = (self.left + more + rate * now.since(self.at).as_secs_f64()).min(most);
        (self.burst, self.at) = (self.burst.max(burst), now);
    }

    /// Charges `count` datagrams of `bits` each; returns how many were too fast.
    pub(super) fn take(&mut self, count: u64, bits: f64) -> u64 {
        let fits = count.min((self.left / bits.max(1.0)) as u64);
        self.left -= fits as f64 * bits;
        count - fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Span;

    /// Returns how many datagrams are too fast in a second. In each 1/1,024 s `datagrams` datagrams
    /// of 1,024 bits are sent and one is requested; 100 are in hand.
    fn too_fast(datagrams: u64) -> u64 {
        const BITS: f64 = 1024.0;
        let mut obedience = Obedience::new(Time::ZERO, 100.0 * BITS);
        let each = (1..=1024).map(|n| {
            let now = Time::ZERO + Span::from_secs(n) / 1024;
            obedience.allow(now, BITS * 1024.0, 100.0 * BITS);
            obedience.take(datagrams, BITS)
        });
        each.sum()
    }

    #[test]
    fn datagrams_beyond_the_rate_and_one_burst_are_too_fast() {
        assert!(too_fast(1) <= 1);
        // Of 2,048 datagrams, 1,024 are within the rate, and 100 were in hand at the start.
        assert!((923..927).contains(&too_fast(2)), "{}", too_fast(2));
        assert!((9_110..9_120).contains(&too_fast(10)), "{}", too_fast(10));
    }

    #[test]
    fn held_back_datagrams_may_arrive_in_one_burst_and_no_more() {
        let at = |secs| Time::ZERO + Span::from_secs(secs);
        let mut obedience = Obedience::new(Time::ZERO, 0.0);
        obedience.allow(at(9), 1e6, 200e3);
        assert_eq!(obedience.take(201, 1e3), 1);
        // When the rate falls, the data that were in hand at the higher rate may still arrive.
        obedience.allow(at(18), 1e6, 200e3);
        obedience.allow(at(18), 1e3, 2e3);
        assert_eq!((obedience.take(200, 1e3), obedience.take(1, 1e3)), (0, 1));
    }

    #[test]
    fn after_the_first_request_one_full_burst_may_arrive() {
        let mut obedience = Obedience::new(Time::ZERO, 0.0);
        obedience.allow(Time::ZERO, 1e6, 200e3);
        assert_eq!((obedience.take(200, 1e3), obedience.take(1, 1e3)), (0, 1));
        // When `burst` returns to an earlier value, it allows no second burst.
        obedience.allow(Time::ZERO, 1e3, 2e3);
        obedience.allow(Time::ZERO, 1e6, 200e3);
        assert_eq!(obedience.take(1, 1e3), 1);
    }

    #[test]
    fn the_allowance_grows_at_the_rate_up_to_the_burst() {
        let at = |secs| Time::ZERO + Span::from_secs(secs);
        let mut obedience = Obedience::new(Time::ZERO, 1e3);
        let mut left = |secs, burst, datagrams| {
            obedience.allow(at(secs), 1e3, burst);
            (obedience.left, obedience.take(datagrams, 1e3), obedience.left)
        };
        assert_eq!(left(1, 5e3, 3), (5e3, 0, 2e3));
        assert_eq!(left(2, 5e3, 4), (3e3, 1, 0.0));
        assert_eq!(left(4, 6e3, 2), (3e3, 0, 1e3), "more is in hand than ever");
        assert_eq!(left(9, 3e3, 0), (3e3, 0, 3e3));
        assert_eq!(left(9, 0.0, 1), (3e3, 0, 2e3), "less in hand does not reduce the allowance");
    }
}
