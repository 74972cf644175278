//! Conditions of requests by ETag and date (RFC 9110, section 13).

use std::time::{Duration, SystemTime};

use hyper::HeaderMap;
use hyper::header::{self, HeaderName, HeaderValue};
use longhaul_files::Stamp;

#[derive(Clone, Debug)]
pub(crate) struct Version {
    /// A strong ETag, with its quotes; empty for a folder.
    pub(crate) etag: String,
    /// Modification time in whole seconds; `None` before 1970 or after the year 9999.
    pub(crate) modified: Option<SystemTime>,
}

impl Version {
    pub(crate) fn of(stamp: &Stamp) -> Version {
        let Stamp { identity: (device, inode), size, modified, changed } = *stamp;
        let numbers = [
            device,
            inode,
            size,
            modified.seconds as u64,
            modified.nanos.into(),
            changed.seconds as u64,
            changed.nanos.into(),
        ];
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let etag = format!("\"{}\"", &blake3::hash(&bytes).to_hex()[..32]);
        Version { etag, modified: at(modified.seconds) }
    }
}

/// Returns the time that is `seconds` after the start of 1970; `None` if a header cannot express
/// this time.
pub(crate) fn at(seconds: i64) -> Option<SystemTime> {
    // The last second of the year 9999.
    const LAST: u64 = 253_402_300_799;
    let seconds = u64::try_from(seconds).ok().filter(|seconds| *seconds <= LAST)?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judged {
    Holds,
    /// The client has this version: status 304.
    NotModified,
    /// The condition does not hold: status 412.
    Failed,
}

pub(crate) fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

fn date(headers: &HeaderMap, name: HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(text(headers, name)?).ok()
}

/// Returns whether one of the headers `name` lists the ETag of `version`, which is `None` if the
/// file does not exist: then nothing matches. Returns `None` without such a header. `*` matches
/// every version. If not `strongly`, a weak ETag matches too.
fn lists(
    headers: &HeaderMap,
    name: HeaderName,
    version: Option<&Version>,
    strongly: bool,
) -> Option<bool> {
    let mut lists = headers.get_all(name).iter().map(HeaderValue::as_bytes).peekable();
    lists.peek()?;
    let Some(version) = version else { return Some(false) };
    let is_it = |etag: &[u8]| {
        let etag = etag.trim_ascii();
        let etag = etag.strip_prefix(b"W/").filter(|_| !strongly).unwrap_or(etag);
        // An empty element (RFC 9110, section 5.6.1) must not match the empty ETag of a folder.
        !etag.is_empty() && etag == version.etag.as_bytes()
    };
    let mut names_it =
        |list: &[u8]| list.trim_ascii() == b"*" || list.split(|byte| *byte == b',').any(is_it);
    Some(lists.any(&mut names_it))
}

/// Returns whether the request requires that nothing exists at its path.
pub(crate) fn wants_nothing(headers: &HeaderMap) -> bool {
    let mut lists = headers.get_all(header::IF_NONE_MATCH).iter();
    lists.any(|list| list.as_bytes().trim_ascii() == b"*")
}

/// Evaluates the conditions of a request. `version` is the version of the requested file or folder,
/// `None` if it does not exist. `reads` says whether the method is GET or HEAD.
pub(crate) fn judge(headers: &HeaderMap, version: Option<&Version>, reads: bool) -> Judged {
    let modified = version.and_then(|version| version.modified);
    let holds = match lists(headers, header::IF_MATCH, version, true) {
        Some(names_it) => names_it,
        None => match (date(headers, header::IF_UNMODIFIED_SINCE), modified) {
            (Some(date), Some(modified)) => modified <= date,
            _ => true,
        },
    };
    if !holds {
        return Judged::Failed;
    }
    let is_known = match lists(headers, header::IF_NONE_MATCH, version, false) {
        Some(names_it) => names_it,
        None => match (date(headers, header::IF_MODIFIED_SINCE), modified) {
            (Some(date), Some(modified)) => reads && modified <= date,
            _ => false,
        },
    };
    match (is_known, reads) {
        (false, _) => Judged::Holds,
        (true, true) => Judged::NotModified,
        (true, false) => Judged::Failed,
    }
}

/// Returns whether `If-Range` permits ranges: it is absent, or is the ETag of this version. A date
/// in whole seconds is no strong validator, so it permits none (RFC 9110, section 13.1.5).
pub(crate) fn ranges_count(headers: &HeaderMap, version: &Version) -> bool {
    headers.get(header::IF_RANGE).is_none_or(|said| said.as_bytes() == version.etag.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version() -> Version {
        Version { etag: "\"e\"".to_owned(), modified: at(1_000_000_000) }
    }

    fn judged(name: HeaderName, value: &str, is_there: bool, reads: bool) -> Judged {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        let version = version();
        judge(&headers, is_there.then_some(&version), reads)
    }

    #[test]
    fn conditions_are_judged_by_etag_or_date_as_in_rfc_9110() {
        use Judged::{Failed, Holds, NotModified};
        let same = "Sun, 09 Sep 2001 01:46:40 GMT";
        let before = "Sun, 09 Sep 2001 01:46:39 GMT";
        for (name, value, is_there, reads, expected) in [
            (header::IF_MATCH, "\"e\"", true, false, Holds),
            (header::IF_MATCH, "\"x\", \"e\"", true, true, Holds),
            (header::IF_MATCH, "\"x\"", true, true, Failed),
            (header::IF_MATCH, "\"x\",, \"e\",", true, false, Holds),
            (header::IF_MATCH, "W/\"e\"", true, false, Failed),
            (header::IF_MATCH, "\"\u{e9}\"", true, false, Failed),
            (header::IF_MATCH, "*", false, false, Failed),
            (header::IF_NONE_MATCH, "\"e\"", true, true, NotModified),
            (header::IF_NONE_MATCH, "W/\"e\"", true, true, NotModified),
            (header::IF_NONE_MATCH, "*", true, false, Failed),
            (header::IF_NONE_MATCH, "*", false, false, Holds),
            (header::IF_MODIFIED_SINCE, same, true, true, NotModified),
            (header::IF_MODIFIED_SINCE, before, true, true, Holds),
            (header::IF_MODIFIED_SINCE, "nonsense", true, true, Holds),
            (header::IF_UNMODIFIED_SINCE, before, true, false, Failed),
            (header::IF_UNMODIFIED_SINCE, same, true, false, Holds),
        ] {
            let shown = format!("{name}: {value}, {is_there}, {reads}");
            assert_eq!(judged(name, value, is_there, reads), expected, "{shown}");
        }
    }

    #[test]
    fn a_list_of_etags_may_be_in_several_headers() {
        let mut headers = HeaderMap::new();
        for etag in ["\"x\"", "\"e\""] {
            headers.append(header::IF_MATCH, HeaderValue::from_static(etag));
        }
        assert_eq!(judge(&headers, Some(&version()), false), Judged::Holds);
    }

    #[test]
    fn an_empty_element_of_a_list_of_etags_matches_no_folder() {
        let folder = Version { etag: String::new(), modified: None };
        for (name, value, expected) in [
            (header::IF_MATCH, "\"a\",,\"b\"", Judged::Failed),
            (header::IF_MATCH, "", Judged::Failed),
            (header::IF_MATCH, "*", Judged::Holds),
            (header::IF_NONE_MATCH, "\"a\",,\"b\"", Judged::Holds),
            (header::IF_NONE_MATCH, "*", Judged::Failed),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name.clone(), HeaderValue::from_static(value));
            assert_eq!(judge(&headers, Some(&folder), false), expected, "{name}: {value}");
        }
    }

    #[test]
    fn ranges_are_permitted_only_for_the_version_that_if_range_names() {
        let count = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::IF_RANGE, HeaderValue::from_str(value).unwrap());
            ranges_count(&headers, &version())
        };
        assert!(ranges_count(&HeaderMap::new(), &version()));
        assert!(count("\"e\""));
        // Two versions may have the same time, because the time has whole seconds.
        for other in ["\"x\"", "W/\"e\"", "Sun, 09 Sep 2001 01:46:40 GMT", "nonsense"] {
            assert!(!count(other), "{other}");
        }
    }
}
