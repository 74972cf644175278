//! Complete chunks in the queue of the writing thread, and the memory that they free.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use longhaul_net::buffers::assembly::WholeChunk;
use longhaul_net::buffers::chunks::ChunkBuffer;
use longhaul_net::buffers::repair::Repair;
use longhaul_proto::fec::Decoder;
use longhaul_proto::units::Bytes;

/// Accounts for the freed memory of a pass (one transmission of the missing chunks). Shared by the
/// flow, which grants memory, and the writer, which frees it.
#[derive(Debug, Default)]
pub(crate) struct Drained {
    bytes: AtomicU64,
    planned: AtomicBool,
    /// Memory in bytes of the complete chunks that wait for the writer.
    waiting: AtomicU64,
    /// Half of the flow's memory in bytes.
    half: AtomicU64,
}

impl Drained {
    /// Counts `granted` bytes of blocks that the sender may send in place of a written chunk.
    fn add(&self, granted: u64) {
        self.bytes.fetch_add(granted, Ordering::Relaxed);
    }

    /// Whether at least half of the flow's memory waits for the writer.
    fn is_half_full(&self) -> bool {
        self.waiting().get() >= self.half.load(Ordering::Relaxed)
    }

    /// Returns the memory of the complete chunks that wait for the writer.
    pub(crate) fn waiting(&self) -> Bytes {
        Bytes::new(self.waiting.load(Ordering::Relaxed))
    }

    pub(crate) fn set_room(&self, room: Bytes) {
        self.half.store(room.get() / 2, Ordering::Relaxed);
    }

    /// Records that the destination is open.
    pub(crate) fn set_planned(&self) {
        self.planned.store(true, Ordering::Release);
    }

    /// Returns the bytes of sent blocks that have left the memory.
    pub(crate) fn bytes(&self) -> Bytes {
        Bytes::new(self.bytes.load(Ordering::Relaxed))
    }

    /// Returns whether the destination is open. Before it is open, the sender has only the first
    /// grant.
    pub(crate) fn is_planned(&self) -> bool {
        self.planned.load(Ordering::Acquire)
    }
}

pub(crate) struct Arrived {
    pub(crate) chunk: u64,
    pub(crate) buffer: ChunkBuffer,
    /// Length of the chunk in bytes, including padding.
    len: usize,
    block: u32,
    drained: Arc<Drained>,
    /// How to compute the missing blocks, if symbols of an erasure code replace some.
    repair: Option<Repair>,
}

impl Arrived {
    /// A complete chunk in blocks of `block` bytes. From now on it waits for the writer.
    pub(crate) fn new(whole: WholeChunk, block: u32, drained: Arc<Drained>) -> Arrived {
        let WholeChunk { chunk, buffer, len, repair } = whole;
        drained.waiting.fetch_add(len as u64, Ordering::Relaxed);
        Arrived { chunk, buffer, len, block, drained, repair }
    }

    /// Computes the missing blocks: the writer's first step.
    pub(crate) fn repaired(mut self, decoder: &mut Decoder) -> Arrived {
        if let Some(repair) = self.repair.take() {
            repair.apply(decoder, &mut self.buffer[..self.len]);
        }
        self
    }

    /// Returns how many bytes of the grant a chunk with `content` bytes of content has used. The
    /// sender counts whole blocks. Blocks with padding only are not sent.
    pub(crate) fn granted(&self, content: usize) -> u64 {
        content.next_multiple_of(self.block as usize).min(self.len) as u64
    }
}

/// A dropped chunk no longer waits for the writer, whether it was written or not needed.
impl Drop for Arrived {
    fn drop(&mut self) {
        self.drained.waiting.fetch_sub(self.len as u64, Ordering::Relaxed);
    }
}

pub(crate) struct Streamed {
    pub(crate) chunk: u64,
    pub(crate) content: Vec<u8>,
    #[expect(dead_code, reason = "dropping it frees the memory")]
    pub(crate) room: tokio::sync::OwnedSemaphorePermit,
}

pub(crate) enum Content {
    Datagrams(Arrived),
    Stream(Streamed),
}

impl Content {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Content::Datagrams(arrived) => &arrived.buffer[..arrived.len],
            Content::Stream(streamed) => &streamed.content,
        }
    }

    /// Frees the memory of a chunk with `content` bytes of content. Returns whether to notify the
    /// flow that granted the memory.
    pub(crate) fn release(self, content: usize) -> bool {
        let Content::Datagrams(arrived) = self else { return false };
        let (granted, drained) = (arrived.granted(content), arrived.drained.clone());
        let was_half_full = drained.is_half_full();
        // Free the buffer first, so that the next grant can use its memory.
        drop(arrived);
        drained.add(granted);
        was_half_full
    }
}

#[cfg(test)]
mod tests {
    use longhaul_net::buffers::chunks::ChunkPool;

    use super::*;

    #[test]
    fn a_chunk_with_padding_waits_no_longer_after_the_writer_has_taken_it() {
        let pool = ChunkPool::new(Bytes::new(10_000), Bytes::new(10_000));
        let drained = Arc::new(Drained::default());
        drained.set_room(Bytes::new(20_000));
        for taken in 1..=3 {
            let buffer = pool.take().expect("the writer has returned the buffer");
            let whole = WholeChunk { chunk: 0, buffer, len: 10_000, repair: None };
            let arrived = Arrived::new(whole, 1_000, drained.clone());
            assert_eq!(drained.waiting(), Bytes::new(10_000));
            // 2,500 bytes are content. The sender sent three blocks.
            assert!(Content::Datagrams(arrived).release(2_500), "half of the memory waited");
            assert_eq!(drained.waiting(), Bytes::ZERO);
            assert_eq!(drained.bytes(), Bytes::new(taken * 3_000));
        }
    }
}
