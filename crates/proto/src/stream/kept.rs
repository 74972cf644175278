//! Frames that were sent without repairs, kept for requests for lost symbols (parts of a frame, one
//! in each datagram).

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::head::Head;
use super::receiver::Request;
use crate::fec::Shape;
use crate::time::{Span, Time};

/// Maximum bytes of the kept frames.
const BYTES: usize = 64 << 20;
/// All receivers together may request this many times the [`share`] of one receiver. So the sender
/// sends a large frame at most about twice.
const SHARES: usize = 4;

/// Number of symbols of a frame that one receiver may request.
pub(super) fn share(originals: u16) -> usize {
    usize::from(originals) / 4 + 16
}

#[derive(Debug)]
struct Frame {
    head: Head,
    shape: Shape,
    until: Time,
    /// When each symbol was last requested.
    again: BTreeMap<u16, Time>,
    /// Number of symbols that each receiver has requested.
    by: BTreeMap<u32, usize>,
    /// Number of symbols that all receivers together have requested.
    all: usize,
}

/// Kept frames, oldest first, and the symbols to send again.
#[derive(Debug, Default)]
pub(super) struct Kept {
    frames: VecDeque<Frame>,
    bytes: usize,
    wanted: VecDeque<(u32, u16)>,
}

impl Kept {
    fn place(&self, frame: u32) -> Option<usize> {
        self.frames.binary_search_by_key(&frame, |kept| kept.head.frame).ok()
    }

    /// Keeps a completely sent frame until the time `until`, or until newer frames need its memory.
    /// Frames come in ascending order.
    pub(super) fn keep(&mut self, head: Head, shape: Shape, until: Time) {
        self.bytes += head.length as usize;
        let (again, by) = (BTreeMap::new(), BTreeMap::new());
        self.frames.push_back(Frame { head, shape, until, again, by, all: 0 });
        while self.bytes > BYTES && !self.frames.is_empty() {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(Frame { head, .. }) = self.frames.pop_front() {
            self.bytes -= head.length as usize;
            self.wanted.retain(|(frame, _)| *frame != head.frame);
        }
    }

    pub(super) fn forget(&mut self, now: Time) {
        while self.next_end().is_some_and(|until| now > until) {
            self.drop_oldest();
        }
    }

    pub(super) fn next_end(&self) -> Option<Time> {
        self.frames.front().map(|kept| kept.until)
    }

    pub(super) fn holds(&self, frame: u32) -> bool {
        self.place(frame).is_some()
    }

    pub(super) fn wants(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// Handles a request of `receiver`. Drops a request for more symbols than this receiver, or all
    /// receivers together, may still get: a part of the symbols would not complete the frame.
    /// Symbols requested less than a round trip ago may still be on their way, and are not sent
    /// once more.
    pub(super) fn request(&mut self, now: Time, rtt: Span, request: &Request, receiver: u32) {
        let Some(place) = self.place(request.frame) else { return };
        let kept = &mut self.frames[place];
        let (originals, share) = (kept.shape.originals(), share(kept.shape.originals()));
        let is_due = |index: &u16| kept.again.get(index).is_none_or(|at| now >= *at + rtt);
        let ranges = request.ranges.iter();
        let indices = ranges.flat_map(|(first, last)| *first..=(*last).min(originals - 1));
        // A hostile peer may repeat ranges, so take at most one frame's symbols.
        let due: Vec<u16> = indices.take(originals.into()).filter(is_due).collect();
        let before = kept.by.get(&receiver).copied().unwrap_or(0);
        let beyond = before + due.len() > share || kept.all + due.len() > SHARES * share;
        if due.is_empty() || beyond {
            return;
        }
        kept.by.insert(receiver, before + due.len());
        kept.all += due.len();
        for index in due {
            kept.again.insert(index, now);
            self.wanted.push_back((request.frame, index));
        }
    }

    pub(super) fn next(&mut self) -> Option<(Head, Shape)> {
        let (frame, index) = self.wanted.pop_front()?;
        let kept = &self.frames[self.place(frame)?];
        Some((Head { index, ..kept.head }, kept.shape))
    }

    pub(super) fn clear(&mut self) {
        *self = Kept::default();
    }
}
