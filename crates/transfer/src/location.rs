//! The sources and destinations of copies: a local path, `[user@]host:path` over ssh,
//! `lh://host[:port]/path`, or the address of a file on an HTTP server.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use longhaul_fetch::Url;
use longhaul_net::zone;

use crate::error::public;
use crate::error::{Error, ErrorKind};
use crate::session::known::server_name;

/// Default port of a server: UDP for control, and TCP if UDP does not pass. The next port is UDP
/// for the data.
pub const DEFAULT_PORT: u16 = 7717;

const SCHEME: &[u8] = b"lh://";

/// A source or the destination of a copy. `Display` and `Debug` omit the password.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Location {
    /// A path on this host.
    Local(PathBuf),
    /// A path on a host that ssh reaches; relative paths start in the home folder.
    Ssh {
        /// The argument for ssh: `host` or `user@host`, including aliases of the user's ssh config.
        destination: String,
        /// The path on that host.
        path: PathBuf,
    },
    /// A path below the root of a running `longhaul serve`.
    Daemon {
        /// A name or an address; IPv6 without brackets, but with its zone.
        host: String,
        /// The control port.
        port: u16,
        /// The path relative to the root.
        path: PathBuf,
    },
    /// A file on an HTTP server; only as a source.
    Http {
        /// The address as the user wrote it, with a password if there is one. The text of the
        /// location does not show the password.
        url: String,
        /// The last component of the address's path, decoded; empty if there is none.
        path: PathBuf,
    },
}

impl Location {
    /// Parses a location as a command line has it; paths need not be UTF-8.
    ///
    /// As with scp, a text with a colon is remote, unless a `/` precedes the colon or the text
    /// begins with the colon; `./a:b` is local.
    ///
    /// # Errors
    /// [`Usage`](ErrorKind::Usage): the address is invalid, or longhaul does not support the
    /// scheme.
    pub fn parse(text: &OsStr) -> Result<Location, public::Error> {
        Ok(Location::read(text)?)
    }

    fn read(text: &OsStr) -> Result<Location, Error> {
        let bytes = text.as_bytes();
        if bytes.is_empty() {
            return Err(usage("an empty path", "name a file or folder"));
        }
        if let Some(rest) = bytes.strip_prefix(SCHEME) {
            return daemon(text, rest);
        }
        if Url::is_one(bytes) {
            // The error must not print a password.
            let wrong = |_| usage("an address that is not UTF-8", "encode other bytes as %XX");
            let url = str::from_utf8(bytes).map_err(wrong)?;
            let read =
                Url::parse(url).map_err(|error| Error::new(ErrorKind::Usage, error.to_string()))?;
            let path = path_of(&read.name().unwrap_or_default());
            return Ok(Location::Http { url: url.to_owned(), path });
        }
        if let Some(scheme) = scheme(bytes) {
            let what = format!("longhaul does not support {scheme}://");
            return Err(usage(
                what,
                "write lh://host[:port]/path, https://…, host:path or a local path",
            ));
        }
        match remote_split(bytes) {
            Some(colon) => ssh(text, &bytes[..colon], &bytes[colon + 1..]),
            None => Ok(Location::Local(PathBuf::from(text))),
        }
    }

    /// Returns the path of the location on its host; for an HTTP address, only the last component.
    pub fn path(&self) -> &Path {
        let (Location::Local(path)
        | Location::Ssh { path, .. }
        | Location::Daemon { path, .. }
        | Location::Http { path, .. }) = self;
        path
    }

    fn path_mut(&mut self) -> &mut PathBuf {
        let (Location::Local(path)
        | Location::Ssh { path, .. }
        | Location::Daemon { path, .. }
        | Location::Http { path, .. }) = self;
        path
    }

    /// Returns the location of another path on the same host. The address of an HTTP location stays
    /// the same.
    #[must_use]
    pub fn with_path(&self, to: PathBuf) -> Location {
        let mut other = self.clone();
        *other.path_mut() = to;
        other
    }

    /// Returns the location of this folder's content: its path ends with a slash.
    #[must_use]
    pub fn contents(mut self) -> Location {
        let path = self.path_mut();
        // An empty path means the root or the home folder, and gets no slash.
        if !path.as_os_str().is_empty() {
            path.push("");
        }
        self
    }

    /// Returns the name of the server of a location `lh://host[:port]/path`, as `host:port`.
    pub fn server(&self) -> Option<String> {
        match self {
            Location::Daemon { host, port, .. } => Some(server_name(host, *port)),
            Location::Local(_) | Location::Ssh { .. } | Location::Http { .. } => None,
        }
    }

    /// Returns whether the location is on this host.
    pub fn is_local(&self) -> bool {
        matches!(self, Location::Local(_))
    }
}

impl FromStr for Location {
    type Err = public::Error;

    fn from_str(text: &str) -> Result<Location, public::Error> {
        Location::parse(OsStr::new(text))
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Local(path) => write!(f, "{}", path.display()),
            Location::Ssh { destination, path } => {
                let user = destination.rfind('@').map_or(0, |at| at + 1);
                let (user, host) = destination.split_at(user);
                match host.contains(':') {
                    true => write!(f, "{user}[{host}]:{}", path.display()),
                    false => write!(f, "{user}{host}:{}", path.display()),
                }
            }
            Location::Daemon { host, port, path } => {
                match host.contains(':') {
                    true => write!(f, "lh://[{}]", zone::write(host))?,
                    false => write!(f, "lh://{host}")?,
                }
                if *port != DEFAULT_PORT {
                    write!(f, ":{port}")?;
                }
                write!(f, "/{}", path.display())
            }
            Location::Http { url, path } => match Url::parse(url) {
                Ok(url) => url.fmt(f),
                Err(_) => write!(f, "{}", path.display()),
            },
        }
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Location({self})")
    }
}

fn usage(what: impl Into<String>, advice: &str) -> Error {
    Error::new(ErrorKind::Usage, what).advise(advice)
}

fn scheme(bytes: &[u8]) -> Option<&str> {
    let colon = bytes.iter().position(|b| *b == b':')?;
    let name = &bytes[..colon];
    let plain = !name.is_empty() && name.iter().all(u8::is_ascii_alphanumeric);
    (plain && bytes[colon..].starts_with(b"://")).then(|| str::from_utf8(name).ok())?
}

/// Returns the position of the colon between host and path, if the text names a remote path.
fn remote_split(bytes: &[u8]) -> Option<usize> {
    let mut in_brackets = false;
    for (at, byte) in bytes.iter().enumerate() {
        let opens = at == 0 || bytes[at - 1] == b'@';
        match byte {
            b'[' if opens => in_brackets = true,
            b']' => in_brackets = false,
            b'/' => return None,
            // `:path` alone is a local name, as with scp.
            b':' if !in_brackets => return (at > 0).then_some(at),
            _ => {}
        }
    }
    None
}

fn ssh(text: &OsStr, destination: &[u8], path: &[u8]) -> Result<Location, Error> {
    let destination = utf8(text, destination)?;
    let (user, host) = match destination.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, destination),
    };
    let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    let dash = |part: &str| part.starts_with('-');
    if host.is_empty() || user == Some("") {
        return Err(usage(format!("no host in '{}'", text.display()), "write [user@]host:path"));
    }
    // Ssh would parse such a name as an option.
    if dash(host) || dash(destination) {
        let what = format!("the host in '{}' starts with '-'", text.display());
        return Err(usage(what, "write ./ before the path if it is a local one"));
    }
    let destination = match user {
        Some(user) => format!("{user}@{host}"),
        None => host.to_owned(),
    };
    Ok(Location::Ssh { destination, path: path_of(path) })
}

fn daemon(text: &OsStr, rest: &[u8]) -> Result<Location, Error> {
    let slash = rest.iter().position(|b| *b == b'/').unwrap_or(rest.len());
    let authority = utf8(text, &rest[..slash])?;
    let wrong = |what: &str| {
        let what = format!("{what} in '{}'", text.display());
        usage(what, "write lh://host[:port]/path, an IPv6 address in brackets")
    };
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']').ok_or_else(|| wrong("no ']' after the address"))?,
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    if host.is_empty() {
        return Err(wrong("no host"));
    }
    let host = match authority.starts_with('[') {
        true => zone::read(host).map_err(wrong)?,
        false => host.to_owned(),
    };
    let port = match port.strip_prefix(':') {
        Some("") => return Err(wrong("no port after the ':'")),
        Some(port) => port
            .parse()
            .ok()
            .filter(|port| *port != 0)
            .ok_or_else(|| wrong(&format!("{port} is not a port from 1 to 65535")))?,
        None if port.is_empty() => DEFAULT_PORT,
        None => return Err(wrong("neither port nor path after the address")),
    };
    if host.contains('@') {
        return Err(wrong("an unsupported user name"));
    }
    // An absolute path would leave the root, so `lh://host//x` loses all its leading slashes.
    let path = rest[slash..].iter().position(|b| *b != b'/').map(|at| &rest[slash + at..]);
    Ok(Location::Daemon { host, port, path: path_of(path.unwrap_or_default()) })
}

fn utf8<'a>(text: &OsStr, part: &'a [u8]) -> Result<&'a str, Error> {
    str::from_utf8(part).map_err(|_| {
        usage(format!("the host or URL in '{}' is not UTF-8", text.display()), "check the name")
    })
}

fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(path: &str) -> Location {
        Location::Local(path.into())
    }

    fn ssh(destination: &str, path: &str) -> Location {
        Location::Ssh { destination: destination.into(), path: path.into() }
    }

    fn daemon(host: &str, port: u16, path: &str) -> Location {
        Location::Daemon { host: host.into(), port, path: path.into() }
    }

    fn parse(text: &str) -> Location {
        text.parse().unwrap()
    }

    #[test]
    fn a_host_and_a_colon_before_any_slash_make_a_location_remote() {
        assert_eq!(parse("a/b"), local("a/b"));
        assert_eq!(parse("./a:b"), local("./a:b"));
        assert_eq!(parse("/a:b"), local("/a:b"));
        assert_eq!(parse(":b"), local(":b"));
        assert_eq!(parse("host:a:b"), ssh("host", "a:b"));
        assert_eq!(parse("me@host:"), ssh("me@host", ""));
        assert_eq!(parse("me@host:/data/"), ssh("me@host", "/data/"));
    }

    #[test]
    fn brackets_hold_an_ipv6_address() {
        assert_eq!(parse("[::1]:x"), ssh("::1", "x"));
        assert_eq!(parse("me@[fe80::1]:x"), ssh("me@fe80::1", "x"));
        assert_eq!(parse("lh://[::1]/x"), daemon("::1", 7717, "x"));
        assert_eq!(parse("lh://[::1]:9/x"), daemon("::1", 9, "x"));
        assert_eq!(parse("a[1].txt"), local("a[1].txt"));
        // A zone is passed to ssh unchanged.
        assert_eq!(parse("me@[fe80::1%eth0]:x"), ssh("me@fe80::1%eth0", "x"));
        assert_eq!(parse("lh://[fe80::1%eth0]:9/x"), daemon("fe80::1%eth0", 9, "x"));
        assert_eq!(parse("lh://[fe80::1%25eth0]/x"), daemon("fe80::1%eth0", 7717, "x"));
    }

    #[test]
    fn a_server_path_is_relative_to_the_root() {
        assert_eq!(parse("lh://host/a/b/"), daemon("host", 7717, "a/b/"));
        assert_eq!(parse("lh://host:9///etc"), daemon("host", 9, "etc"));
        assert_eq!(parse("lh://host"), daemon("host", 7717, ""));
    }

    #[test]
    fn an_http_location_has_the_last_component_as_path_and_prints_no_password() {
        let at = parse("https://ada:secret@h.example/a/run%2042?x=1#y");
        assert_eq!(at.path(), Path::new("run 42"));
        assert_eq!(at.to_string(), "https://h.example/a/run%2042?x=1");
        assert_eq!(format!("{at:?}"), "Location(https://h.example/a/run%2042?x=1)");
        assert!(!at.is_local() && at.server().is_none());
        assert_eq!(parse("http://h/").path(), Path::new(""));
    }

    #[test]
    fn an_invalid_location_is_a_usage_error() {
        let bad = [
            "",
            "ftp://host/x",
            "lh:///x",
            "lh://host:0/x",
            "lh://host:99999/x",
            "lh://[::1/x",
            "lh://[host]/x",
            "lh://[fe80::1%]/x",
            "lh://[::1%lo]/x",
            "lh://[::1]x/y",
            "lh://me@host/x",
            "-oProxyCommand=x:y",
            "me@-oX:y",
            "@host:x",
            "me@:x",
        ];
        for text in bad {
            let error = text.parse::<Location>().expect_err(text);
            assert_eq!(error.kind, ErrorKind::Usage, "{text}");
            assert!(error.advice().is_some(), "{text}");
        }
    }

    #[test]
    fn an_error_about_a_port_says_what_is_wrong() {
        for (text, said) in [
            ("lh://host:99999/x", "99999 is not a port from 1 to 65535 in"),
            ("lh://host:0", "0 is not a port"),
            ("lh://[::1]:ssh", "ssh is not a port"),
            ("lh://host:/x", "no port after"),
        ] {
            assert!(text.parse::<Location>().expect_err(text).what().contains(said), "{text}");
        }
    }

    #[test]
    fn a_path_need_not_be_utf8() {
        let text = OsStr::from_bytes(b"host:\xff");
        let Ok(Location::Ssh { path, .. }) = Location::parse(text) else { panic!("not ssh") };
        assert_eq!(path.as_os_str().as_bytes(), b"\xff");
        assert!(Location::parse(OsStr::from_bytes(b"\xff:x")).is_err());
    }

    #[test]
    fn an_error_about_an_invalid_http_address_prints_no_password() {
        for text in [&b"http://ada:se/cret@h/x"[..], b"https://ada:\xff-cret@h/x"] {
            let error = Location::parse(OsStr::from_bytes(text)).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Usage);
            assert!(!error.to_string().contains("cret"), "{error}");
        }
    }

    #[test]
    fn a_parsed_location_prints_the_same_text() {
        for text in [
            "a/b",
            "me@host:x",
            "[::1]:x",
            "me@[fe80::1%eth0]:x",
            "lh://host/x",
            "lh://[::1]:9/x",
            "lh://[fe80::1%eth0]/x",
        ] {
            assert_eq!(parse(text).to_string(), text);
        }
    }
}
