//! The client's edits that are not acknowledged yet, and its presence, over any number of
//! connections.
//!
//! An edit whose answer was lost with a connection goes again under the same number: a server that
//! has made it says so and does nothing (`super::writers`). An edit that the server never got goes
//! under a condition: nobody else has changed its key since the edit was made. A presence is asked
//! for again over each new connection; a presence that somebody else has taken is lost, and said to
//! be lost.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;

use super::key::Key;
use super::replica::Lie;
use super::tree::{Condition, Entry};
use super::writers::WINDOW;

/// An edit as its program made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The key.
    pub key: Key,
    /// The new value; nothing deletes the key.
    pub value: Option<Arc<[u8]>>,
    /// Make it only if the key has this version; 0: if it is not there.
    pub version: Option<u64>,
    /// The value is to vanish with the client.
    pub presence: bool,
}

/// What an edit came to, at the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It was made; the key has this version, and 0 where there was nothing to delete.
    Made(u64),
    /// The condition did not hold; with what the key has.
    Conflict(Option<Entry>),
    /// The server refused it.
    Refused,
    /// The answer of an earlier connection was lost, and the server has forgotten the outcome.
    Unknown,
}

/// An edit to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Its number: each edit of a client has the next one.
    pub number: u64,
    /// The edit.
    pub wish: Wish,
    /// When the server is to make it.
    pub condition: Condition,
    /// It has been sent before, over a connection that was lost.
    pub again: bool,
}

/// A presence to be asked for again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The key.
    pub key: Key,
    /// The value.
    pub value: Arc<[u8]>,
    /// The version that the presence had.
    pub version: u64,
    /// The presence was put under a condition: where it has vanished it is lost.
    pub is_strict: bool,
}

#[derive(Debug)]
struct Waiting {
    wish: Wish,
    /// What the client had heard of the server when the edit was made.
    heard: u64,
    /// It has waited for a connection: it must not overwrite what it has not heard of.
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

/// The edits, and the presence that they have made.
#[derive(Debug, Default)]
pub struct Edits {
    next: u64,
    waiting: BTreeMap<u64, Waiting>,
    held: BTreeMap<Key, Held>,
    /// Keys of presence that is to be asked for again.
    loose: BTreeSet<Key>,
    /// Keys of presence that was asked for again.
    asked: BTreeSet<Key>,
    heard: u64,
    connected: bool,
}

impl Edits {
    /// Takes an edit; returns its number.
    pub fn add(&mut self, wish: Wish) -> u64 {
        self.next += 1;
        let (heard, is_late) = (self.heard, !self.connected);
        let waiting = Waiting { wish, heard, is_late, sent: false, again: false };
        self.waiting.insert(self.next, waiting);
        self.next
    }

    /// Edits that are not acknowledged, and presence that is not held for sure.
    pub fn len(&self) -> usize {
        self.waiting.len() + self.loose.len() + self.asked.len()
    }

    /// Whether all edits are acknowledged.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether an edit was sent whose answer was lost.
    pub fn is_in_doubt(&self) -> bool {
        self.waiting.values().any(|waiting| waiting.again)
    }

    /// Whether the client believes that it has a presence at `key`.
    pub fn holds(&self, key: &Key) -> bool {
        self.held.contains_key(key)
    }

    /// The server was heard to have this revision.
    pub fn heard(&mut self, revision: u64) {
        self.heard = self.heard.max(revision);
    }

    /// A connection stands.
    pub fn connected(&mut self) {
        self.connected = true;
    }

    /// The connection is lost: what was sent over it goes again, and all presence is in doubt.
    pub fn lost(&mut self) {
        self.connected = false;
        for waiting in self.waiting.values_mut() {
            waiting.is_late = true;
            waiting.again |= waiting.sent;
            waiting.sent = false;
        }
        self.asked.clear();
        self.loose = self.held.keys().cloned().collect();
    }

    /// The next edit to send, in the order in which they were made. The server remembers the
    /// outcomes of [`WINDOW`] edits, so no more are on their way.
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
            None => Condition::NotSince(waiting.heard),
        };
        let (number, wish) = (*number, waiting.wish.clone());
        Some(Sent { number, wish, condition, again: waiting.again })
    }

    /// The next presence to ask for again: once no edit of its key waits, since that edit may
    /// replace it.
    pub fn poll_hold(&mut self) -> Option<Hold> {
        let is_free = |key: &&Key| self.waiting.values().all(|other| other.wish.key != **key);
        let key = self.loose.iter().find(is_free).filter(|_| self.connected)?.clone();
        self.loose.remove(&key);
        let Held { value, version, is_strict } = self.held.get(&key)?;
        let (value, version, is_strict) = (value.clone(), *version, *is_strict);
        self.asked.insert(key.clone());
        Some(Hold { key, value, version, is_strict })
    }

    /// The key of the edit `number`, if that waits.
    pub fn key(&self, number: u64) -> Option<&Key> {
        self.waiting.get(&number).map(|waiting| &waiting.wish.key)
    }

    /// Takes the answer to the edit `number`.
    ///
    /// # Errors
    /// No such edit waits for an answer.
    pub fn answered(&mut self, number: u64, answer: &Answer) -> Result<(), Lie> {
        if !self.waiting.get(&number).is_some_and(|waiting| waiting.sent) {
            return Err(Lie("an answer is to no call"));
        }
        let Some(Waiting { wish, .. }) = self.waiting.remove(&number) else {
            return Err(Lie("an answer is to no call"));
        };
        let Answer::Made(version) = *answer else { return Ok(()) };
        self.heard(version);
        for other in self.waiting.values_mut().filter(|other| other.wish.key == wish.key) {
            other.heard = other.heard.max(version);
        }
        // It replaces a presence that the key had.
        self.loose.remove(&wish.key);
        self.asked.remove(&wish.key);
        self.held.remove(&wish.key);
        if let (true, Some(value)) = (wish.presence, wish.value) {
            let is_strict = wish.version.is_some();
            self.held.insert(wish.key, Held { value, version, is_strict });
        }
        Ok(())
    }

    /// Takes the answer to a [`Hold`] of `key`. Returns whether that presence is lost.
    pub fn hold_answered(&mut self, key: &Key, answer: &Answer) -> bool {
        // An edit of the same key may have replaced it meanwhile.
        if !self.asked.remove(key) {
            return false;
        }
        match (answer, self.held.get_mut(key)) {
            (Answer::Made(version), Some(held)) => {
                held.version = *version;
                self.heard = self.heard.max(*version);
                false
            }
            _ => self.held.remove(key).is_some(),
        }
    }
}
