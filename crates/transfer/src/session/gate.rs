//! How many handshakes may be under way, in all and from one address. Who comes last is let in;
//! the one that has been silent longest has to leave.
//!
//! So a thousand connections that say nothing keep nobody out: a real handshake is over long
//! before it is the oldest.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// A count of handshakes under way. Clones count together.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    limits: Limits,
    inside: Arc<Mutex<Inside>>,
}

/// How many handshakes at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// In all.
    pub(super) all: usize,
    /// From one address.
    pub(super) one: usize,
}

#[derive(Debug, Default)]
struct Inside {
    next: u64,
    /// By age: whose it is, and what tells it to leave.
    places: BTreeMap<u64, (IpAddr, Arc<Notify>)>,
}

/// A place inside; given back when dropped.
#[derive(Debug)]
pub(super) struct Place {
    gate: Gate,
    number: u64,
    leave: Arc<Notify>,
}

impl Gate {
    pub(super) fn new(limits: Limits) -> Gate {
        Gate { limits, inside: Arc::default() }
    }

    /// How many handshakes are under way from `ip`, and in all.
    pub(super) fn crowd(&self, ip: IpAddr) -> (usize, usize) {
        let inside = self.lock();
        (inside.from(ip), inside.places.len())
    }

    /// A place for a handshake with `ip`, and how many others had to leave for it.
    pub(super) fn enter(&self, ip: IpAddr) -> (Place, usize) {
        let mut inside = self.lock();
        let mut left = 0;
        while inside.from(ip) >= self.limits.one {
            left += usize::from(inside.evict(|from| from == ip));
        }
        while inside.places.len() >= self.limits.all {
            left += usize::from(inside.evict(|_| true));
        }
        let number = inside.next;
        inside.next += 1;
        let leave = Arc::new(Notify::new());
        inside.places.insert(number, (ip, leave.clone()));
        (Place { gate: self.clone(), number, leave }, left)
    }

    /// Ends the oldest handshake of all.
    pub(super) fn evict_oldest(&self) -> bool {
        self.lock().evict(|_| true)
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inside {
    fn from(&self, ip: IpAddr) -> usize {
        self.places.values().filter(|(from, _)| *from == ip).count()
    }

    fn evict(&mut self, whom: impl Fn(IpAddr) -> bool) -> bool {
        let oldest = self.places.iter().find(|(_, (from, _))| whom(*from)).map(|(n, _)| *n);
        let Some(number) = oldest else { return false };
        if let Some((_, leave)) = self.places.remove(&number) {
            leave.notify_one();
        }
        true
    }
}

impl Place {
    /// Completes when this place is needed for a newcomer.
    pub(super) async fn evicted(&self) {
        self.leave.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.gate.lock().places.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([127, 0, 0, last])
    }

    #[test]
    fn the_oldest_of_the_same_address_leaves_first() {
        let gate = Gate::new(Limits { all: 3, one: 2 });
        let (first, none) = gate.enter(ip(1));
        let (_other, _) = gate.enter(ip(2));
        let (_second, _) = gate.enter(ip(1));
        assert_eq!((none, gate.crowd(ip(1))), (0, (2, 3)));
        let (_third, left) = gate.enter(ip(1));
        assert_eq!((left, gate.crowd(ip(1))), (1, (2, 3)));
        drop(first);
        assert_eq!(gate.crowd(ip(1)), (2, 3), "the place of the evicted is not given back twice");
    }

    #[test]
    fn the_oldest_of_all_leaves_when_it_is_full() {
        let gate = Gate::new(Limits { all: 2, one: 2 });
        let places: Vec<_> = (1..=3).map(|last| gate.enter(ip(last))).collect();
        assert_eq!(places[2].1, 1);
        assert_eq!(gate.crowd(ip(1)), (0, 2));
    }
}
