//! A client's unacknowledged edits, and its presence (values that vanish with the client), across
//! any number of connections.
//!
//! If an answer was lost with a connection, the client sends the edit again with its old number. A
//! server that has already applied the edit only returns the outcome (`super::writers`). If the
//! edit never reached the server and has no [`Wish::version`], the server answers with a conflict
//! if another writer has put a value that the client did not know when the program requested the
//! edit. The client asks for its presence again on each new connection, and reports a presence as
//! lost if the server does not restore it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;

use super::key::Key;
use super::replica::Lie;
use super::tree::{Condition, Entry};
use super::writers::WINDOW;

/// An edit as the program requested it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The key.
    pub key: Key,
    /// The new value; `None` deletes the key.
    pub value: Option<Arc<[u8]>>,
    /// Make the edit only if the key has this version (0: if the key does not exist).
    pub version: Option<u64>,
    /// Whether the value vanishes with the client.
    pub presence: bool,
}

/// The server's answer to an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Made; the key has this version (0 if the edit deleted a key that did not exist).
    Made(u64),
    /// Condition not met; contains the key's current entry.
    Conflict(Option<Entry>),
    /// The server refused the edit.
    Refused,
    /// The answer on an earlier connection was lost, and the server has discarded the outcome.
    Unknown,
}

/// An edit to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The number of the edit; a client numbers its edits consecutively.
    pub number: u64,
    /// The edit.
    pub wish: Wish,
    /// The condition for making the edit.
    pub condition: Condition,
    /// Whether the edit was sent before, on a connection that was lost.
    pub again: bool,
}

/// A presence to ask for again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The key.
    pub key: Key,
    /// The value.
    pub value: Arc<[u8]>,
    /// The presence's version.
    pub version: u64,
    /// Whether the presence was put under a condition. If such a presence has vanished, the server
    /// does not create it again.
    pub is_strict: bool,
}

#[derive(Debug)]
struct Waiting {
    wish: Wish,
    /// The newest revision that the client knew when the program requested the edit, or a later
    /// revision that the client's own edit of the key created.
    seen_revision: u64,
    /// Whether the edit waited for a connection. Such an edit must not overwrite changes that the
    /// client did not know.
    is_late: bool,
    sent: bool,
    again: bool,
}

#[derive(Debug)]
struct Held {
    value: Arc<[u8]>,
    version: u64,
    is_strict: bool,
}

/// The pending edits, and the presence that earlier edits created.
#[derive(Debug, Default)]
pub struct Edits {
    next: u64,
    waiting: BTreeMap<u64, Waiting>,
    held: BTreeMap<Key, Held>,
    /// Keys of the presence to ask for again.
    loose: BTreeSet<Key>,
    /// Keys of the presence that was asked for again and has no answer yet.
    restoring: BTreeSet<Key>,
    seen_revision: u64,
    connected: bool,
}

impl Edits {
    /// Adds an edit; returns its number.
    pub fn add(&mut self, wish: Wish) -> u64 {
        self.next += 1;
        let (seen_revision, is_late) = (self.seen_revision, !self.connected);
        let waiting = Waiting { wish, seen_revision, is_late, sent: false, again: false };
        self.waiting.insert(self.next, waiting);
        self.next
    }

    /// Number of unacknowledged edits, plus presence keys that the server has not confirmed on this
    /// connection.
    pub fn len(&self) -> usize {
        self.waiting.len() + self.loose.len() + self.restoring.len()
    }

    /// Whether all edits are acknowledged and all presence is confirmed on this connection.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether an unacknowledged edit was sent on a connection that was lost.
    pub fn is_in_doubt(&self) -> bool {
        self.waiting.values().any(|waiting| waiting.again)
    }

    /// Whether the client believes that it has a presence at `key`.
    pub fn holds(&self, key: &Key) -> bool {
        self.held.contains_key(key)
    }

    /// Records a revision that the server reported.
    pub fn note_revision(&mut self, revision: u64) {
        self.seen_revision = self.seen_revision.max(revision);
    }

    /// Notes that a connection is open.
    pub fn connected(&mut self) {
        self.connected = true;
    }

    /// Notes that the connection was lost: its unanswered edits are sent again, and the client asks
    /// for all its presence again.
    pub fn lost(&mut self) {
        self.connected = false;
        for waiting in self.waiting.values_mut() {
            waiting.is_late = true;
            waiting.again |= waiting.sent;
            waiting.sent = false;
        }
        self.restoring.clear();
        self.loose = self.held.keys().cloned().collect();
    }

    /// The next edit to send, in the order of creation. The server remembers the outcomes of
    /// [`WINDOW`] edits, so at most this many are in flight.
    pub fn poll(&mut self) -> Option<Sent> {
        let oldest = *self.waiting.first_key_value()?.0;
        let next = self.waiting.iter_mut().find(|(_, waiting)| !waiting.sent);
        let (number, waiting) = next.filter(|_| self.connected)?;
        if number - oldest >= WINDOW {
            return None;
        }
        waiting.sent = true;
        let condition = match waiting.wish.version {
            Some(version) => Condition::Version(version),
            None if !waiting.is_late => Condition::Always,
            None => Condition::NotSince(waiting.seen_revision),
        };
        let (number, wish) = (*number, waiting.wish.clone());
        Some(Sent { number, wish, condition, again: waiting.again })
    }

    /// The next presence to request again. A presence waits for pending edits of its key, because
    /// they may replace it.
    pub fn poll_hold(&mut self) -> Option<Hold> {
        let is_free = |key: &&Key| self.waiting.values().all(|other| other.wish.key != **key);
        let key = self.loose.iter().find(is_free).filter(|_| self.connected)?.clone();
        self.loose.remove(&key);
        let Held { value, version, is_strict } = self.held.get(&key)?;
        let (value, version, is_strict) = (value.clone(), *version, *is_strict);
        self.restoring.insert(key.clone());
        Some(Hold { key, value, version, is_strict })
    }

    /// The key of edit `number`, if it is pending.
    pub fn key(&self, number: u64) -> Option<&Key> {
        self.waiting.get(&number).map(|waiting| &waiting.wish.key)
    }

    /// Processes the answer to edit `number`.
    ///
    /// # Errors
    /// No edit with this number awaits an answer on this connection.
    pub fn answered(&mut self, number: u64, answer: &Answer) -> Result<(), Lie> {
        if !self.waiting.get(&number).is_some_and(|waiting| waiting.sent) {
            return Err(Lie("an answer belongs to no edit"));
        }
        let Some(Waiting { wish, .. }) = self.waiting.remove(&number) else {
            return Err(Lie("an answer belongs to no edit"));
        };
        let Answer::Made(version) = *answer else { return Ok(()) };
        self.note_revision(version);
        for other in self.waiting.values_mut().filter(|other| other.wish.key == wish.key) {
            other.seen_revision = other.seen_revision.max(version);
        }
        self.loose.remove(&wish.key);
        self.restoring.remove(&wish.key);
        self.held.remove(&wish.key);
        if let (true, Some(value)) = (wish.presence, wish.value) {
            let is_strict = wish.version.is_some();
            self.held.insert(wish.key, Held { value, version, is_strict });
        }
        Ok(())
    }

    /// Processes the answer to a [`Hold`] of `key`. Returns whether the presence is lost.
    pub fn hold_answered(&mut self, key: &Key, answer: &Answer) -> bool {
        // An edit of the same key may have replaced the presence meanwhile.
        if !self.restoring.remove(key) {
            return false;
        }
        match (answer, self.held.get_mut(key)) {
            (Answer::Made(version), Some(held)) => {
                held.version = *version;
                self.seen_revision = self.seen_revision.max(*version);
                false
            }
            _ => self.held.remove(key).is_some(),
        }
    }
}
