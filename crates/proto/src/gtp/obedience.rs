//! Whether a sender keeps to the rate that it is asked for.
//!
//! A sender has more in hand than its path holds, so that no late request starves it. One that
//! sends all of it at once brings several times its rate, the less its round-trip time the more,
//! and takes the link from the others. What it has sent, by the numbers of what comes, is held
//! against what it was asked for, with room for all that it may have in hand: what a path or a
//! host held back comes at once.

use crate::time::Time;

/// What may have been sent, in bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Obedience {
    left: f64,
    /// The most that it might ever have had in hand.
    in_hand: f64,
    at: Time,
}

impl Obedience {
    /// At first `bits` leave unasked.
    pub(super) fn new(now: Time, bits: f64) -> Obedience {
        Obedience { left: bits, in_hand: 0.0, at: now }
    }

    /// Time has passed in which the sender was to send at `rate` at the most, in bits a second,
    /// and might have had so many bits in hand.
    pub(super) fn allow(&mut self, now: Time, rate: f64, in_hand: f64) {
        let most = self.left.max(in_hand);
        // What it may have in hand for the first time may come at once.
        let more = (in_hand - self.in_hand).max(0.0);
        self.left = (self.left + more + rate * now.since(self.at).as_secs_f64()).min(most);
        (self.in_hand, self.at) = (self.in_hand.max(in_hand), now);
    }

    /// So many more datagrams of `bits` were sent; tells how many of them too fast.
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

    /// What of a second of so many datagrams of 1,024 bits each 1/1,024 s was too fast, where a
    /// rate of one each was asked for and 100 may be in hand.
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
    fn what_is_sent_beyond_the_rate_and_what_may_be_in_hand_is_too_fast() {
        assert!(too_fast(1) <= 1);
        // Of 2,048, half at the rate and a hundred that were in hand.
        assert!((923..927).contains(&too_fast(2)), "{}", too_fast(2));
        assert!((9_110..9_120).contains(&too_fast(10)), "{}", too_fast(10));
    }

    #[test]
    fn what_was_held_back_may_come_at_once_and_no_more() {
        let at = |secs| Time::ZERO + Span::from_secs(secs);
        let mut obedience = Obedience::new(Time::ZERO, 0.0);
        obedience.allow(at(9), 1e6, 200e3);
        assert_eq!(obedience.take(201, 1e3), 1);
        // What was in hand at a higher rate is not taken back when that falls.
        obedience.allow(at(18), 1e6, 200e3);
        obedience.allow(at(18), 1e3, 2e3);
        assert_eq!((obedience.take(200, 1e3), obedience.take(1, 1e3)), (0, 1));
    }

    #[test]
    fn what_may_be_in_hand_may_come_from_the_first_request_on() {
        let mut obedience = Obedience::new(Time::ZERO, 0.0);
        obedience.allow(Time::ZERO, 1e6, 200e3);
        assert_eq!((obedience.take(200, 1e3), obedience.take(1, 1e3)), (0, 1));
        // Not again after less, or one that is asked for less and more by turns could take both.
        obedience.allow(Time::ZERO, 1e3, 2e3);
        obedience.allow(Time::ZERO, 1e6, 200e3);
        assert_eq!(obedience.take(1, 1e3), 1);
    }
}
