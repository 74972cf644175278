//! A turn is the permission for one disk access on behalf of a client that has opened a file of
//! this server. The number of turns at a time is limited for each client, and for all clients
//! together. So one client whose files are on a hanging disk cannot block the other clients.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::session::PeerId;

/// Maximum number of turns at a time.
const ALL: usize = 16;
/// Maximum number of turns of one client at a time.
const OF_ONE: usize = 8;

/// The turns of all clients.
pub(super) struct Turns {
    all: Arc<Semaphore>,
    each: RefCell<HashMap<PeerId, Arc<Semaphore>>>,
}

/// A turn. Dropping this value ends the turn.
pub(super) struct Turn {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl Turns {
    pub(super) fn new() -> Turns {
        Turns { all: Arc::new(Semaphore::new(ALL)), each: RefCell::default() }
    }

    /// Waits for a turn of `peer`.
    pub(super) async fn take(&self, peer: PeerId) -> Turn {
        let own = {
            let mut each = self.each.borrow_mut();
            // Forget the clients without turns and waiting calls: each turn and each waiting call
            // holds a reference to the client's semaphore.
            each.retain(|_, own| Arc::strong_count(own) > 1);
            each.entry(peer).or_insert_with(|| Arc::new(Semaphore::new(OF_ONE))).clone()
        };
        let _own = own.acquire_owned().await.expect("nobody closes it");
        let _all = self.all.clone().acquire_owned().await.expect("nobody closes it");
        Turn { _own, _all }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    use super::*;

    /// Returns the turn if there is one now.
    async fn now(turns: &Turns, peer: u8) -> Option<Turn> {
        let mut taking = pin!(turns.take(PeerId([peer; 32])));
        poll_fn(|cx| match taking.as_mut().poll(cx) {
            Poll::Ready(turn) => Poll::Ready(Some(turn)),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }

    #[test]
    fn a_client_takes_at_most_half_of_the_turns() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let turns = Turns::new();
            let mut first = Vec::new();
            while let Some(turn) = now(&turns, 1).await {
                first.push(turn);
            }
            assert_eq!(first.len(), OF_ONE);
            let mut others = Vec::new();
            for peer in 2.. {
                let Some(turn) = now(&turns, peer).await else { break };
                others.push(turn);
            }
            assert_eq!(others.len(), ALL - OF_ONE);
            first.pop();
            assert!(now(&turns, 9).await.is_some() && now(&turns, 1).await.is_some());
            drop((first, others));
            drop(now(&turns, 1).await);
            assert_eq!(turns.each.borrow().len(), 1, "a client without turns is forgotten");
        });
    }
}
