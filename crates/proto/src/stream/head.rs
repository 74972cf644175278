//! The head of each datagram, which describes its frame. A frame is sent as symbols, one in each
//! datagram: the originals (its parts), then the repairs (from an erasure code).

use crate::fec::{MAX_REPAIRS, Scheme, Shape};

/// Maximum bytes of a frame: 16 MiB.
pub const MAX_FRAME: u32 = 16 << 20;

/// Bits of the frame's length in the head's word of 32 bits; the other 7 bits count the skipped
/// frames.
const LENGTH_BITS: u32 = 25;
const LENGTHS: u32 = (1 << LENGTH_BITS) - 1;

/// Highest frame number: a stream can last 49 days at 1,000 frames a second.
pub(super) const LAST_FRAME: u32 = u32::MAX - 1;

/// The position of a symbol in its frame, and the frame's properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The frame's number; the first is 0.
    pub frame: u32,
    /// The symbol's number: originals first, then repairs.
    pub index: u16,
    /// Number of repairs of the frame.
    pub repairs: u16,
    /// The frame's length in bytes.
    pub length: u32,
    /// Number of unsent frames directly before this frame. The receiver does not wait for them.
    /// [`Head::MANY`] stands for 127 or more.
    pub skipped: u8,
    /// When the sender got the frame: µs of the sender's clock, modulo 2³².
    pub at: u32,
}

/// Why a head is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadError {
    /// Bytes are missing.
    Short,
    /// The frame is empty, or longer than [`MAX_FRAME`].
    Length(u32),
    /// The erasure code does not support this length with this number of repairs.
    Shape,
    /// The frame has no symbol with this number.
    Index(u16),
}

impl core::fmt::Display for HeadError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            HeadError::Short => write!(f, "the head of a stream's datagram is cut off"),
            HeadError::Length(length) => {
                write!(f, "a frame has 1 to {MAX_FRAME} bytes, not {length}")
            }
            HeadError::Shape => write!(f, "no code supports the frame's length and repairs"),
            HeadError::Index(index) => write!(f, "the frame has no symbol {index}"),
        }
    }
}

impl core::error::Error for HeadError {}

impl Head {
    /// Bytes of the head at the start of a datagram's payload. Frame and index are in the block
    /// field of the datagram's header ([`Head::block`]).
    pub const LEN: usize = 10;

    /// Largest number of skipped frames in a head.
    pub const MANY: u8 = 127;

    /// The content of the header's block field: the frame's number, then the symbol's.
    pub fn block(&self) -> u64 {
        u64::from(self.frame) << 16 | u64::from(self.index)
    }

    /// Encodes the head for the start of a payload.
    pub fn encode(&self) -> [u8; Head::LEN] {
        let mut out = [0; Head::LEN];
        out[..2].copy_from_slice(&self.repairs.to_be_bytes());
        let skipped = u32::from(self.skipped.min(Head::MANY)) << LENGTH_BITS;
        out[2..6].copy_from_slice(&(self.length & LENGTHS | skipped).to_be_bytes());
        out[6..].copy_from_slice(&self.at.to_be_bytes());
        out
    }

    /// Decodes the head from `block` and the beginning of `payload`, for a stream whose symbols
    /// have `symbol` bytes.
    ///
    /// # Errors
    /// [`HeadError`] if no sender writes this head.
    pub fn decode(block: u64, payload: &[u8], symbol: u16) -> Result<Head, HeadError> {
        let Some(&[m0, m1, l0, l1, l2, l3, t0, t1, t2, t3]) = payload.first_chunk() else {
            return Err(HeadError::Short);
        };
        let length = u32::from_be_bytes([l0, l1, l2, l3]);
        let head = Head {
            frame: (block >> 16) as u32,
            index: block as u16,
            repairs: u16::from_be_bytes([m0, m1]),
            length: length & LENGTHS,
            skipped: (length >> LENGTH_BITS) as u8,
            at: u32::from_be_bytes([t0, t1, t2, t3]),
        };
        head.shape(symbol).map(|_| head)
    }

    /// Length of the symbol in bytes; the last original may be shorter than the others.
    ///
    /// # Errors
    /// As [`Head::shape`].
    pub fn symbol_len(&self, symbol: u16) -> Result<usize, HeadError> {
        let last = self.shape(symbol)?.originals() - 1;
        let rest = self.length as usize - usize::from(last) * usize::from(symbol);
        Ok(if self.index == last { rest } else { symbol.into() })
    }

    /// The code of the frame, with symbols of `symbol` bytes.
    ///
    /// # Errors
    /// [`HeadError`] if the numbers do not form a frame, or the frame has no such symbol.
    pub fn shape(&self, symbol: u16) -> Result<Shape, HeadError> {
        let shape = shape(self.length, self.repairs, symbol)?;
        let end = u32::from(shape.originals()) + u32::from(shape.repairs());
        if u32::from(self.index) < end { Ok(shape) } else { Err(HeadError::Index(self.index)) }
    }
}

pub(super) fn shape(length: u32, repairs: u16, symbol: u16) -> Result<Shape, HeadError> {
    if length == 0 || length > MAX_FRAME {
        return Err(HeadError::Length(length));
    }
    let originals = length.div_ceil(u32::from(symbol.max(1)));
    let originals = u16::try_from(originals).map_err(|_| HeadError::Shape)?;
    if repairs > MAX_REPAIRS {
        return Err(HeadError::Shape);
    }
    Shape::new(Scheme::ReedSolomon, originals, repairs, symbol).map_err(|_| HeadError::Shape)
}
