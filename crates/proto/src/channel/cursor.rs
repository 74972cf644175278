//! The position of a subscriber in the log of its room.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;

use super::{Log, Message, Mode};
use crate::share::{Key, Prefix};

/// Messages that a subscriber by datagrams may lag behind: what is older is of no use to it.
const DATAGRAMS: u64 = 256;

/// What a subscriber takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// A message.
    Message(Arc<Message>),
    /// The log has dropped this many messages that the subscriber had not taken. With a filter,
    /// messages of other keys count too.
    Lost(u64),
}

/// A subscriber.
#[derive(Clone, Debug)]
pub struct Cursor {
    mode: Mode,
    keys: Prefix,
    /// Messages of this link are not for the subscriber, which is its other end.
    not_via: u64,
    /// The position of the next message.
    next: u64,
    /// Positions of last messages that were there before the subscriber, oldest first.
    before: VecDeque<u64>,
    /// Keys with a value that the subscriber lacks.
    due: VecDeque<Option<Key>>,
    /// Keys whose value in the log was taken ahead of its turn, at these positions.
    ahead: BTreeMap<Option<Key>, u64>,
}

impl Cursor {
    /// A new subscriber: it gets the last message of each key first, but in the mode `deadline`.
    /// `not_via` is the link that it
    /// is the other end of, or 0.
    pub fn new(log: &Log, mode: Mode, keys: Prefix, not_via: u64) -> Cursor {
        let mut cursor = Cursor::at(log.next(), mode, keys, not_via);
        match mode {
            Mode::Latest => cursor.next = 0,
            // What was said before is late already.
            Mode::Deadline(_) => {}
            _ => cursor.before = log.kept(0).map(|(position, _)| position).collect(),
        }
        cursor
    }

    /// A subscriber that has everything before the position `next`.
    pub fn at(next: u64, mode: Mode, keys: Prefix, not_via: u64) -> Cursor {
        let (before, due, ahead) = Default::default();
        Cursor { mode, keys, not_via, next, before, due, ahead }
    }

    /// The position from which a later cursor continues.
    pub fn position(&self) -> u64 {
        self.next
    }

    /// Messages of the room that wait for this subscriber.
    pub fn behind(&self, log: &Log) -> u64 {
        match self.mode {
            Mode::Latest => self.due.len() as u64,
            _ => log.next().saturating_sub(self.next) + self.before.len() as u64,
        }
    }

    fn wants(&self, message: &Message) -> bool {
        let of_keys = match &message.key {
            Some(key) => self.keys.contains(key.as_str()),
            None => self.keys == Prefix::ALL,
        };
        of_keys && (message.via == 0 || message.via != self.not_via)
    }

    /// Takes what comes next; `None` if there is nothing now.
    pub fn take(&mut self, log: &Log) -> Option<Taken> {
        match self.mode {
            Mode::Latest => self.take_latest(log).map(Taken::Message),
            Mode::Reliable => self.take_next(log),
            Mode::Datagram | Mode::Deadline(_) => {
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
            // A newer message of the key comes in its turn.
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

    /// Takes keys in rounds, so that a key that changes all the time starves no other.
    fn take_latest(&mut self, log: &Log) -> Option<Arc<Message>> {
        loop {
            if self.due.is_empty() {
                let round = log.kept(self.next);
                let due = round.filter(|(at, message)| self.ahead.get(&message.key) != Some(at));
                self.due = due.map(|(_, message)| message.key.clone()).collect();
                self.ahead.clear();
                self.next = log.next();
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
