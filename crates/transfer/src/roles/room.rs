//! Memory for chunks that come by stream, in the order in which it is asked for.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use longhaul_net::clock;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::counters::Counters;
use crate::counters::board::Board;

/// Room that has been asked for, and comes in turn.
pub(super) type Asked = Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>>>>;

/// Room that was asked for, when there is some; nothing where none was asked for.
pub(super) async fn found(asked: &mut Option<Asked>) -> Option<OwnedSemaphorePermit> {
    match asked {
        Some(asked) => asked.await,
        None => std::future::pending().await,
    }
}

/// Room for a chunk, and an account of the wait for it.
pub(super) async fn room_for_chunk(
    room: Arc<Semaphore>,
    board: Arc<Board>,
) -> Option<OwnedSemaphorePermit> {
    let asked = clock::now();
    let permit = room.acquire_owned().await.ok();
    let waited = clock::now().since(asked);
    board.update(|Counters { times, .. }| times.room = times.room + waited);
    permit
}
