//! The thread that sends a stream: codes, seals and paces its frames.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_net::batch::Batch;
use longhaul_net::clock::{self, Time};
use longhaul_net::sealing::seal::Sealer;
use longhaul_net::socket::{Path, SendError, Socket};
use longhaul_net::wait::{self, Woken};
use longhaul_proto::fec::{Encoder, Losses, Shape};
use longhaul_proto::stream::{EPSILON, Head, Overflow, Sender as Core, Settings};
use longhaul_proto::time::Span;
use longhaul_proto::units::Rate;
use longhaul_proto::wire::header::Kind;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::terms::{OVERHEAD, Terms};

/// Frames that wait behind the frame being sent.
const WAITING: usize = 1;
/// Maximum number of frames in the thread and its channel: the frame being sent, and the frames
/// that wait behind it.
pub(crate) const ROOM: usize = WAITING + 1;

/// A command to the thread.
pub(crate) enum Order {
    /// A frame; the permit is released when there is room for another frame.
    Frame(Vec<u8>, OwnedSemaphorePermit),
    /// Sets where datagrams go; `None` while the connection is lost.
    Link(Option<Outgoing>),
    /// The measurements of the path, and the number of receivers.
    Follow { path: Span, losses: Losses, rate: Rate, receivers: u32 },
    /// No more frames follow: send the waiting frames, then answer with the number of frames.
    Finish(oneshot::Sender<u32>),
}

/// The socket, path and key for datagrams.
pub(crate) struct Outgoing {
    pub(crate) socket: Arc<Socket>,
    pub(crate) path: Path,
    pub(crate) data: Sealer,
}

/// Counts of the thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Frames taken from the source.
    pub(crate) frames: u64,
    /// Frames that were not sent, because there was no time or no connection.
    pub(crate) skipped: u64,
    /// Frames that were not sent, because there was no receiver.
    pub(crate) unwatched: u64,
    /// Datagrams sent.
    pub(crate) datagrams: u64,
    /// UDP payload of these datagrams, in bytes.
    pub(crate) bytes: u64,
    /// Whether datagrams are too large for the first link.
    pub(crate) too_large: bool,
}

/// Locks the counts. No code panics while it holds the lock.
pub(crate) fn lock(counts: &Mutex<Counts>) -> MutexGuard<'_, Counts> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the thread. The thread ends after [`Order::Finish`], or when the sender of orders is
/// dropped.
///
/// # Errors
/// The system has no thread left.
pub(crate) fn start(
    terms: Terms,
    overflow: Overflow,
    counts: Arc<Mutex<Counts>>,
) -> std::io::Result<Sender<Order>> {
    let (orders_end, orders) = channel();
    let settings = Settings {
        symbol: terms.symbol,
        overhead: OVERHEAD,
        deadline: terms.deadline,
        path: Span::ZERO,
        losses: longhaul_proto::stream::Meter::new(terms.interval()).losses(),
        epsilon: EPSILON,
        rate: Rate::ZERO,
        overflow,
        waiting: WAITING,
    };
    let sending = Sending {
        core: Core::new(settings),
        terms,
        blocks: overflow == Overflow::Block,
        receivers: 0,
        frames: VecDeque::new(),
        encoder: Encoder::new(),
        repairs: Vec::new(),
        coded: None,
        payload: vec![0; Head::LEN + usize::from(terms.symbol)],
        batch: Batch::new(terms.datagram()),
        link: None,
        counts,
    };
    std::thread::Builder::new()
        .name("stream send".into())
        .spawn(move || sending.run(&orders))
        .map(|_| orders_end)
}

struct Sending {
    core: Core,
    terms: Terms,
    blocks: bool,
    receivers: u32,
    /// Number and bytes of each frame that is not sent yet. If the source blocks, each frame keeps
    /// its permit.
    frames: VecDeque<(u32, Vec<u8>, Option<OwnedSemaphorePermit>)>,
    encoder: Encoder,
    /// The repairs of the frame `coded`.
    repairs: Vec<u8>,
    coded: Option<u32>,
    payload: Vec<u8>,
    batch: Batch,
    link: Option<Outgoing>,
    counts: Arc<Mutex<Counts>>,
}

impl Sending {
    fn run(mut self, orders: &Receiver<Order>) {
        wait::take_slack_out();
        let mut finish = None;
        loop {
            let due = match (&self.link, self.core.next_wakeup()) {
                (Some(_), Some(due)) => due,
                _ => Time::NEVER,
            };
            match wait::until(orders, due) {
                Woken::Due => {}
                Woken::Message(Order::Finish(tell)) => finish = Some(tell),
                Woken::Message(order) => self.obey(order),
                Woken::Closed => return,
            }
            if self.link.is_some() {
                self.send();
            }
            self.forget();
            if let Some(tell) = finish.take_if(|_| self.core.next_wakeup().is_none()) {
                // The caller may have dropped the receiver.
                let _ = tell.send(self.core.next());
                return;
            }
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Frame(bytes, permit) => self.offer(bytes, permit),
            Order::Link(link) => {
                if link.is_none() {
                    // Frames that wait now would be too old after a reconnection.
                    self.core.give_up();
                }
                self.link = link;
            }
            Order::Follow { path, losses, rate, receivers } => {
                self.receivers = receivers;
                self.core.follow(clock::now(), path, losses, rate);
            }
            Order::Finish(_) => {}
        }
    }

    fn offer(&mut self, bytes: Vec<u8>, permit: OwnedSemaphorePermit) {
        let mut counts = lock(&self.counts);
        counts.frames += 1;
        if self.receivers == 0 {
            counts.unwatched += 1;
            return;
        }
        drop(counts);
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        if self.link.is_none() || self.core.check(length).is_err() {
            self.core.pass();
        } else if let Ok(number) = self.core.offer(clock::now(), length) {
            let permit = self.blocks.then_some(permit);
            self.frames.push_back((number, bytes, permit));
        } else {
            self.core.pass();
        }
    }

    /// Drops the bytes of frames that are sent or given up.
    fn forget(&mut self) {
        let core = &self.core;
        self.frames.retain(|(number, ..)| core.holds(*number));
        lock(&self.counts).skipped = core.skipped();
    }

    /// Sends all datagrams that are due.
    fn send(&mut self) {
        let now = clock::now();
        while let Some((head, shape)) = self.core.poll_transmit(now) {
            if let Some(len) = self.write(&head, shape) {
                let Some(link) = &mut self.link else { return };
                let payload = &self.payload[..len];
                // Fails when the keys are used up, after 2⁴⁰ datagrams; then nothing more is sent.
                let _ = self.batch.push(&mut link.data, Kind::Data, head.block(), payload);
            }
            if self.batch.room() == 0 {
                self.flush();
            }
        }
        if !self.batch.is_empty() {
            self.flush();
        }
    }

    /// Writes the payload of one datagram; returns its length, if the frame still exists.
    fn write(&mut self, head: &Head, shape: Shape) -> Option<usize> {
        let (_, bytes, _) = self.frames.iter().find(|(number, ..)| *number == head.frame)?;
        let symbol = usize::from(self.terms.symbol);
        let index = usize::from(head.index);
        let from = match head.index.checked_sub(shape.originals()) {
            None => &bytes[index * symbol..bytes.len().min((index + 1) * symbol)],
            Some(repair) => {
                // The originals are already sent, so they never wait for the code.
                if self.coded != Some(head.frame) {
                    let originals = bytes.chunks(symbol);
                    self.encoder.encode(shape, originals, &mut self.repairs).ok()?;
                    self.coded = Some(head.frame);
                }
                self.repairs.chunks_exact(symbol).nth(repair.into())?
            }
        };
        let len = Head::LEN + from.len();
        self.payload[..Head::LEN].copy_from_slice(&head.encode());
        self.payload[Head::LEN..len].copy_from_slice(from);
        Some(len)
    }

    fn flush(&mut self) {
        let Some(link) = &self.link else { return };
        let (datagrams, bytes) = (self.batch.len() as u64, self.batch.bytes() as u64);
        let sent = self.batch.send(&link.socket, link.path);
        let mut counts = lock(&self.counts);
        counts.datagrams += datagrams;
        counts.bytes += bytes;
        // Any other failed send has the effect of a loss on the path.
        counts.too_large |= matches!(sent, Err(SendError::TooLarge));
    }
}
