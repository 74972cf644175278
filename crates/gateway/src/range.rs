//! The header `Range` (RFC 9110, section 14).

use std::ops::Range;

/// Maximum number of ranges in a request. For more ranges the server sends the whole file.
const MOST: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Whole,
    /// Non-empty ranges.
    Ranges(Vec<Range<u64>>),
    /// Only empty ranges, such as ranges beyond the end of the file.
    Nothing,
}

/// Parses the header for a file of `size` bytes. Ignores an invalid header, and a list of more than
/// [`MOST`] ranges or with more bytes than the file.
pub(crate) fn parse(header: Option<&str>, size: u64) -> Wanted {
    let Some((unit, list)) = header.and_then(|header| header.split_once('=')) else {
        return Wanted::Whole;
    };
    if !unit.eq_ignore_ascii_case("bytes") {
        return Wanted::Whole;
    }
    let (mut ranges, mut bytes) = (Vec::new(), 0_u64);
    // RFC 9110, section 5.6.1: empty elements of a list are ignored.
    let mut texts = list.split(',').map(str::trim).filter(|text| !text.is_empty()).peekable();
    if texts.peek().is_none() {
        return Wanted::Whole;
    }
    for (number, text) in texts.enumerate() {
        let Some(range) = one(text, size) else { return Wanted::Whole };
        bytes = bytes.saturating_add(range.end.saturating_sub(range.start));
        if number >= MOST || bytes > size {
            return Wanted::Whole;
        }
        if range.start < range.end {
            ranges.push(range);
        }
    }
    match ranges.is_empty() {
        true => Wanted::Nothing,
        false => Wanted::Ranges(ranges),
    }
}

/// Parses one range; empty if the range has no byte of the file, `None` if the text is invalid.
fn one(text: &str, size: u64) -> Option<Range<u64>> {
    let (first, last) = text.split_once('-')?;
    let number = |text: &str| match text.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number of more than 64 bits is beyond every file.
        true if !text.is_empty() => Some(text.parse().unwrap_or(u64::MAX)),
        _ => None,
    };
    match (first, last) {
        ("", count) => Some(size.saturating_sub(number(count)?)..size),
        (first, "") => Some(number(first)?..size),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then(|| first..last.saturating_add(1).min(size))
        }
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "a request may have one range")]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_parsed_as_in_the_standard() {
        let of = |text: &str| parse(Some(text), 1000);
        let are = |text: &str, ranges: &[Range<u64>]| {
            assert_eq!(of(text), Wanted::Ranges(ranges.to_vec()), "{text}");
        };
        are("bytes=0-0", &[0..1]);
        are("bytes=500-", &[500..1000]);
        are("bytes=-1", &[999..1000]);
        are("bytes=-5000", &[0..1000]);
        are("bytes=0-9, 990-5000", &[0..10, 990..1000]);
        are("bytes=0-9,2000-", &[0..10]);
        are("Bytes=, 0-9,,", &[0..10]);
        are("bytes=7-99999999999999999999999", &[7..1000]);
        for nothing in ["bytes=1000-", "bytes=-0", "bytes=99999999999999999999999-"] {
            assert_eq!(of(nothing), Wanted::Nothing, "{nothing}");
        }
        for ignored in
            ["bytes=", "bytes=,", "bytes=a-b", "bytes=5-3", "items=0-1", "bytes=1", "bytes=+1-2"]
        {
            assert_eq!(of(ignored), Wanted::Whole, "{ignored}");
        }
        assert_eq!(parse(None, 0), Wanted::Whole);
        assert_eq!(parse(Some("bytes=0-"), 0), Wanted::Nothing);
    }

    #[test]
    fn more_than_64_ranges_or_more_bytes_than_the_file_get_the_whole_file() {
        let many = format!("bytes={}", ["0-"; 2].join(","));
        assert_eq!(parse(Some(&many), 1000), Wanted::Whole);
        let many = format!("bytes={}", ["0-0"; MOST + 1].join(","));
        assert_eq!(parse(Some(&many), 1000), Wanted::Whole);
    }
}
