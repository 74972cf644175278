//! Scheme, number and length of a block's symbols: the originals, which are the data, and the
//! repairs, which are computed from the originals.

use super::SymbolError;

/// Maximum number of originals of a block.
pub const MAX_ORIGINALS: u16 = 1 << 15;
/// Maximum number of repairs of a block.
pub const MAX_REPAIRS: u16 = 1 << 15;
/// Maximum bytes of a block's originals and repairs together: 64 MiB. A shape may come from a peer,
/// so this limits the memory of a decoder.
pub const MAX_BLOCK: usize = 64 << 20;

/// How repairs are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// XOR: repair j of m is the XOR of the originals j, j + m, j + 2m, ….
    Xor,
    /// Reed–Solomon over GF(2¹⁶).
    ReedSolomon,
}

/// A block's code: scheme, k originals, m repairs, bytes of a symbol. A value of this type is
/// within all limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    scheme: Scheme,
    originals: u16,
    repairs: u16,
    symbol: u16,
}

/// Numbers that do not describe a valid block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShapeError {
    /// The number of originals is zero or above [`MAX_ORIGINALS`].
    Originals(u16),
    /// The number of repairs is above [`MAX_REPAIRS`], or for XOR above the number of originals.
    Repairs(u16),
    /// The length of a symbol in bytes is zero, or odd for Reed–Solomon, whose elements have 16
    /// bits.
    Symbol(u16),
    /// The block has more bytes than [`MAX_BLOCK`].
    Block(usize),
}

impl core::fmt::Display for ShapeError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            ShapeError::Originals(count) => {
                write!(f, "a block of {count} originals: a block has 1 to {MAX_ORIGINALS}")
            }
            ShapeError::Repairs(count) => write!(
                f,
                "a block of {count} repairs: a block has at most {MAX_REPAIRS}, and with XOR no \
                 more repairs than originals"
            ),
            ShapeError::Symbol(bytes) => write!(
                f,
                "symbols of {bytes} bytes: a symbol has at least 1 byte, and with Reed–Solomon an \
                 even number of bytes"
            ),
            ShapeError::Block(bytes) => {
                write!(f, "a block of {bytes} bytes: a block has at most {MAX_BLOCK}")
            }
        }
    }
}

impl core::error::Error for ShapeError {}

impl Shape {
    /// A block of `originals` original symbols and `repairs` repair symbols, each `symbol` bytes
    /// long.
    ///
    /// # Errors
    /// [`ShapeError`] if a number is out of its limits.
    pub fn new(
        scheme: Scheme,
        originals: u16,
        repairs: u16,
        symbol: u16,
    ) -> Result<Shape, ShapeError> {
        let shape = Shape { scheme, originals, repairs, symbol };
        let odd = scheme == Scheme::ReedSolomon && symbol % 2 == 1;
        let bytes = (usize::from(originals) + usize::from(repairs)).saturating_mul(symbol.into());
        if originals == 0 || originals > MAX_ORIGINALS {
            Err(ShapeError::Originals(originals))
        } else if repairs > MAX_REPAIRS || scheme == Scheme::Xor && repairs > originals {
            Err(ShapeError::Repairs(repairs))
        } else if symbol == 0 || odd {
            Err(ShapeError::Symbol(symbol))
        } else if bytes > MAX_BLOCK {
            Err(ShapeError::Block(bytes))
        } else {
            Ok(shape)
        }
    }

    /// An XOR block of `group` · `burst` originals and `burst` repairs. The block survives one
    /// burst of up to `burst` lost originals.
    ///
    /// # Errors
    /// [`ShapeError`] if a number is out of its limits. The error states 65,535 originals if there
    /// are more.
    pub fn interleaved(group: u16, burst: u16, symbol: u16) -> Result<Shape, ShapeError> {
        let originals = group.checked_mul(burst).ok_or(ShapeError::Originals(u16::MAX))?;
        Shape::new(Scheme::Xor, originals, burst, symbol)
    }

    /// How repairs are made.
    pub fn scheme(self) -> Scheme {
        self.scheme
    }

    /// The number of originals, k.
    pub fn originals(self) -> u16 {
        self.originals
    }

    /// The number of repairs, m.
    pub fn repairs(self) -> u16 {
        self.repairs
    }

    /// The length of a symbol in bytes.
    pub fn symbol(self) -> u16 {
        self.symbol
    }

    pub(super) fn repair_bytes(self) -> usize {
        usize::from(self.repairs) * usize::from(self.symbol)
    }

    pub(super) fn check_original(self, number: u16, symbol: &[u8]) -> Result<(), SymbolError> {
        if number >= self.originals {
            Err(SymbolError::Number { number, end: self.originals })
        } else if symbol.len() > usize::from(self.symbol) {
            Err(SymbolError::Length { length: symbol.len(), symbol: self.symbol })
        } else {
            Ok(())
        }
    }

    pub(super) fn check_next(self, given: usize, symbol: &[u8]) -> Result<(), SymbolError> {
        self.check_original(u16::try_from(given).unwrap_or(u16::MAX), symbol)
    }

    pub(super) fn check_repair(self, number: u16, symbol: &[u8]) -> Result<(), SymbolError> {
        if number >= self.repairs {
            Err(SymbolError::Number { number, end: self.repairs })
        } else if symbol.len() != usize::from(self.symbol) {
            Err(SymbolError::Length { length: symbol.len(), symbol: self.symbol })
        } else {
            Ok(())
        }
    }

    pub(super) fn check_all(self, given: usize) -> Result<(), SymbolError> {
        let expected = self.originals;
        if given == usize::from(expected) {
            Ok(())
        } else {
            Err(SymbolError::Originals { given, expected })
        }
    }
}
