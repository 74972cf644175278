//! A receiving host's memory, divided equally among its copies. Shares change as copies start and
//! end. A grant is never withdrawn, so a copy keeps its memory until its data have left that
//! memory. Unlike a real server, the host keeps no reserve for copies that start later.

use std::collections::BTreeMap;

use longhaul_proto::layout::{Block, Layout};
use longhaul_proto::units::Bytes;

use crate::scenario::Host;

#[derive(Debug)]
pub(super) struct Memory {
    total: Bytes,
    held: BTreeMap<u32, Bytes>,
}

impl Memory {
    pub(super) fn new(total: Bytes) -> Memory {
        Memory { total, held: BTreeMap::new() }
    }

    /// Adds a copy with the minimum grant.
    pub(super) fn enter(&mut self, agent: u32) {
        self.held.insert(agent, Host::LEAST_MEMORY);
    }

    pub(super) fn leave(&mut self, agent: u32) {
        self.held.remove(&agent);
    }

    /// The memory that a copy may hold now; at least `held`, the granted bytes that have not left
    /// its memory.
    pub(super) fn room(&mut self, agent: u32, held: Bytes) -> Bytes {
        let count = self.held.len().max(1) as u64;
        let others = self.held.iter().filter(|(other, _)| **other != agent);
        let others = others.fold(Bytes::ZERO, |sum, (_, held)| sum + *held);
        let fair = Bytes::new(self.total.get() / count).min(self.total.saturating_sub(others));
        let room = fair.max(Host::LEAST_MEMORY).max(held);
        self.held.insert(agent, room);
        room
    }
}

#[derive(Debug)]
pub(super) struct Holding {
    /// Missing blocks of each chunk.
    missing: Vec<u32>,
    /// Bytes of all chunks completed so far. A complete chunk leaves the memory at once or, with a
    /// disk, when it is written.
    pub(super) whole: Bytes,
    /// Bytes granted to the sender since the start.
    pub(super) granted: Bytes,
}

impl Holding {
    pub(super) fn new(layout: &Layout) -> Holding {
        let missing = (0..layout.chunks()).map(|chunk| layout.blocks_of_chunk(chunk).1);
        let (whole, granted) = (Bytes::ZERO, Host::LEAST_MEMORY);
        Holding { missing: missing.collect(), whole, granted }
    }

    pub(super) fn take(&mut self, layout: &Layout, block: Block) {
        let chunk = layout.chunk_of(block);
        let Some(missing) = self.missing.get_mut(chunk as usize) else { return };
        *missing = missing.saturating_sub(1);
        if *missing == 0 {
            let size = layout.chunk_size();
            let before = Bytes::new(size.get() * chunk);
            self.whole += size.min(layout.object().saturating_sub(before));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEBI: fn(u64) -> Bytes = Bytes::mebi;

    #[test]
    fn a_copy_alone_gets_all_memory_and_a_second_has_its_minimum_until_the_first_frees_some() {
        let mut memory = Memory::new(MEBI(512));
        memory.enter(1);
        assert_eq!(memory.room(1, Bytes::ZERO), MEBI(512));
        memory.enter(2);
        // The grant of copy 1 is not withdrawn, so copy 2 has only its minimum.
        assert_eq!((memory.room(1, MEBI(512)), memory.room(2, MEBI(32))), (MEBI(512), MEBI(32)));
        assert_eq!((memory.room(1, MEBI(300)), memory.room(2, MEBI(32))), (MEBI(300), MEBI(212)));
        memory.leave(1);
        assert_eq!(memory.room(2, MEBI(212)), MEBI(512));
    }

    #[test]
    fn whole_chunks_make_up_the_object() {
        let layout = Layout::new(Bytes::new(2_500_000), MEBI(16), MEBI(1), 1_440).unwrap();
        let mut holding = Holding::new(&layout);
        for number in (0..layout.blocks()).rev() {
            assert!(holding.whole < layout.object());
            holding.take(&layout, layout.block(number).unwrap());
        }
        assert_eq!(holding.whole, layout.object());
    }
}
