//! Buffers of one chunk each, within a budget that may change.
//!
//! The budget covers buffers in use and idle buffers. The buffer returned last is handed out first,
//! because its memory may still be in the CPU's cache.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_proto::units::Bytes;

/// A pool of chunk buffers. Clones share it.
#[derive(Clone)]
pub struct ChunkPool(Arc<Pool>);

struct Pool {
    chunk: usize,
    state: Mutex<State>,
}

struct State {
    most: usize,
    free: Vec<Box<[u8]>>,
    lent: usize,
}

/// One chunk's memory; returns to its pool when dropped. A reused buffer has its old content.
pub struct ChunkBuffer {
    bytes: Box<[u8]>,
    pool: Arc<Pool>,
}

impl ChunkPool {
    /// Returns a pool of buffers of `chunk` bytes, as many as fit into `budget`, but at least two:
    /// one to fill while the other is written. Memory is allocated when needed.
    pub fn new(chunk: Bytes, budget: Bytes) -> ChunkPool {
        let most = (budget.get() / chunk.get().max(1)).max(2);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        ChunkPool(Arc::new(Pool {
            chunk: usize::try_from(chunk.get()).unwrap_or(usize::MAX),
            state: Mutex::new(State { most, free: Vec::new(), lent: 0 }),
        }))
    }

    /// Returns a buffer, or `None` if the budget is used up.
    pub fn take(&self) -> Option<ChunkBuffer> {
        self.take_within(|most| most)
    }

    /// Returns a buffer, or `None` if as many buffers are lent as `limit` allows. `limit` gets the
    /// capacity of the pool.
    fn take_within(&self, limit: impl FnOnce(usize) -> usize) -> Option<ChunkBuffer> {
        let mut state = self.0.state();
        if state.lent >= limit(state.most) {
            return None;
        }
        state.lent += 1;
        let free = state.free.pop();
        drop(state);
        let bytes = free.unwrap_or_else(|| vec![0; self.0.chunk].into_boxed_slice());
        Some(ChunkBuffer { bytes, pool: self.0.clone() })
    }

    /// Returns a buffer for data that flow control does not cover (coded symbols); `None` if less
    /// than a quarter of the budget would stay free.
    pub fn take_spare(&self) -> Option<ChunkBuffer> {
        self.take_within(|most| most - most.div_ceil(4))
    }

    /// Returns the size of each buffer.
    pub fn chunk_size(&self) -> Bytes {
        Bytes::new(self.0.chunk as u64)
    }

    /// Returns the maximum number of buffers.
    pub fn capacity(&self) -> usize {
        self.0.state().most
    }

    /// Changes the maximum number of buffers. Frees idle buffers beyond this number at once, and
    /// buffers in use when they are dropped.
    pub fn set_capacity(&self, most: usize) {
        let mut state = self.0.state();
        state.most = most;
        let kept = most.saturating_sub(state.lent);
        state.free.truncate(kept);
    }

    /// Returns the number of buffers in use.
    pub fn lent(&self) -> usize {
        self.0.state().lent
    }
}

impl Pool {
    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deref for ChunkBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for ChunkBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for ChunkBuffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let mut state = self.pool.state();
        state.lent -= 1;
        if state.lent + state.free.len() < state.most {
            state.free.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_lends_its_budget_and_no_more() {
        let pool = ChunkPool::new(Bytes::new(1000), Bytes::new(3999));
        let lent: Vec<ChunkBuffer> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!((lent.len(), pool.lent()), (3, 3));
        drop(lent);
        assert_eq!(pool.lent(), 0);
        assert!(pool.take().is_some());
    }

    #[test]
    fn spare_buffers_leave_a_quarter_of_the_budget() {
        let pool = ChunkPool::new(Bytes::new(10), Bytes::new(80));
        let spare: Vec<ChunkBuffer> = std::iter::from_fn(|| pool.take_spare()).collect();
        assert_eq!(spare.len(), 6);
        assert!(pool.take().is_some() && pool.take_spare().is_none());
    }

    #[test]
    fn a_pool_that_shrinks_keeps_no_more_than_its_budget() {
        let pool = ChunkPool::new(Bytes::new(10), Bytes::new(50));
        let mut lent: Vec<ChunkBuffer> = std::iter::from_fn(|| pool.take()).collect();
        drop(lent.split_off(3));
        pool.set_capacity(4);
        assert_eq!(pool.0.state().free.len(), 1);
        pool.set_capacity(2);
        assert!(pool.take().is_none());
        drop(lent);
        assert_eq!((pool.lent(), pool.0.state().free.len()), (0, 2));
        pool.set_capacity(3);
        assert_eq!(std::iter::from_fn(|| pool.take()).collect::<Vec<_>>().len(), 3);
    }

    #[test]
    fn the_smallest_budget_has_two_buffers() {
        assert_eq!(ChunkPool::new(Bytes::mebi(1), Bytes::ZERO).capacity(), 2);
    }

    #[test]
    fn the_last_buffer_back_is_the_first_out() {
        let pool = ChunkPool::new(Bytes::new(10), Bytes::new(100));
        let (mut first, second) = (pool.take().unwrap(), pool.take().unwrap());
        first[0] = 77;
        drop(second);
        drop(first);
        assert_eq!(pool.take().unwrap()[0], 77);
    }
}
