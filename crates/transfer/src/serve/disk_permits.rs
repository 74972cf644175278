//! Permits for disk accesses on behalf of clients that read or change remote files. The permits are
//! limited for each client and for all clients together. So one client whose files are on a hanging
//! disk cannot block the other clients.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::session::PeerId;

/// Maximum number of disk accesses of all clients at a time.
const ALL: usize = 16;
/// Maximum number of disk accesses of one client at a time.
const OF_ONE: usize = 8;

pub(super) struct DiskPermits {
    all: Arc<Semaphore>,
    each: RefCell<HashMap<PeerId, Arc<Semaphore>>>,
}

pub(super) struct DiskPermit {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl DiskPermits {
    pub(super) fn new() -> DiskPermits {
        DiskPermits { all: Arc::new(Semaphore::new(ALL)), each: RefCell::default() }
    }

    pub(super) async fn take(&self, peer: PeerId) -> DiskPermit {
        let own = {
            let mut each = self.each.borrow_mut();
            // Forget clients that neither have nor await a permit: each permit and each waiting
            // call holds a reference to the client's semaphore.
            each.retain(|_, own| Arc::strong_count(own) > 1);
            each.entry(peer).or_insert_with(|| Arc::new(Semaphore::new(OF_ONE))).clone()
        };
        let _own = own.acquire_owned().await.expect("nobody closes it");
        let _all = self.all.clone().acquire_owned().await.expect("nobody closes it");
        DiskPermit { _own, _all }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    use super::*;

    /// Returns a permit if one is free now.
    async fn now(permits: &DiskPermits, peer: u8) -> Option<DiskPermit> {
        let mut taking = pin!(permits.take(PeerId([peer; 32])));
        poll_fn(|cx| match taking.as_mut().poll(cx) {
            Poll::Ready(permit) => Poll::Ready(Some(permit)),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }

    #[test]
    fn a_client_takes_at_most_half_of_the_permits() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let permits = DiskPermits::new();
            let mut first = Vec::new();
            while let Some(permit) = now(&permits, 1).await {
                first.push(permit);
            }
            assert_eq!(first.len(), OF_ONE);
            let mut others = Vec::new();
            for peer in 2.. {
                let Some(permit) = now(&permits, peer).await else { break };
                others.push(permit);
            }
            assert_eq!(others.len(), ALL - OF_ONE);
            first.pop();
            assert!(now(&permits, 9).await.is_some() && now(&permits, 1).await.is_some());
            drop((first, others));
            drop(now(&permits, 1).await);
            assert_eq!(permits.each.borrow().len(), 1, "a client without permits is forgotten");
        });
    }
}
