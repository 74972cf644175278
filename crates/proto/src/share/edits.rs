//! The client's edits that are not acknowledged yet, over any number of connections.
//!
//! An edit that waited for a connection, or whose answer was lost with one, goes again under a
//! condition: nobody else has changed its key since the edit was made. If somebody has, the edit
//! ends as a conflict and changes nothing.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;

use super::key::Key;
use super::replica::Lie;
use super::tree::{Condition, Entry};

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
}

/// An edit to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Its number, new for each edit of a client.
    pub id: u64,
    /// The edit.
    pub wish: Wish,
    /// When the server is to make it.
    pub condition: Condition,
}

#[derive(Debug)]
struct Waiting {
    wish: Wish,
    /// What the client had heard of the server when the edit was made.
    heard: u64,
    /// It must not overwrite what it has not heard of.
    again: bool,
    sent: bool,
}

/// The edits.
#[derive(Debug, Default)]
pub struct Edits {
    next: u64,
    waiting: BTreeMap<u64, Waiting>,
    heard: u64,
    connected: bool,
}

impl Edits {
    /// Takes an edit; returns its number.
    pub fn add(&mut self, wish: Wish) -> u64 {
        self.next += 1;
        let (heard, again) = (self.heard, !self.connected);
        self.waiting.insert(self.next, Waiting { wish, heard, again, sent: false });
        self.next
    }

    /// Edits that are not acknowledged.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether all edits are acknowledged.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The server was heard to have this revision.
    pub fn heard(&mut self, revision: u64) {
        self.heard = self.heard.max(revision);
    }

    /// A connection stands.
    pub fn connected(&mut self) {
        self.connected = true;
    }

    /// The connection is lost: what was sent over it goes again.
    pub fn lost(&mut self) {
        self.connected = false;
        for waiting in self.waiting.values_mut() {
            waiting.again = true;
            waiting.sent = false;
        }
    }

    /// The next edit to send. Of several for one key that go again, the next waits for the answer
    /// to the one before.
    pub fn poll(&mut self) -> Option<Sent> {
        if !self.connected {
            return None;
        }
        let mut held = BTreeSet::new();
        for (id, waiting) in &mut self.waiting {
            let key = &waiting.wish.key;
            if !waiting.sent && !held.contains(key) {
                waiting.sent = true;
                let condition = match waiting.wish.version {
                    Some(version) => Condition::Version(version),
                    // Nobody else has this key.
                    None if !waiting.again || waiting.wish.presence => Condition::Always,
                    None => Condition::NotSince(waiting.heard),
                };
                return Some(Sent { id: *id, wish: waiting.wish.clone(), condition });
            }
            if waiting.again {
                held.insert(key.clone());
            }
        }
        None
    }

    /// The key of the edit `id`, if that waits.
    pub fn key(&self, id: u64) -> Option<&Key> {
        self.waiting.get(&id).map(|waiting| &waiting.wish.key)
    }

    /// Takes the answer to the edit `id`; returns the edit and what it came to.
    ///
    /// # Errors
    /// No such edit waits for an answer.
    pub fn answered(&mut self, id: u64, answer: Answer) -> Result<(Wish, Answer), Lie> {
        if !self.waiting.get(&id).is_some_and(|waiting| waiting.sent) {
            return Err(Lie("an answer is to no call"));
        }
        let Some(Waiting { wish, again, .. }) = self.waiting.remove(&id) else {
            return Err(Lie("an answer is to no call"));
        };
        let later = || self.waiting.values().filter(|other| other.wish.key == wish.key);
        let answer = match answer {
            // An earlier attempt was made, and its answer lost.
            Answer::Conflict(now)
                if again && {
                    let value = now.as_ref().map(|entry| &entry.value);
                    let is_ours = |other: &Wish| other.value.as_ref() == value;
                    is_ours(&wish) || later().any(|other| is_ours(&other.wish))
                } =>
            {
                Answer::Made(now.map_or(0, |entry| entry.version))
            }
            answer => answer,
        };
        if let Answer::Made(version) = answer {
            self.heard(version);
            for other in self.waiting.values_mut().filter(|other| other.wish.key == wish.key) {
                other.heard = other.heard.max(version);
            }
        }
        Ok((wish, answer))
    }
}
