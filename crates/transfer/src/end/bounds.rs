//! How large what the other end announces may be: looked at before anything is allocated for it.

use crate::control::Pass;
use crate::error::{Class, Error};
use crate::objects::CHUNK;

/// Blocks of a segment: its tally has a bit for each.
const SEGMENT_BLOCKS: u64 = 1 << 30;
/// The smallest block that is worth its header.
const SMALLEST: u32 = 64;
/// What a UDP datagram over IPv4 carries at most.
const LARGEST: u32 = 65_507;

/// Whether an object of `object_len` bytes may be sent as `pass` says.
///
/// # Errors
/// [`Class::Unreachable`] with the size that is out of bounds, and the bounds.
pub(super) fn pass(pass: &Pass, object_len: u64) -> Result<(), Error> {
    let Pass { segment, block, .. } = pass;
    if !(SMALLEST..=LARGEST).contains(block) {
        return refuse(format!("blocks of {block} bytes; {SMALLEST} to {LARGEST} are possible"));
    }
    if !segment.is_multiple_of(CHUNK) {
        return refuse(format!("segments of {segment} bytes, which is no multiple of {CHUNK}"));
    }
    let chunks = match *segment {
        0 => object_len,
        segment => segment.min(object_len),
    };
    let blocks = chunks.div_ceil(CHUNK).saturating_mul(CHUNK.div_ceil(u64::from(*block)));
    if blocks > SEGMENT_BLOCKS {
        return refuse(format!("segments of {blocks} blocks; {SEGMENT_BLOCKS} is the limit"));
    }
    Ok(())
}

fn refuse(what: String) -> Result<(), Error> {
    let error = Error::new(Class::Unreachable, format!("the other side announces {what}"));
    Err(error.advise("choose another --segment or --datagram, or copy in several parts"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(segment: u64, block: u32) -> Pass {
        Pass { segment, block, ..Pass::default() }
    }

    fn refused(result: Result<(), Error>, numbers: [&str; 2]) {
        let error = result.unwrap_err();
        assert_eq!(error.class, Class::Unreachable);
        assert!(numbers.iter().all(|number| error.what.contains(number)), "{}", error.what);
    }

    #[test]
    fn blocks_are_neither_tiny_nor_longer_than_a_datagram() {
        for block in [64, 1440, 65_507] {
            assert_eq!(pass(&sizes(CHUNK, block), 1 << 30), Ok(()));
        }
        for block in [0, 63, 65_508, u32::MAX] {
            refused(pass(&sizes(CHUNK, block), 1), ["64 to 65507", &block.to_string()]);
        }
    }

    #[test]
    fn a_segment_is_the_object_or_whole_chunks() {
        assert_eq!(pass(&sizes(0, 1440), 1 << 30), Ok(()));
        assert_eq!(pass(&sizes(16 * CHUNK, 1440), 1 << 30), Ok(()));
        for segment in [1, CHUNK - 1, CHUNK + 1, u64::MAX] {
            refused(pass(&sizes(segment, 1440), 1), ["1048576", &segment.to_string()]);
        }
    }

    #[test]
    fn a_segments_tally_fits_memory() {
        // 16,384 blocks a chunk.
        let most = 65_536 * CHUNK;
        assert_eq!(pass(&sizes(most, 64), u64::MAX), Ok(()));
        assert_eq!(pass(&sizes(0, 64), most), Ok(()));
        assert_eq!(pass(&sizes(u64::MAX - CHUNK + 1, 64), most), Ok(()));
        for segment in [0, most + CHUNK] {
            refused(pass(&sizes(segment, 64), most + 1), ["1073758208", "1073741824"]);
        }
    }
}
