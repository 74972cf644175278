//! How payloads get from a received batch to a chunk's buffer.
//!
//! *Naive*: look at each header, then open the payload to where it says: for sealed data the
//! opening is the move. *Fake*: open into scratch, account, keep nothing. (*Scatter* has a
//! receive call of its own: [`scatter`](crate::port::scatter).)
//!
//! A datagram that does not open reaches nobody; one that opens but is not needed is opened into
//! scratch, because its number and its arrival still count.

use longhaul_proto::layout::Block;
use longhaul_proto::time::Time;

use crate::buffers::assembly::{Assembly, Placed};
use crate::port::Datagram;
use crate::sealing::open::{OpenError, Opener};

/// What became of data datagrams that opened but were not used as they came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlaceCounts {
    /// Genuine ones for which no buffer was left: they count as never come.
    pub no_room: u64,
    /// Blocks that the object does not have, or of another length: the other end is broken.
    pub unfit: u64,
    /// Payloads received straight into their place.
    pub predicted: u64,
    /// Payloads that were expected elsewhere and had to be moved.
    pub mispredicted: u64,
}

/// Opens and places the data datagrams of one flow.
pub struct Placer {
    pub(super) opener: Opener,
    pub(super) assembly: Assembly,
    pub(super) counts: PlaceCounts,
    scratch: Vec<u8>,
    /// Chunks before this one are kept.
    kept: u64,
}

impl Placer {
    /// Places payloads into `assembly`: those of the first `kept` chunks; others are opened and
    /// moved nowhere (a measurement keeps none, or the manifest's alone).
    pub fn new(opener: Opener, assembly: Assembly, kept: u64) -> Placer {
        let scratch = vec![0; assembly.layout().block_size() as usize];
        Placer { opener, assembly, counts: PlaceCounts::default(), scratch, kept }
    }

    /// Opens one data datagram to where it belongs. Its block, if it now is there.
    ///
    /// # Errors
    /// Why it did not open.
    pub fn place(
        &mut self,
        now: Time,
        datagram: &Datagram<'_>,
    ) -> Result<Option<Block>, OpenError> {
        let Datagram { header, bytes, .. } = datagram;
        let (opener, scratch) = (&mut self.opener, &mut self.scratch);
        let Some(len) = opener.payload_len(bytes.len()).filter(|len| *len <= scratch.len()) else {
            // Too short to open, or too long for any block: no place to lend.
            return opener.open(now, header, bytes, &mut []).map(|_| None);
        };
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
            // Opened all the same: what a stranger sends is no want of memory.
            Placed::NoRoom => {
                opener.open(now, header, bytes, scratch)?;
                self.counts.no_room += 1;
                Ok(None)
            }
        }
    }

    /// The chunks: to skip blocks, and to take out whole ones.
    pub fn assembly(&mut self) -> &mut Assembly {
        &mut self.assembly
    }

    /// The opener: for its counts.
    pub fn opener(&mut self) -> &mut Opener {
        &mut self.opener
    }

    /// What has been counted so far.
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
    fn payloads_come_out_as_chunks() {
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
    fn a_forgery_does_not_spoil_a_block_that_is_there() {
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
    fn a_repeat_counts_as_an_arrival_and_a_replay_does_not() {
        let (mut sealer, mut placer) = rig(false, 5);
        let first = seal(&mut sealer, 3, 100);
        assert_eq!(place(&mut placer, &first), Ok(Some(3)));
        assert_eq!(place(&mut placer, &seal(&mut sealer, 3, 100)), Ok(Some(3)));
        assert_eq!(place(&mut placer, &first), Err(OpenError::Replayed));
    }

    #[test]
    fn sizes_and_blocks_that_do_not_fit_are_counted() {
        let (mut sealer, mut placer) = rig(false, 5);
        assert_eq!(place(&mut placer, &seal(&mut sealer, 25, 100)), Ok(None));
        assert_eq!(place(&mut placer, &seal(&mut sealer, 3, 99)), Ok(None));
        assert!(place(&mut placer, &seal(&mut sealer, 3, 101)).is_err());
        assert_eq!(placer.counts().unfit, 2);
        assert_eq!(placer.assembly().open_chunks(), 0);
    }

    #[test]
    fn without_a_buffer_a_datagram_has_never_come() {
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
    fn a_measurement_accounts_and_keeps_nothing() {
        let (mut sealer, mut placer) = rig(true, 2);
        for block in 0..25 {
            let datagram = seal(&mut sealer, block, 100);
            assert_eq!(place(&mut placer, &datagram), Ok(Some(block as u32)));
        }
        assert_eq!(placer.assembly().open_chunks(), 0);
        assert!(placer.assembly().pop_whole().is_none());
    }
}
