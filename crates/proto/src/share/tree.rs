//! The server's tree: the entry of each key, and the recent changes.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::key::{Key, Prefix};

/// The longest value in bytes.
pub const MAX_VALUE: usize = 64 << 10;

/// Approximate memory of an entry in addition to key and value, in bytes.
const OVERHEAD: usize = 96;

/// The limits of a tree.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Keys.
    pub keys: usize,
    /// Approximate memory of all entries in bytes.
    pub bytes: usize,
    /// Approximate memory of the recent changes in bytes. A watcher that is further behind gets a
    /// snapshot.
    pub recent: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { keys: 1_000_000, bytes: 1 << 30, recent: 8 << 20 }
    }
}

/// The entry of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The value.
    pub value: Arc<[u8]>,
    /// The revision of the tree created by the last change of this key.
    pub version: u64,
    /// The client whose presence this is; the value vanishes with the client.
    pub owner: Option<u64>,
}

/// The condition for making an edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// None: the last writer wins.
    Always,
    /// The key has this version (0: the key does not exist).
    Version(u64),
    /// The key does not exist, or its version is at most this revision.
    NotSince(u64),
}

/// A requested change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The key.
    pub key: Key,
    /// The new value, at most [`MAX_VALUE`] bytes; `None` deletes the key.
    pub value: Option<Arc<[u8]>>,
    /// The condition for making it.
    pub condition: Condition,
    /// The client whose end removes the value.
    pub owner: Option<u64>,
}

/// A change that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The key.
    pub key: Key,
    /// The new value; `None` if the key was deleted.
    pub value: Option<Arc<[u8]>>,
    /// The revision of the tree that the change created.
    pub version: u64,
    /// The change's effect on the disk.
    pub disk: Disk,
}

/// A change's effect on the disk; presence is never stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    /// Nothing.
    Untouched,
    /// The value must be stored.
    Store,
    /// The stored value must be removed.
    Remove,
}

/// Why an edit was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The condition does not hold; contains the key's current entry.
    Conflict(Option<Entry>),
    /// The tree has reached its limit of keys or bytes.
    Full,
    /// The value is longer than [`MAX_VALUE`].
    Long,
    /// The edit was sent before, and its outcome is forgotten: it may have been made.
    Unknown,
    /// Another stream of the same writer has replaced the edit's stream.
    Replaced,
}

#[derive(Debug)]
pub struct Tree {
    entries: BTreeMap<Key, Entry>,
    /// The keys of each client's presence.
    owned: BTreeMap<u64, BTreeSet<Key>>,
    revision: u64,
    bytes: usize,
    recent: VecDeque<Change>,
    recent_bytes: usize,
    limits: Limits,
}

fn size(key: &Key, value: Option<&[u8]>) -> usize {
    OVERHEAD + key.as_str().len() + value.map_or(0, <[u8]>::len)
}

impl Tree {
    /// A tree with the `entries` of an earlier one, whose revisions were at most `revision`.
    pub fn new(
        limits: Limits,
        revision: u64,
        entries: impl IntoIterator<Item = (Key, Entry)>,
    ) -> Tree {
        let entries: BTreeMap<Key, Entry> = entries.into_iter().collect();
        let bytes = entries.iter().map(|(key, entry)| size(key, Some(&entry.value))).sum();
        let (owned, recent, recent_bytes) = (BTreeMap::new(), VecDeque::new(), 0);
        Tree { entries, owned, revision, bytes, recent, recent_bytes, limits }
    }

    /// The number of changes so far, including those of earlier trees.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the tree is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entry of `key`.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// The entries below `prefix` in key order.
    pub fn range(&self, prefix: &Prefix) -> impl Iterator<Item = (&Key, &Entry)> {
        let own = prefix.own().and_then(|key| self.entries.get_key_value(key));
        own.into_iter().chain(self.entries.range(prefix.below()))
    }

    /// Makes an edit; returns `None` if a missing key was to be deleted.
    ///
    /// # Errors
    /// The edit was not made.
    pub fn apply(&mut self, edit: Edit) -> Result<Option<Change>, Refusal> {
        let Edit { key, value, condition, owner } = edit;
        let old = self.entries.get(&key);
        let version = old.map_or(0, |entry| entry.version);
        let holds = match condition {
            Condition::Always => true,
            Condition::Version(wanted) => version == wanted,
            Condition::NotSince(revision) => version <= revision,
        };
        if !holds {
            return Err(Refusal::Conflict(old.cloned()));
        }
        if value.as_ref().is_some_and(|value| value.len() > MAX_VALUE) {
            return Err(Refusal::Long);
        }
        let before = old.map_or(0, |entry| size(&key, Some(&entry.value)));
        let after = value.as_ref().map_or(0, |value| size(&key, Some(value)));
        let is_more = old.is_none() && self.entries.len() >= self.limits.keys;
        if value.is_some() && (is_more || self.bytes - before + after > self.limits.bytes) {
            return Err(Refusal::Full);
        }
        let was_kept = old.map(|entry| entry.owner.is_none());
        if value.is_none() && was_kept.is_none() {
            return Ok(None);
        }
        self.revision += 1;
        self.bytes = self.bytes - before + after;
        let version = self.revision;
        let disk = match (&value, owner) {
            (Some(_), None) => Disk::Store,
            _ if was_kept == Some(true) => Disk::Remove,
            _ => Disk::Untouched,
        };
        if let Some(had) = old.and_then(|entry| entry.owner)
            && let Some(keys) = self.owned.get_mut(&had)
        {
            keys.remove(&key);
            if keys.is_empty() {
                self.owned.remove(&had);
            }
        }
        match &value {
            Some(value) => {
                if let Some(owner) = owner {
                    self.owned.entry(owner).or_default().insert(key.clone());
                }
                let entry = Entry { value: value.clone(), version, owner };
                self.entries.insert(key.clone(), entry);
            }
            None => drop(self.entries.remove(&key)),
        }
        let change = Change { key, value, version, disk };
        self.remember(change.clone());
        Ok(Some(change))
    }

    /// Deletes the presence of a client that has left.
    pub fn vanish(&mut self, owner: u64) -> Vec<Change> {
        let keys = self.owned.remove(&owner).unwrap_or_default();
        let edit = |key| Edit { key, value: None, condition: Condition::Always, owner: None };
        keys.into_iter().filter_map(|key| self.apply(edit(key)).ok().flatten()).collect()
    }

    fn remember(&mut self, change: Change) {
        self.recent_bytes += size(&change.key, change.value.as_deref());
        self.recent.push_back(change);
        while self.recent_bytes > self.limits.recent
            && let Some(oldest) = self.recent.pop_front()
        {
            self.recent_bytes -= size(&oldest.key, oldest.value.as_deref());
        }
    }

    /// The changes after `revision`, oldest first; `None` if some of them are forgotten, or the
    /// tree never had this revision.
    pub fn changes_after(&self, revision: u64) -> Option<impl Iterator<Item = &Change>> {
        let missed = self.revision.checked_sub(revision)?;
        let missed = usize::try_from(missed).ok().filter(|missed| *missed <= self.recent.len())?;
        Some(self.recent.range(self.recent.len() - missed..))
    }
}
