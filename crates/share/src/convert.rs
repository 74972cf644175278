//! Converts and validates the messages of a shared tree.

use std::sync::Arc;

use longhaul_proto::share::{
    Change, Condition, Disk, Edit, Entry, Hold, Key, MAX_VALUE, Piece, Prefix, Sent,
};
use longhaul_session::{Error, Kind};

use crate::messages::{self, Answer, Item, Part, Put};

fn wrong(what: String) -> Error {
    Error::new(Kind::Usage, what)
}

pub(crate) fn key(text: &str) -> Result<Key, Error> {
    Key::new(text).map_err(|error| wrong(format!("this is not a key: {error}")))
}

/// Parses a prefix from a peer.
///
/// # Errors
/// The text is neither empty nor a valid key.
pub fn prefix(text: &str) -> Result<Prefix, Error> {
    Prefix::new(text).map_err(|error| wrong(format!("this is not a key: {error}")))
}

fn value(value: Vec<u8>) -> Result<Arc<[u8]>, Error> {
    match value.len() <= MAX_VALUE {
        true => Ok(value.into()),
        false => Err(wrong(format!("a value has {} bytes; {MAX_VALUE} is the limit", value.len()))),
    }
}

/// Returns the edit that a client requests.
///
/// # Errors
/// The request is invalid.
pub fn edit(put: Put) -> Result<Edit, Error> {
    let condition = match (put.version, put.not_since) {
        (None, None) => Condition::Always,
        (Some(version), None) => Condition::Version(version),
        (None, Some(revision)) => Condition::NotSince(revision),
        (Some(_), Some(_)) => return Err(wrong("an edit has two conditions".to_owned())),
    };
    let value = put.value.map(value).transpose()?;
    Ok(Edit { key: key(&put.key)?, value, condition, owner: None })
}

/// Returns the presence (a value that ends with its writer's stream) that a client restores.
///
/// # Errors
/// The request is invalid.
pub fn hold(hold: messages::Hold) -> Result<Hold, Error> {
    let messages::Hold { key: name, value: bytes, version, strict: is_strict, .. } = hold;
    Ok(Hold { key: key(&name)?, value: value(bytes)?, version, is_strict })
}

pub(crate) fn held(id: u64, hold: Hold) -> messages::Hold {
    let Hold { key, value, version, is_strict: strict } = hold;
    messages::Hold { id, key: key.as_str().to_owned(), value: value.to_vec(), version, strict }
}

pub(crate) fn put(sent: Sent) -> Put {
    let Sent { number, wish, condition, again } = sent;
    let (version, not_since) = match condition {
        Condition::Always => (None, None),
        Condition::Version(version) => (Some(version), None),
        Condition::NotSince(revision) => (None, Some(revision)),
    };
    let (key, value) = (wish.key.as_str().to_owned(), wish.value.map(|value| value.to_vec()));
    Put { id: number * 2 + 1, key, value, version, not_since, presence: wish.presence, again }
}

pub(crate) fn item(key: &Key, entry: Entry) -> Item {
    let Entry { value, version, owner } = entry;
    let (key, presence) = (key.as_str().to_owned(), owner.is_some());
    Item { key, value: Some(value.to_vec()), version, presence }
}

fn entry(item: Item) -> Result<(Key, Entry), Error> {
    let none = || wrong("the server sent an entry without a value".to_owned());
    let owner = item.presence.then_some(0);
    let value = value(item.value.ok_or_else(none)?)?;
    Ok((key(&item.key)?, Entry { value, version: item.version, owner }))
}

/// Returns the entry of the key `asked` in an answer; `None` if the answer has no entry.
pub(crate) fn answered(answer: &Answer, asked: &Key) -> Result<Option<Entry>, Error> {
    let Some(item) = answer.item.clone() else { return Ok(None) };
    let (key, entry) = entry(item)?;
    match key == *asked {
        true => Ok(Some(entry)),
        false => Err(wrong("the server answered with another key".to_owned())),
    }
}

/// Returns the wire message for a piece (a part of a snapshot, or changes). `run` is the number of
/// the server's run.
pub fn part(run: u64, piece: Piece) -> Part {
    match piece {
        Piece::Snapshot { revision, is_first, is_last, entries } => {
            let items = entries.into_iter().map(|(key, entry)| item(&key, entry)).collect();
            Part { run, revision, is_snapshot: true, is_first, is_last, items }
        }
        Piece::Changes { through, changes } => {
            let items = changes.into_iter().map(|change| Item {
                key: change.key.as_str().to_owned(),
                value: change.value.map(|value| value.to_vec()),
                version: change.version,
                presence: false,
            });
            let items = items.collect();
            Part {
                run,
                revision: through,
                is_snapshot: false,
                is_first: false,
                is_last: false,
                items,
            }
        }
    }
}

/// Parses the message of a piece.
///
/// # Errors
/// The message is invalid.
pub fn piece(part: Part) -> Result<Piece, Error> {
    let Part { revision, is_snapshot, is_first, is_last, items, .. } = part;
    let change = |item: Item| {
        let (key, value) = (key(&item.key)?, item.value.map(value).transpose()?);
        Ok(Change { key, value, version: item.version, disk: Disk::Untouched })
    };
    Ok(match is_snapshot {
        true => {
            let entries = items.into_iter().map(entry).collect::<Result<_, Error>>()?;
            Piece::Snapshot { revision, is_first, is_last, entries }
        }
        false => {
            let changes = items.into_iter().map(change).collect::<Result<_, Error>>()?;
            Piece::Changes { through: revision, changes }
        }
    })
}
