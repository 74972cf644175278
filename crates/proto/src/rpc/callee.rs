//! The callee of remote procedure calls: serves the calls of the other end. The ends are the client
//! and the server. A call with items is a call during which both ends also send further messages
//! (items). A credit is the number of items that an end may still send.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use super::caller::long;
use super::{
    Answer, CALLS, Call, Items, KEPT, Lie, MAX_BODY, Message, RpcCode, RpcError, STREAMS, allow,
};

/// The longest name of a method in bytes.
pub(super) const MAX_NAME: usize = 1024;
/// Limit of messages that wait in the queue because the other end does not read. If the other end
/// sends a call at this limit, its connection is closed.
pub(super) const UNREAD: usize = 4 * CALLS;

/// What the program has to do after a message. The first `u64` of a variant is the number of the
/// call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Run the method, and report its end with [`Callee::answer`].
    Run(Call),
    /// Pass an item to the method.
    Item(u64, Vec<u8>),
    /// The method gets no more items.
    Finish(u64),
    /// Stop the method.
    Stop(u64),
    /// The method may send this many more items.
    Credit(u64, u32),
}

/// Whether the limits leave room for more calls, given the calls on the caller's other connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Whether there is room for another call.
    pub calls: bool,
    /// Whether there is room for another call with items.
    pub streams: bool,
}

/// The calls of the other end, and the answers that it may request again.
#[derive(Debug)]
pub struct Callee {
    is_odd: bool,
    /// Whether the other end made earlier calls that this callee does not know.
    is_late: bool,
    /// Highest number of a call on this connection.
    last: u64,
    /// Highest number of a call on all connections.
    seen: u64,
    calls: BTreeMap<u64, State>,
    kept: BTreeSet<u64>,
    kept_bytes: usize,
    running: usize,
    streams: usize,
    queue: VecDeque<Message>,
}

#[derive(Debug)]
enum State {
    Running(Option<Items>),
    Kept(Answer),
}

impl Callee {
    /// Returns a callee for a caller with odd or even numbers. `is_late`: the caller made earlier
    /// calls that this callee does not know.
    pub fn new(is_odd: bool, is_late: bool) -> Callee {
        Callee {
            is_odd,
            is_late,
            last: 0,
            seen: 0,
            calls: BTreeMap::new(),
            kept: BTreeSet::new(),
            kept_bytes: 0,
            running: 0,
            streams: 0,
            queue: VecDeque::new(),
        }
    }

    /// Returns how many methods run, and how many of them have items.
    pub fn running(&self) -> (usize, usize) {
        (self.running, self.streams)
    }

    #[cfg(test)]
    pub(super) fn kept(&self) -> Vec<u64> {
        assert_eq!(self.calls.len(), self.kept.len() + self.running);
        self.kept.iter().copied().collect()
    }

    /// Takes a message about a call of the other end.
    ///
    /// # Errors
    /// A [`Lie`] if no honest caller would send this message.
    pub fn on_message(&mut self, message: Message, room: Room) -> Result<Option<Order>, Lie> {
        match message {
            Message::Call(call) => self.called(call, room),
            Message::Item(id, body) => {
                if body.len() > MAX_BODY {
                    return Err(Lie("an item is too long"));
                }
                let Some(items) = self.items(id)? else { return Ok(None) };
                items.came()?;
                Ok(Some(Order::Item(id, body)))
            }
            Message::Credit(id, more) => {
                let Some(items) = self.items(id)? else { return Ok(None) };
                items.allowed(more)?;
                Ok(Some(Order::Credit(id, more)))
            }
            Message::Finish(id) => Ok(self.items(id)?.map(|_| Order::Finish(id))),
            Message::Cancel(id) => {
                self.check(id)?;
                Ok(self.remove(id).then_some(Order::Stop(id)))
            }
            Message::Have(ids) => {
                for id in ids {
                    self.check(id)?;
                    if matches!(self.calls.get(&id), Some(State::Kept(_))) {
                        self.remove(id);
                    }
                }
                Ok(None)
            }
            Message::Answer(..) => Err(Lie("an answer belongs to no call")),
        }
    }

    fn called(&mut self, call: Call, room: Room) -> Result<Option<Order>, Lie> {
        let Call { id, items, again, .. } = call;
        if id % 2 != u64::from(self.is_odd) {
            return Err(Lie("a caller used a number that belongs to the callee's own calls (odd \
                            instead of even, or the reverse)"));
        }
        if id <= self.last {
            return Err(Lie("the numbers of calls do not grow"));
        }
        if call.method.len() > MAX_NAME || call.body.len() > MAX_BODY {
            return Err(Lie("a method name or a request is too long"));
        }
        if self.queue.len() >= UNREAD {
            return Err(Lie("the caller sends calls but does not read the answers"));
        }
        self.last = id;
        if again && (id <= self.seen || self.is_late) {
            self.seen = self.seen.max(id);
            self.repeat(id);
            return Ok(None);
        }
        if again && items || id <= self.seen {
            return Err(Lie("a call is sent twice"));
        }
        self.seen = id;
        let is_full = self.running + self.queue.len() >= CALLS || !room.calls;
        if is_full || items && (self.streams >= STREAMS || !room.streams) {
            let why = "too many calls of this caller wait for their answers";
            self.queue.push_back(Message::Answer(id, Err(RpcError::new(RpcCode::Busy, why))));
            return Ok(None);
        }
        self.running += 1;
        self.streams += usize::from(items);
        self.calls.insert(id, State::Running(items.then(Items::new)));
        Ok(Some(Order::Run(call)))
    }

    /// Answers a call that arrives again, unless its method still runs.
    fn repeat(&mut self, id: u64) {
        let answer = match self.calls.get(&id) {
            Some(State::Running(_)) => return,
            Some(State::Kept(answer)) => answer.clone(),
            None => Err(RpcError::new(RpcCode::Unknown, "the answer to this call is lost")),
        };
        self.queue.push_back(Message::Answer(id, answer));
    }

    fn check(&self, id: u64) -> Result<(), Lie> {
        match id % 2 == u64::from(self.is_odd) && id <= self.seen {
            true => Ok(()),
            false => Err(Lie("a message belongs to no call")),
        }
    }

    /// The items of a running call; `None` if the call has ended.
    fn items(&mut self, id: u64) -> Result<Option<&mut Items>, Lie> {
        self.check(id)?;
        match self.calls.get_mut(&id) {
            Some(State::Running(Some(items))) => Ok(Some(items)),
            Some(_) => Err(Lie("a message about items is for a call without items")),
            None => Ok(None),
        }
    }

    /// Removes a call; returns whether its method runs.
    fn remove(&mut self, id: u64) -> bool {
        match self.calls.remove(&id) {
            Some(State::Running(items)) => {
                self.running -= 1;
                self.streams -= usize::from(items.is_some());
                true
            }
            Some(State::Kept(answer)) => {
                self.kept.remove(&id);
                self.kept_bytes -= size(&answer);
                false
            }
            None => false,
        }
    }

    /// Ends a call with its answer. An answer that is too long becomes a failure.
    pub fn answer(&mut self, id: u64, answer: Answer) {
        let Some(State::Running(items)) = self.calls.get(&id) else { return };
        let is_kept = items.is_none();
        self.remove(id);
        let answer = answer.and_then(|body| long(&body).map(|()| body));
        if is_kept {
            self.kept_bytes += size(&answer);
            self.kept.insert(id);
            self.calls.insert(id, State::Kept(answer.clone()));
            while (self.kept.len() > KEPT.0 || self.kept_bytes > KEPT.1)
                && let Some(&oldest) = self.kept.first()
            {
                self.remove(oldest);
            }
        }
        self.queue.push_back(Message::Answer(id, answer));
    }

    /// Sends an item of a method. Drops the item if the call has ended or has no credit left.
    ///
    /// # Errors
    /// The item is too long.
    pub fn item(&mut self, id: u64, body: Vec<u8>) -> Result<(), RpcError> {
        long(&body)?;
        if let Some(State::Running(Some(items))) = self.calls.get_mut(&id)
            && items.send()
        {
            self.queue.push_back(Message::Item(id, body));
        }
        Ok(())
    }

    /// Counts an item that the method has read.
    pub fn read(&mut self, id: u64) {
        if let Some(State::Running(Some(items))) = self.calls.get_mut(&id)
            && let Some(more) = items.read()
        {
            allow(&mut self.queue, id, more);
        }
    }

    /// Returns the next message to send, if there is one.
    pub fn poll(&mut self) -> Option<Message> {
        self.queue.pop_front()
    }

    /// Returns whether messages wait to be sent.
    pub fn is_busy(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Notes that the connection is lost. Returns the calls with items, whose methods must stop.
    /// Other methods continue.
    pub fn lost(&mut self) -> Vec<u64> {
        self.last = 0;
        self.queue.clear();
        let is_stream =
            |(id, state): (&u64, &State)| matches!(state, State::Running(Some(_))).then_some(*id);
        let streams: Vec<u64> = self.calls.iter().filter_map(is_stream).collect();
        for id in &streams {
            self.remove(*id);
        }
        streams
    }
}

fn size(answer: &Answer) -> usize {
    match answer {
        Ok(body) => body.len(),
        Err(error) => error.reason.len(),
    }
}
