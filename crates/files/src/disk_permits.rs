//! Permits for disk accesses on behalf of the clients of a server. A client may hold at most half
//! of the permits that the other clients leave, or one if they leave only one. So one client whose
//! files are on a hanging disk takes half of all permits, a second such client a quarter, and the
//! others can still read.

use std::collections::{BTreeMap, HashMap};
use std::future::poll_fn;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// Permits that clients identified by `C` share.
#[derive(Debug)]
pub struct DiskPermits<C>(Arc<Mutex<State<C>>>);

#[derive(Debug)]
struct State<C> {
    all: usize,
    /// Maximum number of permits of one client.
    most: usize,
    held: HashMap<C, usize>,
    /// The calls that wait, in the order in which they came.
    waiting: BTreeMap<u64, (C, Waker)>,
    /// Number of calls so far: the number of the latest call.
    calls: u64,
}

/// A permit for one disk access. Dropping this value returns the permit.
#[derive(Debug)]
pub struct DiskPermit<C: Eq + Hash> {
    state: Arc<Mutex<State<C>>>,
    client: C,
}

/// Removes a call from the waiting calls when the call has got its permit or was dropped.
struct Waiting<'a, C: Eq + Hash> {
    state: &'a Mutex<State<C>>,
    number: u64,
}

impl<C: Eq + Hash> State<C> {
    fn may_take(&self, client: &C) -> bool {
        let own = self.held.get(client).copied().unwrap_or(0);
        let free = self.all - self.held.values().sum::<usize>();
        free > 0 && own < ((free + own) / 2).max(1).min(self.most)
    }

    /// Returns the number of the first waiting call that may take a permit.
    fn next(&self) -> Option<u64> {
        let mut calls = self.waiting.iter();
        calls.find(|(_, (client, _))| self.may_take(client)).map(|(&number, _)| number)
    }

    fn wake_next(&self) {
        if let Some(number) = self.next() {
            self.waiting[&number].1.wake_by_ref();
        }
    }
}

impl<C: Eq + Hash + Clone> DiskPermits<C> {
    /// Creates `all` permits.
    pub fn new(all: usize) -> DiskPermits<C> {
        DiskPermits::limited(all, all)
    }

    /// Creates `all` permits. One client may hold at most `most` of them.
    pub fn limited(all: usize, most: usize) -> DiskPermits<C> {
        let (held, waiting) = (HashMap::new(), BTreeMap::new());
        DiskPermits(Arc::new(Mutex::new(State { all, most, held, waiting, calls: 0 })))
    }

    /// Waits for a permit for `client`.
    pub async fn take(&self, client: C) -> DiskPermit<C> {
        let number = {
            let mut state = lock(&self.0);
            state.calls += 1;
            state.calls
        };
        let _waiting = Waiting { state: &self.0, number };
        poll_fn(|cx| {
            let mut state = lock(&self.0);
            state.waiting.insert(number, (client.clone(), cx.waker().clone()));
            if state.next() != Some(number) {
                return Poll::Pending;
            }
            *state.held.entry(client.clone()).or_default() += 1;
            Poll::Ready(())
        })
        .await;
        DiskPermit { state: self.0.clone(), client }
    }
}

impl<C: Eq + Hash> Drop for Waiting<'_, C> {
    fn drop(&mut self) {
        let mut state = lock(self.state);
        state.waiting.remove(&self.number);
        state.wake_next();
    }
}

impl<C: Eq + Hash> Drop for DiskPermit<C> {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        if let Some(own) = state.held.get_mut(&self.client) {
            *own -= 1;
        }
        state.held.retain(|_, own| *own > 0);
        state.wake_next();
    }
}

fn lock<C>(state: &Mutex<State<C>>) -> MutexGuard<'_, State<C>> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake};

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn poll<F: Future>(future: Pin<&mut F>, wakes: &Arc<Wakes>) -> Option<F::Output> {
        match future.poll(&mut Context::from_waker(&wakes.clone().into())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    /// Takes all permits that `client` may take now.
    fn take_all(permits: &DiskPermits<u8>, client: u8) -> Vec<DiskPermit<u8>> {
        let now = || poll(pin!(permits.take(client)), &Arc::default());
        std::iter::from_fn(now).collect()
    }

    #[test]
    fn each_client_takes_at_most_half_of_what_the_others_leave() {
        let permits = DiskPermits::new(16);
        let mut hanging: Vec<_> = (1..=4).map(|client| take_all(&permits, client)).collect();
        assert_eq!(hanging.iter().map(Vec::len).collect::<Vec<_>>(), [8, 4, 2, 1]);
        assert_eq!(take_all(&permits, 5).len(), 1, "the fifth client still gets a permit");
        hanging.clear();
        assert!(lock(&permits.0).held.is_empty(), "a client without permits is forgotten");
        assert_eq!(take_all(&permits, 5).len(), 8);
    }

    #[test]
    fn a_client_gets_the_smaller_of_the_limit_and_half_of_what_the_others_leave() {
        let permits = DiskPermits::limited(16, 3);
        let taken = (1..=6).map(|client| take_all(&permits, client)).collect::<Vec<_>>();
        assert_eq!(taken.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3, 3, 3, 2, 1]);
    }

    #[test]
    fn a_free_permit_goes_to_the_first_waiting_call_that_may_have_it() {
        let permits = DiskPermits::new(2);
        let mut held = take_all(&permits, 1);
        held.extend(take_all(&permits, 2));
        assert_eq!(held.len(), 2);
        let wakes: [Arc<Wakes>; 3] = Default::default();
        let woken = || wakes.each_ref().map(|wakes| wakes.0.swap(0, Ordering::Relaxed) > 0);
        let mut own = pin!(permits.take(1));
        let (mut third, mut fourth) = (Box::pin(permits.take(3)), pin!(permits.take(4)));
        assert!(poll(own.as_mut(), &wakes[0]).is_none());
        assert!(poll(third.as_mut(), &wakes[1]).is_none());
        assert!(poll(fourth.as_mut(), &wakes[2]).is_none());
        held.pop();
        assert_eq!(woken(), [false, true, false], "client 1 holds its share");
        assert!(take_all(&permits, 5).is_empty(), "a new call does not overtake");
        assert!(poll(fourth.as_mut(), &wakes[2]).is_none());
        woken();
        drop(third);
        assert_eq!(woken(), [false, false, true], "a dropped call passes its turn on");
        let fourth = poll(fourth.as_mut(), &wakes[2]);
        assert!(fourth.is_some() && poll(own.as_mut(), &wakes[0]).is_none());
        drop(held);
        assert_eq!(woken(), [true, false, false]);
        assert!(poll(own.as_mut(), &wakes[0]).is_some());
    }
}
