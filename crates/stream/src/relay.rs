//! The thread that forwards a stream: seals each datagram for each receiver, and sends it.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use longhaul_net::batch::Batch;
use longhaul_net::clock;
use longhaul_net::sealing::seal::Sealer;
use longhaul_net::socket::{Path, SendOutcome, Socket};
use longhaul_proto::wire::header::Kind;

use crate::place::Place;

/// Buffers of one stream: at most 4 MiB wait for the relay.
const BUFFERS: usize = 64;
/// Size of a buffer in bytes.
const SIZE: usize = 64 << 10;
/// Number of withheld (not completely forwarded) frames that the relay remembers for each receiver.
/// So each frame counts once, even if the symbols of several frames alternate.
const WITHHELD: usize = 64;

/// A buffer of opened (decrypted) datagrams.
pub(crate) struct Buffer {
    bytes: Box<[u8]>,
    filled: usize,
    /// For each datagram: its `block` (frame number and symbol number), and its payload's end in
    /// `bytes`.
    datagrams: Vec<(u64, usize)>,
}

impl Buffer {
    fn new() -> Buffer {
        let datagrams = Vec::with_capacity(SIZE / 64);
        Buffer { bytes: vec![0; SIZE].into_boxed_slice(), filled: 0, datagrams }
    }

    pub(crate) fn room(&self) -> usize {
        match self.datagrams.len() < self.datagrams.capacity() {
            true => self.bytes.len() - self.filled,
            false => 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.datagrams.is_empty()
    }

    pub(crate) fn free(&mut self) -> &mut [u8] {
        &mut self.bytes[self.filled..]
    }

    /// Keeps the first `len` free bytes as a payload.
    pub(crate) fn keep(&mut self, block: u64, len: usize) {
        self.filled += len;
        self.datagrams.push((block, self.filled));
    }

    fn clear(&mut self) {
        self.filled = 0;
        self.datagrams.clear();
    }

    fn iter(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let mut start = 0;
        self.datagrams.iter().map(move |(block, end)| {
            let payload = &self.bytes[start..*end];
            start = *end;
            (*block, payload)
        })
    }
}

/// A receiver of the stream, as the relay sees it.
pub(crate) struct Outlet {
    pub(crate) place: Arc<Place>,
    pub(crate) data: Sealer,
    /// The last [`WITHHELD`] withheld (not completely forwarded) frames.
    pub(crate) withheld: VecDeque<u64>,
}

impl Outlet {
    /// Counts a datagram's frame as withheld, once.
    fn withhold(&mut self, block: u64) {
        let frame = block >> 16;
        if !self.withheld.contains(&frame) {
            self.withheld.truncate(WITHHELD - 1);
            self.withheld.push_front(frame);
            self.place.withhold();
        }
    }
}

pub(crate) enum Work {
    Forward(Buffer),
    /// Adds a receiver by its number, or replaces it.
    Add(u64, Outlet),
    Remove(u64),
}

/// Starts the thread, for datagrams of at most `datagram` bytes. The thread ends with the last
/// [`Sender`]. The [`Receiver`] yields free buffers.
pub(crate) fn start(
    socket: Arc<Socket>,
    datagram: u16,
) -> io::Result<(Sender<Work>, Receiver<Buffer>)> {
    let (work_end, work) = channel();
    let (back, spare) = channel();
    for _ in 0..BUFFERS {
        let _ = back.send(Buffer::new());
    }
    let relay = Relay { socket, outlets: BTreeMap::new(), batch: Batch::new(datagram) };
    std::thread::Builder::new().name("relay".into()).spawn(move || relay.run(&work, &back))?;
    Ok((work_end, spare))
}

struct Relay {
    socket: Arc<Socket>,
    outlets: BTreeMap<u64, Outlet>,
    batch: Batch,
}

impl Relay {
    fn run(mut self, work: &Receiver<Work>, back: &Sender<Buffer>) {
        while let Ok(work) = work.recv() {
            match work {
                Work::Add(number, outlet) => drop(self.outlets.insert(number, outlet)),
                Work::Remove(number) => drop(self.outlets.remove(&number)),
                Work::Forward(mut buffer) => {
                    let now = clock::now();
                    for outlet in self.outlets.values_mut() {
                        let path = outlet.place.path(now);
                        forward(&self.socket, &mut self.batch, outlet, path, &buffer);
                    }
                    buffer.clear();
                    let _ = back.send(buffer);
                }
            }
        }
    }
}

fn forward(
    socket: &Socket,
    batch: &mut Batch,
    outlet: &mut Outlet,
    path: Option<Path>,
    buffer: &Buffer,
) {
    let Some(path) = path else {
        buffer.iter().for_each(|(block, _)| outlet.withhold(block));
        return;
    };
    let (mut blocks, count) = (Vec::with_capacity(batch.capacity()), buffer.datagrams.len());
    for (number, (block, payload)) in (1..).zip(buffer.iter()) {
        // `push` fails if the receiver's keys are used up, or the datagram is larger than declared.
        match batch.push(&mut outlet.data, Kind::Data, block, payload) {
            Ok(()) => blocks.push(block),
            Err(_) => outlet.withhold(block),
        }
        if (batch.room() == 0 || number == count) && !batch.is_empty() {
            let sent = batch.send(socket, path);
            // After a failure it is unknown which datagrams left.
            if !matches!(sent, Ok(SendOutcome::Sent)) {
                blocks.iter().for_each(|block| outlet.withhold(*block));
            }
            blocks.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use longhaul_net::sealing::keys::{FlowKeys, Suite};
    use longhaul_proto::wire::header::FlowId;

    use super::*;

    fn outlet() -> Outlet {
        let keys = FlowKeys::new(&[7; 32], Suite::Aes128Gcm, 1, FlowId(1));
        Outlet { place: Arc::default(), data: keys.sending_end().data, withheld: VecDeque::new() }
    }

    fn filled(frames: impl Iterator<Item = u64>) -> Buffer {
        let mut buffer = Buffer::new();
        frames.for_each(|frame| buffer.keep(frame << 16, 100));
        buffer
    }

    #[test]
    fn every_frame_of_a_batch_that_cannot_be_sent_is_withheld_once() {
        let socket = Socket::bind("127.0.0.1:0".parse().unwrap()).expect("loopback");
        // Nothing can be sent to port 0.
        let path = Some(Path { remote: "127.0.0.1:0".parse().unwrap(), local: None });
        let frames = || (0..100).flat_map(|frame| [frame, frame]);
        for size in [1_400, 132] {
            let (mut batch, mut outlet) = (Batch::new(size), outlet());
            forward(&socket, &mut batch, &mut outlet, path, &filled(frames()));
            assert_eq!(outlet.place.withheld(), 100, "datagrams of {size} bytes");
            // The receiver has no path.
            forward(&socket, &mut batch, &mut outlet, None, &filled(frames()));
            assert_eq!(outlet.place.withheld(), 200);
        }
    }

    #[test]
    fn frames_whose_symbols_alternate_are_withheld_once() {
        let socket = Socket::bind("127.0.0.1:0".parse().unwrap()).expect("loopback");
        let (mut batch, mut outlet) = (Batch::new(132), outlet());
        let buffer = filled([5, 6, 5, 6, 5].into_iter());
        forward(&socket, &mut batch, &mut outlet, None, &buffer);
        assert_eq!(outlet.place.withheld(), 2);
        forward(&socket, &mut batch, &mut outlet, None, &filled(0..200));
        assert_eq!((outlet.place.withheld(), outlet.withheld.len()), (2 + 198, WITHHELD));
    }

    #[test]
    fn a_frame_with_a_too_large_datagram_is_withheld_and_the_others_are_sent() {
        let socket = Socket::bind("127.0.0.1:0".parse().unwrap()).expect("loopback");
        let far = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback");
        let path = Some(Path { remote: far.local_addr().unwrap(), local: None });
        let (mut batch, mut outlet) = (Batch::new(132), outlet());
        let mut buffer = filled(0..3);
        buffer.keep(3 << 16, 101);
        buffer.keep(4 << 16, 100);
        forward(&socket, &mut batch, &mut outlet, path, &buffer);
        assert_eq!(outlet.place.withheld(), 1);
        far.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        for _ in 0..4 {
            assert_eq!(far.recv(&mut [0; 200]).expect("a datagram"), 132);
        }
    }
}
