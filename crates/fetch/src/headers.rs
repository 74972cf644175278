//! Fields of HTTP replies: `Content-Range`, `ETag`, `Last-Modified`.

use std::time::SystemTime;

use ureq::http::HeaderMap;

pub(crate) fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Parses `bytes FIRST-LAST/TOTAL`; returns the first byte, the byte after the last, and the total.
pub(crate) fn content_range(value: &str) -> Option<(u64, u64, u64)> {
    let (range, total) = value.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, total) = (number(first)?, number(total)?);
    let end = number(last)?.checked_add(1)?;
    (first < end && end <= total).then_some((first, end, total))
}

/// Parses `bytes */TOTAL`, which answers a range beyond the end; returns the total.
pub(crate) fn unsatisfied(value: &str) -> Option<u64> {
    number(value.trim().strip_prefix("bytes */")?)
}

/// Parses digits only: no sign, no space.
pub(crate) fn number(text: &str) -> Option<u64> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| text.parse().ok())?
}

/// Returns the entity tag with its quotes, if the tag is strong, not empty, and at most 1,024 bytes
/// long. A weak tag does not count, because several contents may have the same weak tag.
pub(crate) fn etag(headers: &HeaderMap) -> Option<String> {
    let value = text(headers, "etag")?.trim();
    let is_strong = value.len() > 2 && value.starts_with('"') && value.ends_with('"');
    (is_strong && value.len() <= 1024).then(|| value.to_owned())
}

pub(crate) fn modified(headers: &HeaderMap) -> Option<SystemTime> {
    httpdate::parse_http_date(text(headers, "last-modified")?.trim()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_lies_within_its_total() {
        assert_eq!(content_range("bytes 2-4/10"), Some((2, 5, 10)));
        assert_eq!(content_range(" bytes 0-9/10 "), Some((0, 10, 10)));
        for wrong in [
            "",
            "bytes",
            "bytes 2-4",
            "bytes 4-2/10",
            "bytes 2-10/10",
            "bytes 2-4/*",
            "bytes +2-4/10",
            "bytes 2-18446744073709551615/10",
            "items 2-4/10",
            "bytes 2-4/99999999999999999999",
            "bytes -4/10",
            "bytes 2 -4/10",
        ] {
            assert_eq!(content_range(wrong), None, "{wrong}");
        }
        assert_eq!(unsatisfied("bytes */0"), Some(0));
        assert_eq!(unsatisfied("bytes 0-0/0"), None);
    }

    #[test]
    fn only_a_strong_tag_names_one_content() {
        let with = |tag: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("etag", tag.parse().unwrap());
            etag(&headers)
        };
        assert_eq!(with("\"abc\"").unwrap(), "\"abc\"");
        for weak in ["W/\"abc\"", "abc", "\"\"", "\""] {
            assert_eq!(with(weak), None, "{weak}");
        }
    }
}
