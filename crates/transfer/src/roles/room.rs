//! Grants memory for chunks from streams, in the order of the requests.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use longhaul_net::clock;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::counters::Counters;
use crate::counters::board::Board;

pub(super) type RoomRequest = Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>>>>;

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
