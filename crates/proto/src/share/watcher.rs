//! The server's side of a watch: a watcher's progress, and the next *piece* (message) for the
//! watcher.

use alloc::vec::Vec;

use super::key::{Key, Prefix};
use super::tree::{Change, Entry, Tree, content};

/// Maximum bytes of keys and values in a piece, with 32 more counted for each entry. A piece of a
/// snapshot may exceed this size by its last entry.
pub const PIECE: usize = 128 << 10;

/// Maximum bytes of an entry in a message in addition to key and value.
const OVERHEAD: usize = 32;

/// A watcher. It reads the tree as it was at one revision (each change creates the tree's next
/// revision), then the recent changes. The tree keeps no state for a watcher. If the tree has
/// discarded a change that the watcher needs, the watcher gets a new snapshot, even during a
/// snapshot.
#[derive(Debug)]
pub struct Watcher {
    prefix: Prefix,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The watcher has no data.
    New,
    /// The watcher gets a snapshot of this revision, and has everything up to this key.
    Snapshot { revision: u64, after: Option<Key> },
    /// The watcher has everything up to this revision.
    At(u64),
}

/// One message of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A part of a snapshot, in key order.
    Snapshot {
        /// The revision of the tree that the whole snapshot shows.
        revision: u64,
        /// Whether a new snapshot begins, which replaces the watcher's data.
        is_first: bool,
        /// Whether the snapshot is complete.
        is_last: bool,
        /// The entries.
        entries: Vec<(Key, Entry)>,
    },
    /// All changes of watched keys after the watcher's last revision, up to `through`; oldest
    /// first.
    Changes {
        /// After these changes the watcher is complete up to this revision.
        through: u64,
        /// The changes.
        changes: Vec<Change>,
    },
}

impl Watcher {
    /// A watcher of `prefix` that is complete up to revision `has` of its tree. Without `has` the
    /// watcher needs a snapshot.
    pub fn new(prefix: Prefix, has: Option<u64>) -> Watcher {
        Watcher { prefix, state: has.map_or(State::New, State::At) }
    }

    /// The next piece; `None` if the watcher is complete.
    pub fn next(&mut self, tree: &Tree) -> Option<Piece> {
        match &mut self.state {
            State::New => Some(self.begin(tree)),
            State::Snapshot { revision, after } => {
                let (revision, after) = (*revision, after.take());
                Some(self.go_on(tree, revision, after).unwrap_or_else(|| self.begin(tree)))
            }
            State::At(revision) => {
                let Some(changes) = tree.changes_after(*revision) else {
                    return Some(self.begin(tree));
                };
                let (mut bytes, mut piece, mut through) = (0, Vec::new(), tree.revision());
                for change in changes.filter(|c| self.prefix.contains(c.key.as_str())) {
                    bytes += OVERHEAD + content(&change.key, change.value.as_deref());
                    if bytes > PIECE && !piece.is_empty() {
                        through = piece.last().map_or(through, |last: &Change| last.version);
                        break;
                    }
                    piece.push(change.clone());
                }
                *revision = through;
                (!piece.is_empty()).then_some(Piece::Changes { through, changes: piece })
            }
        }
    }

    fn begin(&mut self, tree: &Tree) -> Piece {
        self.go_on(tree, tree.revision(), None).expect("a tree remembers its last revision")
    }

    /// The next piece of the snapshot of `revision`; `None` if the tree no longer has all changes
    /// since `revision`.
    fn go_on(&mut self, tree: &Tree, revision: u64, after: Option<Key>) -> Option<Piece> {
        let mut rest = tree.entries_at(&self.prefix, after.as_ref(), revision)?.peekable();
        let (mut bytes, mut entries) = (0, Vec::new());
        while bytes < PIECE
            && let Some((key, entry)) = rest.next()
        {
            bytes += OVERHEAD + content(key, Some(&entry.value));
            entries.push((key.clone(), entry.clone()));
        }
        let (is_first, is_last) = (after.is_none(), rest.peek().is_none());
        let last = || entries.last().map(|(key, _): &(Key, Entry)| key.clone());
        self.state = match is_last {
            true => State::At(revision),
            false => State::Snapshot { revision, after: last() },
        };
        Some(Piece::Snapshot { revision, is_first, is_last, entries })
    }
}
