//! Handlers of requests that change files: PUT, MKCOL, DELETE, MOVE.

use std::io;
use std::pin::Pin;
use std::sync::PoisonError;

use hyper::StatusCode;
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderMap};
use longhaul_files::edit::{self, NewFile, Remains, ReplaceError, look};
use longhaul_files::list::NameKind;
use longhaul_files::{Place, RangeFile};
use tokio::time::timeout;

use crate::caller::Caller;
use crate::condition::{self, Judged, Version};
use crate::reply::{self, Reply};

/// Bytes of a body to collect before a write.
const PIECE: usize = 1 << 20;

/// Judges the conditions of a request that changes `place`. Returns whether something exists there;
/// `None` if a condition does not hold.
fn judge(place: &Place, headers: &HeaderMap) -> io::Result<Option<bool>> {
    let found = match look(place) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
        Ok(named) if named.kind == NameKind::File => {
            Some(RangeFile::open(place).ok().map(|file| Version::of(file.stamp())))
        }
        Ok(_) => Some(None),
    };
    let is_there = found.is_some();
    // Only `*` matches a folder, or a file that cannot be opened: neither has an ETag.
    let no_etag = || Version { etag: String::new(), modified: None };
    let version = found.map(|version| version.unwrap_or_else(no_etag));
    let judged = condition::judge(headers, version.as_ref(), false);
    Ok((judged == Judged::Holds).then_some(is_there))
}

fn failed() -> Reply {
    let text = "the file's version does not meet the condition of the request";
    reply::plain(StatusCode::PRECONDITION_FAILED, text)
}

/// Handles a PUT. The file gets its name only if the body is complete and the conditions in the
/// request's headers (such as `If-Match`) still hold.
pub(crate) async fn put(
    caller: &Caller,
    place: Place,
    headers: &HeaderMap,
    body: Incoming,
) -> Reply {
    if headers.contains_key(header::CONTENT_RANGE) {
        let text = "a part of a file cannot be put; send all of it";
        return reply::plain(StatusCode::BAD_REQUEST, text);
    }
    // Do not receive the body if the conditions do not hold now.
    let (at, conditions) = (place.clone(), headers.clone());
    match caller.at_disk(move || judge(&at, &conditions)).await {
        Ok(Some(_)) => {}
        Ok(None) => return failed(),
        Err(error) => return reply::trouble(&error),
    }
    match write(caller, place, headers.clone(), body).await {
        Ok(Some(true)) => reply::empty(StatusCode::NO_CONTENT),
        Ok(Some(false)) => reply::empty(StatusCode::CREATED),
        Ok(None) => failed(),
        Err(reply) => reply,
    }
}

/// Returns whether the file has replaced another one; `None` if the conditions of the request no
/// longer hold.
async fn write(
    caller: &Caller,
    place: Place,
    headers: HeaderMap,
    mut body: Incoming,
) -> Result<Option<bool>, Reply> {
    let trouble = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            reply::plain(StatusCode::CONFLICT, "the file's folder does not exist")
        }
        _ => reply::trouble(&error),
    };
    let at = place.clone();
    let mut file = caller.at_disk(move || NewFile::begin(&at)).await.map_err(trouble)?;
    let mut piece = Vec::new();
    loop {
        let next = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx));
        let late = |_| {
            let text = format!("no data for {} s", caller.idle().as_secs_f64());
            reply::plain(StatusCode::REQUEST_TIMEOUT, text)
        };
        let frame = match timeout(caller.idle(), next).await.map_err(late)? {
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
                caller.at_disk(move || file.write(&bytes).map(|()| file)).await.map_err(trouble)?;
        }
    }
    let naming = caller.naming(&place);
    let finished = caller.at_disk(move || {
        file.write(&piece)?;
        let is_new = condition::wants_nothing(&headers);
        let mut was_there = None;
        // The lock keeps other requests out. Another program can still change the file between
        // `judge` and the rename. If the file must be new, and another program has created it by
        // then, most file systems refuse the rename.
        let named = file.finish_if(!is_new, || {
            let lock = naming.lock().unwrap_or_else(PoisonError::into_inner);
            was_there = judge(&place, &headers)?;
            Ok(was_there.map(|_| lock))
        });
        match named {
            Err(error) if is_new && error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
            named => named.map(|_| was_there),
        }
    });
    finished.await.map_err(trouble)
}

pub(crate) async fn make_folder(caller: &Caller, place: Place) -> Reply {
    match caller.at_disk(move || edit::make_folder(&place)).await {
        Ok(()) => reply::empty(StatusCode::CREATED),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            reply::plain(StatusCode::CONFLICT, "the parent folder does not exist")
        }
        Err(error) => reply::trouble(&error),
    }
}

pub(crate) async fn delete(caller: &Caller, place: Place, headers: &HeaderMap) -> Reply {
    let (headers, naming) = (headers.clone(), caller.naming(&place));
    let removed = caller.at_disk(move || {
        let _lock = naming.lock().unwrap_or_else(PoisonError::into_inner);
        match judge(&place, &headers)? {
            None => Ok(failed()),
            Some(_) => edit::remove(&place).map(|()| reply::empty(StatusCode::NO_CONTENT)),
        }
    });
    removed.await.unwrap_or_else(|error| reply::trouble(&error))
}

pub(crate) async fn move_to(caller: &Caller, from: Place, to: Place, headers: &HeaderMap) -> Reply {
    let keeps = |said: &str| said.trim().eq_ignore_ascii_case("F");
    let overwrite = !condition::text(headers, overwrite()).is_some_and(keeps);
    if to.path().starts_with(from.path()) || from.path().starts_with(to.path()) {
        let text = "nothing can move onto itself, into itself, or onto a folder that holds it";
        return reply::plain(StatusCode::FORBIDDEN, text);
    }
    let (headers, naming) = (headers.clone(), caller.naming_of_both([&from, &to]));
    let moved = caller.at_disk(move || {
        let locks = naming.iter().map(|name| name.lock().unwrap_or_else(PoisonError::into_inner));
        let _locks: Vec<_> = locks.collect();
        if judge(&from, &headers)?.is_none() {
            return Ok(failed());
        }
        // The status is 404 without the source, and 409 without the destination's parent.
        look(&from)?;
        let is_missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        let renamed = match look(&to) {
            Err(error) if !is_missing(&error) => return Err(error),
            Ok(_) if overwrite => return Ok(replaced(edit::replace(&from, &to))),
            _ if overwrite => edit::rename(&from, &to),
            _ => edit::rename_new(&from, &to),
        };
        match renamed {
            Err(error) if is_missing(&error) => {
                Ok(reply::plain(StatusCode::CONFLICT, "the parent folder does not exist"))
            }
            Err(error) if !overwrite && error.kind() == io::ErrorKind::AlreadyExists => {
                Ok(reply::plain(StatusCode::PRECONDITION_FAILED, "the destination exists"))
            }
            renamed => renamed.map(|()| reply::empty(StatusCode::CREATED)),
        }
    });
    moved.await.unwrap_or_else(|error| reply::trouble(&error))
}

/// What a MOVE left behind, for the log: the replaced content under a hidden name, or a change that
/// is not synced.
#[derive(Clone)]
pub(crate) struct Left(pub(crate) String);

fn replaced(moved: Result<Option<Remains>, ReplaceError>) -> Reply {
    let (mut reply, left) = match moved {
        Ok(remains) => {
            let left = |Remains { name, error }| {
                format!("cannot remove the replaced content, now {name}: {error}")
            };
            (reply::empty(StatusCode::NO_CONTENT), remains.map(left))
        }
        Err(ReplaceError { error, is_replaced, hidden }) => {
            let (reply, what) = match is_replaced {
                true => (unsynced(), "the move is done and not synced"),
                false => (reply::trouble(&error), "the move failed"),
            };
            let hidden = hidden.map(|name| format!(", the replaced content is now {name}"));
            let has_effect = is_replaced || hidden.is_some();
            let left = has_effect.then(|| format!("{what}{}: {error}", hidden.unwrap_or_default()));
            (reply, left)
        }
    };
    if let Some(left) = left {
        reply.extensions_mut().insert(Left(left));
    }
    reply
}

fn unsynced() -> Reply {
    let text = "the move is done, but the server's disk has not confirmed it";
    reply::plain(StatusCode::INTERNAL_SERVER_ERROR, text)
}

fn overwrite() -> header::HeaderName {
    header::HeaderName::from_static("overwrite")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::caller::tests::caller;
    use crate::shared::tests::shared;

    #[test]
    fn a_move_judges_the_source_only_while_no_other_request_changes_it() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let top = tempfile::tempdir().unwrap();
        let soon = Duration::from_millis(100);
        let shared = shared(top.path());
        let place = |name: &str| Place::Ambient(top.path().join(name));
        std::fs::write(top.path().join("a"), "old").unwrap();
        let etag = Version::of(RangeFile::open(&place("a")).unwrap().stamp()).etag;
        let caller = caller(&shared, 1);
        let headers = HeaderMap::from_iter([(header::IF_MATCH, etag.parse().unwrap())]);
        let naming = shared.naming(&place("a"));
        let held = naming.lock().unwrap();
        let mut moved = Box::pin(move_to(&caller, place("a"), place("b"), &headers));
        let waits = runtime.block_on(async { timeout(soon, &mut moved).await.is_err() });
        assert!(waits, "the move waits for the lock");
        std::fs::write(top.path().join("a"), "newer").unwrap();
        drop(held);
        assert_eq!(runtime.block_on(moved).status(), StatusCode::PRECONDITION_FAILED);
        assert!(top.path().join("a").exists() && !top.path().join("b").exists());
    }

    #[test]
    fn the_reply_to_a_move_carries_what_the_move_left_behind() {
        let error = io::Error::from(io::ErrorKind::PermissionDenied);
        let mut reply = replaced(Ok(Some(Remains { name: ".old.lh-small".to_owned(), error })));
        assert_eq!(reply.status(), StatusCode::NO_CONTENT);
        let Left(text) = reply.extensions_mut().remove().unwrap();
        assert_eq!(
            text,
            "cannot remove the replaced content, now .old.lh-small: permission denied"
        );
        assert!(replaced(Ok(None)).extensions().get::<Left>().is_none());
        let error = io::Error::other("bad disk");
        let hidden = Some(".old.lh-small".to_owned());
        let failed = ReplaceError { error, is_replaced: false, hidden };
        let mut reply = replaced(Err(failed));
        assert_eq!(reply.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let Left(text) = reply.extensions_mut().remove().unwrap();
        assert_eq!(text, "the move failed, the replaced content is now .old.lh-small: bad disk");
        let error = io::Error::other("bad disk");
        let unsynced = ReplaceError { error, is_replaced: true, hidden: None };
        let mut reply = replaced(Err(unsynced));
        assert_eq!(reply.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let Left(text) = reply.extensions_mut().remove().unwrap();
        assert_eq!(text, "the move is done and not synced: bad disk");
        let error = io::Error::from(io::ErrorKind::NotFound);
        let reply = replaced(Err(error.into()));
        assert_eq!(reply.status(), StatusCode::NOT_FOUND);
        assert!(reply.extensions().get::<Left>().is_none());
    }
}
