//! The sender: paces the symbols of each frame, and decides what happens to frames that come too
//! fast.

use alloc::collections::{BTreeMap, VecDeque};

use super::head::{Head, HeadError, LAST_FRAME, shape};
use crate::fec::{Losses, Shape, repairs};
use crate::pace::Pacer;
use crate::time::{Span, Time};
use crate::units::{Bytes, Rate};

/// What happens to frames that come faster than they can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// The source waits.
    Block,
    /// The new frame is not sent.
    Skip,
    /// The oldest waiting frame is not sent.
    Thin,
}

/// How a stream is sent.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Bytes of a symbol, without the head: even.
    pub symbol: u16,
    /// Bytes of header, head and seal in front of and behind a symbol.
    pub overhead: u16,
    /// From the frame's arrival at the sender to its delivery.
    pub deadline: Span,
    /// The path's delay in one direction: a frame is given up when it cannot be in time any more.
    pub path: Span,
    /// The losses to hold against.
    pub losses: Losses,
    /// The share of frames that may be missed because of these losses.
    pub epsilon: f64,
    /// UDP payload a second.
    pub rate: Rate,
    /// What happens to frames that come too fast.
    pub overflow: Overflow,
    /// Most frames that wait behind the one that is being sent.
    pub waiting: usize,
}

/// There is no room for another frame yet: offer it again after the next one has been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// A frame that is being sent, or waits.
#[derive(Clone, Copy, Debug)]
struct Queued {
    head: Head,
    shape: Shape,
    at: Time,
}

/// Sends frames. See the [module](super).
#[derive(Debug)]
pub struct Sender {
    settings: Settings,
    pacer: Pacer,
    /// Repairs by number of originals: the sum behind it is worth keeping.
    repairs: BTreeMap<u16, u16>,
    current: Option<Queued>,
    waiting: VecDeque<Queued>,
    next: u32,
    /// The frame after the last one of which a symbol was sent.
    begun: u32,
    skipped: u64,
    /// What is left of the burst that may leave now, and when it began.
    granted: u64,
    granted_at: Time,
    /// Whether symbols were sent since the pacer was idle.
    busy: bool,
}

/// Frames of this many different lengths keep their number of repairs.
const LENGTHS: usize = 64;

impl Sender {
    /// A sender of a new stream.
    pub fn new(settings: Settings) -> Sender {
        let datagram = Bytes::new(u64::from(settings.symbol) + u64::from(settings.overhead));
        Sender {
            settings,
            pacer: Pacer::new(settings.rate, datagram),
            repairs: BTreeMap::new(),
            current: None,
            waiting: VecDeque::new(),
            next: 0,
            begun: 0,
            skipped: 0,
            granted: 0,
            granted_at: Time::ZERO,
            busy: false,
        }
    }

    /// Repairs of a frame with `originals`; as many as originals if the losses are too many for
    /// any code.
    fn repairs(&mut self, originals: u16) -> u16 {
        if let Some(known) = self.repairs.get(&originals) {
            return *known;
        }
        let Settings { losses, epsilon, .. } = self.settings;
        let count = repairs(originals, losses, epsilon).unwrap_or(originals);
        if self.repairs.len() == LENGTHS {
            self.repairs.pop_first();
        }
        self.repairs.insert(originals, count);
        count
    }

    /// Takes a frame of `length` bytes; returns its number. The driver keeps its bytes until
    /// [`Sender::oldest`] is past it.
    ///
    /// # Errors
    /// [`Full`] if the source has to wait ([`Overflow::Block`]), or after 2³² − 1 frames.
    ///
    /// # Panics
    /// If `length` was refused by [`Sender::check`].
    pub fn offer(&mut self, now: Time, length: u32) -> Result<u32, Full> {
        let full = self.current.is_some() && self.waiting.len() >= self.settings.waiting.max(1);
        let ended = self.next > LAST_FRAME;
        if ended || full && self.settings.overflow == Overflow::Block {
            return Err(Full);
        }
        let number = self.next;
        self.next += 1;
        if full {
            self.skipped += 1;
            if self.settings.overflow == Overflow::Skip {
                return Ok(number);
            }
            self.waiting.pop_front();
        }
        let symbol = self.settings.symbol;
        let plain = shape(length, 0, symbol).expect("a length that was checked");
        let repairs = self.repairs(plain.originals());
        let shape = shape(length, repairs, symbol).unwrap_or(plain);
        let (index, repairs, at) = (0, shape.repairs(), (now.as_nanos() / 1_000) as u32);
        let head = Head { frame: number, index, repairs, length, skipped: 0, at };
        self.waiting.push_back(Queued { head, shape, at: now });
        Ok(number)
    }

    /// Counts a frame that cannot be sent at all, as while the connection is lost: it has a number,
    /// so that receivers count it as missed. Nothing after 2³² − 1 frames.
    pub fn pass(&mut self) -> Option<u32> {
        let number = self.next;
        (number <= LAST_FRAME).then(|| {
            self.next += 1;
            self.skipped += 1;
            number
        })
    }

    /// Gives up all frames of which symbols are still to be sent.
    pub fn give_up(&mut self) {
        self.skipped += self.waiting.len() as u64 + u64::from(self.current.is_some());
        self.current = None;
        self.waiting.clear();
    }

    /// Follows the path: the next frames have repairs for `losses`, and the symbols of all frames
    /// go at `rate`. A frame that is being sent keeps its repairs.
    pub fn follow(&mut self, now: Time, path: Span, losses: Losses, rate: Rate) {
        if self.settings.losses != losses {
            self.repairs.clear();
        }
        if self.settings.rate != rate {
            self.pacer.set_rate(now, rate);
        }
        self.settings = Settings { path, losses, rate, ..self.settings };
    }

    /// Whether a frame of this length can be sent.
    ///
    /// # Errors
    /// [`HeadError`] if it is empty or too long.
    pub fn check(&self, length: u32) -> Result<(), HeadError> {
        shape(length, 0, self.settings.symbol).map(drop)
    }

    /// The symbol that is to be sent now, if any; the shape is that of its frame.
    pub fn poll_transmit(&mut self, now: Time) -> Option<(Head, Shape)> {
        let datagram = u64::from(self.settings.symbol) + u64::from(self.settings.overhead);
        while self.current.is_none() {
            let Some(next) = self.waiting.pop_front() else {
                if core::mem::take(&mut self.busy) {
                    self.pacer.idle(now);
                }
                return None;
            };
            self.busy = true;
            let Settings { deadline, path, rate, .. } = self.settings;
            let originals = Bytes::new(u64::from(next.shape.originals()) * datagram);
            if now + originals / rate + path > next.at + deadline {
                self.skipped += 1;
                continue;
            }
            let skipped = next.head.frame.saturating_sub(self.begun).min(Head::MANY.into());
            self.begun = next.head.frame.saturating_add(1);
            let head = Head { skipped: skipped as u8, ..next.head };
            self.current = Some(Queued { head, ..next });
        }
        // The pacer lets datagrams go in small bursts: a burst that has begun ends at this time.
        if self.granted == 0 || self.granted_at != now {
            self.granted = self.pacer.allowance(now);
            self.granted_at = now;
        }
        self.granted = self.granted.checked_sub(1)?;
        self.pacer.spend(now, Bytes::new(datagram));
        let queued = self.current.as_mut()?;
        let (head, shape) = (queued.head, queued.shape);
        match head.index.checked_add(1) {
            Some(next) if next < shape.originals().saturating_add(shape.repairs()) => {
                queued.head.index = next;
            }
            _ => self.current = None,
        }
        Some((head, shape))
    }

    /// When [`Sender::poll_transmit`] has something again; nothing before another frame is
    /// offered.
    pub fn next_wakeup(&self) -> Option<Time> {
        (self.current.is_some() || !self.waiting.is_empty()).then(|| self.pacer.next())
    }

    /// The oldest frame of which symbols are still to be sent; the next number if there is none.
    pub fn oldest(&self) -> u32 {
        let first = self.current.iter().chain(&self.waiting).next();
        first.map_or(self.next, |queued| queued.head.frame)
    }

    /// The number of the next frame.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// Whether symbols of the frame are still to be sent.
    pub fn holds(&self, frame: u32) -> bool {
        self.current.iter().chain(&self.waiting).any(|queued| queued.head.frame == frame)
    }

    /// How many frames were not sent, or given up because they could not be in time.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }
}
