//! The server's tree of small values: the entry of each key, and the recent changes.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::iter;
use core::ops::Bound;

use super::key::{Key, Prefix};

/// The longest value in bytes.
pub const MAX_VALUE: usize = 64 << 10;

/// Approximate bytes of memory per entry in addition to key and value.
const OVERHEAD: usize = 96;

/// The limits of a tree.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of keys.
    pub keys: usize,
    /// Maximum memory of all entries in bytes, approximately.
    pub bytes: usize,
    /// Maximum bytes of memory, approximately, for recent changes and the values that they
    /// replaced. A watcher that is further behind gets a new snapshot.
    pub recent: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { keys: 1_000_000, bytes: 1 << 30, recent: 32 << 20 }
    }
}

/// The entry of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The value.
    pub value: Arc<[u8]>,
    /// The tree's revision that the last change of this key created.
    pub version: u64,
    /// The id of the owner, if the value vanishes when the owner leaves (presence); `None` for a
    /// lasting value.
    pub owner: Option<u64>,
}

/// The condition for making an edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// No condition: the last writer wins.
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
    /// The condition for making the edit.
    pub condition: Condition,
    /// The id of the owner whose departure removes the value; `None` for a lasting value.
    pub owner: Option<u64>,
}

/// An applied change.
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

/// A change's effect on the disk; presences are never stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    /// The disk does not change.
    Untouched,
    /// The value must be stored.
    Store,
    /// The stored value must be removed.
    Remove,
}

/// The reason why a request did not apply its edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The condition does not hold; contains the key's current entry.
    Conflict(Option<Entry>),
    /// The edit would exceed the tree's limit of keys or bytes.
    Full,
    /// The value is longer than [`MAX_VALUE`].
    Long,
    /// The edit was sent before, and its outcome was discarded, so it may have been applied.
    Unknown,
    /// The edit's stream has ended, or another stream of the same writer has replaced it.
    Replaced,
}

/// A tree of small values with their versions, and the recent changes for its watchers.
#[derive(Debug)]
pub struct Tree {
    entries: BTreeMap<Key, Entry>,
    /// The keys of each owner's presences (values that vanish with the owner).
    owned: BTreeMap<u64, BTreeSet<Key>>,
    revision: u64,
    bytes: usize,
    recent: VecDeque<Change>,
    /// The entry that a recent change replaced, by the key and the version of the change; `None` if
    /// the key did not exist.
    before: BTreeMap<(Key, u64), Option<Entry>>,
    recent_bytes: usize,
    limits: Limits,
}

pub(super) fn content(key: &Key, value: Option<&[u8]>) -> usize {
    key.as_str().len() + value.map_or(0, <[u8]>::len)
}

/// Approximate bytes of memory of an entry or a change.
pub(super) fn size(key: &Key, value: Option<&[u8]>) -> usize {
    OVERHEAD + content(key, value)
}

/// Bytes of memory for a recent change and the entry that it replaced.
fn recent_size(change: &Change, was: Option<&Entry>) -> usize {
    size(&change.key, change.value.as_deref()) + OVERHEAD + was.map_or(0, |was| was.value.len())
}

impl Tree {
    /// A tree with the `entries` of an earlier tree, whose revisions were at most `revision`.
    pub fn new(
        limits: Limits,
        revision: u64,
        entries: impl IntoIterator<Item = (Key, Entry)>,
    ) -> Tree {
        let entries: BTreeMap<Key, Entry> = entries.into_iter().collect();
        let bytes = entries.iter().map(|(key, entry)| size(key, Some(&entry.value))).sum();
        let (owned, recent, before) = (BTreeMap::new(), VecDeque::new(), BTreeMap::new());
        Tree { entries, owned, revision, bytes, recent, before, recent_bytes: 0, limits }
    }

    /// The newest revision; each change raises it by one.
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

    /// The entries of `prefix` (its own key and all keys below) in key order.
    pub fn range(&self, prefix: &Prefix) -> impl Iterator<Item = (&Key, &Entry)> {
        let own = prefix.own().and_then(|key| self.entries.get_key_value(key));
        own.into_iter().chain(self.entries.range(prefix.below()))
    }

    /// Makes an edit; returns `None` if the edit deletes a key that does not exist.
    ///
    /// # Errors
    /// [`Refusal::Conflict`], [`Refusal::Long`] or [`Refusal::Full`].
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
        let was = match &value {
            Some(value) => {
                if let Some(owner) = owner {
                    self.owned.entry(owner).or_default().insert(key.clone());
                }
                let entry = Entry { value: value.clone(), version, owner };
                self.entries.insert(key.clone(), entry)
            }
            None => self.entries.remove(&key),
        };
        let change = Change { key, value, version, disk };
        self.remember(change.clone(), was);
        Ok(Some(change))
    }

    /// Deletes all presences of an owner that has left; returns the changes.
    pub fn vanish(&mut self, owner: u64) -> Vec<Change> {
        let keys = self.owned.remove(&owner).unwrap_or_default();
        let edit = |key| Edit { key, value: None, condition: Condition::Always, owner: None };
        keys.into_iter().filter_map(|key| self.apply(edit(key)).ok().flatten()).collect()
    }

    fn remember(&mut self, change: Change, was: Option<Entry>) {
        self.recent_bytes += recent_size(&change, was.as_ref());
        self.before.insert((change.key.clone(), change.version), was);
        self.recent.push_back(change);
        while self.recent_bytes > self.limits.recent
            && let Some(oldest) = self.recent.pop_front()
        {
            let was = self.before.remove(&(oldest.key.clone(), oldest.version)).flatten();
            self.recent_bytes -= recent_size(&oldest, was.as_ref());
        }
    }

    /// The entries of `prefix` after the key `after`, in key order, as they were at `revision`.
    /// `None` if the tree no longer has all changes since `revision`, or never had this revision.
    pub fn entries_at(
        &self,
        prefix: &Prefix,
        after: Option<&Key>,
        revision: u64,
    ) -> Option<impl Iterator<Item = (&Key, &Entry)>> {
        let _ = self.changes_after(revision)?;
        let own = prefix.own().filter(|_| after.is_none());
        let (mut first, last) = prefix.below();
        if let Some(after) = after.filter(|after| prefix.own() != Some(*after)) {
            first = Bound::Excluded(after.clone());
        }
        let live = own.and_then(|key| self.entries.get_key_value(key)).into_iter();
        let mut live = live.chain(self.entries.range((first.clone(), last.clone()))).peekable();
        let at = |bound: Bound<Key>, version| bound.map(|key| (key, version));
        let own_before =
            own.map(|key| self.before.range((key.clone(), 0)..=(key.clone(), u64::MAX)));
        let before = self.before.range((at(first, u64::MAX), at(last, 0)));
        let before = own_before.into_iter().flatten().chain(before);
        // The first change of a key after `revision` replaced the key's entry at `revision`.
        let mut before = before.filter(move |((_, version), _)| *version > revision).peekable();
        Some(iter::from_fn(move || {
            loop {
                let changed = before.peek().map(|((key, _), _)| key);
                let is_live = match (live.peek(), changed) {
                    (Some((key, _)), Some(changed)) => *key < changed,
                    (Some(_), None) => true,
                    (None, Some(_)) => false,
                    (None, None) => return None,
                };
                if is_live {
                    return live.next();
                }
                let ((key, _), was) = before.next()?;
                while before.next_if(|((other, _), _)| other == key).is_some() {}
                live.next_if(|(other, _)| *other == key);
                if let Some(was) = was {
                    return Some((key, was));
                }
            }
        }))
    }

    /// The changes after `revision`, oldest first. `None` if the tree no longer has all of them, or
    /// never had this revision.
    pub fn changes_after(&self, revision: u64) -> Option<impl Iterator<Item = &Change>> {
        let missed = self.revision.checked_sub(revision)?;
        let missed = usize::try_from(missed).ok().filter(|missed| *missed <= self.recent.len())?;
        Some(self.recent.range(self.recent.len() - missed..))
    }
}
