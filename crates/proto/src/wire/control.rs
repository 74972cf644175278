//! The control messages, valid by construction.
//!
//! All are idempotent: any may come twice, late, early, out of order, or for a segment that is
//! finished or not begun. What depends on an object's layout (does it have that segment?) is the
//! receiver's to check; what does not is checked here.

use alloc::vec::Vec;
use core::ops::Range;

use prost::Message;

use super::messages;
use crate::endpoint::PacketNumber;
use crate::time::Span;
use crate::units::{Bytes, Rate};
use crate::wire::header::Header;

/// Longer messages are refused unread.
const MAX_DECODED: usize = 64 * 1024;
/// Room in a message for the list of what is missing.
const MAX_MISSING: usize = 1100;
/// A message whose list is empty may speak of any number of blocks, one with a bitmap of so many.
const BITMAP_BLOCKS: u32 = MAX_MISSING as u32 * 8;

/// A protocol's control message.
#[derive(Clone, Debug, PartialEq)]
pub enum Control {
    /// Sender to receiver: a round has been sent.
    Done(Done),
    /// Receiver to sender: what is missing after a round.
    Report(Report),
    /// Receiver to sender: how the flow fares.
    Pulse(Pulse),
}

/// A round over a segment has been sent; the receiver is asked to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The segment.
    pub segment: u32,
    /// The round, from 1.
    pub round: u32,
    /// The segment's blocks before this one have been sent at least once, or need not be.
    pub sent_to: u32,
    /// The highest packet number that carried a block of the round: data may come after this
    /// message.
    pub highest: PacketNumber,
}

/// What is missing of a slice of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    segment: u32,
    round: u32,
    slice: Range<u32>,
    missing: Vec<Range<u32>>,
}

/// The newest datagram that came, and how long ago: what is left is the round-trip time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// Its number.
    pub number: PacketNumber,
    /// The time between its arrival and the pulse.
    pub age: Span,
}

/// How far the path drew a packet train apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Train {
    /// The number of the train's first datagram.
    pub first: PacketNumber,
    /// UDP payload that came after the first arrival of the train.
    pub bytes: Bytes,
    /// The time from the first arrival to the last; never zero.
    pub span: Span,
    /// How many instants after the first the train came in: a host that looks seldom sees few, and
    /// times badly.
    pub steps: u32,
}

/// How the flow fares, seen from the receiver. All counts are since the flow's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pulse {
    /// Counts the pulses: an older one that comes late says nothing new.
    pub sequence: u64,
    /// The receiver's time since it knows the flow.
    pub clock: Span,
    /// One more than the highest packet number that came.
    pub highest: u64,
    /// Data datagrams that came.
    pub received: u64,
    /// Blocks that came for the first time.
    pub distinct: u64,
    /// Bytes of blocks that may be sent for the first time.
    pub grant: Bytes,
    /// What the receiving host drains, if it knows.
    pub drain: Option<Rate>,
    /// The newest datagram.
    pub echo: Option<Echo>,
    /// The newest packet train.
    pub train: Option<Train>,
    /// Datagrams that the receiver's own socket dropped.
    pub socket_lost: u64,
}

/// Why bytes are no control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// Longer than any message may be.
    TooLong,
    /// Not protobuf, or cut off.
    Malformed,
    /// A message of a later version: to be ignored.
    Unknown,
    /// A number that makes no sense: an empty slice, a run beyond its slice, a rate of zero.
    Range,
}

impl core::fmt::Display for WireError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            WireError::TooLong => "a control message is longer than 64 KiB",
            WireError::Malformed => "a control message cannot be read",
            WireError::Unknown => "a control message is of a kind that this version does not know",
            WireError::Range => "a control message holds an impossible number",
        })
    }
}

impl core::error::Error for WireError {}

impl Report {
    /// The longest report on `missing` that fits one message: it covers `slice` or, if that needs
    /// more than one message, the slice's beginning; the next starts where
    /// [`slice`](Report::slice) ends.
    ///
    /// `missing` gives the missing blocks within `slice` in order, in disjoint runs.
    pub fn fill(
        segment: u32,
        round: u32,
        slice: Range<u32>,
        missing: impl Iterator<Item = Range<u32>>,
    ) -> Report {
        let mut report = Report { segment, round, slice: slice.clone(), missing: Vec::new() };
        // Where a bitmap of the largest size would end.
        let mapped = slice.start.saturating_add(BITMAP_BLOCKS).min(slice.end);
        let (mut size, mut at) = (0, slice.start);
        for run in missing {
            size += run_len(at, &run);
            at = run.end;
            if size <= MAX_MISSING {
                report.missing.push(run);
            } else if run.start < mapped {
                report.missing.push(run.start..run.end.min(mapped));
            } else {
                break;
            }
        }
        if size > MAX_MISSING {
            let listed = report.missing.last().map_or(slice.start, |run| run.end);
            report.slice.end = listed.max(mapped);
        }
        report
    }

    /// The segment.
    pub fn segment(&self) -> u32 {
        self.segment
    }

    /// The round that is answered; 0 where none was asked about.
    pub fn round(&self) -> u32 {
        self.round
    }

    /// The blocks that the report speaks of.
    pub fn slice(&self) -> Range<u32> {
        self.slice.clone()
    }

    /// What is missing of the slice, in order, disjoint.
    pub fn missing(&self) -> &[Range<u32>] {
        &self.missing
    }

    /// How many blocks are missing.
    pub fn count(&self) -> u32 {
        self.missing.iter().map(|run| run.end - run.start).sum()
    }

    fn to_wire(&self) -> messages::Report {
        let mut at = self.slice.start;
        let mut runs = Vec::new();
        for run in &self.missing {
            push_varint(&mut runs, run.start - at);
            push_varint(&mut runs, run.end - run.start);
            at = run.end;
        }
        let count = self.slice.end - self.slice.start;
        let mut bitmap = Vec::new();
        if (count as usize).div_ceil(8) < runs.len() {
            bitmap.resize((count as usize).div_ceil(8), 0);
            for block in self.missing.iter().cloned().flatten() {
                let bit = block - self.slice.start;
                bitmap[bit as usize / 8] |= 1 << (bit % 8);
            }
            runs.clear();
        }
        let (segment, round, first) = (self.segment, self.round, self.slice.start);
        messages::Report { segment, round, first, count, runs, bitmap }
    }

    fn from_wire(wire: messages::Report) -> Result<Report, WireError> {
        let end = wire.first.checked_add(wire.count).ok_or(WireError::Range)?;
        if wire.count == 0 {
            return Err(WireError::Range);
        }
        let missing = match (wire.runs.is_empty(), wire.bitmap.is_empty()) {
            (_, true) => read_runs(&wire.runs, wire.first, end)?,
            (true, false) => read_bitmap(&wire.bitmap, wire.first, end)?,
            (false, false) => return Err(WireError::Range),
        };
        Ok(Report { segment: wire.segment, round: wire.round, slice: wire.first..end, missing })
    }
}

impl Control {
    /// Appends the message to `out`; it is never longer than [`MAX_CONTROL`](super::MAX_CONTROL).
    pub fn encode(&self, out: &mut Vec<u8>) {
        let body = match self {
            Control::Done(done) => messages::Body::Done(messages::Done {
                segment: done.segment,
                round: done.round,
                sent_to: done.sent_to,
                highest: done.highest.0,
            }),
            Control::Report(report) => messages::Body::Report(report.to_wire()),
            Control::Pulse(pulse) => messages::Body::Pulse(pulse_to_wire(pulse)),
        };
        let envelope = messages::Envelope { body: Some(body) };
        envelope.encode(out).expect("a vector grows as needed");
    }

    /// Reads a message.
    ///
    /// # Errors
    /// [`WireError::Unknown`] for a message of a later version, which the caller ignores; the
    /// others for bytes that no version of ours makes.
    pub fn decode(bytes: &[u8]) -> Result<Control, WireError> {
        if bytes.len() > MAX_DECODED {
            return Err(WireError::TooLong);
        }
        let envelope = messages::Envelope::decode(bytes).map_err(|_| WireError::Malformed)?;
        match envelope.body.ok_or(WireError::Unknown)? {
            messages::Body::Done(done) => {
                if done.round == 0 || done.highest >= Header::NUMBERS {
                    return Err(WireError::Range);
                }
                Ok(Control::Done(Done {
                    segment: done.segment,
                    round: done.round,
                    sent_to: done.sent_to,
                    highest: PacketNumber(done.highest),
                }))
            }
            messages::Body::Report(report) => Report::from_wire(report).map(Control::Report),
            messages::Body::Pulse(pulse) => pulse_from_wire(&pulse).map(Control::Pulse),
        }
    }
}

fn pulse_to_wire(pulse: &Pulse) -> messages::Pulse {
    messages::Pulse {
        sequence: pulse.sequence,
        clock: pulse.clock.as_nanos(),
        highest: pulse.highest,
        received: pulse.received,
        distinct: pulse.distinct,
        grant: pulse.grant.get(),
        drain: pulse.drain.map(Rate::as_bps),
        echo: pulse.echo.map(|echo| echo.number.0),
        echo_age: pulse.echo.map_or(0, |echo| echo.age.as_nanos()),
        train: pulse.train.map(|train| train.first.0),
        train_bytes: pulse.train.map_or(0, |train| train.bytes.get()),
        train_span: pulse.train.map_or(0, |train| train.span.as_nanos()),
        train_steps: pulse.train.map_or(0, |train| train.steps),
        socket_lost: pulse.socket_lost,
    }
}

fn pulse_from_wire(wire: &messages::Pulse) -> Result<Pulse, WireError> {
    let number = |number: u64| {
        if number < wire.highest { Ok(PacketNumber(number)) } else { Err(WireError::Range) }
    };
    let counts_fit = wire.highest <= Header::NUMBERS
        && wire.received <= wire.highest
        && wire.distinct <= wire.received;
    if !counts_fit || (wire.train.is_some() && wire.train_span == 0) || wire.drain == Some(0) {
        return Err(WireError::Range);
    }
    let echo = wire.echo.map(number).transpose()?;
    let train = wire.train.map(number).transpose()?;
    Ok(Pulse {
        sequence: wire.sequence,
        clock: Span::from_nanos(wire.clock),
        highest: wire.highest,
        received: wire.received,
        distinct: wire.distinct,
        grant: Bytes::new(wire.grant),
        drain: wire.drain.map(Rate::from_bps),
        echo: echo.map(|number| Echo { number, age: Span::from_nanos(wire.echo_age) }),
        train: train.map(|first| Train {
            first,
            bytes: Bytes::new(wire.train_bytes),
            span: Span::from_nanos(wire.train_span),
            steps: wire.train_steps,
        }),
        socket_lost: wire.socket_lost,
    })
}

fn run_len(at: u32, run: &Range<u32>) -> usize {
    varint_len(run.start - at) + varint_len(run.end - run.start)
}

fn varint_len(value: u32) -> usize {
    (32 - (value | 1).leading_zeros()).div_ceil(7) as usize
}

fn push_varint(out: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn read_varint(bytes: &mut &[u8]) -> Result<u32, WireError> {
    let mut value = 0u64;
    for shift in (0..35).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or(WireError::Range)?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return u32::try_from(value).map_err(|_| WireError::Range);
        }
    }
    Err(WireError::Range)
}

fn read_runs(mut bytes: &[u8], first: u32, end: u32) -> Result<Vec<Range<u32>>, WireError> {
    // A run takes two bytes or more, so the message's length bounds the list's.
    let mut runs: Vec<Range<u32>> = Vec::with_capacity(bytes.len() / 2);
    let mut at = first;
    while !bytes.is_empty() {
        let (gap, len) = (read_varint(&mut bytes)?, read_varint(&mut bytes)?);
        let start = at.checked_add(gap).ok_or(WireError::Range)?;
        let stop = start.checked_add(len).ok_or(WireError::Range)?;
        // Runs that touch would be one: a gap of zero is for the first alone.
        if len == 0 || stop > end || (gap == 0 && !runs.is_empty()) {
            return Err(WireError::Range);
        }
        runs.push(start..stop);
        at = stop;
    }
    Ok(runs)
}

fn read_bitmap(bytes: &[u8], first: u32, end: u32) -> Result<Vec<Range<u32>>, WireError> {
    if bytes.len() != ((end - first) as usize).div_ceil(8) {
        return Err(WireError::Range);
    }
    let mut runs: Vec<Range<u32>> = Vec::new();
    for (index, byte) in bytes.iter().enumerate() {
        for bit in (0..8).filter(|bit| byte & (1 << bit) != 0) {
            let offset = (index * 8 + bit) as u32;
            if offset >= end - first {
                return Err(WireError::Range);
            }
            let block = first + offset;
            match runs.last_mut() {
                Some(run) if run.end == block => run.end += 1,
                _ => runs.push(block..block + 1),
            }
        }
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::MAX_CONTROL;
    use alloc::vec;
    use proptest::prelude::*;

    fn encoded(control: &Control) -> Vec<u8> {
        let mut out = Vec::new();
        control.encode(&mut out);
        out
    }

    fn runs_of(blocks: impl Iterator<Item = u32>) -> Vec<Range<u32>> {
        let mut runs: Vec<Range<u32>> = Vec::new();
        for block in blocks {
            match runs.last_mut() {
                Some(run) if run.end == block => run.end += 1,
                _ => runs.push(block..block + 1),
            }
        }
        runs
    }

    fn pulse() -> Pulse {
        Pulse {
            sequence: 7,
            clock: Span::from_millis(300),
            highest: 100,
            received: 90,
            distinct: 80,
            grant: Bytes::new(1 << 29),
            drain: Some(Rate::from_mbps(900)),
            echo: Some(Echo { number: PacketNumber(99), age: Span::from_micros(5) }),
            train: Some(Train {
                first: PacketNumber(0),
                bytes: Bytes::new(45_000),
                span: Span::from_micros(360),
                steps: 31,
            }),
            socket_lost: 3,
        }
    }

    #[test]
    fn done_has_the_bytes_that_were_once_recorded() {
        let highest = PacketNumber(300);
        let done = Control::Done(Done { segment: 1, round: 2, sent_to: 3, highest });
        let golden = [0x0a, 9, 0x08, 1, 0x10, 2, 0x18, 3, 0x20, 0xac, 0x02];
        assert_eq!(encoded(&done), golden);
        assert_eq!(Control::decode(&golden), Ok(done));
    }

    #[test]
    fn a_sparse_report_has_the_bytes_that_were_once_recorded() {
        let report = Report::fill(1, 2, 0..1000, [5..6, 300..310].into_iter());
        let golden = [0x12, 16, 0x08, 1, 0x10, 2, 0x20, 0xe8, 7, 0x2a, 5, 5, 1, 0xa6, 2, 10];
        let bytes = encoded(&Control::Report(report.clone()));
        assert_eq!(bytes[2..], golden[2..]);
        assert_eq!(Control::decode(&bytes), Ok(Control::Report(report)));
    }

    #[test]
    fn a_pulse_survives_the_wire_and_fits_a_datagram() {
        for pulse in [pulse(), Pulse::default()] {
            let bytes = encoded(&Control::Pulse(pulse));
            assert!(bytes.len() < 120);
            assert_eq!(Control::decode(&bytes), Ok(Control::Pulse(pulse)));
        }
    }

    #[test]
    fn no_truncation_is_taken_for_the_whole() {
        for control in [
            Control::Pulse(pulse()),
            Control::Report(Report::fill(1, 2, 0..64, runs_of((0..64).step_by(2)).into_iter())),
        ] {
            let bytes = encoded(&control);
            for len in 0..bytes.len() {
                assert_ne!(Control::decode(&bytes[..len]), Ok(control.clone()));
            }
        }
    }

    #[test]
    fn a_message_of_a_later_version_is_unknown_not_malformed() {
        assert_eq!(Control::decode(&[0xfa, 0x01, 1, 0]), Err(WireError::Unknown));
        assert_eq!(Control::decode(&vec![0; MAX_DECODED + 1]), Err(WireError::TooLong));
    }

    #[test]
    fn lies_are_refused() {
        let report = |first, count, runs: &[u8], bitmap: &[u8]| {
            let (runs, bitmap) = (runs.to_vec(), bitmap.to_vec());
            let report = messages::Report { segment: 0, round: 1, first, count, runs, bitmap };
            Report::from_wire(report).unwrap_err()
        };
        let cases = [
            report(0, 0, &[], &[]),
            report(u32::MAX, 2, &[], &[]),
            report(0, 10, &[5, 6], &[]),
            report(0, 10, &[5], &[]),
            report(0, 10, &[0xff, 0xff, 0xff, 0xff, 0x7f, 1], &[]),
            report(0, 10, &[1, 0], &[]),
            report(0, 10, &[1, 1, 0, 1], &[]),
            report(0, 10, &[1, 1], &[1, 0]),
            report(0, 10, &[], &[1, 0, 0]),
            report(0, 10, &[], &[1, 0x80]),
        ];
        assert_eq!(cases, [WireError::Range; 10]);
        let too_many = Pulse { received: 200, ..pulse() };
        let bytes = encoded(&Control::Pulse(too_many));
        assert_eq!(Control::decode(&bytes), Err(WireError::Range));
    }

    proptest! {
        #[test]
        fn slices_of_a_report_fit_and_say_exactly_what_is_missing(
            seed: u64, count in 1u32..60_000, one_in in 1u64..2_000,
        ) {
            // A small generator of its own: a set of this size is slow to shrink otherwise.
            let mut state = seed | 1;
            let missing = runs_of((0..count).filter(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state.is_multiple_of(one_in)
            }));
            let mut heard = Vec::new();
            let mut at = 0;
            while at < count {
                let rest = missing.iter().filter(|run| run.end > at);
                let rest = rest.map(|run| run.start.max(at)..run.end);
                let report = Report::fill(3, 1, at..count, rest);
                prop_assert_eq!(report.slice().start, at);
                prop_assert!(report.slice().end > at);
                at = report.slice().end;
                let bytes = encoded(&Control::Report(report.clone()));
                prop_assert!(bytes.len() <= MAX_CONTROL);
                prop_assert_eq!(Control::decode(&bytes), Ok(Control::Report(report.clone())));
                heard.extend(report.missing().iter().cloned().flatten());
            }
            prop_assert_eq!(heard, missing.into_iter().flatten().collect::<Vec<_>>());
        }

        #[test]
        fn any_bytes_are_a_message_or_an_error(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            if let Ok(control) = Control::decode(&bytes) {
                prop_assert_eq!(Control::decode(&encoded(&control)), Ok(control));
            }
        }
    }
}
