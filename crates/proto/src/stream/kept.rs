//! Frames that were sent without repairs (redundant symbols), kept for requests for lost symbols
//! (parts of a frame, one in each datagram).

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
        // This crate does not check that ranges are distinct, so take at most one frame's symbols.
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

#[cfg(test)]
mod tests {
    use super::*;

    const SYMBOL: u16 = 1_000;

    fn at(nanos: u64) -> Time {
        Time::from_nanos(nanos)
    }

    fn keep(kept: &mut Kept, frame: u32, length: u32, until: Time) {
        let head = Head { frame, index: 0, repairs: 0, length, skipped: 0, at: 0 };
        kept.keep(head, head.shape(SYMBOL).expect("a shape"), until);
    }

    /// Number of symbols that a request of `receiver` for `ranges` of frame 0 adds.
    fn added(kept: &mut Kept, now: Time, rtt: Span, ranges: &[(u16, u16)], receiver: u32) -> usize {
        let before = kept.wanted.len();
        kept.request(now, rtt, &Request { frame: 0, ranges: ranges.to_vec() }, receiver);
        kept.wanted.len() - before
    }

    #[test]
    fn frames_are_kept_until_their_time_and_within_64_mib() {
        let mut kept = Kept::default();
        (0..4).for_each(|frame| keep(&mut kept, frame, 1 << 24, at(5)));
        assert_eq!((kept.bytes, kept.holds(0)), (BYTES, true));
        keep(&mut kept, 4, 1, at(6));
        assert_eq!(
            (kept.bytes, kept.holds(0), kept.holds(1)),
            (BYTES - (1 << 24) + 1, false, true)
        );
        kept.forget(at(5));
        assert_eq!((kept.next_end(), kept.frames.len()), (Some(at(5)), 4));
        kept.forget(at(6));
        assert_eq!((kept.next_end(), kept.bytes), (Some(at(6)), 1));
        kept.forget(at(7));
        assert_eq!((kept.next_end(), kept.bytes), (None, 0));
    }

    #[test]
    fn requested_symbols_of_a_dropped_frame_are_not_sent() {
        let mut kept = Kept::default();
        (0..2).for_each(|frame| keep(&mut kept, frame, 2_000, at(5 + u64::from(frame))));
        for frame in [0, 1] {
            kept.request(at(0), Span::ZERO, &Request { frame, ranges: Vec::from([(0, 1)]) }, 1);
        }
        kept.forget(at(6));
        assert_eq!(kept.wanted, [(1, 0), (1, 1)]);
        let next = kept.next().map(|(head, _)| (head.frame, head.index));
        assert_eq!((next, kept.wants()), (Some((1, 0)), true));
        kept.next();
        assert!(!kept.wants() && kept.next().is_none());
    }

    #[test]
    fn a_symbol_is_sent_again_at_most_once_per_round_trip() {
        let mut kept = Kept::default();
        keep(&mut kept, 0, 4_000, Time::NEVER);
        let rtt = Span::from_nanos(10);
        let mut ask = |nanos, ranges: &[(u16, u16)]| added(&mut kept, at(nanos), rtt, ranges, 1);
        assert_eq!([ask(0, &[(1, 1)]), ask(9, &[(1, 1)]), ask(10, &[(1, 1)])], [1, 0, 1]);
        // Symbols 0, 2 and 3 are due; a range may end beyond the frame.
        assert_eq!(ask(19, &[(0, u16::MAX)]), 3);
        assert_eq!(ask(40, &[(0, 3), (0, 3)]), 4, "at most one frame's symbols");
    }

    #[test]
    fn a_receiver_gets_its_share_and_all_receivers_four_shares() {
        assert_eq!([share(0), share(3), share(4), share(100)], [16, 16, 17, 41]);
        let mut kept = Kept::default();
        keep(&mut kept, 0, 4_000, Time::NEVER);
        let mut ask = |last, receiver| added(&mut kept, at(0), Span::ZERO, &[(0, last)], receiver);
        for receiver in 0..4 {
            assert_eq!([(); 4].map(|()| ask(3, receiver)), [4; 4]);
            assert_eq!(ask(1, receiver), 0, "18 symbols are too many");
            assert_eq!([ask(0, receiver), ask(0, receiver)], [1, 0]);
        }
        assert_eq!(ask(0, 4), 0, "68 symbols were requested");
    }
}
