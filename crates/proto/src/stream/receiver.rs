//! The receiver: which symbols of which frames are here, and what is delivered when.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use super::clock::Clock;
use super::head::{Head, LAST_FRAME};
use crate::fec::Shape;
use crate::time::{Span, Time};

/// Most frames between the next to be delivered and the newest: older ones are missed.
const WINDOW: u32 = 256;

/// What becomes of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// The driver keeps it: it is needed for the frame.
    Keep,
    /// It is not needed: its frame is whole, delivered or missed, or the symbol came before.
    Spare,
    /// It contradicts an earlier symbol of its frame, or its head is no frame of this stream.
    Wrong,
    /// It would need more memory than the stream has.
    NoRoom,
}

/// What the stream hands out, in the order of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// A frame is whole. Some of its originals may have to be decoded.
    Frame {
        /// Its number.
        frame: u32,
        /// Its length in bytes.
        length: u32,
        /// The code of its symbols.
        shape: Shape,
        /// How much longer the frame took than the fastest datagram did lately, from sender to
        /// delivery.
        beyond_path: Span,
    },
    /// Frames are missed, whatever comes of them later.
    Missed {
        /// The first.
        first: u32,
        /// The last.
        last: u32,
    },
}

/// A frame of which a symbol is here.
#[derive(Debug)]
struct Open {
    head: Head,
    shape: Shape,
    /// One bit a symbol.
    here: Vec<u64>,
    count: u32,
    due: Time,
}

impl Open {
    fn is_whole(&self) -> bool {
        self.count >= self.shape.originals().into()
    }

    /// Bytes that its symbols may take.
    fn bytes(&self) -> usize {
        bytes(self.shape)
    }
}

/// A frame is whole with as many symbols as it has originals, and keeps no more.
fn bytes(shape: Shape) -> usize {
    usize::from(shape.originals()) * usize::from(shape.symbol())
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
    /// Frames before this one are missed though nothing of them has a date.
    given_up: u32,
}

impl Receiver {
    /// A receiver of a new stream: symbols of `symbol` bytes, frames delivered `deadline` after
    /// the sender had them over a path that takes `path` in one direction, symbols of incomplete
    /// frames in at most `memory` bytes.
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
        }
    }

    /// The same for a receiver that comes later: frames before `first` are not its own.
    pub fn starting_at(self, first: u32) -> Receiver {
        Receiver { next: first, ..self }
    }

    /// Frames before `end` are all that there are: those that did not come are missed.
    pub fn finish(&mut self, end: u32) -> Option<Delivery> {
        (self.next < end).then(|| self.missed(end - 1))
    }

    /// A symbol arrived. The driver calls [`Receiver::poll`] afterwards.
    pub fn on_symbol(&mut self, now: Time, head: &Head) -> Placed {
        let Ok(shape) = head.shape(self.symbol) else { return Placed::Wrong };
        if head.frame > LAST_FRAME {
            return Placed::Wrong;
        }
        if head.frame < self.next.max(self.given_up) {
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
            // A sender that was cut off goes on with new frames; the old ones are missed.
            self.given_up = self.given_up.max(head.frame.saturating_sub(WINDOW - 1));
            let stamp = self.clock.stamp(head.at);
            self.clock.on_arrival(now, stamp);
            let symbols = usize::from(shape.originals()) + usize::from(shape.repairs());
            let due = self.clock.due(now, stamp, self.beyond);
            let here = vec![0; symbols.div_ceil(64)];
            self.used += bytes(shape);
            let open = Open { head: *head, shape, here, count: 0, due };
            self.open.insert(head.frame, open);
        }
        let Some(open) = self.open.get_mut(&head.frame) else { return Placed::Spare };
        let (word, bit) = (usize::from(head.index / 64), 1 << (head.index % 64));
        if open.is_whole() || open.here[word] & bit != 0 {
            return Placed::Spare;
        }
        open.here[word] |= bit;
        open.count += 1;
        Placed::Keep
    }

    /// The next frame that is whole and in order, or the next ones that are missed.
    pub fn poll(&mut self, now: Time) -> Option<Delivery> {
        let (&frame, open) = self.open.first_key_value()?;
        let late = now > open.due;
        let whole = open.is_whole() && !late;
        if self.next < frame {
            // Earlier frames of which nothing came hold this one up until it is due, unless they
            // were never sent.
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

    /// Frames up to `last` are missed.
    fn missed(&mut self, last: u32) -> Delivery {
        let first = self.next;
        while let Some(entry) = self.open.first_entry().filter(|entry| *entry.key() <= last) {
            self.used -= entry.remove().bytes();
        }
        self.next = last + 1;
        Delivery::Missed { first, last }
    }

    /// When [`Receiver::poll`] has something though no symbol comes.
    pub fn next_wakeup(&self) -> Option<Time> {
        let (&frame, open) = self.open.first_key_value()?;
        let late = if self.next < frame { open.due } else { open.due + Span::from_nanos(1) };
        Some(late)
    }

    /// Which symbols of a frame are here, as far as it is open.
    pub fn is_here(&self, frame: u32, index: u16) -> bool {
        let open = self.open.get(&frame);
        open.is_some_and(|open| {
            open.here.get(usize::from(index / 64)).is_some_and(|word| word >> (index % 64) & 1 == 1)
        })
    }

    /// The next frame to be delivered or missed: bytes of earlier ones are not needed any more.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// Bytes that symbols of incomplete frames may take now.
    pub fn used(&self) -> usize {
        self.used
    }
}
