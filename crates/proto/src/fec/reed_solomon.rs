//! Reed–Solomon over GF(2¹⁶) with additive Fourier transforms: O(n·log n) symbol operations.

use alloc::vec::Vec;

use reed_solomon_simd::{Error, ReedSolomonDecoder, ReedSolomonEncoder};

use super::{Shape, SymbolError};

/// Pads a symbol with zeros, in `pad`, to the length of the shape's symbols.
fn padded<'a>(symbol: &'a [u8], shape: Shape, pad: &'a mut Vec<u8>) -> &'a [u8] {
    let length = usize::from(shape.symbol());
    if symbol.len() == length {
        return symbol;
    }
    pad.clear();
    pad.extend_from_slice(symbol);
    pad.resize(length, 0);
    pad
}

fn counts(shape: Shape) -> (usize, usize, usize) {
    (shape.originals().into(), shape.repairs().into(), shape.symbol().into())
}

/// The functions below check their arguments first, so the library refuses only duplicates.
const CHECKED: &str = "a shape is within the library's limits, and each symbol is checked";

#[derive(Default)]
pub(super) struct Encoder {
    work: Option<ReedSolomonEncoder>,
    pad: Vec<u8>,
}

impl Encoder {
    pub(super) fn encode<'a>(
        &mut self,
        shape: Shape,
        originals: impl Iterator<Item = &'a [u8]>,
        repairs: &mut Vec<u8>,
    ) -> Result<(), SymbolError> {
        let (k, m, length) = counts(shape);
        let mut given = 0;
        if m == 0 {
            for original in originals {
                shape.check_next(given, original)?;
                given += 1;
            }
            return shape.check_all(given);
        }
        let work = match &mut self.work {
            Some(work) => {
                work.reset(k, m, length).expect(CHECKED);
                work
            }
            none => none.insert(ReedSolomonEncoder::new(k, m, length).expect(CHECKED)),
        };
        for original in originals {
            shape.check_next(given, original)?;
            work.add_original_shard(padded(original, shape, &mut self.pad)).expect(CHECKED);
            given += 1;
        }
        shape.check_all(given)?;
        let made = work.encode().expect(CHECKED);
        made.recovery_iter().for_each(|symbol| repairs.extend_from_slice(symbol));
        Ok(())
    }
}

#[derive(Default)]
pub(super) struct Decoder {
    work: Option<ReedSolomonDecoder>,
    pad: Vec<u8>,
}

impl Decoder {
    pub(super) fn decode<'a>(
        &mut self,
        shape: Shape,
        originals: impl Iterator<Item = (u16, &'a [u8])>,
        repairs: impl Iterator<Item = (u16, &'a [u8])>,
        mut restored: impl FnMut(u16, &[u8]),
    ) -> Result<u16, SymbolError> {
        let (k, m, length) = counts(shape);
        // The library requires at least one repair. A repair that never arrives does not change the
        // result.
        let counts = (k, m.max(1), length);
        let work = match &mut self.work {
            Some(work) => {
                work.reset(counts.0, counts.1, counts.2).expect(CHECKED);
                work
            }
            none => {
                none.insert(ReedSolomonDecoder::new(counts.0, counts.1, counts.2).expect(CHECKED))
            }
        };
        let mut given = 0;
        for (number, symbol) in originals {
            shape.check_original(number, symbol)?;
            let symbol = padded(symbol, shape, &mut self.pad);
            taken(work.add_original_shard(number.into(), symbol), number)?;
            given += 1;
        }
        let missing = shape.originals() - given;
        let mut repaired = 0;
        for (number, symbol) in repairs {
            shape.check_repair(number, symbol)?;
            taken(work.add_recovery_shard(number.into(), symbol), number)?;
            repaired += 1;
        }
        if missing == 0 || repaired < missing {
            return Ok(missing);
        }
        let decoded = work.decode().expect(CHECKED);
        for (number, symbol) in decoded.restored_original_iter() {
            restored(number as u16, symbol);
        }
        Ok(0)
    }
}

fn taken(answer: Result<(), Error>, number: u16) -> Result<(), SymbolError> {
    match answer {
        Ok(()) => Ok(()),
        Err(
            Error::DuplicateOriginalShardIndex { .. } | Error::DuplicateRecoveryShardIndex { .. },
        ) => Err(SymbolError::Twice(number)),
        Err(error) => unreachable!("{CHECKED}: {error}"),
    }
}
