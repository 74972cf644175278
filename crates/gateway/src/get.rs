//! Handlers of GET and HEAD for files.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use hyper::header::{self, HeaderMap};
use hyper::{Response, StatusCode};
use longhaul_files::{Place, RangeFile};

use crate::body::{Body, Pieces};
use crate::caller::Caller;
use crate::condition::{self, Judged, Version};
use crate::range::{self, Wanted};
use crate::reply::{self, Reply};

const PIECE: u64 = 256 << 10;

enum Part {
    Text(String),
    Bytes(Range<u64>),
}

pub(crate) async fn file(
    caller: &Caller,
    place: Place,
    headers: &HeaderMap,
    is_head: bool,
) -> Reply {
    let file = match caller.at_disk(move || RangeFile::try_open(&place)).await {
        Ok(file) => Arc::new(file),
        Err(error) => return reply::trouble(&error),
    };
    let (size, version) = (file.stamp().size, Version::of(file.stamp()));
    let dressed = |reply| dressed(reply, &version);
    match condition::judge(headers, Some(&version), true) {
        Judged::Holds => {}
        Judged::NotModified => return dressed(reply::empty(StatusCode::NOT_MODIFIED)),
        Judged::Failed => {
            return dressed(reply::plain(
                StatusCode::PRECONDITION_FAILED,
                "the file's version does not meet the condition of the request",
            ));
        }
    }
    let counts = !is_head && condition::ranges_count(headers, &version);
    let header = condition::text(headers, header::RANGE).filter(|_| counts);
    let (status, kind, content_range, parts) = match range::parse(header, size) {
        Wanted::Nothing => {
            let text = "the range is beyond the file";
            let reply = reply::plain(StatusCode::RANGE_NOT_SATISFIABLE, text);
            return dressed(reply::with(reply, header::CONTENT_RANGE, &format!("bytes */{size}")));
        }
        Wanted::Whole => (StatusCode::OK, PLAIN.to_owned(), None, vec![Part::Bytes(0..size)]),
        Wanted::Ranges(ranges) if ranges.len() == 1 => {
            let said = said(&ranges[0], size);
            let parts = vec![Part::Bytes(ranges[0].clone())];
            (StatusCode::PARTIAL_CONTENT, PLAIN.to_owned(), Some(said), parts)
        }
        Wanted::Ranges(ranges) => {
            // A boundary that no content has by chance: 128 bits, derived from this version.
            let boundary = version.etag.trim_matches('"').to_owned();
            let kind = format!("multipart/byteranges; boundary={boundary}");
            (StatusCode::PARTIAL_CONTENT, kind, None, multipart(ranges, size, &boundary))
        }
    };
    let length = parts.iter().map(|part| match part {
        Part::Text(text) => text.len() as u64,
        Part::Bytes(range) => range.end - range.start,
    });
    let length: u64 = length.sum();
    let body = match is_head || length == 0 {
        true => Body::whole(String::new()),
        false => {
            let (pieces, body) = Body::pieces();
            tokio::task::spawn_local(send(caller.clone(), file, parts, pieces));
            body
        }
    };
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    let reply = dressed(reply::with(reply, header::CONTENT_LENGTH, &length.to_string()));
    let reply = reply::with(reply, header::CONTENT_TYPE, &kind);
    match content_range {
        Some(said) => reply::with(reply, header::CONTENT_RANGE, &said),
        None => reply,
    }
}

/// Adds the headers of every reply about a file.
fn dressed(reply: Reply, version: &Version) -> Reply {
    let reply = reply::with(reply, header::ETAG, &version.etag);
    let reply = reply::with(reply, header::ACCEPT_RANGES, "bytes");
    match version.modified {
        Some(time) => reply::with(reply, header::LAST_MODIFIED, &httpdate::fmt_http_date(time)),
        None => reply,
    }
}

/// The content type of all files. A browser does not render a file of this type as a page of this
/// server.
const PLAIN: &str = "application/octet-stream";

/// Returns the value of the header `Content-Range`.
fn said(range: &Range<u64>, size: u64) -> String {
    format!("bytes {}-{}/{size}", range.start, range.end - 1)
}

fn multipart(ranges: Vec<Range<u64>>, size: u64, boundary: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    for range in ranges {
        let range_said = said(&range, size);
        parts.push(Part::Text(format!(
            "\r\n--{boundary}\r\ncontent-type: {PLAIN}\r\ncontent-range: {range_said}\r\n\r\n"
        )));
        parts.push(Part::Bytes(range));
    }
    parts.push(Part::Text(format!("\r\n--{boundary}--\r\n")));
    parts
}

async fn send(caller: Caller, file: Arc<RangeFile>, parts: Vec<Part>, pieces: Pieces) {
    for part in parts {
        let range = match part {
            Part::Text(text) => {
                if !pieces.send(Ok(text.into_bytes())).await {
                    return;
                }
                continue;
            }
            Part::Bytes(range) => range,
        };
        let mut start = range.start;
        while start < range.end && pieces.has_room().await {
            let (file, len) = (file.clone(), (range.end - start).min(PIECE));
            let read = caller.at_disk(move || {
                let mut bytes = vec![0; len as usize];
                let read = file.read(start, &mut bytes);
                read.map(|()| bytes).map_err(|error| io::Error::other(error.what))
            });
            let piece = read.await;
            let failed = piece.is_err();
            if !pieces.send(piece).await || failed {
                return;
            }
            start += len;
        }
    }
    pieces.end().await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caller::tests::caller;
    use crate::shared::tests::shared;

    #[tokio::test]
    async fn the_status_tells_why_a_file_cannot_be_opened() {
        let top = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("loop", top.path().join("loop")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(top.path().join("socket")).unwrap();
        let shared = shared(top.path());
        for (name, status) in [("missing", 404), ("loop", 404), ("", 409), ("socket", 500)] {
            let place = Place::Ambient(top.path().join(name));
            let reply = file(&caller(&shared, 1), place, &HeaderMap::new(), false).await;
            assert_eq!(reply.status(), status, "{name}");
        }
    }
}
