//! The memory for incomplete chunks, divided among the transfers that receive.
//!
//! A receiver grants what it can hold. Where several transfers share one memory, each is granted
//! its part of it; parts grow and shrink as transfers come and go. What has been granted stays
//! granted, so a transfer that has more than its part keeps it until it has drained, and until
//! then the others have less.
//!
//! Before anything can be granted, a sender may send [`EARLY_GRANT`]: every transfer holds
//! [`LEAST`] for that, and a memory that is smaller is refused. Who comes when less is left waits
//! for it, before all who would grow; a quarter is left for them beforehand. So the parts together
//! are never more than the memory, and a transfer never has more buffers than its part: what is
//! sent beyond a grant finds none, whatever the other end believes.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longhaul_proto::units::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::datapath::chunks::ChunkPool;
use crate::end::EARLY_GRANT;
use crate::error::{Class, Error};
use crate::objects::CHUNK;

/// A grant may begin and end within a chunk: so many more are open. Of a transfer by streams, the
/// control stream's own chunks: the one that is put together, and the one that waits for room.
const PARTLY: u32 = 2;
/// Chunks that go with the first grant.
const EARLY: u32 = (EARLY_GRANT.get() / CHUNK) as u32;
/// Chunks that every transfer holds.
const LEAST: u32 = EARLY + PARTLY;
/// How long a transfer waits for memory before it is told to come again.
const PATIENCE: Duration = Duration::from_secs(10);

/// A memory that transfers share. Clones are the same.
#[derive(Clone)]
pub(crate) struct Budget(Arc<Inner>);

struct Inner {
    /// All of it, in chunks.
    total: u32,
    /// Chunks that no transfer holds; who waits for some is served in turn.
    free: Arc<Semaphore>,
    /// Transfers that have a part or wait for one.
    count: AtomicU32,
    /// Transfers that will come, and those that have had a part: the first must not take what the
    /// last one needs.
    expected: u32,
    entered: AtomicU32,
    patience: Duration,
}

/// A place among the transfers that share the memory; given back when dropped.
struct Place(Arc<Inner>);

/// A transfer's part; given back when dropped.
pub(crate) struct Part {
    place: Place,
    /// As many chunks as `pool` may have.
    held: Mutex<OwnedSemaphorePermit>,
    pool: ChunkPool,
    streamed: Arc<Semaphore>,
}

impl Budget {
    /// A memory of `memory` bytes.
    ///
    /// # Errors
    /// [`Class::Usage`] where that is less than what any transfer holds.
    pub(crate) fn new(memory: Bytes) -> Result<Budget, Error> {
        Budget::expecting(memory, 0)
    }

    /// The same where so many transfers will come, each of which finds its part.
    ///
    /// # Errors
    /// As [`Budget::new`].
    pub(crate) fn expecting(memory: Bytes, transfers: u32) -> Result<Budget, Error> {
        Budget::patient(memory, transfers, PATIENCE)
    }

    /// What so many transfers hold together at least: less, and some have to wait for others.
    pub(crate) const fn least_of(transfers: u64) -> Bytes {
        Bytes::new(transfers.saturating_mul(LEAST as u64 * CHUNK))
    }

    fn patient(memory: Bytes, expected: u32, patience: Duration) -> Result<Budget, Error> {
        let least = Budget::least_of(1);
        if memory < least {
            let what = format!("--memory {memory} is too little");
            return Err(Error::new(Class::Usage, what)
                .advise(format!("give it at least {}Mi", least.get() >> 20)));
        }
        let total = u32::try_from(memory.get() / CHUNK).unwrap_or(u32::MAX).min(1 << 28);
        let free = Arc::new(Semaphore::new(total as usize));
        let (count, entered) = (AtomicU32::new(0), AtomicU32::new(0));
        Ok(Budget(Arc::new(Inner { total, free, count, expected, entered, patience })))
    }

    /// A part for one more transfer, as soon as there is memory for it.
    ///
    /// # Errors
    /// [`Class::Unfinished`], which a client takes up again, where others hold all of the memory
    /// for too long.
    pub(crate) async fn enter(&self) -> Result<Part, Error> {
        let place = Place::new(&self.0);
        let held = timeout(self.0.patience, self.0.free.clone().acquire_many_owned(LEAST)).await;
        let Ok(Ok(held)) = held else {
            let others = self.0.count().saturating_sub(1);
            let what = format!("{others} copies under way into here hold all of --memory");
            return Err(Error::new(Class::Unfinished, what)
                .advise("raise --memory there, or wait for one to end"));
        };
        self.0.entered.fetch_add(1, Ordering::Relaxed);
        Ok(Part {
            place,
            held: Mutex::new(held),
            pool: ChunkPool::new(Bytes::new(CHUNK), Budget::least_of(1)),
            streamed: Arc::new(Semaphore::new(EARLY as usize)),
        })
    }
}

impl Inner {
    fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// Chunks that are left to who comes next.
    fn reserve(&self) -> u32 {
        let yet = self.expected.saturating_sub(self.entered.load(Ordering::Relaxed));
        let usual = if self.total < 2 * LEAST { 0 } else { (self.total / 4).max(LEAST) };
        usual.max(yet.saturating_mul(LEAST)).min(self.total)
    }

    /// Among how many the memory is divided.
    fn sharers(&self) -> u32 {
        self.count().max(self.expected.saturating_sub(self.gone())).max(1)
    }

    /// Transfers that have had a part and have given it back.
    fn gone(&self) -> u32 {
        self.entered.load(Ordering::Relaxed).saturating_sub(self.count())
    }
}

impl Place {
    fn new(inner: &Arc<Inner>) -> Place {
        inner.count.fetch_add(1, Ordering::Relaxed);
        Place(inner.clone())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Part {
    /// Where buffers are taken from.
    pub(crate) fn pool(&self) -> ChunkPool {
        self.pool.clone()
    }

    /// Room for chunks that come by streams, in place of datagrams, and wait for it.
    pub(crate) fn streamed(&self) -> Arc<Semaphore> {
        self.streamed.clone()
    }

    /// This transfer has been granted `held` bytes more than it has drained: how many that may be
    /// now, which is never less.
    pub(crate) fn room(&self, held: Bytes) -> Bytes {
        let shared = &self.place.0;
        let mut permit = self.held();
        let has = permit.num_permits();
        let fair = (shared.total - shared.reserve()) / shared.sharers();
        let wanted = chunks_of(held).max(fair.max(LEAST) as usize);
        if wanted < has {
            drop(permit.split(has - wanted));
        } else {
            let spare = shared.free.available_permits().saturating_sub(shared.reserve() as usize);
            let more = (wanted - has).min(spare);
            // Somebody else may have been quicker; then the next time.
            if let Ok(more) = shared.free.clone().try_acquire_many_owned(more as u32) {
                permit.merge(more);
            }
        }
        self.pool.set_capacity(permit.num_permits());
        Bytes::new((permit.num_permits() as u64 - u64::from(PARTLY)) * CHUNK)
    }

    fn held(&self) -> MutexGuard<'_, OwnedSemaphorePermit> {
        // Nothing panics while the lock is held.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The most chunks that a flow with `held` bytes granted and not drained can have.
fn chunks_of(held: Bytes) -> usize {
    usize::try_from(held.get().div_ceil(CHUNK) + u64::from(PARTLY)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn mebi(bytes: Bytes) -> u64 {
        bytes.get() >> 20
    }

    /// A part, if there is one at once.
    fn enter(budget: &Budget) -> Option<Part> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let _entered = runtime.enter();
        let mut entering = pin!(budget.enter());
        match entering.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(entered) => entered.ok(),
            Poll::Pending => None,
        }
    }

    #[test]
    fn one_transfer_has_all_but_what_is_left_for_the_next_and_two_share_that() {
        let budget = Budget::new(Bytes::mebi(512)).unwrap();
        let first = enter(&budget).unwrap();
        assert_eq!(mebi(first.room(Bytes::ZERO)), 382);
        let second = enter(&budget).unwrap();
        // What has been granted stays granted; the other has what was left meanwhile.
        assert_eq!(mebi(first.room(Bytes::mebi(382))), 382);
        assert_eq!(mebi(second.room(Bytes::ZERO)), 30);
        assert_eq!(mebi(first.room(Bytes::mebi(300))), 300);
        // What comes free is first left for the next again.
        assert_eq!(mebi(second.room(Bytes::mebi(30))), 80);
        assert_eq!(mebi(first.room(Bytes::mebi(100))), 190);
        assert_eq!(mebi(second.room(Bytes::mebi(80))), 190);
        drop(first);
        assert_eq!(mebi(second.room(Bytes::mebi(190))), 382);
    }

    #[test]
    fn the_last_of_those_that_are_expected_finds_its_part_however_much_the_first_want() {
        for memory in [512, 8 * 32, 300] {
            let budget = Budget::expecting(Bytes::mebi(memory), 8).unwrap();
            let parts: Vec<Part> = (0..8)
                .map(|_| {
                    let part = enter(&budget).expect("there is memory for eight");
                    // All that it is granted it holds.
                    part.room(part.room(Bytes::ZERO));
                    part
                })
                .collect();
            let rooms = parts.iter().map(|part| mebi(part.room(Bytes::ZERO)));
            assert!(
                rooms.clone().all(|room| room >= 30),
                "{memory}: {:?}",
                rooms.collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn too_little_memory_is_refused_with_the_least() {
        let error = Budget::new(Bytes::mebi(31)).err().unwrap();
        assert_eq!(error.class, Class::Usage);
        assert!(error.advice.is_some_and(|advice| advice.contains("at least 32Mi")));
        assert!(Budget::new(Bytes::mebi(32)).is_ok());
    }

    #[test]
    fn who_finds_no_memory_waits_for_it_and_has_it_before_others_grow() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let budget = Budget::patient(Bytes::mebi(70), 0, Duration::from_secs(60)).unwrap();
            let (first, second) = (budget.enter().await.unwrap(), budget.enter().await.unwrap());
            let mut entering = pin!(budget.enter());
            let mut context = Context::from_waker(Waker::noop());
            assert!(entering.as_mut().poll(&mut context).is_pending(), "there is no memory");
            drop(first);
            // What it had went to who waits, at once.
            assert_eq!(mebi(second.room(Bytes::mebi(30))), 30);
            assert!(entering.as_mut().poll(&mut context).is_ready());
        });
    }

    #[test]
    fn who_waits_in_vain_is_told_to_come_again() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let budget = Budget::patient(Bytes::mebi(70), 0, Duration::from_millis(10)).unwrap();
            let _parts = (budget.enter().await.unwrap(), budget.enter().await.unwrap());
            let refused = budget.enter().await.err().expect("nobody ends");
            assert_eq!(refused.class, Class::Unfinished);
            assert!(refused.what.starts_with("2 copies"), "{refused}");
        });
    }

    proptest! {
        #[test]
        fn whatever_is_granted_can_be_lent_and_never_more_than_there_is(
            memory in 32u64..600,
            steps in prop::collection::vec((0usize..20, 0u64..600, 0u8..4), 1..200),
        ) {
            let budget = Budget::new(Bytes::mebi(memory)).unwrap();
            // Each with what it has been granted and not drained.
            let mut parts: Vec<(Part, Bytes)> = Vec::new();
            for (which, drained, what) in steps {
                match what {
                    0 => parts.extend(enter(&budget).map(|part| (part, EARLY_GRANT))),
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
                for (part, held) in &parts {
                    prop_assert!(chunks_of(*held) <= part.pool.capacity());
                }
                let most: usize = parts.iter().map(|(part, _)| part.pool.capacity()).sum();
                prop_assert!(most as u64 <= memory, "{} chunks", most);
            }
        }
    }
}
