//! The sender of a stream: paces the symbols of each frame, and handles frames that arrive too
//! fast. A symbol is a part of the frame or a repair; each datagram carries one.

use alloc::collections::{BTreeMap, VecDeque};

use super::head::{Head, HeadError, LAST_FRAME, shape};
use super::kept::Kept;
use super::receiver::Request;
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

/// A sent frame is kept for at most this many round trips plus [`LONGEST`], and only while a
/// repeated symbol can still be in time.
const ROUNDS: u64 = 10;
const LONGEST: Span = Span::from_secs(1);

/// Parameters for sending a stream.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Bytes of a symbol, without the head; an even number.
    pub symbol: u16,
    /// Bytes of a datagram in addition to its symbol.
    pub overhead: u16,
    /// Longest time from a frame's arrival at the sender to its delivery.
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
    /// Maximum number of frames that wait behind the frame being sent; 0 counts as 1.
    pub waiting: usize,
    /// Whether frames have no repairs. The sender then keeps sent frames for some time, because
    /// receivers may request lost symbols.
    pub keeps: bool,
}

/// Error: there is no room for another frame, or no frame number is left. If there is no room,
/// offer the frame again after the next frame has been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// A frame that is being sent or waits.
#[derive(Clone, Copy, Debug)]
struct Queued {
    head: Head,
    shape: Shape,
    at: Time,
    /// Number of frames that [`Sender::skipped`] counts if this frame is skipped.
    frames: u32,
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
    kept: Kept,
    resent: u64,
    next: u32,
    /// The number after the last frame whose sending has begun.
    begun: u32,
    skipped: u64,
    /// Datagrams of the current burst that may still leave.
    granted: u64,
    granted_at: Time,
    /// Whether symbols were sent since the pacer was last idle.
    busy: bool,
}

/// Maximum number of entries in the cache `Sender::repairs`.
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
            kept: Kept::default(),
            resent: 0,
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

    /// Accepts a frame of `length` bytes, or drops it ([`Overflow::Skip`]); returns its number. The
    /// driver (the program that does the I/O) keeps the frame's bytes as long as
    /// [`Sender::holds`] it.
    ///
    /// # Errors
    /// [`Full`] if the source has to wait ([`Overflow::Block`]), or after 2³² − 1 frames.
    ///
    /// # Panics
    /// If [`Sender::check`] refuses `length`.
    pub fn offer(&mut self, now: Time, length: u32) -> Result<u32, Full> {
        self.offer_payload(now, length, 1)
    }

    /// Like [`Sender::offer`]. The frame counts as `frames` in [`Sender::skipped`].
    ///
    /// # Errors
    /// As [`Sender::offer`].
    ///
    /// # Panics
    /// As [`Sender::offer`].
    pub fn offer_payload(&mut self, now: Time, length: u32, frames: u32) -> Result<u32, Full> {
        // While symbols are sent again, `current` can be empty: the next frame to send is then in
        // `waiting`.
        let unsent = usize::from(self.current.is_some()) + self.waiting.len();
        let full = unsent > self.settings.waiting.max(1);
        let ended = self.next > LAST_FRAME;
        if ended || full && self.settings.overflow == Overflow::Block {
            return Err(Full);
        }
        let number = self.next;
        self.next += 1;
        if full {
            if self.settings.overflow == Overflow::Skip {
                self.skipped += u64::from(frames);
                return Ok(number);
            }
            self.skipped += self.waiting.pop_front().map_or(0, |oldest| oldest.frames.into());
        }
        let symbol = self.settings.symbol;
        let plain = shape(length, 0, symbol).expect("a length that was checked");
        let repairs = if self.settings.keeps { 0 } else { self.repairs(plain.originals()) };
        let shape = shape(length, repairs, symbol).unwrap_or(plain);
        let (index, repairs, at) = (0, shape.repairs(), (now.as_nanos() / 1_000) as u32);
        let head = Head { frame: number, index, repairs, length, skipped: 0, at };
        self.waiting.push_back(Queued { head, shape, at: now, frames });
        Ok(number)
    }

    /// Counts a frame that cannot be sent, as `frames` frames. The frame gets a number, so that
    /// receivers count it as missed. `None` after 2³² − 1 frames.
    pub fn pass(&mut self, frames: u32) -> Option<u32> {
        let number = self.next;
        (number <= LAST_FRAME).then(|| {
            self.next += 1;
            self.skipped += u64::from(frames);
            number
        })
    }

    /// Gives up all frames that are not sent completely, and drops the kept frames.
    pub fn give_up(&mut self) {
        let unsent = self.current.iter().chain(&self.waiting);
        self.skipped += unsent.map(|queued| u64::from(queued.frames)).sum::<u64>();
        self.current = None;
        self.waiting.clear();
        self.kept.clear();
    }

    /// Sends requested symbols of a frame again, if they can still be in time. `receiver` is a
    /// number that identifies the requesting receiver.
    pub fn again(&mut self, now: Time, request: &Request, receiver: u32) {
        self.kept.forget(now);
        self.kept.request(now, self.settings.path * 2, request, receiver);
    }

    /// Adapts to the path: frames offered from now on have repairs for `losses`, and the symbols of
    /// all frames leave at `rate`. `keeps` as in [`Settings::keeps`]. Frames that wait or are being
    /// sent keep their repairs.
    pub fn follow(&mut self, now: Time, path: Span, losses: Losses, rate: Rate, keeps: bool) {
        if self.settings.losses != losses {
            self.repairs.clear();
        }
        if self.settings.rate != rate {
            self.pacer.set_rate(now, rate);
        }
        self.settings = Settings { path, losses, rate, keeps, ..self.settings };
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
        self.kept.forget(now);
        while self.current.is_none() && !self.kept.wants() {
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
                self.skipped += u64::from(next.frames);
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
        self.busy = true;
        if let Some(requested) = self.kept.next() {
            self.resent += 1;
            return Some(requested);
        }
        let queued = self.current.as_mut()?;
        let (head, shape) = (queued.head, queued.shape);
        match head.index.checked_add(1) {
            Some(next) if next < shape.originals().saturating_add(shape.repairs()) => {
                queued.head.index = next;
            }
            _ => {
                if let Some(Queued { at, .. }) = self.current.take()
                    && self.settings.keeps
                {
                    let Settings { deadline, path, .. } = self.settings;
                    let until = (at + (deadline - path)).min(now + path * (2 * ROUNDS) + LONGEST);
                    self.kept.keep(Head { index: 0, ..head }, shape, until);
                }
            }
        }
        Some((head, shape))
    }

    /// When [`Sender::poll_transmit`] has the next symbol, or drops a kept frame; `None` if there
    /// is nothing to do until another frame is offered.
    pub fn next_wakeup(&self) -> Option<Time> {
        if self.current.is_some() || !self.waiting.is_empty() || self.kept.wants() {
            return Some(self.pacer.next());
        }
        self.kept.next_end().map(|until| until + Span::from_nanos(1))
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

    /// Whether the frame still has symbols to send for the first time.
    pub fn sends(&self, frame: u32) -> bool {
        self.current.iter().chain(&self.waiting).any(|queued| queued.head.frame == frame)
    }

    /// Whether the frame still has symbols to send, or is kept for requests. While this is true,
    /// the driver keeps the frame's bytes.
    pub fn holds(&self, frame: u32) -> bool {
        self.sends(frame) || self.kept.holds(frame)
    }

    /// Number of symbols that were sent again.
    pub fn resent(&self) -> u64 {
        self.resent
    }

    /// Number of frames that were dropped or given up, and of frames that [`Sender::pass`] counted.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }
}
