//! Memory for packets in flight: large chunks, reused after all their packets are released.

use std::io;

/// The largest packet with its device header, in bytes.
pub(super) const LARGEST_FRAME: usize = 65_536 + 64;

const CHUNK: usize = 1 << 20;

/// Chunks touched at the start, so that the first packets meet no page faults.
const READY: u32 = 32;

/// Packets stored end to end in chunks of 1 MiB.
pub(super) struct Slab {
    chunks: Vec<Chunk>,
    free: Vec<u32>,
    current: u32,
    most_chunks: usize,
}

struct Chunk {
    bytes: Box<[u8]>,
    used: usize,
    /// References to frames in this chunk.
    live: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    chunk: u32,
    start: u32,
    len: u32,
}

impl Slab {
    /// A slab of at most `most_bytes`, but at least two chunks.
    pub(super) fn new(most_bytes: usize) -> Slab {
        let most_chunks = (most_bytes / CHUNK).max(2);
        let ready = READY.min(most_chunks as u32);
        let chunks = (0..ready).map(|_| Chunk::new()).collect();
        Slab { chunks, free: (1..ready).rev().collect(), current: 0, most_chunks }
    }

    /// Calls `read` with free space and returns the slot of the frame; `None` without free space.
    /// The next call overwrites the frame, unless [`Slab::hold`] is called before.
    pub(super) fn read_with(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<Option<Slot>> {
        if !self.make_room() {
            return Ok(None);
        }
        let chunk = &mut self.chunks[self.current as usize];
        let len = read(&mut chunk.bytes[chunk.used..])?;
        Ok(Some(Slot { chunk: self.current, start: chunk.used as u32, len: len as u32 }))
    }

    /// Adds a reference to a frame.
    pub(super) fn hold(&mut self, slot: Slot) {
        let chunk = &mut self.chunks[slot.chunk as usize];
        chunk.live += 1;
        chunk.used = chunk.used.max((slot.start + slot.len) as usize);
    }

    pub(super) fn release(&mut self, slot: Slot) {
        let chunk = &mut self.chunks[slot.chunk as usize];
        chunk.live -= 1;
        if chunk.live == 0 {
            chunk.used = 0;
            if slot.chunk != self.current {
                self.free.push(slot.chunk);
            }
        }
    }

    pub(super) fn frame(&self, slot: Slot) -> &[u8] {
        let start = slot.start as usize;
        &self.chunks[slot.chunk as usize].bytes[start..start + slot.len as usize]
    }

    fn make_room(&mut self) -> bool {
        let current = &self.chunks[self.current as usize];
        if CHUNK - current.used >= LARGEST_FRAME {
            return true;
        }
        if let Some(free) = self.free.pop() {
            self.current = free;
        } else if self.chunks.len() < self.most_chunks {
            self.current = self.chunks.len() as u32;
            self.chunks.push(Chunk::new());
        } else {
            return false;
        }
        true
    }
}

impl Chunk {
    fn new() -> Chunk {
        let mut bytes = vec![0; CHUNK].into_boxed_slice();
        bytes.iter_mut().step_by(4_096).for_each(|byte| *byte = 1);
        Chunk { bytes, used: 0, live: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(slab: &mut Slab, byte: u8, len: usize) -> Option<Slot> {
        let read = |room: &mut [u8]| {
            room[..len].fill(byte);
            Ok(len)
        };
        let slot = slab.read_with(read).unwrap()?;
        slab.hold(slot);
        Some(slot)
    }

    #[test]
    fn frames_keep_their_bytes_until_released_and_chunks_are_reused() {
        let mut slab = Slab::new(4 * CHUNK);
        let mut held = std::collections::VecDeque::new();
        for i in 0..10_000usize {
            let (byte, len) = (i as u8, 1 + i * 7919 % 60_000);
            held.push_back((store(&mut slab, byte, len).expect("room"), byte, len));
            if held.len() > 20 {
                let (slot, byte, len) = held.pop_front().unwrap();
                assert_eq!(slab.frame(slot), vec![byte; len]);
                slab.release(slot);
            }
        }
        assert!(slab.chunks.len() <= 4);
    }

    #[test]
    fn a_full_slab_reads_nothing_and_recovers() {
        let mut slab = Slab::new(2 * CHUNK);
        let mut held = Vec::new();
        while let Some(slot) = store(&mut slab, 1, 60_000) {
            held.push(slot);
        }
        assert!(held.len() >= 2 * 16, "{}", held.len());
        for slot in held {
            slab.release(slot);
        }
        assert!(store(&mut slab, 2, 60_000).is_some());
    }
}
