//! The thread that sends a stream: codes, seals and paces its frames. Each datagram has a symbol of
//! a frame: an original (a part of the frame's bytes), or a repair, which can replace a lost
//! original.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_net::batch::Batch;
use longhaul_net::clock::{self, Time};
use longhaul_net::sealing::seal::Sealer;
use longhaul_net::socket::{Path, SendError, Socket};
use longhaul_net::wait::{self, Woken};
use longhaul_proto::fec::{Encoder, Losses, Shape};
use longhaul_proto::stream::{EPSILON, Head, Overflow, Request, Sender as Core, Settings};
use longhaul_proto::time::Span;
use longhaul_proto::units::Rate;
use longhaul_proto::wire::header::Kind;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::terms::{OVERHEAD, Terms};

/// Maximum number of frames behind the one being sent.
const WAITING: usize = 1;
/// Maximum number of unsent frames: the frame being sent, and those that wait behind it.
const ROOM: usize = WAITING + 1;

/// Returns the number of permits for frames. A payload (several frames sent as one) that is being
/// filled needs one more.
pub(crate) fn room(terms: &Terms) -> usize {
    ROOM + usize::from(terms.group > 1)
}

pub(crate) enum Order {
    /// A frame; its permit is released when there is room for another.
    Frame(Vec<u8>, OwnedSemaphorePermit),
    /// Where datagrams go; `None` without a connection.
    Link(Option<Outgoing>),
    /// The measurements of the path, and the number of receivers. `keeps`: frames have no repairs,
    /// so they are kept for requests.
    Follow { path: Span, losses: Losses, rate: Rate, keeps: bool, receivers: u32 },
    /// A request for missing symbols, and the number of the receiver that sent it.
    Again(Request, u32),
    /// No more frames follow: send the rest, then answer with the number of all frames (or
    /// payloads) that had a receiver.
    Finish(oneshot::Sender<u32>),
}

pub(crate) struct Outgoing {
    pub(crate) socket: Arc<Socket>,
    pub(crate) path: Path,
    pub(crate) data: Sealer,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) frames: u64,
    /// Frames not sent completely: they came too fast, time ran out, or there was no connection.
    pub(crate) skipped: u64,
    /// Frames that came while the stream had no receiver.
    pub(crate) unwatched: u64,
    pub(crate) datagrams: u64,
    pub(crate) bytes: u64,
    pub(crate) resent: u64,
    /// Whether a datagram was too large for this host.
    pub(crate) too_large: bool,
}

pub(crate) fn lock(counts: &Mutex<Counts>) -> MutexGuard<'_, Counts> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the thread, which ends after [`Order::Finish`] or the drop of the returned channel end.
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
        keeps: false,
    };
    let sending = Sending {
        core: Core::new(settings),
        terms,
        blocks: overflow == Overflow::Block,
        receivers: 0,
        filling: None,
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

/// A payload that is being filled with frames. The core (the protocol's state machine) sends it as
/// one frame.
struct Filling {
    since: Time,
    frames: u32,
    bytes: Vec<u8>,
    permit: OwnedSemaphorePermit,
}

struct Sending {
    core: Core,
    terms: Terms,
    blocks: bool,
    receivers: u32,
    filling: Option<Filling>,
    /// Number and bytes of each frame in the core. With [`Overflow::Block`], each unsent frame
    /// keeps its permit.
    frames: VecDeque<(u32, Vec<u8>, Option<OwnedSemaphorePermit>)>,
    encoder: Encoder,
    repairs: Vec<u8>,
    coded: Option<u32>,
    payload: Vec<u8>,
    batch: Batch,
    link: Option<Outgoing>,
    counts: Arc<Mutex<Counts>>,
}

impl Sending {
    fn run(mut self, orders: &Receiver<Order>) {
        wait::be_punctual();
        let mut finish = None;
        loop {
            let core = self.core.next_wakeup().filter(|_| self.link.is_some());
            let due = core.into_iter().chain(self.payload_due(finish.is_some())).min();
            match wait::until(orders, due.unwrap_or(Time::NEVER)) {
                Woken::Due => {}
                Woken::Message(Order::Finish(tell)) => finish = Some(tell),
                Woken::Message(order) => self.obey(order),
                Woken::Closed => return,
            }
            if self.payload_due(finish.is_some()).is_some_and(|due| due <= clock::now()) {
                self.offer_payload();
            }
            if self.link.is_some() {
                self.send();
            }
            self.forget();
            let is_empty = self.filling.is_none() && self.core.next_wakeup().is_none();
            if let Some(tell) = finish.take_if(|_| is_empty) {
                let _ = tell.send(self.core.next());
                return;
            }
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Frame(bytes, permit) => self.take(bytes, permit),
            Order::Link(link) => {
                if link.is_none() {
                    // Unsent frames would be too old after a reconnection.
                    self.core.give_up();
                }
                self.link = link;
            }
            Order::Follow { path, losses, rate, keeps, receivers } => {
                self.receivers = receivers;
                self.core.follow(clock::now(), path, losses, rate, keeps);
            }
            Order::Again(request, receiver) => {
                self.core.again(clock::now(), &request, receiver);
            }
            Order::Finish(_) => {}
        }
    }

    fn take(&mut self, frame: Vec<u8>, permit: OwnedSemaphorePermit) {
        let mut counts = lock(&self.counts);
        counts.frames += 1;
        if self.receivers == 0 {
            counts.unwatched += 1;
            return;
        }
        drop(counts);
        if self.terms.group == 1 {
            return self.offer(frame, 1, permit);
        }
        let length = (frame.len() as u32).to_be_bytes();
        let (since, frames, mut bytes) = match self.filling.take() {
            Some(Filling { since, frames, bytes, .. }) => (since, frames, bytes),
            None => (clock::now(), 0, Vec::with_capacity(self.terms.frame as usize)),
        };
        bytes.extend_from_slice(&length);
        bytes.extend_from_slice(&frame);
        self.filling = Some(Filling { since, frames: frames + 1, bytes, permit });
        if frames + 1 == self.terms.group {
            self.offer_payload();
        }
    }

    /// Returns when to send a payload that is not full: at the stream's end, or when its first
    /// frame has waited as long as the stream's deadline. `None` without such a payload, or while
    /// the core has an unsent frame.
    fn payload_due(&self, is_end: bool) -> Option<Time> {
        let filling = self.filling.as_ref()?;
        let is_idle = self.core.oldest() == self.core.next();
        let due = if is_end { Time::ZERO } else { filling.since + self.terms.deadline };
        is_idle.then_some(due)
    }

    fn offer_payload(&mut self) {
        if let Some(Filling { frames, bytes, permit, .. }) = self.filling.take() {
            self.offer(bytes, frames, permit);
        }
    }

    /// Offers the bytes of `frames` frames to the core as one frame.
    fn offer(&mut self, bytes: Vec<u8>, frames: u32, permit: OwnedSemaphorePermit) {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        if self.link.is_none() || self.core.check(length).is_err() {
            self.core.pass(frames);
        } else if let Ok(number) = self.core.offer_payload(clock::now(), length, frames) {
            let permit = self.blocks.then_some(permit);
            self.frames.push_back((number, bytes, permit));
        } else {
            self.core.pass(frames);
        }
    }

    /// Drops the bytes of frames that the core has dropped, and the permits of sent frames.
    fn forget(&mut self) {
        while self.frames.pop_front_if(|(number, ..)| !self.core.holds(*number)).is_some() {}
        // Only the newest frames can be unsent, or be dropped out of order.
        for place in (self.frames.len().saturating_sub(ROOM + 1)..self.frames.len()).rev() {
            let (number, _, permit) = &mut self.frames[place];
            if !self.core.holds(*number) {
                self.frames.remove(place);
            } else if !self.core.sends(*number) {
                *permit = None;
            }
        }
        let mut counts = lock(&self.counts);
        counts.skipped = self.core.skipped();
        counts.resent = self.core.resent();
    }

    fn send(&mut self) {
        let now = clock::now();
        while let Some((head, shape)) = self.core.poll_transmit(now) {
            if let Some(len) = self.write(&head, shape) {
                let Some(link) = &mut self.link else { return };
                let payload = &self.payload[..len];
                // `push` fails after 2⁴⁰ datagrams, when the keys are used up.
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

    /// Writes one datagram's payload, if its frame still exists; returns the length.
    fn write(&mut self, head: &Head, shape: Shape) -> Option<usize> {
        let place = self.frames.binary_search_by_key(&head.frame, |(number, ..)| *number).ok()?;
        let bytes = &self.frames[place].1;
        let symbol = usize::from(self.terms.symbol);
        let index = usize::from(head.index);
        let from = match head.index.checked_sub(shape.originals()) {
            None => &bytes[index * symbol..bytes.len().min((index + 1) * symbol)],
            Some(repair) => {
                // Computes the repairs when the first one is due, so the originals never wait for
                // the code.
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
        // Any other failure is like a loss on the path.
        counts.too_large |= matches!(sent, Err(SendError::TooLarge));
    }
}
