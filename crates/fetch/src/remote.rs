//! One version of a remote file, and ranges of it.

use std::io::{self, Read};
use std::ops::Range;
use std::time::SystemTime;

use ureq::ResponseExt;
use ureq::http::{HeaderMap, Uri};

use crate::client::Client;
use crate::digest::Digest;
use crate::error::{Error, Kind};
use crate::headers::{self, text};
use crate::url::Url;

/// One version of a file, as the server described it.
#[derive(Clone, Debug)]
pub struct Remote {
    /// The address after all redirects.
    at: Uri,
    is_redirected: bool,
    size: u64,
    etag: Option<String>,
    modified: Option<SystemTime>,
    has_ranges: bool,
    digest: Option<Digest>,
}

impl Remote {
    /// Returns the length in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the host that sends the content, with its port if there is one.
    pub fn host(&self) -> &str {
        self.at.authority().map_or("", |authority| authority.as_str())
    }

    /// Returns whether the content is sent encrypted.
    pub fn is_https(&self) -> bool {
        self.at.scheme_str() == Some("https")
    }

    /// Returns whether a redirect led to another address than the client requested.
    pub fn is_redirected(&self) -> bool {
        self.is_redirected
    }

    /// Returns the time of the last modification, if the server reports it.
    pub fn modified(&self) -> Option<SystemTime> {
        self.modified
    }

    /// Returns whether the server sends ranges.
    pub fn has_ranges(&self) -> bool {
        self.has_ranges
    }

    /// Returns the digest of the whole file, if the server publishes one.
    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// Returns a text that identifies this version of the file at the address that the client
    /// requested. `None` if the server reports neither a strong `ETag` nor a modification time.
    pub fn version(&self, client: &Client) -> Option<String> {
        let (url, size) = (client.url(), self.size);
        match (&self.etag, self.modified) {
            // Leaves out the query string, because a signed address has a new one each time.
            (Some(etag), _) => Some(format!("{} {} {size} {etag}", url.host(), url.path())),
            (None, Some(modified)) => {
                Some(format!("{url} {size} {}", httpdate::fmt_http_date(modified)))
            }
            (None, None) => None,
        }
    }

    /// Returns whether a reply with `headers` can be of this version: the strong `ETag` and the
    /// `Last-Modified` of the reply are each missing, or equal to those of this version.
    fn is_in(&self, headers: &HeaderMap) -> bool {
        let etag = headers::etag(headers);
        let modified = headers::modified(headers);
        (etag.is_none() || etag == self.etag) && (modified.is_none() || modified == self.modified)
    }

    /// Returns the value of `If-Range`, so that the server sends a range only of this version.
    fn validator(&self) -> Option<String> {
        self.etag.clone().or_else(|| self.modified.map(httpdate::fmt_http_date))
    }
}

impl Client {
    /// Asks for the version of the file, and whether its server sends ranges.
    ///
    /// # Errors
    /// The server cannot be reached, refuses, has no such file, sends no length, or sends an
    /// invalid reply.
    pub fn open(&self) -> Result<Remote, Error> {
        let uri = self.url().uri();
        let want = ("want-repr-digest", "sha-256=5, sha-512=3, md5=1");
        let fields = [("range", "bytes=0-0"), want];
        let mut reply = self.send(false, uri, &fields)?;
        let moved = reply.get_uri().clone();
        if reply.status().as_u16() == 401 && moved != *uri && self.is_own(&moved) {
            // Credentials are not repeated after a redirect, even within one server. The target
            // is the same server here, so ask again with them.
            reply = self.send(false, &moved, &fields)?;
        }
        let (status, at) = (reply.status().as_u16(), reply.get_uri().clone());
        let found = reply.headers();
        let range = text(found, "content-range");
        let unknown = || {
            if at.path().ends_with('/') {
                let what = format!("{} is a folder", self.url());
                let advice = "name a file in it: over HTTP, one command copies one file";
                return Error::new(Kind::File, what).advise(advice);
            }
            let what = format!("the server of {} does not say how long the file is", self.url());
            Error::new(Kind::File, what).advise("use a tool that reads to the end, such as curl")
        };
        let (size, has_ranges) = match status {
            206 => {
                let (first, end, total) =
                    range.and_then(headers::content_range).ok_or_else(|| {
                        lie(self.url(), "a part without a valid Content-Range".to_owned())
                    })?;
                if (first, end) != (0, 1) {
                    let what = format!("bytes {first} to {end} instead of 0 to 1");
                    return Err(lie(self.url(), what));
                }
                (total, true)
            }
            // An empty file has no first byte, so the range is invalid.
            416 if range.and_then(headers::unsatisfied) == Some(0) => (0, true),
            200 => {
                let length = text(found, "content-length").and_then(headers::number);
                (length.ok_or_else(unknown)?, false)
            }
            status => return Err(self.refused(status, found)),
        };
        let mut remote = Remote {
            is_redirected: at != *uri,
            at,
            size,
            etag: headers::etag(found),
            modified: headers::modified(found),
            has_ranges,
            // `Content-MD5` covers only the part that was sent.
            digest: digest(found, !has_ranges),
        };
        if has_ranges && remote.digest.is_none() {
            remote.digest = self.digest_by_head(&remote, want);
        }
        Ok(remote)
    }

    fn digest_by_head(&self, remote: &Remote, want: (&str, &str)) -> Option<Digest> {
        let reply =
            self.send(true, &remote.at, &[want, ("want-digest", "sha-256, md5;q=0.5")]).ok()?;
        let found = reply.headers();
        let is_same = reply.status().as_u16() == 200
            && remote.is_in(found)
            && text(found, "content-length").and_then(headers::number) == Some(remote.size);
        is_same.then(|| digest(found, true))?
    }

    /// Starts to read `range` of `remote`; the reply may have only the beginning of the range. If
    /// the server sends no ranges, `range` must be the whole file.
    ///
    /// # Errors
    /// The file has changed, the connection was lost, or the server refuses or sends other bytes
    /// than requested.
    pub fn read(&self, remote: &Remote, range: Range<u64>) -> Result<Body, Error> {
        let (bytes, validator) =
            (format!("bytes={}-{}", range.start, range.end.saturating_sub(1)), remote.validator());
        let mut fields = Vec::new();
        if remote.has_ranges {
            fields.push(("range", &*bytes));
            fields.extend(validator.as_ref().map(|validator| ("if-range", &**validator)));
        }
        let reply = self.send(false, &remote.at, &fields)?;
        let (status, found) = (reply.status().as_u16(), reply.headers());
        let url = self.url();
        let changed = || Error::new(Kind::Changed, format!("{url} has changed"));
        let lie = |what: String| lie(url, what);
        let end = match (status, remote.has_ranges) {
            (206, true) => {
                let answered = text(found, "content-range").and_then(headers::content_range);
                let (first, end, total) = answered
                    .ok_or_else(|| lie("a part without a valid Content-Range".to_owned()))?;
                if total != remote.size || !remote.is_in(found) {
                    return Err(changed());
                }
                if first != range.start || end > range.end {
                    let Range { start, end: until } = &range;
                    let what = format!("bytes {first} to {end} instead of {start} to {until}");
                    return Err(lie(what));
                }
                end
            }
            (200, _) if !remote.is_in(found) => return Err(changed()),
            (200, true) => return Err(lie("the whole file instead of a range".to_owned())),
            (200, false) => match text(found, "content-length").and_then(headers::number) {
                Some(length) if length == remote.size => range.end,
                _ => return Err(changed()),
            },
            _ => return Err(self.refused(status, found)),
        };
        let host = url.host().to_owned();
        let reader = reply.into_body().into_with_config().limit(u64::MAX).reader();
        Ok(Body { reader, left: end - range.start, host })
    }
}

/// Returns the error for a reply that does not answer the request; a retry may get a correct reply.
fn lie(url: &Url, what: String) -> Error {
    Error::new(Kind::Lost, format!("{}: the server sent {what}", url.host()))
}

fn digest(found: &HeaderMap, is_whole: bool) -> Option<Digest> {
    let md5 = text(found, "content-md5").filter(|_| is_whole);
    Digest::strongest(text(found, "repr-digest"), text(found, "digest"), md5)
}

/// The bytes of a range, as they arrive.
pub struct Body {
    reader: ureq::BodyReader<'static>,
    left: u64,
    host: String,
}

impl Body {
    /// Returns how many bytes are left.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Fills `buf`, and calls `came` with the length of each piece.
    ///
    /// # Errors
    /// The connection ended early, was silent for too long, or was lost; or the range has fewer
    /// bytes than `buf`.
    pub fn fill(&mut self, buf: &mut [u8], came: &dyn Fn(u64)) -> Result<(), Error> {
        let lost = |host: &str, why: &str| Error::new(Kind::Lost, format!("{host}: {why}"));
        if buf.len() as u64 > self.left {
            return Err(lost(&self.host, "the server sent fewer bytes than requested"));
        }
        let mut at = 0;
        while at < buf.len() {
            match self.reader.read(&mut buf[at..]) {
                Ok(0) => return Err(lost(&self.host, "the reply ended early")),
                Ok(len) => {
                    at += len;
                    self.left -= len as u64;
                    came(len as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::of_request(&self.host, error.into())),
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Body({} left)", self.left)
    }
}
