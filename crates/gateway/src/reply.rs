//! Replies without file contents: statuses and reasons.

use std::io;

use hyper::header::{self, HeaderValue};
use hyper::{Response, StatusCode};
use rustix::io::Errno;

use crate::body::Body;

pub(crate) type Reply = Response<Body>;

pub(crate) fn plain(status: StatusCode, text: impl Into<String>) -> Reply {
    let mut text = text.into();
    if !text.is_empty() {
        text.push('\n');
    }
    let mut reply = Response::new(Body::whole(text));
    *reply.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    reply.headers_mut().insert(header::CONTENT_TYPE, kind);
    reply
}

pub(crate) fn empty(status: StatusCode) -> Reply {
    let mut reply = Response::new(Body::whole(String::new()));
    *reply.status_mut() = status;
    reply
}

pub(crate) fn with(mut reply: Reply, name: header::HeaderName, value: &str) -> Reply {
    if let Ok(value) = HeaderValue::from_str(value) {
        reply.headers_mut().insert(name, value);
    }
    reply
}

/// Returns the reply for an I/O error. The text never contains a path of this host.
pub(crate) fn trouble(error: &io::Error) -> Reply {
    let (status, text) = match error.kind() {
        io::ErrorKind::NotFound => (StatusCode::NOT_FOUND, "not found"),
        io::ErrorKind::NotADirectory => (StatusCode::NOT_FOUND, "it is not a folder"),
        io::ErrorKind::PermissionDenied => (StatusCode::FORBIDDEN, "the server has no permission"),
        io::ErrorKind::IsADirectory => (StatusCode::CONFLICT, "it is a folder"),
        io::ErrorKind::AlreadyExists => (StatusCode::METHOD_NOT_ALLOWED, "the name exists"),
        io::ErrorKind::InvalidInput | io::ErrorKind::DirectoryNotEmpty => {
            (StatusCode::CONFLICT, "the request is not possible for this name")
        }
        io::ErrorKind::InvalidFilename => (StatusCode::BAD_REQUEST, "the name is too long"),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            (StatusCode::INSUFFICIENT_STORAGE, "the disk is full")
        }
        io::ErrorKind::FileTooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "the file is too large"),
        _ if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            (StatusCode::NOT_FOUND, "the links form a loop")
        }
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "the server had an I/O error"),
    };
    plain(status, text)
}
