//! How payloads move from a received batch to a chunk's buffer: *naive* or *fake*.
//!
//! *Naive* reads each header and then decrypts the payload into its place; the decryption is the
//! only copy. *Fake* decrypts the payload into a scratch buffer, counts it, and keeps nothing. A
//! third way, *scatter*, receives payloads straight into their predicted places; it has its own
//! receive call ([`scatter`](crate::port::scatter)).
//!
//! To open a datagram is to decrypt and verify it. A datagram that fails to open is dropped. A
//! datagram whose payload gets no place is opened into the scratch buffer, so that a replay of the
//! datagram is recognised.

use longhaul_proto::coded::Symbol;
use longhaul_proto::layout::Block;
use longhaul_proto::time::Time;

use crate::buffers::assembly::{Assembly, Placed};
use crate::port::Datagram;
use crate::sealing::open::{OpenError, Opener};

/// Counts of data datagrams: those that could not be used, and how scatter received the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlaceCounts {
    /// Genuine datagrams without a free buffer: they count as never received.
    pub no_room: u64,
    /// Blocks that the object does not have, or of a wrong length: the sender is faulty.
    pub unfit: u64,
    /// Payloads that scatter received straight into their place.
    pub predicted: u64,
    /// Payloads that scatter received into a wrongly predicted place and had to move.
    pub mispredicted: u64,
}

/// Opens and places the data datagrams of one flow.
pub struct Placer {
    pub(super) opener: Opener,
    pub(super) assembly: Assembly,
    pub(super) counts: PlaceCounts,
    scratch: Vec<u8>,
    /// Chunks before this chunk are kept.
    kept: u64,
}

impl Placer {
    /// Places the payloads of the first `kept` chunks into `assembly`; others are opened and
    /// discarded.
    pub fn new(opener: Opener, assembly: Assembly, kept: u64) -> Placer {
        let scratch = vec![0; assembly.layout().block_size() as usize];
        Placer { opener, assembly, counts: PlaceCounts::default(), scratch, kept }
    }

    /// Opens one data datagram into its place. Returns its block, unless the block had no room or
    /// does not fit. A coded symbol (a redundant block) counts as a block.
    ///
    /// # Errors
    /// [`OpenError`] if the datagram does not open.
    pub fn place(
        &mut self,
        now: Time,
        datagram: &Datagram<'_>,
    ) -> Result<Option<Block>, OpenError> {
        let Datagram { header, bytes, .. } = datagram;
        let (opener, scratch) = (&mut self.opener, &mut self.scratch);
        let Some(len) = opener.payload_len(bytes.len()).filter(|len| *len <= scratch.len()) else {
            // The datagram is too short to open, or too long for any block. Without a buffer, the
            // opener counts it as refused and returns an error.
            return opener.open(now, header, bytes, &mut []).map(|_| None);
        };
        if let Some(symbol) = Symbol::numbered(self.assembly.layout(), header.block) {
            return self.place_symbol(now, datagram, symbol, len);
        }
        let (opener, scratch) = (&mut self.opener, &mut self.scratch);
        let layout = self.assembly.layout();
        let block = layout.block(header.block);
        if block.is_some_and(|block| layout.chunk_of(block) >= self.kept) {
            opener.open(now, header, bytes, scratch)?;
            let block = block.filter(|block| layout.extent(*block).len as usize == len);
            self.counts.unfit += u64::from(block.is_none());
            return Ok(block);
        }
        let placed = self
            .assembly
            .place(header.block, len, |out| opener.open(now, header, bytes, out).map(|_| ()));
        self.placed(now, datagram, placed)
    }

    /// Opens a coded symbol into its place. Returns the block that the symbol counts as, unless the
    /// symbol had no room or does not fit.
    fn place_symbol(
        &mut self,
        now: Time,
        datagram: &Datagram<'_>,
        symbol: Symbol,
        len: usize,
    ) -> Result<Option<Block>, OpenError> {
        let Datagram { header, bytes, .. } = datagram;
        let Placer { opener, assembly, .. } = self;
        let placed = if symbol.chunk < self.kept {
            let fill = |out: &mut [u8]| opener.open(now, header, bytes, out).map(|_| ());
            assembly.place_symbol(symbol, len, fill)
        } else {
            symbol.block(assembly.layout()).map_or(Placed::Unfit, Placed::Present)
        };
        self.placed(now, datagram, placed)
    }

    /// Turns the outcome `placed` into the datagram's block. Opens a datagram that got no place
    /// into the scratch buffer.
    fn placed(
        &mut self,
        now: Time,
        datagram: &Datagram<'_>,
        placed: Placed<OpenError>,
    ) -> Result<Option<Block>, OpenError> {
        let Datagram { header, bytes, .. } = datagram;
        let (opener, scratch) = (&mut self.opener, &mut self.scratch);
        match placed {
            Placed::Filled(block) => Ok(Some(block)),
            Placed::Failed(error) => Err(error),
            Placed::Present(block) => {
                opener.open(now, header, bytes, scratch)?;
                Ok(Some(block))
            }
            Placed::Unfit => {
                opener.open(now, header, bytes, scratch)?;
                self.counts.unfit += 1;
                Ok(None)
            }
            // Only a datagram that opens counts as lack of memory; a forged datagram does not.
            Placed::NoRoom => {
                opener.open(now, header, bytes, scratch)?;
                self.counts.no_room += 1;
                Ok(None)
            }
        }
    }

    /// Completes a chunk in which symbols replace the missing blocks, if the chunk is kept.
    pub fn restore(&mut self, chunk: u64) {
        if chunk < self.kept {
            self.assembly.restore(chunk);
        }
    }

    /// Returns the assembly of chunks, to skip blocks and to take complete chunks.
    pub fn assembly(&mut self) -> &mut Assembly {
        &mut self.assembly
    }

    /// Returns the opener, for its counts.
    pub fn opener(&mut self) -> &mut Opener {
        &mut self.opener
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> PlaceCounts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffers::chunks::ChunkPool;
    use crate::sealing::keys::{FlowKeys, Suite};
    use crate::sealing::seal::Sealer;
    use crate::socket::Path;
    use longhaul_proto::coded::FIRST_SYMBOL;
    use longhaul_proto::endpoint::FlowId;
    use longhaul_proto::layout::Layout;
    use longhaul_proto::units::Bytes;
    use longhaul_proto::wire::header::{Header, Kind};

    const NOW: Time = Time::from_nanos(1);
    const BLOCK: u32 = 100;

    fn rig(fake: bool, buffers: u64) -> (Sealer, Placer) {
        let layout = Layout::new(Bytes::new(2500), Bytes::ZERO, Bytes::new(1000), BLOCK).unwrap();
        let pool = ChunkPool::new(Bytes::new(1000), Bytes::new(1000 * buffers));
        let keys = || FlowKeys::new(&[1; 32], Suite::Aes128Gcm, 1, FlowId(1));
        let opener = keys().receiving_end().data;
        let kept = if fake { 0 } else { u64::MAX };
        let placer = Placer::new(opener, Assembly::new(layout, pool), kept);
        (keys().sending_end().data, placer)
    }

    fn seal(sealer: &mut Sealer, block: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len + sealer.overhead()];
        sealer.seal(Kind::Data, block, &vec![block as u8; len], &mut out).unwrap();
        out
    }

    fn place(placer: &mut Placer, bytes: &[u8]) -> Result<Option<u32>, OpenError> {
        let remote = "127.0.0.1:1".parse::<std::net::SocketAddr>().unwrap();
        let header = Header::decode(bytes).unwrap();
        let (path, at) = (Path::from(remote), Time::ZERO);
        let datagram = Datagram { header, path, bytes, at };
        placer.place(NOW, &datagram).map(|block| block.map(|block| block.index))
    }

    #[test]
    fn payloads_become_chunks() {
        let (mut sealer, mut placer) = rig(false, 5);
        for block in (0..25).rev() {
            let datagram = seal(&mut sealer, block, 100);
            assert_eq!(place(&mut placer, &datagram), Ok(Some(block as u32)));
        }
        let mut chunks: Vec<u64> = Vec::new();
        while let Some(whole) = placer.assembly().pop_whole() {
            for (at, byte) in whole.buffer[..whole.len].iter().enumerate() {
                assert_eq!(u64::from(*byte), whole.chunk * 10 + at as u64 / 100);
            }
            chunks.push(whole.chunk);
        }
        assert_eq!(chunks, [2, 1, 0]);
    }

    #[test]
    fn a_forgery_does_not_overwrite_a_present_block() {
        let (mut sealer, mut placer) = rig(false, 5);
        for block in 20..25 {
            place(&mut placer, &seal(&mut sealer, block, 100)).unwrap();
            let mut forged = seal(&mut sealer, block, 100);
            forged[50] ^= 1;
            assert_eq!(place(&mut placer, &forged), Err(OpenError::Forged));
        }
        let whole = placer.assembly().pop_whole().unwrap();
        assert!(whole.buffer[..500].iter().enumerate().all(|(n, b)| *b as usize == 20 + n / 100));
    }

    #[test]
    fn a_resent_block_counts_as_an_arrival_and_a_replayed_datagram_does_not() {
        let (mut sealer, mut placer) = rig(false, 5);
        let first = seal(&mut sealer, 3, 100);
        assert_eq!(place(&mut placer, &first), Ok(Some(3)));
        assert_eq!(place(&mut placer, &seal(&mut sealer, 3, 100)), Ok(Some(3)));
        assert_eq!(place(&mut placer, &first), Err(OpenError::Replayed));
    }

    #[test]
    fn unknown_and_short_blocks_are_counted_and_long_blocks_are_refused() {
        let (mut sealer, mut placer) = rig(false, 5);
        assert_eq!(place(&mut placer, &seal(&mut sealer, 25, 100)), Ok(None));
        assert_eq!(place(&mut placer, &seal(&mut sealer, 3, 99)), Ok(None));
        assert!(place(&mut placer, &seal(&mut sealer, 3, 101)).is_err());
        assert_eq!(placer.counts().unfit, 2);
        assert_eq!(placer.assembly().open_chunks(), 0);
    }

    #[test]
    fn coded_symbols_count_as_blocks_and_replace_missing_ones() {
        let (mut sealer, mut placer) = rig(false, 5);
        let number = |symbol: u64| FIRST_SYMBOL + 128 + symbol;
        for block in 11..20 {
            place(&mut placer, &seal(&mut sealer, block, 100)).unwrap();
        }
        for (symbol, len) in [(number(7), 99), (FIRST_SYMBOL + 3 * 128, 100), (u64::MAX >> 16, 100)]
        {
            assert_eq!(place(&mut placer, &seal(&mut sealer, symbol, len)), Ok(None));
        }
        assert_eq!(placer.counts().unfit, 3);
        let mut forged = seal(&mut sealer, number(7), 100);
        forged[50] ^= 1;
        assert_eq!(place(&mut placer, &forged), Err(OpenError::Forged));
        let index = Symbol { chunk: 1, number: 7 }.block(placer.assembly().layout()).unwrap().index;
        for _ in 0..2 {
            assert_eq!(place(&mut placer, &seal(&mut sealer, number(7), 100)), Ok(Some(index)));
        }
        placer.restore(1);
        assert!(placer.assembly().pop_whole().is_some_and(|whole| whole.repair.is_some()));
        let (mut sealer, mut fake) = rig(true, 5);
        assert_eq!(place(&mut fake, &seal(&mut sealer, number(7), 100)), Ok(Some(index)));
        fake.restore(1);
        assert!(fake.assembly().pop_whole().is_none());
    }

    #[test]
    fn without_a_buffer_a_datagram_counts_as_never_received() {
        let (mut sealer, mut placer) = rig(false, 2);
        for block in [0, 10] {
            place(&mut placer, &seal(&mut sealer, block, 100)).unwrap();
        }
        let mut forged = seal(&mut sealer, 20, 100);
        forged[50] ^= 1;
        assert_eq!(place(&mut placer, &forged), Err(OpenError::Forged));
        assert_eq!(placer.counts().no_room, 0);
        assert_eq!(place(&mut placer, &seal(&mut sealer, 20, 100)), Ok(None));
        assert_eq!(placer.counts().no_room, 1);
        for block in 1..10 {
            place(&mut placer, &seal(&mut sealer, block, 100)).unwrap();
        }
        drop(placer.assembly().pop_whole());
        assert_eq!(place(&mut placer, &seal(&mut sealer, 20, 100)), Ok(Some(20)));
        assert_eq!(placer.counts().no_room, 1);
    }

    #[test]
    fn fake_opens_every_datagram_and_keeps_nothing() {
        let (mut sealer, mut placer) = rig(true, 2);
        for block in 0..25 {
            let datagram = seal(&mut sealer, block, 100);
            assert_eq!(place(&mut placer, &datagram), Ok(Some(block as u32)));
        }
        assert_eq!(placer.assembly().open_chunks(), 0);
        assert!(placer.assembly().pop_whole().is_none());
    }
}
