//! The address of a file: `http://` or `https://`.

use std::fmt;

use data_encoding::BASE64;
use ureq::http::Uri;

use crate::error::{Error, Kind};

/// Maximum length of an address in bytes.
const MOST: usize = 8192;

/// The address of a file, without a fragment. Its text form has no user and no password.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    uri: Uri,
    /// `user:password`, from the address.
    user: Option<String>,
}

impl Url {
    /// Returns whether `text` starts like an HTTP address.
    pub fn is_one(text: &[u8]) -> bool {
        [&b"http://"[..], b"https://"].iter().any(|scheme| {
            text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        })
    }

    /// Parses an address as a user writes it. In the path and the query, spaces, non-ASCII
    /// characters and other characters that an address cannot have are encoded as `%XX`.
    ///
    /// # Errors
    /// [`Kind::Usage`]: no scheme or host, an invalid user, port or path, or more than 8 KiB.
    pub fn parse(text: &str) -> Result<Url, Error> {
        let wrong = |why: &str| {
            let shown = crate::error::cut(&without_user(text));
            Error::new(Kind::Usage, format!("{why} in the address '{shown}'"))
                .advise("write https://host[:port]/path")
        };
        let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong("no scheme"))?;
        let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(decode(user)), host),
            None => (None, authority),
        };
        if host.is_empty() || host.starts_with(':') {
            return Err(wrong("no host"));
        }
        let user = user.map(String::from_utf8).transpose().map_err(|_| wrong("an invalid user"))?;
        let slash = if path.starts_with('/') { "" } else { "/" };
        let whole = format!("{}://{host}{slash}{}", scheme.to_ascii_lowercase(), encode(path));
        if whole.len() > MOST {
            return Err(wrong("more than 8 KiB"));
        }
        let uri: Uri = whole.parse().map_err(|_| wrong("an invalid part"))?;
        let port = host.rsplit_once(':').map(|(_, port)| port).filter(|port| !port.contains(']'));
        let is_port = |port: &str| {
            port.bytes().all(|byte| byte.is_ascii_digit())
                && port.parse::<u16>().is_ok_and(|n| n > 0)
        };
        if !port.is_none_or(is_port) {
            return Err(wrong("an invalid port"));
        }
        Ok(Url { uri, user })
    }

    /// Returns the last part of the path, decoded; `None` if the path ends with a slash.
    pub fn name(&self) -> Option<Vec<u8>> {
        let name = self.uri.path().rsplit('/').next().filter(|name| !name.is_empty())?;
        Some(decode(name))
    }

    /// Returns whether the connection is encrypted.
    pub fn is_https(&self) -> bool {
        self.uri.scheme_str() == Some("https")
    }

    /// Returns the host, with its port if there is one.
    pub fn host(&self) -> &str {
        self.uri.authority().map_or("", |authority| authority.as_str())
    }

    pub(crate) fn path(&self) -> &str {
        self.uri.path()
    }

    pub(crate) fn uri(&self) -> &Uri {
        &self.uri
    }

    /// Returns the value of `Authorization` for the user in the address; `None` without a user.
    pub(crate) fn basic(&self) -> Option<String> {
        self.user.as_ref().map(|user| format!("Basic {}", BASE64.encode(user.as_bytes())))
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.uri.fmt(f)
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Url({})", self.uri)
    }
}

/// Returns an address, valid or not, without everything before its last `@`. A password may contain
/// `/`, `?`, `#` or `://` that are not encoded, so any text before an `@` may belong to a password.
fn without_user(text: &str) -> String {
    match text.rsplit_once('@') {
        Some((_, rest)) => format!("...@{rest}"),
        None => text.to_owned(),
    }
}

/// Encodes bytes that an address cannot have; `%` stays as it is.
fn encode(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'!'..=b'~' if !b"\"<>\\^`{|}".contains(&byte) => out.push(byte.into()),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// Decodes `%XX`; any other `%` stays.
fn decode(text: &str) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((first, behind)) = rest.split_first() {
        let pair =
            behind.get(..2).and_then(|two| data_encoding::HEXUPPER_PERMISSIVE.decode(two).ok());
        match pair.filter(|_| *first == b'%') {
            Some(byte) => {
                out.extend(byte);
                rest = &behind[2..];
            }
            None => {
                out.push(*first);
                rest = behind;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn an_address_has_a_name_a_host_and_no_password_in_its_text() {
        let it = url("HTTPS://ada:s%40crét@h.example:8443/a/run%2042.h5?x=1#part");
        assert_eq!(it.name().unwrap(), b"run 42.h5");
        assert_eq!((it.host(), it.is_https()), ("h.example:8443", true));
        assert_eq!(it.to_string(), "https://h.example:8443/a/run%2042.h5?x=1");
        assert!(!format!("{it:?}").contains("cr"));
        assert_eq!(
            it.basic().unwrap(),
            format!("Basic {}", BASE64.encode("ada:s@crét".as_bytes()))
        );
    }

    #[test]
    fn an_address_has_an_encoded_path_and_a_decoded_name() {
        let it = url("http://[::1]:80/a b/ü%zz%2f");
        assert_eq!(it.to_string(), "http://[::1]:80/a%20b/%C3%BC%zz%2f");
        assert_eq!(it.name().unwrap(), "ü%zz/".as_bytes());
        assert_eq!(url("http://h").to_string(), "http://h/");
        assert_eq!(url("http://h?q").to_string(), "http://h/?q");
        for nameless in ["http://h", "http://h/", "http://h/a/", "http://h/a/?b"] {
            assert_eq!(url(nameless).name(), None, "{nameless}");
        }
    }

    #[test]
    fn an_address_with_a_wrong_host_or_port_is_refused_without_showing_its_password() {
        for wrong in [
            "http://",
            "http:///x",
            "http://:80/x",
            "http://h:/x",
            "http://h:0/x",
            "http://h:99999/x",
            "http://a b/x",
            "http://[::1/x",
        ] {
            assert_eq!(Url::parse(wrong).unwrap_err().kind, Kind::Usage, "{wrong}");
        }
        for wrong in [
            "http://ada:se@cret@h:0/x@y",
            "http://ada:se@cret@/x@y",
            "ada:se@cret@h/x",
            "http://ada:se/cret@h/x",
            "http://ada:se?cret@h/x",
            "http://ada:se#cret@h/x",
            "http://ada:0/cret@h/x",
            "x:cret://ada@h:0/x",
        ] {
            let shown = Url::parse(wrong).unwrap_err().to_string();
            assert!(!shown.contains("cret"), "{shown}");
        }
        let shown = Url::parse("http://ada:cret@h:0/x").unwrap_err().to_string();
        assert!(shown.contains("an invalid port in the address '...@h:0/x'"), "{shown}");
        assert!(Url::is_one(b"HTTP://x") && Url::is_one(b"https://") && !Url::is_one(b"http:/x"));
    }
}
