//! Rate limits by decaying charges; the caller passes the time.
//!
//! A charge is a time span. Each event adds a charge to its key (such as a client's network), and
//! the key's charge decays by one second a second. A key is over its limit while its charge exceeds
//! the free amount. If an event leaves its key over the limit, the key's next event costs twice as
//! much, up to a longest charge. The cost returns to the first charge when the key's charge has
//! decayed completely.

use std::collections::HashMap;
use std::hash::Hash;

use longhaul_proto::time::{Span, Time};

/// The rule for charges.
#[derive(Clone, Copy, Debug)]
pub struct Tariff {
    /// The first charge of one event.
    pub each: Span,
    /// Up to this charge a key is within its limit.
    pub free: Span,
    /// The longest charge of one event. A key exceeds its limit for at most this time after the
    /// key's last event.
    pub longest: Span,
}

/// Maximum number of keys kept. A further key replaces the key with the smallest charge.
const MOST: usize = 4096;

#[derive(Clone, Copy, Debug)]
struct Charge {
    /// When the charge will have decayed completely.
    until: Time,
    /// The charge of the next event.
    next: Span,
}

/// The charges of all keys.
#[derive(Debug)]
pub struct Meter<K> {
    tariff: Tariff,
    charges: HashMap<K, Charge>,
}

impl<K: Copy + Eq + Hash> Meter<K> {
    /// Creates a meter without charges.
    pub fn new(tariff: Tariff) -> Meter<K> {
        Meter { tariff, charges: HashMap::new() }
    }

    /// Returns whether `key` is over its limit.
    pub fn is_over(&self, now: Time, key: K) -> bool {
        self.charge(now, key) > self.tariff.free
    }

    /// Returns whether `key` would be within its limit after one more event that costs
    /// [`Tariff::each`].
    pub fn has_room(&self, now: Time, key: K) -> bool {
        self.charge(now, key) + self.tariff.each <= self.tariff.free
    }

    /// Returns the time until `key` is within its limit again; zero if `key` is within it now.
    pub fn over_for(&self, now: Time, key: K) -> Span {
        self.charge(now, key).saturating_sub(self.tariff.free)
    }

    /// Charges `key` for one event. Returns whether this event took `key` over its limit; `false`
    /// if `key` was over its limit before.
    pub fn add(&mut self, now: Time, key: K) -> bool {
        let Tariff { each, free, longest } = self.tariff;
        let before = self.charge(now, key);
        let entry = self.charges.get(&key).filter(|_| before > Span::ZERO);
        let cost = entry.map_or(each, |charge| charge.next);
        let after = (before + cost).min(free + longest);
        if entry.is_none() {
            self.make_room(now);
        }
        let is_over = after > free;
        let next = if is_over { (cost * 2).min(longest) } else { cost };
        self.charges.insert(key, Charge { until: now + after, next });
        is_over && before <= free
    }

    /// Forgets the charges of `key`.
    pub fn forgive(&mut self, key: K) {
        self.charges.remove(&key);
    }

    fn charge(&self, now: Time, key: K) -> Span {
        self.charges.get(&key).map_or(Span::ZERO, |charge| charge.until.since(now))
    }

    fn make_room(&mut self, now: Time) {
        if self.charges.len() < MOST {
            return;
        }
        self.charges.retain(|_, charge| charge.until > now);
        if self.charges.len() >= MOST {
            let least = self.charges.iter().min_by_key(|(_, charge)| charge.until);
            if let Some(key) = least.map(|(key, _)| *key) {
                self.charges.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARIFF: Tariff =
        Tariff { each: Span::from_secs(3), free: Span::from_secs(9), longest: Span::from_secs(12) };

    fn at(secs: u64) -> Time {
        Time::from_nanos(1) + Span::from_secs(secs)
    }

    #[test]
    fn a_key_stays_within_its_limit_if_its_charges_decay_in_time() {
        let mut meter = Meter::new(TARIFF);
        for n in 0..100 {
            assert!(!meter.add(at(3 * n), 'a') && !meter.is_over(at(3 * n), 'a'), "{n}");
        }
        assert!(!meter.add(at(297), 'a') && !meter.add(at(297), 'a'));
        assert!(meter.add(at(297), 'a'), "the fourth at once");
        assert!(meter.is_over(at(297), 'a') && !meter.is_over(at(297), 'b'));
    }

    #[test]
    fn each_event_over_the_limit_doubles_the_wait_up_to_the_longest_charge() {
        let mut meter = Meter::new(TARIFF);
        for _ in 0..3 {
            meter.add(at(0), 'a');
        }
        let mut now = at(0);
        for waits in [3, 6, 12, 12, 12] {
            assert!(!meter.is_over(now, 'a'));
            assert!(meter.add(now, 'a'), "it goes over its limit again");
            assert_eq!(meter.over_for(now, 'a'), Span::from_secs(waits));
            now += Span::from_secs(waits);
        }
        // Simultaneous events together keep a key over its limit for at most the longest charge.
        for _ in 0..1000 {
            meter.add(now, 'a');
        }
        assert_eq!(meter.over_for(now, 'a'), TARIFF.longest);
        // After the longest charge plus the free amount, everything has decayed.
        now += TARIFF.longest + TARIFF.free;
        assert!(!meter.add(now, 'a'));
        assert_eq!(meter.charges[&'a'].next, TARIFF.each);
    }

    #[test]
    fn a_forgiven_key_has_no_charges_left() {
        let mut meter = Meter::new(TARIFF);
        for _ in 0..9 {
            meter.add(at(0), 'a');
        }
        meter.forgive('a');
        assert!(!meter.is_over(at(0), 'a') && meter.charges.is_empty());
    }

    #[test]
    fn the_number_of_keys_is_bounded_and_the_keys_with_the_largest_charges_stay() {
        let mut meter = Meter::new(TARIFF);
        for _ in 0..5 {
            meter.add(at(0), u32::MAX);
        }
        for key in 0..3 * MOST as u32 {
            meter.add(at(0), key);
        }
        assert_eq!(meter.charges.len(), MOST);
        assert!(meter.is_over(at(0), u32::MAX), "other keys do not evict it");
        meter.add(at(100), 0);
        assert_eq!(meter.charges.len(), 1, "decayed charges are forgotten");
    }
}
