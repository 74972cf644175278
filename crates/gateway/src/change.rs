//! Handlers of requests that change files: PUT, MKCOL, DELETE, MOVE.

use std::io;
use std::pin::Pin;
use std::sync::Arc;

use hyper::StatusCode;
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderMap};
use longhaul_files::edit::{self, NewFile, Remains, look};
use longhaul_files::list::NameKind;
use longhaul_files::{Place, RangeFile};
use tokio::time::timeout;

use crate::condition::{self, Judged, Version};
use crate::reply::{self, Reply};
use crate::shared::Shared;

/// Bytes of a body to collect before a write.
const PIECE: usize = 1 << 20;

/// Checks the conditions of a request that changes `place`. Returns whether something exists there.
async fn judge(shared: &Shared, place: &Place, headers: &HeaderMap) -> Result<bool, Reply> {
    let place = place.clone();
    let found = shared.at_disk(move || match look(&place) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
        Ok(named) if named.kind == NameKind::File => {
            let version = RangeFile::open(&place).ok().map(|file| Version::of(file.stamp()));
            Ok(Some(version))
        }
        Ok(_) => Ok(Some(None)),
    });
    let found = found.await.map_err(|error| reply::trouble(&error))?;
    let version = match &found {
        Some(Some(version)) => Some(version.clone()),
        // Only `*` matches a folder, or a file that cannot be opened: neither has an ETag.
        Some(None) => Some(Version { etag: String::new(), modified: None }),
        None => None,
    };
    match condition::judge(headers, version.as_ref(), false) {
        Judged::Holds => Ok(found.is_some()),
        _ => {
            let text = "the file's version does not meet the condition of the request";
            Err(reply::plain(StatusCode::PRECONDITION_FAILED, text))
        }
    }
}

/// The file gets its name when the body is complete.
pub(crate) async fn put(
    shared: &Shared,
    place: Place,
    headers: &HeaderMap,
    body: Incoming,
) -> Reply {
    if headers.contains_key(header::CONTENT_RANGE) {
        let text = "a part of a file cannot be put; send all of it";
        return reply::plain(StatusCode::BAD_REQUEST, text);
    }
    let was_there = match judge(shared, &place, headers).await {
        Ok(was_there) => was_there,
        Err(reply) => return reply,
    };
    match write(shared, place, body).await {
        Ok(()) if was_there => reply::empty(StatusCode::NO_CONTENT),
        Ok(()) => reply::empty(StatusCode::CREATED),
        Err(reply) => reply,
    }
}

async fn write(shared: &Shared, place: Place, mut body: Incoming) -> Result<(), Reply> {
    let trouble = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            reply::plain(StatusCode::CONFLICT, "the file's folder does not exist")
        }
        _ => reply::trouble(&error),
    };
    let mut file = shared.at_disk(move || NewFile::begin(&place)).await.map_err(trouble)?;
    let mut piece = Vec::new();
    loop {
        let next = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx));
        let late = |_| {
            let text = format!("no data for {} s", shared.idle().as_secs_f64());
            reply::plain(StatusCode::REQUEST_TIMEOUT, text)
        };
        let frame = match timeout(shared.idle(), next).await.map_err(late)? {
            Some(Ok(frame)) => frame,
            Some(Err(_)) => {
                return Err(reply::plain(StatusCode::BAD_REQUEST, "the body ended early"));
            }
            None => break,
        };
        let Ok(data) = frame.into_data() else { continue };
        piece.extend_from_slice(&data);
        if piece.len() >= PIECE {
            let bytes = std::mem::take(&mut piece);
            file =
                shared.at_disk(move || file.write(&bytes).map(|()| file)).await.map_err(trouble)?;
        }
    }
    let finished = shared.at_disk(move || {
        file.write(&piece)?;
        file.finish()
    });
    finished.await.map_err(trouble)
}

pub(crate) async fn make_folder(shared: &Shared, place: Place) -> Reply {
    match shared.at_disk(move || edit::make_folder(&place)).await {
        Ok(()) => reply::empty(StatusCode::CREATED),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            reply::plain(StatusCode::CONFLICT, "the parent folder does not exist")
        }
        Err(error) => reply::trouble(&error),
    }
}

pub(crate) async fn delete(shared: &Shared, place: Place, headers: &HeaderMap) -> Reply {
    if let Err(reply) = judge(shared, &place, headers).await {
        return reply;
    }
    match shared.at_disk(move || edit::remove(&place)).await {
        Ok(()) => reply::empty(StatusCode::NO_CONTENT),
        Err(error) => reply::trouble(&error),
    }
}

pub(crate) async fn move_to(
    shared: &Arc<Shared>,
    from: Place,
    to: Place,
    headers: &HeaderMap,
) -> Reply {
    let keeps = |said: &str| said.trim().eq_ignore_ascii_case("F");
    let overwrite = !condition::text(headers, overwrite()).is_some_and(keeps);
    if to.path().starts_with(from.path()) || from.path().starts_with(to.path()) {
        let text = "nothing can move onto itself, into itself, or onto a folder that holds it";
        return reply::plain(StatusCode::FORBIDDEN, text);
    }
    if let Err(reply) = judge(shared, &from, headers).await {
        return reply;
    }
    let moved = shared.at_disk(move || {
        // The status is 404 without the source, and 409 without the destination's parent.
        look(&from)?;
        let is_missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        match look(&to) {
            Err(error) if is_missing(&error) => match edit::rename(&from, &to) {
                Err(error) if is_missing(&error) => {
                    Ok(reply::plain(StatusCode::CONFLICT, "the parent folder does not exist"))
                }
                renamed => renamed.map(|()| reply::empty(StatusCode::CREATED)),
            },
            Err(error) => Err(error),
            Ok(_) if !overwrite => {
                Ok(reply::plain(StatusCode::PRECONDITION_FAILED, "the destination exists"))
            }
            Ok(_) => edit::replace(&from, &to).map(replaced),
        }
    });
    moved.await.unwrap_or_else(|error| reply::trouble(&error))
}

/// The replaced content that a MOVE could not remove, for the log.
#[derive(Clone)]
pub(crate) struct Left(pub(crate) String);

fn replaced(remains: Option<Remains>) -> Reply {
    let mut reply = reply::empty(StatusCode::NO_CONTENT);
    if let Some(Remains { name, error }) = remains {
        let left = format!("cannot remove the replaced content, now {name}: {error}");
        reply.extensions_mut().insert(Left(left));
    }
    reply
}

fn overwrite() -> header::HeaderName {
    header::HeaderName::from_static("overwrite")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_carries_the_name_of_replaced_content_that_could_not_be_removed() {
        let error = io::Error::from(io::ErrorKind::PermissionDenied);
        let mut reply = replaced(Some(Remains { name: ".old.lh-small".to_owned(), error }));
        assert_eq!(reply.status(), StatusCode::NO_CONTENT);
        let Left(text) = reply.extensions_mut().remove().unwrap();
        assert_eq!(
            text,
            "cannot remove the replaced content, now .old.lh-small: permission denied"
        );
        assert!(replaced(None).extensions().get::<Left>().is_none());
    }
}
