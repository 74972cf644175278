//! Complete chunks in the queue of the writing thread, and the memory that they free.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use longhaul_net::buffers::chunks::ChunkBuffer;
use longhaul_net::buffers::repair::Repair;
use longhaul_proto::units::Bytes;

/// Accounts for the freed memory of a pass (one transmission of the missing chunks). Shared by the
/// flow, which grants memory, and the writer, which frees it.
#[derive(Debug, Default)]
pub(crate) struct Drained {
    bytes: AtomicU64,
    planned: AtomicBool,
    /// Bytes of complete chunks passed to the writer.
    handed: AtomicU64,
    /// Half of the flow's memory in bytes.
    half: AtomicU64,
}

impl Drained {
    /// Counts `bytes` of blocks that have left the memory. Returns whether to notify the flow: true
    /// if at least half of the flow's memory waited for the writer.
    pub(crate) fn add(&self, bytes: u64) -> bool {
        let waited = self.waiting();
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        waited.get() >= self.half.load(Ordering::Relaxed)
    }

    /// Returns the bytes of complete chunks that wait for the writer.
    pub(crate) fn waiting(&self) -> Bytes {
        Bytes::new(self.handed.load(Ordering::Relaxed)) - self.bytes()
    }

    pub(crate) fn note_handed(&self, bytes: u64) {
        self.handed.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn set_room(&self, room: Bytes) {
        self.half.store(room.get() / 2, Ordering::Relaxed);
    }

    /// Records that the destination is open.
    pub(crate) fn set_planned(&self) {
        self.planned.store(true, Ordering::Release);
    }

    /// Returns the bytes of blocks that have left the memory.
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
    pub(crate) len: usize,
    pub(crate) block: u32,
    pub(crate) drained: Arc<Drained>,
    /// How to compute the missing blocks, if symbols of an erasure code replace some.
    pub(crate) repair: Option<Repair>,
}

impl Arrived {
    /// Computes the missing blocks: the writer's first step.
    pub(crate) fn repaired(mut self) -> Arrived {
        if let Some(repair) = self.repair.take() {
            repair.apply(&mut self.buffer[..self.len]);
        }
        self
    }

    /// Returns how many bytes of the grant a chunk with `content` bytes of content has used. The
    /// sender counts whole blocks. Blocks with padding only are not sent.
    pub(crate) fn granted(&self, content: usize) -> u64 {
        content.next_multiple_of(self.block as usize).min(self.len) as u64
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
        // Free the buffer first, so that the next grant can use its memory.
        drop(arrived);
        drained.add(granted)
    }
}
