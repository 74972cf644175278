//! The position of a subscriber in the log of its room (the server's side of a channel).

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;

use super::{Log, Message, Mode};
use crate::share::{Key, Prefix};

/// Maximum lag of a subscriber that gets datagrams, in messages.
const DATAGRAMS: u64 = 256;

/// The top bit of a position. No log reaches 2^63 messages, so the bit has no other use.
const INCOMPLETE: u64 = 1 << 63;

/// The next output of a cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// A message.
    Message(Arc<Message>),
    /// The subscriber missed this many messages: the log has dropped them, or they are too old
    /// for a subscriber that gets datagrams. With a filter, messages of other keys count too.
    Lost(u64),
}

/// A subscriber.
#[derive(Clone, Debug)]
pub struct Cursor {
    mode: Mode,
    keys: Prefix,
    /// The id of the link, if the subscriber is a link to another server; otherwise 0. The
    /// subscriber does not get messages that came over this link.
    not_via: u64,
    next: u64,
    /// For the mode `latest`: `next` before the current round.
    round: u64,
    /// Positions of each key's last message from before the subscription, oldest first.
    before: VecDeque<u64>,
    /// For the mode `latest`: the keys of the current round that the subscriber has not taken. A
    /// round takes each key with a new value once.
    due: VecDeque<Option<Key>>,
    /// Keys whose value arrived after the start of the current round and was taken in it, with the
    /// value's position. The next round skips these values.
    ahead: BTreeMap<Option<Key>, u64>,
}

impl Cursor {
    /// A new subscriber. Except in the mode `deadline`, it first gets the last message of each key
    /// in `keys`. `not_via` is the id of the link that leads to the subscriber; 0 if the subscriber
    /// is not a link.
    pub fn new(log: &Log, mode: Mode, keys: Prefix, not_via: u64) -> Cursor {
        let mut cursor = Cursor::at(log.next(), mode, keys, not_via);
        match mode {
            Mode::Latest => cursor.next = 0,
            // Earlier messages would be too late.
            Mode::Deadline(_) => {}
            _ => cursor.before = cursor.earlier(log),
        }
        cursor
    }

    /// A subscriber that continues at the position that [`Cursor::position`] returned on an earlier
    /// connection; `None` if the log has no such position.
    pub fn resume(
        log: &Log,
        position: u64,
        mode: Mode,
        keys: Prefix,
        not_via: u64,
    ) -> Option<Cursor> {
        let next = position & !INCOMPLETE;
        if next > log.next() {
            return None;
        }
        let mut cursor = Cursor::at(next, mode, keys, not_via);
        if position != next {
            cursor.before = cursor.earlier(log);
        }
        Some(cursor)
    }

    /// The positions of each key's last message before `next`, if the subscriber wants it.
    fn earlier(&self, log: &Log) -> VecDeque<u64> {
        let wanted = |(at, message): &(u64, &Arc<Message>)| *at < self.next && self.wants(message);
        log.kept(0).filter(wanted).map(|(at, _)| at).collect()
    }

    /// A subscriber that already has every message before the position `next`.
    pub fn at(next: u64, mode: Mode, keys: Prefix, not_via: u64) -> Cursor {
        let (before, due, ahead) = Default::default();
        Cursor { mode, keys, not_via, next, round: next, before, due, ahead }
    }

    /// The position for [`Cursor::resume`]. Its top bit is set while a subscriber of the mode
    /// `reliable` lacks last messages of keys from before its subscription: after a reconnect it
    /// gets all of them again.
    pub fn position(&self) -> u64 {
        match self.mode {
            Mode::Reliable if !self.before.is_empty() => self.next | INCOMPLETE,
            // A subscriber that continued at `next` would miss the keys left in the round until
            // their next change.
            Mode::Latest if !self.due.is_empty() => self.round,
            _ => self.next,
        }
    }

    /// Number of the room's messages that wait for this subscriber. In the mode `latest`: number of
    /// keys that are left in the current round.
    pub fn behind(&self, log: &Log) -> u64 {
        match self.mode {
            Mode::Latest => self.due.len() as u64,
            _ => log.next().saturating_sub(self.next) + self.before.len() as u64,
        }
    }

    fn wants(&self, message: &Message) -> bool {
        message.is_below(&self.keys) && (message.via == 0 || message.via != self.not_via)
    }

    /// Takes the next message or gap; `None` if there is nothing now.
    pub fn take(&mut self, log: &Log) -> Option<Taken> {
        match self.mode {
            Mode::Latest => self.take_latest(log).map(Taken::Message),
            Mode::Reliable => self.take_next(log),
            Mode::Datagram | Mode::Deadline(_) | Mode::Multicast => {
                let late = log.next().saturating_sub(DATAGRAMS);
                if self.next < late {
                    let lost = late - self.next;
                    self.next = late;
                    return Some(Taken::Lost(lost));
                }
                self.take_next(log)
            }
        }
    }

    fn take_next(&mut self, log: &Log) -> Option<Taken> {
        while let Some(position) = self.before.pop_front() {
            // If the key has a newer message, that message follows in order.
            let mut kept = log.kept(position).take_while(|(at, _)| *at == position);
            if let Some((_, message)) = kept.next()
                && self.wants(message)
            {
                return Some(Taken::Message(message.clone()));
            }
        }
        if self.next < log.first() {
            let lost = log.first() - self.next;
            self.next = log.first();
            return Some(Taken::Lost(lost));
        }
        while let Some(message) = log.at(self.next) {
            self.next += 1;
            if self.wants(message) {
                return Some(Taken::Message(message.clone()));
            }
        }
        None
    }

    /// Takes keys in rounds, so that a key that changes all the time does not starve the others.
    fn take_latest(&mut self, log: &Log) -> Option<Arc<Message>> {
        loop {
            if self.due.is_empty() {
                let round = log.kept(self.next);
                let due = round.filter(|(at, message)| self.ahead.get(&message.key) != Some(at));
                self.due = due.map(|(_, message)| message.key.clone()).collect();
                self.ahead.clear();
                (self.round, self.next) = (self.next, log.next());
            }
            let key = self.due.pop_front()?;
            if let Some((at, message)) = log.last(&key) {
                if at >= self.next {
                    self.ahead.insert(key, at);
                }
                if self.wants(message) {
                    return Some(message.clone());
                }
            }
        }
    }
}
