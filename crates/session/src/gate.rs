//! A limit on clients without a request so far. A new client is always admitted: when all places
//! are taken, the network ([`Network`]) with the most places loses its oldest place.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use longhaul_net::network::Network;

/// A limited number of places, shared by clones.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    limit: usize,
    inside: Arc<Mutex<Inside>>,
}

#[derive(Debug, Default)]
struct Inside {
    next: u64,
    /// By age: the network of each place, and the notification of its eviction.
    places: BTreeMap<u64, (Network, Arc<Notify>)>,
    counts: HashMap<Network, usize>,
}

/// A place; its drop returns the place to the gate.
#[derive(Debug)]
pub(crate) struct Place {
    gate: Gate,
    number: u64,
    leave: Arc<Notify>,
}

impl Gate {
    /// Returns a gate with `limit` places, at least one.
    pub(super) fn new(limit: usize) -> Gate {
        Gate { limit: limit.max(1), inside: Arc::default() }
    }

    /// Returns the number of places of `network`, and of all networks together.
    pub(super) fn crowd(&self, network: Network) -> (usize, usize) {
        let inside = self.lock();
        (inside.counts.get(&network).copied().unwrap_or(0), inside.places.len())
    }

    /// Takes a place for `network`. Returns the place, and how many other places were evicted.
    pub(super) fn enter(&self, network: Network) -> (Place, usize) {
        let mut inside = self.lock();
        let mut left = 0;
        while inside.places.len() >= self.limit && inside.evict() {
            left += 1;
        }
        let number = inside.next;
        inside.next += 1;
        let leave = Arc::new(Notify::new());
        inside.places.insert(number, (network, leave.clone()));
        *inside.counts.entry(network).or_default() += 1;
        (Place { gate: self.clone(), number, leave }, left)
    }

    /// Evicts the oldest place of the network with the most places; `false` if no place is taken.
    pub(super) fn evict(&self) -> bool {
        self.lock().evict()
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inside {
    fn evict(&mut self) -> bool {
        let most = self.counts.values().copied().max();
        let is_crowded = |network: &Network| self.counts.get(network).copied() == most;
        let oldest = self.places.iter().find(|(_, (network, _))| is_crowded(network));
        let Some(number) = oldest.map(|(number, _)| *number) else { return false };
        if let Some(leave) = self.remove(number) {
            leave.notify_one();
        }
        true
    }

    fn remove(&mut self, number: u64) -> Option<Arc<Notify>> {
        let (network, leave) = self.places.remove(&number)?;
        if let Some(count) = self.counts.get_mut(&network) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&network);
            }
        }
        Some(leave)
    }
}

impl Place {
    pub(crate) async fn evicted(&self) {
        self.leave.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.gate.lock().remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn network(last: u8) -> Network {
        Network::of(IpAddr::from([127, 0, 0, last]))
    }

    fn evicted(places: &[Place]) -> Vec<usize> {
        let is_inside = |place: &Place| place.gate.lock().places.contains_key(&place.number);
        (0..places.len()).filter(|at| !is_inside(&places[*at])).collect()
    }

    #[test]
    fn the_oldest_of_the_network_with_the_most_places_leaves_first() {
        let gate = Gate::new(4);
        let mut places: Vec<Place> = [1, 2, 2, 2].map(|last| gate.enter(network(last)).0).into();
        assert_eq!(gate.crowd(network(2)), (3, 4));
        let (newcomer, left) = gate.enter(network(3));
        places.push(newcomer);
        assert_eq!((left, evicted(&places)), (1, vec![1]));
        places.push(gate.enter(network(4)).0);
        assert_eq!(evicted(&places), [1, 2]);
        places.push(gate.enter(network(5)).0);
        assert_eq!(evicted(&places), [0, 1, 2]);
        drop(places.remove(1));
        assert_eq!(
            gate.crowd(network(2)),
            (1, 4),
            "an evicted place is not released a second time"
        );
    }

    #[test]
    fn a_thousand_clients_behind_one_address_may_use_all_places_if_no_others_connect() {
        let gate = Gate::new(1000);
        let places: Vec<Place> = (0..1000).map(|_| gate.enter(network(1)).0).collect();
        assert_eq!((gate.crowd(network(1)), evicted(&places)), ((1000, 1000), vec![]));
        let (_other, left) = gate.enter(network(2));
        assert_eq!((left, evicted(&places)), (1, vec![0]));
        drop(places);
        assert_eq!(gate.crowd(network(1)), (0, 1));
        assert_eq!(gate.lock().counts.len(), 1, "networks without places are forgotten");
    }

    #[test]
    fn an_empty_gate_has_nobody_to_evict() {
        let gate = Gate::new(1);
        assert!(!gate.evict());
        let _evicted = gate.enter(network(1));
        assert!(gate.evict() && !gate.evict());
    }
}
