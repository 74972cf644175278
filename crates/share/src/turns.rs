//! Limits the pending calls of one client at a server.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use tokio::sync::Semaphore;

/// Maximum number of calls of one client id without a written answer, over all its streams. The
/// values of calls and answers have at most 64 KiB each: together 32 MiB (256 × 2 × 64 KiB).
const TURNS: usize = 256;

/// The calls of each client.
#[derive(Debug, Default)]
pub(crate) struct Turns(RefCell<HashMap<[u8; 32], Weak<Semaphore>>>);

impl Turns {
    /// Returns the semaphore of `client`'s streams. A permit is one call.
    pub(crate) fn of(&self, client: [u8; 32]) -> Arc<Semaphore> {
        let mut all = self.0.borrow_mut();
        all.retain(|_, turns| turns.strong_count() > 0);
        if let Some(turns) = all.get(&client).and_then(Weak::upgrade) {
            return turns;
        }
        let turns = Arc::new(Semaphore::new(TURNS));
        all.insert(client, Arc::downgrade(&turns));
        turns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_streams_of_one_client_share_a_limit_and_each_client_has_its_own() {
        let all = Turns::default();
        let (one, same, other) = (all.of([1; 32]), all.of([1; 32]), all.of([2; 32]));
        let held = one.try_acquire_many(TURNS as u32).unwrap();
        assert!(same.try_acquire().is_err() && other.try_acquire().is_ok());
        drop(held);
        drop((one, same, other));
        all.of([3; 32]);
        assert_eq!(all.0.borrow().len(), 1, "clients that have gone are forgotten");
    }
}
