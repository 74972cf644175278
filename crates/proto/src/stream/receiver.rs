//! The receiver of a stream: tracks the symbols (one in each datagram) of each frame, and decides
//! what to deliver and when. A frame's symbols are its originals (the data) and, if the frame is
//! coded, its repairs, which replace lost originals.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use super::clock::Clock;
use super::head::{Head, LAST_FRAME};
use crate::fec::Shape;
use crate::time::{Span, Time};

/// Length, in frames, of the window that ends with the newest frame. Frames before the window that
/// were not delivered count as missed.
const WINDOW: u32 = 256;

/// Maximum number of missed frames whose late symbols are counted ([`Receiver::overdue`]).
const MISSED_FRAMES: u32 = 64;

/// Minimum pause after a symbol within a frame before the missing symbols are taken for lost:
/// longer than the pauses between the bursts of a paced sender.
pub(super) const PAUSE: Span = Span::from_millis(10);
/// Pause after a frame's last symbol, or after the first symbol of a newer frame, before missing
/// symbols are taken for lost. Reordered symbols arrive within this time.
const GRACE: Span = Span::from_millis(2);

/// Maximum number of ranges in a request.
pub const MAX_RANGES: usize = 1_024;
/// When a frame arrives after frames without any symbol, the receiver requests at most this many of
/// those frames.
const ABSENT: u32 = 16;

/// A request for lost symbols, for the sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The frame.
    pub frame: u32,
    /// The first and the last symbol of each range, in ascending order. The last range may
    /// end beyond the frame's last symbol.
    pub ranges: Vec<(u16, u16)>,
}

/// What the driver (the program that does the I/O) does with a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// Keep the symbol: its frame needs it.
    Keep,
    /// Drop the symbol: its frame is complete, delivered or missed, or the symbol arrived before.
    Spare,
    /// Drop the symbol: it contradicts an earlier symbol of its frame, or its head describes no
    /// frame of this stream.
    Wrong,
    /// Drop the symbol: it would exceed the stream's memory.
    NoRoom,
}

/// The output of the stream, in the order of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// A complete frame. Some of its originals may have to be decoded.
    Frame {
        /// The frame's number.
        frame: u32,
        /// The frame's length in bytes.
        length: u32,
        /// The code of its symbols.
        shape: Shape,
        /// The frame's delay from sender to delivery, minus the delay of the fastest recent
        /// datagram.
        beyond_path: Span,
    },
    /// Missed frames; later symbols of them are dropped.
    Missed {
        /// The first missed frame.
        first: u32,
        /// The last missed frame.
        last: u32,
    },
}

/// A frame with at least one received symbol.
#[derive(Debug)]
struct Open {
    head: Head,
    shape: Shape,
    /// One bit for each symbol, set if it has arrived.
    here: Vec<u64>,
    count: u32,
    /// The highest index of a symbol that has arrived.
    highest: u16,
    due: Time,
    asks: Asks,
}

/// When the missing symbols of a frame without repairs are requested.
#[derive(Clone, Copy, Debug)]
struct Asks {
    at: Time,
    /// The last time at which a request makes sense: the answer takes a round trip.
    until: Time,
    /// Whether the symbols were requested. A later symbol within the frame clears this flag, so
    /// that the next request waits again.
    again: bool,
}

impl Asks {
    /// The time of the next request, if it is not too late.
    fn next(self, now: Time) -> Option<Time> {
        Some(self.at).filter(|at| *at.max(&now) <= self.until)
    }
}

impl Open {
    fn is_whole(&self) -> bool {
        self.count >= self.shape.originals().into()
    }

    /// When the missing symbols are requested next; `None` if none are missing, the frame has
    /// repairs, or it is too late.
    fn next_request(&self, now: Time) -> Option<Time> {
        let asks = self.head.repairs == 0 && !self.is_whole();
        self.asks.next(now).filter(|_| asks)
    }

    /// The ranges of missing symbols, at most [`MAX_RANGES`].
    fn missing(&self) -> Vec<(u16, u16)> {
        let mut ranges: Vec<(u16, u16)> = Vec::new();
        let is_here = |index: u16| self.here[usize::from(index / 64)] >> (index % 64) & 1 == 1;
        for index in (0..self.shape.originals()).filter(|index| !is_here(*index)) {
            let count = ranges.len();
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == index => *last = index,
                _ if count == MAX_RANGES => break,
                _ => ranges.push((index, index)),
            }
        }
        ranges
    }

    fn bytes(&self) -> usize {
        bytes(self.shape)
    }
}

/// Bytes reserved for a frame. A frame is complete with as many symbols as it has originals, and
/// keeps no more.
fn bytes(shape: Shape) -> usize {
    usize::from(shape.originals()) * usize::from(shape.symbol())
}

fn before(time: Time, span: Span) -> Time {
    Time::ZERO + (time.since(Time::ZERO) - span)
}

/// Receives frames. See the [module](super).
#[derive(Debug)]
pub struct Receiver {
    symbol: u16,
    /// The deadline less the path's own delay.
    beyond: Span,
    memory: usize,
    used: usize,
    clock: Clock,
    open: BTreeMap<u32, Open>,
    /// The next frame to be delivered or missed.
    next: u32,
    /// Frames before this frame are missed, because the window has moved past them.
    given_up: u32,
    /// The newest missed frames, and how many symbols each one lacks. `None` while no symbol of the
    /// frame has arrived: only a symbol's head gives the frame's number of symbols.
    missed_frames: BTreeMap<u32, Option<u32>>,
    overdue: u64,
    rtt: Span,
    interval: Span,
    /// Number of the newest frame of which a symbol arrived, plus one.
    newest: u32,
    /// Frames before `newest` that were sent, but of which no symbol arrived.
    absent: BTreeMap<u32, Asks>,
}

impl Receiver {
    /// A receiver of a new stream with symbols of `symbol` bytes. A frame is delivered within
    /// `deadline` after the sender got it, or missed. `path` is the one-way delay. Symbols of
    /// frames that are not yet delivered use at most `memory` bytes.
    pub fn new(symbol: u16, deadline: Span, path: Span, memory: usize) -> Receiver {
        Receiver {
            symbol,
            beyond: deadline.saturating_sub(path),
            memory,
            used: 0,
            clock: Clock::new(),
            open: BTreeMap::new(),
            next: 0,
            given_up: 0,
            missed_frames: BTreeMap::new(),
            overdue: 0,
            rtt: path * 2,
            interval: Span::ZERO,
            newest: 0,
            absent: BTreeMap::new(),
        }
    }

    /// Makes the receiver start at the frame `first`, for a receiver that joins late.
    pub fn starting_at(self, first: u32) -> Receiver {
        Receiver { next: first, newest: first, ..self }
    }

    /// Sets the time from one frame to the next, over which the sender may pace the symbols of a
    /// frame without repairs.
    pub fn paced(self, interval: Span) -> Receiver {
        Receiver { interval, ..self }
    }

    /// Ends the stream before frame `end`: frames that are not delivered yet are missed.
    pub fn finish(&mut self, end: u32) -> Option<Delivery> {
        (self.next < end).then(|| self.missed(end - 1))
    }

    /// Handles the arrival of a symbol. The driver calls [`Receiver::poll`] afterwards.
    pub fn on_symbol(&mut self, now: Time, head: &Head) -> Placed {
        let Ok(shape) = head.shape(self.symbol) else { return Placed::Wrong };
        if head.frame > LAST_FRAME {
            return Placed::Wrong;
        }
        if head.frame < self.next.max(self.given_up) {
            self.count_overdue(head.frame, shape);
            return Placed::Spare;
        }
        if let Some(open) = self.open.get(&head.frame) {
            let (first, said) = (&open.head, (head.length, head.repairs, head.at, head.skipped));
            if (first.length, first.repairs, first.at, first.skipped) != said {
                return Placed::Wrong;
            }
        } else {
            if self.used + bytes(shape) > self.memory {
                return Placed::NoRoom;
            }
            // A sender that was cut off continues with new frames; the old frames are missed.
            self.given_up = self.given_up.max(head.frame.saturating_sub(WINDOW - 1));
            let stamp = self.clock.stamp(head.at);
            self.clock.on_arrival(now, stamp);
            let symbols = usize::from(shape.originals()) + usize::from(shape.repairs());
            let due = self.clock.due(now, stamp, self.beyond);
            let here = vec![0; symbols.div_ceil(64)];
            self.used += bytes(shape);
            let (asks, highest) = (self.look_back(now, head, due), head.index);
            let open = Open { head: *head, shape, here, count: 0, highest, due, asks };
            self.open.insert(head.frame, open);
        }
        let Some(open) = self.open.get_mut(&head.frame) else { return Placed::Spare };
        let (word, bit) = (usize::from(head.index / 64), 1 << (head.index % 64));
        if open.is_whole() || open.here[word] & bit != 0 {
            return Placed::Spare;
        }
        open.here[word] |= bit;
        open.count += 1;
        // The rest of the frame is on its way, unless this symbol is the frame's last or a newer
        // frame has begun.
        let originals = open.shape.originals();
        let is_last = head.index + 1 >= originals || head.frame + 1 < self.newest;
        // A symbol beyond the highest shows that the sender had not sent the whole frame when the
        // request came. The sender drops such a request, so the next request waits again for a
        // pause or the frame's end.
        open.asks.again &= is_last || head.index <= open.highest;
        open.highest = open.highest.max(head.index);
        if !open.asks.again {
            let pause = PAUSE.max(self.interval / originals.into());
            open.asks.at = now + if is_last { GRACE } else { pause };
        }
        Placed::Keep
    }

    /// Handles the first symbol of a frame that must be delivered by `due`. The sender has sent or
    /// skipped all earlier frames. Returns when the frame's own missing symbols are requested.
    fn look_back(&mut self, now: Time, head: &Head, due: Time) -> Asks {
        let frame = head.frame;
        let soon = now + GRACE;
        let first = Asks { at: soon, until: before(due, self.rtt), again: false };
        if frame < self.newest {
            // The frame was requested before, or its symbols are reordered.
            return self.absent.remove(&frame).unwrap_or(first);
        }
        for open in self.open.values_mut().filter(|open| !open.asks.again) {
            open.asks.at = open.asks.at.min(soon);
        }
        let skipped = if head.skipped == Head::MANY { u32::MAX } else { head.skipped.into() };
        if head.repairs == 0 {
            let begin = self.newest.max(self.next).max(frame.saturating_sub(ABSENT));
            for absent in begin..frame.saturating_sub(skipped) {
                // The earlier a frame, the earlier it is due.
                let until = before(first.until, self.interval * u64::from(frame - absent));
                self.absent.insert(absent, Asks { until, ..first });
            }
        }
        self.newest = frame + 1;
        first
    }

    /// The next complete frame in order, or the next missed frames.
    pub fn poll(&mut self, now: Time) -> Option<Delivery> {
        let (&frame, open) = self.open.first_key_value()?;
        let late = now > open.due;
        let whole = open.is_whole() && !late;
        if self.next < frame {
            // If an earlier frame was sent but has no symbol here, this frame waits until its own
            // deadline.
            let (last, skipped) = (frame - 1, open.head.skipped);
            let never = skipped == Head::MANY || frame - self.next <= skipped.into();
            let give_up = never || last < self.given_up || now >= open.due;
            return give_up.then(|| self.missed(last));
        }
        if !whole {
            let give_up = late || frame < self.given_up;
            return give_up.then(|| self.missed(frame));
        }
        let open = self.open.pop_first()?.1;
        self.used -= open.bytes();
        self.next = frame + 1;
        let Open { head, shape, due, .. } = open;
        let beyond_path = self.beyond.saturating_sub(due.since(now));
        Some(Delivery::Frame { frame, length: head.length, shape, beyond_path })
    }

    /// The next request for lost symbols. The receiver requests lost symbols of a frame without
    /// repairs after the frame's last symbol or after a pause. If none of the frame's symbols
    /// arrived, the first symbol of a later frame triggers the request. The request is repeated
    /// every round trip plus [`PAUSE`], while the answer can be in time.
    pub fn poll_request(&mut self, now: Time) -> Option<Request> {
        let again = now + self.rtt + PAUSE;
        self.absent = self.absent.split_off(&self.next);
        let mut absent = self.absent.iter_mut();
        let due = |asks: &Asks| asks.next(now).is_some_and(|at| at <= now);
        if let Some((&frame, asks)) = absent.find(|(_, asks)| due(asks)) {
            (asks.at, asks.again) = (again, true);
            return Some(Request { frame, ranges: vec![(0, u16::MAX)] });
        }
        let mut open = self.open.iter_mut();
        let due = |open: &Open| open.next_request(now).is_some_and(|at| at <= now);
        let (&frame, open) = open.find(|(_, open)| due(open))?;
        (open.asks.at, open.asks.again) = (again, true);
        Some(Request { frame, ranges: open.missing() })
    }

    /// When [`Receiver::poll_request`] has the next request.
    pub fn next_request(&self, now: Time) -> Option<Time> {
        let open = self.open.values().filter_map(|open| open.next_request(now));
        open.chain(self.absent.values().filter_map(|asks| asks.next(now))).min()
    }

    /// Whether symbols of this incomplete frame were requested. Their delay then says nothing about
    /// the path.
    pub fn is_requested(&self, frame: u32) -> bool {
        self.open.get(&frame).is_some_and(|open| open.asks.again)
    }

    fn missed(&mut self, last: u32) -> Delivery {
        let first = self.next;
        self.missed_frames
            .extend((first.max(last.saturating_sub(MISSED_FRAMES - 1))..=last).map(|n| (n, None)));
        while let Some(entry) = self.open.first_entry().filter(|entry| *entry.key() <= last) {
            let (frame, open) = entry.remove_entry();
            self.used -= open.bytes();
            let lacks = u32::from(open.shape.originals()).saturating_sub(open.count);
            self.overdue += u64::from(lacks == 0);
            self.missed_frames.insert(frame, Some(lacks));
        }
        for _ in MISSED_FRAMES as usize..self.missed_frames.len() {
            self.missed_frames.pop_first();
        }
        self.next = last + 1;
        Delivery::Missed { first, last }
    }

    fn count_overdue(&mut self, frame: u32, shape: Shape) {
        if let Some(lacks) = self.missed_frames.get_mut(&frame) {
            let before = lacks.unwrap_or(shape.originals().into());
            self.overdue += u64::from(before == 1);
            *lacks = Some(before.saturating_sub(1));
        }
    }

    /// Number of missed frames of which enough symbols arrived, but too late. Delay caused these
    /// misses, not loss.
    pub fn overdue(&self) -> u64 {
        self.overdue
    }

    /// When [`Receiver::poll`] has output even if no symbol arrives.
    pub fn next_wakeup(&self) -> Option<Time> {
        let (&frame, open) = self.open.first_key_value()?;
        let late = if self.next < frame { open.due } else { open.due + Span::from_nanos(1) };
        Some(late)
    }

    /// Whether this symbol has arrived; false once its frame is delivered or missed.
    pub fn is_here(&self, frame: u32, index: u16) -> bool {
        let open = self.open.get(&frame);
        open.is_some_and(|open| {
            open.here.get(usize::from(index / 64)).is_some_and(|word| word >> (index % 64) & 1 == 1)
        })
    }

    /// The next frame to be delivered or missed; the driver may drop the bytes of earlier frames.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// Bytes reserved for symbols of frames that are not yet delivered or missed.
    pub fn used(&self) -> usize {
        self.used
    }
}
