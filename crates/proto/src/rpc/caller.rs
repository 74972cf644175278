//! The caller of remote procedure calls: numbers and sends the calls of one end (the client or the
//! server), and matches their answers. A call with items is a call during which both ends also send
//! further messages (items). A credit is the number of items that an end may still send.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use super::{
    Answer, CALLS, Call, Items, Lie, MAX_BODY, Message, RpcCode, RpcError, STREAMS, allow,
};
use crate::time::{Span, Time};

/// Limit of the calls of one end that wait to be sent.
const WAITING: usize = 1 << 16;
/// Number of unconfirmed answers at which the caller confirms them, even if no call waits to be
/// sent.
const SILENT: usize = 32;
const MILLI: u64 = 1_000_000;

/// A call to make.
#[derive(Clone, Debug)]
pub struct Request {
    /// The name of the method.
    pub method: String,
    /// The request.
    pub body: Vec<u8>,
    /// Time limit for the answer.
    pub within: Option<Span>,
    /// Whether both ends may send items.
    pub items: bool,
}

/// What a message means to the caller. The first value is the number of the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A call has ended.
    Answered(u64, Answer),
    /// An item of a call.
    Item(u64, Vec<u8>),
    /// The program may send this many more items.
    Credit(u64, u32),
}

/// The calls of one end that have no answer yet.
#[derive(Debug)]
pub struct Caller {
    next: u64,
    open: BTreeMap<u64, Open>,
    /// Calls that were not yet sent on this connection, in order.
    unsent: VecDeque<u64>,
    /// Messages that are ready to be sent, about calls that were sent before.
    queue: VecDeque<Message>,
    /// Calls without items whose answers have arrived and are not yet confirmed.
    have: Vec<u64>,
}

#[derive(Debug)]
struct Open {
    /// The call. A call with items is sent only once, so its request is removed after sending.
    call: Call,
    deadline: Time,
    items: Option<Items>,
    /// Whether the call was sent on this connection.
    is_sent: bool,
    /// Messages that wait until the call is sent.
    held: Vec<Message>,
}

impl Caller {
    /// Returns a caller whose first call has the number `first`; the others follow in steps of 2.
    pub fn new(first: u64) -> Caller {
        let (unsent, queue) = (VecDeque::new(), VecDeque::new());
        Caller { next: first, open: BTreeMap::new(), unsent, queue, have: Vec::new() }
    }

    /// Begins a call; returns its number.
    ///
    /// # Errors
    /// The request is too long, or there are too many calls.
    pub fn call(&mut self, request: Request, now: Time) -> Result<u64, RpcError> {
        let Request { method, body, within, items } = request;
        long(&body)?;
        let streams = self.open.values().filter(|open| open.items.is_some()).count();
        if self.unsent.len() >= WAITING {
            return Err(RpcError::new(RpcCode::Busy, "too many calls wait to be sent"));
        }
        if items && streams >= STREAMS {
            return Err(RpcError::new(RpcCode::Busy, "too many calls with items have no answer"));
        }
        let (id, deadline) = (self.next, within.map_or(Time::NEVER, |within| now + within));
        self.next += 2;
        let call = Call { id, method, body, within: 0, items, again: false };
        let items = items.then(Items::new);
        self.open.insert(id, Open { call, deadline, items, is_sent: false, held: Vec::new() });
        self.unsent.push_back(id);
        Ok(id)
    }

    /// Sends an item of a call. Drops it if the call has ended, has no items, or lacks credit.
    ///
    /// # Errors
    /// The item is too long.
    pub fn item(&mut self, id: u64, body: Vec<u8>) -> Result<(), RpcError> {
        long(&body)?;
        let items = self.open.get_mut(&id).and_then(|open| open.items.as_mut());
        if items.is_some_and(Items::send) {
            self.send(id, Message::Item(id, body));
        }
        Ok(())
    }

    /// Tells the callee that no more items of a call follow.
    pub fn finish(&mut self, id: u64) {
        self.send(id, Message::Finish(id));
    }

    fn send(&mut self, id: u64, message: Message) {
        match self.open.get_mut(&id) {
            Some(open) if open.is_sent => self.queue.push_back(message),
            Some(open) => open.held.push(message),
            None => {}
        }
    }

    /// Counts an item that the program has read. After every 4 items, grants the callee new credit.
    pub fn read(&mut self, id: u64) {
        let items = self.open.get_mut(&id).and_then(|open| open.items.as_mut());
        if let Some(more) = items.and_then(Items::read) {
            allow(&mut self.queue, id, more);
        }
    }

    /// Drops a call. Cancels it at the other side if it was sent on this connection.
    pub fn cancel(&mut self, id: u64) {
        match self.open.remove(&id) {
            Some(open) if open.is_sent => self.queue.push_back(Message::Cancel(id)),
            Some(_) => self.unsent.retain(|call| *call != id),
            None => {}
        }
    }

    /// Returns the next message to send, if there is one. A new call waits while [`CALLS`] calls
    /// are unanswered.
    pub fn poll(&mut self, now: Time) -> Option<Message> {
        if self.have.len() >= SILENT || !self.unsent.is_empty() && !self.have.is_empty() {
            return Some(Message::Have(core::mem::take(&mut self.have)));
        }
        if let Some(message) = self.queue.pop_front() {
            return Some(message);
        }
        if self.open.len() - self.unsent.len() >= CALLS {
            return None;
        }
        let id = self.unsent.pop_front()?;
        let open = self.open.get_mut(&id)?;
        open.is_sent = true;
        self.queue.extend(open.held.drain(..));
        let within = match open.deadline {
            Time::NEVER => 0,
            deadline => (deadline.since(now).as_nanos() / MILLI).max(1),
        };
        let body = match open.items {
            Some(_) => core::mem::take(&mut open.call.body),
            None => open.call.body.clone(),
        };
        let method = open.call.method.clone();
        Some(Message::Call(Call { method, body, within, ..open.call }))
    }

    /// Takes a message about a call of this end.
    ///
    /// # Errors
    /// The message is one that no honest callee sends.
    pub fn on_message(&mut self, message: Message) -> Result<Option<Event>, Lie> {
        let (Message::Answer(id, _) | Message::Item(id, _) | Message::Credit(id, _)) = message
        else {
            return Err(Lie("only the caller of a call may send this message"));
        };
        if id >= self.next {
            return Err(Lie("a message belongs to no call"));
        }
        // The call may have ended while the message was on its way.
        let Some(open) = self.open.get_mut(&id) else { return Ok(None) };
        let none = Lie("a message about items is for a call without items");
        Ok(Some(match message {
            Message::Answer(id, answer) => {
                if open.items.is_none() {
                    self.have.push(id);
                }
                if !open.is_sent {
                    // The method ended before the caller repeated the call on this connection.
                    self.unsent.retain(|call| *call != id);
                }
                self.open.remove(&id);
                Event::Answered(id, answer)
            }
            Message::Item(id, body) => {
                open.items.as_mut().ok_or(none)?.came()?;
                Event::Item(id, body)
            }
            Message::Credit(id, more) => {
                open.items.as_mut().ok_or(none)?.allowed(more)?;
                Event::Credit(id, more)
            }
            _ => return Ok(None),
        }))
    }

    /// Returns the earliest deadline of a call.
    pub fn deadline(&self) -> Option<Time> {
        self.open.values().map(|open| open.deadline).min().filter(|first| *first < Time::NEVER)
    }

    /// Cancels the calls whose deadlines have passed; returns their numbers.
    pub fn expire(&mut self, now: Time) -> Vec<u64> {
        let late = self.open.iter().filter(|(_, open)| open.deadline <= now);
        let late: Vec<u64> = late.map(|(id, _)| *id).collect();
        for id in &late {
            self.cancel(*id);
        }
        late
    }

    /// Returns whether calls wait for their answers or messages wait to be sent.
    pub fn is_busy(&self) -> bool {
        !self.open.is_empty() || !self.queue.is_empty()
    }

    /// Notes that the connection is lost. Returns the calls with items, which end with the
    /// connection. Other calls are sent again on the next connection.
    pub fn lost(&mut self) -> Vec<u64> {
        self.have.clear();
        let streams = self.open.iter().filter(|(_, open)| open.items.is_some());
        let streams: Vec<u64> = streams.map(|(id, _)| *id).collect();
        self.open.retain(|_, open| open.items.is_none());
        self.queue.clear();
        self.unsent = self.open.keys().copied().collect();
        for open in self.open.values_mut() {
            open.call.again |= open.is_sent;
            open.is_sent = false;
        }
        streams
    }
}

pub(super) fn long(body: &[u8]) -> Result<(), RpcError> {
    match body.len() <= MAX_BODY {
        true => Ok(()),
        false => {
            let why = alloc::format!("{} bytes exceed the limit of {MAX_BODY}", body.len());
            Err(RpcError::new(RpcCode::TooLong, why))
        }
    }
}
