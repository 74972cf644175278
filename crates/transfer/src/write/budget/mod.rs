//! The memory for incomplete chunks, divided among the receiving transfers. The share of one
//! transfer is called its part.
//!
//! A receiver grants its sender as many bytes as it can hold. If several transfers share one
//! memory, each transfer may grant its part. Parts grow and shrink as transfers begin and end. A
//! grant is never taken back. A transfer whose part shrinks keeps the excess until the writer has
//! drained it; meanwhile the other transfers have less.
//!
//! Before any grant a sender may send [`EARLY_GRANT`]. So every transfer gets at least [`LEAST`]
//! chunks, and a smaller memory is refused. If fewer chunks are free, a new transfer waits, ahead
//! of all transfers that want to grow. A quarter of the memory, but at least [`LEAST`] chunks, is
//! reserved for new transfers; nothing if the memory is too small for two transfers. If the number
//! of transfers is known beforehand, at least [`LEAST`] chunks are reserved for each transfer that
//! has not begun.
//!
//! The parts together never exceed the memory, and a transfer never has more buffers than its part.
//! Data that a sender sends beyond its grant find no buffer and are dropped.
//!
//! At a server every transfer has an owner, the client's id. An owner with n transfers gets a part
//! for another transfer only while the free memory suffices for more than n parts of [`LEAST`]
//! chunks. So one owner gets at most about half of the parts, even if it starts many transfers.
//! Transfers that wait because of this limit do not block the transfers of other owners.
//!
//! Lists of files ([`lists`]) and messages ([`messages`]) are charged to the same memory.

mod lists;
mod messages;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longhaul_net::buffers::chunks::ChunkPool;
use longhaul_proto::units::Bytes;
use tokio::sync::{AcquireError, Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

pub(crate) use self::lists::ListCharge;
pub(crate) use self::messages::MessageCharge;
use crate::error::{Error, ErrorKind};
use crate::options::{CopyOptions, SharedMemory};
use crate::session::PeerId;
use longhaul_files::CHUNK;
use longhaul_text::CallOption;

/// The amount that a sender may send before the receiving end's plan. The receiving end reserves
/// this much, and two chunks that may be partly filled: 32 MiB in total.
pub(crate) const EARLY_GRANT: Bytes = Bytes::mebi(30);

/// Additional chunks of a part, because a grant may begin and end within a chunk. A transfer over
/// streams needs these two for the control stream: one chunk is being assembled, and one waits for
/// memory.
const PARTLY: u32 = 2;
/// Chunks of the first grant.
const EARLY: u32 = (EARLY_GRANT.get() / CHUNK) as u32;
/// Minimum number of chunks of a part.
const LEAST: u32 = EARLY + PARTLY;
/// How long a transfer waits for memory before it is refused and has to retry.
const PATIENCE: Duration = Duration::from_secs(10);

/// A memory that transfers share. Clones refer to the same memory.
#[derive(Clone)]
pub(crate) struct Budget(Arc<Inner>);

struct Inner {
    /// Total size in chunks.
    total: u32,
    /// Chunks that no transfer has; waiting transfers get them in the order of their requests.
    free: Arc<Semaphore>,
    /// Transfers that have a part or wait for one.
    count: AtomicU32,
    /// The number of expected transfers. The first transfer must not take memory that the last one
    /// needs.
    expected: u32,
    /// The number of transfers that have had a part, including those that have ended.
    entered: AtomicU32,
    patience: Duration,
    /// The number of parts of each owner.
    owners: Mutex<HashMap<PeerId, u32>>,
    /// Chunks charged for each owner's lists.
    lists: Mutex<HashMap<PeerId, u32>>,
    /// Chunks held by the messages of each owner; an owner without such messages is left out.
    messages: Mutex<HashMap<PeerId, u32>>,
    /// Notifies that chunks or a part were returned.
    returned: Notify,
}

/// A place among the transfers that share the memory; freed on drop.
struct Place(Arc<Inner>);

/// One of the parts of an owner; returned on drop.
struct Share {
    inner: Arc<Inner>,
    owner: PeerId,
}

/// A transfer's part; returned on drop.
pub(crate) struct MemoryPart {
    /// Permits for the chunks that `pool` may have. Dropped before `share`: the drop of `share`
    /// wakes waiting transfers, which must then see the freed memory.
    held: Mutex<OwnedSemaphorePermit>,
    share: Option<Share>,
    place: Place,
    pool: ChunkPool,
    streamed: Arc<Semaphore>,
}

impl Budget {
    /// Fails if `memory` is less than one transfer needs.
    pub(crate) fn new(memory: Bytes) -> Result<Budget, Error> {
        Budget::expecting(memory, 0)
    }

    /// Returns a memory that reserves a part for each of `transfers` expected transfers.
    pub(crate) fn expecting(memory: Bytes, transfers: u32) -> Result<Budget, Error> {
        Budget::patient(memory, transfers, PATIENCE)
    }

    /// Returns the memory of a copy that needs `least`: the memory that it shares with other
    /// copies, or its own.
    pub(crate) fn of_copy(
        options: &CopyOptions,
        least: Bytes,
        sources: u32,
    ) -> Result<Budget, Error> {
        match options.shared_memory.as_ref().and_then(SharedMemory::counter::<Budget>) {
            Some(shared) => shared.holds(least).map(|()| shared.clone()),
            None => Budget::expecting(options.memory.max(least), sources),
        }
    }

    /// Returns the memory that this many transfers need to run at the same time.
    pub(crate) const fn least_of(transfers: u64) -> Bytes {
        Bytes::new(transfers.saturating_mul(LEAST as u64 * CHUNK))
    }

    /// Fails if the memory cannot hold `least`, even when no other transfer has a part.
    fn holds(&self, least: Bytes) -> Result<(), Error> {
        if Bytes::new(u64::from(self.0.total) * CHUNK) >= least {
            return Ok(());
        }
        let what = format!("{} is too little for all sources", CallOption::Memory);
        let advice = format!("give it at least {}Mi, or copy from fewer", least.get() >> 20);
        Err(Error::new(ErrorKind::Usage, what).advise(advice))
    }

    fn patient(memory: Bytes, expected: u32, patience: Duration) -> Result<Budget, Error> {
        let least = Budget::least_of(1);
        if memory < least {
            let what = format!("{} {memory} is too little", CallOption::Memory);
            return Err(Error::new(ErrorKind::Usage, what)
                .advise(format!("give it at least {}Mi", least.get() >> 20)));
        }
        let total = u32::try_from(memory.get() / CHUNK).unwrap_or(u32::MAX).min(1 << 28);
        let free = Arc::new(Semaphore::new(total as usize));
        let (count, entered) = (AtomicU32::new(0), AtomicU32::new(0));
        let (owners, returned) = (Mutex::default(), Notify::new());
        Ok(Budget(Arc::new(Inner {
            total,
            free,
            count,
            expected,
            entered,
            patience,
            owners,
            lists: Mutex::default(),
            messages: Mutex::default(),
            returned,
        })))
    }

    /// Waits for a part for another transfer. Fails if others hold all of the memory for too long;
    /// a client then retries.
    pub(crate) async fn enter(&self) -> Result<MemoryPart, Error> {
        let place = Place::new(&self.0);
        let held = timeout(self.0.patience, self.0.acquire()).await;
        let Ok(Ok(held)) = held else {
            return Err(full(&held_by_others()));
        };
        Ok(self.part(place, None, held))
    }

    /// Waits for a part for another transfer of `owner`. The wait ends when there is memory and the
    /// limit on one owner allows another part.
    pub(crate) async fn enter_for(&self, owner: PeerId) -> Result<MemoryPart, Error> {
        let place = Place::new(&self.0);
        let entered = timeout(self.0.patience, async {
            let share = self.0.share(owner).await;
            self.0.acquire().await.map(|held| (share, held))
        });
        let Ok(Ok((share, held))) = entered.await else {
            return Err(full(&match self.0.of(owner) {
                0 => held_by_others(),
                _ => {
                    let memory = CallOption::Memory;
                    format!("the copies of {owner} hold as much of {memory} as one id may use")
                }
            }));
        };
        Ok(self.part(place, Some(share), held))
    }

    fn part(&self, place: Place, share: Option<Share>, held: OwnedSemaphorePermit) -> MemoryPart {
        self.0.entered.fetch_add(1, Ordering::Relaxed);
        MemoryPart {
            held: Mutex::new(held),
            share,
            place,
            pool: ChunkPool::new(Bytes::new(CHUNK), Budget::least_of(1)),
            streamed: Arc::new(Semaphore::new(EARLY as usize)),
        }
    }
}

fn full(what: &str) -> Error {
    let advice = format!("raise {} on that host, or wait for a copy to end", CallOption::Memory);
    Error::new(ErrorKind::Unfinished, what).advise(advice).busy()
}

fn held_by_others() -> String {
    format!("the running copies to this host hold all of {}", CallOption::Memory)
}

impl Inner {
    fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    async fn acquire(&self) -> Result<OwnedSemaphorePermit, AcquireError> {
        self.free.clone().acquire_many_owned(LEAST).await
    }

    fn owners(&self) -> MutexGuard<'_, HashMap<PeerId, u32>> {
        // No thread panics while it holds the lock.
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of parts of `owner`, including those that it is about to get.
    fn of(&self, owner: PeerId) -> u32 {
        self.owners().get(&owner).copied().unwrap_or(0)
    }

    async fn share(self: &Arc<Inner>, owner: PeerId) -> Share {
        loop {
            let mut returned = std::pin::pin!(self.returned.notified());
            returned.as_mut().enable();
            if self.has_share(owner) {
                return Share { inner: self.clone(), owner };
            }
            returned.await;
        }
    }

    /// Counts another part of `owner` and returns true. Returns false if `owner` already has parts,
    /// and at least as many as the free memory has room for.
    fn has_share(&self, owner: PeerId) -> bool {
        let free = self.free.available_permits() / LEAST as usize;
        let mut owners = self.owners();
        let own = owners.get(&owner).copied().unwrap_or(0);
        let may = own == 0 || (own as usize) < free;
        if may {
            owners.insert(owner, own + 1);
        }
        may
    }

    fn reserve(&self) -> u32 {
        let yet = self.expected.saturating_sub(self.entered.load(Ordering::Relaxed));
        let usual = if self.total < 2 * LEAST { 0 } else { (self.total / 4).max(LEAST) };
        usual.max(yet.saturating_mul(LEAST)).min(self.total)
    }

    /// Returns the number by which the memory is divided. Without an owner this is the number of
    /// transfers. With an owner it is the number of the owner's transfers times the number of
    /// owners, so that all owners get equal memory. The number is never less than the number of
    /// expected transfers that have not returned their part.
    fn sharers(&self, share: Option<&Share>) -> u32 {
        let transfers = match share {
            Some(share) => {
                let owners = self.owners();
                let own = owners.get(&share.owner).copied().unwrap_or(1);
                own.saturating_mul(u32::try_from(owners.len()).unwrap_or(u32::MAX))
            }
            None => self.count(),
        };
        transfers.max(self.expected.saturating_sub(self.gone())).max(1)
    }

    /// Returns the number of transfers that have returned their part, minus those that wait for
    /// one: `count` includes waiting transfers, `entered` does not.
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

impl Drop for Share {
    fn drop(&mut self) {
        let mut owners = self.inner.owners();
        if let Some(own) = owners.get_mut(&self.owner) {
            *own -= 1;
            if *own == 0 {
                owners.remove(&self.owner);
            }
        }
        drop(owners);
        self.inner.returned.notify_waiters();
    }
}

impl MemoryPart {
    pub(crate) fn pool(&self) -> ChunkPool {
        self.pool.clone()
    }

    /// Returns the semaphore for chunks from streams: each chunk that goes to the writer has a
    /// permit.
    pub(crate) fn streamed(&self) -> Arc<Semaphore> {
        self.streamed.clone()
    }

    /// Adjusts the part to its fair share. Returns the limit on bytes that are granted to this
    /// transfer and not drained yet. `held` is the current number of these bytes; the result is
    /// never less than `held`.
    pub(crate) fn room(&self, held: Bytes) -> Bytes {
        let shared = &self.place.0;
        let mut permit = self.held();
        let has = permit.num_permits();
        let fair = (shared.total - shared.reserve()) / shared.sharers(self.share.as_ref());
        let wanted = chunks_of(held).max(fair.max(LEAST) as usize);
        if wanted < has {
            drop(permit.split(has - wanted));
            shared.returned.notify_waiters();
        } else {
            let spare = shared.free.available_permits().saturating_sub(shared.reserve() as usize);
            let more = (wanted - has).min(spare);
            // Another transfer may have taken the memory; then the next call tries again.
            if let Ok(more) = shared.free.clone().try_acquire_many_owned(more as u32) {
                permit.merge(more);
            }
        }
        self.pool.set_capacity(permit.num_permits());
        Bytes::new((permit.num_permits() as u64 - u64::from(PARTLY)) * CHUNK)
    }

    fn held(&self) -> MutexGuard<'_, OwnedSemaphorePermit> {
        // No thread panics while it holds the lock.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the maximum number of chunks of a flow with `held` bytes granted and not drained.
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

    /// Returns a part, if one is free immediately.
    pub(super) fn enter(budget: &Budget) -> Option<MemoryPart> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let _entered = runtime.enter();
        let mut entering = pin!(budget.enter());
        match entering.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(entered) => entered.ok(),
            Poll::Pending => None,
        }
    }

    #[test]
    fn one_transfer_leaves_memory_for_the_next_and_two_share_the_rest() {
        // A quarter of 512 MiB is reserved, and a part may grant two chunks less than it has.
        let budget = Budget::new(Bytes::mebi(512)).unwrap();
        let first = enter(&budget).unwrap();
        assert_eq!(mebi(first.room(Bytes::ZERO)), 382);
        let second = enter(&budget).unwrap();
        // A grant is not taken back, so `second` has only the minimum until `first` drains data.
        assert_eq!(mebi(first.room(Bytes::mebi(382))), 382);
        assert_eq!(mebi(second.room(Bytes::ZERO)), 30);
        assert_eq!(mebi(first.room(Bytes::mebi(300))), 300);
        // `first` has freed 82 MiB. 32 MiB of them refill the reserve for new transfers, from which
        // `second` got its first part. So `second` grows by 50 MiB.
        assert_eq!(mebi(second.room(Bytes::mebi(30))), 80);
        assert_eq!(mebi(first.room(Bytes::mebi(100))), 190);
        assert_eq!(mebi(second.room(Bytes::mebi(80))), 190);
        drop(first);
        assert_eq!(mebi(second.room(Bytes::mebi(190))), 382);
    }

    #[test]
    fn the_last_expected_transfer_gets_its_part_even_if_earlier_ones_use_their_whole_grant() {
        for memory in [512, 8 * 32, 300] {
            let budget = Budget::expecting(Bytes::mebi(memory), 8).unwrap();
            let parts: Vec<MemoryPart> = (0..8)
                .map(|_| {
                    let part = enter(&budget).expect("there is memory for eight");
                    // The transfer uses everything that it is granted.
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

    /// Returns a part of owner `n`, if one is free immediately.
    pub(super) fn enter_for(budget: &Budget, n: u8) -> Option<MemoryPart> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let _entered = runtime.enter();
        let mut entering = pin!(budget.enter_for(PeerId([n; 32])));
        match entering.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(entered) => entered.ok(),
            Poll::Pending => None,
        }
    }

    #[test]
    fn the_first_owner_gets_half_of_the_parts_and_each_further_owner_half_of_the_rest() {
        let budget = Budget::new(Bytes::mebi(512)).unwrap();
        let all = |n: u8| std::iter::from_fn(|| enter_for(&budget, n)).collect::<Vec<MemoryPart>>();
        let mut parts: Vec<Vec<MemoryPart>> = (0..6).map(all).collect();
        // The memory is enough for 16 parts.
        assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [8, 4, 2, 1, 1, 0]);
        // A part that the first owner returns goes to an owner without parts, not back to the
        // first.
        parts[0].pop();
        assert!(enter_for(&budget, 0).is_none());
        assert!(enter_for(&budget, 6).is_some());
        drop(parts);
        assert!(budget.0.owners().is_empty());
    }

    #[test]
    fn a_waiting_owner_delays_no_other_owner_and_gets_the_parts_that_it_returns() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let budget = Budget::patient(Bytes::mebi(128), 0, Duration::from_secs(60)).unwrap();
            let (one, other) = (PeerId([1; 32]), PeerId([2; 32]));
            let mut parts = vec![budget.enter_for(one).await.unwrap()];
            parts.push(budget.enter_for(one).await.unwrap());
            let mut third = pin!(budget.enter_for(one));
            let mut context = Context::from_waker(Waker::noop());
            assert!(third.as_mut().poll(&mut context).is_pending(), "the owner has half the parts");
            let _other = budget.enter_for(other).await.unwrap();
            assert!(third.as_mut().poll(&mut context).is_pending());
            parts.clear();
            assert!(third.as_mut().poll(&mut context).is_ready());
        });
    }

    #[test]
    fn owners_get_equal_memory_however_many_transfers_each_has() {
        let budget = Budget::new(Bytes::mebi(512)).unwrap();
        let three: Vec<MemoryPart> = (0..3).map(|_| enter_for(&budget, 1).unwrap()).collect();
        let alone = enter_for(&budget, 2).unwrap();
        // 384 MiB are not reserved, 192 for each owner. A part may grant two chunks less than it
        // has.
        assert_eq!(mebi(alone.room(Bytes::ZERO)), 192 - 2);
        for part in &three {
            assert_eq!(mebi(part.room(Bytes::ZERO)), 64 - 2);
        }
    }

    #[test]
    fn an_owner_with_its_full_share_is_refused_with_this_reason() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            // 70 MiB are enough for two transfers, and one owner gets half of that.
            let budget = Budget::patient(Bytes::mebi(70), 0, Duration::from_millis(10)).unwrap();
            let owner = PeerId([1; 32]);
            let _part = budget.enter_for(owner).await.unwrap();
            let refused = budget.enter_for(owner).await.err().expect("it has its share");
            assert_eq!(refused.kind, ErrorKind::Unfinished);
            assert!(refused.what.starts_with(&format!("the copies of {owner}")), "{refused}");
        });
    }

    #[test]
    fn too_little_memory_is_refused_and_the_advice_states_the_minimum() {
        let error = Budget::new(Bytes::mebi(31)).err().unwrap();
        assert_eq!(error.kind, ErrorKind::Usage);
        assert!(error.advice.is_some_and(|advice| advice.contains("at least 32Mi")));
        assert!(Budget::new(Bytes::mebi(32)).is_ok());
    }

    #[test]
    fn a_waiting_transfer_gets_memory_before_other_transfers_grow() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let budget = Budget::patient(Bytes::mebi(70), 0, Duration::from_secs(60)).unwrap();
            let (first, second) = (budget.enter().await.unwrap(), budget.enter().await.unwrap());
            let mut entering = pin!(budget.enter());
            let mut context = Context::from_waker(Waker::noop());
            assert!(entering.as_mut().poll(&mut context).is_pending(), "there is no memory");
            drop(first);
            // The memory of `first` went to the waiting transfer immediately.
            assert_eq!(mebi(second.room(Bytes::mebi(30))), 30);
            assert!(entering.as_mut().poll(&mut context).is_ready());
        });
    }

    #[test]
    fn a_transfer_that_waits_too_long_is_asked_to_retry() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let budget = Budget::patient(Bytes::mebi(70), 0, Duration::from_millis(10)).unwrap();
            let _parts = (budget.enter().await.unwrap(), budget.enter().await.unwrap());
            let refused = budget.enter().await.err().expect("nobody ends");
            assert!(refused.kind == ErrorKind::Unfinished && refused.is_busy, "{refused:?}");
            assert!(refused.what.starts_with("the running copies"), "{refused}");
        });
    }

    proptest! {
        #[test]
        fn grants_fit_their_parts_and_all_parts_together_fit_the_memory(
            memory in 32u64..600,
            steps in prop::collection::vec((0usize..20, 0u64..600, 0u8..4), 1..200),
        ) {
            let budget = Budget::new(Bytes::mebi(memory)).unwrap();
            // Each part with its bytes granted and not drained.
            let mut parts: Vec<(MemoryPart, Bytes)> = Vec::new();
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
