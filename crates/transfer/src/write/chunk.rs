//! Whole chunks on their way to the writing thread, and the room in memory that they give back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use longhaul_net::buffers::chunks::ChunkBuffer;
use longhaul_proto::units::Bytes;

/// How far a pass's memory has been emptied: shared by the flow, which grants, and the writer.
#[derive(Debug, Default)]
pub(crate) struct Drained {
    bytes: AtomicU64,
    planned: AtomicBool,
    /// Bytes of whole chunks that the writer was given, and half of what the flow may hold.
    handed: AtomicU64,
    half: AtomicU64,
}

impl Drained {
    /// Bytes of blocks have left the memory for good. Tells whether the flow should hear of it:
    /// where less than half of its memory waits for the writer its sender has much left to send,
    /// and with what that brings the flow looks by itself.
    pub(crate) fn add(&self, bytes: u64) -> bool {
        let waited = self.waiting();
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        waited.get() >= self.half.load(Ordering::Relaxed)
    }

    /// Bytes of whole chunks that wait for the writer.
    pub(crate) fn waiting(&self) -> Bytes {
        Bytes::new(self.handed.load(Ordering::Relaxed)) - self.bytes()
    }

    /// Counts `bytes` of a whole chunk that went to the writer.
    pub(crate) fn note_handed(&self, bytes: u64) {
        self.handed.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Sets how many bytes the flow may hold.
    pub(crate) fn set_room(&self, room: Bytes) {
        self.half.store(room.get() / 2, Ordering::Relaxed);
    }

    /// Notes that the destination is open, so that chunks can be written.
    pub(crate) fn set_planned(&self) {
        self.planned.store(true, Ordering::Release);
    }

    /// Bytes of blocks that have left the memory.
    pub(crate) fn bytes(&self) -> Bytes {
        Bytes::new(self.bytes.load(Ordering::Relaxed))
    }

    /// Whether more than the first grant may come.
    pub(crate) fn is_planned(&self) -> bool {
        self.planned.load(Ordering::Acquire)
    }
}

/// A whole chunk on its way to the writer, with where its room is to be given back.
pub(crate) struct Arrived {
    pub(crate) chunk: u64,
    pub(crate) buffer: ChunkBuffer,
    /// How many bytes of it belong to the object, padding included.
    pub(crate) len: usize,
    /// Size of the blocks that brought it.
    pub(crate) block: u32,
    pub(crate) drained: Arc<Drained>,
}

impl Arrived {
    /// Bytes of blocks that brought `content` bytes, as the sender counts them against its grant:
    /// padding travels only in the last block that has content.
    pub(crate) fn granted(&self, content: usize) -> u64 {
        content.next_multiple_of(self.block as usize).min(self.len) as u64
    }
}

/// A chunk that has come by stream, and its place in the memory budget.
pub(crate) struct Streamed {
    pub(crate) chunk: u64,
    pub(crate) content: Vec<u8>,
    #[expect(dead_code, reason = "its end is what counts: it makes room")]
    pub(crate) room: tokio::sync::OwnedSemaphorePermit,
}

/// A chunk's content, whichever way it came.
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

    /// Gives the room of `content` bytes back to what granted it; whether that is to be told.
    pub(crate) fn release(self, content: usize) -> bool {
        let Content::Datagrams(arrived) = self else { return false };
        let (granted, drained) = (arrived.granted(content), arrived.drained.clone());
        // Its buffer first: what is granted for it must find that.
        drop(arrived);
        drained.add(granted)
    }
}
