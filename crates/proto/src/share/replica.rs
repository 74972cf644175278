//! The client's side of a watch: a subscription to the entries at and below a prefix. The client
//! checks every *piece* (message) that the server sends.

use alloc::vec::Vec;

use super::key::{Key, Prefix};
use super::tree::{Change, Entry, size};
use super::watcher::Piece;

/// The output of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// All entries, in key order: at the start, and after missed changes.
    Snapshot(Vec<(Key, Entry)>),
    /// Later changes, oldest first.
    Changes(Vec<Change>),
}

/// A message that no honest peer sends, or a snapshot that is too large; the text says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lie(pub &'static str);

/// The client's side of a watch: the revision that it has, and the incomplete snapshot.
#[derive(Debug)]
pub struct Replica {
    prefix: Prefix,
    revision: Option<u64>,
    snapshot: Option<(u64, Vec<(Key, Entry)>)>,
    bytes: usize,
    most: usize,
}

impl Update {
    /// Approximate bytes of memory that this output takes.
    pub fn bytes(&self) -> usize {
        match self {
            Update::Snapshot(entries) => {
                entries.iter().map(|(key, entry)| size(key, Some(&entry.value))).sum()
            }
            Update::Changes(changes) => {
                changes.iter().map(|change| size(&change.key, change.value.as_deref())).sum()
            }
        }
    }
}

impl Replica {
    /// A watch of `prefix` without data. It refuses a snapshot of more than about `most` bytes of
    /// memory.
    pub fn new(prefix: Prefix, most: usize) -> Replica {
        Replica { prefix, revision: None, snapshot: None, bytes: 0, most }
    }

    /// The revision up to which the watch is complete; `None` until a snapshot from the current run
    /// of the server is complete.
    pub fn revision(&self) -> Option<u64> {
        self.revision
    }

    /// Approximate bytes of memory of the incomplete snapshot.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Handles a new connection: an incomplete snapshot restarts. `is_other`: the connection leads
    /// to a different run of the server, so earlier data do not count.
    pub fn reconnected(&mut self, is_other: bool) {
        self.snapshot = None;
        self.bytes = 0;
        if is_other {
            self.revision = None;
        }
    }

    /// Processes the next piece. Returns the snapshot or the changes that it completes, if any.
    ///
    /// # Errors
    /// The piece is invalid, or the snapshot takes too much memory; the watch is unchanged.
    pub fn take(&mut self, piece: Piece) -> Result<Option<Update>, Lie> {
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
    ) -> Result<Option<Update>, Lie> {
        let begun = self.snapshot.as_ref().map(|(begun, _)| *begun);
        if !is_first && begun.is_none() {
            return Err(Lie("the first part of a snapshot is missing"));
        }
        if self.revision.is_some_and(|had| revision < had) {
            return Err(Lie("a snapshot is older than the data before it"));
        }
        let has_changed = |begun| if is_first { revision <= begun } else { revision != begun };
        if begun.is_some_and(has_changed) {
            return Err(Lie("a snapshot changes its revision, or repeats its beginning"));
        }
        if entries.is_empty() && !is_last {
            return Err(Lie("a part of a snapshot is empty"));
        }
        let had = self.snapshot.as_ref().filter(|_| !is_first);
        let had = had.map_or(&[][..], |(_, had)| had);
        let mut last = had.last().map(|(key, _)| key);
        let mut bytes = if is_first { 0 } else { self.bytes };
        for (key, entry) in &entries {
            if last.is_some_and(|last| last >= key) {
                return Err(Lie("the keys of a snapshot are out of order"));
            }
            if !self.prefix.contains(key.as_str()) || entry.version > revision {
                return Err(Lie("a snapshot has an entry outside of its prefix or revision"));
            }
            bytes += size(key, Some(&entry.value));
            last = Some(key);
        }
        if bytes > self.most {
            return Err(Lie("a snapshot is larger than this client takes"));
        }
        if is_first {
            self.snapshot = None;
        }
        self.bytes = bytes;
        let (_, whole) = self.snapshot.get_or_insert((revision, Vec::new()));
        whole.extend(entries);
        if !is_last {
            return Ok(None);
        }
        self.revision = Some(revision);
        self.bytes = 0;
        Ok(self.snapshot.take().map(|(_, entries)| Update::Snapshot(entries)))
    }

    fn take_changes(&mut self, through: u64, changes: Vec<Change>) -> Result<Option<Update>, Lie> {
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
        Ok((!changes.is_empty()).then_some(Update::Changes(changes)))
    }
}
