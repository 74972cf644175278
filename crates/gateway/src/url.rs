//! Paths of URLs.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Maximum bytes of the path of a request, without its first slash.
const LONGEST: usize = 8192;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UrlPath {
    /// Empty for the root; has no part `.` or `..`.
    pub(crate) path: PathBuf,
    /// Whether the path ends with a slash, or is the root.
    pub(crate) says_folder: bool,
}

/// Parses the path of a request; `None` if the path is too long or invalid. Each part is decoded
/// separately, so a part with an encoded slash is invalid.
pub(crate) fn parse(text: &str) -> Option<UrlPath> {
    let below = text.strip_prefix('/').filter(|below| below.len() <= LONGEST)?;
    let mut path = PathBuf::new();
    for part in below.split('/').filter(|part| !part.is_empty()) {
        let name = decode(part)?;
        if name.contains(&b'/') || name.contains(&0) || name == b"." || name == b".." {
            return None;
        }
        path.push(OsString::from_vec(name));
    }
    Some(UrlPath { path, says_folder: below.is_empty() || below.ends_with('/') })
}

/// Decodes percent-encoding; `None` if a `%` is not followed by two hexadecimal digits.
fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut out = Vec::new();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                let (high, low) = (digit(bytes.next())?, digit(bytes.next())?);
                (high << 4 | low) as u8
            }
            byte => byte,
        });
    }
    Some(out)
}

pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut out = String::new();
    for byte in bytes {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                out.push(char::from(*byte));
            }
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// Returns the path of a `Destination` header, which is a URL of `host` or a path. Returns `None`
/// for another host and for an invalid path.
pub(crate) fn destination(text: &str, host: Option<&str>) -> Option<UrlPath> {
    let path = match text.split_once("://").filter(|_| !text.starts_with('/')) {
        None => text,
        Some((scheme, rest)) => {
            let (named, path) = rest.split_at(rest.find('/')?);
            let default = if scheme.eq_ignore_ascii_case("https") { ":443" } else { ":80" };
            let plain =
                |host: &str| host.strip_suffix(default).unwrap_or(host).to_ascii_lowercase();
            if plain(named) != plain(host?) {
                return None;
            }
            path
        }
    };
    parse(path.split(['?', '#']).next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<(String, bool)> {
        let read = parse(text)?;
        Some((read.path.to_str()?.to_owned(), read.says_folder))
    }

    #[test]
    fn a_path_consists_of_names_below_the_root() {
        let is = |text: &str, path: &str, folder| {
            assert_eq!(read(text), Some((path.to_owned(), folder)), "{text}");
        };
        is("/", "", true);
        is("/a//b", "a/b", false);
        is("//etc/passwd", "etc/passwd", false);
        is("/a%20b/c%C3%A9/", "a b/cé", true);
        is("/.hidden/...", ".hidden/...", false);
        for wrong in [
            "",
            "a",
            "*",
            "/..",
            "/a/../b",
            "/%2e%2E/x",
            "/.",
            "/a%2Fb",
            "/a%00",
            "/%",
            "/%4",
            "/%zz",
            "http://h/x",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        assert_eq!(read(&format!("/{}", "x".repeat(9000))), None);
    }

    #[test]
    fn an_encoded_name_decodes_to_the_original_name() {
        let name: Vec<u8> = (1..=255).filter(|byte| *byte != b'/').collect();
        let encoded = encode(&name);
        assert!(encoded.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>\"&'".contains(&byte)));
        assert_eq!(parse(&format!("/{encoded}")).unwrap().path.into_os_string().into_vec(), name);
    }

    #[test]
    fn a_destination_is_on_the_same_host() {
        let at = |text: &str| destination(text, Some("h:1")).map(|read| read.path);
        assert_eq!(at("http://h:1/a%20b"), Some("a b".into()));
        assert_eq!(at("/a/b/"), Some("a/b".into()));
        assert_eq!(at("/a://b"), Some("a:/b".into()));
        for (named, host) in [("http://NAS:80/x", "nas"), ("https://nas/x", "nas:443")] {
            assert!(destination(named, Some(host)).is_some(), "{named}");
        }
        assert!(destination("https://nas:80/x", Some("nas")).is_none());
        for wrong in ["http://other/a", "http://h:1", "a", "http://h:1/../x"] {
            assert_eq!(at(wrong), None, "{wrong}");
        }
    }
}
