//! The sender: paces the symbols of each frame, and handles frames that arrive too fast.

use alloc::collections::{BTreeMap, VecDeque};

use super::head::{Head, HeadError, LAST_FRAME, shape};
use crate::fec::{Losses, Shape, repairs};
use crate::pace::Pacer;
use crate::time::{Span, Time};
use crate::units::{Bytes, Rate};

/// What the sender does with frames that arrive faster than they can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// Lets the source wait.
    Block,
    /// Drops the new frame.
    Skip,
    /// Drops the oldest waiting frame.
    Thin,
}

/// Parameters for sending a stream.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Bytes of a symbol, without the head; an even number.
    pub symbol: u16,
    /// Bytes of header, head and seal around a symbol.
    pub overhead: u16,
    /// Time from the frame's arrival at the sender to its delivery.
    pub deadline: Span,
    /// The path's one-way delay: the sender gives up a frame that can no longer be in time.
    pub path: Span,
    /// The losses that the repairs must cover.
    pub losses: Losses,
    /// Share of frames that may be missed because of these losses.
    pub epsilon: f64,
    /// UDP payload a second.
    pub rate: Rate,
    /// What to do with frames that arrive too fast.
    pub overflow: Overflow,
    /// Maximum number of frames that wait behind the frame being sent.
    pub waiting: usize,
}

/// Error: there is no room for another frame; offer it again after the next frame has been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// A frame that is being sent or waits.
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
    /// Cached number of repairs by number of originals, because its computation is expensive.
    repairs: BTreeMap<u16, u16>,
    current: Option<Queued>,
    waiting: VecDeque<Queued>,
    next: u32,
    /// The number after the last frame with a sent symbol.
    begun: u32,
    skipped: u64,
    /// Datagrams of the current burst that may still leave, and when the burst began.
    granted: u64,
    granted_at: Time,
    /// Whether symbols were sent since the pacer was last idle.
    busy: bool,
}

/// Maximum number of entries in the cache of repair numbers.
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

    /// Number of repairs for a frame of `originals`; equal to `originals` if no code covers the
    /// losses.
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

    /// Accepts a frame of `length` bytes; returns its number. The driver keeps the frame's bytes
    /// until [`Sender::oldest`] has passed it.
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

    /// Counts a frame that cannot be sent, for example while the connection is lost. The frame gets
    /// a number, so that receivers count it as missed. `None` after 2³² − 1 frames.
    pub fn pass(&mut self) -> Option<u32> {
        let number = self.next;
        (number <= LAST_FRAME).then(|| {
            self.next += 1;
            self.skipped += 1;
            number
        })
    }

    /// Gives up all frames that are not sent completely.
    pub fn give_up(&mut self) {
        self.skipped += self.waiting.len() as u64 + u64::from(self.current.is_some());
        self.current = None;
        self.waiting.clear();
    }

    /// Adapts to the path: the next frames have repairs for `losses`, and the symbols of all frames
    /// leave at `rate`. A frame that is being sent keeps its repairs.
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
    /// [`HeadError`] if the length is zero or too large.
    pub fn check(&self, length: u32) -> Result<(), HeadError> {
        shape(length, 0, self.settings.symbol).map(drop)
    }

    /// The symbol to send now, if any, and the shape of its frame.
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
        // The pacer releases datagrams in small bursts: all datagrams of a burst are sent at one
        // instant.
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

    /// When [`Sender::poll_transmit`] has the next symbol; `None` until another frame is offered.
    pub fn next_wakeup(&self) -> Option<Time> {
        (self.current.is_some() || !self.waiting.is_empty()).then(|| self.pacer.next())
    }

    /// The oldest frame that is not sent completely; the next number if there is none.
    pub fn oldest(&self) -> u32 {
        let first = self.current.iter().chain(&self.waiting).next();
        first.map_or(self.next, |queued| queued.head.frame)
    }

    /// The number of the next frame.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// Whether the frame still has symbols to send.
    pub fn holds(&self, frame: u32) -> bool {
        self.current.iter().chain(&self.waiting).any(|queued| queued.head.frame == frame)
    }

    /// Number of frames that were dropped, or given up because they could not be in time.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }
}
