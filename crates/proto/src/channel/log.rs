//! The newest messages of a room (the server's side of a channel).

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;

use super::Message;
use crate::share::Key;

/// The limits of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of messages that are kept for slow subscribers.
    pub messages: usize,
    /// Maximum bytes of the messages that are kept for slow subscribers. The newest message is
    /// kept, whatever its size.
    pub bytes: usize,
    /// Maximum number of keys whose last message is kept for late subscribers.
    pub keys: usize,
    /// Maximum bytes of the last messages that are kept for late subscribers.
    pub key_bytes: usize,
}

impl Default for Limits {
    /// 4,096 messages with at most 32 MiB in all; 4,096 keys, whose last messages have at most
    /// 17 MiB in all, so that the longest message is kept.
    fn default() -> Limits {
        Limits { messages: 4_096, bytes: 32 << 20, keys: 4_096, key_bytes: 17 << 20 }
    }
}

/// The newest messages of a room, and the last message of each key. A position is the number of a
/// message in the room, from 0.
#[derive(Clone, Debug)]
pub struct Log {
    limits: Limits,
    /// Position of the first of `entries`.
    first: u64,
    entries: VecDeque<Arc<Message>>,
    bytes: usize,
    /// The last message of each key, by position.
    kept: BTreeMap<u64, Arc<Message>>,
    kept_bytes: usize,
    positions: BTreeMap<Option<Key>, u64>,
}

impl Log {
    /// An empty log.
    pub fn new(limits: Limits) -> Log {
        Log {
            limits,
            first: 0,
            entries: VecDeque::new(),
            bytes: 0,
            kept: BTreeMap::new(),
            kept_bytes: 0,
            positions: BTreeMap::new(),
        }
    }

    /// The position of the oldest message. Ignores the last messages of keys, which the log keeps
    /// separately.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The position of the next message.
    pub fn next(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// Approximate bytes of memory. A message that is among the newest and also the last of its key
    /// counts twice.
    pub fn cost(&self) -> usize {
        self.bytes + self.kept_bytes
    }

    /// The part of [`Log::cost`] for the last message of each key.
    pub fn kept_cost(&self) -> usize {
        self.kept_bytes
    }

    /// The number of keys with a last message.
    pub fn keys(&self) -> usize {
        self.kept.len()
    }

    /// Appends a message; drops the oldest messages beyond the limits.
    pub fn push(&mut self, message: Message) {
        let (position, message) = (self.next(), Arc::new(message));
        if let Some(old) = self.positions.insert(message.key.clone(), position) {
            self.forget(old);
        }
        self.kept_bytes += message.cost();
        self.kept.insert(position, message.clone());
        self.bytes += message.cost();
        self.entries.push_back(message);
        let Limits { messages, bytes, keys, key_bytes } = self.limits;
        self.trim(messages, bytes, 1);
        while (self.kept.len() > keys || self.kept_bytes > key_bytes) && !self.kept.is_empty() {
            self.drop_key();
        }
    }

    /// Drops the oldest messages, then the keys with the oldest last messages, until the cost is at
    /// most `cost`.
    pub fn shrink(&mut self, cost: usize) {
        self.trim(usize::MAX, cost.saturating_sub(self.kept_bytes), 0);
        while self.cost() > cost && !self.kept.is_empty() {
            self.drop_key();
        }
    }

    fn trim(&mut self, messages: usize, bytes: usize, least: usize) {
        while self.entries.len() > least && (self.entries.len() > messages || self.bytes > bytes) {
            if let Some(oldest) = self.entries.pop_front() {
                self.bytes -= oldest.cost();
                self.first += 1;
            }
        }
    }

    fn drop_key(&mut self) {
        if let Some((_, oldest)) = self.kept.pop_first() {
            self.kept_bytes -= oldest.cost();
            self.positions.remove(&oldest.key);
        }
    }

    fn forget(&mut self, position: u64) {
        if let Some(old) = self.kept.remove(&position) {
            self.kept_bytes -= old.cost();
        }
    }

    /// The message at a position, if the log still has it.
    pub(super) fn at(&self, position: u64) -> Option<&Arc<Message>> {
        self.entries.get(usize::try_from(position.checked_sub(self.first)?).ok()?)
    }

    /// The last message of a key, and its position.
    pub(super) fn last(&self, key: &Option<Key>) -> Option<(u64, &Arc<Message>)> {
        let position = *self.positions.get(key)?;
        Some((position, self.kept.get(&position)?))
    }

    /// The last message of each key, from a position on, in the order of positions.
    pub(super) fn kept(&self, from: u64) -> impl Iterator<Item = (u64, &Arc<Message>)> {
        self.kept.range(from..).map(|(position, message)| (*position, message))
    }
}
