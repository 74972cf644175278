//! Runs of consecutive numbers on the wire: gap and length alternate, each a varint; a gap counts
//! from the end of the previous run.

use alloc::vec::Vec;
use core::iter::Peekable;
use core::ops::Range;

use super::WireError;

/// Maximum bytes of a list of runs in a message.
pub(super) const MAX_MISSING: usize = 1100;

/// Returns the encoded length in bytes of `run` after a run that ends at `at`.
pub(super) fn len(at: u64, run: &Range<u64>) -> usize {
    varint_len(run.start - at) + varint_len(run.end - run.start)
}

/// Encodes `runs`, which are in order and do not touch. The first gap counts from `first`.
pub(super) fn write(first: u64, runs: impl Iterator<Item = Range<u64>>) -> Vec<u8> {
    let (mut out, mut at) = (Vec::new(), first);
    for run in runs {
        push_varint(&mut out, run.start - at);
        push_varint(&mut out, run.end - run.start);
        at = run.end;
    }
    out
}

/// Takes as many of `runs` as one message holds; the other runs stay in the iterator. The runs must
/// be in order and must not touch.
pub(super) fn take(runs: &mut Peekable<impl Iterator<Item = Range<u64>>>) -> Vec<Range<u64>> {
    let (mut size, mut at) = (0, 0);
    core::iter::from_fn(|| {
        let run = runs.next_if(|run| size + len(at, run) <= MAX_MISSING)?;
        size += len(at, &run);
        at = run.end;
        Some(run)
    })
    .collect()
}

/// Reads the output of [`write()`]. All runs must lie within `bounds`; the first gap counts from
/// the start of `bounds`.
pub(super) fn read(mut bytes: &[u8], bounds: Range<u64>) -> Result<Vec<Range<u64>>, WireError> {
    // A run takes at least two bytes, so the length of the message limits the length of the list.
    let mut runs: Vec<Range<u64>> = Vec::with_capacity(bytes.len() / 2);
    let mut at = bounds.start;
    while !bytes.is_empty() {
        let (gap, len) = (read_varint(&mut bytes)?, read_varint(&mut bytes)?);
        let start = at.checked_add(gap).ok_or(WireError::Range)?;
        let stop = start.checked_add(len).ok_or(WireError::Range)?;
        // Two runs without a gap between them would be one run, so only the first gap may be zero.
        if len == 0 || stop > bounds.end || (gap == 0 && !runs.is_empty()) {
            return Err(WireError::Range);
        }
        runs.push(start..stop);
        at = stop;
    }
    Ok(runs)
}

fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros()).div_ceil(7) as usize
}

fn push_varint(out: &mut Vec<u8>, mut value: u64) {
    for _ in 1..varint_len(value) {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn read_varint(bytes: &mut &[u8]) -> Result<u64, WireError> {
    let mut value = 0u128;
    for shift in (0..70).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or(WireError::Range)?;
        *bytes = rest;
        value |= u128::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return u64::try_from(value).map_err(|_| WireError::Range);
        }
    }
    Err(WireError::Range)
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn a_run_takes_the_bytes_of_its_gap_and_of_its_length() {
        for (run, bytes) in [
            (1_000..1_001, 2),
            (1_127..1_254, 2),
            (1_128..1_129, 3),
            (1_000..1_128, 3),
            (1_000 + (1 << 14)..1_001 + (1 << 14), 4),
        ] {
            assert_eq!(len(1_000, &run), bytes, "{run:?}");
            let written = write(1_000, [run.clone()].into_iter());
            assert_eq!((written.len(), read(&written, 1_000..u64::MAX)), (bytes, Ok(vec![run])));
        }
        assert_eq!(write(0, core::iter::once(300..301)), [0xac, 0x02, 1]);
    }

    #[test]
    fn a_message_holds_as_many_runs_as_fit_into_1100_bytes() {
        let mut runs = (0..600).map(|n| 2 * n + 1..2 * n + 2).peekable();
        assert_eq!((take(&mut runs).len(), take(&mut runs).len()), (550, 50));
    }
}
