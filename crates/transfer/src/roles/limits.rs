//! Limits on the sizes and carriers (datagrams or streams) that the other end announces, checked
//! before anything is allocated; and limits on data that were not requested, or are sent faster
//! than requested.

use longhaul_proto::registry::Row;
use longhaul_proto::units::Bytes;

use crate::control::Pass;
use crate::counters::ReceiverCounters;
use crate::error::{Error, ErrorKind};
use crate::write::budget::EARLY_GRANT;
use longhaul_files::CHUNK;
use longhaul_text::CallOption;

/// Maximum number of blocks (payloads of one datagram) of a segment. The receiver keeps a bit for
/// each.
const SEGMENT_BLOCKS: u64 = 1 << 30;
/// Minimum block size in bytes: smaller blocks are not worth their header.
const SMALLEST: u32 = 64;
/// The largest payload of a UDP datagram over IPv4.
const LARGEST: u32 = 65_507;

/// Checks whether an object of `object_len` bytes may be sent by datagrams as `pass` announces.
/// `agreed` is the agreed protocol; `None` for streams.
pub(super) fn pass(
    pass: &Pass,
    agreed: Option<&'static Row>,
    object_len: u64,
) -> Result<(), Error> {
    let Pass { segment, block, .. } = pass;
    if agreed.is_none() {
        return Err(announces("datagrams, but streams were agreed on").advise(SAME_RELEASE));
    }
    if !(SMALLEST..=LARGEST).contains(block) {
        return refuse(format!("blocks of {block} bytes; {SMALLEST} to {LARGEST} are possible"));
    }
    if !segment.is_multiple_of(CHUNK) {
        return refuse(format!("segments of {segment} bytes, which is not a multiple of {CHUNK}"));
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

/// Checks that chunks may arrive over streams: only if `agreed` is `None`, because memory is
/// reserved for one carrier only.
pub(super) fn piece(agreed: Option<&'static Row>) -> Result<(), Error> {
    match agreed {
        None => Ok(()),
        Some(row) => {
            let what = format!("chunks by stream, but {} was agreed on", row.name);
            Err(announces(&what).advise(SAME_RELEASE))
        }
    }
}

/// Useless data that an honest sender may send. Before the sender gets the plan, it may send data
/// that the receiver has. Later, the receiver may cancel data that are in flight.
const IN_VAIN: Bytes = Bytes::mebi(2 + (EARLY_GRANT.get() >> 20));
/// Maximum amount of useless data beyond [`IN_VAIN`], as a multiple of the useful data. Unrequested
/// data alone may be at most as much as the received data, or [`IN_VAIN`] if that is more.
const MOST_IN_VAIN: u64 = 4;
/// Data that a sender may send faster than requested, because hosts pause and catch up in bursts:
/// this much, or one part in [`PART_TOO_FAST`] of all data if that is more.
const TOO_FAST: Bytes = Bytes::mebi(4);
const PART_TOO_FAST: u64 = 4;

/// Checks that the data received by `row`'s protocol in blocks of `block` bytes are within the
/// limits on useless data, and on data sent faster than requested. A sender that floods its
/// receiver takes the link from others, even if its data are dropped.
pub(super) fn wanted(
    counters: &ReceiverCounters,
    row: Option<&'static Row>,
    block: u32,
) -> Result<(), Error> {
    let ReceiverCounters { received, distinct, duplicates, unasked, too_fast, highest, .. } =
        counters;
    let blocks = |bytes: Bytes| bytes.get() / u64::from(block.max(1));
    // A protocol that is not frugal sends blocks again before it knows which ones are missing, so
    // its duplicates are allowed.
    let is_frugal = row.is_some_and(|row| row.frugal);
    let useless = unasked.saturating_add(if is_frugal { *duplicates } else { 0 });
    let in_vain = blocks(IN_VAIN);
    let is_mostly_useless = *unasked > in_vain.max(*received)
        || useless > distinct.saturating_mul(MOST_IN_VAIN).saturating_add(in_vain);
    let is_too_fast = *too_fast > blocks(TOO_FAST).max(highest / PART_TOO_FAST);
    if !is_mostly_useless && !is_too_fast {
        return Ok(());
    }
    let what = if useless >= too_fast / 2 {
        format!(
            "the sender floods this host with useless data: {unasked} blocks that were not \
             requested and {duplicates} duplicates, against {distinct} useful ones"
        )
    } else {
        format!(
            "the sender sends faster than this host requests, and takes the link from others: \
             {too_fast} datagrams of {highest} were too fast"
        )
    };
    Err(Error::new(ErrorKind::Verification, what))
}

const SAME_RELEASE: &str = "use the same release of longhaul on both sides";

fn announces(what: &str) -> Error {
    Error::new(ErrorKind::Unreachable, format!("the other side announces {what}"))
}

fn refuse(what: String) -> Result<(), Error> {
    let (segment, datagram) = (CallOption::Segment, CallOption::Datagram);
    let advice = format!("choose another {segment} or {datagram}, or copy in several parts");
    Err(announces(&what).advise(advice))
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_proto::registry;

    #[test]
    fn a_sender_is_refused_only_if_its_useless_blocks_exceed_the_limits() {
        let frugal = registry::all().iter().find(|row| row.frugal);
        let other = registry::all().iter().find(|row| !row.frugal);
        let came = |distinct, duplicates, unasked| {
            let received = distinct + duplicates;
            ReceiverCounters {
                received,
                distinct,
                duplicates,
                unasked,
                ..ReceiverCounters::default()
            }
        };
        let wanted = |status, row| wanted(&status, row, 1440);
        // Duplicates may be 32 MiB (23,301 blocks) plus four times the useful blocks. Unrequested
        // blocks may be 32 MiB, or as many as the received blocks if that is more.
        let early = EARLY_GRANT.get() / 1440;
        assert!(wanted(came(0, early, 0), frugal).is_ok());
        assert!(wanted(came(0, 0, early), frugal).is_ok());
        assert!(wanted(came(50_000, 0, 50_000), frugal).is_ok());
        let error = wanted(came(20_000, 0, 180_000), other).unwrap_err();
        assert!(error.kind == ErrorKind::Verification && error.what.contains("180000 blocks that"));
        let error = wanted(came(20_000, 180_000, 0), frugal).unwrap_err();
        assert!(error.what.contains("180000 duplicates, against 20000"), "{error}");
        assert!(wanted(came(20_000, 180_000, 0), other).is_ok());
    }

    #[test]
    fn a_sender_is_refused_only_if_its_too_fast_datagrams_exceed_the_limit() {
        let sent = |highest, too_fast| {
            let status = ReceiverCounters {
                highest,
                distinct: highest,
                too_fast,
                ..ReceiverCounters::default()
            };
            wanted(&status, None, 1440)
        };
        // 4 MiB (2,912 datagrams) may be too fast, or a quarter of all datagrams if that is more.
        assert!(sent(3_000, 2_900).is_ok() && sent(50_000, 12_500).is_ok());
        let error = sent(50_000, 12_501).unwrap_err();
        assert!(error.kind == ErrorKind::Verification && error.what.contains("12501 datagrams"));
        // The error names the useless data as the reason, even if these data also came too fast.
        let flood = ReceiverCounters {
            highest: 50_000,
            too_fast: 20_000,
            unasked: 18_000,
            ..ReceiverCounters::default()
        };
        assert!(wanted(&flood, None, 1440).unwrap_err().what.contains("18000 blocks that"));
    }

    fn sizes(segment: u64, block: u32) -> Pass {
        Pass { segment, block, ..Pass::default() }
    }

    fn judged(sizes: &Pass, object_len: u64) -> Result<(), Error> {
        pass(sizes, registry::all().first(), object_len)
    }

    fn refused(result: Result<(), Error>, numbers: [&str; 2]) {
        let error = result.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unreachable);
        assert!(numbers.iter().all(|number| error.what.contains(number)), "{}", error.what);
    }

    #[test]
    fn blocks_are_neither_tiny_nor_longer_than_a_datagram() {
        for block in [64, 1440, 65_507] {
            assert_eq!(judged(&sizes(CHUNK, block), 1 << 30), Ok(()));
        }
        for block in [0, 63, 65_508, u32::MAX] {
            refused(judged(&sizes(CHUNK, block), 1), ["64 to 65507", &block.to_string()]);
        }
    }

    #[test]
    fn chunks_are_accepted_only_on_the_agreed_carrier() {
        let (row, sizes) = (registry::all().first(), sizes(CHUNK, 1440));
        assert_eq!((pass(&sizes, row, 1), piece(None)), (Ok(()), Ok(())));
        refused(pass(&sizes, None, 1), ["datagrams", "streams"]);
        refused(piece(row), ["by stream", row.expect("there is one").name]);
    }

    #[test]
    fn a_segment_is_the_object_or_whole_chunks() {
        assert_eq!(judged(&sizes(0, 1440), 1 << 30), Ok(()));
        assert_eq!(judged(&sizes(16 * CHUNK, 1440), 1 << 30), Ok(()));
        for segment in [1, CHUNK - 1, CHUNK + 1, u64::MAX] {
            refused(judged(&sizes(segment, 1440), 1), ["1048576", &segment.to_string()]);
        }
    }

    #[test]
    fn a_segment_has_at_most_2_to_the_power_of_30_blocks() {
        // With blocks of 64 bytes, a chunk has 16,384 blocks, and 65,536 chunks have 2^30.
        let most = 65_536 * CHUNK;
        assert_eq!(judged(&sizes(most, 64), u64::MAX), Ok(()));
        assert_eq!(judged(&sizes(0, 64), most), Ok(()));
        assert_eq!(judged(&sizes(u64::MAX - CHUNK + 1, 64), most), Ok(()));
        for segment in [0, most + CHUNK] {
            refused(judged(&sizes(segment, 64), most + 1), ["1073758208", "1073741824"]);
        }
    }
}
