//! The remote procedure calls of one program in both directions, over its successive connections.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use longhaul_proto::rpc::{
    self, Answer, CREDIT, Call, Callee, Caller, Event, Message, Room, RpcCode, RpcError,
};
use longhaul_proto::share::Prefix;
use longhaul_proto::time::Time;
use longhaul_session::Error;
use tokio::sync::oneshot;

use crate::convert;
use crate::handle::{Beginning, Items, Order, Passing, Rpc, Whose};
use crate::messages::Say;
use crate::method::{Methods, Task};

pub(crate) struct Ends {
    begun: Instant,
    is_client: bool,
    caller: Caller,
    callee: Callee,
    methods: Methods,
    /// The methods that the other side may call.
    may: Prefix,
    peer: String,
    /// The handle that methods get. It shares the counter of tickets with the program's handles.
    rpc: Rpc,
    /// The number of each call on the wire, by its ticket (its number in this program).
    tickets: HashMap<u64, u64>,
    waiting: HashMap<u64, Waiting>,
    running: HashMap<u64, Running>,
    runs: u64,
    is_released: bool,
}

struct Waiting {
    ticket: u64,
    sender: oneshot::Sender<Answer>,
    items: Option<Passing>,
}

struct Running {
    run: u64,
    _task: Task,
    items: Option<Passing>,
}

impl Ends {
    /// Returns the calls of one program: at the client if `is_client`, else at the server.
    /// `is_late` says whether the other side made earlier calls that this side does not know.
    pub(crate) fn new(is_client: bool, is_late: bool, methods: Methods, rpc: Rpc) -> Ends {
        Ends {
            begun: Instant::now(),
            is_client,
            caller: Caller::new(if is_client { 1 } else { 2 }),
            callee: Callee::new(!is_client, is_late),
            methods,
            may: Prefix::ALL,
            peer: String::new(),
            rpc,
            tickets: HashMap::new(),
            waiting: HashMap::new(),
            running: HashMap::new(),
            runs: 0,
            is_released: false,
        }
    }

    /// Sets the other side of the next connection, and the methods that it may call.
    pub(crate) fn connected(&mut self, peer: String, may: Prefix) {
        (self.peer, self.may) = (peer, may);
    }

    pub(crate) fn running(&self) -> (usize, usize) {
        self.callee.running()
    }

    pub(crate) fn is_released(&self) -> bool {
        self.is_released
    }

    /// Returns whether the program has dropped its handles, and nothing is left to do.
    pub(crate) fn is_finished(&self) -> bool {
        self.is_released && !self.caller.is_busy() && !self.callee.is_busy()
    }

    fn now(&self) -> Time {
        let nanos = self.begun.elapsed().as_nanos();
        Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    pub(crate) fn poll(&mut self) -> Option<Message> {
        self.callee.poll().or_else(|| self.caller.poll(self.now()))
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        let at = self.caller.deadline()?.as_nanos();
        // An overflow counts as no deadline.
        self.begun.checked_add(Duration::from_nanos(at))
    }

    pub(crate) fn expire(&mut self) {
        for id in self.caller.expire(self.now()) {
            let late = RpcError::new(RpcCode::Deadline, "the deadline has passed");
            self.answered(id, Err(late));
        }
    }

    /// Handles a message of the other side.
    ///
    /// # Errors
    /// The other side must not send this message.
    pub(crate) fn on_message(&mut self, say: Say, room: Room) -> Result<(), Error> {
        let Some(message) = convert::message(say)? else { return Ok(()) };
        let is_ours = |id: &u64| (id % 2 == 1) == self.is_client;
        let is_ours = match &message {
            Message::Answer(id, _) | Message::Item(id, _) | Message::Credit(id, _) => is_ours(id),
            _ => false,
        };
        let lie = |lie: longhaul_proto::share::Lie| convert::wrong(lie.0);
        if is_ours {
            if let Some(event) = self.caller.on_message(message).map_err(lie)? {
                self.on_event(event);
            }
        } else if let Some(order) = self.callee.on_message(message, room).map_err(lie)? {
            self.on_order(order);
        }
        Ok(())
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Answered(id, answer) => self.answered(id, answer),
            Event::Item(id, body) => self.ours(id, |to| to.pass(body)),
            Event::Credit(id, more) => self.ours(id, |to| to.allow(more)),
        }
    }

    fn on_order(&mut self, order: rpc::Order) {
        match order {
            rpc::Order::Run(call) => self.run(call),
            rpc::Order::Stop(id) => drop(self.running.remove(&id)),
            rpc::Order::Item(id, body) => self.theirs(id, |to| to.pass(body)),
            rpc::Order::Credit(id, more) => self.theirs(id, |to| to.allow(more)),
            rpc::Order::Finish(id) => self.theirs(id, Passing::finish),
        }
    }

    fn ours(&mut self, id: u64, then: impl FnOnce(&mut Passing)) {
        self.waiting.get_mut(&id).and_then(|call| call.items.as_mut()).map(then);
    }

    fn theirs(&mut self, id: u64, then: impl FnOnce(&mut Passing)) {
        self.running.get_mut(&id).and_then(|call| call.items.as_mut()).map(then);
    }

    fn answered(&mut self, id: u64, answer: Answer) {
        if let Some(Waiting { ticket, sender, .. }) = self.waiting.remove(&id) {
            self.tickets.remove(&ticket);
            let _ = sender.send(answer);
        }
    }

    fn run(&mut self, call: Call) {
        let (id, name) = (call.id, call.method.clone());
        let refuse = |code, reason: String| Err(RpcError::new(code, reason));
        if !self.may.contains(&name) {
            let may = self.may.as_str();
            let reason = format!("this client may not call '{name}'; it has rights below '{may}'");
            return self.callee.answer(id, refuse(RpcCode::Denied, reason));
        }
        if !self.methods.has(&name) {
            let reason = format!("there is no method '{name}'");
            return self.callee.answer(id, refuse(RpcCode::NoMethod, reason));
        }
        let orders = self.rpc.orders();
        let both = call.items.then(|| Items::new(Whose::Theirs(id), orders, CREDIT));
        let (items, passing) = both.unzip();
        self.runs += 1;
        let run = self.runs;
        if let Some(task) = self.methods.run(call, run, &self.peer, &self.rpc, items) {
            self.running.insert(id, Running { run, _task: task, items: passing });
        }
    }

    pub(crate) fn take(&mut self, order: Order) {
        match order {
            Order::Call(call) => self.begin(call),
            Order::Cancel(ticket) => {
                if let Some(id) = self.tickets.remove(&ticket) {
                    self.waiting.remove(&id);
                    self.caller.cancel(id);
                }
            }
            Order::Item(Whose::Ours(ticket), body) => {
                if let Some(id) = self.tickets.get(&ticket) {
                    // This cannot fail, because the handle has checked the item's length.
                    let _ = self.caller.item(*id, body);
                }
            }
            Order::Item(Whose::Theirs(id), body) => drop(self.callee.item(id, body)),
            Order::Finish(ticket) => {
                if let Some(id) = self.tickets.get(&ticket) {
                    self.caller.finish(*id);
                }
            }
            Order::Read(Whose::Ours(ticket)) => {
                if let Some(id) = self.tickets.get(&ticket) {
                    self.caller.read(*id);
                }
            }
            Order::Read(Whose::Theirs(id)) => self.callee.read(id),
            Order::Done(id, run, answer) => {
                // A stopped method also reports its end, so compare the numbers of the runs.
                if self.running.get(&id).is_some_and(|running| running.run == run) {
                    self.running.remove(&id);
                    self.callee.answer(id, answer);
                }
            }
            Order::Released => self.is_released = true,
        }
    }

    fn begin(&mut self, beginning: Beginning) {
        let Beginning { ticket, request, sender, items } = beginning;
        match self.caller.call(request, self.now()) {
            Ok(id) => {
                self.tickets.insert(ticket, id);
                self.waiting.insert(id, Waiting { ticket, sender, items });
            }
            Err(error) => drop(sender.send(Err(error))),
        }
    }

    /// Handles the loss of the connection. Ends all calls with items. The other calls of this
    /// program wait for the next connection if `keeps` is true, and end if `keeps` is false.
    pub(crate) fn lost(&mut self, keeps: bool) {
        for id in self.callee.lost() {
            self.running.remove(&id);
        }
        let ended = self.caller.lost();
        let lost = || Err(RpcError::new(RpcCode::Lost, "the connection was lost"));
        for id in ended {
            self.answered(id, lost());
        }
        if !keeps {
            self.fail(&RpcError::new(RpcCode::Lost, "the connection was lost"));
        }
    }

    /// Stops all methods that this client runs, because the server's calls end with the connection.
    pub(crate) fn restart(&mut self) {
        self.running.clear();
        self.callee = Callee::new(!self.is_client, false);
    }

    pub(crate) fn fail(&mut self, error: &RpcError) {
        let ids: Vec<u64> = self.waiting.keys().copied().collect();
        for id in ids {
            self.caller.cancel(id);
            self.answered(id, Err(error.clone()));
        }
    }
}
