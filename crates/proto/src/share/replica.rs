//! The client's side of a watch. It checks everything that the server sends.

use alloc::vec::Vec;

use super::key::{Key, Prefix};
use super::tree::{Change, Entry};
use super::watcher::Piece;

/// The output of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// All entries, in key order: at the start, and after missed changes.
    Snapshot(Vec<(Key, Entry)>),
    /// Later changes, oldest first.
    Changes(Vec<Change>),
}

/// An invalid piece; the text says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lie(pub &'static str);

/// The state of a watch.
#[derive(Debug)]
pub struct Replica {
    prefix: Prefix,
    revision: Option<u64>,
    snapshot: Option<(u64, Vec<(Key, Entry)>)>,
    bytes: usize,
    most: usize,
}

impl Replica {
    /// An empty watch of `prefix`. It refuses a snapshot with more than `most` bytes of keys and
    /// values.
    pub fn new(prefix: Prefix, most: usize) -> Replica {
        Replica { prefix, revision: None, snapshot: None, bytes: 0, most }
    }

    /// The revision up to which the watch is complete.
    pub fn revision(&self) -> Option<u64> {
        self.revision
    }

    /// Handles a new connection: an incomplete snapshot starts again. With `is_other` the server
    /// has been restarted, so the watch starts from nothing.
    pub fn reconnected(&mut self, is_other: bool) {
        self.snapshot = None;
        if is_other {
            self.revision = None;
        }
    }

    /// Processes the next piece.
    ///
    /// # Errors
    /// The piece is invalid, so the server is broken or dishonest; the watch is unchanged.
    pub fn take(&mut self, piece: Piece) -> Result<Option<News>, Lie> {
        match piece {
            Piece::Snapshot { revision, is_first, is_last, entries } => {
                self.take_snapshot(revision, is_first, is_last, entries)
            }
            Piece::Changes { through, changes } => self.take_changes(through, changes),
        }
    }

    fn take_snapshot(
        &mut self,
        revision: u64,
        is_first: bool,
        is_last: bool,
        entries: Vec<(Key, Entry)>,
    ) -> Result<Option<News>, Lie> {
        if is_first == self.snapshot.is_some() {
            return Err(Lie("a snapshot begins within another one, or has no beginning"));
        }
        if self.revision.is_some_and(|had| revision < had) {
            return Err(Lie("a snapshot is older than what came before"));
        }
        if self.snapshot.as_ref().is_some_and(|(begun, _)| *begun != revision) {
            return Err(Lie("a snapshot changes its revision"));
        }
        if entries.is_empty() && !is_last {
            return Err(Lie("a part of a snapshot is empty"));
        }
        let had = self.snapshot.as_ref().map_or(&[][..], |(_, had)| had);
        let mut last = had.last().map(|(key, _)| key);
        let mut bytes = if is_first { 0 } else { self.bytes };
        for (key, entry) in &entries {
            if last.is_some_and(|last| last >= key) {
                return Err(Lie("the keys of a snapshot are out of order"));
            }
            if !self.prefix.contains(key.as_str()) || entry.version > revision {
                return Err(Lie("a snapshot has an entry outside of its prefix or revision"));
            }
            bytes += key.as_str().len() + entry.value.len();
            last = Some(key);
        }
        if bytes > self.most {
            return Err(Lie("a snapshot is larger than this client takes"));
        }
        self.bytes = bytes;
        let (_, whole) = self.snapshot.get_or_insert((revision, Vec::new()));
        whole.extend(entries);
        if !is_last {
            return Ok(None);
        }
        self.revision = Some(revision);
        Ok(self.snapshot.take().map(|(_, entries)| News::Snapshot(entries)))
    }

    fn take_changes(&mut self, through: u64, changes: Vec<Change>) -> Result<Option<News>, Lie> {
        let (Some(mut last), None) = (self.revision, &self.snapshot) else {
            return Err(Lie("changes come before the snapshot is complete"));
        };
        for change in &changes {
            if change.version <= last || change.version > through {
                return Err(Lie("changes are out of order"));
            }
            if !self.prefix.contains(change.key.as_str()) {
                return Err(Lie("a change is for a key that is not watched"));
            }
            last = change.version;
        }
        if through < last {
            return Err(Lie("changes are out of order"));
        }
        self.revision = Some(through);
        Ok((!changes.is_empty()).then_some(News::Changes(changes)))
    }
}
