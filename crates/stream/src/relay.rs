//! The thread that forwards a stream: seals each datagram for each receiver, and sends it.

use std::collections::BTreeMap;
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

/// A buffer of opened (decrypted) datagrams.
pub(crate) struct Buffer {
    bytes: Box<[u8]>,
    filled: usize,
    /// For each datagram: its `block`, and its payload's end in `bytes`.
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

pub(crate) struct Outlet {
    pub(crate) place: Arc<Place>,
    pub(crate) data: Sealer,
    /// The last withheld (not completely forwarded) frame.
    pub(crate) withheld: Option<u64>,
}

impl Outlet {
    /// Counts a datagram's frame as withheld, once.
    fn withhold(&mut self, block: u64) {
        let frame = Some(block >> 16);
        if self.withheld != frame {
            self.withheld = frame;
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

/// Starts the thread, for datagrams of at most `datagram` bytes; it ends with the last [`Sender`].
/// The [`Receiver`] yields free buffers.
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
    for (block, payload) in buffer.iter() {
        // `push` fails if the receiver's keys are used up, or the datagram is larger than declared.
        if batch.push(&mut outlet.data, Kind::Data, block, payload).is_err() {
            outlet.withhold(block);
        }
        if batch.room() == 0 && !sent(socket, batch, path) {
            outlet.withhold(block);
        }
    }
    if !batch.is_empty() && !sent(socket, batch, path) {
        buffer.iter().last().into_iter().for_each(|(block, _)| outlet.withhold(block));
    }
}

/// Sends the batch. Returns whether all of it left.
fn sent(socket: &Socket, batch: &mut Batch, path: Path) -> bool {
    matches!(batch.send(socket, path), Ok(SendOutcome::Sent))
}
