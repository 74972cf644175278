//! Forward error correction: repair symbols that replace lost datagrams without a round trip.
//!
//! A *block* is k originals of equal length; the code adds m repairs. A *symbol* is an original or
//! a repair; each datagram carries one symbol. The originals are sent as they are (the code is
//! systematic), so they never wait for the code.
//!
//! - [`Shape`]: scheme, k, m, symbol length.
//! - [`Encoder`], [`Decoder`]: symbols in, symbols out.
//! - [`Scheme::Xor`]: repair j is the XOR of the originals j, j + m, j + 2m, … (He et al.,
//!   "Quanta", section 3.2: "FEC collects between 1 and N (typically 2 or 3) data packets and
//!   performs a bit-wise operation on the packets (such as XOR)"). A group is a repair and its
//!   originals. A burst of up to m lost originals takes at most one original from each group, and
//!   the group's repair replaces it.
//! - [`Scheme::ReedSolomon`]: any k of the k + m symbols give the block.
//! - [`repairs`]: the number of repairs for a loss ratio and a permitted failure ratio.
//!
//! ```
//! use longhaul_proto::fec::{Decoder, Encoder, Losses, Scheme, Shape, repairs};
//! use longhaul_proto::units::LossRatio;
//!
//! let losses = Losses::independent(LossRatio::new(0.01).unwrap());
//! let m = repairs(20, losses, 1e-4).unwrap();
//! assert_eq!(m, 3);
//! let shape = Shape::new(Scheme::ReedSolomon, 20, m, 4).unwrap();
//! let originals: Vec<[u8; 4]> = (0..20).map(|n| [n; 4]).collect();
//! let mut made = Vec::new();
//! Encoder::new().encode(shape, originals.iter().map(|s| &s[..]), &mut made).unwrap();
//!
//! let lost = [0, 7, 19];
//! let arrived = originals.iter().enumerate().filter(|(n, _)| !lost.contains(n));
//! let arrived = arrived.map(|(n, symbol)| (n as u16, &symbol[..]));
//! let repaired = made.chunks(4).enumerate().map(|(n, symbol)| (n as u16, symbol));
//! let mut restored = Vec::new();
//! let missing = Decoder::new()
//!     .decode(shape, arrived, repaired, |n, symbol| restored.push((n, symbol[0])))
//!     .unwrap();
//! assert_eq!((missing, restored), (0, vec![(0, 0), (7, 7), (19, 19)]));
//! ```

mod amount;
mod reed_solomon;
mod shape;
#[cfg(test)]
mod tests;
mod xor;

use alloc::vec::Vec;

pub use amount::{Losses, repairs};
pub use shape::{MAX_BLOCK, MAX_ORIGINALS, MAX_REPAIRS, Scheme, Shape, ShapeError};

/// Error: the symbols passed do not fit their block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SymbolError {
    /// An original or repair with an invalid number.
    Number {
        /// The number.
        number: u16,
        /// Valid numbers of this kind of symbol are below this limit.
        end: u16,
    },
    /// The symbol was passed twice.
    Twice(u16),
    /// An original is longer than a symbol of the shape, or a repair has a different length.
    Length {
        /// The length of the symbol in bytes.
        length: usize,
        /// The length of a symbol in the shape.
        symbol: u16,
    },
    /// The encoder did not get all originals.
    Originals {
        /// Number of originals passed.
        given: usize,
        /// Number of originals in the block.
        expected: u16,
    },
}

impl core::fmt::Display for SymbolError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            SymbolError::Number { number, end } => {
                write!(f, "symbol {number} is not in the block: symbol numbers end before {end}")
            }
            SymbolError::Twice(number) => write!(f, "symbol {number} was given twice"),
            SymbolError::Length { length, symbol } => {
                write!(f, "a symbol has {length} bytes, but the block's symbols have {symbol}")
            }
            SymbolError::Originals { given, expected } => {
                write!(f, "{given} originals were given, the block has {expected}")
            }
        }
    }
}

impl core::error::Error for SymbolError {}

/// Computes the tables of the Reed–Solomon code, which all threads share. This takes 10 to 20 ms.
/// Without this call, the first block that a process encodes or decodes takes this time. Later
/// calls take microseconds.
pub fn prepare() {
    let shape = Shape::new(Scheme::ReedSolomon, 2, 1, 2).expect("it is within the limits");
    let (originals, mut repair) = ([[0, 0], [0, 0]], Vec::new());
    let encoded = Encoder::new().encode(shape, originals.iter().map(|each| &each[..]), &mut repair);
    let first = originals.iter().take(1).map(|each| (0, &each[..]));
    let decoded = Decoder::new().decode(shape, first, [(0, &repair[..])].into_iter(), |_, _| {});
    debug_assert!(encoded.is_ok() && decoded == Ok(0));
}

/// Makes the repairs of blocks.
#[derive(Default)]
pub struct Encoder {
    reed_solomon: reed_solomon::Encoder,
}

impl Encoder {
    /// An encoder without working space: the first block of each size allocates it.
    pub fn new() -> Encoder {
        Encoder::default()
    }

    /// Replaces the content of `repairs` with the repairs of a block, concatenated. A shorter
    /// original counts as if zeros followed it.
    ///
    /// # Errors
    /// [`SymbolError`] if the number of originals differs from the shape's, or an original is too
    /// long. The content of `repairs` is then undefined.
    pub fn encode<'a>(
        &mut self,
        shape: Shape,
        originals: impl Iterator<Item = &'a [u8]>,
        repairs: &mut Vec<u8>,
    ) -> Result<(), SymbolError> {
        repairs.clear();
        repairs.reserve(shape.repair_bytes());
        match shape.scheme() {
            Scheme::Xor => xor::encode(shape, originals, repairs),
            Scheme::ReedSolomon => self.reed_solomon.encode(shape, originals, repairs),
        }
    }
}

/// Restores the lost originals of blocks.
#[derive(Default)]
pub struct Decoder {
    reed_solomon: reed_solomon::Decoder,
    xor: xor::Decoder,
}

impl Decoder {
    /// A decoder without working space: the first block of each size allocates it.
    pub fn new() -> Decoder {
        Decoder::default()
    }

    /// Calls `restored` with each restored original, lowest number first, and returns the number of
    /// originals still missing. A shorter original is padded with zeros; restored originals have
    /// the shape's full length.
    ///
    /// A modified symbol yields modified originals, so callers authenticate datagrams first.
    ///
    /// # Errors
    /// [`SymbolError`] if a symbol does not fit `shape` or is passed twice. Nothing is restored
    /// then.
    pub fn decode<'a>(
        &mut self,
        shape: Shape,
        originals: impl Iterator<Item = (u16, &'a [u8])>,
        repairs: impl Iterator<Item = (u16, &'a [u8])>,
        restored: impl FnMut(u16, &[u8]),
    ) -> Result<u16, SymbolError> {
        match shape.scheme() {
            Scheme::Xor => self.xor.decode(shape, originals, repairs, restored),
            Scheme::ReedSolomon => self.reed_solomon.decode(shape, originals, repairs, restored),
        }
    }
}
