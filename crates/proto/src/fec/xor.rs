//! XOR: of m repairs, repair j is the sum of the originals j, j + m, j + 2m, …

use alloc::vec;
use alloc::vec::Vec;

use super::{Shape, SymbolError};

/// Writes the repairs of a block (the originals that are coded together) into `repairs`, which is
/// empty at first.
pub(super) fn encode<'a>(
    shape: Shape,
    originals: impl Iterator<Item = &'a [u8]>,
    repairs: &mut Vec<u8>,
) -> Result<(), SymbolError> {
    repairs.resize(shape.repair_bytes(), 0);
    let (length, groups) = (usize::from(shape.symbol()), usize::from(shape.repairs()));
    let mut given = 0_usize;
    for original in originals {
        shape.check_next(given, original)?;
        if let Some(group) = given.checked_rem(groups) {
            add(&mut repairs[group * length..], original);
        }
        given += 1;
    }
    shape.check_all(given)
}

fn add(sum: &mut [u8], symbol: &[u8]) {
    for (sum, byte) in sum.iter_mut().zip(symbol) {
        *sum ^= byte;
    }
}

#[derive(Clone, Copy, Default)]
struct Group {
    repair: bool,
    originals: u16,
}

/// Restores an original if the repair and all other originals of its group have arrived.
#[derive(Default)]
pub(super) struct Decoder {
    groups: Vec<Group>,
    here: Vec<bool>,
    sums: Vec<u8>,
}

impl Decoder {
    pub(super) fn decode<'a>(
        &mut self,
        shape: Shape,
        originals: impl Iterator<Item = (u16, &'a [u8])>,
        repairs: impl Iterator<Item = (u16, &'a [u8])>,
        mut restored: impl FnMut(u16, &[u8]),
    ) -> Result<u16, SymbolError> {
        let (length, count) = (usize::from(shape.symbol()), usize::from(shape.repairs()));
        self.groups = vec![Group::default(); count];
        self.here = vec![false; shape.originals().into()];
        self.sums.clear();
        self.sums.resize(shape.repair_bytes(), 0);
        for (number, symbol) in originals {
            shape.check_original(number, symbol)?;
            let index = usize::from(number);
            if core::mem::replace(&mut self.here[index], true) {
                return Err(SymbolError::Twice(number));
            }
            if let Some(group) = index.checked_rem(count) {
                self.groups[group].originals += 1;
                add(&mut self.sums[group * length..], symbol);
            }
        }
        for (number, symbol) in repairs {
            shape.check_repair(number, symbol)?;
            let group = usize::from(number);
            if core::mem::replace(&mut self.groups[group].repair, true) {
                return Err(SymbolError::Twice(number));
            }
            add(&mut self.sums[group * length..], symbol);
        }
        let mut missing = 0;
        for number in (0..shape.originals()).filter(|n| !self.here[usize::from(*n)]) {
            let Some(group) = usize::from(number).checked_rem(count) else {
                missing += 1;
                continue;
            };
            let Group { repair, originals } = self.groups[group];
            // Of k originals, ⌈(k − j)/m⌉ belong to group j.
            let of_group = (usize::from(shape.originals()) - group).div_ceil(count);
            if repair && usize::from(originals) + 1 == of_group {
                restored(number, &self.sums[group * length..][..length]);
            } else {
                missing += 1;
            }
        }
        Ok(missing)
    }
}
