//! Predicted placement: the kernel scatters the payloads of a train (datagrams that it merged) into
//! their predicted places.
//!
//! The receiver predicts the next blocks: the missing blocks after the last arrival. In one call it
//! gives the kernel a list of slices: header, place, tag, header, place, tag, …. A correctly
//! predicted payload is opened (decrypted and verified) in place, without a move. A mispredicted
//! datagram is gathered from where it was written and handled in the ordinary way.
//!
//! The kernel gets only the places of missing blocks in a chunk buffer. Wrong bytes there are
//! overwritten later, and no other code gets data before they are opened.

use std::io::{self, IoSliceMut};

use longhaul_proto::coded::FIRST_SYMBOL;
use longhaul_proto::endpoint::{Arrival, FlowId};
use longhaul_proto::time::Time;
use longhaul_proto::wire::header::{Header, Kind};

use crate::buffers::assembly::Place;
use crate::clock::{self, Reading};
use crate::port::Message;
use crate::port::place::Placer;
use crate::sealing::open::Opener;
use crate::sealing::seal::TAG_LEN;
use crate::socket::{Path, Socket};

/// Maximum number of datagrams that the kernel merges into one train.
const MOST: usize = 64;
/// Bytes of the longest train.
const TRAIN: usize = 1 << 16;

/// The datagrams of a train that are not in their predicted places, gathered into one buffer.
pub struct Spill {
    bytes: Vec<u8>,
    stride: usize,
    path: Path,
    at: Time,
}

impl Default for Spill {
    fn default() -> Spill {
        let nowhere = std::net::SocketAddr::from(([0, 0, 0, 0], 0));
        Spill { bytes: Vec::with_capacity(TRAIN), stride: 1, path: nowhere.into(), at: Time::ZERO }
    }
}

impl Spill {
    pub(super) fn message(&self) -> Message<'_> {
        Message { path: self.path, bytes: &self.bytes, stride: self.stride, at: self.at }
    }
}

/// Permission from a port to receive one train directly.
pub struct ScatterCall<'a> {
    socket: &'a Socket,
    spill: &'a mut Spill,
    taken: u64,
    /// None of the received data arrived before this time.
    since: Time,
}

impl<'a> ScatterCall<'a> {
    pub(super) fn new(socket: &'a Socket, spill: &'a mut Spill, since: Time) -> ScatterCall<'a> {
        spill.bytes.clear();
        ScatterCall { socket, spill, taken: 0, since }
    }

    /// Returns the source of the train.
    pub fn path(&self) -> Path {
        self.spill.path
    }

    /// Returns when the kernel received the train.
    pub fn at(&self) -> Time {
        self.spill.at
    }

    /// Returns the number of datagrams that were received and are not in the spill.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    pub(super) fn taken_bytes(&self) -> u64 {
        self.taken * self.spill.stride as u64
    }
}

/// Receives one flow's trains into their predicted places.
pub struct Scatter {
    flow: FlowId,
    /// The next expected block, counted from the start of the object.
    next: u64,
    heads: Box<[[u8; Header::LEN]; MOST]>,
    tags: Box<[[u8; TAG_LEN]; MOST]>,
    /// Destination of a train's excess over the prediction.
    overflow: Box<[u8]>,
    places: Vec<Place>,
}

impl Scatter {
    /// Returns a receiver that expects the first block of `flow`.
    pub fn new(flow: FlowId) -> Scatter {
        Scatter {
            flow,
            next: 0,
            heads: Box::new([[0; Header::LEN]; MOST]),
            tags: Box::new([[0; TAG_LEN]; MOST]),
            overflow: vec![0; TRAIN].into_boxed_slice(),
            places: Vec::with_capacity(MOST),
        }
    }

    /// Receives one train, and adds the genuine blocks in their places to `arrivals`. Datagrams
    /// that are not in their places go to the call's spill, for [`Placer::place`].
    ///
    /// # Errors
    /// The socket's error; `WouldBlock` if no data wait.
    pub fn receive(
        &mut self,
        call: &mut ScatterCall<'_>,
        placer: &mut Placer,
        arrivals: &mut Vec<Arrival>,
    ) -> io::Result<()> {
        let tag = placer.opener.overhead() - Header::LEN;
        let buffer = placer.assembly.lend(self.next, MOST, &mut self.places);
        let mut parts = split(buffer.unwrap_or_default(), &self.places);
        let mut slices = Vec::with_capacity(3 * MOST + 1);
        let small = self.heads.iter_mut().zip(self.tags.iter_mut());
        for ((head, end), part) in small.zip(&mut parts) {
            slices.push(IoSliceMut::new(head));
            slices.push(IoSliceMut::new(part));
            slices.push(IoSliceMut::new(&mut end[..tag]));
        }
        slices.push(IoSliceMut::new(&mut self.overflow));
        let came = call.socket.receive_scattered(&mut slices)?;
        drop(slices);
        call.spill.path = Path { remote: came.from, local: came.to };
        (call.spill.stride, call.spill.at) =
            (came.stride, Reading::now().at(came.stamp, call.since));
        let train = Train { len: came.len, stride: came.stride, tag };
        let right = self.sort(&train, &parts, &mut call.spill.bytes);
        let (last, moved) = self.look_over(right, &call.spill.bytes, train.stride);
        self.next = last.map_or(self.next, |block| block + 1);
        call.taken += u64::from(right.count_ones());
        let genuine = self.open(right, tag, &mut placer.opener, &mut parts);
        placer.counts.mispredicted += moved;
        for (place, head) in chosen(genuine, &self.places).zip(chosen(genuine, &*self.heads)) {
            let header = Header::decode(head);
            if let (Some(header), Some(block)) = (header, placer.assembly.mark(place.number)) {
                let at = call.spill.at;
                arrivals.push(Arrival { number: header.number, block, at });
                placer.counts.predicted += 1;
            }
        }
        Ok(())
    }

    /// Gathers every datagram that is not in its place; returns a bit for each that is in its
    /// place.
    fn sort(&self, train: &Train, parts: &[&mut [u8]], spill: &mut Vec<u8>) -> u64 {
        let mut right = 0;
        let first = self.places.first().map(|place| train.planned(place));
        let aligned = first == Some(train.stride);
        let mut start = 0;
        for (n, place) in self.places.iter().enumerate() {
            let rest = train.len.saturating_sub(start);
            let came = if aligned { rest.min(train.stride) } else { rest };
            if came == 0 {
                break;
            }
            let fits = aligned && came == train.planned(place);
            if fits && Header::decode(&self.heads[n]).is_some_and(|h| self.is_right(&h, place)) {
                right |= 1 << n;
            } else {
                let end = spill.len() + came.min(train.planned(place));
                spill.extend_from_slice(&self.heads[n]);
                spill.extend_from_slice(parts[n]);
                spill.extend_from_slice(&self.tags[n][..train.tag]);
                spill.truncate(end);
            }
            start += train.planned(place);
        }
        let beyond = train.len.saturating_sub(start).min(self.overflow.len());
        spill.extend_from_slice(&self.overflow[..beyond]);
        right
    }

    /// Returns the highest block number of this flow in a train, and how many of the flow's blocks
    /// were not in their predicted places.
    fn look_over(&self, right: u64, spill: &[u8], stride: usize) -> (Option<u64>, u64) {
        let predicted = chosen(right, &self.places).map(|place| place.number).last();
        let headers = spill.chunks(stride).filter_map(Header::decode);
        let ours = headers.filter(|h| h.kind == Kind::Data && h.flow == self.flow);
        // A coded symbol predicts no next block.
        let ours = ours.filter(|h| h.block < FIRST_SYMBOL);
        ours.fold((predicted, 0), |(last, moved), h| (last.max(Some(h.block)), moved + 1))
    }

    /// Opens the datagrams in place; returns a bit for each genuine one.
    fn open(&self, right: u64, tag: usize, opener: &mut Opener, parts: &mut [&mut [u8]]) -> u64 {
        let now = clock::now();
        let mut genuine = 0;
        for (n, part) in parts.iter_mut().enumerate().filter(|(n, _)| right >> n & 1 == 1) {
            let opened = opener.open_in_place(now, &self.heads[n], &self.tags[n][..tag], part);
            genuine |= u64::from(opened.is_ok()) << n;
        }
        genuine
    }

    fn is_right(&self, header: &Header, place: &Place) -> bool {
        header.kind == Kind::Data && header.flow == self.flow && header.block == place.number
    }
}

/// Returns the items whose bits are set.
fn chosen<T>(bits: u64, items: &[T]) -> impl Iterator<Item = &T> {
    items.iter().enumerate().filter(move |(n, _)| bits >> n & 1 == 1).map(|(_, item)| item)
}

struct Train {
    len: usize,
    stride: usize,
    tag: usize,
}

impl Train {
    fn planned(&self, place: &Place) -> usize {
        Header::LEN + place.len + self.tag
    }
}

fn split<'a>(buffer: &'a mut [u8], places: &[Place]) -> Vec<&'a mut [u8]> {
    let (mut rest, mut at) = (buffer, 0);
    let mut parts = Vec::with_capacity(places.len());
    for place in places {
        let Some((_, behind)) = std::mem::take(&mut rest).split_at_mut_checked(place.start - at)
        else {
            break;
        };
        let Some((part, behind)) = behind.split_at_mut_checked(place.len) else { break };
        parts.push(part);
        (rest, at) = (behind, place.start + place.len);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Batch;
    use crate::buffers::assembly::Assembly;
    use crate::buffers::chunks::ChunkPool;
    use crate::port::{Datagrams, FlowSink, Port};
    use crate::sealing::keys::{FlowKeys, Suite};
    use crate::sealing::seal::{Sealer, data_overhead};
    use longhaul_proto::layout::Layout;
    use longhaul_proto::units::Bytes;
    use std::collections::BTreeMap;
    use std::net::Ipv4Addr;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    const FLOW: FlowId = FlowId(3);
    const CHUNK: u64 = 50_000;
    const OBJECT: u64 = 480_000;
    const DATAGRAM: usize = 1000;

    enum Event {
        Chunk(u64, Vec<u8>),
        Counts(u64, u64),
    }

    struct Sink {
        scatter: Scatter,
        placer: Placer,
        arrivals: Vec<Arrival>,
        left: u64,
        report: Sender<Event>,
    }

    impl Sink {
        fn report(&mut self) {
            while let Some(whole) = self.placer.assembly().pop_whole() {
                let bytes = whole.buffer[..whole.len].to_vec();
                let _ = self.report.send(Event::Chunk(whole.chunk, bytes));
                self.left -= 1;
            }
            if self.left == 0 {
                let counts = self.placer.counts();
                let _ = self.report.send(Event::Counts(counts.predicted, counts.mispredicted));
            }
        }
    }

    impl FlowSink for Sink {
        fn on_batch(&mut self, now: Time, datagrams: &mut Datagrams<'_>) {
            for datagram in datagrams {
                if let Ok(Some(block)) = self.placer.place(now, &datagram) {
                    let number = datagram.header.number;
                    self.arrivals.push(Arrival { number, block, at: datagram.at });
                }
            }
            self.report();
        }

        fn receive(&mut self, call: &mut ScatterCall<'_>) -> io::Result<bool> {
            self.scatter.receive(call, &mut self.placer, &mut self.arrivals)?;
            self.report();
            Ok(true)
        }

        fn on_wake(&mut self, _: Time) {}

        fn next_wakeup(&self) -> Option<Time> {
            None
        }

        fn is_closed(&self) -> bool {
            self.left == 0
        }

        fn on_port_closed(&mut self, _: &str) {}
    }

    struct Rig {
        layout: Layout,
        port: Port,
        socket: Socket,
        sealer: Sealer,
        events: Receiver<Event>,
    }

    fn rig(suite: Suite) -> Rig {
        let block = (DATAGRAM - data_overhead(suite)) as u32;
        let layout =
            Layout::new(Bytes::new(OBJECT), Bytes::ZERO, Bytes::new(CHUNK), block).unwrap();
        let keys = || FlowKeys::new(&[1; 32], suite, 1, FLOW);
        let pool = ChunkPool::new(Bytes::new(CHUNK), Bytes::new(20 * CHUNK));
        let (report, events) = channel();
        let opener = keys().receiving_end().data;
        let sink = Sink {
            scatter: Scatter::new(FLOW),
            placer: Placer::new(opener, Assembly::new(layout, pool), u64::MAX),
            arrivals: Vec::new(),
            left: layout.chunks(),
            report,
        };
        let local = (Ipv4Addr::LOCALHOST, 0).into();
        let port = Port::bind(local).unwrap();
        port.register(FLOW, Box::new(sink)).unwrap();
        let socket = Socket::bind(local).unwrap();
        Rig { layout, port, socket, sealer: keys().sending_end().data, events }
    }

    fn byte_at(offset: u64) -> u8 {
        (offset * 7 % 251) as u8
    }

    impl Rig {
        fn send(&mut self, blocks: impl Iterator<Item = u64>) {
            let path = Path::from(self.port.socket().local_addr());
            let mut batch = Batch::new(DATAGRAM as u16);
            let mut blocks = blocks.peekable();
            while let Some(number) = blocks.next() {
                let extent = self.layout.extent(self.layout.block(number).unwrap());
                let range = extent.offset..extent.offset + u64::from(extent.len);
                let payload: Vec<u8> = range.map(byte_at).collect();
                batch.push(&mut self.sealer, Kind::Data, number, &payload).unwrap();
                if batch.room() == 0 || blocks.peek().is_none() {
                    batch.send(&self.socket, path).unwrap();
                }
            }
        }

        /// Checks every chunk; returns how many payloads were predicted and mispredicted.
        fn finish(self) -> (u64, u64) {
            let mut chunks = BTreeMap::new();
            loop {
                match self.events.recv_timeout(Duration::from_secs(10)).unwrap() {
                    Event::Chunk(chunk, bytes) => {
                        assert!(chunks.insert(chunk, bytes).is_none());
                    }
                    Event::Counts(predicted, mispredicted) => {
                        let bytes: Vec<u8> = chunks.into_values().flatten().collect();
                        assert!(bytes.into_iter().eq((0..OBJECT).map(byte_at)));
                        return (predicted, mispredicted);
                    }
                }
            }
        }
    }

    const SUITES: [Suite; 2] = [Suite::Aes128Gcm, Suite::Plain];

    #[test]
    fn an_object_in_order_needs_no_moves() {
        for suite in SUITES {
            let mut rig = rig(suite);
            let blocks = rig.layout.blocks();
            rig.send(0..blocks);
            assert_eq!(rig.finish(), (blocks, 0));
        }
    }

    #[test]
    fn an_object_is_complete_in_spite_of_losses_repeats_and_reordering() {
        for suite in SUITES {
            let mut rig = rig(suite);
            let blocks = rig.layout.blocks();
            rig.send((0..blocks).filter(|n| n % 7 != 3));
            rig.send((0..blocks).rev().step_by(5));
            rig.send((0..blocks).step_by(2));
            rig.send(0..blocks);
            let (predicted, mispredicted) = rig.finish();
            assert!(predicted > 0 && mispredicted > 0);
        }
    }

    #[test]
    fn datagrams_of_other_flows_and_sizes_do_no_harm() {
        let mut rig = rig(Suite::Aes128Gcm);
        let path = Path::from(rig.port.socket().local_addr());
        let blocks = rig.layout.blocks();
        rig.send(0..blocks / 2);
        let mut foreign = vec![0x5a; 30_000];
        let header = |flow, block| Header {
            kind: Kind::Data,
            flow,
            number: longhaul_proto::endpoint::PacketNumber(9_999),
            block,
        };
        for size in [17, 500, DATAGRAM, 1400] {
            for (n, bytes) in foreign.chunks_exact_mut(size).enumerate() {
                let flow = if n % 2 == 0 { FLOW } else { FlowId(77) };
                let header = header(flow, blocks / 2 + n as u64);
                if let Some(head) = bytes.first_chunk_mut() {
                    header.encode(head);
                }
            }
            rig.socket.send_train(path, &foreign, size).unwrap();
        }
        rig.send(blocks / 2..blocks);
        rig.finish();
    }
}
