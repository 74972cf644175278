//! Splits messages into datagrams, and adds *repairs*: datagrams that replace lost ones. One
//! datagram carries one *part* of a message. A *group* is a number of consecutive datagrams
//! (its *originals*) and their repairs.

use alloc::vec::Vec;

use crate::fec::{Encoder, Scheme, Shape};
use crate::time::{Span, Time};

/// Bytes before each part of a message: message number, part number, and number of parts.
pub(super) const HEAD: usize = 8 + 2 + 2;
/// Bytes before a repair: scheme, number of originals in its group, and number of repairs.
pub(super) const REPAIR_HEAD: usize = 3;
/// Bytes of the length that precedes each original in the input of the erasure code.
pub(super) const LENGTH: usize = 2;
/// Bit in a datagram's number: the datagram belongs to a group with repairs.
pub(super) const CODED: u64 = 1 << 15;
/// Bit in a datagram's number: the datagram is a repair.
pub(super) const REPAIR: u64 = 1 << 14;
pub(super) const MAX_GROUP: u8 = 64;
pub(super) const MAX_REPAIRS: u8 = 32;

/// The erasure code over the datagrams of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Code {
    /// No repairs.
    #[default]
    None,
    /// One repair for each group: the XOR of the group's originals.
    Xor {
        /// Originals in a group.
        group: u8,
    },
    /// Reed–Solomon: any `group` of the `group + repairs` datagrams restore the whole group.
    ReedSolomon {
        /// Originals in a group.
        group: u8,
        /// Repairs for a group.
        repairs: u8,
    },
}

/// Error: a number of the code is out of its limits, or an XOR code has not exactly one repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeError;

impl core::fmt::Display for CodeError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "a group has 1 to {MAX_GROUP} datagrams and 1 to {MAX_REPAIRS} repairs (XOR: 1)")
    }
}

impl core::error::Error for CodeError {}

impl Code {
    /// Returns the code with these numbers: none (`repairs` is 0), XOR with one repair, or
    /// Reed–Solomon.
    ///
    /// # Errors
    /// A number is out of its limits, or `is_xor` is set and `repairs` is not 1.
    pub fn new(is_xor: bool, group: u32, repairs: u32) -> Result<Code, CodeError> {
        let within =
            |number, most: u8| u8::try_from(number).ok().filter(|n| (1..=most).contains(n));
        match (group, repairs, is_xor) {
            (_, 0, false) => Ok(Code::None),
            (group, 1, true) => Ok(Code::Xor { group: within(group, MAX_GROUP).ok_or(CodeError)? }),
            (_, _, true) => Err(CodeError),
            (group, repairs, false) => Ok(Code::ReedSolomon {
                group: within(group, MAX_GROUP).ok_or(CodeError)?,
                repairs: within(repairs, MAX_REPAIRS).ok_or(CodeError)?,
            }),
        }
    }

    /// The arguments for [`Code::new`]: whether the code is XOR, the originals in a group, and the
    /// repairs.
    pub fn numbers(self) -> (bool, u32, u32) {
        match self {
            Code::None => (false, 0, 0),
            Code::Xor { group } => (true, group.into(), 1),
            Code::ReedSolomon { group, repairs } => (false, group.into(), repairs.into()),
        }
    }
}

/// A datagram: its number, for the authenticated header, and its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The number.
    pub block: u64,
    /// The content.
    pub payload: Vec<u8>,
}

/// Error: the message needs too many datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

/// The rest of a message, not yet split into datagrams ([`Cutter::next`]).
#[derive(Debug)]
pub struct Cutting<'a> {
    number: u64,
    /// The number of the next part.
    part: u16,
    parts: u16,
    rest: [&'a [u8]; 2],
}

/// Splits messages into datagrams. Originals never wait for repairs.
pub struct Cutter {
    code: Code,
    /// The code and the wait that apply from the next group on.
    next: Option<(Code, Span)>,
    /// Maximum bytes of a message in one datagram.
    part: usize,
    /// How long a group may stay incomplete before its repairs are sent.
    wait: Span,
    /// The number of the last message.
    number: u64,
    /// Number of datagrams sent, without repairs.
    count: u64,
    /// The number of the current group.
    group: u64,
    originals: Vec<Vec<u8>>,
    /// When the first original of the group was sent.
    since: Time,
    encoder: Encoder,
    repairs: Vec<u8>,
}

impl Cutter {
    /// A cutter for datagrams with at most `payload` bytes. A group that is still incomplete after
    /// `wait` gets its repairs then.
    pub fn new(payload: usize, code: Code, wait: Span) -> Cutter {
        // The symbol of a repair (its bytes of the erasure code) is as long as the longest original
        // of its group plus that original's length field, rounded up to an even number of bytes.
        let overhead = HEAD + REPAIR_HEAD + LENGTH + 1;
        Cutter {
            code,
            next: None,
            part: payload.saturating_sub(overhead).max(1),
            wait,
            number: 0,
            count: 0,
            group: 0,
            originals: Vec::new(),
            since: Time::ZERO,
            encoder: Encoder::new(),
            repairs: Vec::new(),
        }
    }

    /// Changes the code and the wait, from the next group on.
    pub fn follow(&mut self, code: Code, wait: Span) {
        self.next = Some((code, wait));
    }

    /// Number of datagrams sent, without repairs.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Appends the datagrams of a message to `out`, and the repairs of the groups that the
    /// message completes.
    ///
    /// # Errors
    /// The message has too many parts; no part is sent.
    pub fn message(
        &mut self,
        now: Time,
        message: &[u8],
        out: &mut Vec<Datagram>,
    ) -> Result<(), TooLong> {
        let mut cutting = self.begin([message, &[]])?;
        while self.next(now, &mut cutting, out) {}
        Ok(())
    }

    /// Begins a message that consists of the two slices. Each call of [`Cutter::next`] then appends
    /// the next datagram of the message.
    ///
    /// # Errors
    /// The message has too many parts.
    pub fn begin<'a>(&mut self, message: [&'a [u8]; 2]) -> Result<Cutting<'a>, TooLong> {
        let parts = (message[0].len() + message[1].len()).div_ceil(self.part).max(1);
        let parts = u16::try_from(parts).map_err(|_| TooLong)?;
        self.number += 1;
        Ok(Cutting { number: self.number, part: 0, parts, rest: message })
    }

    /// Appends the next datagram of a message to `out`, and the repairs of the group that the
    /// datagram completes. Returns `false`, and appends nothing, if all datagrams of the message
    /// were appended before.
    pub fn next(&mut self, now: Time, cutting: &mut Cutting<'_>, out: &mut Vec<Datagram>) -> bool {
        let Cutting { number, part, parts, rest } = cutting;
        if part == parts {
            return false;
        }
        let mut room = self.part.min(rest[0].len() + rest[1].len());
        let mut payload = Vec::with_capacity(HEAD + room);
        payload.extend(number.to_be_bytes());
        payload.extend(part.to_be_bytes());
        payload.extend(parts.to_be_bytes());
        for slice in rest {
            let (bytes, behind) = slice.split_at(slice.len().min(room));
            payload.extend(bytes);
            (*slice, room) = (behind, room - bytes.len());
        }
        *part += 1;
        self.original(now, payload, out);
        true
    }

    fn original(&mut self, now: Time, payload: Vec<u8>, out: &mut Vec<Datagram>) {
        self.count += 1;
        if self.originals.is_empty()
            && let Some((code, wait)) = self.next.take()
        {
            (self.code, self.wait) = (code, wait);
        }
        let (_, group, _) = self.code.numbers();
        if group == 0 {
            return out.push(Datagram { block: 0, payload });
        }
        if self.originals.is_empty() {
            self.since = now;
        }
        let block = self.group << 16 | CODED | self.originals.len() as u64;
        out.push(Datagram { block, payload: payload.clone() });
        self.originals.push(payload);
        if self.originals.len() >= group as usize {
            self.close(out);
        }
    }

    /// Appends the repairs of a group that has been incomplete for too long.
    pub fn flush(&mut self, now: Time, out: &mut Vec<Datagram>) {
        if self.next_wakeup().is_some_and(|at| at <= now) {
            self.close(out);
        }
    }

    /// When [`Cutter::flush`] is due.
    pub fn next_wakeup(&self) -> Option<Time> {
        (!self.originals.is_empty()).then(|| self.since + self.wait)
    }

    fn close(&mut self, out: &mut Vec<Datagram>) {
        let (is_xor, _, repairs) = self.code.numbers();
        let scheme = if is_xor { Scheme::Xor } else { Scheme::ReedSolomon };
        let longest = self.originals.iter().map(Vec::len).max().unwrap_or(0);
        let symbol = (longest + LENGTH).next_multiple_of(2);
        let count = self.originals.len();
        for original in &mut self.originals {
            let length = (original.len() as u16).to_be_bytes();
            original.splice(0..0, length);
        }
        let shape = Shape::new(scheme, count as u16, repairs as u16, symbol as u16);
        let originals = self.originals.iter().map(|original| &original[..]);
        // A code and a datagram size within their limits always form a valid shape.
        if let Ok(shape) = shape
            && self.encoder.encode(shape, originals, &mut self.repairs).is_ok()
        {
            for (number, repair) in self.repairs.chunks_exact(symbol).enumerate() {
                let head = [u8::from(is_xor), count as u8, repairs as u8];
                let block = self.group << 16 | CODED | REPAIR | number as u64;
                out.push(Datagram { block, payload: [&head[..], repair].concat() });
            }
        }
        self.originals.clear();
        self.group += 1;
    }
}

impl core::fmt::Debug for Cutter {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Cutter").field("code", &self.code).finish_non_exhaustive()
    }
}
