//! The memory for incomplete chunks, divided among the transfers that receive.
//!
//! A receiver grants what it can hold. Where several transfers share one memory, each is granted
//! its part of it; parts grow and shrink as transfers come and go. What has been granted stays
//! granted, so a transfer that has more than its part keeps it until it has drained, and until
//! then the others have less.
//!
//! Before anything can be granted, a sender may send [`EARLY_GRANT`]: every transfer holds that
//! much, and a memory that is smaller is refused.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_proto::units::Bytes;
use tokio::sync::Semaphore;

use crate::datapath::chunks::ChunkPool;
use crate::end::EARLY_GRANT;
use crate::error::{Class, Error};
use crate::objects::CHUNK;

/// Transfers that may receive at once, however small the memory is.
const LEAST_TRANSFERS: u64 = 8;
/// A grant may begin and end within a chunk: so many more are open.
const PARTLY: u64 = 2;

/// A memory that transfers share. Clones are the same.
#[derive(Clone)]
pub(crate) struct Budget(Arc<Inner>);

struct Inner {
    total: u64,
    most: usize,
    pool: ChunkPool,
    /// Room for chunks that come by streams, which wait for it.
    streamed: Arc<Semaphore>,
    parts: Mutex<Parts>,
}

#[derive(Default)]
struct Parts {
    next: u64,
    /// What each transfer may hold now.
    held: BTreeMap<u64, u64>,
}

/// A transfer's part; given back when dropped.
pub(crate) struct Part {
    budget: Arc<Inner>,
    number: u64,
}

impl Budget {
    /// A memory of `memory` bytes.
    ///
    /// # Errors
    /// [`Class::Usage`] where that is less than what any transfer holds.
    pub(crate) fn new(memory: Bytes) -> Result<Budget, Error> {
        if memory < EARLY_GRANT {
            let what = format!("{memory} of memory for incomplete data is too little");
            let least = EARLY_GRANT.get() >> 20;
            return Err(Error::new(Class::Usage, what)
                .advise(format!("give it at least {least}Mi with --memory")));
        }
        let total = memory.get();
        let most = (total / EARLY_GRANT.get()).max(LEAST_TRANSFERS);
        // While an earlier transfer still holds more than its part, later ones hold their least.
        let ceiling = total.saturating_add(most.saturating_mul(EARLY_GRANT.get() + PARTLY * CHUNK));
        Ok(Budget(Arc::new(Inner {
            total,
            most: usize::try_from(most).unwrap_or(usize::MAX),
            pool: ChunkPool::new(Bytes::new(CHUNK), Bytes::new(ceiling)),
            streamed: Arc::new(Semaphore::new((total / CHUNK).min(1 << 30) as usize)),
            parts: Mutex::default(),
        })))
    }

    /// A part for one more transfer.
    ///
    /// # Errors
    /// [`Class::Unfinished`], which a client takes up again, where so many are under way that the
    /// memory is less than what they hold.
    pub(crate) fn enter(&self) -> Result<Part, Error> {
        let mut parts = self.0.parts();
        if parts.held.len() >= self.0.most {
            let what = format!("{} copies are under way into here", parts.held.len());
            return Err(Error::new(Class::Unfinished, what)
                .advise("raise --memory there, or wait for one to end"));
        }
        parts.next += 1;
        let number = parts.next;
        parts.held.insert(number, EARLY_GRANT.get());
        Ok(Part { budget: self.0.clone(), number })
    }
}

impl Part {
    /// Where buffers are taken from.
    pub(crate) fn pool(&self) -> ChunkPool {
        self.budget.pool.clone()
    }

    /// Room for chunks that come by streams.
    pub(crate) fn streamed(&self) -> Arc<Semaphore> {
        self.budget.streamed.clone()
    }

    /// This transfer has been granted `held` bytes more than it has drained: how many that may be
    /// now, which is never less.
    pub(crate) fn room(&self, held: Bytes) -> Bytes {
        let mut parts = self.budget.parts();
        let count = parts.held.len().max(1) as u64;
        let others = parts.held.iter().filter(|(number, _)| **number != self.number);
        let free = self.budget.total.saturating_sub(others.map(|(_, held)| held).sum());
        let fair = (self.budget.total / count).min(free);
        let room = fair.max(EARLY_GRANT.get()).max(held.get());
        parts.held.insert(self.number, room);
        Bytes::new(room)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let mut parts = self.budget.parts();
        parts.held.remove(&self.number);
        if parts.held.is_empty() {
            self.budget.pool.trim();
        }
    }
}

impl Inner {
    fn parts(&self) -> MutexGuard<'_, Parts> {
        // Nothing panics while the lock is held.
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The most chunks that a flow with `held` bytes granted and not drained can have open.
pub(crate) fn chunks_of(held: Bytes) -> usize {
    usize::try_from(held.get() / CHUNK + PARTLY).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mebi(bytes: Bytes) -> u64 {
        bytes.get() >> 20
    }

    #[test]
    fn one_transfer_has_all_and_two_have_half() {
        let budget = Budget::new(Bytes::mebi(512)).unwrap();
        let first = budget.enter().unwrap();
        assert_eq!(mebi(first.room(Bytes::ZERO)), 512);
        let second = budget.enter().unwrap();
        // What has been granted stays granted; the other has its least meanwhile.
        assert_eq!(mebi(first.room(Bytes::mebi(512))), 512);
        assert_eq!(mebi(second.room(Bytes::ZERO)), 32);
        assert_eq!(mebi(first.room(Bytes::mebi(300))), 300);
        assert_eq!(mebi(second.room(Bytes::mebi(32))), 212);
        assert_eq!(mebi(first.room(Bytes::mebi(100))), 256);
        assert_eq!(mebi(second.room(Bytes::mebi(212))), 256);
        drop(first);
        assert_eq!(mebi(second.room(Bytes::mebi(256))), 512);
    }

    #[test]
    fn too_little_memory_is_refused_with_the_least() {
        let error = Budget::new(Bytes::mebi(31)).err().unwrap();
        assert_eq!(error.class, Class::Usage);
        assert!(error.advice.is_some_and(|advice| advice.contains("at least 32Mi")));
    }

    #[test]
    fn more_transfers_than_memory_are_told_to_come_again() {
        let budget = Budget::new(Bytes::mebi(512)).unwrap();
        let parts: Vec<Part> = (0..16).map(|_| budget.enter().unwrap()).collect();
        assert_eq!(budget.enter().err().unwrap().class, Class::Unfinished);
        drop(parts);
        assert!(budget.enter().is_ok());
    }

    proptest! {
        #[test]
        fn whatever_is_granted_can_be_lent(
            memory in 32u64..600,
            steps in prop::collection::vec((0usize..20, 0u64..600, 0u8..4), 1..200),
        ) {
            let budget = Budget::new(Bytes::mebi(memory)).unwrap();
            // Each with what it has been granted and not drained.
            let mut parts: Vec<(Part, Bytes)> = Vec::new();
            for (which, drained, what) in steps {
                match what {
                    0 => parts.extend(budget.enter().ok().map(|part| (part, EARLY_GRANT))),
                    1 if !parts.is_empty() => drop(parts.remove(which % parts.len())),
                    _ if !parts.is_empty() => {
                        let at = which % parts.len();
                        let (part, held) = &mut parts[at];
                        let left = held.saturating_sub(Bytes::mebi(drained));
                        let room = part.room(left);
                        prop_assert!(room >= left);
                        *held = room;
                    }
                    _ => {}
                }
                let chunks: usize = parts.iter().map(|(_, held)| chunks_of(*held)).sum();
                prop_assert!(chunks <= budget.0.pool.capacity(), "{} chunks", chunks);
            }
        }
    }
}
